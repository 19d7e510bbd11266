"""Linear models on one device: softmax regression and binary logistic regression, by hand.

The change of a linear model by local SGD is a combination of the device's own examples,

    W_t = W_0 + A_t^T X,    so its scores are    X W_t^T = X W_0^T + (X X^T) A_t.

If a device has fewer examples n than features p, SGD therefore runs on the n rows of A with the
Gram matrix X X^T, which depends only on the inputs and is kept between rounds: the same iterates
for a third of the arithmetic (`example_space.py`). Otherwise it runs on W itself.

    >>> learner = LinearLearner(features=3, classes=2)
    >>> x, y = np.eye(3, dtype=np.float32), np.array([0, 1, 1])
    >>> change = learner.train(np.zeros(6, np.float32), x, y, Plan([np.arange(3)], rate=3.0))
    >>> change.reshape(2, 3)
    array([[ 0.5, -0.5, -0.5],
           [-0.5,  0.5,  0.5]], dtype=float32)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from rfa._types import Floats32
from rfa.errors import InvalidValueError
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.learners.example_space import ExampleSpace, Logistic, Softmax
from rfa.lab.learners.learner import Learner, Plan, Tail
from rfa.lab.learners.scaled import Scaled
from rfa.lab.learners.visits import Visits

GRAM_BYTES = 1 << 28
"""The memory for Gram matrices between rounds, in bytes; the least recently used are removed."""


@final
class LinearLearner(Learner):
    """Scores that are linear in the features, without a bias, and the logistic loss.

    With two classes and `binary`, one vector gives the score of class 1, and that of class 0 is 0.
    """

    takes_scaled = True

    def __init__(self, features: int, classes: int, *, binary: bool = False) -> None:
        if binary and classes != 2:  # noqa: PLR2004
            msg = f"a binary model has 2 classes, not {classes}"
            raise InvalidValueError(msg)
        self.features, self.classes, self.binary = features, classes, binary
        self.rows = 1 if binary else classes
        self.dim = self.rows * features
        self._grams = Grams(GRAM_BYTES)

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Return Glorot-uniform weights: within sqrt(6 / (features + outputs))."""
        bound = np.sqrt(6 / (self.features + self.rows))
        return rng.uniform(-bound, bound, self.dim).astype(np.float32)

    @np.errstate(all="ignore")  # a model that diverges is the server's affair
    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """Return the change by local SGD, in the space of examples if that is smaller."""
        first, scaled = start.reshape(self.rows, self.features), Scaled.of(x)
        visits = Visits.of(plan.batches)
        if len(y) < self.features and visits.is_disjoint:
            return self._train_examples(first, scaled, y, plan, visits).ravel()
        return self._train_weights(first, scaled, y, plan).ravel()

    @np.errstate(over="ignore", invalid="ignore")
    def scores(self, w: Floats32, x: Any) -> Floats32:
        """Return X W^T; a binary model has a column of zeros for class 0."""
        scores = _products(Scaled.of(x), w.reshape(self.rows, self.features))
        return np.hstack([np.zeros_like(scores), scores]) if self.binary else scores

    def module(self, w: Floats32) -> Any:
        """Return a linear layer without a bias; a binary model has a row of zeros for class 0."""
        torch = lab_module("torch")
        rows = w.reshape(self.rows, self.features)
        if self.binary:
            rows = np.vstack([np.zeros_like(rows), rows])
        layer = torch.nn.Linear(self.features, self.classes, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(rows.copy()))
        return layer.eval()

    def _train_examples(
        self, first: Floats32, x: Scaled, y: Any, plan: Plan, visits: Visits
    ) -> Floats32:
        space = ExampleSpace(
            gram=self._grams.of(x, plan.key) if len(plan.batches) > 1 else None,
            at_start=_products(x, first),
            y=y,
            visits=visits,
            plan=plan,
        )
        a = space.descend(binary=self.binary)
        a *= x.factor
        return a.T @ x.x

    def _train_weights(self, first: Floats32, x: Scaled, y: Any, plan: Plan) -> Floats32:
        targets = self._targets(y)
        parts = {id(rows): (x.take(rows), targets[rows]) for rows in plan.batches}
        link = Logistic() if self.binary else Softmax()
        w = first.copy()
        tail = Tail(plan, w)
        for batch in plan.batches:
            some, target = parts[id(batch)]
            rate = np.float32(plan.rate / len(batch))
            residuals = link.apply(some @ w.T, rate)
            residuals -= rate * target
            if plan.proximal:
                w += np.float32(plan.rate * plan.proximal) * (first - w)
            w -= residuals.T @ some
            tail.add(w)
        return tail.mean(w) - first

    def _targets(self, y: Any) -> Floats32:
        if self.binary:
            return np.asarray(y, np.float32)[:, None]
        targets = np.zeros((len(y), self.classes), np.float32)
        targets[np.arange(len(y)), y] = 1
        return targets


def _products(x: Scaled, rows: Floats32) -> Floats32:
    """Return the products of examples with some rows."""
    products: Floats32 = x.x @ rows.T
    products *= x.factor
    return products


@dataclass
class Grams:
    """Gram matrices by key, within a number of bytes."""

    limit: int
    kept: OrderedDict[Hashable, Floats32] = field(default_factory=OrderedDict[Hashable, Floats32])
    size: int = 0

    def of(self, x: Scaled, key: Hashable | None) -> Floats32:
        """Return the Gram matrix of x; cached under a key, which promises the same x each time."""
        if key is not None and key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key]
        gram = _products(x, x.x)
        gram *= x.factor
        if key is None:
            return gram
        self.kept[key] = gram
        self.size += gram.nbytes
        while self.size > self.limit:
            self.size -= self.kept.popitem(last=False)[1].nbytes
        return gram
