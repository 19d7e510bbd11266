"""The benchmark of byzfl: its parts on the same vectors, and whole runs on the same batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import byzfl_parts
from tests.peers import byzfl

byzfl.load("aggregators")
pytest.importorskip("torch", reason="byzfl's clients need torch")

from benchmarks.byzfl_benchmark import do_cell  # noqa: E402 it needs byzfl

from rfa.lab.paper.reproduce import find_experiments  # noqa: E402


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("corrupted", [1, 2, 3, 4])
@pytest.mark.parametrize("part", [byzfl_parts.aggregates, byzfl_parts.attacks])
def test_the_same_vectors(part: Any, corrupted: int, seed: int) -> None:
    found = {
        name: byzfl_parts.distance(ours, theirs) for name, ours, theirs in part(corrupted, seed)
    }
    assert len(found) == 3
    assert max(found.values()) < 1e-6, found


@pytest.mark.parametrize("attack", ["sign flip", "optimized ALIE"])
def test_the_same_accuracy_after_a_run_on_the_same_batches(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RFA_DATA", raising=False)
    ready = find_experiments(["byzfl"], "quick", None)[0].with_data
    cells = [
        cell for cell in ready.cells if cell.panel.endswith(attack) and cell.line == "gamma 0.33"
    ]
    assert [cell.settings.attack.sybils for cell in cells] == [1, 4]
    assert {cell.settings.task for cell in cells} == {"digits-linear"}
    rows = [do_cell(cell, tmp_path) for cell in cells]
    for row in rows:
        assert row.rfa == pytest.approx(row.byzfl, abs=0.6)  # two of 359 images
        assert row.rfa_best == pytest.approx(row.byzfl_best, abs=0.6)
    assert rows[0].rfa > rows[1].rfa  # four do more harm than one
