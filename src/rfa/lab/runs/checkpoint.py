"""Checkpoints: everything that a run needs to resume, in one file."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._files import replace_file
from rfa.aggregators.base import SumAggregator, pack_state, unpack_state
from rfa.aggregators.registry import Aggregator
from rfa.lab.errors import LabError
from rfa.lab.simulation.ledger import pack_ledger, unpack_ledger
from rfa.lab.simulation.rounds import State
from rfa.lab.simulation.server_optimizer import ServerState
from rfa.privacy import Charges

SUSPICION = "suspicion"
CARRIED, CHARGES = "aggregator.", "charges."
"""Before the names of what the aggregator carries, and of what devices were charged."""
ANEW = "start anew with --fresh, in Python with fresh=True"
"""What to do about a run that cannot go on."""


class CheckpointError(LabError):
    """A checkpoint cannot be read, or belongs to something else."""


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a round.

    Attributes:
        state: where it is.
        slots: where what devices keep lies, if they keep anything.
        first_loss: the training loss before the first round.
        seconds: how long the run took so far.
        data: the digest of the data it runs on.
        done: whether the run has ended, and if so how: "finished", "diverged" or "spent"; else "".
    """

    state: State
    slots: NDArray[np.int8] | None
    first_loss: float
    seconds: float
    data: str
    done: str = ""


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint; whoever is killed meanwhile leaves the old one.

    Raises:
        CheckpointError: naming the file, if it cannot be written.
    """
    state = checkpoint.state
    arrays: dict[str, Any] = {
        "model": state.model,
        "numbers": np.array(
            [state.round, state.calls, state.rejected, state.dropped, state.stopped]
        ),
        "times": np.array([checkpoint.first_loss, checkpoint.seconds]),
        "texts": np.array([checkpoint.data, checkpoint.done]),
    }
    optional = {
        "momentum": state.server.momentum,
        "squares": state.server.squares,
        "slots": checkpoint.slots,
    }
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays |= {CARRIED + name: array for name, array in pack_state(state.aggregator).items()}
    if state.charges.largest:
        arrays |= {CHARGES + name: np.array(some) for name, some in state.charges.pack().items()}
    if state.suspicion:
        arrays[SUSPICION] = np.array(pack_ledger(state.suspicion))
    try:
        with replace_file(path) as file:
            np.savez(file, **arrays)
    except OSError as error:
        msg = f"{path} cannot be written: {error}"
        raise CheckpointError(msg) from None


def load(path: Path, aggregator: Aggregator | None) -> Checkpoint | None:
    """The checkpoint at a path of a run with an aggregator, or None where there is none.

    Without the aggregator, what it carries is left out.

    Raises:
        CheckpointError: if the file is not a whole checkpoint.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = dict(content)
        return _from_arrays(arrays, aggregator)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        msg = f"the checkpoint {path} cannot be read ({error}): {ANEW}"
        raise CheckpointError(msg) from None


def _from_arrays(arrays: dict[str, Any], aggregator: Aggregator | None) -> Checkpoint:
    t, *counts = (int(number) for number in arrays["numbers"])
    first_loss, seconds = (float(number) for number in arrays["times"])
    data, done = (str(text) for text in arrays["texts"])
    server = ServerState(arrays.get("momentum"), arrays.get("squares"))
    carried, charged = _named(arrays, CARRIED), _named(arrays, CHARGES)
    private = isinstance(aggregator, SumAggregator)
    before = unpack_state(aggregator, carried) if private and carried else None
    spent = {name: array.tolist() for name, array in charged.items()}
    charges = Charges.unpack(spent) if spent else Charges()
    told = arrays.get(SUSPICION)
    ledger = None if told is None else unpack_ledger(str(told))
    state = State(
        t,
        arrays["model"],
        server,
        *counts,
        aggregator=before,
        charges=charges,
        suspicion=ledger,
    )
    return Checkpoint(state, arrays.get("slots"), first_loss, seconds, data, done)


def _named(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    named = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in named.items()}
