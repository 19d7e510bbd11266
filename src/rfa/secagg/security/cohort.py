"""The cohort of a round: its devices, their order, and which keys are valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from rfa.secagg.crypto.graph import neighbors
from rfa.secagg.crypto.keys import check_point, is_signed
from rfa.secagg.errors import CohortError, DuplicateKeyError, SignatureError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.transcript import SIZE, cohort_digest, leaf_of

Identities = Mapping[int, bytes]
"""The public Ed25519 identities of devices, known before the round."""
SPLIT = (
    "they were changed, or it was told of another round, and may have trained from something else"
)
"""The possible reasons why keys do not fit the opening that a device received."""


@dataclass(frozen=True)
class Cohort:
    """The devices of a round and their parameters.

    Attributes:
        opening: the message with which the server began the round.
        parameters: the parameters.
        nonce: the random value that decides the order of the devices.
        leaves: the digests of the devices' keys, in order; a position is an index into them.
        digest: the digest of all of this.
    """

    opening: OpenRound
    parameters: Parameters
    nonce: bytes
    leaves: tuple[bytes, ...]
    digest: bytes

    def neighbors(self, position: int) -> list[int]:
        """Return the positions of a device's neighbors."""
        return neighbors(position, self.parameters.cohort, self.parameters.degree)


def form_cohort(
    opening: OpenRound, parameters: Parameters, nonce: bytes, leaves: tuple[bytes, ...]
) -> Cohort:
    """Return the cohort of these leaves.

    Raises:
        CohortError: if they are not one leaf for each device, in order, none twice.
    """
    if len(leaves) != parameters.cohort:
        msg = f"the cohort has {parameters.cohort} devices, but {len(leaves)} are listed"
        raise CohortError(msg)
    joined = b"".join(leaves)
    (high, low), after = _order_keys(nonce, joined).T, slice(1, None)
    tie = (high[after] == high[:-1]) & (low[after] > low[:-1])
    if not ((high[after] > high[:-1]) | tie).all():
        msg = "the cohort is not in order, or a device is in it twice"
        raise DuplicateKeyError(msg)
    digest = cohort_digest(opening, parameters, nonce, joined)
    return Cohort(opening, parameters, nonce, leaves, digest)


def in_order(nonce: bytes, leaves: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the leaves in the order of their first halves, encrypted under the nonce."""
    keys = _order_keys(nonce, b"".join(leaves))
    order: list[int] = np.lexsort((keys[:, 1], keys[:, 0])).tolist()
    return tuple(leaves[index] for index in order)


def _order_keys(nonce: bytes, leaves: bytes) -> NDArray[np.uint64]:
    """Return the two numbers by which each leaf is ordered, from one call of the cipher."""
    halves = np.frombuffer(leaves, np.uint8).reshape(-1, SIZE)[:, : SIZE // 2].tobytes()
    cipher = Cipher(algorithms.AES128(nonce), modes.ECB()).encryptor()  # noqa: S305
    return np.frombuffer(cipher.update(halves), ">u8").astype(np.uint64).reshape(-1, 2)


def check_device_keys(keys: DeviceKeys, opening: OpenRound, identities: Identities | None) -> None:
    """Check that keys are complete, canonical, not of low order, and signed.

    Raises:
        CohortError: if they are not; the message names the device.
        NotCanonicalError: if one is not canonical; the message names the key.
    """
    device, count = keys.device, len(keys.mask_keys)
    if count != opening.masked_sums:
        msg = (
            f"device {device} has keys for {count} masked sums, and there are {opening.masked_sums}"
        )
        raise CohortError(msg)
    for key in keys.all_keys:
        check_point(key)
    if opening.server_model != ServerModel.MALICIOUS:
        return
    known = (identities or {}).get(device)
    if known is None:
        msg = f"device {device} has no known identity"
        raise SignatureError(msg)
    if not is_signed(known, leaf_of(opening, keys), keys.signature):
        msg = f"device {device} did not sign the keys that are listed for it in this round: {SPLIT}"
        raise SignatureError(msg)
