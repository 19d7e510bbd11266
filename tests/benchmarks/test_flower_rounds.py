"""The benchmark of rounds on Flower, on the grid in this process: what it counts and tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from benchmarks.flower_app.timed import client_app, server_app
from benchmarks.flower_rounds import Timing, config_of, parse, read_timings, rows
from flwr.app import Context, Message, RecordDict

from rfa.flower import RFA, Terms
from tests.flower.grid import LocalGrid

NODES = 5
FIRST = 1000


def grid_of(config: dict[str, Any], lose: Any = None, nodes: int = NODES) -> LocalGrid:
    apps = dict.fromkeys(range(FIRST, FIRST + nodes), client_app.app)
    return LocalGrid(apps, run_config=config, lose=lose)


def play(grid: LocalGrid, config: dict[str, Any]) -> None:
    context = Context(run_id=7, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server_app.app(grid, context)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("RFA_HOME", str(tmp_path / "home"))
    return config_of(tmp_path, NODES, rounds=1, dim=10)


def test_all_cases_take_turns_and_their_messages_are_counted(
    config: dict[str, Any], tmp_path: Path
) -> None:
    grid = grid_of(config)
    play(grid, config)
    timings = read_timings(tmp_path, "")
    names = ["FedAvg", "OneStepRFA, one sum", "RFA, three sums"]
    assert [(each.name, each.evaluates) for each in timings] == [
        (name, evaluates) for evaluates in (False, True) for name in names
    ]
    assert [len(each.seconds) for each in timings] == [2] * 6
    assert all(each.messages[0] == each.messages[1] for each in timings)
    first = [reply for node, _, reply in grid.seen if node == FIRST]
    assert not any(reply.has_error() for reply in first)
    assert [each.messages[0] for each in timings] == [1, 2, 6, 2, 4, 8]
    before = [1, 3, 7, 2, 6, 10]  # in the first round of each turn
    assert len(first) == sum(sum(each.messages) for each in timings) + 2 * sum(before)


def test_a_round_that_loses_a_node_is_no_measurement(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_app, "PATIENCE", 0.2)
    asked: list[int] = []

    def lose(node: int, message: Message) -> bool:
        asked.append(node)
        return node == FIRST and asked.count(node) > 5  # in the second round of OneStepRFA

    with pytest.raises(server_app.NotPlayedError, match="OneStepRFA"):
        play(grid_of(config, lose), config)


def test_three_sums_under_the_rule_are_taken_or_it_is_no_measurement(
    config: dict[str, Any],
) -> None:
    """Where updates are near, the second sum would tell on others, and the server takes none."""
    config["rule-off"], nodes = False, Terms().smallest(3)
    case = server_app.cases(nodes, dim=10)[2]
    case.play(grid_of(config, nodes=nodes), nodes)
    assert case.messages == [6]
    case.strategy = RFA(nu=100.0, budget=3, fraction_evaluate=0.0)
    with pytest.raises(server_app.NotPlayedError, match="1 sums"):
        case.play(grid_of(config, nodes=nodes), nodes)


def test_rows_leave_the_warm_up_out_and_compare_with_fedavg() -> None:
    timings = [
        Timing("FedAvg", evaluates=False, seconds=[9.0, 2.0, 2.0, 3.0], messages=[1] * 4),
        Timing("RFA, three sums", evaluates=False, seconds=[99.0, 5.0, 4.0, 7.0], messages=[7] * 4),
    ]
    assert list(rows("simulation", 10, timings)) == [
        "| simulation | 10 | FedAvg | none | 1 | 2.00 | 1.0 |",
        "| simulation | 10 | RFA, three sums * | none | 7 | 5.00 | 2.5 |",
    ]
    assert "*" not in "".join(rows("simulation", 100, timings))


def test_a_run_that_came_to_nothing_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no node"):
        read_timings(tmp_path, "no node")


def test_too_few_nodes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--deployment", "--nodes", "3"])
    assert "--nodes 3: three sums take 5" in capsys.readouterr().err
