"""What the sums of one round tell together, and the rule that ties their number to the cohort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa._types import Vector
from rfa.aggregators import RFA
from rfa.oracle import Sum, SumOracle
from rfa.secagg.errors import ParameterError, TooFewDevicesError, TooFewHonestError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.security import policy, terms
from rfa.secagg.security.parameters import Parameters, honest_needed
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from tests.secagg.joint_sums import Heard, Solved, solve
from tests.secagg.party import Party, party

DIM, CAP, COLLUDER = 500, 1000, 1
OFF = Terms(honest_per_query=0)


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

    def oracle(v: Vector, nu: Any) -> Sum:
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


def table_of(parts: dict[int, Contribution], queries: int, terms: Terms = OFF) -> Party:
    """A round whose server keeps no rule, over devices as they are by default."""
    return party(parts, terms, queries=queries, policy=Policy())


@pytest.fixture
def no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the rule, and with it the floor that no terms and no policy lift."""

    def three(*_: int) -> int:
        return 3

    for module in (policy, terms):
        monkeypatch.setattr(module, "honest_needed", three)


@pytest.mark.usefixtures("no_rule")
def test_without_the_rule_three_sums_over_four_tell_every_update_and_every_count() -> None:
    parts = trained(4)
    ask = table_of(parts, 3).oracle()
    assert_all_exposed(solve(listen(ask, parts, 3), [parts[COLLUDER]]), parts)


def test_more_sums_than_the_cohort_bears_are_refused_before_anything_is_masked() -> None:
    parts = trained(4)
    with pytest.raises(TooFewDevicesError, match="Ask 49 devices or more, or each device once"):
        table_of(parts, 3, Terms()).oracle()
    with pytest.raises(TooFewDevicesError, match="Ask 49 devices or more, or each device once"):
        table_of(parts, 3, Terms()).unmasked()
    assert table_of(parts, 1, Terms()).oracle()(np.zeros(DIM), 1.0).count == 4


@pytest.mark.parametrize(("queries", "least"), [(2, 19), (3, 35), (16, 243)])
def test_devices_refuse_whatever_the_server_offers(queries: int, least: int) -> None:
    assert honest_needed(queries) == least
    enough = Parameters(least + 2, 1, 1, 3, least + 1, 2)
    settled().check_parameters(enough, queries)
    with pytest.raises(TooFewHonestError, match=f"wants {least}: take {least + 2} devices"):
        settled().check_parameters(Parameters(least + 1, 1, 1, 3, least, 2), queries)


def test_a_device_in_a_round_refuses_at_the_roster() -> None:
    table = table_of(trained(10), 2)
    with pytest.raises(TooFewDevicesError):
        table.oracle()(np.zeros(DIM), 1.0)
    errors = {type(error) for error in table.exchange.refused.values()}
    assert errors == {TooFewHonestError}


@pytest.mark.parametrize("queries", [3, 4, 5])
def test_no_policy_and_no_terms_lift_the_floor(queries: int) -> None:
    """As many sums as honest devices determine every update."""
    parameters = Parameters(queries + 2, 1, 1, 3, queries + 1, 2)
    lax = settled(honest_per_query=0)
    with pytest.raises(TooFewHonestError):
        lax.check_parameters(parameters, queries)
    lax.check_parameters(parameters, queries - 1)
    lossless = Terms(0, 0, 0, honest_per_query=0)
    with pytest.raises(ParameterError, match=f"Ask {queries + 1} devices or more"):
        lossless.parameters(queries, queries)
    assert lossless.smallest(queries) == queries + 1


def settled(**demands: int) -> Policy:
    """The policy of a device that knows nobody."""
    return Policy(**demands).settled(0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("queries", [1, 2, 3, 8])
@pytest.mark.parametrize("fractions", [(0.1, 0.2), (0.0, 0.0), (0.25, 0.2), (0.3, 0.4)])
def test_the_smallest_cohort_is_the_first_that_terms_and_devices_accept(
    queries: int, fractions: tuple[float, float]
) -> None:
    terms = Terms(*fractions)
    least = terms.smallest(queries)
    settled().check_parameters(terms.parameters(least, queries), queries)
    for cohort in range(3, least):
        with pytest.raises(ParameterError):
            terms.parameters(cohort, queries)


def test_what_three_sums_take_by_default() -> None:
    assert [Terms().smallest(queries) for queries in (1, 2, 3)] == [4, 27, 49]
