"""Local SGD of a linear model in the space of a device's examples.

The change of the model is A^T X. A step on a batch B needs the scores of its examples,

    X_B W_0^T + (X X^T)_B A,

and changes the rows B of A. Examples are in the order of the batches, so a batch is a slice, and
while later rows of A are zero the product leaves them out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from rfa._types import Floats32
from rfa.lab.learners.learner import Plan, Tail
from rfa.lab.learners.softmax import exponentiate
from rfa.lab.learners.visits import Visits

SMALL, LARGE = np.float32(1e-30), np.float32(1e30)
"""Sums of exponentials between these are exact to rounding: none has over- or underflown."""
NEAR = 16
"""Scores within this distance of 0 need no shift, which would take as long as a step."""


class Link(Protocol):
    """Turns scores into probabilities."""

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Return the probabilities of the classes times a number; the scores may be overwritten."""
        ...


class Softmax:
    """Probabilities of many classes, for any scores."""

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Return probabilities, after subtracting the largest score so that nothing overflows."""
        scores *= scale / exponentiate(scores, axis=1)
        return scores


class Logistic:
    """The probability of class 1 of two."""

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Return probabilities, after clipping scores where float32 has reached 0 and 1."""
        scores.clip(-80, 80, out=scores)
        np.exp(np.negative(scores, out=scores), out=scores)
        scores += 1
        return np.divide(scale, scores, out=scores)


class SteadySoftmax:
    """Probabilities of many classes from scores that are near 0 at the start.

    It does not look for the largest score in every step, and is exact while local training moves
    scores by less than about 50; afterwards `is_exact` says whether it was.
    """

    def __init__(self, classes: int, rows: int) -> None:
        """Allocate memory for this number of rows, over all steps."""
        self._ones = np.ones(classes, np.float32)
        self._sums, self._count = np.ones(rows, np.float32), 0

    def apply(self, scores: Floats32, scale: np.float32) -> Floats32:
        """Return probabilities without a shift, and record the sums of exponentials."""
        np.exp(scores, scores)
        start, self._count = self._count, self._count + len(scores)
        sums = self._sums[start : self._count]
        scores.dot(self._ones, sums)
        scores *= (scale / sums)[:, None]
        return scores

    def is_exact(self) -> bool:
        """Return whether no sum of exponentials came near the limits of float32."""
        if not self._sums.size:
            return True
        low, high = np.minimum.reduce(self._sums), np.maximum.reduce(self._sums)
        return bool(low > SMALL) and bool(high < LARGE)  # false for NaN


def _near_zero(scores: Floats32) -> Floats32:
    """Return scores with the same probabilities, with the largest of each example near 0."""
    low = np.minimum.reduce(scores, axis=None, initial=0)
    high = np.maximum.reduce(scores, axis=None, initial=0)
    if low > -NEAR and high < NEAR:
        return scores
    return scores - np.maximum.reduce(scores, axis=1, keepdims=True)


class Part(NamedTuple):
    """The inputs of the steps on one batch, as slices of arrays of all examples.

    Attributes:
        near: its rows of the Gram matrix; None if there is at most one step.
        at_start: the scores before the first step.
        targets: the targets times the rate, divided by the size of the batch.
        rate: the rate divided by the size of the batch.
        a: the rows of A.
        stop: the first row after the batch.
    """

    near: Floats32 | None
    at_start: Floats32
    targets: Floats32
    rate: np.float32
    a: Floats32
    stop: int

    def scores(self, a: Floats32, visited: int) -> Floats32:
        """Return the scores of the batch in new memory; rows of A not yet visited are zero."""
        if self.near is None or not visited:
            return self.at_start.copy()
        if visited < len(a):
            scores: Floats32 = self.near[:, :visited].dot(a[:visited])
        else:
            scores = self.near.dot(a)
        scores += self.at_start
        return scores


class ExampleSpace:
    """Local SGD on the rows of A."""

    def __init__(
        self, gram: Floats32 | None, at_start: Floats32, y: Any, visits: Visits, plan: Plan
    ) -> None:
        """Put everything into the order of the visits.

        Args:
            gram: the Gram matrix of the examples; None if there is at most one step.
            at_start: the scores of the examples before the first step.
            y: their labels.
            visits: the batches.
            plan: the plan of the training.
        """
        order = visits.order
        self._visits, self._plan, self._count = visits, plan, len(at_start)
        # A Gram matrix is symmetric, and rows are gathered much faster than columns.
        self._near = None if gram is None else gram.take(order, 0).T.take(order, 0)
        self._at_start = at_start.take(order, 0)
        self._rates = [np.float32(plan.rate / (stop - start)) for start, stop in visits.spans]
        self._targets = self._scaled_targets(np.asarray(y).take(order))

    def descend(self, *, binary: bool) -> Floats32:
        """Return the A that SGD reaches, or the mean of its later iterates; a row per example."""
        if binary:
            return self._spread(self._steps(self._at_start, Logistic()))
        sizes = [stop - start for start, stop in self._visits.spans]
        rows = sum([sizes[turn] for turn in self._visits.turns])
        steady = SteadySoftmax(self._at_start.shape[1], rows)
        reached = self._steps(_near_zero(self._at_start), steady)
        if not steady.is_exact():
            reached = self._steps(self._at_start, Softmax())
        return self._spread(reached)

    def _steps(self, at_start: Floats32, link: Link) -> Floats32:
        plan = self._plan
        a = np.zeros_like(at_start)
        parts = self._parts(at_start, a)
        tail = Tail(plan, a)
        shrink = np.float32(1 - plan.rate * plan.proximal)
        visited = 0
        for turn in self._visits.turns:
            part = parts[turn]
            residuals = link.apply(part.scores(a, visited), part.rate)
            residuals -= part.targets
            if plan.proximal:  # the pull on W - W_0 = A^T X is one on A
                a *= shrink
            np.subtract(part.a, residuals, part.a)
            visited = max(visited, part.stop)
            if plan.tail:
                tail.add(a)
        return tail.mean(a)

    def _parts(self, at_start: Floats32, a: Floats32) -> list[Part]:
        near, targets = self._near, self._targets
        return [
            Part(
                None if near is None else near[start:stop],
                at_start[start:stop],
                targets[start:stop],
                rate,
                a[start:stop],
                stop,
            )
            for (start, stop), rate in zip(self._visits.spans, self._rates, strict=True)
        ]

    def _scaled_targets(self, y: Any) -> Floats32:
        """Return the target probabilities times the rate, divided by the size of the batch."""
        sizes = [stop - start for start, stop in self._visits.spans]
        rates = np.array(self._rates, np.float32).repeat(sizes)
        if self._at_start.shape[1] == 1:
            return (rates * y.astype(np.float32))[:, None]
        targets = np.zeros(self._at_start.shape, np.float32)
        targets[np.arange(len(y)), y] = rates
        return targets

    def _spread(self, a: Floats32) -> Floats32:
        """Return the rows of A in the order of the examples."""
        full = np.zeros((self._count, a.shape[1]), np.float32)
        full[self._visits.order] = a
        return full
