"""What a secure sum costs a device in bytes: the lengths of the messages, before any is sent.

>>> from rfa.secagg.security.parameters import derive
>>> traffic(derive(10, colluders=1, dropouts=2), steps=1, dim=1000)
Traffic(down=1188, up=4764, exchanges=4)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rfa.secagg.crypto.masks import WORD
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.messages.round import (
    SEALED_SIZE,
    SIGNATURE_SIZE,
    Advertise,
    Consent,
    Deal,
    DeviceKeys,
    Masked,
    Message,
    Open,
    Opened,
    Question,
    Roster,
    Survivors,
    Unmask,
)
from rfa.secagg.security.parameters import Parameters, Trust
from rfa.secagg.statistics import STATISTICS

_SESSION, _KEY = bytes(16), bytes(32)


@dataclass(frozen=True)
class Traffic:
    """What a device receives and sends in a round.

    Attributes:
        down: bytes that it receives.
        up: bytes that it sends.
        exchanges: requests that it answers.
    """

    down: int
    up: int
    exchanges: int


def traffic(  # noqa: PLR0913
    parameters: Parameters,
    *,
    steps: int,
    dim: int,
    metrics: int = 0,
    limit: float = 0.0,
    from_zero: bool = True,
) -> Traffic:
    """The traffic of a device in a round in which all steps are taken and nobody is lost.

    Args:
        parameters: the parameters of the cohort.
        steps: the sums R.
        dim: the number of coordinates d.
        metrics: the further numbers that are summed.
        limit: the limit on weights, for which each step takes two turns; 0 for none.
        from_zero: whether the first question is about zero, which travels as nothing.
    """
    opening = Open(_SESSION, 1, steps, dim, metrics, limit, int(parameters.trust))
    pairs = [*_forming(opening, parameters)]
    for turn in range(opening.turns):
        pairs.extend(
            _turn(opening, parameters, turn, zero=from_zero and turn < opening.turns // steps)
        )
    down = sum(len(request.encode()) for request, _ in pairs)
    return Traffic(down, sum(len(reply.encode()) for _, reply in pairs), len(pairs))


Pair = tuple[Message, Message]


def _forming(opening: Open, parameters: Parameters) -> Iterator[Pair]:
    """Keys, and shares."""
    lying = parameters.trust == Trust.LYING
    signature = bytes(SIGNATURE_SIZE) if lying else b""
    keys = DeviceKeys(1, _KEY, (_KEY,) * opening.turns, signature)
    yield opening, Advertise(_SESSION, keys)
    shown = parameters.cohort if lying else parameters.degree
    leaves = (_KEY,) * parameters.cohort
    roster = Roster(_SESSION, (0, 0, 0, 0, 0, 0, 0, 0), bytes(16), leaves, (keys,) * shown)
    shares = (bytes(SEALED_SIZE),) * (parameters.degree * opening.turns)
    yield roster, Deal(_SESSION, (_KEY,) * opening.turns, shares)


def _turn(opening: Open, parameters: Parameters, turn: int, *, zero: bool) -> Iterator[Pair]:
    """A question, the survivors' consent where the server may lie, and the opening."""
    bitmap, degree = bytes((parameters.cohort + 7) // 8), parameters.degree
    vector = not opening.limit or opening.is_second(turn)
    v = np.zeros(0 if zero else opening.dim, "<f4")
    sealed = (bytes(SEALED_SIZE),) * degree
    tail = (0,) * (len(STATISTICS) + opening.metrics)
    words = np.zeros(opening.dim if vector else 0, WORD)
    yield (
        Question(_SESSION, turn, int(vector), 1.0, 0, bitmap, sealed, v),
        Masked(_SESSION, turn, tail, words),
    )
    signatures: tuple[tuple[int, bytes], ...] = ()
    if parameters.trust == Trust.LYING:
        yield Survivors(_SESSION, turn, bitmap), Consent(_SESSION, turn, bytes(SIGNATURE_SIZE))
        signatures = tuple(
            (position, bytes(SIGNATURE_SIZE)) for position in range(parameters.cohort)
        )
    shares = (bytes(SHARE_SIZE),) * degree
    yield Unmask(_SESSION, turn, bitmap, signatures), Opened(_SESSION, turn, shares)
