"""The secure sum without masks: the same whole numbers, added by a party that may see them.

Masks cancel exactly, so for the same devices, keys and drop-outs this oracle and the protocol give
the same bits and refuse the same rounds (test_protocol.py, test_noise.py). Large sweeps use it.

    >>> import numpy as np
    >>> from rfa.secagg.oracle import open_round
    >>> ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    >>> brought = {7: Contribution(ones), 9: Contribution(zeros)}
    >>> terms = Terms(colluder_fraction=0, max_dropout_fraction=0)
    >>> opening = open_round(1, terms, queries=1, dim=3)
    >>> ask = UnmaskedOracle(opening, terms, {**brought, 8: brought[7]})
    >>> ask(np.zeros(3), 2.0).push.round(6)
    array([1., 1., 1.])
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from rfa._types import Vector
from rfa.oracle import Sum
from rfa.radii import Radius
from rfa.secagg.blocks import sent_radius
from rfa.secagg.device.joining import check_brought
from rfa.secagg.errors import (
    AbortError,
    MessageError,
    ParameterError,
    RefusalError,
    TooFewDevicesError,
)
from rfa.secagg.fixed_point import Contribution, Encoding, Total
from rfa.secagg.in_process import Losses, answers
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.messages.values import as_sent
from rfa.secagg.oracle import Ended
from rfa.secagg.security.rules import (
    Answered,
    Members,
    agree_on,
    require_enough,
    require_many_beyond,
    require_same,
)
from rfa.secagg.security.terms import Terms
from rfa.secagg.statistics import weighs_more
from rfa.secagg.transcript import noise_key, rounding_key
from rfa.secagg.words import TAIL, WORD


class UnmaskedOracle:
    """An oracle that computes the same sums as the protocol, without its protection.

    *Formal guarantee*: for the same devices, keys and drop-outs it gives the same bits as
    `SecureOracle`.

    Attributes:
        parameters: the parameters of the cohort.
        last: the last total, with the sums of the metrics.
    """

    def __init__(  # noqa: PLR0913
        self,
        opening: OpenRound,
        terms: Terms,
        contributions: Mapping[int, Contribution | None],
        *,
        rounding: Mapping[int, bytes] | None = None,
        noise: Mapping[int, bytes] | None = None,
        lost: Losses | None = None,
    ) -> None:
        """Form the cohort of the devices that join a round.

        Args:
            opening: the round, from `open_round`.
            terms: the terms that the parameters follow from.
            contributions: the input of each device; None if it abstains.
            rounding: the key of the random choices of each device; fresh by default.
            noise: the secret of each device's noise, 32 bytes; fresh by default. Give another one
                in each round, or the noise is the same.
            lost: the devices that stop answering, and when.

        Raises:
            AbortError: if too few devices join, or the noise does not fit their number.
        """
        self._opening = opening
        self._lost = lost or {}
        joined = {
            device: contribution
            for device, contribution in contributions.items()
            if contribution and self._answers(device, START) and _may_join(opening, contribution)
        }
        self._contributions = joined
        self._rounding = rounding or {device: os.urandom(32) for device in joined}
        self._noise = noise or {device: os.urandom(32) for device in joined}
        self._alive = self._still(frozenset(joined), Moment(0, Stage.ROSTER))
        self._before: Members | None = None
        self._answered: Answered | None = None
        self._terms = terms
        self._first = self._masked_sums = 0
        self._ended = Ended()
        self.parameters = agree_on(terms, len(joined), opening)
        self.last: Total | None = None

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """Return the sum at v, rounded to float32.

        Raises:
            AbortError: if the protocol would not open this sum.
        """
        self._ended.check()
        least, _ = sent_radius(self._opening, nu)
        with self._ended.watch():
            require_many_beyond(
                self.parameters, self._answered, least, self._terms.honest_per_query
            )
            mass = self._masked_sum(v, nu, vector=False).mass if self._opening.max_share else 0
            self.last = self._masked_sum(v, nu, mass)
            queries = self._answered.queries + 1 if self._answered else 1
            self._answered = Answered(queries, least, self.last.sum)
        return self.last.sum

    def _masked_sum(self, v: Vector, nu: Radius, mass: int = 0, *, vector: bool = True) -> Total:
        """Return one sum, over its survivors."""
        sent = as_sent(v, self._opening.dim)
        if self._opening.fast and not self._masked_sums:
            self._regroup()
        require_enough(self.parameters, self._alive, "are left")
        masked_sum = self._masked_sums
        if masked_sum not in self._opening.sums_from(self._first):
            msg = f"all {self._opening.each_roster} masked sums of the round are used up"
            raise AbortError(msg)
        self._masked_sums += 1
        words = np.zeros(self._opening.dim if vector else 0, WORD)
        encoding = Encoding.of(self._opening, self.parameters)
        tail = [0] * (len(encoding.rows) + self._opening.metrics)
        survivors = set[int]()
        with_roster = self._opening.is_first(masked_sum)
        sent_at = Moment(masked_sum, Stage.ROSTER if with_roster else Stage.SUM)
        for device in sorted(self._still(self._alive, sent_at)):
            place = self._opening.place_of(masked_sum)
            key = rounding_key(self._rounding[device], place)
            part = encoding.encode(
                self._contributions[device],
                sent,
                nu,
                key,
                noise=noise_key(self._noise[device], masked_sum) if encoding.noise else None,
                vector=vector,
                metrics=self._opening.metrics,
            )
            own = encoding.mass_of(part.tail)
            heavy = mass and weighs_more(own, mass, self._opening.max_share)
            if not heavy:
                survivors.add(device)
                words += part.words
                tail = [(a + b) % TAIL for a, b in zip(tail, part.tail, strict=True)]
        self._close(frozenset(survivors), masked_sum)
        return encoding.decode(words, tail)

    def _regroup(self) -> None:
        """Form a new cohort if a device of a fast round does not answer with the roster."""
        lost = self.parameters.cohort - len(self._alive)
        if not lost:
            return
        try:
            self.parameters = self._terms.without(self.parameters, lost)
        except ParameterError as error:
            raise TooFewDevicesError(str(error)) from None
        self._first = self._masked_sums = self._opening.each_roster
        self._alive = self._still(self._alive, Moment(0, Stage.UNMASK))

    def _close(self, survivors: Members, masked_sum: int) -> None:
        """Check the rules on the survivors of a masked sum, and on the devices that open it."""
        require_enough(self.parameters, survivors, "sent their inputs")
        same = self._opening.is_second(masked_sum)
        require_same(self.parameters, self._before, survivors, same_query=same)
        self._before = survivors
        opened = Moment(masked_sum, Stage.UNMASK)
        self._alive = self._still(survivors, opened)
        require_enough(self.parameters, self._alive, "opened the sum")

    def _still(self, members: Members, moment: Moment) -> Members:
        """Return the devices that still answer at a moment."""
        return frozenset(device for device in members if self._answers(device, moment))

    def _answers(self, device: int, moment: Moment) -> bool:
        return answers(device, moment, self._lost)


def _may_join(opening: OpenRound, contribution: Contribution) -> bool:
    try:
        check_brought(opening, contribution)
    except (RefusalError, MessageError):
        return False
    return True
