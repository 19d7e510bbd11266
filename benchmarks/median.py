"""The geometric median against geom_median and byzfl: speed, memory, digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rfa
from benchmarks.measure import Call, busy_processes, extra_memory, times
from benchmarks.peers import load_byzfl, load_geom_median, load_torch
from rfa.median import converge
from rfa.numerics.weighted import read_weighted_points

SHAPES = [(10, 100_000), (100, 48_608), (100, 1_000_000), (1000, 100_000), (50, 6_600_000)]
SLOW = 10_000_000
"""Clouds of more numbers than this are not given to the slow variants."""
OURS, ROWS, MODELS = "rfa", "rfa, rows one by one", "rfa, models of ten layers"
PEER, PEER_MODELS = "geom_median torch", "geom_median torch, models"
LAYERS = (432, 16, 4608, 32, 200_000, 64, 600_000, 1000, 190_000)
"""The sizes of the first layers in a model of a million parameters; the tenth has the rest."""
BUSY = 2
"""Processes that keep processors busy meanwhile."""


def cloud(m: int, d: int) -> NDArray[np.float32]:
    """Gaussian points of spread one per coordinate, a quarter of them ten spreads away."""
    points = np.random.default_rng(0).standard_normal((m, d), dtype=np.float32)
    points[: m // 4] += 10
    return points


def apart(points: Iterable[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """The points as arrays that were allocated one by one."""
    return [point.copy() for point in points]


def models(points: NDArray[np.float32]) -> list[list[NDArray[np.float32]]]:
    """The points as models of ten layers of very unequal sizes, all allocated one by one."""
    ends = np.cumsum([max(size * points.shape[1] // 1_000_000, 1) for size in LAYERS])
    return [apart(np.split(point, ends)) for point in points]


def three_steps(points: NDArray[np.float32]) -> dict[str, Call]:
    """Three Weiszfeld steps: geom_median starts at the mean, byzfl at zero."""
    torch, byzfl = load_torch(), load_byzfl()
    tensor, rows, layers = torch.from_numpy(points), apart(points), models(points)
    calls: dict[str, Call] = {
        OURS: lambda: rfa.geometric_median(points, steps=3),
        "rfa, from the mean": lambda: rfa.geometric_median(points, steps=3, start="mean"),
        ROWS: lambda: rfa.geometric_median(rows, steps=3),
        MODELS: lambda: rfa.geometric_median(layers, steps=3),
        PEER: _geom_median("torch", tensor, maxiter=3),
        PEER_MODELS: _geom_median_of_models(layers, maxiter=3),
        "byzfl torch": lambda: byzfl.GeometricMedian(nu=1e-6, T=3)(tensor),
    }
    if points.size <= SLOW:
        calls["geom_median numpy"] = _geom_median("numpy", points, maxiter=3)
        calls["byzfl numpy"] = lambda: byzfl.GeometricMedian(nu=1e-6, T=3)(points)
    return calls


def converged(points: NDArray[np.float32]) -> dict[str, Call]:
    """To convergence, as each library defines it; byzfl has no such mode."""
    tensor = load_torch().from_numpy(points)
    return {
        OURS: lambda: rfa.geometric_median(points),
        PEER: _geom_median("torch", tensor),
        "geom_median torch, ftol 1e-6": _geom_median("torch", tensor, ftol=1e-6),
    }


def _geom_median(kind: str, points: Any, **options: Any) -> Call:
    function = load_geom_median(kind)
    ones = load_torch().ones(len(points)) if kind == "torch" else np.ones(len(points))
    rows = list(points)
    return lambda: function(rows, ones, **options)


def _geom_median_of_models(layers: list[list[NDArray[np.float32]]], **options: Any) -> Call:
    function, torch = load_geom_median("torch"), load_torch()
    tensors = [[torch.from_numpy(layer) for layer in model] for model in layers]
    ones = torch.ones(len(layers))
    return lambda: function(tensors, ones, **options)


def speed() -> Iterator[str]:
    """Tables of times and ratios."""
    modes = [("Three steps", three_steps), ("To convergence", converged)]
    for title, make in modes:
        yield f"### {title}, float32, a quarter of outliers (ms; how many times slower than rfa)"
        yield ""
        rows: dict[str, list[str]] = {}
        for m, d in SHAPES:
            points = cloud(m, d)
            measured = times(make(points), rounds=5 if points.size <= SLOW else 2)
            for name in measured:
                rows.setdefault(name, ["-"] * SHAPES.index((m, d)))
            for name, cells in rows.items():
                cells.append(_cell(measured, name))
        yield "| | " + " | ".join(f"{m} x {d:,}" for m, d in SHAPES) + " |"
        yield "|---|" + "---|" * len(SHAPES)
        yield from (f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items())
        yield ""


def _cell(measured: dict[str, float], name: str) -> str:
    if name not in measured:
        return "-"
    value = measured[name]
    shown = f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return shown if name == OURS else f"{shown} ({value / measured[OURS]:.1f}x)"


def beside_busy() -> Iterator[str]:
    """Times while other processes keep all processors of a small machine busy."""
    yield f"### Three steps beside {BUSY} busy processes (ms: quiet, busy, their ratio)"
    yield ""
    yield "| | " + " | ".join(f"{m} x {d:,}" for m, d in SHAPES[:3]) + " |"
    yield "|---|---|---|---|"
    names, rows = (OURS, ROWS, MODELS, PEER, PEER_MODELS), dict[str, list[str]]()
    for m, d in SHAPES[:3]:
        calls = {name: call for name, call in three_steps(cloud(m, d)).items() if name in names}
        quiet = times(calls, rounds=3)
        with busy_processes(BUSY):
            busy = times(calls, rounds=3)
        for name in names:
            ratio = busy[name] / quiet[name]
            rows.setdefault(name, []).append(f"{quiet[name]:.1f}, {busy[name]:.1f}, {ratio:.1f}")
    yield from (f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items())
    yield ""


def memory() -> Iterator[str]:
    """Peak memory beyond the points, in megabytes."""
    yield "### Extra memory at the peak (MB)"
    yield ""
    yield "| cloud | points | allowed | 3 steps | converged | converged, rows apart and offset |"
    yield "|---|---|---|---|---|---|"
    for m, d in SHAPES:
        points = cloud(m, d)
        size = points.nbytes / 2**20
        used = [
            extra_memory(lambda p=points: rfa.geometric_median(p, steps=3)),
            extra_memory(lambda p=points: rfa.geometric_median(p)),
        ]
        points += 1000
        rows = apart(points)
        used.append(extra_memory(lambda p=rows: rfa.geometric_median(p)))
        allowed = max(size / 10, 4 * size / m)
        cells = " | ".join(f"{value:.1f}" for value in used)
        yield f"| {m} x {d:,} | {size:.0f} | {allowed:.1f} | {cells} |"
    yield ""


def digits() -> Iterator[str]:
    """The distance to a float64 reference, in honest spreads."""
    yield "### Error: distance to a float64 reference over the honest spread (100 x 48,608)"
    yield ""
    yield "| outliers | offset | rfa | geom_median torch |"
    yield "|---|---|---|---|"
    sizes, shares, offsets = (1e4, 1e6, 1e8), ("a quarter", "one"), (0.0, 1e3)
    for size, share, offset in product(sizes, shares, offsets):
        points, spread = _scenario(size, share, offset)
        exact = _reference(points)
        tensor = load_torch().from_numpy(points)
        theirs = _geom_median("torch", tensor)().median.double().numpy()
        errors = [
            float(np.linalg.norm(answer - exact)) / spread
            for answer in (_unrounded(points), theirs)
        ]
        yield f"| {share} at {size:.0e} | {offset:.0e} | {errors[0]:.1e} | {errors[1]:.1e} |"
    yield ""


def _scenario(size: float, share: str, offset: float) -> tuple[NDArray[np.float32], float]:
    m, d = 100, 48_608
    rng = np.random.default_rng(1)
    points = rng.standard_normal((m, d))
    points[: m // 4 if share == "a quarter" else 1] += size
    direction = rng.standard_normal(d)
    points += offset * np.sqrt(d) * direction / np.linalg.norm(direction)
    return points.astype(np.float32), float(np.sqrt(d))


def _unrounded(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Our answer before it is rounded to float32."""
    weighted = read_weighted_points(points, None, "raise")
    converge(weighted.geometry, weighted.alpha, 0.0, 2 * weighted.geometry.eps)
    return weighted.geometry.average(slice(0, weighted.points.dim), np.float64)


def _reference(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Plain Weiszfeld steps in float64 from an honest point, relative to it."""
    center = points[-1].astype(np.float64)
    apart = points - center
    v = np.zeros_like(center)
    distances = np.linalg.norm(apart, axis=1)
    distances[-1] = np.median(distances)
    for _ in range(200):
        beta = 1 / distances
        last, v = v, beta @ apart / beta.sum()
        distances = np.linalg.norm(apart - v, axis=1)
        if np.linalg.norm(v - last) <= 1e-14 * np.median(distances):
            break
    return center + v


def run() -> Iterator[str]:
    """The whole report, line by line."""
    yield "## The geometric median"
    yield ""
    yield from speed()
    yield from beside_busy()
    yield from memory()
    yield from digits()


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
