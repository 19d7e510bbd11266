"""The requests of masked sums, and what each sum that was opened decides about the next one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rfa.radii import Radius
from rfa.secagg.blocks import sent_radius
from rfa.secagg.errors import AbortError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.round import SumRequest
from rfa.secagg.messages.values import as_sent, write_bitmap
from rfa.secagg.security.rules import Answered, Members, require_many_beyond
from rfa.secagg.server.masked_sum import MaskedSum
from rfa.secagg.server.table import Table


@dataclass(frozen=True)
class Progress:
    """What the opened sums of a round decide about the next one.

    Attributes:
        survivors: the devices in the last sum; None before the first is opened.
        ready: those of them that opened it, and can be asked again.
        mass: the total mass of the last sum.
        answered: the last answered query; None before the first.
    """

    survivors: Members | None = None
    ready: Members = frozenset()
    mass: int = 0
    answered: Answered | None = None

    def alive(self, table: Table) -> Members:
        """Return the devices that can be asked: those that dealt shares, or opened the last sum."""
        return frozenset(table.deals) if self.survivors is None else self.ready

    def after(self, now: MaskedSum, total: Total) -> Progress:
        """Return the progress after a sum was opened."""
        then = Progress(now.survivors, frozenset(now.opened), total.mass, self.answered)
        if not now.sum_request.vector:
            return then
        queries = self.answered.queries + 1 if self.answered else 1
        answered = Answered(queries, now.sum_request.nu, total.sum)
        return dataclasses.replace(then, answered=answered)

    def request(  # noqa: PLR0913, PLR0917
        self, table: Table, masked_sum: int, alive: Members, v: Any, nu: Radius, per_query: int
    ) -> SumRequest:
        """Return the request of a masked sum, without sealed shares.

        Args:
            table: the cohort.
            masked_sum: the number of the masked sum.
            alive: the devices that are asked.
            v: the point of the query.
            nu: its radius.
            per_query: the honest devices that each query after the first takes.

        Raises:
            AbortError: if no masked sum is left, or the sum would reveal devices.
            ValueError: if v or nu is not valid.
        """
        opening, parameters = table.cohort.opening, table.cohort.parameters
        if masked_sum not in opening.sums_from(table.first):
            msg = f"all {opening.each_roster} masked sums of the round are used up"
            raise AbortError(msg)
        least, levels = sent_radius(opening, nu)
        second = opening.is_second(masked_sum)
        if not second:
            require_many_beyond(parameters, self.answered, least, per_query)
        return SumRequest(
            session=opening.session,
            masked_sum=masked_sum,
            vector=int(second or not opening.max_share),
            nu=float(least),
            mass=self.mass if second else 0,
            alive=write_bitmap(alive, parameters.cohort),
            sealed=(),
            v=as_sent(v, opening.dim),
            levels=levels,
        )
