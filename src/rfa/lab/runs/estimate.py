"""How long runs will take, said before they start.

The costs are seconds of one processor, measured on one; what a folder of results has seen already,
of the same task if it can be, corrects them for the machine at hand.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfa._specs import parse_spec
from rfa.errors import PluginError
from rfa.lab.attacks.registry import BUILT_IN
from rfa.lab.runs.store import is_imported
from rfa.lab.settings.settings import Settings


@dataclass(frozen=True)
class Cost:
    """The cost of a task in seconds.

    Attributes:
        devices: how many devices there are to evaluate.
        examples: how many training examples a device has, about.
        device: seconds for a device in a round, whatever it computes.
        step: seconds for a local step, whatever the batch.
        example: seconds for an example in a step.
        evaluation: seconds to evaluate an example.
        dim: the number of parameters of the model.
    """

    devices: int
    examples: int
    device: float
    step: float
    example: float
    evaluation: float
    dim: int


LINEAR = Cost(450, 220, 7e-4, 4e-5, 0.0, 2e-6, 48_608)
CONVNET = Cost(450, 220, 5e-3, 1.5e-2, 1e-3, 4.5e-4, 6_603_710)
COSTS = {
    "emnist-linear": LINEAR,
    "glyphs-linear": LINEAR,
    "emnist-convnet": CONVNET,
    "glyphs-convnet": CONVNET,
    "shakespeare-lstm": Cost(628, 3500, 2e-3, 1.6e-3, 8e-5, 7e-5, 100_000),
    "sent140-linear": Cost(877, 60, 1e-4, 2e-5, 0.0, 1e-6, 50),
}
START = 1.0
"""Seconds to start a run and to end it, which its own seconds do not count."""
RECENT = 50
"""How many of the last runs tell how fast the machine is now."""
AGGREGATING = {
    "fedavg": 1.5e-9,
    "sgd": 1.5e-9,
    "rfa": 1.4e-8,
    "rfa-one-step": 7e-9,
    "centered-clipping": 1.4e-8,
    "adaptive-clipping": 8e-9,
    "bucketing": 4.5e-8,
    "coordinate-median": 1.6e-8,
    "trimmed-mean": 2e-8,
    "norm-clipping": 3e-9,
    "meamed": 2.5e-8,
    "bulyan": 3e-8,
    "nnm": 3.1e-8,
    "dnc": 3.3e-8,
    "signguard": 3.5e-9,
    "fltrust": 5e-9,
}
"""Seconds for each number of an update when the server aggregates, which few processes share."""
USUAL = 1e-8
"""The same for aggregators that are not named, and for attackers who know all updates."""
TRIES = {"ipm-optimized": 16, "alie-optimized": 16, "anti-median": 16}
"""How often attackers ask in a round what the server would compute."""
SUM, NOISE = (2e-4, 5e-9), (1e-4, 2e-8)
"""Seconds for a device in a sum of whole numbers, and for each of its numbers; for noise, as many
more. Masks are not counted: many runs are done without."""


def seconds(settings: Settings) -> float:
    """How long a run takes on one processor, about; tasks of the user's own count as linear."""
    cost = COSTS.get(parse_spec(settings.task).name, LINEAR)
    size = settings.training.batch_size
    if settings.training.batch_fraction:
        size = max(1, round(settings.training.batch_fraction * cost.examples))
    size = min(size, cost.examples)
    once = math.ceil(cost.examples / size)
    steps = settings.training.local_steps or settings.training.local_epochs * once
    steps *= 2 if settings.training.personalize else 1
    device = cost.device + steps * (cost.step + size * cost.example) + _sums(settings, cost.dim)
    device += _aggregating(settings) * cost.dim
    evaluated = min(settings.evaluation.examples or cost.examples, cost.examples)
    devices = settings.training.devices or cost.devices
    evaluations = 1 + settings.rounds / settings.evaluation.every
    return (
        START
        + settings.rounds * settings.training.devices_per_round * device
        + evaluations * devices * evaluated * cost.evaluation
    )


def _aggregating(settings: Settings) -> float:
    """Seconds for a number of an update, at the server and for attackers who know all updates."""
    once = AGGREGATING.get(parse_spec(settings.aggregator).name, USUAL)
    attack = parse_spec(settings.attack.corruption).name
    knowing = USUAL if attack in BUILT_IN else 0.0
    return once * (1 + TRIES.get(attack, 0)) + knowing


def _sums(settings: Settings, dim: int) -> float:
    """Seconds for a device in the sums of a round, where they are of whole numbers."""
    if settings.secure.mode == "off":
        return 0.0
    parts = (SUM, NOISE) if settings.privacy.is_on else (SUM,)
    return settings.layout.queries * sum(once + dim * each for once, each in parts)


def total_seconds(todo: Iterable[Settings], rows: Sequence[Mapping[str, Any]]) -> float:
    """How long runs take on one processor, given the runs that are done, the oldest first.

    Runs that were done elsewhere and imported tell nothing about this machine.
    """
    finished = [row for row in rows if row["status"] == "finished" and not is_imported(row)]

    @functools.cache
    def pace_of(task: str) -> float:
        return pace([row for row in finished if parse_spec(row["task"]).name == task] or finished)

    return sum(
        START + pace_of(parse_spec(settings.task).name) * (seconds(settings) - START)
        for settings in todo
    )


def pace(rows: Sequence[Mapping[str, Any]]) -> float:
    """How much longer the last of some runs took than was thought; 1 where there are none.

    Runs whose settings this version does not know are left out.
    """
    pairs = [pair for pair in map(_took, rows[-RECENT:]) if pair]
    thought = sum(pair[1] for pair in pairs)
    return sum(pair[0] for pair in pairs) / thought if thought else 1.0


def in_words(total: float) -> str:
    """A number of seconds as people say it.

    >>> in_words(42), in_words(150), in_words(9000)
    ('less than a minute', 'about 3 minutes', 'about 2.5 hours')
    """
    if total < 60:  # noqa: PLR2004
        return "less than a minute"
    if total < 90 * 60:
        minutes = math.ceil(total / 60)
        return f"about {minutes} minute{'s' if minutes > 1 else ''}"
    return f"about {total / 3600:.1f} hours"


def _took(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """How long a run took, and how long it was thought to take, both without its start."""
    try:
        settings = Settings.from_dict(json.loads(row["settings"]))
        counted = seconds(dataclasses.replace(settings, rounds=max(1, row["rounds"])))
    except (ValueError, PluginError):  # of another version, or of code that is not here
        return None
    return row["seconds"], counted - START
