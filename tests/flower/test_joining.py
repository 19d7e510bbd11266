"""Nodes join the secure sum where they trained: what becomes of those who then are in none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from rfa.flower import RFA, NodesRefusedError, Policy, records
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.oracle import open_round
from tests.flower.grid import LocalGrid
from tests.flower.test_device import kept
from tests.flower.toy import DIM, FEW_HONEST, app, model, nodes, with_nu


def test_nodes_with_other_metrics_are_told_that_the_round_is_over(tmp_path: Path) -> None:
    """They sent keys with what they trained, and are in no sum."""
    apps = nodes(tmp_path) | {104: app(104, tmp_path, other=1.0)}
    grid = LocalGrid(apps)
    result = RFA(fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert result.arrays["w"].numpy().any()
    path = tmp_path / "flower" / "7" / "104.train"
    assert "contribution" not in kept(path)
    with DurableDevice(path, Profile(104)) as device:
        assert device.due == START
    told = [request for node, request, _ in grid.seen if node == 104]
    assert [sorted(request.content.config_records["rfa"])[0] for request in told] == [
        "cap",
        "opened",
    ]


def test_a_node_that_refuses_how_a_round_begins_says_so_where_it_trained(tmp_path: Path) -> None:
    """It costs itself; where all do, the run ends and says why."""
    strict = Policy(max_queries=1)
    some = nodes(tmp_path / "a") | {104: app(104, tmp_path / "a", policy=strict)}
    grid = LocalGrid(some)
    result = RFA(budget=2, fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert result.arrays["w"].numpy().any()
    ((node, request, reply),) = [each for each in grid.seen if each[2].has_error()]
    assert (node, "cap" in request.content.config_records["rfa"]) == (104, True)
    path = tmp_path / "a" / "flower" / "7" / "104.train"
    with DurableDevice(path, Profile(104)) as device:
        assert device.due == START
    assert "contribution" not in kept(path)
    everyone = {node: app(node, tmp_path / "b", policy=strict) for node in range(101, 109)}
    with pytest.raises(NodesRefusedError, match="all 8 nodes refuse") as caught:
        RFA(budget=2, fraction_evaluate=0.0, **with_nu()).start(LocalGrid(everyone), model(), 1)
    assert str(reply.error.reason).partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("later", [False, True])
def test_the_word_that_a_round_is_over_does_not_end_one_that_a_device_joined_since(
    tmp_path: Path, later: bool
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    opening = open_round(5, FEW_HONEST, queries=1, dim=DIM, fast=True)
    work = records.Work("train", 200.0, "num-examples", opening=opening.encode()).record()
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 2})})
    content["rfa"] = work
    over = records.Over("train", 4 + later, opened=False).content()
    for each in (content, over):
        (reply,) = grid.send_and_receive([Message(each, dst_node_id=107, message_type="train")])
        assert not reply.has_error()
    path = tmp_path / "flower" / "7" / "107.train"
    assert ("contribution" in kept(path)) == (not later)
    with DurableDevice(path, Profile(107)) as device:
        assert device.due == (START if later else Moment(0, Stage.ROSTER))
