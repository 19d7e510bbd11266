"""What nodes find out by their own lists of what they sent, on a Flower grid in this process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message

from rfa.flower import RFA, OneStepRFA, oracles
from rfa.receipts import Expected, ReceiptError, Verifier, read_receipt
from rfa.secagg.device.sent import read_sent
from rfa.secagg.errors import VaultError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import FirstInput, MaskedInput, UnmaskShares
from rfa.secagg.oracle import open_round
from tests.flower.grid import LocalGrid
from tests.flower.test_receipts import grid_of, options, receipts_in, verify, with_nu
from tests.flower.toy import FIRST, attempt, model
from tests.receipts.rounds import forge, with_part

SESSION = "ab" * 16


@pytest.fixture(autouse=True)
def server_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the identity of the server is."""
    monkeypatch.setenv("RFA_HOME", str(tmp_path / "server-home"))


def test_a_node_finds_what_it_sent_in_the_receipts(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    RFA(budget=2, receipts=folder, **options()).start(grid_of(tmp_path, 6), model(), 2)
    files = receipts_in(folder)
    log = tmp_path / str(FIRST) / "flower" / "sent" / f"{FIRST}.train"
    lines = log.read_text().splitlines()
    assert [len(line.split()) for line in lines] == [5, 4] * 4, "each sum is sent, then opened"
    done = verify(*files, "--sent", log)
    assert done.exit_code == 0
    assert done.output.count("  this node     2 masked inputs, all as it sent them") == 2


@pytest.fixture
def lied_about(tmp_path: Path) -> tuple[Path, Path]:
    """A receipt, and the list of what a node sent."""
    folder = tmp_path / "receipts"
    OneStepRFA(receipts=folder, **with_nu()).start(grid_of(tmp_path, 6), model(), 1)
    (path,) = receipts_in(folder)
    return path, tmp_path / str(FIRST) / "flower" / "sent" / f"{FIRST}.train"


def reason(path: Path, log: Path) -> str:
    with pytest.raises(ReceiptError) as caught:
        Verifier(Expected(sent=read_sent(log))).check(path)
    return str(caught.value)


def test_a_server_that_claims_another_input_of_a_node_is_found_by_it(
    lied_about: tuple[Path, Path], tmp_path: Path
) -> None:
    path, log = lied_about
    receipt = read_receipt(path).receipt
    inputs = tuple(bytes(32) for _ in receipt.parts[0].sums[0].inputs)
    lie = forge(tmp_path / "lie.rfa", with_part(receipt, 0, sums={0: {"inputs": inputs}}))
    assert Verifier().check(lie)  # who did not take part cannot tell
    wanted = f"masked sum 0 of part 0 has another input of device {FIRST} than the one it sent"
    assert reason(lie, log) == wanted


def leave_out(grid: LocalGrid, kind: type[FirstInput | MaskedInput]) -> None:
    """A server that takes the masked input of a node, and says that the node dropped out."""

    def spoil(node: int, _request: Message, reply: Message) -> Message | None:
        answer = b"" if reply.has_error() else reply.content.config_records["rfa"].get("reply")
        masked = isinstance(answer, bytes) and answer[4:5] == bytes([kind.KIND])
        return None if node == FIRST and masked else reply

    grid.spoil = spoil


def test_a_server_that_leaves_a_node_out_of_a_fast_round_is_found_by_it(tmp_path: Path) -> None:
    """The others are in a second roster: their first inputs are in no sum, and that is fine."""
    folder, grid = tmp_path / "receipts", grid_of(tmp_path, 6)
    leave_out(grid, FirstInput)
    RFA(budget=2, receipts=folder, **with_nu()).start(grid, model(), 1)
    (path,) = receipts_in(folder)
    lists = [tmp_path / str(node) / "flower" / "sent" / f"{node}.train" for node in (FIRST, 104)]
    assert reason(path, lists[0]) == (
        f"no part has device {FIRST}, which sent an input for masked sum 0: it came late, or was "
        "left out"
    )
    assert [(entry.masked_sum, entry.opened) for entry in read_sent(lists[1])] == [
        (0, False),
        (2, True),
        (3, True),
    ]
    assert Verifier(Expected(sent=read_sent(lists[1]))).check(path).sent == 2
    text = lists[1].read_text().splitlines()
    session = text[0].split()[2]
    lists[1].write_text("\n".join([*text, f"104 0 {session} opened"]) + "\n")
    assert reason(path, lists[1]) == (
        "masked sum 0 of part 0 was opened by device 104, and is not recorded"
    )


def test_a_node_of_a_part_finds_what_it_sent_though_parts_share_a_session(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    OneStepRFA(groups=3, receipts=folder, **with_nu()).start(grid_of(tmp_path), model(), 1)
    (path,) = receipts_in(folder)
    sessions = {part.opening.session for part in Verifier().check(path).parts}
    assert len(sessions) == 1
    for node in range(FIRST, FIRST + 12):
        log = tmp_path / str(node) / "flower" / "sent" / f"{node}.train"
        assert Verifier(Expected(sent=read_sent(log))).check(path).sent == 1


def test_a_server_that_leaves_a_node_out_is_found_by_it(tmp_path: Path) -> None:
    """It takes the node's masked input, and says that the node dropped out."""
    folder, grid = tmp_path / "receipts", grid_of(tmp_path, 6)
    leave_out(grid, MaskedInput)
    strategy = OneStepRFA(receipts=folder, **with_nu())
    strategy.fast = False
    strategy.start(grid, model(), 1)
    (path,) = receipts_in(folder)
    assert f"5 of 6 in the last sums, without {FIRST}" in verify(path).output
    assert reason(path, tmp_path / str(FIRST) / "flower" / "sent" / f"{FIRST}.train") == (
        f"masked sum 0 of part 0 is without the input that device {FIRST} sent: it came late, or "
        "was left out"
    )


def test_a_server_that_claims_that_a_node_was_there_is_found_by_it(
    lied_about: tuple[Path, Path], tmp_path: Path
) -> None:
    path, log = lied_about
    text = log.read_text().split()
    log.write_text(" ".join([text[0], text[1], "00" * 16, *text[3:5]]))
    wanted = f"masked sum 0 of part 0 has an input of device {FIRST}, which did not send one"
    assert reason(path, log) == wanted


def test_a_server_that_asked_a_node_something_else_is_found_by_it(
    lied_about: tuple[Path, Path],
) -> None:
    path, log = lied_about
    text = log.read_text().split()
    log.write_text(" ".join([*text[:3], "00" * 32, text[4]]))
    assert reason(path, log) == (
        f"masked sum 0 of part 0 is recorded with another cohort, v or nu than device {FIRST} was "
        "asked with"
    )


def test_a_sum_that_a_node_opened_and_the_receipt_hides_is_found_by_it(
    lied_about: tuple[Path, Path],
) -> None:
    path, log = lied_about
    text = log.read_text()
    device, _, *rest = text.split()[:5]
    log.write_text(text + " ".join([device, "1", *rest]))
    assert reason(path, log) == "masked sum 1 of part 0 was asked for, and is not recorded"


def of_session(log: Path, session: str) -> list[str]:
    """The lines of a list as they would be of another session."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [" ".join([*line[:2], session, *line[3:]]) + "\n" for line in lines]


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_session_that_a_node_opened_and_no_receipt_shows_is_found_by_it(
    lied_about: tuple[Path, Path], *, first: bool
) -> None:
    """A server asks for a sum of a hidden round, about the same nodes, and keeps no record."""
    path, log = lied_about
    own, hidden = log.read_text(), "".join(of_session(log, SESSION))
    log.write_text(hidden + own if first else own + hidden)
    done = verify(path, "--sent", log)
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert f"this node opened a sum in session {SESSION} that no receipt shows" in said
    assert done.output.splitlines()[-1] == "Error: this node opened 1 sum that no receipt shows"
    shown = [line for line in done.output.splitlines() if not line.startswith(str(path))]
    assert max(map(len, shown)) <= 80


def test_a_masked_input_that_a_node_did_not_open_is_said_and_is_no_failure(
    lied_about: tuple[Path, Path],
) -> None:
    """Its round may have ended for want of answers, which leaves no receipt."""
    path, log = lied_about
    log.write_text(log.read_text() + of_session(log, SESSION)[0])
    done = verify(path, "--sent", log)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "1 masked input of this node is in no receipt; it did not open the sum" in said
    assert "others may have" in said


def test_a_hidden_round_of_a_real_run_is_found(tmp_path: Path) -> None:
    folder, grid = tmp_path / "receipts", grid_of(tmp_path, 6)
    OneStepRFA(receipts=folder, **with_nu()).start(grid, model(), 2)
    first, second = receipts_in(folder)
    log = tmp_path / str(FIRST) / "flower" / "sent" / f"{FIRST}.train"
    assert verify(first, second, "--sent", log).exit_code == 0
    hidden = read_sent(log)[1].session.hex()
    done = verify(first, "--sent", log)
    assert done.exit_code == 1
    assert hidden in done.output


@pytest.mark.parametrize("shown", [0, 1], ids=["the first", "the second"])
def test_a_hidden_round_with_the_session_of_another_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: int
) -> None:
    """A server chooses sessions: it opens two rounds under one, and shows a receipt of one."""

    def open_again(*given: Any, **how: Any) -> OpenRound:
        return dataclasses.replace(open_round(*given, **how), session=bytes.fromhex(SESSION))

    monkeypatch.setattr(oracles, "open_round", open_again)
    grid, arrays = grid_of(tmp_path, 6), model()
    for each in range(2):
        how = {"receipts": tmp_path / "receipts"} if each == shown else {}
        arrays = OneStepRFA(**how, **with_nu()).start(grid, arrays, 1).arrays
    (path,) = receipts_in(tmp_path / "receipts")
    log = tmp_path / str(FIRST) / "flower" / "sent" / f"{FIRST}.train"
    assert verify(path, "--sent", log).exit_code == 1
    assert [entry.opened for entry in read_sent(log)] == [True, True]
    assert reason(path, log) == (
        f"masked sum 0 of part 0 was opened by device {FIRST}, with another cohort, v or nu, and "
        "is not recorded"
    )


def test_a_sum_that_a_node_opened_is_missed_also_where_its_part_stopped(
    lied_about: tuple[Path, Path], tmp_path: Path
) -> None:
    path, log = lied_about
    receipt = read_receipt(path).receipt
    stopped = with_part(receipt, 0, cohort={"stopped": b"TooFewDevicesError"})
    lie = forge(tmp_path / "lie.rfa", stopped)
    device, _, *rest = log.read_text().split()[:5]
    text = log.read_text() + " ".join([device, "1", *rest]) + "\n"
    log.write_text(text)
    assert verify(lie, "--sent", log).exit_code == 0, "asked for, and never opened"
    log.write_text(text + f"{device} 1 {rest[0]} opened\n")
    wanted = f"masked sum 1 of part 0 was opened by device {FIRST}, and is not recorded"
    assert reason(lie, log) == wanted


def test_lines_that_a_crash_left_twice_are_harmless(lied_about: tuple[Path, Path]) -> None:
    """A line is written before the answer leaves; the last one of a sum is of what left."""
    path, log = lied_about
    sent, opened = log.read_text().splitlines(keepends=True)
    device, masked_sum, session, *_ = sent.split()
    unsent = f"{device} {masked_sum} {session} {'00' * 32} {'11' * 32}\n"
    wanted = read_sent(log)
    assert [entry.opened for entry in wanted] == [True]
    for text in (sent * 2 + opened * 2, unsent + sent + opened, sent + opened + opened):
        log.write_text(text)
        assert read_sent(log) == wanted
        assert Verifier(Expected(sent=read_sent(log))).check(path).sent == 1
    log.write_text(sent)
    assert read_sent(log) == [dataclasses.replace(wanted[0], opened=False)]


def test_a_list_whose_last_line_was_torn_by_a_crash_is_checked_without_it(
    lied_about: tuple[Path, Path],
) -> None:
    """What is damaged before the end is named: it may be of something that left."""
    path, log = lied_about
    content = log.read_text()
    line = content.splitlines(keepends=True)[0].replace("101 0 ", "101 1 ")
    for length in (1, 40, len(line) - 2):
        log.write_text(content + line[:length])
        assert verify(path, "--sent", log).exit_code == 0
    log.write_text(line[:40] + content)
    found = verify(path, "--sent", log)
    assert found.exit_code == 1
    assert "line 1 is damaged" in " ".join(found.output.split())


def test_a_node_that_never_answered_an_unmask_has_opened_nothing(tmp_path: Path) -> None:
    """Also what is asked again is noted once."""
    grid: LocalGrid = grid_of(tmp_path, 6)

    def spoil(_node: int, _request: Message, reply: Message) -> Message | None:
        answer = b"" if reply.has_error() else reply.content.config_records["rfa"].get("reply")
        masked = isinstance(answer, bytes) and answer[4:5] == bytes([FirstInput.KIND])
        assert not (isinstance(answer, bytes) and answer[4:5] == bytes([UnmaskShares.KIND]))
        return None if masked else reply

    grid.spoil = spoil
    attempt(OneStepRFA(**with_nu(stage_timeout=0.1)), grid, model(), 1, timeout=0.1)
    log = tmp_path / str(FIRST) / "flower" / "sent" / f"{FIRST}.train"
    assert [entry.opened for entry in read_sent(log)] == [False]


def test_a_list_of_something_else_is_refused(tmp_path: Path) -> None:
    for content in (
        b"",
        b"hello\n",
        b"1 2 zz zz zz\n",
        b"\xff",
        b"1 2 ab shut\n",
        b"1 2 ab opened\n",
    ):
        (tmp_path / "list").write_bytes(content)
        with pytest.raises(VaultError, match="is not a list of masked inputs"):
            read_sent(tmp_path / "list")
