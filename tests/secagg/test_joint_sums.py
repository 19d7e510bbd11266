"""What the sums of one round tell together, and the rule that ties their number to the cohort."""

from __future__ import annotations

import numpy as np

from rfa._types import Vector
from rfa.aggregators import RFA
from rfa.oracle import Sum, SumOracle
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from tests.secagg.joint_sums import Heard, Solved, solve
from tests.secagg.party import party

DIM, CAP, COLLUDER = 500, 1000, 1


def trained(count: int, seed: int = 1) -> dict[int, Contribution]:
    """Updates that have a direction in common, from different numbers of examples."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(DIM) / np.sqrt(DIM)
    parts: dict[int, Contribution] = {}
    for device in range(1, count + 1):
        own = rng.uniform(0.5, 2) * rng.standard_normal(DIM) / np.sqrt(DIM)
        examples = int(rng.integers(50, 900))
        parts[device] = Contribution((0.5 * common + own).astype(np.float32), examples / CAP)
    return parts


def radius_of(parts: dict[int, Contribution]) -> float:
    """Half the median distance, where the learned radius settles."""
    return float(np.median([np.linalg.norm(part.update) for part in parts.values()])) / 2


def listen(ask: SumOracle, parts: dict[int, Contribution], budget: int) -> list[Heard]:
    """The sums of a round of RFA, as the server hears them."""
    heard: list[Heard] = []

    def oracle(v: Vector, nu: float) -> Sum:
        total = ask(v, nu)
        heard.append(Heard(np.asarray(v, np.float32).astype(np.float64), nu, total))
        return total

    RFA(budget=budget, nu=radius_of(parts))([oracle], DIM)
    return heard


def assert_all_exposed(found: Solved, parts: dict[int, Contribution]) -> None:
    honest = [part for device, part in parts.items() if device != COLLUDER]
    counts = sorted(np.rint(CAP * found.weights))
    assert counts == sorted(round(CAP * part.weight) for part in honest)
    for part in honest:
        errors = np.linalg.norm(found.updates - part.update, axis=1)
        assert errors.min() < 1e-4 * np.linalg.norm(part.update)


def test_three_sums_over_four_devices_tell_every_update_and_every_count() -> None:
    parts = trained(4)
    ask = party(parts, Terms(), queries=3, policy=Policy()).oracle()
    found = solve(listen(ask, parts, 3), [parts[COLLUDER]])
    assert_all_exposed(found, parts)
