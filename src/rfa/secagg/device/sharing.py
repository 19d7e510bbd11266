"""Shares of a device's secrets, sealed for its neighbors, and shares that they sealed for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rfa.secagg.crypto.keys import agree, seal, unseal
from rfa.secagg.crypto.shares import SHARE_SIZE, are_shares, split
from rfa.secagg.device.membership import Membership
from rfa.secagg.device.memory import GONE, Memory
from rfa.secagg.messages.round import ShareKeys, SumRequest, Unmask
from rfa.secagg.messages.values import NO_SHARE, Bitmap, write_bitmap
from rfa.secagg.security.rules import Members
from rfa.secagg.transcript import commitment_to, sealing_key, share_binding

Entropy = Callable[[int], bytes]


def deal(
    member: Membership, memory: Memory, first: int, entropy: Entropy
) -> tuple[tuple[bytes, ...], ShareKeys]:
    """Return shares of a device's secrets, sealed for its neighbors.

    Args:
        member: its membership.
        memory: its state, with its secrets.
        first: the first masked sum whose secrets are dealt.
        entropy: the source of randomness for shares.

    Returns:
        The keys that unseal the shares that its neighbors deal to it, and the shares that it deals.
    """
    cohort, here = member.cohort.digest, member.position
    publics = [member.keys[other].sealing_key for other in member.neighbors]
    agreed = list(zip(agree(memory.sealing, publics), member.neighbors, strict=True))
    masked_sums = member.opening.sums_from(first)
    dealt = {
        number: _split(member, _secrets(member, memory, number), entropy) for number in masked_sums
    }
    sealed = tuple(
        seal(key, number, plain[index], share_binding(cohort, here, other, number))
        for index, (secret, other) in enumerate(agreed)
        for key in (sealing_key(secret, cohort, here, other),)
        for number, plain in dealt.items()
    )
    incoming = tuple(sealing_key(secret, cohort, other, here) for secret, other in agreed)
    commitments = tuple(
        commitment_to(memory.seeds[number], cohort, here, number) for number in masked_sums
    )
    return incoming, ShareKeys(member.opening.session, commitments, sealed)


def _secrets(member: Membership, memory: Memory, masked_sum: int) -> tuple[bytes, bytes]:
    """Return the secrets of a masked sum, without that of the masks if no device may be lost."""
    mask = GONE if member.opening.is_first(masked_sum) else memory.masks[masked_sum]
    return memory.seeds[masked_sum], mask


def _split(member: Membership, secrets: tuple[bytes, bytes], entropy: Entropy) -> list[bytes]:
    """Return, for each neighbor, a share of the self-mask's seed and one of the mask's secret."""
    count, threshold = len(member.neighbors), member.cohort.parameters.threshold
    seeds, masks = (
        split(secret, count=count, threshold=threshold, entropy=entropy) for secret in secrets
    )
    return [
        seed.to_bytes(SHARE_SIZE, "big") + mask.to_bytes(SHARE_SIZE, "big")
        for seed, mask in zip(seeds, masks, strict=True)
    ]


def unseal_shares(
    member: Membership, memory: Memory, request: SumRequest | Unmask, alive: Members
) -> tuple[bytes, ...]:
    """Return the shares of the neighbors in the masked sum; empty where one does not unseal.

    Args:
        member: the membership of the device.
        memory: its state, with the keys that unseal.
        request: the request that contains sealed shares.
        alive: the devices in the masked sum.
    """
    sealed, masked_sum = iter(request.sealed), request.masked_sum
    shares: list[bytes] = []
    for other, key in zip(member.neighbors, memory.incoming, strict=True):
        if other in alive:
            bound = share_binding(member.cohort.digest, other, member.position, masked_sum)
            plain = unseal(key, masked_sum, next(sealed), bound) or b""
            shares.append(plain if are_shares(plain) else b"")
    return tuple(shares)


def release(
    member: Membership, memory: Memory, shares: Sequence[bytes], survivors: Members
) -> tuple[bytes, ...]:
    """Return one share for each neighbor: of its self-mask if it survived, else of its key.

    Args:
        member: the membership of the device.
        memory: its state, with the devices in the masked sum.
        shares: the shares of both kinds that it holds, empty where they did not unseal.
        survivors: the devices that survived.
    """
    others = member.among(member.members(memory.alive))
    return tuple(
        (share[:SHARE_SIZE] if other in survivors else share[SHARE_SIZE:]) or NO_SHARE
        for other, share in zip(others, shares, strict=True)
    )


def complain(member: Membership, alive: Members, shares: Sequence[bytes]) -> Bitmap:
    """Return the neighbors in the masked sum whose shares are missing; empty if none are."""
    missing = [other for other, share in zip(member.among(alive), shares, strict=True) if not share]
    return write_bitmap(missing, member.cohort.parameters.cohort) if missing else b""
