"""The aggregators that see updates against byzfl's: speed, memory, and whether they agree."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Call, extra_memory, times
from benchmarks.peers import load_byzfl, load_torch
from rfa.aggregators.clear import (
    Bulyan,
    ClearAggregator,
    CoordinateMedian,
    MeaMed,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)

Matrix: TypeAlias = NDArray[np.float32]

POINTS, DIM, CORRUPTED = 100, 1_000_000, 25
FEWER_DIM, FEWER = 100_000, 24
"""For the defenses: byzfl's mixing needs m - f times the memory of the points; Bulyan's most f."""
HOPELESS = 2
"""A variant that takes so many times as long as the other at first gets no second chance."""
HEAD = "| | rfa | byzfl | ratio | rfa, MB | byzfl, MB | largest difference |"

NOTE = (
    "byzfl has no Bulyan: a plain numpy loop stands in for it. MeaMed jumps where two values on "
    "either side of the median are equally far from it: a large difference is one such coordinate, "
    "where rounding decides."
)


@dataclass(frozen=True)
class Duel:
    """One of our aggregators and byzfl's that computes the same, if it has one."""

    name: str
    ours: ClearAggregator
    theirs: Any = None
    weighted: bool = False


def duels() -> list[Duel]:
    """What is compared. byzfl's multi-Krum scores with one neighbor more than the paper's."""
    byzfl, share = load_byzfl(), CORRUPTED / POINTS
    krum = MultiKrum(CORRUPTED, neighbors=POINTS - CORRUPTED - 1)
    return [
        Duel("coordinate median", CoordinateMedian(), byzfl.Median()),
        Duel("trimmed mean", TrimmedMean(share), byzfl.TrMean(CORRUPTED)),
        Duel("multi-Krum", krum, byzfl.MultiKrum(CORRUPTED)),
        Duel("norm clipping at the median norm", NormClipping(quantile=0.5)),
        Duel("coordinate median, weighted", CoordinateMedian(), weighted=True),
        Duel("trimmed mean, weighted", TrimmedMean(share), weighted=True),
    ]


def defense_duels() -> list[Duel]:
    """The defenses; byzfl has no Bulyan, so that a plain numpy loop stands in for it."""
    byzfl, before, share = load_byzfl(), load_byzfl("preaggregators"), FEWER / POINTS
    mixing = NearestNeighborMixing(FEWER, TrimmedMean(share))

    def byzfl_mixing(points: Any) -> Any:
        return byzfl.TrMean(FEWER)(before.NNM(FEWER)(points))

    return [
        Duel("MeaMed", MeaMed(FEWER), byzfl.Meamed(FEWER)),
        Duel("mixing, then the trimmed mean", mixing, byzfl_mixing),
        Duel("Bulyan", Bulyan(FEWER), plain_bulyan),
        Duel("MeaMed, weighted", MeaMed(FEWER), weighted=True),
        Duel("mixing, then the trimmed mean, weighted", mixing, weighted=True),
    ]


def plain_bulyan(points: Any) -> Matrix:
    """What one writes with numpy: differences of all pairs, Krum again and again, then sorts."""
    points = np.asarray(points)
    squares = np.array([((points - point) ** 2).sum(axis=1) for point in points])
    left, chosen = list(range(len(points))), list[int]()
    while len(chosen) < len(points) - 2 * FEWER:
        nearest = np.sort(squares[np.ix_(left, left)], axis=1)
        scores = nearest[:, 1 : max(len(left) - FEWER - 2, 1) + 1].sum(axis=1)
        chosen.append(left.pop(int(scores.argmin())))
    kept = points[chosen]
    near = np.abs(kept - np.median(kept, axis=0)).argsort(axis=0)[: len(chosen) - 2 * FEWER]
    return np.take_along_axis(kept, near, axis=0).mean(axis=0)


def cloud(dim: int = DIM, corrupted: int = CORRUPTED) -> Matrix:
    """Gaussian points of spread one per coordinate, some of them ten times as large."""
    points = np.random.default_rng(0).standard_normal((POINTS, dim), dtype=np.float32)
    points[:corrupted] *= 10
    return points


def table(points: Matrix, duels: list[Duel]) -> Iterator[str]:
    """One line for each duel, against the faster of byzfl's two variants."""
    yield HEAD
    yield "|---|" + "---|" * (HEAD.count("|") - 2)
    weights = np.random.default_rng(1).uniform(1, 10, POINTS)
    for duel in duels:
        given = weights if duel.weighted else None
        calls: dict[str, Call] = {"rfa": lambda d=duel, w=given: d.ours(points, w).point}
        if duel.theirs is not None:
            calls |= _faster(duel.theirs, points)
        yield f"| {duel.name} | " + " | ".join(_cells(calls)) + " |"


def _faster(aggregator: Any, points: Matrix) -> dict[str, Call]:
    """The faster variant by the better of two runs each, or of one if that takes far too long."""
    tensor = load_torch().from_numpy(points)
    variants: dict[str, Call] = {
        "torch": lambda: np.asarray(aggregator(tensor)),
        "numpy": lambda: aggregator(points),
    }
    taken: dict[str, float] = {}
    for name, call in [*variants.items(), *variants.items()]:
        if taken.get(name, 0.0) > HOPELESS * min(taken.values(), default=0.0):
            continue
        start = time.perf_counter()
        call()
        spent = time.perf_counter() - start
        taken[name] = min(spent, taken.get(name, spent))
    fastest = min(taken, key=lambda name: taken[name])
    return {fastest: variants[fastest]}


def _cells(calls: dict[str, Call]) -> list[str]:
    measured = times(calls, rounds=5)
    memory = [f"{extra_memory(call):.0f}" for call in calls.values()]
    ours, *theirs = measured
    if not theirs:
        return [f"{measured[ours]:.0f} ms", "-", "-", memory[0], "-", "-"]
    (peer,) = theirs
    difference = np.abs(calls[ours]() - calls[peer]()).max()
    return [
        f"{measured[ours]:.0f} ms",
        f"{measured[peer]:.0f} ms ({peer})",
        f"{measured[peer] / measured[ours]:.1f}",
        *memory,
        f"{difference:.0e}",
    ]


def run() -> list[str]:
    """The whole report, as lines of markdown."""
    lines = ["## Aggregators that see updates", "", _title(DIM, CORRUPTED), ""]
    lines += [*table(cloud(), duels()), "", _title(FEWER_DIM, FEWER), ""]
    lines += [*table(cloud(FEWER_DIM, FEWER), defense_duels()), ""]
    return [*lines, NOTE, ""]


def _title(dim: int, corrupted: int) -> str:
    size = f"{POINTS} x {dim:,}, float32, {corrupted} corrupted"
    return f"### {size}: median times, byzfl's over ours"


def main() -> None:
    """Print the report."""
    print("\n".join(run()))


if __name__ == "__main__":
    main()
