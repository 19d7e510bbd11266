"""numbers.csv: a row for each experiment, run and measure, all of which follow from other files.

Only which experiment a run belongs to and its settings are told there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rfa.lab.paper.facts import FILE as FACTS
from rfa.lab.paper.facts import Facts
from rfa.lab.paper.kept import ABOUT, EVALUATIONS, MEASURED, RUNS, Kept
from rfa.lab.paper.kept_rows import NumbersError, as_text, damaged, read_rows, write_rows
from rfa.lab.report.gather import number_at_end
from rfa.lab.runs.store import aggregator_parameters
from rfa.lab.settings.settings import Settings

NUMBERS = "numbers.csv"
HEAD = (
    *("experiment", "task", "aggregator", "parameters", "corruption", "rho", "seed", "run"),
    *("settings", "code", "horizon", "status", "measure", "value"),
)


class Place(NamedTuple):
    """A run in an experiment."""

    experiment: str
    run: str


class Told(NamedTuple):
    """The settings of a run in words."""

    parameters: str
    settings: str


Places = Mapping[Place, Told]


def told(settings: Settings) -> Told:
    """The settings of a run as the file has them."""
    return Told(aggregator_parameters(settings), settings_text(settings))


def settings_text(settings: Settings) -> str:
    """What of the settings is not as the task has it for that aggregator, as text."""
    usual = Settings.of(settings.task, aggregator=settings.aggregator).flat
    other = {name: value for name, value in settings.flat.items() if value != usual[name]}
    shown = {name: value for name, value in other.items() if name != "seed"}
    return ",".join(f"{name}={value}" for name, value in shown.items())


def write_ends(folder: Path, places: Places, runs: Mapping[str, Kept], facts: Facts) -> None:
    """Write what runs came to at their end, for each experiment that they belong to."""
    write_rows(folder / NUMBERS, HEAD, sorted(_rows(places, runs, facts), key=_order))


def read_places(folder: Path) -> dict[Place, Told]:
    """Return the runs of each experiment; none where there is no file."""
    return _places(_read(folder / NUMBERS)) if (folder / NUMBERS).exists() else {}


def check_ends(folder: Path, runs: Mapping[str, Kept], facts: Facts) -> None:
    """Compare the file, if there is one, with what follows from the runs and facts of its folder.

    Raises:
        NumbersError: naming the first run and measure that is missing, new or another.
    """
    path = folder / NUMBERS
    if not path.exists():
        return
    found = _read(path)
    places = _places(found)
    for place in places:
        if place.run not in runs:
            raise damaged(path, f"{place.run} is not in {RUNS}")
    due = {_order(row): row for row in _rows(places, runs, facts)}
    for row in found:
        if why := _difference(row, due.get(_order(row))):
            raise _differs(path, _order(row), why)
    for key in due.keys() - {_order(row) for row in found}:
        raise _differs(path, key, f"is missing (its value is {due[key]['value']})")


def _differs(path: Path, key: tuple[str, ...], why: str) -> NumbersError:
    experiment, _, run, measure = key
    remedy = "restore the folder from where it comes, or delete this file and write it again with "
    return NumbersError(
        f"{path} does not follow from {RUNS}, {EVALUATIONS} and {FACTS}: {measure} of {run} in "
        f"{experiment} {why}: {remedy}--numbers-to {path.parent}"
    )


def _difference(row: Mapping[str, str], due: Mapping[str, str] | None) -> str:
    """How a row differs from what it should be; nothing if it does not."""
    if due is None:
        return f"is new, with the value {row['value']}"
    columns = [name for name in HEAD if row[name] != due[name]]
    return "; ".join(f"has the {name} {row[name]}, not {due[name]}" for name in columns)


def _rows(places: Places, runs: Mapping[str, Kept], facts: Facts) -> Iterable[dict[str, str]]:
    """Yield the rows, as texts."""
    known = {name: _ends(runs[name], facts) for name in {place.run for place in places}}
    for place, words in places.items():
        row = runs[place.run].row
        about = {
            "experiment": place.experiment,
            **{name: as_text(row[name]) for name in ABOUT},
            **words._asdict(),
            "code": runs[place.run].code,
            "horizon": as_text(row["rounds"]),
            "status": row["status"],
        }
        for measure, value in known[place.run].items():
            yield {**about, "measure": measure, "value": as_text(value)}


def _ends(run: Kept, facts: Facts) -> dict[str, Any]:
    """The final numbers of a run by measure."""
    had = [name for name in MEASURED if any(e[name] is not None for e in run.evaluations)]
    values: dict[str, Any] = {
        f"{name} at the end": number_at_end(run.row, run.evaluations, name) for name in had
    }
    values |= {name: run.row[name] for name in ("oracle_calls", "model_sha256")}
    return values | facts.get(run.name, {})


def _read(path: Path) -> list[dict[str, str]]:
    return read_rows(path, lambda row: {name: row[name] for name in HEAD})


def _places(rows: Iterable[Mapping[str, str]]) -> dict[Place, Told]:
    """The places of rows, each with the words of its first row."""
    places: dict[Place, Told] = {}
    for row in rows:
        place = Place(row["experiment"], row["run"])
        places.setdefault(place, Told(row["parameters"], row["settings"]))
    return places


def _order(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("experiment", "task", "run", "measure"))
