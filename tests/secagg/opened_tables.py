"""The tables of docs/joint-sums.md: `python -m tests.secagg.opened_tables` prints them.

With `RFA_DATA` set, the coordinates of EMNIST that one writer alone moves are counted, too.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Floats
from rfa.aggregators import RFA
from rfa.lab.datasets.dataset import lab_module
from tests.secagg.opened import Exposure, Population, analyze, spread
from tests.secagg.opened_runs import opened, population, typical

DIM = 10_000
DRAWS = 5
MOST = 16
"""The most queries that a device answers, whatever the cohort."""
PIXELS, CLASSES = 784, 62


def told(truth: Population, budget: int, nu: float = 0.5) -> Exposure:
    """What so many Weiszfeld steps tell, with nu in units of the typical length."""
    devices = truth.shape[1]
    scaled = Population(truth.updates / typical(truth), truth.weights)
    sums = opened(scaled, RFA(nu=nu, budget=budget), [[range(devices)] * budget], devices)
    return analyze(scaled, sums, spread(scaled))


def draws(devices: int) -> Iterator[Population]:
    """Comparable devices, drawn anew."""
    for seed in range(DRAWS):
        yield population(np.random.default_rng(seed), devices, DIM)


def unlike(truth: Population, rng: np.random.Generator) -> Population:
    """The same devices, with lengths within a factor of 40 and weights within one of 20."""
    devices = truth.shape[1]
    lengths = np.linalg.norm(truth.updates, axis=2, keepdims=True)
    wanted = rng.uniform(0.1, 4, (devices, 1))
    return Population(truth.updates / lengths * wanted, rng.uniform(0.05, 1, devices))


def error_by_honest(devices: int, budget: int, *, alike: bool) -> float:
    """The relative error at which sums tell an update: the median of all devices of some draws."""
    errors: list[Floats] = []
    for seed, truth in enumerate(draws(devices)):
        other = truth if alike else unlike(truth, np.random.default_rng(seed))
        errors.append(told(other, budget).updates.error)
    return float(np.median(np.concatenate(errors)))


def most_exposed(devices: int, budget: int) -> float:
    """The share of the most exposed update that sums explain: the mean of some draws."""
    return float(np.mean([told(truth, budget).updates.share.max() for truth in draws(devices)]))


def far_share(devices: int, far: int, budget: int) -> float:
    """The same, where all but some devices are within nu."""
    return float(
        np.mean(
            [
                told(with_far(truth, far), budget, nu=1.5).updates.share.max()
                for truth in draws(devices)
            ]
        )
    )


def with_far(truth: Population, far: int) -> Population:
    """The same devices, some with updates of twice the typical length and more."""
    lengths = np.linalg.norm(truth.updates, axis=2, keepdims=True)
    wanted = np.concatenate([np.linspace(2, 4, far), np.linspace(0.5, 1, truth.shape[1] - far)])
    wanted /= np.median(wanted)
    return Population(truth.updates / lengths * wanted[:, None], truth.weights)


def lone_coordinates(moved: Floats) -> float:
    """The share of the coordinates that just one device moves.

    Args:
        moved: by device and coordinate, not zero where it does.
    """
    movers = np.count_nonzero(moved, axis=0)
    return np.count_nonzero(movers == 1) / moved.shape[1]


def emnist_ink(folder: Path, writers: int, rng: np.random.Generator) -> Floats:
    """By writer and pixel: 1 where one of its images has ink."""
    source = folder / "femnist.parquet"
    parquet: Any = lab_module("pyarrow.parquet")
    pillow: Any = lab_module("PIL.Image")
    names: list[str] = parquet.read_table(source, columns=["writer_id"])["writer_id"].to_pylist()
    found, counts = np.unique(np.array(names), return_counts=True)
    chosen = [str(name) for name in rng.choice(found[counts >= 100], writers, replace=False)]
    table = parquet.read_table(
        source, columns=["writer_id", "image"], filters=[("writer_id", "in", chosen)]
    )
    ink = np.zeros((writers, PIXELS))
    for row in table.to_pylist():
        image = np.asarray(pillow.open(io.BytesIO(row["image"]["bytes"])).convert("L"))
        ink[chosen.index(row["writer_id"])][image.ravel() < 255] = 1
    return ink


def main() -> None:
    """Print the tables."""
    print("relative error of an update, by honest devices: as many sums, 16 sums; alike, unlike")
    for devices in (3, 4, 5, 6, 8):
        kinds = [(budget, alike) for alike in (True, False) for budget in (devices, MOST)]
        errors = [f"{error_by_honest(devices, b, alike=alike):.0e}" for b, alike in kinds]
        print(f"| {devices} | {' | '.join(errors)} |", flush=True)
    print("share of the most exposed update, after 1, 2 and 3 sums")
    for devices in (8, 20, 35, 50, 100):
        shares = [f"{most_exposed(devices, budget):.2f}" for budget in (1, 2, 3)]
        print(f"| {devices} | {' | '.join(shares)} |", flush=True)
    print("the same of 50, by how many are beyond nu, after 1, 2 and 3 sums")
    for far in (1, 2, 4, 8, 19):
        shares = [f"{far_share(50, far, budget):.2f}" for budget in (1, 2, 3)]
        print(f"| {far} | {' | '.join(shares)} |", flush=True)
    if "RFA_DATA" in os.environ:
        rng = np.random.default_rng(0)
        ink = emnist_ink(Path(os.environ["RFA_DATA"]), 60, rng)
        print("coordinates of EMNIST linear that one writer alone moves: mean, least, most")
        for writers in (10, 30, 60):
            counts = [
                lone_coordinates(ink[rng.choice(60, writers, replace=False)]) * PIXELS * CLASSES
                for _ in range(20)
            ]
            print(f"| {writers} | {np.mean(counts):.0f} | {min(counts):.0f} to {max(counts):.0f} |")


if __name__ == "__main__":
    main()
