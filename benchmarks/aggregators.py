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
from rfa.aggregators import CoordinateMedian, MultiKrum, NormClipping, SeesUpdates, TrimmedMean

Matrix: TypeAlias = NDArray[np.float32]

POINTS, DIM, CORRUPTED = 100, 1_000_000, 25
HEAD = "| | rfa | byzfl | ratio | rfa, MB | byzfl, MB | largest difference |"


@dataclass(frozen=True)
class Duel:
    """One of our aggregators and byzfl's that computes the same, if it has one."""

    name: str
    ours: SeesUpdates
    theirs: Any = None
    weighted: bool = False


def duels() -> list[Duel]:
    """What is compared. byzfl's multi-Krum scores with one neighbour more than the paper's."""
    byzfl, share = load_byzfl(), CORRUPTED / POINTS
    krum = MultiKrum(CORRUPTED, neighbours=POINTS - CORRUPTED - 1)
    return [
        Duel("coordinate median", CoordinateMedian(), byzfl.Median()),
        Duel("trimmed mean", TrimmedMean(share), byzfl.TrMean(CORRUPTED)),
        Duel("multi-Krum", krum, byzfl.MultiKrum(CORRUPTED)),
        Duel("norm clipping at the median norm", NormClipping(quantile=0.5)),
        Duel("coordinate median, weighted", CoordinateMedian(), weighted=True),
        Duel("trimmed mean, weighted", TrimmedMean(share), weighted=True),
    ]


def cloud() -> Matrix:
    """Gaussian points of spread one per coordinate, a quarter of them ten times as large."""
    points = np.random.default_rng(0).standard_normal((POINTS, DIM), dtype=np.float32)
    points[:CORRUPTED] *= 10
    return points


def table(points: Matrix) -> Iterator[str]:
    """One line for each duel, against the faster of byzfl's two variants."""
    yield HEAD
    yield "|---|" + "---|" * (HEAD.count("|") - 2)
    weights = np.random.default_rng(1).uniform(1, 10, POINTS)
    for duel in duels():
        given = weights if duel.weighted else None
        calls: dict[str, Call] = {"rfa": lambda d=duel, w=given: d.ours(points, w).point}
        if duel.theirs is not None:
            calls |= _faster(duel.theirs, points)
        yield f"| {duel.name} | " + " | ".join(_cells(calls)) + " |"


def _faster(aggregator: Any, points: Matrix) -> dict[str, Call]:
    """The faster variant by the better of two runs each: some are too slow to be timed more."""
    tensor = load_torch().from_numpy(points)
    variants: dict[str, Call] = {
        "torch": lambda: aggregator(tensor).numpy(),
        "numpy": lambda: aggregator(points),
    }
    taken: dict[str, float] = {}
    for name, call in [*variants.items(), *variants.items()]:
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
    title = (
        f"### {POINTS} x {DIM:,}, float32, {CORRUPTED} corrupted: median times, byzfl's over ours"
    )
    return ["## Aggregators that see updates", "", title, "", *table(cloud()), ""]


def main() -> None:
    """Print the report."""
    print("\n".join(run()))


if __name__ == "__main__":
    main()
