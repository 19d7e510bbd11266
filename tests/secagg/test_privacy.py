"""What a transcript tells, and what it does not."""

from __future__ import annotations

import dataclasses
import gc
import io
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa.secagg.crypto.shares import SECRET_SIZE
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import ImplausibleSumError, SecAggError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import AdvertiseKeys, MaskedInput, SumRequest
from rfa.secagg.security.parameters import derive
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Outbox
from tests.secagg.attack import altered, reach
from tests.secagg.party import MALICIOUS, SMALL, Party, contributions, exactly, masked, party
from tests.secagg.view import determined

NU = 1.5
LARGEST = 385
"""Of chi-square with 255 degrees of freedom: larger by chance as rarely as 5 sigma, 3 in 10^7.

The masks are of fresh keys each time, and there are 23 tests of them. Five standard deviations
above the mean, 368, are exceeded once in 200,000 tests, since chi-square is skewed to the right.
"""


def chi_square(seen: NDArray[np.uint8]) -> float:
    """How far the counts of bytes are from uniform."""
    counts, expected = np.bincount(seen, minlength=256), len(seen) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def words_of(parts: Mapping[int, Contribution | None]) -> dict[int, bytes]:
    """What each device sends for its part of a sum, masked."""
    table = party(parts)
    table.oracle()(np.zeros(table.opening.dim), NU)
    found: dict[int, bytes] = {}
    for device, _, reply in masked(table):
        message = decode(reply)
        assert isinstance(message, MaskedInput)
        found[device] = message.words.tobytes()
    return found


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e20])
def test_masked_inputs_are_uniform_whatever_the_input(value: float) -> None:
    """Chi-square over the bytes of a part."""
    dim = 1 << 14
    parts = dict.fromkeys(range(5), Contribution(np.full(dim, value, np.float32)))
    for sent in words_of(parts).values():
        seen = np.frombuffer(sent, np.uint8)
        assert chi_square(seen) < LARGEST
        assert abs(np.corrcoef(seen[:-1], seen[1:])[0, 1]) < 5 / np.sqrt(len(seen))


def test_masked_scalars_are_uniform_whatever_the_input() -> None:
    """The bytes of mass, square, weight, bit, one and metrics, over many rounds."""
    for weight, metric in ((1.0, 0.0), (1e-6, 2.0**32)):
        parts = dict.fromkeys(range(5), Contribution(np.ones(1, np.float32), weight, (metric,) * 8))
        sent = b""
        for _ in range(30):
            table = party(parts)
            table.oracle()(np.zeros(1), NU)
            for _, _, reply in masked(table):
                message = decode(reply)
                assert isinstance(message, MaskedInput)
                sent += b"".join(value.to_bytes(16, "little") for value in message.tail)
        assert chi_square(np.frombuffer(sent, np.uint8)) < LARGEST


def test_two_inputs_that_differ_in_everything_look_alike() -> None:
    """A two-sample test on bytes: parts of zeros and parts of large numbers."""
    dim = 1 << 14
    zeros = words_of(dict.fromkeys(range(5), Contribution(np.zeros(dim, np.float32))))
    large = words_of(dict.fromkeys(range(5), Contribution(np.full(dim, 1e9, np.float32), 0.3)))
    one, other = (
        np.bincount(np.frombuffer(b"".join(sent.values()), np.uint8), minlength=256)
        for sent in (zeros, large)
    )
    assert ((one - other) ** 2 / (one + other)).sum() < LARGEST


def test_lengths_of_messages_do_not_depend_on_weights_or_updates() -> None:
    def shape(parts: Mapping[int, Contribution | None]) -> list[tuple[int, str, int]]:
        table = party(parts, queries=2)
        ask = table.oracle()
        for _ in range(2):
            ask(np.ones(3), NU)
        return sorted(
            (device, type(decode(reply)).__name__, len(reply))
            for device, _, reply in table.said
            if reply is not None
        )

    parts = contributions(6, 3)
    others = {
        device: Contribution(part.update * np.float32(1e6), 0.001, (12345.0,))
        for device, part in parts.items()
    }
    assert shape(parts) == shape(others)


def test_weights_and_counts_are_in_no_message() -> None:
    """The bytes of a weight, its fixed point and its mass appear nowhere in the transcript."""
    weight = 0.7315926535
    parts = contributions(6, 3)
    parts[5] = Contribution(np.full(3, 2.5, np.float32), weight, (77.25,))
    table = party(parts, queries=2)
    table.oracle()(np.zeros(3), NU)
    said = b"".join(reply for _, _, reply in table.said if reply)
    fixed = int(weight * 2**96).to_bytes(16, "little")
    for needle in (np.float64(weight).tobytes(), np.float32(weight).tobytes(), fixed[2:12]):
        assert needle not in said
    assert np.float64(77.25).tobytes() not in said
    assert int(77.25 * 2**64).to_bytes(16, "little") not in said


def test_keys_are_fresh_in_every_session_and_every_masked_sum() -> None:
    """No key byte string repeats over 1000 sessions."""
    part = Contribution(np.zeros(1, np.float32))
    seen: Counter[bytes] = Counter()
    for _ in range(1000):
        table_opening = party({1: part}, queries=2).opening
        reply = decode(Device(part, Profile(1)).receive(table_opening.encode()))
        assert isinstance(reply, AdvertiseKeys)
        seen.update(reply.keys.all_keys)
    assert len(seen) == 3000
    assert max(seen.values()) == 1


@pytest.mark.parametrize("change", [{"v": np.full(3, 5, "<f4")}, {"nu": 3.0}])
def test_devices_that_were_told_different_things_do_not_cancel(change: dict[str, object]) -> None:
    """One device is asked at another point: its part is not to be had from the sum."""
    table = party(contributions(6, 3))
    server = Server(table.opening, table.terms, table.known)
    victim = min(table.devices)

    def play(outbox: Outbox) -> None:
        for device, request in outbox:
            told = request
            if device == victim and isinstance(decode(request), SumRequest):
                told = altered(request, **change)
            for _, reply in table.carry(iter([(device, told)])):
                assert server.take(device, reply)

    play(server.open(table.devices))
    play(server.roster())
    play(server.ask(np.ones(3), NU))
    play(server.unmask())
    with pytest.raises(ImplausibleSumError):
        server.total()
    assert determined(table.said, table.known) == []


CANARY = 48151.623
CANARY_DIGITS = "48151.6"
"""How it begins in double and in single precision; with a dot, as no address or bytes have it."""


def secrets_of(table: Party) -> list[bytes]:
    """Everything that devices must keep for themselves, as bytes and as text."""
    found: list[bytes] = []
    for device in table.devices.values():
        memory = device.memory
        found += [memory.sealing, *memory.masks, *memory.seeds, memory.rounding, memory.noise]
        found += memory.incoming
        found += [share[:33] for share in memory.shares if share]
    return [secret for secret in found if secret != bytes(SECRET_SIZE)]


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
def test_secrets_are_in_no_repr_log_or_exception(
    terms: Terms, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    parts = contributions(6, 3)
    canary = Contribution(np.full(3, CANARY, np.float32), 0.123456789, (CANARY,))
    parts[5] = canary
    text = io.StringIO()
    table = party(parts, terms, queries=2)
    for device, request in reach(table, SumRequest).items():
        one = table.devices[device]
        for wrong in (altered(request, nu=0.0), altered(request, masked_sum=1), request[:-3]):
            try:
                one.receive(wrong)
            except SecAggError:
                traceback.print_exc(file=text)
        one.receive(request)
    for device in table.devices.values():
        print(
            repr(device), repr(device.memory), repr(device.__dict__.get("_contribution")), file=text
        )
        print(repr(decode(device.memory.reply)), repr(canary), file=text)
    captured = capsys.readouterr()
    shown = text.getvalue() + caplog.text + captured.out + captured.err
    assert len(secrets_of(table)) > 20
    for secret in secrets_of(table):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown
    assert CANARY_DIGITS in repr(CANARY)
    assert CANARY_DIGITS in repr(canary.update)
    assert CANARY_DIGITS not in shown
    assert "0.123456789" not in shown


def test_keys_are_dropped_when_they_are_used() -> None:
    table = party(contributions(6, 3), queries=2)
    ask = table.oracle()
    before = table.devices[5].memory
    ask(np.zeros(3), NU)
    after = table.devices[5].memory
    assert before.masks[0] != bytes(32) == after.masks[0] == after.seeds[0]
    assert after.masks[1] == before.masks[1]
    assert after.sealing == bytes(32)
    assert after.shares == ()


@pytest.mark.parametrize("degree", [4, 40])
def test_the_memory_of_a_device_does_not_grow_with_its_neighbors(degree: int) -> None:
    """Two vectors of doubles are enough for the update, the part, and its message."""
    dim = 1 << 20
    count = 42
    shared = Contribution(np.ones(dim, np.float32))
    parameters = dataclasses.replace(derive(count, num_colluders=1, num_dropouts=1), degree=degree)
    table = party(dict.fromkeys(range(count), shared), exactly(parameters))
    request = reach(table, SumRequest)[3]
    gc.collect()
    tracemalloc.start()
    table.devices[3].receive(request)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4.5 * 4 * dim
