"""What the devices of a round are charged for its sums, and whether they can pay.

What a device is charged does not depend on what the sums hold: it is kept with the state of a run,
in one file with the model, so that a run that was killed goes on with what was spent. Rounds that
are played again after a kill are the same to the bit, noise and all, and tell nothing new.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from rfa._types import Vector
from rfa.lab.simulation.aggregation import split_cohort
from rfa.lab.simulation.losses import draw_losses, who_joins
from rfa.lab.simulation.noise import RunNoise
from rfa.lab.simulation.outcome import BudgetSpentError
from rfa.oracle import Sum, SumOracle
from rfa.privacy import Charges, epsilon_of
from rfa.radii import Radius
from rfa.secagg.in_process import Losses, answers
from rfa.secagg.messages.stages import Moment, Stage


class Meter:
    """Charges the devices of a round for the sums that they answer.

    Attributes:
        noise: the noise of the run.
        devices: who takes part, by row.
        charges: what every device of the run was charged so far.
    """

    def __init__(self, noise: RunNoise, devices: Sequence[int], charges: Charges) -> None:
        """Take what was charged before the round."""
        self.noise, self.devices, self.charges = noise, devices, charges

    def admit(self, t: int) -> None:
        """See that all who will join round t can answer its queries, before they train for it.

        Raises:
            BudgetSpentError: naming one that cannot, and what it would have spent.
        """
        settings, count = self.noise.settings, len(self.devices)
        lost = draw_losses(count, settings, t)
        least = settings.secure.terms.smallest(settings.layout.queries)
        for rows in split_cohort(count, settings, t):
            joined = who_joins(rows, lost)
            if len(joined) >= least:
                self.check(joined)

    def check(self, joined: Collection[int]) -> None:
        """See that the devices in some rows, which joined one part, can answer all queries.

        Raises:
            BudgetSpentError: naming one that cannot, and what it would have spent.
        """
        budget = self.noise.budget
        if budget is None:
            return
        price = self.noise.settings.layout.queries * self.noise.price(len(joined))
        asked = [self.devices[row] for row in joined]
        over = self.charges.overspent(asked, price, budget)
        if over:
            before = self.charges.of(over[0])
            spent, after = (epsilon_of(rho, budget.delta) for rho in (before, before + price))
            msg = f"the privacy budget of epsilon={budget.epsilon:g} is spent: another round would "
            msg += f"take device {over[0]} from {spent:.4g} to {after:.4g}"
            raise BudgetSpentError(msg)

    def watch(self, oracle: SumOracle, joined: Collection[int], lost: Losses) -> SumOracle:
        """An oracle over the devices in some rows that charges them as their inputs leave.

        Raises:
            BudgetSpentError: if one of them cannot answer all queries of the round: fewer joined
                than were expected, so that sums cost more.
        """
        self.check(joined)
        asked = itertools.count()

        def ask(v: Vector, nu: Radius) -> Sum:
            self.charge(joined, next(asked), lost)
            return oracle(v, nu)

        return ask

    def charge(self, joined: Collection[int], number: int, lost: Losses) -> None:
        """Charge the devices in some rows, which joined one part, for a sum of the round.

        Args:
            joined: the rows.
            number: which sum it is, from 0.
            lost: who drops out, and when: who is lost before it sends nothing.
        """
        moment, price = Moment(number, Stage.SUM), self.noise.price(len(joined))
        sending = [self.devices[row] for row in joined if answers(row, moment, lost)]
        self.charges = self.charges.after(sending, price)


def meter_of(
    noise: RunNoise | None, chosen: Sequence[int], charges: Charges, t: int
) -> Meter | None:
    """What charges the devices of round t; None where they add no noise.

    Raises:
        BudgetSpentError: if one of them has too little left of its budget.
    """
    if noise is None or noise.settings.privacy.is_central:
        return None
    meter = Meter(noise, chosen, charges)
    meter.admit(t)
    return meter
