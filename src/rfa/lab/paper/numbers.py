"""The numbers of runs as files that can be kept in a repository, and read as runs done elsewhere.

numbers.csv      one row for each experiment, run and measure: what the run came to at its end
runs.csv         one row per run: how it ended, and its code, libraries and machine
evaluations.csv  its evaluations: all of the last tenth, and of long runs some of those before
facts.csv        what else was measured of it, such as the weights in its rounds

Floats are written so that they are read to the bit. A run that is read goes into the store like one
that was done here, with the origin that its row says; `stale` tells which were made by other code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfa._files import replace_file
from rfa.lab.paper.facts import Facts, add_facts, read_facts
from rfa.lab.paper.kept_rows import damaged, read_rows
from rfa.lab.paper.reproduce import SWEEPS, Experiment
from rfa.lab.report.exhibit import group
from rfa.lab.report.gather import LAST, Result, find_results
from rfa.lab.runs.origin import code_fingerprint
from rfa.lab.runs.store import DONE, Store, aggregator_parameters
from rfa.lab.settings.settings import Settings

NUMBERS, RUNS, EVALUATIONS = "numbers.csv", "runs.csv", "evaluations.csv"
HEAD = (
    *("experiment", "task", "aggregator", "parameters", "corruption", "rho", "seed", "run"),
    *("settings", "code", "horizon", "status", "measure", "value"),
)
ABOUT = ("run", "task", "aggregator", "corruption", "rho", "seed")
TEXTS = ("status", "started", "version", "note", "model_sha256", "data", "stopped", "origin")
COUNTS = (
    *("rounds", "oracle_calls", "devices", "corrupted_devices", "dropped_updates"),
    *("rejected_rounds", "stopped_rounds", "personalized"),
)
REALS = ("seconds", "certificate")
MEASURED = (
    *("test_accuracy", "honest_accuracy", "train_loss", "test_loss", "median_device"),
    *("honest_median_device", "worst_tenth", "honest_worst_tenth", "backdoor"),
)
"""The measures of an evaluation that the files have."""
ALONG = ("round", "oracle_calls")
MANY, FEW = 250, 30
"""Runs with more evaluations than the first keep as many as the second."""


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


def stale(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The runs that other code made than this."""
    return [row["run"] for row in rows if code_of(row) != code_fingerprint()]


def write_numbers(experiments: Sequence[Experiment], out: Path, folder: Path) -> int:
    """Write the numbers of all runs of experiments that the store has, and return how many.

    Rows of other runs stay, so that several machines can add to the files.
    """
    shown = [each for each in experiments if each.kind in SWEEPS]
    with Store(out) as store:
        results = {each.name: find_results(store, each.with_data.cells) for each in shown}
    unique = {result.row["run"]: result for some in results.values() for result in some}
    before = {run.name: run for run in read_numbers(folder)} if (folder / RUNS).exists() else {}
    kept = before | {name: _kept(result) for name, result in unique.items()}
    runs = [kept[name] for name in sorted(kept)]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / RUNS, [*ABOUT, *TEXTS, *COUNTS, *REALS], (run.row for run in runs))
    points = ({"run": run.name, **each} for run in runs for each in run.evaluations)
    _write(folder / EVALUATIONS, ["run", *ALONG, *MEASURED], points)
    facts = {name: values for name, values in read_facts(out).items() if name in unique}
    add_facts(folder, facts)
    rows = _old_rows(folder / NUMBERS, set(results)) if (folder / NUMBERS).exists() else []
    for name, some in results.items():
        rows += [row for result in some for row in _ends(name, result, facts)]
    _write(folder / NUMBERS, HEAD, sorted(rows, key=_place))
    return len(unique)


def read_numbers(folder: Path) -> list[Kept]:
    """Return the runs in the files of a folder.

    Raises:
        NumbersError: naming the file and the mistake, or the run that one of them lacks.
    """
    points = group(read_rows(folder / EVALUATIONS, _point), lambda row: str(row["run"]))
    runs = [Kept(row, points.pop(row["run"], ())) for row in read_rows(folder / RUNS, _row)]
    for name in points:
        raise damaged(folder / RUNS, f"{name} has evaluations, and is not in {RUNS}")
    for run in runs:
        if why := _unfinished(run):
            raise damaged(folder / EVALUATIONS, f"{run.name} {why}")
    return runs


def _unfinished(run: Kept) -> str:
    """How the evaluations of a run do not go to its end; nothing if they do."""
    if not run.evaluations:
        return "has no evaluation"
    last, rounds = run.evaluations[-1]["round"], run.row["rounds"]
    return "" if last == rounds else f"ends after round {last} of {rounds}"


def adopt(folder: Path, settings: Mapping[str, Settings], out: Path) -> list[Kept]:
    """Put the runs of a folder into the store that it has not done itself, and return those.

    Args:
        folder: the folder of numbers.
        settings: the settings of the runs that are wanted, by name; others are left out.
        out: the folder of results.
    """
    adopted: list[Kept] = []
    runs, measured = read_numbers(folder), read_facts(folder)
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
    columns = (*ABOUT, *TEXTS, *COUNTS, *REALS)
    row = {name: result.row[name] for name in columns}
    points = [
        {name: each[name] for name in (*ALONG, *MEASURED)}
        for each in thinned(result.evaluations, result.row["rounds"])
    ]
    return Kept(row, points)


def thinned(evaluations: Sequence[Mapping[str, Any]], rounds: int) -> list[Mapping[str, Any]]:
    """The evaluations that are kept: all of a short run; of a long one those of its end, and some.

    >>> many = [{"round": t} for t in range(0, 6001, 10)]
    >>> [row["round"] for row in thinned(many, 6000)][:3], len(thinned(many, 6000))
    ([0, 200, 400], 88)
    """
    if len(evaluations) <= MANY:
        return list(evaluations)
    end, last = (1 - LAST) * rounds, evaluations[-1]["round"]
    return [
        each
        for each in evaluations
        if each["round"] > end or each["round"] * FEW % rounds == 0 or each["round"] == last
    ]


def _ends(experiment: str, result: Result, facts: Facts) -> list[dict[str, Any]]:
    """Return the final numbers of a run, a row for each measure."""
    settings, row = result.cell.settings, result.row
    about = {
        "experiment": experiment,
        **{name: row[name] for name in ABOUT},
        "parameters": aggregator_parameters(settings),
        "settings": settings_text(settings),
        "code": code_of(row),
        "horizon": row["rounds"],
        "status": row["status"],
    }
    had = [name for name in MEASURED if any(e[name] is not None for e in result.evaluations)]
    values = {f"{name} at the end": result.at_end(name) for name in had}
    values |= {name: row[name] for name in ("oracle_calls", "model_sha256")}
    values |= facts.get(row["run"], {})
    return [{**about, "measure": name, "value": value} for name, value in values.items()]


def settings_text(settings: Settings) -> str:
    """What of the settings is not as the task has it for that aggregator, as text."""
    usual = Settings.of(settings.task, aggregator=settings.aggregator).flat
    other = {name: value for name, value in settings.flat.items() if value != usual[name]}
    shown = {name: value for name, value in other.items() if name != "seed"}
    return ",".join(f"{name}={value}" for name, value in shown.items())


def _old_rows(path: Path, done: set[str]) -> list[dict[str, Any]]:
    """Return the rows of experiments that are not replaced."""
    return [row for row in read_rows(path, dict) if row["experiment"] not in done]


def _place(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("experiment", "task", "run", "measure"))


def _write(path: Path, head: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with replace_file(path) as file:
        for row in ({name: name for name in head}, *rows):
            texts = [_text(row[name]) for name in head]
            file.write((",".join(map(_quoted, texts)) + "\n").encode())


def _text(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    needed = any(sign in text for sign in ',"\n\r')
    return '"' + text.replace('"', '""') + '"' if needed else text


def _row(row: Mapping[str, str]) -> dict[str, Any]:
    about = {name: row[name] for name in ABOUT}
    code_of(row)
    return {
        **about,
        "rho": float(row["rho"]),
        "seed": int(row["seed"]),
        **{name: row[name] or None for name in TEXTS},
        **{name: int(row[name] or 0) for name in COUNTS},
        **{name: _real(row[name]) for name in REALS},
        "note": row["note"],
    }


def _point(row: Mapping[str, str]) -> dict[str, Any]:
    numbers = {name: int(row[name]) for name in ALONG}
    return {"run": row["run"], **numbers, **{name: _real(row[name]) for name in MEASURED}}


def _real(text: str) -> float | None:
    return float(text) if text else None
