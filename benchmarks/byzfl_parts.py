"""The parts of byzfl's benchmark, ours and byzfl's, on the same random vectors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import load_byzfl
from rfa import geometric_median
from rfa.aggregators.clear import MixedMedian, NearestNeighborMixing
from rfa.lab.attacks.corruption import UpdateAttack, forge
from rfa.lab.attacks.registry import find_corruption

HONEST, DIM, CLIP_NORM, NU, STEPS = 10, 7840, 2.0, 0.1, 3
ATTACKS = {
    "sign flip": ("ipm:epsilon=1", "SignFlipping"),
    "optimized IPM": ("ipm-optimized:goal=distance", "Optimal_InnerProductManipulation"),
    "optimized ALIE": ("alie-optimized:goal=distance", "Optimal_ALittleIsEnough"),
}
Matrix = NDArray[np.float32]


def gradients(corrupted: int, seed: int) -> Matrix:
    """Vectors with a common part, of lengths around the clip norm; the last are to be forged."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((HONEST + corrupted, DIM)) + rng.standard_normal(DIM)
    lengths = rng.uniform(0.5, 2, (len(rows), 1)) * CLIP_NORM
    return (lengths * rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def median_steps(points: Any, weights: Any = None, /) -> Any:
    """The geometric median as byzfl has it."""
    return geometric_median(points, weights, nu=NU, steps=STEPS, start="zero")


def aggregates(corrupted: int, seed: int) -> Iterator[tuple[str, Any, Any]]:
    """Names, our aggregates and byzfl's, which computes in double precision."""
    theirs, before = load_byzfl(), load_byzfl("preaggregators")
    points = gradients(corrupted, seed)
    median, mixing = theirs.GeometricMedian(nu=NU, T=STEPS), before.NNM(corrupted)
    clipping = before.Clipping(CLIP_NORM)
    exact = points.astype(np.float64)
    yield "geometric median", median_steps(points).point, median(exact)
    ours: Any = NearestNeighborMixing(corrupted, median_steps)(points).point
    yield "mixing, then the median", ours, median(mixing(exact))
    ours = MixedMedian(corrupted, clip_norm=CLIP_NORM, nu=NU)(points).point
    yield "clipping, mixing, then the median", ours, median(mixing(clipping(exact.copy())))


def attacks(corrupted: int, seed: int) -> Iterator[tuple[str, Any, Any]]:
    """Names, what our corrupted devices send to descend, and byzfl's gradients, negated."""
    points = gradients(corrupted, seed)
    for name, (text, _) in ATTACKS.items():
        corruption: Any = find_corruption(text, {})
        ours = forge(corruption, _view(-points, corrupted), text)[0]
        theirs = byzfl_attack(name, corrupted)(points[:HONEST].astype(np.float64))
        yield name, ours, -theirs


def byzfl_attack(name: str, corrupted: int) -> Any:
    """An attack of byzfl on its defense."""
    theirs, before = load_byzfl(), load_byzfl("preaggregators")
    kind: Any = getattr(importlib.import_module("byzfl.attacks.attacks"), ATTACKS[name][1])
    if name == "sign flip":
        return kind()
    pipeline = [before.Clipping(CLIP_NORM), before.NNM(corrupted)]
    agg = theirs.GeometricMedian(nu=NU, T=STEPS)
    return kind(agg=agg, pre_agg_list=pipeline, f=corrupted)


def _view(updates: Matrix, corrupted: int) -> UpdateAttack:
    """What our corrupted devices know."""
    defense = MixedMedian(corrupted, clip_norm=CLIP_NORM, nu=NU)

    def aggregate(rows: Any) -> Any:
        sent = updates.copy()
        sent[HONEST:] = rows
        return np.asarray(defense(sent).point, np.float64)

    return UpdateAttack(
        round=0,
        model=np.zeros(DIM, np.float32),
        updates=updates,
        weights=np.ones(len(updates)),
        corrupted=np.arange(HONEST, len(updates)),
        rng=np.random.default_rng(0),
        aggregate=aggregate,
    )


def distance(ours: Any, theirs: Any) -> float:
    """How far two vectors are apart, over the length of the second, which may be zero."""
    gap = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    return float(np.linalg.norm(gap) / max(np.linalg.norm(theirs), CLIP_NORM))
