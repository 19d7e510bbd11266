"""The secure sum without masks: the same whole numbers, added by someone who may see them.

Masks cancel exactly, so this oracle and the protocol give the same bits for the same devices,
rounding keys and drop-outs, and refuse the same (test_protocol.py). Large sweeps use it.

    >>> import numpy as np
    >>> from rfa.secagg.oracle import open_round
    >>> parts = {7: Contribution(np.ones(3, np.float32)), 9: Contribution(np.zeros(3, np.float32))}
    >>> terms = Terms(colluders=0, dropouts=0)
    >>> opening = open_round(1, terms, steps=1, dim=3)
    >>> ask = RingOracle(opening, terms, {**parts, 8: parts[7]})
    >>> ask(np.zeros(3), 2.0).push.round(6)
    array([1., 1., 1.])
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from rfa._checks import check_number
from rfa._types import Vector
from rfa.oracle import Sum
from rfa.secagg.crypto.masks import TAIL, WORD
from rfa.secagg.errors import AbortError
from rfa.secagg.fixed_point import (
    Contribution,
    Encoding,
    Total,
    as_sent,
    weighs_more,
)
from rfa.secagg.in_process import Losses, answers
from rfa.secagg.messages.round import Open
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.oracle import Ended
from rfa.secagg.security.rules import Members, agree_on, require_enough, require_same
from rfa.secagg.security.terms import Terms
from rfa.secagg.statistics import POSITIONS, STATISTICS
from rfa.secagg.transcript import rounding_key


class RingOracle:
    """What the protocol computes, without its protection.

    Attributes:
        parameters: the parameters of the cohort.
        last: the last total, with the sums of the metrics.
    """

    def __init__(
        self,
        opening: Open,
        terms: Terms,
        parts: Mapping[int, Contribution | None],
        *,
        rounding: Mapping[int, bytes] | None = None,
        lost: Losses | None = None,
    ) -> None:
        """Take what each device brings; None where it abstains.

        Args:
            opening: the round.
            terms: what the parameters follow from.
            parts: what each device brings.
            rounding: the key of the random choices of each device, fresh by default.
            lost: who stops to answer, and when.

        Raises:
            AbortError: if too few devices join.
        """
        self._opening = opening
        self._lost = lost or {}
        joined = {one: part for one, part in parts.items() if part and self._answers(one, START)}
        self._parts = joined
        self._rounding = rounding or {device: os.urandom(32) for device in joined}
        self._alive = frozenset(
            device for device in joined if self._answers(device, Moment(0, Stage.ROSTER))
        )
        self._before: Members | None = None
        self._turns = 0
        self._ended = Ended()
        self.parameters = agree_on(terms, len(joined))
        self.last: Total | None = None

    def __call__(self, v: Vector, nu: float) -> Sum:
        """The sum at v, rounded to float32.

        Raises:
            AbortError: if the protocol would not open this sum.
        """
        self._ended.check()
        check_number("nu", nu, positive=True)
        with self._ended.watch():
            mass = self._turn(v, nu, vector=False).mass if self._opening.limit else 0
            self.last = self._turn(v, nu, mass)
        return self.last.sum

    def _turn(self, v: Vector, nu: float, mass: int = 0, *, vector: bool = True) -> Total:
        """One sum, over those who survive it."""
        require_enough(self.parameters, self._alive, "are left")
        turn, sent = self._turns, as_sent(v, self._opening.dim)
        if turn >= self._opening.turns:
            msg = f"all {self._opening.turns} turns of the round are used up"
            raise AbortError(msg)
        self._turns += 1
        words = np.zeros(self._opening.dim if vector else 0, WORD)
        tail = [0] * (len(STATISTICS) + self._opening.metrics)
        encoding, survivors = Encoding(self.parameters.cohort), set[int]()
        for device in sorted(self._alive):
            key = rounding_key(self._rounding[device], turn)
            part = encoding.encode(self._parts[device], sent, nu, key, vector=vector)
            heavy = mass and weighs_more(part.tail[POSITIONS["mass"]], mass, self._opening.limit)
            if self._answers(device, Moment(turn, Stage.SUM)) and not heavy:
                survivors.add(device)
                words += part.words
                tail = [(a + b) % TAIL for a, b in zip(tail, part.tail, strict=True)]
        self._close(frozenset(survivors), turn)
        return encoding.decode(words, tail)

    def _close(self, survivors: Members, turn: int) -> None:
        """Keep the rules on those who survive a turn, and on those who open it."""
        require_enough(self.parameters, survivors, "sent their parts")
        same = self._opening.is_second(turn)
        require_same(self.parameters, self._before, survivors, same_step=same)
        self._before = survivors
        opened = Moment(turn, Stage.UNMASK)
        self._alive = frozenset(one for one in survivors if self._answers(one, opened))
        require_enough(self.parameters, self._alive, "opened the sum")

    def _answers(self, device: int, moment: Moment) -> bool:
        return answers(device, moment, self._lost)
