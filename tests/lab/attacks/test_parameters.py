"""Parameters of attacks by name: from the command line, from TOML, and of one's own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab.attacks.corruption import (
    DataCorruption,
    NoSuchAttackError,
    UpdateAttack,
    UpdateCorruption,
    corrupts_data,
    corrupts_updates,
    forge,
    poison,
)
from rfa.lab.attacks.registry import BUILT_IN, OF_SUMS, OF_TASKS, POISONS, find_corruption
from rfa.lab.settings.settings import Settings
from tests.lab.attacks.test_attacks import attack_on, honest_of
from tests.lab.simulation.lab import data_attack

RUN = ["run", "tests.tiny:TASK", "--rounds", "3", "--workers", "1", "--rho", "0.3", "--json"]
Z = 1.5


@corrupts_updates
def scaled(attack: UpdateAttack, *, scale: float = 2.0, up: bool = False) -> Any:
    return (scale if up else -scale) * attack.updates[attack.corrupted]


@corrupts_updates
def grumpy(attack: UpdateAttack, *, mood: float = 2.0) -> Any:
    return -mood * attack.updates[attack.corrupted]


@corrupts_updates
def alie_by_hand(attack: UpdateAttack) -> Any:
    """The weighted mean less 1.5 weighted sample deviations of the honest updates."""
    honest, shares = honest_of(attack)
    mean = shares @ honest
    variance = shares @ np.square(honest - mean) / (1 - shares @ shares)
    return np.tile(mean - Z * np.sqrt(variance), (len(attack.corrupted), 1))


@corrupts_data
def shifted(x: Any, y: Any, attack: Any, *, by: int = 1) -> tuple[Any, Any]:
    return x, (y + by) % attack.classes


def sent(attack: UpdateAttack, text: str) -> Any:
    found = find_corruption(text, {})
    assert isinstance(found, UpdateCorruption)
    return forge(found, attack, text).astype(np.float64)


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def run(corruption: str, out: Path, *more: str) -> dict[str, Any]:
    result = rfa(*RUN, "--corruption", corruption, "--out", str(out), *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_parameter_changes_what_is_sent() -> None:
    attack = attack_on()
    honest, shares = honest_of(attack)
    own = attack.updates[attack.corrupted].astype(np.float64)
    assert np.allclose(sent(attack, "alie:z=1.5"), alie_by_hand.forge(attack), atol=1e-5)
    assert not np.allclose(sent(attack, "alie:z=1.5"), sent(attack, "alie"), atol=0.1)
    assert np.allclose(sent(attack, "ipm:epsilon=3"), -3 * (shares @ honest), atol=1e-5)
    assert np.allclose(sent(attack, "sign-flip:scale=4"), -4 * own, rtol=1e-6)
    assert np.allclose(sent(attack, f"{__name__}:scaled"), -2 * own, rtol=1e-6)
    assert np.allclose(sent(attack, f"{__name__}:scaled:scale=5,up=yes"), 5 * own, rtol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "gaussian-replace"])
def test_the_scale_of_noise(name: str) -> None:
    def noise(scale: float) -> Any:
        attack = dataclasses.replace(attack_on(), rng=np.random.default_rng(5))
        own = attack.updates[attack.corrupted] if name == "gaussian" else 0
        return sent(attack, f"{name}:scale={scale}") - own

    assert np.allclose(noise(10), 10 * noise(1), atol=1e-4)
    assert np.abs(noise(1)).max() > 0.1


def test_the_usual_values_are_the_defaults() -> None:
    for text in ("ipm:epsilon=0.1", "sign-flip:scale=1", "gaussian:scale=1", "alie:z=none"):
        name = text.partition(":")[0]
        plain, told = (sent(attack_on(), given) for given in (name, text))
        assert np.array_equal(plain, told)


def test_a_poison_of_ones_own_has_parameters_too() -> None:
    x, y = np.zeros((3, 2)), np.array([0, 1, 2])
    found = find_corruption(f"{__name__}:shifted:by=2", {})
    assert isinstance(found, DataCorruption)
    assert poison(found, x, y, data_attack(3))[1].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alie:y=1", "corruption alie has no parameter 'y': it has z"),
        ("omniscient:z=1", "corruption omniscient has no parameter 'z': it has none"),
        ("label-flip:z=1", "corruption label-flip has no parameter 'z': it has none"),
        ("alie:z", "corruption 'alie:z': alie cannot be imported"),
        ("alie:z=", "corruption 'z=' in 'alie:z=' is no parameter: write name=value"),
        ("shout:z=1", "corruption 'shout' is not known: give one of none, gaussian"),
        (f"{__name__}:scaled:size=1", "has no parameter 'size': it has scale, up"),
        (f"{__name__}:scaled:attack=1", "has no parameter 'attack': it has scale, up"),
    ],
)
def test_a_wrong_parameter_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(NoSuchAttackError) as error:
        find_corruption(text, {})
    assert says in str(error.value)
    result = rfa(*RUN, "--corruption", text, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_what_an_attack_cannot_use_is_told_with_its_name(tmp_path: Path) -> None:
    text = f"{__name__}:grumpy:mood=much"
    result = rfa(*RUN, "--corruption", text, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert f"corruption {text} failed in round 0" in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alie:z=much", "z must be a number, not 'much'"),
        ("alie:z=nan", "z must be a number, not nan"),
        ("ipm:epsilon=inf", "epsilon must be a number, not inf"),
        ("sign-flip:scale=much", "scale must be a number"),
        ("gaussian:scale=nan", "scale must be a number"),
        ("gaussian-replace:scale=true", "scale must be a number"),
        ("fang-trimmed-mean:b=1", "b must be above 1, not 1"),
        ("model-replacement:scale=0", "scale must be a positive number, not 0"),
        ("dba:parts=0", "parts must be a whole number from 1 on, not 0"),
        ("neurotoxin:top=1", "top must be below 1, not 1"),
        ("against-signs:scale=-1", "scale must be a positive number, not -1"),
        ("backdoor-signs:scale=0", "scale must be a positive number, not 0"),
        ("backdoor-aimed:top=0", "top must be a positive number, not 0"),
        ("ipm-optimized:goal=x", "goal must be one of shortfall, distance"),
        ("ring-liar:mass=0", "mass must be a positive number, not 0"),
        ("ring-liar:near=2", "near must be at most 1, not 2"),
    ],
)
def test_a_wrong_value_is_told_before_anything_runs(text: str, says: str) -> None:
    with pytest.raises(NoSuchAttackError, match=says):
        Settings.of("digits-linear", corruption=text, rho=0.1, secure="unmasked")


def test_the_usual_value_of_a_parameter_may_be_given_as_none() -> None:
    for text in ("alie:z=none", "model-replacement:scale=none"):
        assert Settings.of("digits-linear", corruption=text, rho=0.1)


def test_the_help_names_every_attack() -> None:
    text = " ".join(rfa("run", "--help").stdout.split()).replace("- ", "-")
    for name in (*OF_TASKS, *POISONS, *BUILT_IN, *OF_SUMS):
        assert f" {name}," in text


def test_from_the_command_line_and_from_toml(tmp_path: Path) -> None:
    """The parameter reaches the numbers of a run, in the same way from both."""
    usual, told = run("alie", tmp_path), run("alie:z=1.5", tmp_path)
    by_hand = run(f"{__name__}:alie_by_hand", tmp_path)
    assert usual["model_sha256"] != told["model_sha256"]
    assert told["train_loss"] == pytest.approx(by_hand["train_loss"], rel=1e-5)
    assert told["train_loss"] != pytest.approx(usual["train_loss"], rel=1e-3)
    config = tmp_path / "run.toml"
    config.write_text(
        'task = "tests.tiny:TASK"\nrounds = 3\nrho = 0.3\ncorruption = "alie:z=1.5"\n'
    )
    out = ["--json", "--workers", "1", "--out", str(tmp_path / "toml")]
    from_file = json.loads(rfa("run", "--config", str(config), *out).stdout)
    assert (from_file["run"], from_file["model_sha256"]) == (told["run"], told["model_sha256"])


def test_every_parameter_of_an_attack_is_named_in_its_messages() -> None:
    for name in BUILT_IN:
        with pytest.raises(NoSuchAttackError, match=f"{name} has no parameter 'no_such'"):
            find_corruption(f"{name}:no_such=1", {})
