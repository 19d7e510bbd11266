"""Keys that devices send a round ahead, on the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rfa.secagg.errors import AbortError, NotCanonicalError, ParameterError, SecAggError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys, OpenFirstSum
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.server.admission import Admission
from rfa.secagg.server.requests import Outbox


def may_be_ahead(opening: OpenRound) -> bool:
    """Return whether devices can send keys ahead in this round, and join it with such keys."""
    return bool(opening.fast) and opening.server_model == ServerModel.SEMI_HONEST


def admit_ahead(keys: Iterable[DeviceKeys], opening: OpenRound, admission: Admission) -> None:
    """Admit devices to a round with the keys that they sent in the one before.

    Raises:
        AbortError: if two devices have the same key.
        ParameterError: if the round is not fast, or its server may be malicious.
    """
    if not may_be_ahead(opening):
        msg = "a round begins with keys of the round before if it is fast, and the server is "
        raise ParameterError(msg + "semi-honest: give fast=True, or ask for new keys")
    for each in keys:
        try:
            admission.take(each.device, each)
        except SecAggError as error:
            msg = f"the keys that devices sent ahead make no cohort: {error}"
            raise AbortError(msg) from None


def with_opening(opening: OpenRound, requests: Outbox) -> Iterator[tuple[int, bytes]]:
    """Yield the requests of a first sum, each with the opening of its round."""
    encoded = opening.encode()
    for device, first in requests:
        yield device, OpenFirstSum(opening.session, encoded, first).encode()


def check_keys(
    device: int, ahead: Sequence[DeviceKeys], admission: Admission, *, asked: bool
) -> None:
    """Check the keys for the next round that a device sent.

    Args:
        device: the device.
        ahead: the keys: one set, or none.
        admission: the keys of the others for the next round.
        asked: whether the device was asked for keys.

    Raises:
        NotCanonicalError, CohortError: if they were not asked for, or form no cohort with the
            others.
    """
    if len(ahead) != asked:
        wanted = "one set of keys of its own" if asked else "no keys"
        msg = f"device {device} was asked for {wanted} for the next round, and sent {len(ahead)}"
        raise NotCanonicalError(msg)
    for keys in ahead:
        admission.check(device, keys)
