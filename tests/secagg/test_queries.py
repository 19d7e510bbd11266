"""What a server that may choose its queries learns from honest sums over many devices.

Two queries at the same point, with radii between which one device lies, differ by that device's
part alone. No mask helps against that: it is why devices answer one request a round of a server
that they do not trust, and why the threat model promises nothing more to those who answer more.
"""

from __future__ import annotations

import numpy as np
import pytest

from rfa.secagg.errors import TooFewDevicesError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.security.policy import Policy
from tests.secagg.party import MALICIOUS, party


def contributions() -> dict[int, Contribution]:
    """Thirty devices around (1, ..., 1), one of them nearer than the others."""
    rng = np.random.default_rng(5)
    parts: dict[int, Contribution] = {}
    for device in range(30):
        step = rng.standard_normal(50)
        length = 1.0 if device == 7 else rng.uniform(2, 4)
        update = 1 + length * step / np.linalg.norm(step)
        parts[device] = Contribution(update.astype(np.float32), float(rng.uniform(0.2, 1)))
    return parts


def test_two_chosen_queries_expose_the_nearest_device() -> None:
    parts = contributions()
    ask = party(parts, MALICIOUS, queries=2, policy=Policy(max_queries=2)).oracle()
    v, near, far = np.ones(50), 0.4, 1.5
    one, other = ask(v, near), ask(v, far)
    assert one.near == 0
    assert one.count == other.count == 30
    part = (one.push - other.push) / (one.need("mass") / near - other.need("mass") / far)
    assert np.linalg.norm(v + part - parts[7].update) < 1e-3


def test_devices_that_do_not_trust_the_server_answer_one_query() -> None:
    table = party(contributions(), MALICIOUS, queries=2, policy=Policy())
    with pytest.raises(TooFewDevicesError, match="0 devices joined"):
        table.oracle()
    names = {type(error).__name__ for error in table.exchange.refused.values()}
    assert names == {"TooManyQueriesError"}
