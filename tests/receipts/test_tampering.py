"""Whatever is changed in a receipt after it was signed is found, and named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rfa.aggregators import RFA
from rfa.receipts import Expected, ReceiptError, Verifier, read_receipt
from rfa.receipts.sealed import MAGIC, read_sealed, write_sealed
from rfa.secagg.crypto.keys import identity_of
from tests.receipts.rounds import SECRET, Run, forge, sections_of

OTHER = bytes(range(1, 33))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three receipts of a run."""
    return Run(tmp_path_factory.mktemp("run"), RFA(budget=2), count=6).play(3)


def why(path: Path, **expected: Any) -> str:
    """Why a receipt does not hold."""
    with pytest.raises(ReceiptError) as caught:
        Verifier(Expected(**expected)).check(path)
    return str(caught.value)


def changed_bytes(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


REASONS = re.compile(
    "is no receipt of rfa|another version|table|was changed|cut off|signature is not that of|"
    "cannot be read|too many"
)


def test_every_byte_that_is_flipped_is_found_and_named(files: list[Path], tmp_path: Path) -> None:
    data, path = files[1].read_bytes(), tmp_path / "flipped.rfa"
    sealed = read_sealed(files[1])
    at = len(data) - sum(len(body) for _, body in sealed.sections)
    homes = [name for name, body in sealed.sections for _ in body]
    for index in range(len(data)):
        path.write_bytes(changed_bytes(data, index))
        with pytest.raises(ReceiptError, match=REASONS) as caught:
            read_receipt(path)
        if index >= at:
            assert str(caught.value) == f"{homes[index - at]} was changed after it was signed"
    assert len(homes) > 1000


def test_every_cut_and_whatever_is_added_is_found(files: list[Path], tmp_path: Path) -> None:
    data, path = files[0].read_bytes(), tmp_path / "cut.rfa"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(ReceiptError, match=r"empty|no receipt|cut off|missing"):
            read_receipt(path)
    for more in (b"\0", data):
        path.write_bytes(data + more)
        with pytest.raises(ReceiptError, match="bytes were added"):
            read_receipt(path)


def test_sections_that_change_places_are_found(files: list[Path], tmp_path: Path) -> None:
    sealed, data = read_sealed(files[0]), files[0].read_bytes()
    names = [name for name, _ in sealed.sections]
    first, second = (names.index(f"the total of masked sum {i} of part 0") for i in (0, 1))
    bodies = [body for _, body in sealed.sections]
    assert len(bodies[first]) == len(bodies[second])
    front = data[: len(data) - sum(map(len, bodies))]
    bodies[first], bodies[second] = bodies[second], bodies[first]
    path = tmp_path / "swapped.rfa"
    path.write_bytes(front + b"".join(bodies))
    reason = why(path)
    assert reason.startswith("the total of masked sum 0 of part 0, the total of masked sum 1 of")
    assert reason.endswith("was changed after it was signed")
    sections = list(sealed.sections)
    sections[first], sections[second] = sections[second], sections[first]
    write_sealed(path, sections, SECRET)
    assert why(path) == "its sections are not those of a receipt, or not in order"
    write_sealed(path, sections[:-1], SECRET)
    assert why(path) == "its sections are not those of a receipt, or not in order"


def test_a_digest_in_the_table_that_is_changed_is_told_from_a_body(
    files: list[Path], tmp_path: Path
) -> None:
    data, path = files[0].read_bytes(), tmp_path / "table.rfa"
    name = b"the round"
    at = data.index(name) + len(name) + 8
    path.write_bytes(changed_bytes(data, at))
    assert why(path) == "the round, or its digest, was changed after it was signed"


def test_a_receipt_of_another_signer_is_found(files: list[Path], tmp_path: Path) -> None:
    again = forge(tmp_path / "other.rfa", read_receipt(files[0]).receipt, OTHER)
    assert Verifier().check(again).signed.signer == identity_of(OTHER)
    reason = why(again, signer=identity_of(SECRET))
    assert reason.startswith(f"it is signed by {identity_of(OTHER).hex()}, and not by")
    verifier = Verifier()
    verifier.check(again)
    with pytest.raises(ReceiptError, match=r"does not follow the receipt of round 1"):
        verifier.check(files[1])


@pytest.mark.parametrize(
    ("order", "at", "reason"),
    [
        ((1, 0, 2), 1, "out of order"),
        ((0, 2), 1, "one between them is missing"),
        ((0, 0), 1, "out of order"),
        ((2, 1), 1, "out of order"),
    ],
)
def test_receipts_out_of_order_or_left_out_are_found(
    files: list[Path], order: tuple[int, ...], at: int, reason: str
) -> None:
    verifier = Verifier()
    for index in order[:at]:
        verifier.check(files[index])
    with pytest.raises(ReceiptError, match=reason):
        verifier.check(files[order[at]])


def test_a_receipt_in_the_middle_holds_by_itself_and_says_what_it_lacks(files: list[Path]) -> None:
    assert Verifier().check(files[1]).chain == "the one before is not here"


def test_receipts_of_another_run_do_not_go_in_between(files: list[Path], tmp_path: Path) -> None:
    others = Run(tmp_path, RFA(budget=2), count=6).play(2)
    verifier = Verifier()
    verifier.check(files[0])
    with pytest.raises(ReceiptError, match="of two runs"):
        verifier.check(others[1])


def test_files_that_are_no_receipts(tmp_path: Path) -> None:
    for content, reason in (
        (b"", "empty"),
        (b"hello", "no receipt of rfa"),
        (MAGIC, "cut off"),
        (MAGIC + b"\xff\xff\xff\xff", "cut off, or changed"),
        (MAGIC.replace(b"2", b"1") + bytes(8), "another version"),
    ):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert reason in why(path)
    assert "is a folder" in why(tmp_path)
    assert why(tmp_path / "absent") == "it cannot be read: No such file or directory"
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    assert why(huge) == "it is no receipt of rfa"
    with huge.open("r+b") as file:
        file.write(MAGIC + (1 << 20).to_bytes(4, "little"))
    assert "cannot be read" in why(huge) or "too many" in why(huge)
    assert huge.stat().st_size == 1 << 40
    huge.unlink()


def test_a_copy_holds_as_the_original_does(files: list[Path], tmp_path: Path) -> None:
    shutil.copy(files[0], tmp_path / "copy.rfa")
    assert Verifier().check(tmp_path / "copy.rfa").chain == "the first of its run"
    assert sections_of(read_receipt(files[0]).receipt) == list(read_sealed(files[0]).sections)
