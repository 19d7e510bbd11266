"""Receipts of strategies on a Flower grid in this process, and what nodes make of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from click.testing import CliRunner
from flwr.app import Message

from rfa import aggregators
from rfa.aggregators import CenteredClipping, Groups, Mean, SubCohorts, SumAggregator
from rfa.cli.main import main
from rfa.errors import InvalidValueError, PluginError
from rfa.flower import (
    RFA,
    OneStepRFA,
    Policy,
    SecureStrategy,
    ServerModel,
    Terms,
    create_identity,
)
from rfa.flower.checkpoint import load_checkpoint
from rfa.receipts import read_receipt
from rfa.receipts.models import digest_of
from rfa.secagg.messages.values import write_bitmap
from rfa.secagg.weights import EXAMPLE_CAP
from tests.flower import toy
from tests.flower.grid import LocalGrid
from tests.flower.toy import FIRST, NODES, app, model, nodes, signing
from tests.receipts.rounds import forge, with_part

AGGREGATORS: list[SumAggregator[Any]] = [
    aggregators.RFA(budget=3),
    SubCohorts(aggregators.RFA(budget=3)),
    Groups(Mean(), 3),
    CenteredClipping(budget=2),
]


@pytest.fixture(autouse=True)
def server_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the identity of the server is."""
    monkeypatch.setenv("RFA_HOME", str(tmp_path / "server-home"))
    return tmp_path / "server-home" / "server"


def options(**more: Any) -> dict[str, Any]:
    """Options of a strategy for these nodes, which does not evaluate."""
    return toy.options(**{"fraction_evaluate": 0.0, **more})


def with_nu(**more: Any) -> dict[str, Any]:
    """The same for a strategy that has a smoothing radius."""
    return {"nu": 0.5, **options(**more)}


def receipts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.rfa"))


def grid_of(home: Path, count: int = 12) -> LocalGrid:
    """Nodes with folders of their own."""
    return LocalGrid({n: app(n, home / str(n)) for n in range(FIRST, FIRST + count)})


def verify(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=repr)
def test_a_run_leaves_receipts_that_hold(tmp_path: Path, aggregator: SumAggregator[Any]) -> None:
    folder = tmp_path / "receipts"
    strategy = SecureStrategy(aggregator, receipts=str(folder), **options())
    result = strategy.start(grid_of(tmp_path), model(), num_rounds=2)
    files = receipts_in(folder)
    assert [path.name for path in files] == ["round-0001.rfa", "round-0002.rfa"]
    key = create_identity(tmp_path / "server-home" / "server")
    done = verify(*files, "--server-key", key, "--model", folder / "first-model.npz")
    assert done.exit_code == 0, done.output
    assert done.output.count("(computed)") == 2
    last = read_receipt(files[-1]).receipt
    assert last.model_after == digest_of({"w": result.arrays["w"].numpy()})


def test_no_receipts_unless_they_are_asked_for(tmp_path: Path, server_home: Path) -> None:
    OneStepRFA(**with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 1)
    assert not list(tmp_path.rglob("*.rfa"))
    assert not server_home.exists()


def test_the_identity_is_not_in_the_folder_that_is_published(
    tmp_path: Path, server_home: Path
) -> None:
    folder = tmp_path / "receipts"
    OneStepRFA(receipts=folder, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 1)
    secret = (server_home / "identity").read_text()
    assert {path.name for path in folder.iterdir()} == {"first-model.npz", "round-0001.rfa"}
    for path in folder.iterdir():
        data = path.read_bytes()
        assert secret.encode() not in data
        assert bytes.fromhex(secret) not in data
    given = tmp_path / "given"
    strategy = OneStepRFA(receipts=tmp_path / "other", receipts_identity=given, **with_nu())
    strategy.start(LocalGrid(nodes(tmp_path / "b")), model(), 1)
    signer = read_receipt(tmp_path / "other" / "round-0001.rfa").signer
    assert signer.hex() == create_identity(given)


def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "receipts", tmp_path / "checkpoint"
    for rounds in (1, 2):
        strategy = RFA(budget=2, receipts=folder, checkpoint=checkpoint, **options())
        strategy.start(LocalGrid(nodes(tmp_path / f"{rounds}")), model(), num_rounds=rounds)
    files = receipts_in(folder)
    assert len(files) == 2
    assert verify(*files, "--model", folder / "first-model.npz").exit_code == 0
    saved = load_checkpoint(checkpoint, model(), strategy.aggregator)
    last = read_receipt(files[-1]).receipt
    assert last.model_after == digest_of({"w": saved.arrays["w"].numpy()})
    assert verify(*files, "--model", checkpoint).exit_code == 0


def test_a_server_that_ended_between_receipt_and_checkpoint_does_the_round_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, checkpoint = tmp_path / "receipts", tmp_path / "checkpoint"

    def play(home: str, rounds: int) -> None:
        strategy = RFA(budget=2, receipts=folder, checkpoint=checkpoint, **options())
        strategy.start(LocalGrid(nodes(tmp_path / home)), model(), num_rounds=rounds)

    play("a", 1)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rfa.flower.play.save_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            play("b", 2)
    first = receipts_in(folder)[1].read_bytes()
    play("c", 3)
    files = receipts_in(folder)
    assert len(files) == 3
    assert files[1].read_bytes() != first
    assert verify(*files, "--model", folder / "first-model.npz").exit_code == 0


def test_a_folder_of_another_run_is_refused_before_a_round(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    RFA(budget=2, receipts=folder, **options()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    kept = [path.read_bytes() for path in receipts_in(folder)]
    with pytest.raises(InvalidValueError, match=r"has receipts up to round 2, and the run goes on"):
        RFA(budget=2, receipts=folder, **options()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    assert [path.read_bytes() for path in receipts_in(folder)] == kept
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidValueError, match="no receipts can be written to"):
        RFA(receipts=file, **options()).start(LocalGrid(nodes(tmp_path)), model(), 2)


def test_an_aggregator_that_nobody_could_run_again_is_refused(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Local(SumAggregator[None]):
        def aggregate(self, oracles: Sequence[Any], dim: int, state: None) -> Any:
            return np.zeros(dim)

    strategy = SecureStrategy(Local(), receipts=tmp_path / "receipts", **options())
    with pytest.raises(PluginError):
        strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)


def test_a_skipped_round_leaves_no_receipt_and_no_gap_in_the_chain(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    grid = grid_of(tmp_path, NODES)
    mute = False

    def spoil(_node: int, _request: Message, reply: Message) -> Message | None:
        return None if mute else reply

    grid.spoil = spoil

    def evaluate(t: int, _arrays: Any) -> None:
        nonlocal mute
        mute = t == 1

    strategy = OneStepRFA(receipts=folder, **with_nu(stage_timeout=0.1))
    strategy.start(grid, model(), num_rounds=3, timeout=0.1, evaluate_fn=evaluate)
    files = receipts_in(folder)
    assert [path.name for path in files] == ["round-0001.rfa", "round-0003.rfa"]
    assert verify(*files).exit_code == 0


def test_receipts_where_the_server_is_not_trusted(tmp_path: Path) -> None:
    names = range(FIRST, FIRST + 8)
    publics = signing(tmp_path, names)
    policy = Policy(server_model=ServerModel.MALICIOUS)
    apps = {n: app(n, tmp_path / str(n), policy=policy) for n in names}
    folder = tmp_path / "receipts"
    strategy = OneStepRFA(
        receipts=folder,
        identities=publics,
        **with_nu(example_cap=EXAMPLE_CAP, terms=Terms(server_model=ServerModel.MALICIOUS)),
    )
    strategy.start(LocalGrid(apps), model(), num_rounds=2)
    files = receipts_in(folder)
    assert len(files) == 2
    done = verify(*files, "--identities", tmp_path / str(FIRST) / "identities.json")
    assert done.exit_code == 0, done.output

    receipt = read_receipt(files[0]).receipt
    some = {"survivors": write_bitmap(range(7), 8), "inputs": receipt.parts[0].sums[0].inputs[:7]}
    lie = forge(tmp_path / "lie.rfa", with_part(receipt, 0, sums={0: some}))
    assert verify(lie).exit_code == 1
