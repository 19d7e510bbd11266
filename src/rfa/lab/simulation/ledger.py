"""The ledger of suspicion in the lab: who lies inside sums, inferred from the groups of rounds.

It is the server's own, of `rfa.secagg.server.suspicion`, and hears of groups alone: the lab's
devices are lost as the settings say, and break no other rule.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rfa.lab.simulation.outcome import Outcome

if TYPE_CHECKING:
    from rfa.secagg.server.suspicion import Suspicion


def left_out(ledger: Suspicion | None, count: int) -> list[int]:
    """The devices, out of a number of them, that the ledger holds for liars."""
    return list(ledger.excluded(range(count))) if ledger else []


def suspect(
    ledger: Suspicion | None, outcome: Outcome | None, chosen: list[int]
) -> Suspicion | None:
    """The ledger after a round, where the groups of the round were looked at."""
    if outcome is None or not outcome.groups:
        return ledger
    from rfa.secagg.server.suspicion import (  # noqa: PLC0415 it loads ciphers
        GroupReport,
        RoundReport,
        Suspicion,
    )

    groups = tuple(
        GroupReport(
            frozenset(chosen[row] for row in rows),
            "its result was far from that of the others" if far else "",
        )
        for rows, far in outcome.groups
    )
    return (ledger or Suspicion()).after(RoundReport(groups))


def pack_ledger(ledger: Suspicion) -> str:
    """A ledger as text, for a checkpoint."""
    from rfa.secagg.server.suspicion import pack_suspicion  # noqa: PLC0415 it loads ciphers

    return json.dumps(pack_suspicion(ledger))


def unpack_ledger(text: str) -> Suspicion:
    """The ledger that `pack_ledger` made a text of.

    Raises:
        ValueError, KeyError, TypeError: if it is none.
    """
    from rfa.secagg.server.suspicion import (  # noqa: PLC0415 it loads ciphers
        Suspicion,
        unpack_suspicion,
    )

    return unpack_suspicion(Suspicion(), json.loads(text))
