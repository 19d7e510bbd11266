"""The state of a device after each answer: what it keeps, and which secrets it forgets."""

from __future__ import annotations

import dataclasses

from rfa.secagg.device.memory import GONE, Memory, forget
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import SumRequest, Unmask
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.security.parameters import ServerModel


def after_dealing(
    memory: Memory, opening: OpenRound, first: int, roster: bytes, incoming: tuple[bytes, ...]
) -> Memory:
    """Return the state after a device dealt shares: it keeps the secrets that were dealt.

    It keeps all of them if the first sum of a fast round is next, after which it may deal again.

    Args:
        memory: the state before.
        opening: the opening of the round.
        first: the first masked sum whose secrets were dealt.
        roster: the roster, as it was sent.
        incoming: the keys that unseal the shares of its neighbors.
    """
    due = Moment(first, Stage.SUM)
    after = dataclasses.replace(memory, due=due, roster=roster, incoming=incoming, alive=b"")
    return after if opening.is_first(first) else after.only_for(opening.sums_from(first))


def after_masking(  # noqa: PLR0913
    memory: Memory,
    opening: OpenRound,
    request: SumRequest,
    *,
    shares: tuple[bytes, ...],
    context: bytes,
    asked: bytes,
    charge: float,
) -> Memory:
    """Return the state after a device masked its input: the secrets of its masks are gone.

    The secret of its noise goes with the last sum, unless that is the first of a fast round, which
    may be asked for again.

    Args:
        memory: the state before.
        opening: the opening of the round.
        request: the request.
        shares: the shares that its neighbors dealt to it.
        context: the digest of the masked sum.
        asked: the digest of its point and radius.
        charge: what the sum adds to the charges.
    """
    masked_sum = request.masked_sum
    first = opening.is_first(masked_sum)
    to_sign = opening.server_model == ServerModel.MALICIOUS and not first
    return dataclasses.replace(
        memory,
        due=Moment(masked_sum, Stage.SURVIVORS if to_sign else Stage.UNMASK),
        masks=forget(memory.masks, masked_sum),
        seeds=forget(memory.seeds, masked_sum),
        shares=shares,
        context=context,
        asked=asked,
        alive=request.alive,
        nu=memory.nu if request.levels else request.nu,
        rho=memory.rho + charge,
        charged=charge if first else 0.0,
        noise=GONE if opening.is_last(masked_sum) and not first else memory.noise,
    )


def after_opening(memory: Memory, opening: OpenRound, unmask: Unmask) -> Memory:
    """Return the state after a device released its shares: they are gone.

    After the first sum of a fast round, the secrets for another roster are gone too. After the last
    sum, those of rounding, noise and unsealing are.

    Args:
        memory: the state before.
        opening: the opening of the round.
        unmask: the request.
    """
    masked_sum = unmask.masked_sum
    after = dataclasses.replace(
        memory,
        due=Moment(masked_sum + 1, Stage.SUM),
        shares=(),
        survivors=unmask.survivors,
        signed=b"",
    )
    if opening.is_first(masked_sum):
        after = dataclasses.replace(after.only_for(opening.sums_from(0)), charged=0.0)
    if opening.is_last(masked_sum):
        due = Moment(opening.masked_sums, Stage.SUM)
        after = dataclasses.replace(after, due=due, incoming=(), rounding=GONE, noise=GONE)
    return after
