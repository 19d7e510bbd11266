"""Settings without a meaning are refused; the server's optimizers do what they say."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, CenteredClipping, Groups, Mean, OneStepRFA, SubCohorts, spec_of
from rfa.aggregators.clear import Krum, TrimmedMean
from rfa.aggregators.registry import ENTRIES
from rfa.lab.settings.files import read_settings, write_settings
from rfa.lab.settings.parameters import PARAMETERS
from rfa.lab.settings.settings import FIELDS, Settings
from rfa.lab.simulation.server_optimizer import TAU, ServerState, server_step
from tests.tiny import HeavyBall


def test_the_help_of_assumed_corrupted_names_all_that_take_it() -> None:
    takes = [entry.name for entry in ENTRIES.values() if "corrupted_fraction" in entry.parameters]
    assert len(takes) == 7
    named = PARAMETERS["assumed_corrupted"].help.partition(" assume;")[0]
    assert re.findall(r"[a-z-]+", named.partition("that ")[2].replace(" and ", ", ")) == takes


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"aggregator": "mean"}, "no aggregator is called 'mean': give one of fedavg, rfa"),
        ({"start": "median"}, "start must be one of current, mean"),
        ({"server_optimizer": "adagrad"}, "server_optimizer must be one of sgd, adam"),
        ({"device": "tpu"}, "device must be one of cpu, cuda"),
        ({"rho": 0.25}, "rho=0.25 needs a corruption"),
        ({"rho": 1.0, "corruption": "data"}, "rho must be below 1"),
        ({"assumed_margin": -0.1}, "assumed_margin must be a number from 0 on"),
        ({"rho": -0.1, "corruption": "data"}, "rho must be a number from 0 on"),
        ({"rho": float("nan"), "corruption": "data"}, "rho must be a number from 0 on"),
        ({"rounds": 0}, "rounds must be a whole number from 1 on"),
        ({"seed": -1}, "seed must be a whole number from 0 on"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"learning_rate": float("inf")}, "learning_rate must be a positive number"),
        ({"learning_rate": 10**400}, r"learning_rate must be a number below 1.8e\+308"),
        (
            {"lr_decay": 1e300, "lr_decay_every": 1, "rounds": 3},
            r"lr_decay=1e\+300 makes the learning rate of the last of 3 rounds infinite: give an "
            "lr_decay of 1 or less, or a larger lr_decay_every",
        ),
        (
            {"lr_decay": 1e300, "lr_decay_every": 1, "rounds": 3, "proximal_mu": 0.1},
            r"lr_decay=1e\+300 makes the learning rate of the last of 3 rounds infinite",
        ),
        (
            {"lr_decay": 1e300, "lr_decay_every": 1, "rounds": 2, "learning_rate": 1e10},
            r"lr_decay=1e\+300 makes the learning rate of the last of 2 rounds infinite",
        ),
        ({"proximal_mu": -1.0}, "proximal_mu must be a number from 0 on"),
        ({"proximal_mu": float("inf")}, "proximal_mu must be a number from 0 on"),
        (
            {"proximal_mu": 10.0, "learning_rate": 0.1, "lr_decay": 0.5},
            "proximal_mu=10.0 is too large for a learning rate of 0.1: .* proximal_mu below 10,",
        ),
        (
            {"proximal_mu": 5.0, "learning_rate": 0.1, "lr_decay": 2.0, "lr_decay_every": 9},
            "proximal_mu=5.0 is too large for a learning rate of",
        ),
        ({"worker_momentum": 1.0}, "worker_momentum must be below 1"),
        ({"worker_momentum": -0.1}, "worker_momentum must be a number from 0 on"),
        (
            {"worker_momentum": 0.9, "personalize": True},
            "worker_momentum=0.9 is not for personalize=true: .* remove one of the two",
        ),
        ({"nu": -1.0}, "nu must be a positive number"),
        ({"budget": 1, "start": "mean"}, "budget=1 leaves no step after the mean"),
        ({"schedule": "quick"}, "schedule must be one of plain, accelerated, sub-cohorts"),
        ({"schedule": "accelerated", "aggregator": "krum"}, "schedule=accelerated is not for krum"),
        (
            {"schedule": "sub-cohorts", "start": "mean"},
            "plain steps from the current model: give start=current",
        ),
        ({"schedule": "sub-cohorts", "groups": 3}, "splits a cohort itself"),
        (
            {"groups": 3, "aggregator": "krum"},
            "groups=3 is not for krum: its parameters",
        ),
        ({"aggregator": "rfa:steps=3"}, "rfa has no parameter 'steps'.* it has budget, nu"),
        ({"aggregator": "rfa:budget=0"}, "budget must be a whole number from 1 on"),
        ({"aggregator": "rfa:groups=101"}, "100 devices per round cannot form 101 parts"),
        ({"groups": 101}, "100 devices per round cannot form 101 parts"),
        ({"budget": 0}, "budget must be a whole number from 1 on"),
        (
            {"aggregator": "sgd", "local_steps": 0},
            "sgd takes 1 local step a round: give local_steps=1",
        ),
        ({"clip_quantile": 1.5, "aggregator": "norm-clipping"}, "quantile must be .* 1"),
        ({"trim_fraction": 0.5, "aggregator": "trimmed-mean"}, "fraction must be below 0.5"),
        ({"budget": 4, "aggregator": "fedavg"}, "budget=4 is not for fedavg"),
        ({"trim_fraction": 0.1}, "trim_fraction=0.1 is not for rfa: its parameters are budget"),
        ({"budget": 4, "aggregator": "rfa:budget=3"}, "budget=4 contradicts 'rfa:budget=3'"),
        ({"corruption": "alei", "rho": 0.1}, "'alei' is not known: give one of none"),
        ({"max_norm": -1.0}, "max_norm must be a number from 0 on"),
        ({"server_momentum": 1.0}, "server_momentum must be below 1"),
        ({"holdout": 1.0}, "holdout must be below 1"),
        (
            {"aggregator": "trimmed-mean", "rho": 0.5, "corruption": "data"},
            "fraction must be below 0.5, not 0.5: nothing would be left",
        ),
    ],
)
def test_values_without_a_meaning(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings.of("emnist-linear", **values)


def test_a_budget_of_one_is_enough_from_the_current_model() -> None:
    settings = Settings.of("emnist-linear", budget=1, start="current")
    assert settings.aggregation == RFA(budget=1, clip_norm=math.inf, early_stop=1e-6)


def test_settings_are_never_made_without_those_of_the_task() -> None:
    unsettled: Any = Settings
    with pytest.raises(TypeError, match="training"):
        unsettled(task="emnist-linear")
    settings = Settings.of("emnist-linear")
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    assert settings.replace(learning_rate=1) == Settings.of("emnist-linear", learning_rate=1.0)
    assert settings.replace(rho=0.1, corruption="ipm").training == settings.training
    with pytest.raises(ValueError, match="not those of this version"):
        Settings.from_dict({"task": "emnist-linear"})


def test_shared_options_go_to_those_who_take_them() -> None:
    shared = {"budget": 4, "nu": 0.5, "trim_fraction": 0.2}
    trimmed = Settings.where_taken("emnist-linear", aggregator="trimmed-mean", **shared)
    assert trimmed.aggregation == TrimmedMean(0.2)
    rfa = Settings.where_taken("emnist-linear", aggregator="rfa:budget=2", **shared)
    assert rfa.aggregator == "rfa:budget=2,nu=0.5"


def test_a_margin_is_added_to_what_comparators_are_told() -> None:
    def told(rho: float, **more: Any) -> TrimmedMean:
        settings = Settings.of("emnist-linear", aggregator="trimmed-mean", **attack(rho), **more)
        assert isinstance(settings.aggregation, TrimmedMean)
        return settings.aggregation

    def attack(rho: float) -> dict[str, Any]:
        return {"corruption": "data", "rho": rho}

    assert told(0.25, assumed_margin=0.1) == TrimmedMean(0.35)
    assert told(0.4, assumed_margin=0.1) == TrimmedMean(0.49)  # a majority is honest
    assert told(0.0, assumed_margin=0.1) == told(0.0) == TrimmedMean(0.0)
    krum = Settings.of("emnist-linear", aggregator="krum", assumed_margin=0.1, **attack(0.1))
    assert krum.aggregation == Krum(corrupted_fraction=0.2)


def test_a_margin_is_told_by_the_aggregator_and_not_by_the_name_of_the_run() -> None:
    given = {"corruption": "data", "rho": 0.25}
    for aggregator in ("rfa", "trimmed-mean:fraction=0.35"):
        plain = Settings.of("emnist-linear", aggregator=aggregator, **given)
        assert plain.replace(assumed_margin=0.1).run_name == plain.run_name
    trimmed = Settings.of("emnist-linear", aggregator="trimmed-mean", **given)
    margin = trimmed.replace(assumed_margin=0.1)
    assert margin.run_name != trimmed.run_name
    explicit = Settings.of("emnist-linear", aggregator="trimmed-mean:fraction=0.35", **given)
    assert margin.run_name == explicit.run_name


OBJECTS = [
    RFA(budget=4),
    RFA(nu=0.5, start="mean", early_stop=0.01),
    OneStepRFA(),
    Mean(clip_norm=None),
    CenteredClipping(clip_norm=0.5),
    SubCohorts(RFA(budget=4)),
    Groups(Mean(), 7),
    Krum(corrupted=3),
    TrimmedMean(0.2),
    HeavyBall(nu=0.5),
    Groups(HeavyBall(), 3),
]


@pytest.mark.parametrize("aggregator", OBJECTS, ids=repr)
def test_an_object_is_the_setting_that_its_text_is(aggregator: Any, tmp_path: Path) -> None:
    by_object = Settings.of("emnist-linear", aggregator=aggregator)
    by_text = Settings.of("emnist-linear", aggregator=str(spec_of(aggregator)))
    assert by_object == by_text
    assert by_object.aggregator == str(spec_of(aggregator))
    assert by_object.aggregation == by_text.aggregation == aggregator
    assert by_object.run_name == by_text.run_name
    shared = Settings.where_taken("emnist-linear", aggregator=aggregator, budget=9, nu=0.9)
    assert shared.aggregation == aggregator, "no other setting changes an object"
    write_settings(by_object, tmp_path / "run.toml")
    assert Settings.of(**read_settings(tmp_path / "run.toml")) == by_object
    given, text = (
        {"task": "emnist-linear", "aggregator": a} for a in (aggregator, by_text.aggregator)
    )
    assert Settings.of(**given) == Settings.of(**text)


def test_an_object_without_a_name_in_a_module_is_told_by_its_content() -> None:
    class Inner(HeavyBall):
        pass

    unnamed: Any = Inner()
    settings = Settings.of("emnist-linear", aggregator=unnamed)
    assert re.match(r"__main__:Inner@[0-9a-f]{10}", settings.aggregator)
    assert settings.aggregation == unnamed


def test_every_setting_explains_itself() -> None:
    assert all(
        known.help.endswith((".", ")")) for known in (*FIELDS.values(), *PARAMETERS.values())
    )


def step(aggregates: list[Any], **values: Any) -> Any:
    settings = Settings.of("emnist-linear", **values)
    model, state = np.zeros(2, np.float32), ServerState()
    for aggregate in aggregates:
        model, state = server_step(model, np.array(aggregate, np.float32), state, settings)
        assert model.dtype == np.float32
    return model


def test_plain_sgd_adds_the_aggregate() -> None:
    assert step([[1, 2], [3, 4]]).tolist() == [4, 6]
    assert step([[1, 2]], server_learning_rate=0.5).tolist() == [0.5, 1]


def test_momentum() -> None:
    assert step([[1, 0], [1, 0]], server_momentum=0.5).tolist() == [1 + 1.5, 0]


def test_adam() -> None:
    found = step(
        [[1, 0.1], [1, 0.1]], server_optimizer="adam", server_learning_rate=0.1, server_momentum=0.9
    )
    model, m, s = np.zeros(2), np.zeros(2), np.zeros(2)
    for g in [np.array([1, 0.1])] * 2:
        m, s = 0.9 * m + 0.1 * g, 0.99 * s + 0.01 * g**2
        model = model + 0.1 * m / (np.sqrt(s) + TAU)
    assert np.allclose(found, model, rtol=1e-5)
