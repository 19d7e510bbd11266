"""Runs as files have them: their rows and evaluations, and whether these can be those of a run.

A store keeps no NaN: unknown values are empty. Accuracies are shares from 0 to 1 in all runs that
have ended, those that diverged too; only the losses of these can be missing or infinite.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from rfa.lab.paper.kept_rows import damaged, read_rows
from rfa.lab.report.exhibit import group
from rfa.lab.runs.store import DONE

RUNS, EVALUATIONS = "runs.csv", "evaluations.csv"
ABOUT = ("run", "task", "aggregator", "corruption", "rho", "seed")
TEXTS = ("status", "started", "version", "note", "model_sha256", "data", "stopped", "origin")
COUNTS = (
    *("rounds", "oracle_calls", "devices", "corrupted_devices", "dropped_updates"),
    *("rejected_rounds", "stopped_rounds", "personalized"),
)
REALS = ("seconds", "certificate")
OF_RUN = (*ABOUT, *TEXTS, *COUNTS, *REALS)
MEASURED = (
    *("test_accuracy", "honest_accuracy", "train_loss", "test_loss", "median_device"),
    *("honest_median_device", "worst_tenth", "honest_worst_tenth", "backdoor"),
)
"""The measures of an evaluation that the files have."""
ALONG = ("round", "oracle_calls")
LOSSES = ("train_loss", "test_loss")
SHARES = tuple(name for name in MEASURED if name not in LOSSES)
ALWAYS = ("test_accuracy", "median_device", "worst_tenth")
"""The shares that every evaluation has."""
LARGEST = 1e300
"""No finite number is larger: sums of such numbers are finite."""
MOST = 2**63 - 1
"""The largest count that a store can keep."""
SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Kept:
    """A run as the files have it: its row, and its evaluations in order."""

    row: Mapping[str, Any]
    evaluations: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The name of the run, which the settings decide."""
        return self.row["run"]

    @property
    def code(self) -> str:
        """The fingerprint of the code that made it."""
        return code_of(self.row)


def code_of(row: Mapping[str, Any]) -> str:
    """The fingerprint of the code that made a run."""
    return json.loads(row.get("origin") or "{}").get("code", "unknown")


def read_runs(folder: Path) -> list[Kept]:
    """Return the runs of a folder, each from its first evaluation to its end.

    Raises:
        NumbersError: naming the file and the mistake, or the run that one of them lacks.
    """
    points = group(read_rows(folder / EVALUATIONS, _point), lambda row: str(row["run"]))
    runs = [Kept(row, points.pop(row["run"], ())) for row in read_rows(folder / RUNS, _row)]
    for name in points:
        raise damaged(folder / RUNS, f"{name} has evaluations, and is not in {RUNS}")
    for run in runs:
        if why := _unfinished(run) or _uneven(run):
            raise damaged(folder / EVALUATIONS, f"{run.name} {why}")
    return runs


def _unfinished(run: Kept) -> str:
    """How the evaluations of a run do not go from its start to its end; nothing if they do."""
    if not run.evaluations:
        return "has no evaluation"
    rounds, calls = ([each[name] for each in run.evaluations] for name in ALONG)
    if rounds[0]:
        return "has no evaluation after round 0"
    for before, after in pairwise(rounds):
        if after <= before:
            return f"has an evaluation after round {after} below that after round {before}"
    if rounds[-1] != run.row["rounds"]:
        return f"ends after round {rounds[-1]} of {run.row['rounds']}"
    if calls != sorted(calls) or calls[-1] != run.row["oracle_calls"]:
        listed = ", ".join(map(str, calls[-3:]))
        return f"has oracle_calls {listed} at its end, and {run.row['oracle_calls']} in {RUNS}"
    return ""


def _uneven(run: Kept) -> str:
    """Which share some evaluations of a run have and others do not; nothing if none."""
    for name in SHARES:
        needed = name in ALWAYS or run.evaluations[0][name] is not None
        for each in run.evaluations:
            value = each[name]
            if (value is not None) != needed:
                told = "missing" if value is None else f"{value!r}, and missing before"
                return f"after round {each['round']}: {name} is {told}"
    return ""


def _row(row: Mapping[str, str]) -> dict[str, Any]:
    _check(row, "origin", _are_texts(row["origin"]), "an object of texts")
    _check(row, "status", row["status"] in DONE, f"one of {', '.join(DONE)}")
    for name in ("model_sha256", "data"):
        _check(row, name, bool(SHA256.fullmatch(row[name])), "a SHA-256 of 64 digits")
    return {
        **{name: row[name] for name in ABOUT},
        "rho": _number(row, "rho", float, _is_share, "a share from 0 to 1"),
        "seed": _count(row, "seed"),
        **{name: row[name] or None for name in TEXTS},
        **{name: _count(row, name) for name in COUNTS},
        **{name: _real(row, name) for name in REALS},
        "note": row["note"],
    }


def _point(row: Mapping[str, str]) -> dict[str, Any]:
    return {
        "run": row["run"],
        **{name: _count(row, name) for name in ALONG},
        **{name: _share(row, name) if name in SHARES else _loss(row, name) for name in MEASURED},
    }


def _are_texts(origin: str) -> bool:
    """Whether an origin is texts by name, in JSON."""
    try:
        made: Any = json.loads(origin or "{}")
    except (ValueError, RecursionError):
        return False
    texts = cast("dict[str, Any]", made) if isinstance(made, dict) else {"": None}
    return all(isinstance(text, str) for text in texts.values())


def _share(row: Mapping[str, str], name: str) -> float | None:
    return _number(row, name, float, _is_share, "a share from 0 to 1") if row[name] else None


def _loss(row: Mapping[str, str], name: str) -> float | None:
    return _number(row, name, float, _is_loss, "a number") if row[name] else None


def _real(row: Mapping[str, str], name: str) -> float | None:
    return _number(row, name, float, _is_real, "a number from 0 on") if row[name] else None


def _count(row: Mapping[str, str], name: str) -> int:
    return int(_number(row, name, int, _is_count, "a whole number from 0 on"))


def _number(
    row: Mapping[str, str],
    name: str,
    read: Callable[[str], float],
    fits: Callable[[float], bool],
    what: str,
) -> float:
    try:
        value = read(row[name])
    except ValueError:
        value = math.nan
    _check(row, name, fits(value), what)
    return value


def _check(row: Mapping[str, str], name: str, fits: bool, what: str) -> None:
    """Refuse a value, by its run and column."""
    if not fits:
        msg = f"{row['run']}: {name} must be {what}, not {row[name][:100]!r}"
        raise ValueError(msg)


def _is_share(value: float) -> bool:
    return 0 <= value <= 1


def _is_loss(value: float) -> bool:
    return abs(value) < LARGEST or value == math.inf


def _is_real(value: float) -> bool:
    return 0 <= value < LARGEST


def _is_count(value: float) -> bool:
    return 0 <= value <= MOST
