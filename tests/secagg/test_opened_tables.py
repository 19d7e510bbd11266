"""The tables of docs/joint-sums.md are what the analysis computes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.secagg.opened_tables import (
    CLASSES,
    PIXELS,
    emnist_ink,
    error_by_honest,
    lone_coordinates,
    most_exposed,
)

PAGE = Path(__file__).parents[2] / "docs" / "joint-sums.md"


def table(heading: str) -> dict[int, list[float]]:
    """The rows of the first table after a text, by their first number."""
    lines = PAGE.read_text().split(heading)[1].splitlines()
    rows = [
        re.findall(r"\d[\d.]*(?:e-\d+)?", line) for line in lines if re.match(r"\s*\| \d", line)
    ]
    return {int(first): [float(number) for number in rest] for first, *rest in rows[:5]}


@pytest.mark.parametrize("devices", [3, 4, 5])
def test_errors_by_honest_devices_are_those_of_the_page(devices: int) -> None:
    said = table("## As many sums as honest devices")[devices]
    found = [error_by_honest(devices, devices, alike=alike) for alike in (True, False)]
    np.testing.assert_allclose(found, said[::2], rtol=0.5)  # one digit is said


def test_shares_of_the_most_exposed_are_those_of_the_page() -> None:
    said = table("## Fewer sums than honest devices")[8]
    found = [most_exposed(8, budget) for budget in (1, 2, 3)]
    np.testing.assert_allclose(found, said, atol=0.01)


def test_a_coordinate_is_lone_if_one_device_moves_it() -> None:
    assert lone_coordinates(np.array([[0.0, 1, 2, 0], [0, 0, 3, 4]])) == 2 / 4


def test_thousands_of_coordinates_of_emnist_are_moved_by_one_writer(real_data: Path) -> None:
    ink = emnist_ink(real_data, 30, np.random.default_rng(0))
    assert 2000 < lone_coordinates(ink) * PIXELS * CLASSES < 5000
