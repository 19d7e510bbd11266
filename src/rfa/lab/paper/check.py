"""Frozen numbers against fresh runs, to the bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rfa.lab.paper.decides import measure
from rfa.lab.paper.facts import Facts
from rfa.lab.paper.kept import MEASURED, Kept
from rfa.lab.report.gather import Result, find_results
from rfa.lab.runs.origin import origin
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Cell
from rfa.lab.settings.settings import Settings

Pair = tuple[str, object, object]
"""The name of a number, its value then, and its value now."""

OF_RUN = ("status", "rounds", "oracle_calls", "model_sha256", "data")
"""What must be the same of a run, beside its evaluations."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of a stored run with a fresh one.

    Attributes:
        run: the name of the run.
        compared: the number of compared numbers.
        differences: the differences in words.
        elsewhere: how the origin of the stored one differs, in words; empty if it does not.
    """

    run: str
    compared: int
    differences: Sequence[str]
    elsewhere: str

    @property
    def words(self) -> str:
        """Return the result of the comparison in a line."""
        made = f" (made by {self.elsewhere})" if self.elsewhere else ""
        if not self.differences:
            return f"{self.run}: {self.compared} numbers, the same to the bit{made}"
        count = len(self.differences)
        return f"{self.run}: {count} of {self.compared} differ, first {self.differences[0]}{made}"


def sample(kept: Sequence[Kept], runs: Mapping[str, Settings], count: int) -> list[Settings]:
    """So many of the frozen runs among those wanted, in an order that has nothing to do with them.

    More are the same ones, and others.
    """
    known = [run.name for run in kept if run.name in runs]
    mixed = sorted(known, key=lambda name: hashlib.sha256(name.encode()).digest())
    return [runs[name] for name in mixed[:count]]


@dataclass(frozen=True)
class Fresh:
    """Where fresh runs are: their folder, and the data that they were made from."""

    out: Path
    data: Path | None = None


def compare(
    kept: Sequence[Kept], facts: Facts, chosen: Sequence[Settings], fresh: Fresh
) -> list[Comparison]:
    """Compare stored runs and their facts with fresh ones; a missing one counts as different."""
    frozen = {run.name: run for run in kept}
    with Store(fresh.out) as store:
        return [
            _compare(frozen[settings.run_name], facts, settings, store, fresh)
            for settings in chosen
        ]


def _compare(
    frozen: Kept, facts: Facts, settings: Settings, store: Store, fresh: Fresh
) -> Comparison:
    done = find_results(store, [Cell("", "", None, settings)])
    if not done:
        return Comparison(frozen.name, 0, ["it could not be done here"], _elsewhere(frozen))
    (now,) = done
    pairs = [(name, frozen.row[name], now.row[name]) for name in OF_RUN]
    pairs += _points(frozen, now)
    if known := facts.get(frozen.name):
        measured = measure(now, store, fresh.out, fresh.data)
        pairs += [(name, value, measured.get(name)) for name, value in known.items()]
    differences = [f"{name}: {old!r} then, {new!r} now" for name, old, new in pairs if old != new]
    return Comparison(frozen.name, len(pairs), differences, _elsewhere(frozen))


def _points(frozen: Kept, now: Result) -> Iterator[Pair]:
    fresh = {each["round"]: each for each in now.evaluations}
    for point in frozen.evaluations:
        again = fresh.get(point["round"], {})
        for name in ("oracle_calls", *MEASURED):
            yield f"{name} after round {point['round']}", point[name], again.get(name)


def _elsewhere(frozen: Kept) -> str:
    """What of the origin of a run is not as here."""
    made = json.loads(frozen.row["origin"] or "{}")
    other = {name: value for name, value in made.items() if origin().get(name) != value}
    return ", ".join(f"{name} {value}" for name, value in other.items())
