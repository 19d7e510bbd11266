"""The cost of a secure sum for a device, in bytes: the lengths of all messages, before any is sent.

>>> from rfa.secagg.security.parameters import derive
>>> traffic(derive(10, num_colluders=1, num_dropouts=2), queries=1, dim=1000)
Traffic(down=1260, up=4788, exchanges=4)
>>> traffic(derive(10, num_colluders=1, num_dropouts=2), queries=1, dim=1000, fast=True)
Traffic(down=1329, up=4788, exchanges=3)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from rfa.radii import count_blocks
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.messages.opening import NO_BASIS, Message, OpenRound
from rfa.secagg.messages.round import (
    DEVICE_KEYS,
    SEALED_SIZE,
    SIGNATURE_SIZE,
    AdvertiseKeys,
    DeviceKeys,
    FirstInput,
    FirstSum,
    MaskedInput,
    OpenFirstSum,
    Roster,
    ShareKeys,
    SumRequest,
    SurvivorList,
    SurvivorSignature,
    Unmask,
    UnmaskShares,
)
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.statistics import ALL, mask_of_round, rows_of
from rfa.secagg.words import WORD

_SESSION, _KEY = bytes(16), bytes(32)


@dataclass(frozen=True)
class Traffic:
    """The bytes that a device receives and sends in a round.

    Attributes:
        down: the bytes that it receives.
        up: the bytes that it sends.
        exchanges: the number of requests that it answers.
    """

    down: int
    up: int
    exchanges: int


def traffic(  # noqa: PLR0913
    parameters: Parameters,
    *,
    queries: int,
    dim: int,
    metrics: int = 0,
    max_share: float = 0.0,
    statistics: Collection[str] = ALL,
    noise: float = 0.0,
    from_zero: bool = True,
    fast: bool = False,
    ahead: bool = False,
    block: int = 0,
) -> Traffic:
    """Return the traffic of a device in a round that takes all queries and loses nobody.

    Args:
        parameters: the parameters of the cohort.
        queries: the number of queries R.
        dim: the number of coordinates d.
        metrics: the number of further numbers that are summed.
        max_share: the largest share, for which each query takes two masked sums; 0 for none.
        statistics: the totals that are summed beside the push; count always is.
        noise: the multiplier of the noise, with which weights are equal; 0 for none.
        from_zero: whether the first query is at zero, which is sent as an empty vector.
        fast: whether the first sum is taken with the roster.
        ahead: whether devices sent their keys in the round before, and send those of the next.
        block: the number of coordinates that share a radius; 0 for one radius.
    """
    model = int(parameters.server_model)
    equal = bool(noise)
    mask = mask_of_round(
        statistics, queries=queries, max_share=max_share, equal_weights=equal, noise=noise
    )
    sizes = 1, queries, dim, metrics, max_share, model, mask, int(equal)
    opening = OpenRound(_SESSION, *sizes, NO_BASIS, noise, int(fast), block)
    keys = _keys(opening)
    forming = _forming(opening, parameters, keys)
    pairs: list[tuple[Message, Message]] = [(opening, AdvertiseKeys(_SESSION, keys))]
    if not fast:
        pairs.append(forming)
    if ahead:
        pairs.clear()
    for masked_sum in opening.sums_from(0):
        zero = from_zero and not opening.query_of(masked_sum)
        asking = _asking(opening, parameters, masked_sum, zero=zero)
        if opening.is_first(masked_sum):
            pairs.extend(_first_sum(parameters, *forming, *asking))
        else:
            pairs.extend([asking, *_opening(parameters, masked_sum)])
    down, up = (sum(len(message.encode()) for message in side) for side in zip(*pairs, strict=True))
    if ahead:
        down += len(OpenFirstSum(_SESSION, opening.encode(), b"").encode())
        up += len(DEVICE_KEYS.write(keys))
    return Traffic(down, up, len(pairs))


def _keys(opening: OpenRound) -> DeviceKeys:
    malicious = opening.server_model == ServerModel.MALICIOUS
    signature = bytes(SIGNATURE_SIZE) if malicious else b""
    return DeviceKeys(1, _KEY, (_KEY,) * opening.masked_sums, signature)


def _forming(
    opening: OpenRound, parameters: Parameters, keys: DeviceKeys
) -> tuple[Roster, ShareKeys]:
    """Return a roster and the shares."""
    malicious = parameters.server_model == ServerModel.MALICIOUS
    shown = parameters.cohort if malicious else parameters.degree
    leaves = (_KEY,) * parameters.cohort
    roster = Roster(_SESSION, (0, 0, 0, 0, 0, 0, 0, 0), bytes(16), leaves, (keys,) * shown)
    shares = (bytes(SEALED_SIZE),) * (parameters.degree * opening.each_roster)
    return roster, ShareKeys(_SESSION, (_KEY,) * opening.each_roster, shares)


def _asking(
    opening: OpenRound, parameters: Parameters, masked_sum: int, *, zero: bool
) -> tuple[SumRequest, MaskedInput]:
    """Return a request and the masked input."""
    bitmap, degree = bytes((parameters.cohort + 7) // 8), parameters.degree
    vector = not opening.max_share or opening.is_second(masked_sum)
    v = np.zeros(0 if zero else opening.dim, "<f4")
    sealed = (bytes(SEALED_SIZE),) * degree
    levels = bytes(count_blocks(opening.dim, opening.block)) if opening.block else b""
    tail = (0,) * (len(rows_of(opening.statistics)) + opening.metrics)
    words = np.zeros(opening.dim if vector else 0, WORD)
    return (
        SumRequest(_SESSION, masked_sum, int(vector), 1.0, 0, bitmap, sealed, v, levels),
        MaskedInput(_SESSION, masked_sum, tail, words),
    )


def _first_sum(
    parameters: Parameters,
    roster: Roster,
    dealt: ShareKeys,
    asked: SumRequest,
    masked: MaskedInput,
) -> Iterator[tuple[Message, Message]]:
    """Yield the first sum of a fast round with the roster, and its opening with the shares."""
    told = roster.session, roster.parameters, roster.nonce, roster.leaves, roster.keys
    yield (
        FirstSum(*told, asked.nu, asked.v, asked.levels),
        FirstInput(_SESSION, dealt.commitments, dealt.sealed, masked.tail, masked.words),
    )
    malicious = parameters.server_model == ServerModel.MALICIOUS
    shares = (bytes(SHARE_SIZE),) * parameters.degree
    yield (
        Unmask(_SESSION, 0, asked.alive, (), asked.sealed),
        UnmaskShares(_SESSION, 0, shares, bytes(SIGNATURE_SIZE) if malicious else b""),
    )


def _opening(parameters: Parameters, masked_sum: int) -> Iterator[tuple[Message, Message]]:
    """Yield the signatures of the survivors, if the server is malicious, and the opening."""
    bitmap = bytes((parameters.cohort + 7) // 8)
    signatures: tuple[tuple[int, bytes], ...] = ()
    if parameters.server_model == ServerModel.MALICIOUS:
        yield (
            SurvivorList(_SESSION, masked_sum, bitmap),
            SurvivorSignature(_SESSION, masked_sum, bytes(SIGNATURE_SIZE)),
        )
        signatures = tuple(
            (position, bytes(SIGNATURE_SIZE)) for position in range(parameters.cohort)
        )
    yield (
        Unmask(_SESSION, masked_sum, bitmap, signatures),
        UnmaskShares(_SESSION, masked_sum, (bytes(SHARE_SIZE),) * parameters.degree),
    )
