"""The record of a round for a receipt; the server still keeps no masked input.

The recorder digests a masked input when it arrives: one SHA-256 of the message, and only if a
receipt is wanted.
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
    """Records the events of one part of a cohort."""

    def __init__(self, opening: OpenRound) -> None:
        """Begin with the message that opens the round."""
        self._cohort = CohortRecord(opening.encode(), (), bytes(16), (), (), b"")
        self._stopped = b""
        self._inputs: dict[int, bytes] = {}
        self._sums: list[SumRecord] = []
        self._totals: list[TotalRecord] = []

    @property
    def part(self) -> PartRecord:
        """The complete record."""
        cohort = dataclasses.replace(self._cohort, stopped=self._stopped)
        return PartRecord(cohort, tuple(self._sums), tuple(self._totals))

    def form(self, table: Table, identities: Identities) -> None:
        """Record the cohort and the charge of its sums; inputs to an earlier cohort are dropped."""
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
        """Record a masked input by its digest."""
        self._inputs[position] = input_digest(reply)

    def close(self, now: MaskedSum) -> None:
        """Record a sum that was opened."""
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
        """Record the kind of an abort, but not its message: a device could have written that."""
        self._stopped = type(error).__name__.encode()


def _in_order(values: Mapping[int, bytes]) -> tuple[bytes, ...]:
    return tuple(values[position] for position in sorted(values))
