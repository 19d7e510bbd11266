"""The input of a device to a masked sum, the buffer for it, and its masks."""

from __future__ import annotations

from rfa.secagg.blocks import asked_radius
from rfa.secagg.crypto.keys import agree
from rfa.secagg.crypto.masks import Mask
from rfa.secagg.device.membership import Membership
from rfa.secagg.device.memory import Memory
from rfa.secagg.errors import ShareLimitError
from rfa.secagg.fixed_point import Contribution, EncodedInput
from rfa.secagg.messages.buffer import InputBuffer
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import FirstInput, MaskedInput, ShareKeys, SumRequest
from rfa.secagg.messages.values import Bitmap
from rfa.secagg.security.rules import Members
from rfa.secagg.statistics import rows_of, weighs_more
from rfa.secagg.transcript import noise_key, pair_mask_key, rounding_key, self_mask_key
from rfa.secagg.words import Words


def encode_part(
    contribution: Contribution,
    member: Membership,
    memory: Memory,
    sum_request: SumRequest,
    words: Words,
) -> EncodedInput:
    """Return the encoded input of a device, with its noise if the round has noise.

    Args:
        contribution: its update, weight and metrics.
        member: its membership.
        memory: its state, with its keys.
        sum_request: the request.
        words: where to write the words.
    """
    encoding, masked_sum = member.encoding, sum_request.masked_sum
    return encoding.encode(
        contribution,
        sum_request.v,
        asked_radius(member.opening, sum_request),
        rounding_key(memory.rounding, member.opening.place_of(masked_sum)),
        noise=noise_key(memory.noise, masked_sum) if encoding.noise else None,
        vector=bool(sum_request.vector),
        metrics=member.opening.metrics,
        out=words,
    )


def check_share(
    member: Membership, part: EncodedInput, sum_request: SumRequest, max_share: float
) -> None:
    """Check that the share of a device in a sum is within the limit.

    Raises:
        ShareLimitError: if it is not; the message names the limit.
    """
    limit = min(member.opening.max_share, max_share)
    own = member.encoding.mass_of(part.tail)
    if sum_request.mass and weighs_more(own, sum_request.mass, limit):
        msg = f"this device would weigh more than {limit} in the sum"
        raise ShareLimitError(msg)


def room_for(
    opening: OpenRound, sum_request: SumRequest, dealt: ShareKeys | None, complaints: Bitmap
) -> InputBuffer:
    """Return a buffer for a masked input, with dealt shares in the first sum of a fast round."""
    tail_size = len(rows_of(opening.statistics)) + opening.metrics
    sizes = tail_size, opening.dim if sum_request.vector else 0
    if dealt:
        return InputBuffer(FirstInput, (opening.session, dealt.commitments, dealt.sealed), sizes)
    return InputBuffer(MaskedInput, (opening.session, sum_request.masked_sum), sizes, complaints)


def masks_of(
    member: Membership, memory: Memory, masked_sum: int, alive: Members, context: bytes
) -> list[Mask]:
    """Return the device's own mask, and one with each neighbor in the masked sum."""
    others = member.among(alive)
    publics = [member.keys[other].mask_keys[masked_sum] for other in others]
    agreed = agree(memory.masks[masked_sum], publics)
    masks: list[Mask] = [(self_mask_key(memory.seeds[masked_sum], context), True)]
    for other, secret in zip(others, agreed, strict=True):
        key = pair_mask_key(secret, context, member.position, other)
        masks.append((key, member.position < other))
    return masks
