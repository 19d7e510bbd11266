"""Options of strategies: wrong values, and options that do not apply, are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ArrayRecord

from rfa import RfaError, aggregators
from rfa.aggregators import CenteredClipping, Groups, Mean, SubCohorts
from rfa.aggregators.clear import CoordinateMedian, Krum
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.flower import (
    RFA,
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    SecureStrategy,
    ServerModel,
    Terms,
)
from tests.flower.grid import LocalGrid
from tests.flower.toy import model, nodes, with_nu

LYING = Terms(server_model=ServerModel.MALICIOUS)


def one_argument(t: int) -> None:
    """A hook that takes too little."""


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"budget": 0}, "budget must be a whole number"),
        ({"nu": 0.0}, "nu must be"),
        ({"nu": 1e12}, "nu must be from"),
        ({"start": "middle"}, "start must be one of"),
        ({"budget": 17}, "budget=17: devices answer at most 16 queries a round"),
        ({"terms": ServerModel.MALICIOUS}, "terms must be Terms"),
        ({"min_available_nodes": None}, "min_available_nodes"),
        ({"stage_timeout": 0}, "stage_timeout"),
        ({"node_timeout": -1}, "node_timeout"),
        ({"fraction_train": 2.0}, "fraction_train must be at most 1"),
        ({"arrayrecord_key": "rfa"}, "the key of rfa's own record"),
        ({"example_cap": None}, "example_cap"),
        ({"start": "mean", "budget": 1}, "budget=1 leaves no"),
        ({"example_cap": 0}, "example_cap"),
        ({"personal": "../x"}, "personal must be letters"),
        ({"min_available_nodes": 2}, "min_available_nodes=2: 4 nodes or more"),
        ({"train_metrics_aggr_fn": print}, "only sums"),
        ({"evaluate_metrics_aggr_fn": print}, "only sums"),
        (
            {"terms": LYING, "identities": {}, "budget": 3},
            "one query a device, not for 3: .* sub-cohorts",
        ),
        ({"terms": LYING, "budget": 1}, "give identities"),
        ({"schedule": "newton"}, "schedule must be one of plain, accelerated, sub-cohorts"),
        ({"schedule": "sub-cohorts", "start": "mean"}, "give start=current, not mean"),
        ({"schedule": "sub-cohorts", "groups": 3}, "splits a cohort itself"),
        ({"schedule": "sub-cohorts", "budget": 0}, "budget must be a whole number"),
        ({"groups": 0}, "groups must be a whole number"),
        ({"groups": None}, "groups must be a whole number"),
        ({"groups": 3, "min_train_nodes": 11}, "12 nodes or more .* each of 3 parts"),
        ({"groups": 3, "min_available_nodes": 8}, "min_available_nodes=8: 12 nodes"),
        (
            {"groups": 3, "terms": LYING, "identities": {}, "budget": 3},
            "take rfa-one-step, or RFA in sub-cohorts",
        ),
        ({"clip_norm": 5.0}, "clip_norm=5.0 is for a start at the mean"),
        ({"start": "mean", "budget": 2, "clip_norm": 0.0}, "clip_norm"),
        ({"start": "mean", "budget": 2, "clip_norm": 1e12}, "give at most 1e\\+09"),
        (
            {"budget": 3, "min_train_nodes": 48},
            "min_train_nodes=48: 49 nodes or more .* OneStepRFA\\(\\) and schedule='sub-cohorts'",
        ),
        ({"max_share": 1.5}, "max_share is a fraction"),
        ({"max_share": -0.1}, "max_share"),
        ({"max_share": None}, "max_share"),
        ({"max_share": 1e-9}, "no sum has that many nodes"),
        (
            {"max_share": 0.1, "min_train_nodes": 5},
            "min_train_nodes=5: 10 nodes or more .* max_share=0.1: of n nodes in a sum one has 1/n",
        ),
        ({"max_share": 0.2, "groups": 3, "min_train_nodes": 12}, "min_train_nodes=12: 15 nodes"),
        ({"max_share": 0.1, "min_evaluate_nodes": 9}, "min_evaluate_nodes=9: 10 nodes or more"),
        ({"num_liars": 1}, "num_liars=1: .* give groups=3 or more, or no num_liars"),
        ({"num_liars": 1, "groups": 2}, "num_liars=1: .* give groups=3 or more"),
        ({"receipts": ""}, "receipts must be the path of a folder, or None for none, not ''"),
        ({"receipts": 3}, "receipts must be the path of a folder"),
        ({"receipts": False}, "receipts must be the path of a folder"),
        ({"checkpoint": ""}, "checkpoint must be the path of a file, or None for none, not ''"),
        ({"receipts_identity": ""}, "receipts_identity must be the path of a folder"),
        ({"receipts_identity": "keys"}, "receipts_identity signs receipts: give a folder"),
        ({"weighted_by_key": 3}, "weighted_by_key must be a name, not 3"),
        ({"arrayrecord_key": ""}, "arrayrecord_key must be a name, not ''"),
        ({"configrecord_key": None}, "configrecord_key must be a name, not None"),
        (
            {"on_round": one_argument},
            "on_round is called with t, arrays, train_metrics and evaluate_metrics, and .* cannot "
            "be: too many positional arguments",
        ),
    ],
)
def test_values_without_a_meaning_are_refused(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        RFA(**wrong)


def test_a_hook_of_a_class_takes_what_it_is_called_with() -> None:
    class Mine(OneStepRFA):
        def on_round(self, t: int) -> bool:  # type: ignore[override]
            return t > 3

    with pytest.raises(InvalidValueError, match="on_round is called with t, arrays, train_metrics"):
        Mine()
    assert RFA(on_round=print).options.on_round is print


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"initial_arrays": [1.0]}, r"initial_arrays must be an ArrayRecord, .*, not list"),
        ({"initial_arrays": ArrayRecord()}, "the model has no floating-point numbers"),
        ({"num_rounds": "3"}, "num_rounds must be a whole number from 0 on, not '3'"),
        ({"num_rounds": -1}, "num_rounds must be a whole number from 0 on, not -1"),
        ({"timeout": "1"}, "timeout must be a positive number, not '1'"),
        ({"train_config": {"lr": 0.1}}, r"train_config must be a ConfigRecord, .*, not dict"),
        ({"evaluate_config": 3}, r"evaluate_config must be a ConfigRecord, .*, not int"),
        ({"evaluate_fn": "f"}, "evaluate_fn is called with t and arrays, and 'f' cannot be"),
        ({"evaluate_fn": one_argument}, "evaluate_fn is called with t and arrays"),
    ],
)
def test_what_a_run_cannot_start_with_is_refused_before_anything_is_sent(
    tmp_path: Path, wrong: dict[str, Any], what: str
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    given: dict[str, Any] = {"initial_arrays": model(), **wrong}
    with pytest.raises((InvalidValueError, InvalidTypeError), match=what):
        RFA(**with_nu()).start(grid, **given)
    assert not grid.seen


@pytest.mark.parametrize(
    ("strategy", "option", "exists"),
    [
        (SecureFedAvg, {"nu": 0.5}, ["clip_norm", "groups", "max_share", "fraction_train"]),
        (SecureFedAvg, {"budget": 3}, ["clip_norm", "groups"]),
        (SecureFedAvg, {"start": "mean"}, ["clip_norm", "groups"]),
        (SecureFedAvg, {"schedule": "accelerated"}, ["clip_norm", "groups"]),
        (OneStepRFA, {"budget": 3}, ["nu", "groups", "terms"]),
        (OneStepRFA, {"start": "current"}, ["nu", "groups"]),
        (OneStepRFA, {"schedule": "sub-cohorts"}, ["nu", "groups"]),
        (OneStepRFA, {"clip_norm": 1.0}, ["nu", "groups"]),
        (RFA, {"fraction_fit": 0.5}, ["budget", "nu", "start", "schedule", "fraction_train"]),
        (RFA, {"early_stop": 0.1}, ["budget", "schedule"]),
    ],
)
def test_an_option_that_does_not_apply_is_named_with_those_that_do(
    strategy: type[SecureStrategy], option: dict[str, Any], exists: list[str]
) -> None:
    (name,) = option
    with pytest.raises(InvalidTypeError) as caught:
        strategy(**option)
    assert isinstance(caught.value, RfaError)
    assert isinstance(caught.value, TypeError)
    first, known = str(caught.value).split(": it has ")
    assert first == f"{strategy.__name__} has no option {name!r}"
    assert set(exists) <= set(known.split(", "))
    assert name not in known.split(", ")


def test_parameters_of_the_aggregator_are_not_options_of_the_strategy() -> None:
    wrong: dict[str, Any] = {"budget": 2}
    with pytest.raises(InvalidTypeError, match="SecureStrategy has no option 'budget': it has agg"):
        SecureStrategy("rfa", **wrong)


@pytest.mark.parametrize(
    "clear", ["krum", "trimmed-mean:fraction=0.2", Krum(1), CoordinateMedian()]
)
def test_an_aggregator_that_sees_updates_is_refused(clear: Any) -> None:
    with pytest.raises(InvalidValueError, match="must see single updates") as caught:
        SecureStrategy(clear)
    assert "rfa-one-step" in str(caught.value)
    assert "a SumAggregator of your own" in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 3, RFA, aggregators.RFA])
def test_what_is_no_aggregator_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidTypeError, match="an aggregator is a value such as"):
        SecureStrategy(wrong)


@pytest.mark.parametrize(
    ("strategy", "aggregator"),
    [
        (RFA(), aggregators.RFA(budget=1)),
        (RFA(budget=3), aggregators.RFA()),
        (RFA(schedule="sub-cohorts"), SubCohorts(aggregators.RFA(budget=3))),
        (
            RFA(budget=2, nu=0.5, start="mean", clip_norm=5.0),
            "rfa:budget=2,nu=0.5,start=mean,clip_norm=5",
        ),
        (RFA(schedule="sub-cohorts", budget=4), SubCohorts(aggregators.RFA(budget=4))),
        (RFA(groups=3, budget=2), Groups(aggregators.RFA(budget=2), 3)),
        (OneStepRFA(nu=2.0), "rfa-one-step:nu=2"),
        (OneStepRFA(groups=5), "rfa-one-step:groups=5"),
        (SecureFedAvg(), "fedavg"),
        (SecureFedAvg(clip_norm=3.0, groups=7), Groups(Mean(clip_norm=3.0), 7)),
        (SecureFedAvg(clip_norm=None), "adaptive-clipping"),
        (SecureStrategy(CenteredClipping(budget=2)), "centered-clipping:budget=2"),
    ],
)
def test_a_strategy_is_its_aggregator(strategy: SecureStrategy, aggregator: Any) -> None:
    assert strategy.aggregator == SecureStrategy(aggregator).aggregator


def test_a_text_with_a_wrong_parameter_is_refused() -> None:
    with pytest.raises(
        InvalidValueError, match=r"fedavg has no parameter 'nu'.*: it has clip_norm"
    ):
        SecureStrategy("fedavg:nu=3")
    with pytest.raises(InvalidValueError, match="no aggregator is called 'median'"):
        SecureStrategy("median")


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"policy": "x"}, r"policy must be Policy\(...\), .* not 'x': .* RobustMod\(folder=...\)"),
        ({"policy": None}, "policy must be Policy"),
        ({"policy": Policy}, "policy must be Policy"),
        ({"folder": ""}, "folder must be the path of a folder, or None for none, not ''"),
        ({"folder": 3}, "folder must be the path of a folder"),
        ({"cap": 0}, "cap must be a positive number"),
        ({"cap": "many"}, "cap must be a positive number, not 'many'"),
        ({"weights": "heavy"}, "weights must be one of"),
        ({"personal": "../x"}, "personal must be letters"),
        ({"weight": ""}, "weight must be the name of a metric"),
        ({"weight": 3}, "weight must be the name of a metric"),
    ],
)
def test_a_mod_says_what_is_wrong_with_it(wrong: dict[str, Any], what: str) -> None:
    """When it is made, and not with each message that it is then unable to answer."""
    with pytest.raises(InvalidValueError, match=what):
        RobustMod(**wrong)


def test_liars_are_counted_where_there_are_groups() -> None:
    for strategy in (OneStepRFA(groups=3, num_liars=1), RFA(schedule="sub-cohorts", num_liars=1)):
        assert strategy.suspicion.num_liars == 1


def test_nodes_that_trust_nobody_answer_sub_cohorts_and_groups_of_one_step() -> None:
    given: dict[str, Any] = {"terms": LYING, "identities": {}}
    least = LYING.smallest()
    assert RFA(schedule="sub-cohorts", budget=4, **given).min_train_nodes == 4 * least
    assert OneStepRFA(groups=5, **given).min_available_nodes == 5 * least
    assert OneStepRFA(groups=5, **given).min_evaluate_nodes == least


@pytest.mark.parametrize(
    ("strategy", "least"),
    [
        (RFA(), 4),
        (RFA(budget=2), 27),
        (RFA(budget=3), 49),
        (RFA(budget=2, groups=3), 81),
        (RFA(schedule="sub-cohorts"), 12),
        (SecureStrategy(CenteredClipping(budget=2)), 27),
        (RFA(budget=3, terms=Terms(0, 0)), 35),
    ],
)
def test_the_nodes_that_are_waited_for_are_enough_for_the_sums(
    strategy: SecureStrategy, least: int
) -> None:
    assert (strategy.min_train_nodes, strategy.min_available_nodes) == (least, least)
    assert strategy.min_evaluate_nodes <= 4
