"""The device's side on Flower: what leaves it, what it keeps, what it refuses."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from rfa.flower import (
    RFA,
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    ServerModel,
    Terms,
    create_identity,
    read_identities,
    records,
)
from rfa.flower.arrays import difference, moved, size_of
from rfa.flower.storage import storage_of
from rfa.secagg.errors import VaultError
from tests.flower.grid import LocalGrid
from tests.flower.toy import DIM, TARGET, app, attempt, model, nodes, options, signing, with_nu


def kept(path: Path) -> set[str]:
    """What is in the store of a device, by name."""
    store = sqlite3.connect(path)
    rows = store.execute("SELECT name FROM kept").fetchall()
    store.close()
    return {name for (name,) in rows}


def test_after_a_round_the_update_is_gone_and_the_context_is_empty(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    RFA(budget=2, **with_nu()).start(grid, model(), num_rounds=1)
    files = sorted((tmp_path / "flower" / "7").iterdir())
    assert len(files) == 2 * len(grid.apps)
    for path in files:
        assert "contribution" not in kept(path)
        assert path.stat().st_mode & 0o777 == 0o600
    assert all(not context.state for context in grid.contexts.values())


def test_after_a_round_that_ends_early_the_update_is_gone(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        return None if node < 106 and "request" in record else reply

    grid = LocalGrid(nodes(tmp_path), spoil)
    result = attempt(RFA(fraction_evaluate=0.0, **with_nu()), grid, model(), num_rounds=1)
    assert not result.arrays["w"].numpy().any()
    for path in (tmp_path / "flower" / "7").iterdir():
        assert "contribution" not in kept(path)


def test_the_word_that_a_round_is_over_ends_no_later_one(tmp_path: Path) -> None:
    numbers: list[int] = []

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        if "over" in record:
            numbers.append(int(record["over"]))
        return None if node < 106 and "request" in record else reply

    grid = LocalGrid(nodes(tmp_path), spoil)
    attempt(RFA(fraction_evaluate=0.0, **with_nu()), grid, model(), num_rounds=1)
    work = records.Work("train", 200.0, "num-examples").record()
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 2})})
    content["rfa"] = work
    late = records.Over("train", numbers[0], opened=False).content()
    for each in (content, late):
        grid.send_and_receive([Message(each, dst_node_id=107, message_type="train")])
    assert "contribution" in kept(tmp_path / "flower" / "7" / "107.train")


def test_a_device_gives_nothing_in_the_clear(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    result = FedAvg(fraction_evaluate=1.0).start(grid, model(), num_rounds=1)
    assert not result.train_metrics_clientapp
    for _, _, reply in grid.seen:
        assert reply.has_error()
        assert "nothing in the clear" in str(reply.error.reason)


def test_an_update_is_in_one_sum_whatever_the_run(tmp_path: Path) -> None:
    """A server that is started again is another run, and the difference of sums would tell."""
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    assert strategy.start(LocalGrid(nodes(tmp_path)), model(), 1).train_metrics_clientapp
    fewer = dict(list(nodes(tmp_path).items())[:-1])
    again = LocalGrid(fewer, run=8)
    assert not attempt(strategy, again, model(), 1).train_metrics_clientapp


def test_a_model_is_evaluated_in_one_sum(tmp_path: Path) -> None:
    strategy = RFA(fraction_train=0.0, **with_nu())
    first = strategy.start(LocalGrid(nodes(tmp_path)), model(), num_rounds=2)
    assert first.evaluate_metrics_clientapp[1] == first.evaluate_metrics_clientapp[2]


def test_a_device_that_does_not_trust_the_server_says_how_it_is_weighted(tmp_path: Path) -> None:
    """One that tells others a huge cap would make them count for nothing."""
    wary = RobustMod(Policy(server_model=ServerModel.MALICIOUS), tmp_path, cap=200.0)
    for cap, fine in ((200.0, True), (1e20, False)):
        if fine:
            wary.check_work(records.Work("train", cap, "num-examples"))
            continue
        with pytest.raises(records.RecordError, match="give the same on both sides"):
            wary.check_work(records.Work("train", cap, "num-examples"))


def test_what_a_failing_app_says_stays_on_the_device(tmp_path: Path) -> None:
    def complain(step: Any) -> Any:
        msg = "patient 4711"
        raise RuntimeError(msg)

    grid = LocalGrid(nodes(tmp_path, {103: complain}))
    result = RFA(fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert result.arrays["w"].numpy().any()
    (reason,) = [str(reply.error.reason) for _, _, reply in grid.seen if reply.has_error()]
    assert reason == "AppFailedError: the app raised RuntimeError: the log of the node says more"


def test_only_floats_are_aggregated_and_what_is_unchanged_counts_as_zero() -> None:
    before = ArrayRecord(
        {
            "w": Array(np.zeros((2, 2), np.float16)),
            "batches": Array(np.array(5)),
            "mask": Array(np.array([True, False])),
            "bias": Array(np.array([0.0, -np.inf], np.float32)),
            "one": Array(np.array(1.0)),
        }
    )
    after = ArrayRecord(
        {
            "one": Array(np.array(1.5)),
            "w": Array(np.ones((2, 2), np.float16)),
            "batches": Array(np.array(900)),
            "mask": Array(np.array([False, True])),
            "bias": Array(np.array([2.0, -np.inf], np.float32)),
        }
    )
    step = difference(after, before)
    assert step.tolist() == [1, 1, 1, 1, 2, 0, 0.5]
    assert size_of(before) == 7
    result = moved(before, step)
    assert result["batches"].numpy() == 5
    assert result["mask"].numpy().tolist() == [True, False]
    assert result["w"].numpy().dtype == np.float16
    assert result["one"].numpy() == 1.5
    assert result["bias"].numpy().tolist() == [2.0, -np.inf]


def test_queries_are_the_app_s_own(tmp_path: Path) -> None:
    client = ClientApp(mods=[RobustMod(folder=tmp_path)])

    @client.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict({"said": ConfigRecord({"it": 7})}), reply_to=message)

    grid = LocalGrid({5: client})
    ask = Message(RecordDict(), dst_node_id=5, message_type="query")
    (reply,) = grid.send_and_receive([ask])
    assert reply.content.config_records["said"]["it"] == 7


@pytest.mark.parametrize(
    "record",
    [
        {"task": "train", "cap": 0.0, "weight": "n", "weights": "equal"},
        {"task": "train", "cap": float("inf"), "weight": "n", "weights": "equal"},
        {"task": "train", "cap": 1.0, "weight": "n", "weights": "equal", "personal": "../../etc"},
        {"task": "train", "cap": 1.0, "weight": "n"},
        {"task": "elsewhere"},
        {"task": "train", "request": b"garbage"},
        {"task": "train", "request": "text"},
        {"cap": 1.0},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(tmp_path: Path, record: dict[str, Any]) -> None:
    grid = LocalGrid({5: app(5, tmp_path)})
    content = RecordDict({"rfa": ConfigRecord(record)})
    (reply,) = grid.send_and_receive([Message(content, dst_node_id=5, message_type="train")])
    assert reply.has_error()
    assert "Error: " in str(reply.error.reason)


def test_no_examples_abstain_and_an_infinite_metric_costs_the_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apps = nodes(tmp_path)
    none: dict[str, Any] = {"num-examples": 0}
    apps[101] = app(101, tmp_path, **none)
    apps[102] = app(102, tmp_path, loss=float("inf"))
    grid = LocalGrid(apps)
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, "flwr"):
        result = RFA(fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert np.linalg.norm(result.arrays["w"].numpy() - TARGET) < 0.3
    assert "sum 1: 7 nodes" in caplog.text
    loss = result.train_metrics_clientapp[1]["loss"]
    assert 103 < float(loss) < 108  # type: ignore[arg-type]


def test_where_all_abstain_the_server_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").propagate = True
    none: dict[str, Any] = {"num-examples": 0}
    grid = LocalGrid(nodes(tmp_path, **none))
    attempt(RFA(fraction_evaluate=0.0, **with_nu()), grid, model(), num_rounds=1)
    assert (
        "all 8 nodes refuse: nodes 101, 102, 103, 104, 105 and 3 more: it abstains" in caplog.text
    )
    assert "let it depend on context.run_id" in caplog.text


def test_an_app_without_the_weight_says_so(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    strategy = RFA(weighted_by_key="size", fraction_evaluate=0.0, **with_nu())
    attempt(strategy, grid, model(), num_rounds=1)
    assert {str(reply.error.reason) for _, _, reply in grid.seen} == {
        "RecordError: the app's metrics have no number 'size', by which updates are weighted: "
        "return it beside loss, num-examples, or give the strategy its name, weighted_by_key"
    }


def test_a_device_insists_on_its_policy(tmp_path: Path) -> None:
    strict = Policy(min_nu=1.0)
    apps = {node: app(node, tmp_path, policy=strict) for node in range(101, 109)}
    result = attempt(OneStepRFA(**with_nu(nu=0.5)), LocalGrid(apps), model(), num_rounds=1)
    assert not result.arrays["w"].numpy().any()
    result = OneStepRFA(**with_nu(nu=1.5)).start(LocalGrid(apps), model(), num_rounds=1)
    assert result.arrays["w"].numpy().any()


def test_devices_that_do_not_trust_the_server_sign_their_keys(tmp_path: Path) -> None:
    names = list(range(101, 109))
    known = signing(tmp_path, names)
    apps = {node: app(node, tmp_path / str(node)) for node in names}
    malicious = Terms(server_model=ServerModel.MALICIOUS)
    strategy = OneStepRFA(identities=known, **with_nu(terms=malicious))
    result = strategy.start(LocalGrid(apps), model(), num_rounds=1)
    assert np.linalg.norm(result.arrays["w"].numpy() - TARGET) < 0.5
    other = {**known, 103: bytes.fromhex(create_identity(tmp_path / "other"))}
    (tmp_path / "103" / "identity").write_text((tmp_path / "other" / "identity").read_text())
    grid = LocalGrid(apps)
    strategy = OneStepRFA(identities=other, fraction_train=0.0, **with_nu(terms=malicious))
    attempt(strategy, grid, model(), num_rounds=1)
    reasons = {str(reply.error.reason) for _, _, reply in grid.seen if reply.has_error()}
    assert any("sign" in reason for reason in reasons)


def test_an_identity_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    public = create_identity(tmp_path / "home")
    assert create_identity(tmp_path / "home") == public
    assert (tmp_path / "home" / "identity").stat().st_mode & 0o777 == 0o600
    (tmp_path / "home" / "identity").write_text("short")
    with pytest.raises(VaultError, match="32 bytes in hex"):
        create_identity(tmp_path / "home")
    (tmp_path / "known.json").write_text("[1]")
    with pytest.raises(VaultError, match="public identities"):
        read_identities(tmp_path / "known.json")


def nothing(*_: object) -> None:
    """What a chmod does that is never reached."""


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("umask", [0, 0o777])
def test_an_identity_is_its_owners_from_the_first_byte_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """Also if nobody gets to change its mode after it was made."""
    if umask == 0:
        monkeypatch.setattr(Path, "chmod", nothing)
    before = os.umask(umask)
    try:
        create_identity(tmp_path)
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["identity"]
    assert (tmp_path / "identity").stat().st_mode & 0o777 == 0o600


def test_where_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(config: dict[str, Any], given: Path | None = None) -> Path:
        context = Context(
            run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={}
        )
        return storage_of(context, given).root

    monkeypatch.delenv("RFA_HOME", raising=False)
    assert at({}) == Path.home() / ".rfa"
    monkeypatch.setenv("RFA_HOME", "/env")
    assert at({}) == Path("/env")
    assert at({"rfa-home": "/node"}) == Path("/node")
    assert at({"rfa-home": "/node"}, tmp_path) == tmp_path


def test_what_a_run_left_long_ago_is_removed(tmp_path: Path) -> None:
    old = tmp_path / "flower" / "3" / "99.train"  # the number that the node had then
    new = tmp_path / "flower" / "4" / "101.train"
    for path in (old, new):
        path.parent.mkdir(parents=True)
        path.touch()
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    RFA(fraction_evaluate=0.0, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 1)
    assert not old.exists()
    assert new.exists()


def test_personal_parameters_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "flower" / "personal" / "mine" / "104"
    path.parent.mkdir(parents=True)
    np.zeros(DIM + 1, np.float32).tofile(path)
    grid = LocalGrid(nodes(tmp_path))
    RFA(personal="mine", fraction_evaluate=0.0, **with_nu()).start(grid, model(), 1)
    reasons = {node: reply.error.reason for node, _, reply in grid.seen if reply.has_error()}
    assert list(reasons) == [104]
    assert "give the strategy another personal name" in str(reasons[104])
