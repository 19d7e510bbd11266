"""What a device adds to a masked sum, before it is masked."""

from __future__ import annotations

from rfa.secagg.device.membership import Membership
from rfa.secagg.device.memory import Memory
from rfa.secagg.errors import ShareLimitError
from rfa.secagg.fixed_point import Contribution, EncodedInput, weighs_more
from rfa.secagg.messages.round import SumRequest
from rfa.secagg.transcript import noise_key, rounding_key
from rfa.secagg.words import Words


def encode_part(
    contribution: Contribution,
    member: Membership,
    memory: Memory,
    sum_request: SumRequest,
    words: Words,
) -> EncodedInput:
    """What a device adds, with its noise where the round has some.

    Args:
        contribution: what it brought.
        member: its membership.
        memory: where it is, with its keys.
        sum_request: what is asked.
        words: where the words are to be written.
    """
    encoding, masked_sum = member.encoding, sum_request.masked_sum
    return encoding.encode(
        contribution,
        sum_request.v,
        sum_request.nu,
        rounding_key(memory.rounding, masked_sum),
        noise=noise_key(memory.noise, masked_sum) if encoding.noise else None,
        vector=bool(sum_request.vector),
        metrics=member.opening.metrics,
        out=words,
    )


def check_share(
    member: Membership, part: EncodedInput, sum_request: SumRequest, max_share: float
) -> None:
    """Refuse to be more of a sum than the limit on shares allows.

    Raises:
        ShareLimitError: naming the limit.
    """
    limit = min(member.opening.max_share, max_share)
    own = member.encoding.mass_of(part.tail)
    if sum_request.mass and weighs_more(own, sum_request.mass, limit):
        msg = f"this device would weigh more than {limit} in the sum"
        raise ShareLimitError(msg)
