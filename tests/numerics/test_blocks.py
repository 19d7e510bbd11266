"""Points that lie apart in memory: every layout gives the answer, no thread a bit, none a copy."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa.median import geometric_median
from rfa.numerics import blocks, streaming
from rfa.numerics.blocks import Blocks
from rfa.numerics.points import read_points
from tests import reference as ref

M, D = 30, 3000
POINTS = np.random.default_rng(0).standard_normal((M, D)).astype(np.float32)
POINTS[:7] += 10
CUTS = [0, 1, 1, 41, 1041, 1045, D]
"""Where layers begin and end: one of them is a single number, and one is empty."""


def layers(row: NDArray[Any]) -> list[NDArray[Any]]:
    """A model of separately allocated layers of very unequal sizes."""
    first, *others = [row[a:b].copy() for a, b in itertools.pairwise(CUTS)]
    return [first.reshape(()), *others[:2], others[2].reshape(10, 100), *others[3:]]


def unaligned(row: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins at an odd address."""
    space = np.zeros(row.nbytes + 1, np.uint8)[1:].view(row.dtype)
    space[:] = row
    return space


def flat(point: Any) -> NDArray[np.float64]:
    leaves: list[Any] = [*point] if type(point) is list else [point]
    return np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in leaves])


def in_any_order(rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Rows whose order in memory is not that of the list."""
    space = np.empty((2 * M, D + 7), rows.dtype)
    order = np.random.default_rng(1).permutation(2 * M)[:M]
    for row, line in zip(rows, order, strict=True):
        space[line, 3 : D + 3] = row
    return [space[line, 3 : D + 3] for line in order]


LAYOUTS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "rows one by one": lambda points: [row.copy() for row in points],
    "rows in any order": in_any_order,
    "rows of which one does not align": lambda points: [
        unaligned(points[0]),
        *map(np.copy, points[1:]),
    ],
    "rows with gaps": lambda points: [np.repeat(row, 2)[::2] for row in points],
    "rows backwards in memory": lambda points: [row[::-1].copy()[::-1] for row in points],
    "rows of several types": lambda points: [
        r.astype((np.float32, float)[i % 2]) for i, r in enumerate(points)
    ],
    "rows of foreign byte order": lambda points: [row.astype(">f4") for row in points],
    "layers": lambda points: [layers(row) for row in points],
    "layers in Fortran order": lambda points: [
        list(map(np.asfortranarray, layers(r))) for r in points
    ],
    "layers of several types": lambda points: [
        [leaf.astype((np.float32, float)[k % 2]) for k, leaf in enumerate(layers(row))]
        for row in points
    ],
    "layers that cannot be written": lambda points: [
        [np.frombuffer(leaf.tobytes(), np.float32).reshape(leaf.shape) for leaf in layers(row)]
        for row in points
    ],
    "array in Fortran order": np.asfortranarray,
    "array with gaps": lambda points: np.repeat(points, 2, axis=1)[:, ::2],
}


@pytest.fixture
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, pieces and runs so small that all borders are met, shared out to threads."""
    sizes = {"LARGE": 0, "BLOCK": M * 200, "SQUARES": M * 300, "RUN": 64, "NARROW": 50, "LONG": 900}
    for name, size in sizes.items():
        monkeypatch.setattr(blocks, name, size)
    for name, size in {"PRODUCT": M * 70, "RESULTS": 64, "DEPTH": 32}.items():
        monkeypatch.setattr(streaming, name, size)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("many_blocks")
def test_every_layout_in_memory_gives_the_median(layout: str, offset: float) -> None:
    """The offset moves the center, after which blocks are copied in all layouts."""
    given = LAYOUTS[layout](POINTS + np.float32(offset))
    exact = np.stack([flat(point) for point in given])
    center, rest = ref.far_median(exact, np.ones(M))
    rounding = 6e-8 * float(np.linalg.norm(center))
    error = np.linalg.norm(flat(geometric_median(given).point) - center - rest)
    assert error <= 1e-6 * np.sqrt(D) + rounding


@pytest.mark.parametrize("rows", [M, 9])
@pytest.mark.parametrize("layout", ["rows one by one", "layers", "array in Fortran order", "array"])
@pytest.mark.usefixtures("many_blocks")
def test_the_number_of_threads_makes_no_difference_to_a_single_bit(
    layout: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = POINTS if layout == "array" else LAYOUTS[layout](POINTS)
    answers: set[bytes] = set()
    for count in (1, 2, 5):
        monkeypatch.setattr("rfa._threads.cores", lambda count=count: count)
        result = geometric_median(points[:rows])
        answers.add(flat(result.point).tobytes() + result.weights.tobytes())
    assert len(answers) == 1


@pytest.mark.parametrize("layout", ["rows one by one", "rows with gaps", "layers"])
def test_blocks_are_the_points(layout: str) -> None:
    """In any of them each number is where it belongs, less the center."""
    reader, read = Blocks(read_points(LAYOUTS[layout](POINTS)), np.float32), np.zeros((M, D))
    for center in (None, POINTS[3]):
        reader.center = center

        def keep(block: NDArray[Any], where: slice) -> NDArray[Any]:
            read[:, where] = block
            return block.sum(axis=1)

        reader.sum(keep)
        np.testing.assert_array_equal(read, POINTS if center is None else POINTS - center)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("form", ["rows", "layers"])
def test_lists_are_not_copied_as_a_whole(form: str, offset: float) -> None:
    """At most a tenth of the points at once, the answer and all scratch space included."""
    rng = np.random.default_rng(2)
    rows = [rng.standard_normal(200_000, dtype=np.float32) + np.float32(offset) for _ in range(60)]
    points: Any = rows if form == "rows" else [np.array_split(row, [5, 40_000]) for row in rows]
    tracemalloc.start()
    geometric_median(points, steps=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= sum(row.nbytes for row in rows) / 10


def test_rows_too_far_apart_for_one_array_are_copied_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where addresses times coordinates are more than an array may have, as with a low heap."""
    rows = [row.copy() for row in POINTS]
    dtype = np.dtype(np.float32)
    assert blocks._rows_apart(rows, dtype) is not None  # pyright: ignore[reportPrivateUsage]
    expected = geometric_median(rows).point
    lowest = min(row.__array_interface__["data"][0] for row in rows)
    span = max(row.__array_interface__["data"][0] for row in rows) - lowest + 4
    monkeypatch.setattr(blocks, "LARGEST", span * D - 1)
    assert blocks._rows_apart(rows, dtype) is None  # pyright: ignore[reportPrivateUsage]
    assert np.allclose(geometric_median(rows).point, expected, rtol=1e-6, atol=1e-6)


def test_no_thread_warns_of_numbers_whose_squares_overflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rfa._threads.cores", lambda: 3)
    rows = list(np.ones((10, 500_000), np.float32))
    rows[0][::7] = 1e30
    point = geometric_median(rows).point  # pytest makes errors of warnings
    assert np.isfinite(point).all()
