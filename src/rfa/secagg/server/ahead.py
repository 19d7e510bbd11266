"""Keys that devices send a round ahead, on the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rfa.secagg.errors import NotCanonicalError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys, OpenFirstSum
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.server.admission import Admission
from rfa.secagg.server.requests import Outbox


def may_be_ahead(opening: OpenRound) -> bool:
    """Return whether devices can send keys ahead in this round, and join it with such keys."""
    return bool(opening.fast) and opening.server_model == ServerModel.SEMI_HONEST


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
