"""Shares of a device's secrets, sealed for its neighbors; and those that they sealed for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rfa.secagg.crypto.keys import seal, unseal
from rfa.secagg.crypto.shares import SHARE_SIZE, are_shares, split
from rfa.secagg.device.membership import Membership
from rfa.secagg.device.memory import Memory
from rfa.secagg.messages.round import SumRequest
from rfa.secagg.messages.values import Bitmap, write_bitmap
from rfa.secagg.security.rules import Members
from rfa.secagg.transcript import share_binding

Entropy = Callable[[int], bytes]


def seal_shares(
    member: Membership, memory: Memory, keys: Sequence[bytes], entropy: Entropy
) -> tuple[bytes, ...]:
    """For each neighbor, its shares of the secrets of each masked sum, under the key for it."""
    cohort, here = member.cohort.digest, member.position
    dealt = [
        _split(member, secrets, entropy) for secrets in zip(memory.seeds, memory.masks, strict=True)
    ]
    return tuple(
        seal(key, masked_sum, plain[index], share_binding(cohort, here, other, masked_sum))
        for index, (other, key) in enumerate(zip(member.neighbors, keys, strict=True))
        for masked_sum, plain in enumerate(dealt)
    )


def _split(member: Membership, secrets: tuple[bytes, bytes], entropy: Entropy) -> list[bytes]:
    """For each neighbor, a share of the self-mask's seed and one of the mask's secret."""
    count, threshold = len(member.neighbors), member.cohort.parameters.threshold
    seeds, masks = (
        split(secret, count=count, threshold=threshold, entropy=entropy) for secret in secrets
    )
    return [
        seed.to_bytes(SHARE_SIZE, "big") + mask.to_bytes(SHARE_SIZE, "big")
        for seed, mask in zip(seeds, masks, strict=True)
    ]


def unseal_shares(
    member: Membership, memory: Memory, sum_request: SumRequest, alive: Members
) -> tuple[bytes, ...]:
    """What the neighbors in the masked sum dealt; nothing where it was not sealed by them."""
    sealed, masked_sum = iter(sum_request.sealed), sum_request.masked_sum
    shares: list[bytes] = []
    for other, key in zip(member.neighbors, memory.incoming, strict=True):
        if other in alive:
            bound = share_binding(member.cohort.digest, other, member.position, masked_sum)
            plain = unseal(key, masked_sum, next(sealed), bound) or b""
            shares.append(plain if are_shares(plain) else b"")
    return tuple(shares)


def complain(member: Membership, alive: Members, shares: Sequence[bytes]) -> Bitmap:
    """The neighbors in the masked sum whose shares are missing; empty if none is."""
    missing = [other for other, share in zip(member.among(alive), shares, strict=True) if not share]
    return write_bitmap(missing, member.cohort.parameters.cohort) if missing else b""
