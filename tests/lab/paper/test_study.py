"""EMNIST taken apart: the digits alone, and the letters alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rfa.lab.datasets.cache import load, locate
from rfa.lab.datasets.dataset import DataError
from rfa.lab.paper.study import DIGITS, LETTERS
from rfa.lab.tasks.registry import find_task


@pytest.mark.parametrize("task", [DIGITS, LETTERS])
def test_each_has_its_labels_alone(task: object, real_data: Path) -> None:
    task = find_task(task.name)  # type: ignore[attr-defined]
    population = load(task.reader, real_data)
    digits = np.asarray(population.y) < 10
    assert digits.all() if task is DIGITS else not digits.any()
    assert len(population) > 100
    assert np.diff(population.offsets).min() >= 40
    assert not any(name.startswith("unwanted") for name in population.names)


def test_what_is_missing_is_called_by_the_name_of_its_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rfa data get emnist$"):
        locate(DIGITS.reader, tmp_path)
