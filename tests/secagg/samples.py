"""One message of each kind, and random ones, for the tests of messages and vectors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rfa.secagg.messages import round as m
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.values import NO_SHARE


def span(start: int, size: int) -> bytes:
    return bytes((start + index) % 256 for index in range(size))


SESSION = span(0, 16)
SIGNED = m.DeviceKeys(258, span(1, 32), (span(2, 32), span(3, 32)), span(4, 64))
UNSIGNED = m.DeviceKeys(7, span(5, 32), (span(6, 32),))

SAMPLES: list[Message] = [
    OpenRound(SESSION, 3, 2, 1000, 1, 0.25, 2, 0b10011, 1, span(18, 32), 1.25, 1, 8),
    m.AdvertiseKeys(SESSION, SIGNED),
    m.Roster(
        SESSION,
        (9, 1, 2, 3, 6, 3, 1, 0),
        span(17, 16),
        (span(7, 32), span(8, 32)),
        (SIGNED, UNSIGNED),
        1,
    ),
    m.ShareKeys(SESSION, (span(9, 32),), (span(10, 82), span(11, 82))),
    m.SumRequest(
        SESSION,
        1,
        1,
        0.5,
        2**100 + 1,
        b"\xff\x01",
        (span(12, 82),),
        np.array([1.5, -2.0, 1e-40], "<f4"),
        span(21, 2),
    ),
    m.MaskedInput(SESSION, 1, (0, 2**128 - 1, 5), np.array([0, 2**32 - 1, 77], "<u4"), b"\x02\x01"),
    m.SurvivorList(SESSION, 1, b"\xfe\x01"),
    m.SurvivorSignature(SESSION, 1, span(13, 64)),
    m.Unmask(SESSION, 1, b"\xfe\x01", ((1, span(14, 64)), (8, span(15, 64))), (span(19, 82),), 1),
    m.UnmaskShares(SESSION, 1, (span(16, 33), NO_SHARE), span(20, 64), (UNSIGNED,)),
    m.Abstain(SESSION, 2**64 - 1),
    m.FirstSum(
        SESSION,
        (9, 1, 2, 3, 6, 3, 1, 0),
        span(17, 16),
        (span(7, 32), span(8, 32)),
        (SIGNED, UNSIGNED),
        0.5,
        np.array([1.5, -2.0], "<f4"),
        span(22, 3),
    ),
    m.FirstInput(
        SESSION,
        (span(9, 32),),
        (span(10, 82), span(11, 82)),
        (0, 2**128 - 1, 5),
        np.array([0, 2**32 - 1, 77], "<u4"),
    ),
    m.OpenFirstSum(SESSION, span(21, 90), span(22, 40)),
]


def same(one: Any, other: Any) -> bool:
    """Whether two messages are of one kind with the same fields, arrays to the bit."""
    if type(one) is not type(other):
        return False
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)]
    return all(bits(a) == bits(b) for a, b in pairs)


def bits(value: Any) -> Any:
    """A value that compares by its bits."""
    array: Any = value
    return (array.dtype.str, array.tobytes()) if isinstance(value, np.ndarray) else value


u8, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 32, 64))
u128 = st.integers(0, 2**128 - 1)
real = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: str(x) != "-0.0")


def exactly(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


def several(strategy: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


session, key = exactly(16), exactly(32)
device_keys = st.builds(m.DeviceKeys, u64, key, several(key), st.binary(max_size=64))
bitmap = st.binary(max_size=9)
sealed = exactly(m.SEALED_SIZE)
floats = hnp.arrays("<f4", st.integers(0, 5))
words = hnp.arrays("<u4", st.integers(0, 5))

roster = (st.tuples(*[u32] * 6, u8, u8), exactly(16), several(key), several(device_keys, 2))

KINDS: dict[type[Message], st.SearchStrategy[Message]] = {
    OpenRound: st.builds(
        OpenRound, session, u64, u32, u32, u32, real, u8, u8, u8, key, real, u8, u32
    ),
    m.AdvertiseKeys: st.builds(m.AdvertiseKeys, session, device_keys),
    m.Roster: st.builds(m.Roster, session, *roster, u32),
    m.ShareKeys: st.builds(m.ShareKeys, session, several(key), several(sealed, 2)),
    m.SumRequest: st.builds(
        m.SumRequest, session, u32, u8, real, u128, bitmap, several(sealed, 2), floats, bitmap
    ),
    m.MaskedInput: st.builds(m.MaskedInput, session, u32, several(u128), words, bitmap),
    m.SurvivorList: st.builds(m.SurvivorList, session, u32, bitmap),
    m.SurvivorSignature: st.builds(m.SurvivorSignature, session, u32, exactly(64)),
    m.Unmask: st.builds(
        m.Unmask,
        session,
        u32,
        bitmap,
        several(st.tuples(u32, exactly(64)), 2),
        several(sealed, 2),
        u8,
    ),
    m.UnmaskShares: st.builds(
        m.UnmaskShares,
        session,
        u32,
        several(exactly(33)),
        st.binary(max_size=64),
        several(device_keys, 1),
    ),
    m.Abstain: st.builds(m.Abstain, session, u64),
    m.FirstSum: st.builds(m.FirstSum, session, *roster, real, floats, bitmap),
    m.FirstInput: st.builds(
        m.FirstInput, session, several(key), several(sealed, 2), several(u128), words
    ),
    m.OpenFirstSum: st.builds(
        m.OpenFirstSum, session, st.binary(max_size=99), st.binary(max_size=99)
    ),
}
"""Strategies for every kind of message."""
