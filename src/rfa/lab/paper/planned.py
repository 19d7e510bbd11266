"""Runs in files against the settings that their names stand for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from rfa.errors import RfaError
from rfa.lab.paper.kept import EVALUATIONS, LOSSES, RUNS, Kept
from rfa.lab.paper.kept_rows import damaged
from rfa.lab.report.gather import LAST
from rfa.lab.runs.store import SHOWN
from rfa.lab.settings.settings import Settings

FEW = 30
"""Parts of a long run of which earlier files have an evaluation each, beside all at its end."""


def check_planned(folder: Path, runs: Iterable[Kept], settings: Mapping[str, Settings]) -> None:
    """Compare runs with their settings, where these are known.

    Raises:
        NumbersError: naming the file, the run, and what of it its settings do not have.
    """
    for run in runs:
        if run.name not in settings:
            continue
        if why := _other(run, settings[run.name]):
            raise damaged(folder / RUNS, f"{run.name} {why}")
        if why := _gap(run, settings[run.name]) or _lost(run, settings[run.name]):
            raise damaged(folder / EVALUATIONS, f"{run.name} {why}")


def _other(run: Kept, settings: Settings) -> str:
    """Which setting in the row of a run is another; nothing if none is."""
    told = {name: run.row[name] for name in SHOWN}
    if any(settings.flat[name] != value for name, value in told.items()) and (
        _renamed(settings, told) != run.name
    ):
        name = next(name for name, value in told.items() if settings.flat[name] != value)
        return f"has {name} {told[name]}, and is a run with {settings.flat[name]}"
    rounds = run.row["rounds"]
    if rounds > settings.rounds or (run.row["status"] == "finished" and rounds < settings.rounds):
        return f"is {run.row['status']} after {rounds} rounds, of {settings.rounds}"
    return ""


def _renamed(settings: Settings, told: Mapping[str, object]) -> str:
    """The name of a run with other settings: the same if they make no difference."""
    try:
        return settings.replace(**told).run_name
    except RfaError:
        return ""


def _gap(run: Kept, settings: Settings) -> str:
    """Which evaluation is missing, or is one that the settings do not have; nothing if none."""
    due, there = _due(run, settings), {each["round"] for each in run.evaluations}
    if there == due or is_thinned(run, settings):
        return ""
    if lost := sorted(due - there):
        return f"has no evaluation after round {lost[0]}"
    every = settings.evaluation.every
    return f"has an evaluation after round {min(there - due)}, and one in {every} rounds"


def is_thinned(run: Kept, settings: Settings) -> bool:
    """Whether files of an earlier version have only some evaluations of a run, as these had."""
    due, there = _due(run, settings), {each["round"] for each in run.evaluations}
    return there != due and there == {each for each in due if _was_kept(each, run.row["rounds"])}


def _due(run: Kept, settings: Settings) -> set[int]:
    rounds = run.row["rounds"]
    return {*range(0, rounds + 1, settings.evaluation.every), rounds}


def _was_kept(each: int, rounds: int) -> bool:
    """Whether files had the evaluation after a round when they had not all of long runs."""
    return each > (1 - LAST) * rounds or each * FEW % rounds == 0


def _lost(run: Kept, settings: Settings) -> str:
    """Which loss is missing or infinite in a run that did not diverge, and could have."""
    if run.row["status"] == "diverged" or not settings.server.divergence_factor:
        return ""
    for each in run.evaluations:
        for name in LOSSES:
            if each[name] is None or math.isinf(each[name]):
                told = "missing" if each[name] is None else each[name]
                return f"is {run.row['status']}, and {name} after round {each['round']} is {told}"
    return ""
