"""The arena: which runs it has, and `rfa arena` as a user types it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa.aggregators import RFA
from rfa.aggregators.registry import ENTRIES
from rfa.cli.main import main
from rfa.lab.attacks.registry import BACKDOORS, BUILT_IN, POISONS
from rfa.lab.report.exhibit import load
from rfa.lab.runs.arena import arena_plan, parse_defense, usual_attacks, usual_defenses
from rfa.lab.runs.sweep import cells, make_sweep
from rfa.lab.settings.fields import ConfigError
from rfa.lab.tasks.registry import find_task
from tests.tiny import lax

TASK = "tests.tiny:TASK"
BASE: dict[str, Any] = {"tasks": {TASK: "tiny"}}
ARENA = (
    "arena", TASK, "--rounds", "3", "--eval-every", "1", "--attack", "omniscient", "--attack",
    "tests.tiny:backwards", "--defense", "krum", "--defense", "rfa", "--defense",
    "rfa:nu=0.5,label=wide RFA", "--level", "0.2",
)  # fmt: skip


def rfa(*arguments: str, **env: str | None) -> Any:
    return CliRunner(env=env).invoke(main, list(arguments))


def runs(**changes: Any) -> list[Any]:
    return list(cells(make_sweep("arena", arena_plan("arena", BASE | changes))))


def test_by_default_all_attacks_meet_all_defenses() -> None:
    found = runs()
    attacks = {"none", *find_task(TASK).poisons, *BACKDOORS, *POISONS, *BUILT_IN}
    assert {cell.settings.attack.corruption for cell in found} == attacks
    defenses = set(ENTRIES) - {"sgd", "server-alone"}
    assert {cell.settings.aggregator for cell in found} == defenses
    assert {cell.settings.attack.rho for cell in found} == {0.0, 0.1, 0.25}
    assert len(found) == 2 * len(attacks) * len(defenses)


def test_no_corruption_is_the_same_run_at_every_level() -> None:
    clean = [cell.settings for cell in runs(defenses=["rfa"]) if cell.value == "none"]
    assert len(clean) == 2
    assert clean[0] == clean[1]


def test_only_what_can_be_summed_defends_under_the_secure_sum() -> None:
    private = [name for name, entry in ENTRIES.items() if entry.is_private]
    assert usual_defenses({"secure": "unmasked"}) == [name for name in private if name != "sgd"]
    assert {cell.line for cell in runs(settings=lax({"secure": "unmasked"}))} < set(private)


def test_several_tasks_share_the_attacks_that_all_have() -> None:
    assert "adaptive" in usual_attacks(["glyphs-linear", TASK])
    found = runs(tasks={TASK: "tiny", "glyphs-linear": "glyphs"}, attacks=["data"])
    assert {cell.panel for cell in found} == {
        f"{task}, level {level}" for task in ("tiny", "glyphs") for level in (0.1, 0.25)
    }


def test_a_defense_has_settings_of_its_own() -> None:
    wide = "rfa:budget=5,nu=1,learning_rate=0.2"
    found = {cell.line: cell.settings for cell in runs(defenses=[wide, "rfa"])}
    assert found[wide].aggregator == "rfa:budget=5,nu=1"
    assert found[wide].aggregation == RFA(budget=5, nu=1, clip_norm=math.inf, early_stop=1e-6)
    assert (found[wide].layout.calls, found["rfa"].layout.calls) == (5, 3)
    assert found[wide].training.learning_rate == 0.2
    assert found["rfa"].training.learning_rate == 0.1
    assert parse_defense("fedavg:personalize=yes")["personalize"] is True


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"levels": [0]}, "the first row is without corruption already: give levels above 0"),
        ({"levels": [0.5]}, "between 0 and 0.5, not 0.5: corrupted devices that are the majority"),
        ({"levels": [-0.1]}, "between 0 and 0.5"),
        ({"levels": ["much"]}, "a level is a share of the data, not 'much'"),
        ({"levels": [0.1, 0.1]}, "the level 0.1 is given twice"),
        ({"attacks": ["none"]}, "'none' is no attack"),
        ({"attacks": ["data", "data"]}, "the attack 'data' is given twice"),
        ({"attacks": ["shout"]}, "corruption 'shout' is not known: give one of none, gaussian"),
        ({"attacks": "data"}, "attacks must be a list of names, not 'data'"),
        (
            {"defenses": ["shield"]},
            "'shield' makes no sense: no aggregator is called 'shield': give one of fedavg, rfa",
        ),
        ({"defenses": ["rfa", "rfa"]}, "the defense 'rfa' is given twice"),
        ({"defenses": ["rfa", "rfa:nu=0.0"]}, "'rfa' and 'rfa:nu=0.0' are the same"),
        ({"defenses": ["rfa:budget=3", "rfa:label=x"]}, "'rfa:budget=3' and 'x' are the same"),
        ({"defenses": ["rfa:nu"]}, "'nu' in 'rfa:nu' is no parameter: write name=value"),
        ({"defenses": ["rfa:nu=1,x"]}, "'x' in 'rfa:nu=1,x' is no parameter: write name=value"),
        ({"defenses": ["rfa:nu=big"]}, "must be a positive number, not 'big'"),
        (
            {"defenses": ["rfa:personalize=perhaps"]},
            "must be true or false, not 'perhaps'",
        ),
        (
            {"defenses": ["rfa:speed=3"]},
            "'speed' in the defense 'rfa:speed=3' is no parameter of it (budget, nu, start",
        ),
        ({"defenses": ["rfa:rho=0.3"]}, "cannot have its own rho"),
        (
            {"defenses": ["krum"], "settings": {"secure": "unmasked"}},
            "krum must see single updates",
        ),
    ],
)
def test_what_makes_no_sense_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        arena_plan("arena", BASE | change)
    assert text in str(error.value)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arena")
    result = rfa(*ARENA, "--out", str(folder), COLUMNS="150")
    assert result.exit_code == 0, result.output
    assert "9 runs: less than a minute" in result.stderr
    assert "tests.tiny:backwards  worst" in result.stdout
    return folder


def test_the_matrix_is_kept_and_drawn(out: Path) -> None:
    exhibit = load(out / "exhibits/arena-tests.tiny-TASK.json")
    (matrix,) = exhibit.matrices
    assert matrix.columns == ["rfa", "wide RFA", "krum"]
    assert matrix.rows == ["no corruption", "omniscient", "tests.tiny:backwards", "worst case"]
    assert exhibit.command.startswith(f"rfa arena {TASK} --attack omniscient")
    assert "--defense 'rfa:nu=0.5,label=wide RFA' --level 0.2 --seeds 1" in exhibit.command
    assert (out / "pictures/arena-tests.tiny-TASK.png").exists()


def test_a_second_time_prints_the_same_numbers_as_json(out: Path) -> None:
    result = rfa(*ARENA, "--out", str(out), "--json")
    assert "all 9 runs are done already" in result.stderr
    (level,) = json.loads(result.stdout)["levels"]
    assert level["level"] == 0.2
    least = {
        one["defense"]: min(
            run["test_accuracy"]
            for run in level["runs"]
            if run["defense"] == one["defense"] and run["attack"] != "none"
        )
        for one in level["worst"]
    }
    assert {one["defense"]: one["test_accuracy"] for one in level["worst"]} == least
    assert {one["defense"]: one["private"] for one in level["worst"]} == {
        "rfa": True,
        "wide RFA": True,
        "krum": False,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nonsense"], 2, "no task is called 'nonsense'"),
        (["emnist-linear"], 1, "rfa data get emnist"),
        (["glyphs-linear", "--seeds", "one"], 2, "'one' is not a list of numbers such as 1,2,3"),
        (["glyphs-linear", "--seeds", "1,1"], 2, "the seed 1 is given twice"),
        (["glyphs-linear", "--level", "0"], 2, "give levels above 0"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arguments: list[str], code: int, text: str) -> None:
    result = rfa("arena", *arguments, "--out", str(tmp_path), RFA_DATA=None)
    assert result.exit_code == code
    assert text in result.stderr
    assert "Traceback" not in result.output


def test_a_dry_run_needs_no_data(tmp_path: Path) -> None:
    result = rfa("arena", "emnist-linear", "--dry-run", "--out", str(tmp_path), RFA_DATA=None)
    assert result.exit_code == 0, result.output
    assert "at once" in result.stderr
