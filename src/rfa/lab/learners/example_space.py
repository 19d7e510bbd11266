"""Local SGD of a linear model in the space of a device's examples.

The change of the model is A^T X. A step on a batch B needs the scores of its examples,

    X_B W_0^T + (X X^T)_B A,

and changes the rows B of A. Examples are put into the order in which the batches have them, so that
a batch is a slice, and as long as later rows of A are zero the product leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rfa._types import Floats32, Ints
from rfa.lab.learners.learner import Batch, Plan, Tail

SMALL, LARGE = np.float32(1e-30), np.float32(1e30)
"""Sums of exponentials between these are exact to rounding: none has over- or underflown."""


@dataclass(frozen=True)
class Visits:
    """The batches of a plan as slices of its examples.

    Attributes:
        order: the rows of the different batches, one batch behind the other.
        spans: for each step the first row of its batch in that order, and the one behind its last.
    """

    order: Ints
    spans: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> Visits:
        """Lay out the batches; one that comes again, as the same array, is laid out once."""
        spans: dict[int, tuple[int, int]] = {}
        parts, stop = [np.empty(0, np.int64)], 0
        for batch in batches:
            if id(batch) not in spans:
                spans[id(batch)] = stop, stop + len(batch)
                stop += len(batch)
                parts.append(batch)
        return cls(np.concatenate(parts), [spans[id(batch)] for batch in batches])

    @property
    def is_disjoint(self) -> bool:
        """Whether different batches have no example in common, and none has one twice."""
        return not self.order.size or int(np.bincount(self.order).max()) == 1


class Link(Protocol):
    """Turns scores into probabilities."""

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """The probabilities of the classes times a number; the scores may be overwritten."""
        ...


class Softmax:
    """Probabilities of many classes, whatever the scores."""

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Subtract the largest score of each example, so that no exponential overflows."""
        scores -= np.maximum.reduce(scores, axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores *= (scale / np.add.reduce(scores, axis=1))[:, None]
        return scores


class Logistic:
    """The probability of class 1 of two."""

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Clip scores where float32 has long reached 0 and 1."""
        scores.clip(-80, 80, out=scores)
        np.exp(np.negative(scores, out=scores), out=scores)
        scores += 1
        return np.divide(scale, scores, out=scores)


class SteadySoftmax:
    """Probabilities of many classes from scores whose largest is 0 at the start.

    It saves looking for the largest score in every step, and is exact while local training moves
    scores by less than about 70; afterwards `is_exact` tells.
    """

    def __init__(self, classes: int) -> None:
        self._ones = np.ones(classes, np.float32)
        self._sums: list[Floats32] = []

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Take exponentials as they are, and remember their sums."""
        np.exp(scores, out=scores)
        sums = scores.dot(self._ones)
        self._sums.append(sums)
        scores *= (scale / sums)[:, None]
        return scores

    def is_exact(self) -> bool:
        """Whether no sum of exponentials came near the limits of float32."""
        if not self._sums:
            return True
        sums = np.concatenate(self._sums)
        return bool(sums.min() > SMALL) and bool(sums.max() < LARGE)  # false for NaN


class ExampleSpace:
    """Local SGD on the rows of A."""

    def __init__(
        self, gram: Floats32 | None, at_start: Floats32, targets: Floats32, visits: Visits
    ) -> None:
        """Put everything into the order of the visits.

        Args:
            gram: the Gram matrix of the examples; None if there is one step at most.
            at_start: the scores of the examples before the first step.
            targets: the probabilities that scores should give.
            visits: the batches.
        """
        order = visits.order
        self._visits, self._count = visits, len(at_start)
        self._near = None if gram is None else gram.take(order, 0).take(order, 1)
        self._at_start, self._targets = at_start[order], targets[order]

    def descend(self, plan: Plan, *, binary: bool) -> Floats32:
        """The A that SGD reaches, or the average of its later iterates; a row for each example."""
        if binary:
            return self._spread(self._steps(plan, self._at_start, Logistic()))
        steady = SteadySoftmax(self._at_start.shape[1])
        shifted = self._at_start - np.maximum.reduce(self._at_start, axis=1, keepdims=True)
        reached = self._steps(plan, shifted, steady)
        if not steady.is_exact():
            reached = self._steps(plan, self._at_start, Softmax())
        return self._spread(reached)

    def _steps(self, plan: Plan, at_start: Floats32, link: Link) -> Floats32:
        a = np.zeros_like(at_start)
        tail = Tail(plan, a)
        shrink = np.float32(1 - plan.rate * plan.proximal)
        targets = self._scaled_targets(plan.rate)
        visited = 0
        for start, stop in self._visits.spans:
            scores = self._scores(at_start, a, start, stop, visited)
            residuals = link.apply(scores, np.float32(plan.rate / (stop - start)))
            residuals -= targets[start:stop]
            if plan.proximal:  # the pull on W - W_0 = A^T X is one on A
                a *= shrink
            a[start:stop] -= residuals
            visited = max(visited, stop)
            tail.add(a)
        return tail.mean(a)

    def _scaled_targets(self, rate: float) -> Floats32:
        """The targets times the rate over the size of their batch."""
        targets = self._targets.copy()
        for start, stop in set(self._visits.spans):
            targets[start:stop] *= np.float32(rate / (stop - start))
        return targets

    def _scores(
        self, at_start: Floats32, a: Floats32, start: int, stop: int, visited: int
    ) -> Floats32:
        """The scores of a batch, in memory of their own; rows of A not yet visited are zero."""
        if self._near is None or not visited:
            return at_start[start:stop].copy()
        scores: Floats32 = self._near[start:stop, :visited].dot(a[:visited])
        scores += at_start[start:stop]
        return scores

    def _spread(self, a: Floats32) -> Floats32:
        """The rows of A in the order of the examples."""
        full = np.zeros((self._count, a.shape[1]), np.float32)
        full[self._visits.order] = a
        return full
