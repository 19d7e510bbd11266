"""The settings of noise: what they bring with them, what they do not go with, and run names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.runs.sweep import settle
from rfa.lab.settings.files import read_settings, write_settings
from rfa.lab.settings.settings import Settings

ONE = {"aggregator": "rfa-one-step"}


def of(**values: Any) -> Settings:
    return Settings.of("emnist-linear", **{**ONE, **values})


def test_noise_brings_sums_that_hold_it_and_equal_weights() -> None:
    for values in ({"epsilon": 8}, {"noise": 1.5}, {"epsilon": 8, "noise": 1.5}):
        settings = of(**values)
        assert settings.secure.mode == "unmasked"
        assert settings.training.weights == "equal"
    assert of(epsilon=8, secure="on").secure.mode == "on"
    central = of(epsilon=8, noise_model="central")
    assert (central.secure.mode, central.training.weights) == ("off", "equal")
    plain = of()
    assert (plain.secure.mode, plain.training.weights) == ("off", "examples")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"epsilon": 8, "secure": "off"}, "epsilon=8 needs sums .* give secure=unmasked"),
        ({"noise": 2.0, "secure": "off"}, "noise=2 needs sums .* give secure=unmasked"),
        ({"epsilon": 8, "weights": "examples"}, "epsilon=8 needs weights=equal, not examples"),
        ({"epsilon": 8, "weights": "buckets"}, "epsilon=8 needs weights=equal, not buckets"),
        ({"epsilon": 8, "max_share": 0.1}, "without max_share=0.1.* remove max_share"),
        ({"epsilon": -1.0}, "epsilon must be a number from 0 on"),
        ({"epsilon": float("inf")}, "epsilon must be a number from 0 on"),
        ({"epsilon": float("nan")}, "epsilon must be a number from 0 on"),
        ({"epsilon": "8"}, "epsilon must be a number"),
        ({"noise": -1.0}, "noise must be a number from 0 on"),
        ({"epsilon": 8, "delta": 0.0}, "delta must be a positive number"),
        ({"epsilon": 8, "delta": 1.0}, "delta must be from .* to below 1, such as 1e-5"),
        ({"delta": 1e-6}, "delta=1e-06 needs noise: give epsilon or noise"),
        ({"noise_cohort": 1000}, "noise_cohort=1000 needs noise: give epsilon or noise"),
        ({"noise_model": "central"}, "noise_model=central needs noise: give epsilon or noise"),
        ({"epsilon": 8, "noise_cohort": 20}, "noise_cohort=20 is fewer than the 100 devices"),
        ({"epsilon": 8, "noise_model": "local"}, "noise_model must be one of distributed, central"),
        (
            {"epsilon": 8, "noise_model": "central", "secure": "on"},
            "secure=on hides them: give secure=off, or remove it",
        ),
        ({"epsilon": 8, "noise": 1.0, "noise_model": "central"}, "takes one of epsilon=8 and"),
        ({"epsilon": 8, "aggregator": "fedavg"}, "give clip_norm.*or take adaptive-clipping"),
        ({"epsilon": 8, "aggregator": "krum"}, "krum must see single updates"),
        (
            {"epsilon": 8, "noise_model": "central", "aggregator": "krum"},
            "krum must see single updates",
        ),
        (
            {"epsilon": 8, "aggregator": "rfa", "schedule": "accelerated"},
            "schedule=accelerated .* give schedule=plain",
        ),
    ],
)
def test_what_noise_does_not_go_with_is_named(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        of(**values)


def test_changes_bring_what_they_need_too() -> None:
    plain = of()
    noisy = plain.replace(epsilon=8)
    assert noisy == of(epsilon=8)
    assert noisy.replace(seed=2) == of(epsilon=8, seed=2)
    assert noisy.replace(secure="on").secure.mode == "on"
    assert plain.replace(secure="on").replace(epsilon=8).secure.mode == "on"
    central = plain.replace(epsilon=8, noise_model="central")
    assert central == of(epsilon=8, noise_model="central")
    assert central.replace(epsilon=4).privacy.is_central
    with pytest.raises(ValueError, match="needs weights=equal"):
        noisy.replace(weights="examples")


def test_names_are_made_of_what_applies() -> None:
    name = of(epsilon=8).run_name
    assert of(epsilon=8.0, delta=1e-5, secure="unmasked", weights="equal").run_name == name
    others = [
        of(),
        of(epsilon=4),
        of(epsilon=8, delta=1e-6),
        of(epsilon=8, noise=1.0),
        of(noise=1.0),
        of(epsilon=8, noise_cohort=1000),
        of(epsilon=8, noise_model="central"),
        of(epsilon=8, secure="on"),
    ]
    assert len({name, *(settings.run_name for settings in others)}) == 1 + len(others)


@pytest.mark.parametrize("values", [{}, {"epsilon": 8, "noise_cohort": 500}, {"noise": 0.7}])
def test_files_and_stores_keep_them(values: dict[str, Any], tmp_path: Path) -> None:
    settings = of(**values)
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    write_settings(settings, tmp_path / "run.toml")
    assert Settings.of(**read_settings(tmp_path / "run.toml")) == settings
    table = "[privacy]" in (tmp_path / "run.toml").read_text()
    assert table


def test_at_epsilon_0_of_a_sweep_nothing_of_noise_applies() -> None:
    shared = {"task": "emnist-linear", **ONE, "noise_cohort": 1000, "delta": 1e-6}
    assert settle({**shared, "epsilon": 0.0}) == of()
    assert settle({**shared, "epsilon": 0.0, "noise_model": "central"}) == of()
    assert settle({**shared, "epsilon": 8.0}) == of(epsilon=8, noise_cohort=1000, delta=1e-6)
    kept = settle({**shared, "epsilon": 0.0, "noise": 1.0})
    assert kept == of(noise=1.0, noise_cohort=1000, delta=1e-6)
