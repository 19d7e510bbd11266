"""The names of runs stay: numbers that were published belong to runs that an experiment plans."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rfa.lab.paper.reproduce import find_experiments
from rfa.lab.paper.scale import scaled_cells
from rfa.lab.runs.sweep import make_sweep

ROOT = Path(__file__).parents[3]
NUMBERS = ROOT / "docs" / "numbers"
OTHER = ("weiszfeld", "data", "calls", "theorem")
"""Experiments that are no sweeps."""


def planned(scale: str) -> set[str]:
    """The names of all runs of a scale."""
    names = {path.stem for path in (ROOT / "experiments").glob("*.toml")} - {"scales", *OTHER}
    own = [name for name in names if name.startswith("arena-") == (scale == "arena")]
    return {
        cell.settings.run_name
        for found in find_experiments(sorted(own), scale, None)
        for cell in scaled_cells(make_sweep(found.name, found.plan), found.scale)
    }


@pytest.mark.parametrize(
    ("folders", "scale"),
    [
        (("horizon", "deep"), "horizon"),
        pytest.param(("arena",), "arena", marks=pytest.mark.thorough),
    ],
)
def test_every_published_run_has_a_plan(folders: tuple[str, ...], scale: str) -> None:
    names = planned(scale)
    for folder in folders:
        with (NUMBERS / folder / "runs.csv").open(newline="", encoding="utf-8") as stream:
            published = {row["run"] for row in csv.DictReader(stream)}
        assert published
        assert not published - names
