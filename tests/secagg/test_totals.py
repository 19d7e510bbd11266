"""Totals that a step does not need are not sent, and equal weights are not sent at all."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, CenteredClipping, Groups, Mean, OneStepRFA, SubCohorts
from rfa.aggregators.base import SumAggregator
from rfa.errors import InvalidValueError
from rfa.oracle import TOTALS
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import (
    NotCanonicalError,
    ParameterError,
    SecAggError,
    TooFewDevicesError,
    UnequalWeightError,
)
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import MaskedInput
from rfa.secagg.oracle import open_round
from rfa.secagg.statistics import ALL, mask_of, rows_of
from rfa.secagg.unmasked import UnmaskedOracle
from tests.secagg.attack import TERMS, altered, at_stage, refuses
from tests.secagg.party import SMALL, Party, contributions, masked, party, same

NU = 1.5
SUBSETS = [frozenset(some) for k in range(5) for some in itertools.combinations(sorted(TOTALS), k)]


def table(names: frozenset[str], *, equal: bool = False, max_share: float = 0.0) -> Party:
    """A round in which these totals are sent."""
    parts = contributions(6, 3)
    if equal:
        parts = {
            name: dataclasses.replace(part, weight=1.0, equal_weights=True)
            for name, part in parts.items()
        }
    there = party(parts)
    opening = open_round(
        1,
        there.terms,
        queries=1,
        dim=3,
        metrics=1,
        max_share=max_share,
        statistics=names,
        equal_weights=equal,
    )
    return dataclasses.replace(there, opening=opening)


@pytest.mark.parametrize("names", SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
def test_only_what_was_asked_for_is_sent(names: frozenset[str]) -> None:
    there, every = table(names), table(ALL)
    ask, bare, whole = there.oracle(), there.unmasked(), every.unmasked()
    for oracle in (ask, bare, whole):
        oracle(np.ones(3), NU)
    assert same(ask.last, bare.last)
    assert ask.last is not None
    assert whole.last is not None
    assert set(ask.last.statistics) == {*names, "count"}
    for name in TOTALS:
        told = getattr(ask.last.sum, name)
        assert told == (getattr(whole.last.sum, name) if name in names else None)
    assert np.array_equal(ask.last.sum.push, whole.last.sum.push)
    assert ask.last.metrics == whole.last.metrics
    for _, _, reply in masked(there):
        assert len(decode_as(MaskedInput, reply).tail) == len(names) + 1 + 1


@pytest.mark.parametrize("names", [TOTALS, frozenset({"mass"}), frozenset[str]()])
def test_equal_weights_are_the_count(names: frozenset[str]) -> None:
    there = table(names, equal=True)
    assert "weight" not in {row.name for row in rows_of(there.opening.statistics)}
    ask, bare = there.oracle(), there.unmasked()
    assert ask(np.ones(3), NU).weight == bare(np.ones(3), NU).weight == 6.0
    assert same(ask.last, bare.last)


def told(weight: float, **changes: Any) -> str:
    """What a device of this weight, which is not told that all are equal, says to a round."""
    part = Contribution(np.zeros(3, np.float32), weight)
    opening = open_round(1, TERMS, queries=1, dim=3, equal_weights=True)
    try:
        Device(part, Profile(1)).receive(dataclasses.replace(opening, **changes).encode())
    except SecAggError as error:
        return f"{type(error).__name__}: {error}"
    return "joined"


def test_no_opening_tells_whether_a_weight_is_one() -> None:
    """Or a server that caps the examples anew each time finds their number in a few openings."""
    for changes in ({}, {"round": 9}, {"statistics": mask_of(("mass",))}):
        answers = {told(weight, **changes) for weight in (0.1, 1 - 2**-53, 1.0)}
        assert len(answers) == 1
        assert answers.pop().startswith("UnequalWeightError: ")


def test_a_contribution_of_equal_weights_weighs_one() -> None:
    ones = np.ones(3, np.float32)
    assert Contribution(ones, equal_weights=True).weight == 1
    with pytest.raises(ParameterError, match="equal_weights: the weight must be exactly 1"):
        Contribution(ones, 0.125, equal_weights=True)


@pytest.mark.parametrize("equal", [False, True])
def test_whether_weights_are_equal_survives_a_restart(tmp_path: Path, equal: bool) -> None:
    opening = open_round(1, TERMS, queries=1, dim=3, equal_weights=True).encode()
    with DurableDevice(tmp_path / "one", Profile(1)) as device:
        device.bring(Contribution(np.ones(3, np.float32), equal_weights=equal))
    with DurableDevice(tmp_path / "one", Profile(1)) as device:
        if equal:
            assert device.receive(opening)
        else:
            with pytest.raises(UnequalWeightError):
                device.receive(opening)


def test_an_unmasked_sum_is_refused_as_devices_refuse() -> None:
    """Whatever their weights."""
    parts = {name: Contribution(np.ones(3, np.float32)) for name in range(6)}
    opening = open_round(1, SMALL, queries=1, dim=3, equal_weights=True)
    with pytest.raises(TooFewDevicesError):
        UnmaskedOracle(opening, SMALL, parts)


def test_a_device_with_weights_refuses_a_round_of_equal_ones() -> None:
    there = table(TOTALS)
    changed = dataclasses.replace(there.opening, statistics=mask_of(()), equal_weights=1)
    there = dataclasses.replace(there, opening=changed)
    with pytest.raises(TooFewDevicesError):
        there.oracle()
    assert len(there.exchange.refused) == 6
    for error in there.exchange.refused.values():
        assert isinstance(error, UnequalWeightError)
        assert "ask for the same `weights`" in str(error)
    with pytest.raises(TooFewDevicesError):
        there.unmasked()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"statistics": 0b111111}, "none of the 5"),
        ({"statistics": 0b10011111}, "none of the 5"),
        ({"statistics": 0b01111}, "count is not among them"),
        ({"statistics": 0}, "count is not among them"),
        ({"equal_weights": 2, "statistics": 0b10011}, "must be 0 or 1"),
        ({"equal_weights": 1}, "no weight is sent"),
    ],
)
def test_a_device_refuses_totals_that_it_does_not_know(changes: dict[str, Any], what: str) -> None:
    _, device, request = at_stage(OpenRound)
    refuses(device, altered(request, **changes), NotCanonicalError, what)
    assert device.receive(request)


def test_a_limit_on_shares_needs_the_mass() -> None:
    _, device, request = at_stage(OpenRound, max_share=0.5)
    refuses(device, altered(request, statistics=0b10000), NotCanonicalError, "needs the mass")
    opening = open_round(1, TERMS, queries=1, dim=3, max_share=0.5, statistics=())
    assert [row.name for row in rows_of(opening.statistics)] == ["mass", "count"]


@pytest.mark.parametrize("names", [frozenset({"mass"}), frozenset({"weight", "near"})])
def test_a_limit_on_shares_is_kept_with_fewer_totals(names: frozenset[str]) -> None:
    there = table(names, max_share=0.9)
    ask, bare = there.oracle(), there.unmasked()
    assert ask(np.ones(3), NU).count == bare(np.ones(3), NU).count == 6
    assert same(ask.last, bare.last)


def test_masks_are_of_rows_that_there_are() -> None:
    assert mask_of(ALL) == 0b11111
    assert mask_of(()) == 0b10000
    assert [row.name for row in rows_of(mask_of({"near", "mass"}))] == ["mass", "near", "count"]
    with pytest.raises(ParameterError, match="no statistic 'median': there are count, mass"):
        mask_of({"median"})
    with pytest.raises(ParameterError, match="count is not among them"):
        Encoding(3, 0b1)


AGGREGATORS: list[tuple[SumAggregator[Any], set[str]]] = [
    (RFA(), {"mass", "squares", "near"}),
    (RFA(nu=0.5), {"mass", "squares"}),
    (RFA(nu=0.5, start="mean", budget=2), {"mass", "squares", "weight"}),
    (RFA(schedule="accelerated", budget=4), {"mass", "squares", "near"}),
    (OneStepRFA(), {"mass", "squares", "near"}),
    (OneStepRFA(nu=0.5), {"mass", "squares"}),
    (Mean(), {"weight"}),
    (Mean(clip_norm=None), {"weight", "near"}),
    (CenteredClipping(clip_norm=1.0), {"weight"}),
    (CenteredClipping(), {"weight", "near"}),
    (SubCohorts(RFA(budget=2)), {"mass", "squares", "near"}),
    (Groups(Mean(), 2), {"weight"}),
]


@pytest.mark.parametrize(("aggregator", "needed"), AGGREGATORS)
def test_an_aggregator_needs_no_more_than_it_says(
    aggregator: SumAggregator[Any], needed: set[str]
) -> None:
    """To the bit: the aggregate, the certificate where it rests on masses, and what is learned."""
    assert aggregator.statistics == needed
    layout, brought = aggregator.layout(10), contributions(10, 5, metrics=0)
    order, found = sorted(brought), list[Any]()
    for names in (aggregator.statistics, ALL):
        opening = open_round(1, SMALL, queries=layout.queries, dim=5, statistics=names)
        oracles = [
            UnmaskedOracle(
                opening,
                SMALL,
                {name: brought[name] for name in order[part :: layout.parts]},
                rounding=dict.fromkeys(order, bytes(32)),
            )
            for part in range(layout.parts)
        ]
        found.append(aggregator(oracles, 5))
    (few, learned), (every, also) = found
    assert np.array_equal(few.point, every.point)
    assert learned == also
    if "mass" in needed:
        assert few.certificate == every.certificate


@dataclasses.dataclass(frozen=True)
class Forgetful(SumAggregator[None]):
    """An aggregator that reads a total that it does not ask for."""

    by_name: bool

    @property
    def statistics(self) -> frozenset[str]:
        return frozenset({"weight"})

    def aggregate(self, oracles: Any, dim: int, state: None) -> Any:
        total = oracles[0](np.zeros(dim), 1.0)
        return total.push / (total.need("mass") if self.by_name else total.mass)


@pytest.mark.parametrize("by_name", [True, False])
def test_who_reads_what_it_did_not_ask_for_is_told(by_name: bool) -> None:
    aggregator = Forgetful(by_name)
    there = table(aggregator.statistics)
    with pytest.raises(InvalidValueError, match=r"mass.*`statistics` hold"):
        aggregator([there.unmasked()], 3)


@dataclasses.dataclass(frozen=True)
class Wrong(SumAggregator[None]):
    """An aggregator with another mistake."""

    def aggregate(self, oracles: Any, dim: Any, state: None) -> Any:
        oracles[0](np.zeros(dim), 1.0)
        return len(dim)


def test_an_error_of_its_own_stays_its_own() -> None:
    with pytest.raises(TypeError, match="len"):
        Wrong()([table(ALL).unmasked()], 3)


def test_certificates_rest_on_what_is_there() -> None:
    contribution = [Contribution(np.ones(2, np.float32), 0.5) for _ in range(8)]
    parts = dict(enumerate(contribution))
    for names, share in (
        ({"mass", "squares"}, 1 / 4),
        ({"mass"}, 1 / 4),
        ({"weight"}, 1 / 4),
        ({"near", "squares"}, 1.0),
        ((), 1.0),
    ):
        opening = open_round(1, SMALL, queries=1, dim=2, statistics=names)
        total = UnmaskedOracle(opening, SMALL, parts)(np.zeros(2), 10.0)
        assert total.certificate() == pytest.approx(share, rel=1e-9)
