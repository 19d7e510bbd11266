"""Results as tidy tables: one row an observation, and in each what tells its run from others.

Every table begins with the columns run, task, aggregator (its name alone), parameters (all that the
aggregator has, as text), corruption, rho, seed and privacy (the noise that was asked for, as text).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rfa._specs import parse_spec
from rfa._types import Array
from rfa.errors import InvalidValueError
from rfa.lab.runs.store import MEASURES, Store
from rfa.lab.table import Table

Row = Mapping[str, Any]

LEADING: dict[str, type] = {
    "run": object,
    "task": object,
    "aggregator": object,
    "parameters": object,
    "corruption": object,
    "rho": float,
    "seed": int,
    "privacy": object,
}
MEASURED: dict[str, type] = dict.fromkeys(MEASURES, float)
RUNS: dict[str, type] = {
    **LEADING,
    "personalized": bool,
    "status": object,
    "rounds": int,
    "oracle_calls": int,
    **MEASURED,
    "certificate": float,
    "noise_multiplier": float,
    "devices": int,
    "corrupted_devices": int,
    "dropped_updates": int,
    "rejected_rounds": int,
    "stopped_rounds": int,
    "stopped": object,
    "seconds": float,
    "started": object,
    "version": object,
    "note": object,
    "model_sha256": object,
    "data": object,
    "settings": object,
}
EVALUATIONS: dict[str, type] = {
    **LEADING,
    "round": int,
    "oracle_calls": int,
    **MEASURED,
    "test_loss": float,
    "seconds": float,
}
LISTS = ("devices", "corrupted", "dropped", "lost", "weights")
ROUNDS: dict[str, type] = {
    **LEADING,
    "round": int,
    **dict.fromkeys(LISTS, object),
    "oracle_calls": int,
    "objective": float,
    "certificate": float,
    "norm": float,
    "rejected": bool,
    "stopped": object,
    "epsilon_server": float,
}


def runs_table(store: Store, runs: Collection[str] | None = None) -> Table:
    """One row a run, the oldest first: its last evaluation, and what else is known of it.

    Args:
        store: the results.
        runs: the names of the runs; all by default.
    """
    rows = _chosen(store, runs).values()
    named = ({**row, **_leading(row), "personalized": bool(row["personalized"])} for row in rows)
    return Table.from_rows(named, RUNS)


def evaluations_table(
    store: Store, runs: Collection[str] | None = None, *, last: bool = False
) -> Table:
    """One row an evaluation: losses, and accuracies over all devices and over honest ones.

    Args:
        store: the results.
        runs: the names of the runs; all by default.
        last: only the last evaluation of each run.
    """
    return Table.from_rows(_joined(store, "evaluations", runs, last=last), EVALUATIONS)


def rounds_table(store: Store, runs: Collection[str] | None = None, *, last: bool = False) -> Table:
    """One row a round: who took part (as lists of devices), and what the aggregator did.

    Args:
        store: the results.
        runs: the names of the runs; all by default.
        last: only the last round of each run.
    """
    rows = (
        {**row, "rejected": bool(row["rejected"]), **{name: _listed(row[name]) for name in LISTS}}
        for row in _joined(store, "rounds", runs, last=last)
    )
    return Table.from_rows(rows, ROUNDS)


def devices_table(
    store: Store, runs: Collection[str] | None = None, *, last: bool = False
) -> Table:
    """One row for each run, evaluation and device: whether it is corrupted, and its accuracy.

    Devices are numbered as in the table of rounds, and have names where the data has some. With
    attackers that are drawn in each round, no device stays corrupted.

    Args:
        store: the results.
        runs: the names of the runs; all by default.
        last: only the last evaluation of each run.
    """
    chosen = _chosen(store, runs)
    names = {row["data"]: store.names(row["data"]) for row in chosen.values()}
    blocks = [
        _devices_block(row, evaluation, names[row["data"]])
        for evaluation, row in _with_runs(store, "evaluations", chosen, last=last)
    ]
    kinds = {**LEADING, "round": int, "device": int, "name": object, "corrupted": bool}
    empty = Table.from_rows([], {**kinds, "accuracy": float})
    return Table(
        {
            name: np.concatenate([empty[name], *(block[name] for block in blocks)])
            for name in empty.columns
        }
    )


RESULT_TABLES: dict[str, Callable[..., Table]] = {
    "runs": runs_table,
    "evaluations": evaluations_table,
    "rounds": rounds_table,
    "devices": devices_table,
}
"""The tables, by name."""


def _leading(row: Row) -> dict[str, Any]:
    """The values with which every row of a run begins."""
    values = {name: row[name] for name in LEADING}
    return values | {"aggregator": parse_spec(row["aggregator"]).name}


def _chosen(store: Store, runs: Collection[str] | None) -> dict[str, Row]:
    """The rows of the runs, by their names."""
    rows: dict[str, Row] = {row["run"]: row for row in store.runs()}
    for name in runs or ():
        if name not in rows:
            msg = f"no run is called {name!r} in {store.path}: `rfa runs` lists them"
            raise InvalidValueError(msg)
    return rows if runs is None else {name: row for name, row in rows.items() if name in runs}


def _with_runs(
    store: Store, table: str, chosen: Mapping[str, Row], *, last: bool
) -> Iterable[tuple[Row, Row]]:
    """The rows of a table, run by run, each with that of its run."""
    for name, row in chosen.items():
        rows = store.table(table, run=name)
        for each in rows[-1:] if last else rows:
            yield each, row


def _joined(
    store: Store, table: str, runs: Collection[str] | None, *, last: bool
) -> Iterable[dict[str, Any]]:
    """The rows of a table, each with what tells its run from others."""
    for each, row in _with_runs(store, table, _chosen(store, runs), last=last):
        yield {**each, **_leading(row)}


def _listed(text: str | None) -> list[Any] | None:
    return None if text is None else json.loads(text)


def _devices_block(row: Row, evaluation: Row, known: Sequence[str]) -> dict[str, Array]:
    """The columns of the devices of one evaluation, with the names that are known."""
    accuracy = np.array(json.loads(evaluation["device_accuracy"]), np.float64)
    count = len(accuracy)
    names = np.full(count, None, object)
    names[: len(known)] = known
    leading: dict[str, Array] = {
        name: np.full(count, value, LEADING[name]) for name, value in _leading(row).items()
    }
    return {
        **leading,
        "round": np.full(count, evaluation["round"]),
        "device": np.arange(count),
        "name": names,
        "corrupted": np.isin(np.arange(count), json.loads(row["corrupted"])),
        "accuracy": accuracy,
    }
