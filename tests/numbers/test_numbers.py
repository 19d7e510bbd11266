"""The numbers of the library and of the lab stay what they are, whatever is moved or renamed.

Where the arithmetic is that of the machine which recorded them, they are equal to the bit.
Elsewhere BLAS adds in another order, so the models of short runs are near: their norms, and
projections of them, differ by a thousandth of the norm at most.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.numbers import table
from tests.numbers.table import Entry

pytest.importorskip("torch")

NEAR = 1e-3
"""How far numbers may be off elsewhere, as a share of the norm."""
COUNTED = 0.02
"""How far results may be off elsewhere: accuracies are counts, and one example may tip over."""
TABLE = table.read()
SAME = table.arithmetic() == TABLE["arithmetic"]


def named(kind: str) -> Any:
    return pytest.mark.parametrize(
        "entry", [pytest.param(entry, id=entry["name"]) for entry in TABLE[kind]]
    )


def check(found: Entry, wanted: Entry) -> None:
    if SAME:
        assert found == {name: wanted[name] for name in found}
        return
    norm = wanted["fingerprint"][0]
    assert found["fingerprint"] == pytest.approx(wanted["fingerprint"], rel=0, abs=NEAR * norm)
    for name, value in wanted.get("results", {}).items():
        if isinstance(value, float):
            assert found["results"][name] == pytest.approx(value, rel=NEAR, abs=COUNTED), name
        else:
            assert found["results"][name] == value, name


@named("points")
def test_what_is_made_of_points(entry: Entry) -> None:
    check(table.measure("points", entry), entry)


@named("runs")
def test_what_runs_end_with(entry: Entry, request: pytest.FixtureRequest) -> None:
    if entry["real"]:
        request.getfixturevalue("real_data")
    check(table.measure("runs", entry), entry)


def test_the_table_is_of_this_protocol() -> None:
    """A new version rounds otherwise: far below what is near elsewhere, so this must tell."""
    assert table.protocol() == TABLE["protocol"], "python -m tests.numbers.record, with RFA_DATA"


def test_the_table_is_whole() -> None:
    entries = [entry for kind in table.KINDS for entry in TABLE[kind]]
    names = [entry["name"] for entry in entries]
    assert len(set(names)) == len(names)
    for entry in entries:
        assert len(entry["sha256"]) == 64
        assert len(entry["fingerprint"]) == 1 + table.DIRECTIONS
        assert all(map(math.isfinite, entry["fingerprint"]))
        assert entry["fingerprint"][0] > 0
