"""The secrets of a device in a round: drawn when it joins, or one round ahead.

With the last sum of a round, a server may ask for the device's keys of the next round. The device
then keeps their secrets until the next round to which it brings an input, however that round
begins. They serve one round: the device removes them from its store before anything made of them
leaves.
"""

from __future__ import annotations

from rfa.secagg.crypto.keys import public_of
from rfa.secagg.device.sharing import Entropy
from rfa.secagg.errors import NoKeysAheadError, NotCanonicalError, OutOfStageError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys, FirstSum, Unmask
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.transcript import SIZE, leaf_of

RoundSecrets = tuple[bytes, ...]
"""The secret for sealing, the secrets of the masks of all masked sums, and the seeds of
self-masks."""


def draw_secrets(entropy: Entropy, opening: OpenRound) -> RoundSecrets:
    """Return fresh secrets for the masked sums of a round."""
    return tuple(entropy(SIZE) for _ in range(1 + 2 * opening.masked_sums))


def split_secrets(
    secrets: RoundSecrets,
) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the secret for sealing, those of masks, and the seeds."""
    count = len(secrets) // 2
    return secrets[0], secrets[1 : 1 + count], secrets[1 + count :]


def public_keys(device: int, secrets: RoundSecrets) -> DeviceKeys:
    """Return the public halves, as a roster lists them; not signed."""
    sealing, masks, _ = split_secrets(secrets)
    return DeviceKeys(device, public_of(sealing), tuple(map(public_of, masks)))


def take_secrets(kept: RoundSecrets, opening: OpenRound) -> RoundSecrets:
    """Return the secrets whose public halves were sent ahead, for a round that begins with a sum.

    Raises:
        NoKeysAheadError: if there are none, or they are not for such a round.
    """
    if not opening.fast or opening.server_model != ServerModel.SEMI_HONEST:
        msg = "only a fast round of a semi-honest server begins with keys that were sent ahead: "
        raise NoKeysAheadError(msg + "a malicious one must have the opening signed with the keys")
    if len(kept) != 1 + 2 * opening.masked_sums:
        what = f"for {len(kept) // 2} masked sums" if kept else "at all: used, lost or never asked"
        msg = f"the round begins with keys for {opening.masked_sums} masked sums, and this device "
        raise NoKeysAheadError(msg + f"has sent none ahead {what}: open the round, for new ones")
    return kept


def check_listed(device: int, secrets: RoundSecrets, opening: OpenRound, first: FirstSum) -> None:
    """Check that the roster of a first sum lists the keys that the device sent ahead.

    Raises:
        NoKeysAheadError: if it does not.
    """
    if leaf_of(opening, public_keys(device, secrets)) not in first.leaves:
        msg = (
            f"the round begins with other keys than device {device} has sent ahead since, perhaps "
        )
        raise NoKeysAheadError(msg + "to another strategy: open the round, for new ones")


def check_ahead(unmask: Unmask, opening: OpenRound) -> None:
    """Check that a round allows a request for keys of the next round.

    Raises:
        NotCanonicalError: if the request is neither 0 nor 1.
        OutOfStageError: if it is not the last sum of a fast round of a semi-honest server.
    """
    if unmask.ahead not in (0, 1):
        msg = f"ahead={unmask.ahead} must be 0 or 1"
        raise NotCanonicalError(msg)
    trusted = opening.server_model == ServerModel.SEMI_HONEST
    if unmask.ahead and not (trusted and opening.fast and opening.is_last(unmask.masked_sum)):
        msg = "keys for the next round come with the last sum of a fast round of a semi-honest "
        raise OutOfStageError(msg + f"server, and masked sum {unmask.masked_sum} is not that")
