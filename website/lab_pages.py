"""The pages of settings, and of the names that they take, made from the lab's registries."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rfa.aggregators.registry import ENTRIES
from rfa.aggregators.server_optimizer import NAMES as OPTIMIZERS
from rfa.cli.options import PAPERS, SECTIONS
from rfa.lab.attacks.registry import BACKDOOR, BACKDOORS, BUILT_IN, OF_SUMS, POISONS
from rfa.lab.datasets import partition_registry
from rfa.lab.settings.fields import Setting
from rfa.lab.settings.parameters import PARAMETERS
from rfa.lab.settings.settings import FIELDS
from rfa.lab.tasks.registry import TASKS
from rfa.lab.tracking.find import TRACKERS
from website.markdown import code, first_sentence, table

SETTINGS = """# Settings of a run

Generated from the code. A setting has one name everywhere: `devices_per_round` is the keyword
of `lab.run` and `lab.sweep`, the option `--devices-per-round` of `rfa run`, and a key of a TOML
file. A `Settings` value keeps settings in groups: `settings.training.devices_per_round`.
"""
NAMES = """# Tasks, aggregators and attacks by name

Generated from the code. Parameters follow a name after a colon: `rfa:budget=4,nu=0.5`. Your own
object has the name `module:NAME`; in Python, give the object itself.
"""
TASK_KINDS = {
    "data": "It trains on poisoned examples: negatives, reversed text, or flipped labels.",
    "adaptive": "It labels its examples in each round with the least likely class of the model.",
    "backdoor": "It stamps a trigger on half of its examples and labels them as a target class.",
}
"""Attacks that each task defines for its data."""


def settings_page() -> str:
    """All settings of a run, by group."""
    titles = {"": "The run", **{key: title for key, title in SECTIONS.items() if key}}
    known = [*FIELDS.values(), *PARAMETERS.values()]
    parts = [SETTINGS]
    for group, title in titles.items():
        rows = [_setting(one) for one in known if one.group == group]
        if rows:
            heads = ("setting", "meaning", "default", "type")
            parts += [f"\n## {title}\n", table(heads, rows)]
    return "\n".join(parts)


def _setting(one: Setting) -> tuple[str, ...]:
    kind = ", ".join(map(code, one.choices)) or one.kind
    where = f" In a `Settings`: `{one.group}.{one.attribute}`." if one.attribute != one.name else ""
    meaning = one.help + where * (one.group != "aggregator")
    return code(one.name), meaning, _default(one), kind


def _default(one: Setting) -> str:
    if one.name in PAPERS:
        return "the task's"
    if one.name in PARAMETERS:
        return "the aggregator's"
    return code(repr(one.default)) if one.default != "" else "none"


def names_page() -> str:
    """Tasks, aggregators, attacks, partitions, server optimizers and trackers."""
    optimizers = [(code(name),) for name in OPTIMIZERS]
    trackers = [(code(f"{name}:{what}"),) for name, (what, _) in TRACKERS.items()]
    aggregators = [
        (
            code(entry.name),
            "sums" if entry.is_private else "single updates",
            entry.summary.removesuffix("; sees single updates"),
            ", ".join(map(code, entry.parameters)),
        )
        for entry in ENTRIES.values()
    ]
    sections = {
        "Tasks": table(
            ("task", "learns", "devices", "devices per round", "learning rate", "rounds"),
            map(_task, TASKS),
        ),
        "Aggregators": "An aggregator that sees sums alone runs under the secure sum.\n\n"
        + table(("aggregator", "sees", "computes", "parameters"), aggregators),
        "Attacks": table(("attack", "a corrupted device", "parameters"), _attacks()),
        "Partitions": table(("partition", "devices", "parameters"), _partitions()),
        "Server optimizers": table(("optimizer",), optimizers),
        "Trackers": table(("tracker",), trackers),
    }
    return NAMES + "".join(f"\n## {title}\n\n{text}" for title, text in sections.items())


def _task(name: str) -> tuple[str, ...]:
    task = TASKS[name]
    usual = task.defaults
    numbers = (usual["devices_per_round"], usual["learning_rate"], usual["rounds"])
    return code(name), task.title, f"{task.devices:,}", *map(str, numbers)


def _attacks() -> list[tuple[str, ...]]:
    rows = [(code(name), text, "") for name, text in TASK_KINDS.items()]
    functions: dict[str, Callable[..., Any]] = {
        **{name: poison.poison for name, poison in POISONS.items()},
        **{name: attack.forge for name, attack in BUILT_IN.items()},
        **{name: attack.lie for name, attack in OF_SUMS.items()},
    }
    whole = TASKS["emnist-linear"].poisons[BACKDOOR]
    for name, make in BACKDOORS.items():
        made = make(whole)
        taken = [_parameters(function) for function in (made.poison, made.forge) if function]
        rows.append((code(name), first_sentence(make.__doc__), ", ".join(filter(None, taken))))
    for name, function in functions.items():
        rows.append((code(name), first_sentence(function.__doc__), _parameters(function)))
    return rows


def _parameters(function: Callable[..., Any]) -> str:
    taken = inspect.signature(function).parameters.values()
    return ", ".join(
        code(f"{one.name}={one.default}") for one in taken if one.kind is one.KEYWORD_ONLY
    )


def _partitions() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, kind in partition_registry.BUILT_IN.items():
        taken = inspect.signature(kind).parameters.values()
        given = [
            one.name if one.default is one.empty else f"{one.name}={one.default}" for one in taken
        ]
        rows.append((code(name), first_sentence(kind.__doc__), ", ".join(map(code, given))))
    return rows
