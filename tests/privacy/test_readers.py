"""What readers of the models learn: against exact rounds, every small data set, and a peer."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa._types import Floats
from rfa.errors import InvalidValueError, MissingExtraError
from rfa.privacy import SampledRounds, epsilon_of, readers_epsilon
from tests.privacy.exact import delta_of, discrete_gaussian, gaussian_epsilon, product

pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'rfa[dp]'")


def mixture(centers: Floats, z: float, grid: Floats, chances: Floats | None = None) -> Floats:
    """Noise around centers, each as likely as another or as is said, on a grid."""
    weights = np.full(len(centers), 1 / len(centers)) if chances is None else chances
    noise = np.exp(-((grid[None, :] - centers[:, None]) ** 2) / (2 * z**2))
    mixed = weights @ noise
    return mixed / mixed.sum()


def worlds(values: Floats, cohort: int, z: float) -> tuple[Floats, Floats]:
    """The sum over a cohort of fixed size, and the same with the first device's data left out."""
    grid = np.linspace(-cohort - 9 * z, cohort + 9 * z, 4001)
    without = values.copy()
    without[0] = 0
    pair = [
        mixture(
            np.asarray([data[list(drawn)].sum() for drawn in cohorts(len(data), cohort)]), z, grid
        )
        for data in (values, without)
    ]
    return pair[0], pair[1]


def cohorts(population: int, cohort: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(population), cohort))


@pytest.mark.parametrize("z", [0.7, 1.5, 4.0])
@pytest.mark.parametrize(("cohort", "population"), [(1, 4), (2, 4), (3, 4), (2, 5)])
def test_no_data_set_is_told_more_about_in_one_round(
    z: float, cohort: int, population: int
) -> None:
    """All data sets of numbers -1, 0 and 1; the worst of them is told as much as is claimed."""
    for delta in (1e-2, 1e-5):
        rounds = [SampledRounds(1 / (2 * z**2), cohort, population)]
        claimed, worst = readers_epsilon(rounds, delta), 0.0
        for values in itertools.product([-1.0, 0.0, 1.0], repeat=population):
            told = delta_of(*worlds(np.asarray(values), cohort, z), claimed)
            worst = max(worst, told)
        assert worst <= delta * 1.001
        assert worst >= 0.97 * delta or claimed == 0, "one data set is that bad"


@settings(max_examples=40)
@given(
    z=st.floats(0.3, 5),
    other=st.floats(-1, 1),
    own=st.floats(-1, 1),
    fraction=st.integers(1, 9),
    epsilon=st.floats(0, 6),
)
def test_no_other_device_makes_it_worse(
    z: float, other: float, own: float, fraction: int, epsilon: float
) -> None:
    """Data between the extremes: the round's exact delta is never above what is claimed."""
    from rfa.privacy.readers import _joins, _leaves  # pyright: ignore[reportPrivateUsage] # noqa: PLC0415

    q, grid = fraction / 10, np.linspace(-1 - 10 * z, 1 + 10 * z, 20001)
    chances = np.asarray([1 - q, q])
    p = mixture(np.asarray([other, own]), z, grid, chances)
    none = mixture(np.asarray([other, 0.0]), z, grid, chances)
    at, grown = np.asarray([epsilon]), math.exp(epsilon)
    assert np.maximum(0, p - grown * none).sum() <= _leaves(at, 1 / z, q)[0] + 1e-7
    assert np.maximum(0, none - grown * p).sum() <= _joins(at, 1 / z, q)[0] + 1e-7


def test_no_data_set_is_told_more_about_in_two_rounds() -> None:
    z, cohort, population, delta = 1.5, 1, 3, 1e-3
    rounds = SampledRounds(1 / (2 * z**2), cohort, population, 2)
    claimed = readers_epsilon([rounds], delta)
    worst = 0.0
    for values in itertools.product([-1.0, 0.0, 1.0], repeat=population):
        p, q = (world[::8] / world[::8].sum() for world in worlds(np.asarray(values), cohort, z))
        worst = max(worst, delta_of(*product([(p, q), (p, q)]), claimed))
    assert 0.5 * delta <= worst <= delta * 1.001


def test_a_cohort_of_fixed_size_tells_more_than_independent_devices() -> None:
    """With the law of independent devices the claim would be refuted by the worst data set."""
    z, cohort, population, delta = 1.0, 1, 5, 1e-4
    rounds = [SampledRounds(1 / (2 * z**2), cohort, population)]
    told = worlds(np.asarray([1.0, -1.0, -1.0, -1.0, -1.0]), cohort, z)
    assert delta_of(*told, readers_epsilon(rounds, delta)) <= delta
    assert delta_of(*told, readers_epsilon(rounds, delta, "poisson")) > 10 * delta


@pytest.mark.parametrize(("z", "q", "count"), [(1.0, 0.01, 100), (2.0, 0.1, 300), (0.8, 0.3, 20)])
def test_independent_devices_as_prv_accountant_counts_them(z: float, q: float, count: int) -> None:
    prv: Any = pytest.importorskip("prv_accountant", reason="needs prv-accountant")
    population = 1000
    ours = readers_epsilon(
        [SampledRounds(1 / (2 * z**2), round(q * population), population, count)], 1e-5, "poisson"
    )
    law = prv.PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        low, middle, high = prv.PRVAccountant(
            prvs=[law], max_self_compositions=[count], eps_error=0.01, delta_error=1e-10
        ).compute_epsilon(1e-5, [count])
    assert low <= ours <= high + 1e-3
    assert ours == pytest.approx(middle, abs=5e-3)


def test_unequal_rounds_as_prv_accountant_composes_them() -> None:
    prv: Any = pytest.importorskip("prv_accountant", reason="needs prv-accountant")
    kinds = [(1.0, 0.02, 50), (3.0, 0.2, 80)]
    rounds = [SampledRounds(1 / (2 * z**2), round(1000 * q), 1000, n) for z, q, n in kinds]
    laws = [
        prv.PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=z)
        for z, q, _ in kinds
    ]
    counts = [n for _, _, n in kinds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, middle, _ = prv.PRVAccountant(
            prvs=laws, max_self_compositions=counts, eps_error=0.01, delta_error=1e-10
        ).compute_epsilon(1e-5, counts)
    assert readers_epsilon(rounds, 1e-5, "poisson") == pytest.approx(middle, abs=5e-3)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_rounds_compose_in_any_order_and_split_as_one_likes(sampling: str) -> None:
    one, other = SampledRounds(0.05, 10, 100, 6), SampledRounds(0.2, 30, 100, 2)
    together = readers_epsilon([one, other], 1e-5, sampling)
    split = [SampledRounds(0.05, 10, 100, 4), other, SampledRounds(0.05, 10, 100, 2)]
    assert readers_epsilon(split, 1e-5, sampling) == pytest.approx(together, rel=1e-3)
    assert readers_epsilon([one], 1e-5, sampling) < together
    assert readers_epsilon([other], 1e-5, sampling) < together


@settings(max_examples=6, deadline=None)
@given(
    rho=st.floats(0.001, 1),
    cohort=st.integers(1, 99),
    count=st.integers(1, 50),
    delta=st.sampled_from([1e-8, 1e-5, 1e-3]),
)
def test_readers_learn_less_than_the_server_and_more_from_more(
    rho: float, cohort: int, count: int, delta: float
) -> None:
    def epsilon(**change: Any) -> float:
        values: dict[str, Any] = {
            "rho": rho,
            "cohort": cohort,
            "population": 100,
            "count": count,
            **change,
        }
        return readers_epsilon([SampledRounds(**values)], delta)

    usual, slack = epsilon(), 1.002
    assert usual <= gaussian_epsilon(math.sqrt(2 * rho * count), delta) * (1 + 1e-9)
    assert usual <= epsilon_of(rho * count, delta) + 1e-9
    assert usual <= slack * epsilon(rho=1.5 * rho) + 1e-3
    assert usual <= slack * epsilon(cohort=cohort + 1) + 1e-3
    assert usual <= slack * epsilon(count=count + 5) + 1e-3
    poisson = readers_epsilon([SampledRounds(rho, cohort, 100, count)], delta, "poisson")
    assert poisson <= slack * usual + 1e-3


@pytest.mark.parametrize(
    ("rho", "count", "delta"),
    [
        (1e-3, 1000, 1e-12),
        (1e-3, 1000, 1e-15),
        (2.0, 30, 1e-12),
        (2.0, 30, 1e-15),
        (0.01, 300, 0.1),
    ],
)
def test_a_tiny_delta_is_not_lost_in_rounding_errors(rho: float, count: int, delta: float) -> None:
    """All but one of 10^12 devices are drawn, so that epsilon is that of Gaussian noise."""
    most = 10**12
    told = readers_epsilon([SampledRounds(rho, most - 1, most, count)], delta)
    exact = gaussian_epsilon(math.sqrt(2 * rho * count), delta)
    assert exact * (1 - 1e-6) <= told <= exact * (1 + 1e-6)


def test_a_delta_below_what_floats_resolve_counts_as_no_draw() -> None:
    """Composed distributions are right to some 10^-12, and a delta must be far above that."""
    rounds = SampledRounds(0.02, 100, 1000, 100)
    fine, coarse = (readers_epsilon([rounds], delta) for delta in (1e-10, 1e-15))
    assert fine < gaussian_epsilon(2.0, 1e-10) / 3
    assert coarse == pytest.approx(gaussian_epsilon(2.0, 1e-15), rel=1e-9)


def test_where_all_take_part_it_is_gaussian_noise_and_needs_no_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    told = readers_epsilon([SampledRounds(0.1, 50, 50, 3), SampledRounds(0.2, 50, 50)], 1e-6)
    assert told == pytest.approx(gaussian_epsilon(math.sqrt(2 * 0.5), 1e-6), rel=1e-9)
    assert readers_epsilon([], 1e-6) == 0
    assert readers_epsilon([SampledRounds(0.0, 5, 50, 3)], 1e-6) == 0


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rfa\[dp\]'"):
        readers_epsilon([SampledRounds(0.1, 5, 50)], 1e-5)


def test_whole_numbers_are_as_good_as_gaussian_noise() -> None:
    """Noise of whole units, in which a device moves the sum by 40 of them, drawn 1 of 3."""
    unit, z, delta = 40, 1.5, 1e-4
    noise = discrete_gaussian(unit * z)
    p, q = np.zeros(noise.size + 2 * unit), np.zeros(noise.size + 2 * unit)
    for center, chance_p, chance_q in ((-1, 2 / 3, 2 / 3), (1, 1 / 3, 0), (0, 0, 1 / 3)):
        start = (center + 1) * unit
        p[start : start + noise.size] += chance_p * noise
        q[start : start + noise.size] += chance_q * noise
    claimed = readers_epsilon([SampledRounds(1 / (2 * z**2), 1, 3)], delta)
    assert delta_of(p, q, claimed) == pytest.approx(delta, rel=0.01)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"rho": -1}, "rho must be"),
        ({"cohort": 0}, "cohort must be"),
        ({"cohort": 101}, "cohort=101 is more than the population"),
        ({"population": 0}, "population must be"),
        ({"count": -1}, "count must be"),
    ],
)
def test_rounds_without_meaning_are_refused(values: dict[str, Any], what: str) -> None:
    usual: dict[str, Any] = {"rho": 0.1, "cohort": 10, "population": 100, "count": 1}
    with pytest.raises(InvalidValueError, match=what):
        SampledRounds(**{**usual, **values})


def test_another_way_to_draw_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="sampling must be one of fixed, poisson"):
        readers_epsilon([SampledRounds(0.1, 5, 50)], 1e-5, "shuffled")
    with pytest.raises(InvalidValueError, match="delta must be"):
        readers_epsilon([SampledRounds(0.1, 5, 50)], 0.0)


def test_so_little_noise_that_nothing_helps_counts_as_no_draw() -> None:
    told = readers_epsilon([SampledRounds(200.0, 5, 50, 10)], 1e-5)
    assert told == pytest.approx(gaussian_epsilon(math.sqrt(4000), 1e-5), rel=1e-6)
