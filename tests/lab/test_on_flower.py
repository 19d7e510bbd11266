"""The lab on Flower: the same settings give the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Context, Message, RecordDict

from rfa.cli.main import main as rfa_command
from rfa.lab.on_flower import client, launch, server
from rfa.lab.on_flower.launch import LaunchError, Where
from rfa.lab.settings.privacy import implied_on_flower
from rfa.lab.simulation.outcome import BudgetSpentError
from rfa.lab.simulation.rounds import evaluate, play_round
from tests.flower.grid import LocalGrid
from tests.lab.simulation.lab import InProcess, play, tiny_devices

ROUNDS = 6
"""A radius that is not sent to the nodes shows from the fourth round on."""


def flower_grid(devices: Any, home: Path, nodes: int = 5, **config: Any) -> LocalGrid:
    settings = json.dumps(devices.settings.to_dict())
    values = {"settings": settings, "data-dir": "", "fresh": False, "timeout": 5.0, **config}
    grid = LocalGrid(dict.fromkeys(range(11, 11 + nodes), client.app), run_config=values)
    for context in grid.contexts.values():
        context.node_config["rfa-home"] = str(home)
    return grid


def crew_of(devices: Any) -> Any:
    return InProcess(devices)


def on_flower(home: Path, **values: Any) -> tuple[Any, list[Any], Any]:
    devices = tiny_devices(**values)
    engine = server.FlowerEngine(devices, crew_of(devices), flower_grid(devices, home), 5.0)
    state = server.State(0, devices.initial())
    facts: list[Any] = []
    for _ in range(ROUNDS):
        state, fact = play_round(state, devices, engine)
        facts.append(fact)
    return state, facts, engine


SECURE = {"secure": "on", "nu": 0.1}
KNOWING = {"corruption": "anti-median", "rho": 0.2}
"""An attack that tries what it sends on the defense, which it knows with all that it learned."""
TWELVE = {"devices_per_round": 12}

CASES: dict[str, dict[str, Any]] = {
    "rfa": SECURE,
    "mean start": {**SECURE, "start": "mean", "corruption": "omniscient", "rho": 0.2},
    "malicious server": {
        "aggregator": "rfa-one-step",
        "server_model": "malicious",
        "corruption": "nan",
        "rho": 0.2,
        **SECURE,
    },
    "adam": {"aggregator": "fedavg", "secure": "on", "server_optimizer": "adam"},
    "gaussian": {"aggregator": "fedavg", "corruption": "gaussian", "rho": 0.2},
    "clear": {"aggregator": "multi-krum", "corruption": "data", "rho": 0.2},
    "personal": {"personalize": True, "corruption": "omniscient", "rho": 0.2},
    "personal backdoor": {
        "aggregator": "fedavg",
        "personalize": True,
        "corruption": "backdoor",
        "rho": 0.2,
    },
    "momentum": {"worker_momentum": 0.8, "corruption": "omniscient", "rho": 0.2},
    "secure momentum": {"worker_momentum": 0.8, "corruption": "sign-flip", "rho": 0.2, **SECURE},
    "proximal": {"aggregator": "fedavg", "proximal_mu": 2.0},
    "learned": {"secure": "on"},
    "equal weights": {"secure": "on", "weights": "equal"},
    "buckets": {"secure": "on", "weights": "buckets"},
    "buckets, plain": {"aggregator": "fedavg", "weights": "buckets"},
    "bucketing": {"aggregator": "bucketing", "secure": "on", **TWELVE, **KNOWING},
    "clear, knowing": {"aggregator": "trimmed-mean", "attackers": "random", **KNOWING},
}
NOISY: dict[str, dict[str, Any]] = {
    "one step": {"aggregator": "rfa-one-step", "noise": 1.5},
    "budget": {"aggregator": "rfa-one-step", "epsilon": 20.0, "rounds": ROUNDS},
    "mean": {"aggregator": "fedavg", "noise": 1.5, "clip_norm": 1.0},
    "several sums": {"noise": 1.5, "budget": 3},
    "groups": {"aggregator": "rfa-one-step", "noise": 1.5, "groups": 3, **TWELVE},
    "sub-cohorts": {"noise": 1.5, "schedule": "sub-cohorts", **TWELVE, **KNOWING},
    "drop-outs": {"noise": 1.5, "dropout_rate": 0.1, "devices_per_round": 10},
    "of more devices": {"aggregator": "rfa-one-step", "noise": 1.5, "noise_cohort": 1000},
    "malicious server": {"aggregator": "rfa-one-step", "noise": 1.5, "server_model": "malicious"},
    "not finite": {"aggregator": "rfa-one-step", "noise": 1.5, "corruption": "nan", "rho": 0.2},
}
"""Runs whose sums hold noise."""
STATEFUL: dict[str, dict[str, Any]] = {
    "secure": {"secure": "on", **KNOWING},
    "plain": KNOWING,
    "alie": {"secure": "on", "attackers": "random", "corruption": "alie-optimized", "rho": 0.3},
    "alie, plain": {"attackers": "random", "corruption": "alie-optimized", "rho": 0.3},
    "random attackers": {"secure": "on", "attackers": "random", **KNOWING},
    "random attackers, plain": {"attackers": "random", **KNOWING},
    "one step": {"aggregator": "rfa-one-step", "secure": "on", **KNOWING},
    "groups": {"secure": "on", "groups": 3, "budget": 2, **TWELVE, **KNOWING},
    "sub-cohorts": {"secure": "on", "schedule": "sub-cohorts", **TWELVE, **KNOWING},
    "accelerated": {"secure": "on", "schedule": "accelerated", "budget": 4, **KNOWING},
    "centered-clipping": {"aggregator": "centered-clipping", "secure": "on", **KNOWING},
    "adaptive-clipping": {"aggregator": "adaptive-clipping", "secure": "on", **KNOWING},
    "block-clipping": {"aggregator": "block-clipping:size=4", "secure": "on", **KNOWING},
    "personal": {"secure": "on", "personalize": True, **KNOWING},
    "drop-outs": {"secure": "on", "dropout_rate": 0.1, "devices_per_round": 10, **KNOWING},
    "max_share": {"secure": "on", "max_share": 0.5, **KNOWING},
}
"""Runs in which attackers know what the aggregator has learned so far."""


def check_same(values: dict[str, Any], home: Path) -> None:
    """A run on Flower and the same in the lab: to the bit."""
    values = {"devices_per_round": 8, **values}
    state, facts, engine = on_flower(home, **values)
    wanted, told, local = play(tiny_devices(**values), ROUNDS)
    assert np.array_equal(state.model, wanted.model)
    assert (state.calls, state.dropped, state.rejected, state.stopped) == (
        wanted.calls,
        wanted.dropped,
        wanted.rejected,
        wanted.stopped,
    )
    assert state.aggregator == wanted.aggregator
    assert state.charges == wanted.charges
    for name in ("devices", "corrupted", "dropped", "lost", "norm", "stopped"):
        assert [getattr(fact, name) for fact in facts] == [getattr(fact, name) for fact in told]
    here, there = evaluate(state, engine), evaluate(wanted, local)
    assert here.train_loss == pytest.approx(there.train_loss, rel=1e-4)
    assert here.backdoor == there.backdoor


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_a_run_is_that_of_the_lab(tmp_path: Path, values: dict[str, Any]) -> None:
    check_same(values, tmp_path)


@pytest.mark.parametrize("values", NOISY.values(), ids=NOISY)
def test_noise_and_its_price_are_those_of_the_lab(tmp_path: Path, values: dict[str, Any]) -> None:
    check_same({"secure": "on", **values}, tmp_path)


def test_a_trusted_server_adds_the_noise_of_the_lab(tmp_path: Path) -> None:
    check_same({"aggregator": "rfa-one-step", "noise": 1.5, "noise_model": "central"}, tmp_path)


def test_devices_that_cannot_pay_for_a_round_end_the_run_as_in_the_lab(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "secure": "on",
        "aggregator": "rfa-one-step",
        "devices_per_round": 8,
        "noise": 1.5,
        "epsilon": 6.0,
    }
    said: list[str] = []
    for play_all in (
        lambda: on_flower(tmp_path, **values),
        lambda: play(tiny_devices(**values), 6),
    ):
        with pytest.raises(BudgetSpentError, match="epsilon=6 is spent") as caught:
            play_all()
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"epsilon": 8.0}, "on"),
        ({"noise": 1.0}, "on"),
        ({"epsilon": 8.0, "secure": "unmasked"}, None),
        ({"noise": 1.0, "noise_model": "central"}, None),
        ({}, None),
    ],
)
def test_noise_on_flower_brings_the_real_protocol(given: dict[str, Any], mode: str | None) -> None:
    assert implied_on_flower(given).get("secure") == mode


@pytest.mark.parametrize("values", STATEFUL.values(), ids=STATEFUL)
def test_attackers_know_what_the_aggregator_has_learned(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    check_same(values, tmp_path)


@pytest.mark.parametrize("case", ["plain", "alie, plain"])
def test_attackers_that_do_not_know_it_do_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """So the test above would see if nodes were not told."""

    def forget(data: bytes, settings: Any) -> None:
        return None

    monkeypatch.setattr(client.lab_records, "unpack", forget)
    values = {"devices_per_round": 8, **STATEFUL[case]}
    state, _, _ = on_flower(tmp_path, **values)
    wanted, _, _ = play(tiny_devices(**values), ROUNDS)
    assert not np.array_equal(state.model, wanted.model)


def test_a_corrupted_device_may_send_the_same_again(tmp_path: Path) -> None:
    """A device of a federation refuses a second sum about an update; one of the lab does not."""
    values = {"secure": "on", "corruption": "zero-update", "rho": 0.2}
    check_same({**SECURE, **values}, tmp_path)
    rounds = {path.suffix for path in tmp_path.glob("flower/7/*.train.*")}
    assert len(rounds) > 1
    for device in {path.name.split(".")[0] for path in tmp_path.glob("flower/7/*")}:
        assert len(list(tmp_path.glob(f"flower/7/{device}.*"))) == 1


def test_a_round_that_is_done_again_finds_what_was_kept_before_it(tmp_path: Path) -> None:
    kept: Any = client._Kept(tmp_path)  # pyright: ignore[reportPrivateUsage]
    assert kept.read(3, 0, 2) is None
    for t in (0, 4, 6):
        kept.write(3, t, np.full(2, t + 1, np.float32))
    assert kept.read(3, 6, 2)[0] == 5
    assert kept.read(3, 7, 2)[0] == 7
    kept.write(3, 6, np.full(2, 70, np.float32))
    assert kept.read(3, 7, 2)[0] == 70


def test_the_server_app_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = tiny_devices(rounds=1, devices_per_round=8, **SECURE)
    grid = flower_grid(devices, tmp_path / "home", out=str(tmp_path / "out"))
    config = grid.contexts[11].run_config
    context = Context(run_id=7, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server.main(grid, context)
    row = launch._result(  # pyright: ignore[reportPrivateUsage]
        ["hello", capsys.readouterr().out], lambda line: None
    )
    assert row["status"] == "finished"
    context.run_config["settings"] = json.dumps(devices.settings.to_dict() | {"task": "nothing"})
    with pytest.raises(Exception, match="nothing"):
        server.main(grid, context)
    with pytest.raises(LaunchError, match="nothing"):
        launch._result(  # pyright: ignore[reportPrivateUsage]
            [capsys.readouterr().out], lambda line: None
        )


def test_a_node_that_is_lost_is_left_out(tmp_path: Path) -> None:
    devices = tiny_devices(aggregator="fedavg", devices_per_round=8)
    grid = flower_grid(devices, tmp_path)

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        return None if node == 12 else reply

    grid.spoil = spoil
    engine = server.FlowerEngine(devices, crew_of(devices), grid, 0.1)
    state, facts = play_round(server.State(0, devices.initial()), devices, engine)
    assert {device % 5 for device in facts.dropped} == {1}
    assert state.model.any()


def test_settings_that_flower_cannot_run(tmp_path: Path) -> None:
    ring = tiny_devices(secure="unmasked", devices_per_round=8).settings
    with pytest.raises(ValueError, match="give secure=on, or off"):
        launch.check(ring, Where(tmp_path, federation="mine"))
    run = CliRunner().invoke(
        rfa_command,
        [
            "run",
            "glyphs-linear",
            "--engine",
            "flower",
            "--secure",
            "unmasked",
            "--out",
            str(tmp_path),
        ],
    )
    assert run.exit_code == 2
    assert "give secure=on, or off" in run.output


def test_the_app_that_is_built_is_one_that_flower_takes(tmp_path: Path) -> None:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    settings = tiny_devices(devices_per_round=8).settings
    launch.build(settings, Where(tmp_path / 'it\'s "out"'), tmp_path / "app")
    flwr = Path(sys.executable).with_name("flwr")
    done = subprocess.run(  # noqa: S603
        [flwr, "build", "--app", tmp_path / "app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert list(tmp_path.glob("*.fab")), done.stdout + done.stderr


def test_a_run_without_a_word_failed() -> None:
    told: list[str] = []
    with pytest.raises(LaunchError, match="Flower's log says why"):
        launch._result(["one\n", "two\n"], told.append)  # pyright: ignore[reportPrivateUsage]
    assert told == ["one", "two"]
