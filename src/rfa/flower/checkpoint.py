"""The state of a server in one file, from which a restart continues."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from rfa._files import replace_file
from rfa.aggregators import SumAggregator
from rfa.aggregators.base import pack_state, unpack_state
from rfa.aggregators.server_optimizer import ServerState
from rfa.errors import InvalidValueError
from rfa.flower.spending import Spending
from rfa.secagg.server.suspicion import Suspicion, pack_suspicion, unpack_suspicion

HISTORIES = (
    "train_metrics_clientapp",
    "evaluate_metrics_clientapp",
    "evaluate_metrics_serverapp",
)
CARRIED, OPTIMIZER = "aggregator.", "optimizer."
"""The prefixes of the arrays of the aggregator's state, and of the server optimizer's."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a server after a round.

    Attributes:
        round: the number of rounds that are done.
        arrays: the model.
        result: the result for the user.
        aggregator: the state of the aggregator, such as a learned radius.
        suspicion: the evidence against nodes.
        optimizer: the state of the server's optimizer.
        spending: what was spent of the nodes' privacy.
        resumed: whether it was read from a file, so a sum of the next round may be lost.
    """

    round: int
    arrays: ArrayRecord
    result: Result
    aggregator: Any = None
    suspicion: Suspicion = field(default_factory=Suspicion)
    optimizer: ServerState = field(default_factory=ServerState)
    spending: Spending = field(default_factory=Spending)
    resumed: bool = False


def save_checkpoint(path: Path | None, state: Checkpoint) -> None:
    """Write the state of the server, completely or not at all."""
    if path is None:
        return
    metrics = {
        name: {str(t): dict(record) for t, record in getattr(state.result, name).items()}
        for name in HISTORIES
    }
    about = {
        "round": state.round,
        "names": list(state.arrays),
        "metrics": metrics,
        "suspicion": pack_suspicion(state.suspicion),
        "spending": state.spending.pack(),
    }
    values: dict[str, Any] = {
        f"array{i}": array.numpy() for i, array in enumerate(state.arrays.values())
    }
    values |= {CARRIED + name: array for name, array in pack_state(state.aggregator).items()}
    kept = {"momentum": state.optimizer.momentum, "squares": state.optimizer.squares}
    values |= {OPTIMIZER + name: array for name, array in kept.items() if array is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        np.savez(file, about=np.array(json.dumps(about, default=float)), **values)


def save_spending(path: Path | None, state: Checkpoint, spending: Spending) -> None:
    """Write the state of the server before a round, with what that round may spend."""
    save_checkpoint(path, dataclasses.replace(state, spending=spending))


def load_checkpoint(
    path: Path | None, initial: ArrayRecord, aggregator: SumAggregator[Any]
) -> Checkpoint:
    """Return the stored state of the server, or its initial state.

    Raises:
        ValueError: if the file cannot be read, or belongs to another model.
    """
    if path is None or not path.exists():
        _check_place(path)
        return Checkpoint(0, initial, Result(arrays=initial))
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            carried, kept = _named(file, CARRIED), _named(file, OPTIMIZER)
            arrays = {
                name: Array(np.asarray(file[f"array{i}"])) for i, name in enumerate(about["names"])
            }
        result = Result(arrays=ArrayRecord(arrays))
        for name in HISTORIES:
            history = {int(t): MetricRecord(values) for t, values in about["metrics"][name].items()}
            setattr(result, name, history)
        done, before = int(about["round"]), unpack_state(aggregator, carried)
        suspicion = unpack_suspicion(Suspicion(), about["suspicion"])
        spending = Spending.unpack(about["spending"])
        optimizer = ServerState(**kept)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        msg = f"the checkpoint {path} cannot be read ({error}): remove it to start over"
        raise InvalidValueError(msg) from None
    if not fits(result.arrays, initial):
        msg = f"the checkpoint {path} belongs to another model: remove it to start over"
        raise InvalidValueError(msg)
    return Checkpoint(
        done, result.arrays, result, before, suspicion, optimizer, spending, resumed=True
    )


def _named(file: Any, prefix: str) -> dict[str, Any]:
    """Return the arrays of a file whose names have a prefix, without the prefix."""
    names = [name for name in file.files if name.startswith(prefix)]
    return {name.removeprefix(prefix): np.asarray(file[name]) for name in names}


def _check_place(path: Path | None) -> None:
    """Check that a checkpoint can be written, before the first round."""
    if path is None:
        return
    trial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trial.touch()
        trial.unlink()
    except OSError as error:
        msg = f"no checkpoint can be written at {path}: {error}"
        raise InvalidValueError(msg) from None


def fits(one: ArrayRecord, other: ArrayRecord) -> bool:
    """Return whether two models have arrays of the same names, types and shapes."""
    return _shapes(one) == _shapes(other)


def _shapes(arrays: ArrayRecord) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(name, array.dtype, tuple(array.shape)) for name, array in arrays.items()]
