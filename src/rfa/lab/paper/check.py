"""Frozen numbers against fresh runs, to the bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rfa.lab.paper.numbers import MEASURED, Kept
from rfa.lab.runs.origin import origin
from rfa.lab.runs.store import DONE, Store
from rfa.lab.settings.settings import Settings

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


def compare(kept: Sequence[Kept], chosen: Sequence[Settings], out: Path) -> list[Comparison]:
    """Compare stored runs with the fresh ones in a folder; a missing one counts as different."""
    frozen = {run.name: run for run in kept}
    with Store(out) as store:
        return [_compare(frozen[settings.run_name], store) for settings in chosen]


def _compare(frozen: Kept, store: Store) -> Comparison:
    fresh = [row for row in store.runs(run=frozen.name) if row["status"] in DONE]
    if not fresh:
        return Comparison(frozen.name, 0, ["it could not be done here"], _elsewhere(frozen))
    pairs = [(name, frozen.row[name], fresh[0][name]) for name in OF_RUN]
    points = {row["round"]: row for row in store.table("evaluations", run=frozen.name)}
    pairs += _points(frozen, points)
    differences = [
        f"{name}: {before!r} then, {now!r} now" for name, before, now in pairs if before != now
    ]
    return Comparison(frozen.name, len(pairs), differences, _elsewhere(frozen))


def _points(
    frozen: Kept, fresh: Mapping[int, Mapping[str, object]]
) -> Iterator[tuple[str, object, object]]:
    for point in frozen.evaluations:
        now = fresh.get(point["round"], {})
        for name in ("oracle_calls", *MEASURED):
            yield f"{name} after round {point['round']}", point[name], now.get(name)


def _elsewhere(frozen: Kept) -> str:
    """What of the origin of a run is not as here."""
    made = json.loads(frozen.row["origin"] or "{}")
    other = {name: value for name, value in made.items() if origin().get(name) != value}
    return ", ".join(f"{name} {value}" for name, value in other.items())
