"""The numbers of runs as files that can be kept in a repository, and read as runs done elsewhere.

numbers.csv      one row for each experiment, run and measure: what the run came to at its end
runs.csv         one row per run: how it ended, and its code, libraries and machine
evaluations.csv  all its evaluations
facts.csv        what else was measured of it, such as the weights in its rounds
SHA256SUMS       the sums of these files

Floats are written so that they are read to the bit. A run that is read goes into the store like one
that was done here, with the origin that its row says; `stale` tells which were made by other code.
numbers.csv is for readers: it follows from the others, and can be left out. Older folders have no
sums; then the files are compared with each other, and with the settings of their runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rfa.lab.paper.ends import NUMBERS, Place, Told, check_ends, read_places, told, write_ends
from rfa.lab.paper.facts import FILE as FACTS
from rfa.lab.paper.facts import Facts, add_facts, read_facts
from rfa.lab.paper.kept import (
    ALONG,
    COUNTS,
    EVALUATIONS,
    LARGEST,
    MEASURED,
    OF_RUN,
    REALS,
    RUNS,
    TEXTS,
    Kept,
    code_of,
    read_runs,
)
from rfa.lab.paper.kept_rows import damaged, write_rows
from rfa.lab.paper.planned import check_planned
from rfa.lab.paper.reproduce import SWEEPS, Experiment
from rfa.lab.paper.sums import SUMS, check_sums, write_sums
from rfa.lab.report.gather import Result, find_results
from rfa.lab.runs.origin import code_fingerprint
from rfa.lab.runs.store import DONE, Store
from rfa.lab.settings.settings import Settings

FILES = (EVALUATIONS, FACTS, NUMBERS, RUNS)
WEIGHT, WHOLE = "weight of ", 100.0
"""How the facts begin that are shares in per cent, and the largest share."""


def stale(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The runs that other code made than this."""
    return [row["run"] for row in rows if code_of(row) != code_fingerprint()]


def write_numbers(experiments: Sequence[Experiment], out: Path, folder: Path) -> int:
    """Write the numbers of all runs of experiments that the store has, and return how many.

    Rows of other runs stay, so that several machines can add to the files.

    Raises:
        NumbersError: if the folder has files that are damaged; nothing is written then.
    """
    shown = [each for each in experiments if each.kind in SWEEPS]
    with Store(out) as store:
        results = {each.name: find_results(store, each.with_data.cells) for each in shown}
    unique = {result.row["run"]: result for some in results.values() for result in some}
    before = _read(folder, made_again=NUMBERS) if _has_numbers(folder) else []
    kept = {run.name: run for run in before} | {name: _kept(unique[name]) for name in unique}
    new = {name: _finite(values) for name, values in read_facts(out).items() if name in unique}
    facts = read_facts(folder) | new
    places = _staying(shown, read_places(folder)) | {
        Place(name, result.row["run"]): told(result.cell.settings)
        for name, some in results.items()
        for result in some
    }
    _write(folder, {name: kept[name] for name in sorted(kept)}, facts, places)
    return len(unique)


def _has_numbers(folder: Path) -> bool:
    return any((folder / name).exists() for name in (*FILES, SUMS))


def _staying(experiments: Sequence[Experiment], places: Mapping[Place, Told]) -> dict[Place, Told]:
    """The places of runs that stay: those of other experiments, and those still planned in these.

    The store may lack the latter, because another machine did them.
    """
    listed = {place.experiment for place in places}
    planned = {
        each.name: {run.run_name for run in dataclasses.replace(each, without_data=True).runs()}
        for each in experiments
        if each.name in listed
    }
    return {
        place: words
        for place, words in places.items()
        if place.experiment not in planned or place.run in planned[place.experiment]
    }


def _write(
    folder: Path, runs: Mapping[str, Kept], facts: Facts, places: Mapping[Place, Told]
) -> None:
    """Write all files; the sums go first and come last, so that they are never those of others."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMS).unlink(missing_ok=True)
    write_rows(folder / RUNS, OF_RUN, (run.row for run in runs.values()))
    points = ({"run": run.name, **each} for run in runs.values() for each in run.evaluations)
    write_rows(folder / EVALUATIONS, ["run", *ALONG, *MEASURED], points)
    add_facts(folder, facts)
    write_ends(folder, places, runs, facts)
    write_sums(folder, FILES)


def read_numbers(folder: Path, settings: Mapping[str, Settings] | None = None) -> list[Kept]:
    """Return the runs in the files of a folder.

    Args:
        folder: the folder of numbers.
        settings: the settings of runs by name; those that are known must fit.

    Raises:
        NumbersError: naming the file and the mistake, or the run that one of them lacks.
    """
    runs = _read(folder)
    check_planned(folder, runs, settings or {})
    return runs


def _read(folder: Path, made_again: str = "") -> list[Kept]:
    """Read the files: each must be well by itself, be what its sum says, and fit the others."""
    runs, facts = {run.name: run for run in read_runs(folder)}, read_facts(folder)
    for name, values in facts.items():
        if name not in runs:
            raise damaged(folder / FACTS, f"the run {name} is not in {RUNS}")
        if why := _unreal(values):
            raise damaged(folder / FACTS, f"{name}: {why}")
    check_sums(folder, FILES, made_again)
    check_ends(folder, runs, facts)
    return list(runs.values())


def _unreal(facts: Mapping[str, float]) -> str:
    """Which value of a fact cannot be; nothing if all can."""
    for measure, value in facts.items():
        largest = WHOLE if measure.startswith(WEIGHT) else LARGEST
        if not 0 <= value <= largest:
            return f"the value of {measure} must be from 0 to {largest:g}, not {value!r}"
    return ""


def _finite(facts: Mapping[str, float]) -> dict[str, float]:
    """The facts that are numbers: nobody uses the others."""
    return {measure: value for measure, value in facts.items() if math.isfinite(value)}


def adopt(folder: Path, settings: Mapping[str, Settings], out: Path) -> list[Kept]:
    """Put the runs of a folder into the store that it has not done itself, and return those.

    Args:
        folder: the folder of numbers.
        settings: the settings of the runs that are wanted, by name; others are left out.
        out: the folder of results.
    """
    adopted: list[Kept] = []
    runs, measured = read_numbers(folder, settings), read_facts(folder)
    with Store(out) as store:
        known = {row["run"] for row in store.runs() if row["status"] in DONE}
        for run in runs:
            if run.name in known or run.name not in settings:
                continue
            facts = {name: run.row[name] for name in (*TEXTS, *COUNTS, *REALS)}
            last = dict(run.evaluations[-1])
            facts |= {name: last[name] for name in MEASURED if name != "test_loss"}
            store.adopt(run.name, settings[run.name], facts, run.evaluations)
            adopted.append(run)
    add_facts(out, {run.name: measured[run.name] for run in adopted if run.name in measured})
    return adopted


def _kept(result: Result) -> Kept:
    """A run of the store as the files have it."""
    points = [{name: each[name] for name in (*ALONG, *MEASURED)} for each in result.evaluations]
    return Kept({name: result.row[name] for name in OF_RUN}, points)
