"""Aggregators by name: texts make values, and values have texts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rfa
from rfa._specs import Spec, parse_spec
from rfa.aggregators import (
    RFA,
    AdaptiveRadius,
    CenteredClipping,
    Groups,
    Layout,
    Mean,
    OneStepRFA,
    SubCohorts,
    SumAggregator,
    build,
    spec_of,
)
from rfa.aggregators.base import pack_state, unpack_state
from rfa.aggregators.clear import ClearAggregator, Krum, NormClipping, TrimmedMean
from rfa.aggregators.registry import ENTRIES, Context, build_private, find

PRIVATE = [name for name, entry in ENTRIES.items() if entry.is_private]


@dataclass(frozen=True)
class Half(SumAggregator[None]):
    """Half a step."""

    nu: float = 1.0
    name: str = "half"

    def aggregate(self, oracles: Any, dim: int, state: None) -> Any:
        del state
        total = oracles[0](np.zeros(dim), self.nu)
        return self.nu * total.push / total.mass / 2


class Stateful(SumAggregator[None]):
    def __init__(self, secret: object) -> None:
        self.secret = secret

    def aggregate(self, oracles: Any, dim: int, state: None) -> Any:
        raise NotImplementedError


NAMED = Stateful(object())


@pytest.mark.parametrize("name", ENTRIES)
def test_every_name_makes_its_kind(name: str) -> None:
    value = build(name, context=Context(corrupted=0.2, max_groups=lambda: 4))
    assert isinstance(value, ENTRIES[name].kind)
    assert isinstance(value, SumAggregator) == ENTRIES[name].is_private
    assert isinstance(value, SumAggregator | ClearAggregator)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rfa:budget=4", RFA(budget=4)),
        ("rfa:nu=1e-6,start=mean", RFA(nu=1e-6, start="mean")),
        ("rfa:schedule=sub-cohorts", SubCohorts(RFA())),
        ("rfa:groups=7,budget=2", Groups(RFA(budget=2), 7)),
        ("fedavg:clip_norm=5", Mean(clip_norm=5)),
        ("fedavg:clip-norm=inf", Mean(clip_norm=math.inf)),
        ("fedavg:groups=5", Groups(Mean(), 5)),
        ("centered-clipping:budget=2", CenteredClipping(budget=2)),
        ("trimmed-mean:fraction=0.2", TrimmedMean(0.2)),
        ("norm-clipping", NormClipping(quantile=0.5)),
        ("norm-clipping:clip_norm=5", NormClipping(clip_norm=5)),
        ("krum:corrupted=3", Krum(corrupted=3)),
        (f"{__name__}:Half", Half()),
        (f"{__name__}:Half:nu=2.5", Half(nu=2.5)),
        (f"{__name__}:Half:groups=3", Groups(Half(), 3)),
        (f"{__name__}:NAMED", NAMED),
    ],
)
def test_a_text_makes_a_value(text: str, wanted: Any) -> None:
    assert build(text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("median", "no aggregator is called 'median': give one of fedavg, rfa"),
        ("rfa:steps=3", "rfa has no parameter 'steps'.*it has budget, nu, start"),
        ("rfa:budget", "'budget' in 'rfa:budget' is no parameter: write name=value"),
        ("rfa:budget=", "is no parameter: write name=value"),
        ("rfa:budget=2.5", "budget must be a whole number"),
        ("rfa:budget=4,budget=5", "'rfa:budget=4,budget=5' gives budget twice"),
        ("norm-clipping:clip_norm=5,quantile=0.3", "give one of clip_norm and quantile"),
        ("rfa:start=end", "start must be one of current, mean, not 'end'"),
        ("rfa:schedule=fast", "schedule must be one of plain, accelerated, sub-cohorts"),
        ("rfa:nu=-1", "must be a positive number, not -1"),
        ("krum:groups=3", "krum has no parameter 'groups'"),
        ("nowhere:THING", "nowhere cannot be imported"),
        (f"{__name__}:NOTHING", "there is no such name"),
        (f"{__name__}:PRIVATE", "it is a list"),
        (f"{__name__}:Path", "must be a SumAggregator or a ClearAggregator"),
        (f"{__name__}:Half:size=2", "has no parameter 'size'.*it has nu, name, groups"),
        (f"{__name__}:Stateful", "cannot be made of {}: missing a required argument: 'secret'"),
    ],
)
def test_what_a_text_cannot_mean_is_said(text: str, words: str) -> None:
    with pytest.raises(rfa.RfaError, match=words):
        build(text)


def test_what_is_no_aggregator_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(rfa.InvalidTypeError, match="not 3"):
        build(wrong)
    with pytest.raises(rfa.InvalidValueError, match="krum must see single updates"):
        build_private("krum")


CONTEXT = Context(corrupted=0.3, clip_norm=7, early_stop=0.1, max_groups=lambda: 9)
values = st.one_of(
    st.builds(
        RFA,
        budget=st.integers(2, 9),
        nu=st.none() | st.floats(1e-9, 1e6),
        start=st.sampled_from(["current", "mean"]),
        clip_norm=st.floats(0.1, 1e6),
        schedule=st.sampled_from(["plain", "accelerated"]),
    ),
    st.builds(OneStepRFA, nu=st.none() | st.floats(1e-9, 1e6)),
    st.builds(Mean, clip_norm=st.none() | st.floats(0.1, 1e6)),
    st.builds(CenteredClipping, clip_norm=st.none() | st.floats(0.1, 1e6)),
    st.builds(SubCohorts, st.builds(RFA, budget=st.integers(1, 9))),
    st.builds(Half, nu=st.floats(0.1, 9), name=st.sampled_from(["a", "b c"])),
    st.builds(TrimmedMean, st.floats(0, 0.4)),
    st.builds(NormClipping, clip_norm=st.floats(0.1, 9)),
)


@given(values, st.integers(1, 5))
def test_a_value_has_a_text_that_makes_it(value: Any, groups: int) -> None:
    if groups > 1 and isinstance(value, SumAggregator) and not isinstance(value, SubCohorts):
        value = Groups(value, groups)  # pyright: ignore[reportUnknownArgumentType]
    text = str(spec_of(value))
    assert build(text) == value
    assert build(text, {"budget": 77, "nu": 0.77}, CONTEXT) == value, (
        "what a text says wins over every default"
    )


def test_a_value_of_ones_own_that_no_module_names_is_kept_by_its_content() -> None:
    assert str(spec_of(NAMED)) == f"{__name__}:NAMED"

    class Inner(Half):
        pass

    for value, text in (
        (Stateful(3), r"__main__:Stateful@[0-9a-f]{10}"),
        (Inner(nu=2, name="a"), r"__main__:Inner@[0-9a-f]{10}:nu=2,name=a"),
    ):
        with pytest.raises(rfa.PluginError, match="has no name: give it one at the top level"):
            spec_of(value, define=False)
        spec = spec_of(value)
        assert re.fullmatch(text, str(spec))
        assert parse_spec(str(spec)) == spec
        assert build(str(spec)) == value
        assert spec_of(build(str(spec)), define=False) == spec
        grouped = Groups(cast("Any", value), 3)
        assert build(str(spec_of(grouped))) == grouped
    assert spec_of(Stateful(3)) != spec_of(Stateful(4))
    with pytest.raises(rfa.PluginError, match="secret of Stateful cannot be told from others"):
        spec_of(Stateful(value for value in ()))


def test_classes_have_texts_too() -> None:
    assert spec_of(Krum) == Spec("krum", {})
    assert spec_of(Half) == Spec(f"{__name__}:Half", {})


def test_defaults_hold_where_nothing_else_is_said_and_the_aggregator_takes_them() -> None:
    defaults = {"budget": 5, "nu": 0.5, "quantile": 0.9}
    assert build("rfa:nu=2", defaults) == RFA(budget=5, nu=2)
    assert build("rfa-one-step", defaults) == OneStepRFA(nu=0.5)
    assert build("fedavg", defaults) == Mean()


def test_a_context_decides_what_is_left_open() -> None:
    assert build("fedavg", context=CONTEXT) == Mean(clip_norm=7)
    assert build("rfa", context=CONTEXT) == RFA(clip_norm=7, early_stop=0.1)
    assert build("rfa:schedule=accelerated", context=CONTEXT) == RFA(
        clip_norm=7, schedule="accelerated"
    )
    assert build("bucketing", context=CONTEXT) == Groups(Mean(clip_norm=7), 9)
    assert build("krum", context=CONTEXT) == Krum(corrupted_fraction=0.3)
    assert build("trimmed-mean", context=CONTEXT) == TrimmedMean(0.3)
    assert build("trimmed-mean:fraction=0", context=CONTEXT) == TrimmedMean(0)


@pytest.mark.parametrize("name", PRIVATE)
def test_private_ones_are_given_sums_and_nothing_else(name: str) -> None:
    """Each runs on oracles of its layout, and no more queries than it says."""
    value = build_private(name, context=Context(max_groups=lambda: 3))
    layout = value.layout(30)
    points = np.random.default_rng(1).standard_normal((30, 4))
    parts = [rfa.PlainOracle(rows) for rows in np.array_split(points, layout.parts)]
    recorded = [rfa.RecordingOracle(part) for part in parts]
    result, state = value(recorded, 4)
    assert all(oracle.calls <= layout.queries for oracle in recorded)
    assert result.calls <= layout.calls
    assert np.linalg.norm(result.point - points.mean(axis=0)) < 1
    assert unpack_state(value, pack_state(state)) == state


@pytest.mark.parametrize("value", [RFA(early_stop=0.1), Mean(clip_norm=math.inf)])
def test_what_needs_more_than_secure_sums_says_so(value: Any) -> None:
    with pytest.raises(rfa.InvalidValueError, match=r"early_stop|clip_norm"):
        value.check_secure()
    with pytest.raises(rfa.InvalidValueError, match=r"early_stop|clip_norm"):
        Groups(value, 3).check_secure()


def test_more_queries_than_the_layout_says_are_refused_and_nothing_is_proven_for_free() -> None:
    class Twice(Half):
        def aggregate(self, oracles: Any, dim: int, state: None) -> Any:
            oracles[0](np.zeros(dim), self.nu)
            return super().aggregate(oracles, dim, state)

    oracle = rfa.PlainOracle(np.eye(3))
    with pytest.raises(rfa.InvalidValueError, match=r"Twice made 2 queries.*Layout\(queries=2\)"):
        Twice()([oracle], 3)
    assert Half()([oracle], 3)[0].certificate is None
    assert OneStepRFA(nu=1.0)([oracle], 3)[0].certificate is not None


@pytest.mark.parametrize("value", [RFA(), OneStepRFA(), Mean(), CenteredClipping()])
@pytest.mark.parametrize("count", [0, 2])
def test_one_part_has_one_oracle(value: Any, count: int) -> None:
    oracles = [rfa.PlainOracle(np.eye(3))] * count
    with pytest.raises(rfa.InvalidValueError, match=f"1 part.* one oracle.* not {count}"):
        value(oracles, 3)


@pytest.mark.parametrize("value", [Groups(Mean(), 3), SubCohorts(RFA())])
def test_parts_that_are_missing_are_not_done_without(value: Any) -> None:
    """The promise of groups is that of several; parts of a cohort with fewer devices are fewer."""
    large, single = rfa.PlainOracle(np.eye(5)), rfa.PlainOracle(np.eye(5)[:1])
    with pytest.raises(rfa.InvalidValueError, match=r"3 parts.* one oracle.* not 1"):
        value([large], 5)
    assert np.isfinite(value([single] * 2, 5)[0].point).all()


def test_parts_that_were_made_for_a_cohort_before_drop_outs_are_all_taken() -> None:
    """The sums tell only of the devices that stayed."""

    class Pairs(Half):
        def layout(self, devices: int) -> Layout:
            return Layout(parts=max(1, devices // 2))

        def aggregate(self, oracles: Any, dim: int, state: None) -> Any:
            steps = [super(Pairs, self).aggregate([each], dim, state) for each in oracles]
            return np.mean(steps, axis=0)

    two, one_is_lost = rfa.PlainOracle(np.eye(3)[:2]), rfa.PlainOracle(np.eye(3)[:1])
    expected = [Half()([each], 3)[0].point for each in (two, one_is_lost)]
    found, _ = Pairs()([two, one_is_lost], 3)
    assert np.allclose(found.point, np.mean(expected, axis=0))


def test_what_is_no_list_of_oracles_is_refused() -> None:
    wrong: Any = rfa.PlainOracle(np.eye(3))
    with pytest.raises(rfa.InvalidTypeError, match=r"oracles must be a list.*not PlainOracle"):
        RFA()(wrong, 3)


def test_a_query_may_be_a_list() -> None:
    wrong: Any = [0.0, 0.0, 0.0]
    oracle = rfa.PlainOracle(np.eye(3))
    assert np.array_equal(oracle(wrong, 1.0).push, oracle(np.zeros(3), 1.0).push)


def test_an_early_stop_of_zero_is_none() -> None:
    assert RFA(early_stop=0) == RFA()
    assert str(spec_of(RFA(early_stop=0))) == str(spec_of(RFA()))


def test_a_clip_norm_that_no_mean_uses_is_no_radius() -> None:
    assert RFA(nu=500).min_nu == RFA(nu=500, clip_norm=1e-9).min_nu == 500
    assert RFA(nu=500, start="mean").min_nu == 100


def test_an_aggregate_of_the_wrong_shape_is_refused() -> None:
    class Wrong(SumAggregator[None]):
        def aggregate(self, oracles: Any, dim: int, state: None) -> Any:
            return np.zeros(dim + 1)

    with pytest.raises(rfa.InvalidValueError, match=r"Wrong must return 3 numbers, not .*4"):
        Wrong()([rfa.PlainOracle(np.eye(3))], 3)


@dataclass(frozen=True)
class Momentum:
    v: Any
    rounds: int = 0
    name: str = "m"
    on: bool = False


def test_states_survive_packing() -> None:
    state = AdaptiveRadius().after(0.2).after(0.9)
    assert unpack_state(RFA(), pack_state(state)) == state

    class Carries(Half):
        def init(self) -> Any:
            return Momentum(np.zeros(2))

    packed = pack_state(Momentum(np.array([1.5, 2.0]), 3, "x", on=True))
    again: Any = unpack_state(Carries(), packed)
    assert again.v.tolist() == [1.5, 2.0]
    assert (again.rounds, again.name, again.on) == (3, "x", True)
    assert type(again.on) is bool
    assert unpack_state(RFA(), {}) == AdaptiveRadius()


def test_states_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(rfa.InvalidValueError, match="must be None or a dataclass, not 3"):
        pack_state(3)
    with pytest.raises(rfa.InvalidValueError, match=r"Momentum\.v must be a number"):
        pack_state(Momentum(Path()))
    with pytest.raises(rfa.InvalidValueError, match="is not a state of RFA"):
        unpack_state(RFA(), pack_state(Momentum(1.0)))


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.integers(), min_size=1))
def test_specs_are_read_as_they_are_written(parameters: dict[str, int]) -> None:
    spec = Spec("some:NAME", parameters)
    assert parse_spec(str(spec)) == spec


def test_only_private_entries_take_groups() -> None:
    assert all(("groups" in entry.parameters) == entry.is_private for entry in ENTRIES.values())
    assert find("rfa").parameters[:3] == ("budget", "nu", "start")
