"""Keeps what a receipt tells of a round, while the server holds no masked input longer than before.

A masked input is digested when it comes: one SHA-256 of the message, and only where someone wants
a receipt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rfa.secagg.errors import AbortError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.records import CohortRecord, PartRecord, SumRecord, TotalRecord
from rfa.secagg.noise import noisy_sum
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.server.masked_sum import MaskedSum
from rfa.secagg.server.table import Table
from rfa.secagg.transcript import input_digest, point_of


class Recorder:
    """What happened to one part of a cohort."""

    def __init__(self, opening: OpenRound) -> None:
        """Begin with the message that opens the round."""
        self._cohort = CohortRecord(opening.encode(), (), bytes(16), (), (), b"")
        self._stopped = b""
        self._inputs: dict[int, bytes] = {}
        self._sums: list[SumRecord] = []
        self._totals: list[TotalRecord] = []

    @property
    def part(self) -> PartRecord:
        """All of it."""
        cohort = dataclasses.replace(self._cohort, stopped=self._stopped)
        return PartRecord(cohort, tuple(self._sums), tuple(self._totals))

    def form(self, table: Table, identities: Identities) -> None:
        """Note the cohort, and what its sums are charged; inputs to one before are of no sum."""
        self._inputs = {}
        cohort, keys = table.cohort, tuple(table.keys)
        malicious = cohort.opening.server_model == ServerModel.MALICIOUS
        known = tuple(identities[one.device] for one in keys) if malicious else ()
        noise = noisy_sum(cohort.opening, cohort.parameters)
        self._cohort = CohortRecord(
            self._cohort.opening,
            cohort.parameters.numbers,
            cohort.nonce,
            keys,
            known,
            b"",
            noise.rho if noise else 0.0,
        )

    def take(self, position: int, reply: bytes) -> None:
        """Note a masked input by its digest."""
        self._inputs[position] = input_digest(reply)

    def close(self, now: MaskedSum) -> None:
        """Note a sum that was opened."""
        request, inputs = now.sum_request, self._inputs
        self._inputs = {}
        self._sums.append(
            SumRecord(
                request.masked_sum,
                request.vector,
                request.nu,
                request.mass,
                request.alive,
                point_of(request.v, request.nu, request.levels),
                now.bitmap,
                _in_order(inputs),
                _in_order(now.secrets),
                tuple(sorted(now.signatures.items())),
            )
        )
        self._totals.append(TotalRecord(tuple(now.tail), now.words))

    def stop(self, error: AbortError) -> None:
        """Note that no sum comes after; not why in words, which could be a device's."""
        self._stopped = type(error).__name__.encode()


def _in_order(values: Mapping[int, bytes]) -> tuple[bytes, ...]:
    return tuple(values[position] for position in sorted(values))
