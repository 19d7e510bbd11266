"""The replies that the server waits for in a stage."""

from __future__ import annotations

import pytest

from rfa.secagg.errors import MessageError, OtherSessionError, OutOfStageError, RefusalError
from rfa.secagg.messages.round import Abstain, AdvertiseKeys, MaskedInput, SurvivorSignature
from rfa.secagg.server.replies import SLACK, Expected

SESSION = b"s" * 16
REPLY = SurvivorSignature(SESSION, 0, b"x" * 64).encode()


def test_a_reply_of_the_kind_is_read_once() -> None:
    expected = Expected(SurvivorSignature, 64, [3, 4])
    message = expected.read(3, REPLY, SESSION)
    assert isinstance(message, SurvivorSignature)
    assert message.encode() == REPLY
    assert expected.devices == {4}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", MessageError),
        (REPLY + bytes(SLACK), MessageError),
        (SurvivorSignature(b"t" * 16, 0, b"x" * 64).encode(), OtherSessionError),
        (Abstain(SESSION, 3).encode(), OutOfStageError),
    ],
)
def test_a_bad_reply_is_the_only_one_of_its_device(reply: bytes, error: type[Exception]) -> None:
    expected = Expected(SurvivorSignature, 64, [3, 4])
    with pytest.raises(error):
        expected.read(3, reply, SESSION)
    assert expected.devices == {4}


def test_another_kind_is_out_of_stage() -> None:
    with pytest.raises(OutOfStageError, match="SurvivorSignature for MaskedInput"):
        Expected(MaskedInput, 64, [3]).read(3, REPLY, SESSION)


def test_a_device_abstains_only_where_it_joins() -> None:
    abstains = Abstain(SESSION, 3).encode()
    with pytest.raises(RefusalError, match="abstains"):
        Expected(AdvertiseKeys, 64, [3], may_abstain=True).read(3, abstains, SESSION)
    with pytest.raises(OutOfStageError):
        Expected(AdvertiseKeys, 64, [3]).read(3, abstains, SESSION)
