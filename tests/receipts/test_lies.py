"""A server that lies in a receipt and signs it is found out by who runs the aggregator again."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, Groups, Mean, OneStepRFA
from rfa.receipts import Expected, Receipt, ReceiptError, Verifier, read_receipt
from rfa.receipts.models import apply_step, digest_of
from rfa.receipts.receipt import state_bytes
from rfa.receipts.sealed import read_sealed, write_sealed
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.messages.values import write_bitmap
from tests.receipts.rounds import SECRET, Run, first_model, forge, with_part
from tests.secagg.party import MALICIOUS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three receipts of a run."""
    return Run(tmp_path_factory.mktemp("run"), RFA(budget=2), count=6).play(3)


def why(path: Path, **expected: Any) -> str:
    """Why a receipt does not hold."""
    with pytest.raises(ReceiptError) as caught:
        Verifier(Expected(**expected)).check(path)
    return str(caught.value)


def lie(tmp_path: Path, path: Path, change: Callable[[Receipt], Receipt], **expected: Any) -> str:
    """Why a receipt does not hold that a server signed after a change."""
    return why(forge(tmp_path / "lie.rfa", change(read_receipt(path).receipt)), **expected)


def test_a_server_that_publishes_another_model_is_found(files: list[Path], tmp_path: Path) -> None:
    first = first_model()
    honest = read_receipt(files[0]).receipt
    other = apply_step(first, 1.001 * honest.step)
    lied = dataclasses.replace(honest, model_after=digest_of(other))
    path = forge(tmp_path / "lie.rfa", lied)
    assert Verifier().check(path).computed is False  # digests alone do not tell
    reason = "the model after the round is not the model before it plus the step"
    assert why(path, models=(("first", first),)) == reason
    verifier = Verifier(Expected(models=(("published.npz", other),)))
    verifier.check(files[0])
    with pytest.raises(ReceiptError, match=r"published.npz is the model before or after none"):
        verifier.check_models()


def test_a_server_that_changes_the_step_is_found(files: list[Path], tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        step = receipt.step.copy()
        step[0] = np.nextafter(step[0], 9)
        return dataclasses.replace(receipt, step=step)

    assert lie(tmp_path, files[0], change).startswith("the step does not follow from the sums")


def test_a_server_that_changes_a_total_is_found_by_the_step(
    files: list[Path], tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt:
        words = receipt.parts[0].totals[1].words.copy()
        words[0] += 1
        return with_part(receipt, 0, totals={1: {"words": words}})

    assert lie(tmp_path, files[0], change).startswith("the step does not follow from the sums")


def test_a_total_that_leads_elsewhere_is_found_by_the_next_question(
    files: list[Path], tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt:
        words = receipt.parts[0].totals[0].words.copy()
        words[0] += 1 << 20
        return with_part(receipt, 0, totals={0: {"words": words}})

    reason = "masked sum 1 of part 0 was not asked at the v and nu at which the aggregator asks"
    assert lie(tmp_path, files[0], change) == reason


def test_a_total_that_no_devices_can_have_is_found(files: list[Path], tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        words = receipt.parts[0].totals[0].words.copy()
        words[:] = 1 << 31
        return with_part(receipt, 0, totals={0: {"words": words}})

    reason = lie(tmp_path, files[0], change)
    assert reason.startswith("the total of masked sum 0 of part 0 does not hold")


def test_a_server_that_changes_the_aggregator_is_found(files: list[Path], tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        return dataclasses.replace(receipt, aggregator="rfa-one-step:nu=0")

    reason = lie(tmp_path, files[0], change)
    assert reason == "part 0 was opened for 2 queries about 3 numbers, and not 1 about 3"
    mean = Run(tmp_path / "mean", Mean(), count=6).play()[0]
    assert Verifier().check(mean)
    assert "and not by rfa:budget=2" in why(mean, aggregator="rfa:budget=2")


def test_a_server_that_changes_the_state_of_the_aggregator_is_found(
    files: list[Path], tmp_path: Path
) -> None:
    def after(receipt: Receipt) -> Receipt:
        state = {**receipt.state_after, "nu": np.asarray(3.0)}
        return dataclasses.replace(receipt, state_after=state)

    def before(receipt: Receipt) -> Receipt:
        state = {**receipt.state_before, "nu": np.asarray(3.0)}
        return dataclasses.replace(receipt, state_before=state)

    assert lie(tmp_path, files[1], after).startswith("the state after the round is")
    reason = lie(tmp_path, files[1], before)
    assert reason == (
        "masked sum 0 of part 0 was not asked at the v and nu at which the aggregator asks"
    )
    second = read_receipt(files[1]).receipt
    first = dataclasses.replace(second, previous=bytes(32))
    assert state_bytes(first.state_before)
    reason = "the first receipt does not begin with the aggregator's first state"
    assert why(forge(tmp_path / "first.rfa", first)) == reason


def test_a_server_that_understates_the_largest_share_is_found(
    files: list[Path], tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt:
        return dataclasses.replace(receipt, certificate=0.01)

    assert lie(tmp_path, files[0], change).startswith("the largest share is said to be 0.01")


def test_a_server_that_leaves_a_node_out_is_found(files: list[Path], tmp_path: Path) -> None:
    """The total counts more devices than are listed; and too few may be listed at all."""

    def change(count: int) -> Callable[[Receipt], Receipt]:
        def changed(receipt: Receipt) -> Receipt:
            some = write_bitmap(range(count), 6)
            fewer = {"survivors": some, "inputs": receipt.parts[0].sums[0].inputs[:count]}
            return with_part(receipt, 0, sums={0: fewer})

        return changed

    assert "the secret of device" in lie(tmp_path, files[0], change(5))
    assert "4 of 6 devices answered, and at least 5 are needed" in lie(
        tmp_path, files[0], change(4)
    )


def test_a_sum_that_is_left_out_is_found(files: list[Path], tmp_path: Path) -> None:
    def shorter(receipt: Receipt) -> Receipt:
        (part,) = receipt.parts
        cut = dataclasses.replace(part, sums=part.sums[:1], totals=part.totals[:1])
        return dataclasses.replace(receipt, parts=(cut,))

    reason = lie(tmp_path, files[0], shorter)
    assert reason == "the aggregator asks for masked sum 1 of part 0, which is not recorded"


def test_a_group_that_is_left_out_is_found(tmp_path: Path) -> None:
    (path,) = Run(tmp_path, Groups(OneStepRFA(nu=0.5), 3), count=24).play()

    def fewer(receipt: Receipt) -> Receipt:
        return dataclasses.replace(receipt, parts=receipt.parts[:2])

    def twice(receipt: Receipt) -> Receipt:
        return dataclasses.replace(receipt, parts=(*receipt.parts[:2], receipt.parts[0]))

    assert "2 parts are recorded, and the aggregator asks 3" in lie(tmp_path, path, fewer)
    assert "a device is in two parts" in lie(tmp_path, path, twice)


def test_parameters_that_are_not_safe_are_found(files: list[Path], tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        n, c, f, h, k, _, model, odds = receipt.parts[0].cohort.parameters
        return with_part(receipt, 0, cohort={"parameters": (n, c, f, h, k, c, model, odds)})

    assert "the cohort of part 0 does not hold: its parameters" in lie(tmp_path, files[0], change)


def test_a_cohort_in_another_order_or_with_other_keys_is_found(
    files: list[Path], tmp_path: Path
) -> None:
    def order(receipt: Receipt) -> Receipt:
        keys = receipt.parts[0].cohort.keys
        return with_part(receipt, 0, cohort={"keys": (keys[1], keys[0], *keys[2:])})

    def twice(receipt: Receipt) -> Receipt:
        keys = receipt.parts[0].cohort.keys
        return with_part(receipt, 0, cohort={"keys": (keys[0], keys[0], *keys[2:])})

    assert "is not in order" in lie(tmp_path, files[0], order)
    assert "a device or a key is in it twice" in lie(tmp_path, files[0], twice)


@pytest.fixture(scope="module")
def malicious(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    run = Run(tmp_path_factory.mktemp("run"), OneStepRFA(), count=12, terms=MALICIOUS)
    return run, run.play()[0]


def test_signatures_prove_who_took_part_and_what_was_asked(
    malicious: tuple[Run, Path], tmp_path: Path
) -> None:
    run, path = malicious
    known = run.parties[0].known
    assert Verifier(Expected(identities=known)).check(path)

    def point(receipt: Receipt) -> Receipt:
        return with_part(receipt, 0, sums={0: {"point": bytes(32)}})

    def fewer(receipt: Receipt) -> Receipt:
        some = receipt.parts[0].sums[0].signatures[:6]
        return with_part(receipt, 0, sums={0: {"signatures": some}})

    assert "is not under these survivors and this request" in lie(tmp_path, path, point)
    assert "6 devices signed it, and 8 must" in lie(tmp_path, path, fewer)


def test_identities_that_the_server_made_up_are_found_by_those_that_are_known(
    malicious: tuple[Run, Path], tmp_path: Path
) -> None:
    _, path = malicious
    invented = Run(tmp_path, OneStepRFA(), count=12, terms=MALICIOUS)
    (other,) = invented.play()
    known = {device: identity_of(os.urandom(32)) for device in invented.parties[0].known}
    assert Verifier().check(other)
    assert "did not sign the keys that are listed for it" in why(other, identities=known)
    assert "no known identity" in why(path, identities={})


def test_a_round_without_signatures_is_refused_by_who_knows_the_identities(
    files: list[Path], tmp_path: Path
) -> None:
    """A server that lies calls itself semi-honest, and makes up devices: nobody signs anything."""
    known = {900 + i: identity_of(os.urandom(32)) for i in range(8)}
    reason = (
        "the cohort of part 0 does not hold: its round was opened for a semi-honest server, in "
        "which no device signs: identities prove nothing of it"
    )
    assert why(files[0], identities=known) == reason

    def never_formed(receipt: Receipt) -> Receipt:
        empty = {"parameters": (), "keys": (), "stopped": b"TooFewDevicesError"}
        lied = with_part(receipt, 0, cohort=empty)
        part = dataclasses.replace(lied.parts[0], sums=(), totals=())
        return dataclasses.replace(lied, parts=(part,))

    assert lie(tmp_path, files[0], never_formed, identities=known) == reason


def test_nothing_in_a_receipt_decides_what_is_imported(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")

    def change(receipt: Receipt) -> Receipt:
        return dataclasses.replace(receipt, aggregator="trap:Trap")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [str(tmp_path), *sys.path])
        reason = lie(tmp_path, files[0], change)
    assert (
        reason == "its aggregator is not of rfa: give --aggregator trap:Trap if you trust its code"
    )


SAID_ONLY = re.compile(
    "the round|the result|the cohort of part 0|(the total of )?masked sum [01] of part 0"
)
"""Where there are numbers that the server alone can know: digests, keys, metrics."""


def test_whatever_a_server_signs_gets_a_verdict(files: list[Path], tmp_path: Path) -> None:
    """No section of any bytes makes verification fail in another way, or passes for a step."""
    sections, path = list(read_sealed(files[1]).sections), tmp_path / "lie.rfa"
    held = 0
    for index, (name, body) in enumerate(sections):
        for at in range(0, len(body), 5):
            changed = body[:at] + bytes([body[at] ^ 0x81]) + body[at + 1 :]
            write_sealed(path, [*sections[:index], (name, changed), *sections[index + 1 :]], SECRET)
            try:
                Verifier().check(path)
            except ReceiptError:
                continue
            held += 1
            assert SAID_ONLY.fullmatch(name), name
    assert held
