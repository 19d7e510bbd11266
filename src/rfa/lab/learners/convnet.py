"""The paper's ConvNet on one device, by hand in numpy.

Two convolutions with pooling and ReLU, a hidden layer and an output layer. It takes the same SGD
steps as torch on the module, with a third of its arithmetic in the second convolution
(`convolution.py`), and without writing the matrix of the hidden layer, which is nearly all of the
model, at each step (`deferred.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._types import Floats32
from rfa.lab.learners.convolution import (
    KERNEL,
    POOL,
    FourierConvolution,
    PictureConvolution,
    pool,
    unpool,
)
from rfa.lab.learners.deferred import WAITING, DeferredMatrix
from rfa.lab.learners.learner import Learner, Plan, Tail
from rfa.lab.learners.network import NetworkLearner, glorot
from rfa.lab.learners.softmax import residuals

BLOCK = 128
"""The number of examples that are scored at a time."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a ConvNet.

    Attributes:
        side: the side of the pictures, a multiple of 4.
        kernels: the number of kernels of each of the two convolutions.
        hidden: the number of units of the hidden layer.
        classes: the number of classes.
    """

    side: int
    kernels: tuple[int, int]
    hidden: int
    classes: int

    @property
    def parameters(self) -> Sequence[tuple[int, ...]]:
        """The shapes of the parameters, in their order: weights and biases of each layer."""
        first, second = self.kernels
        features = second * (self.side // POOL**2) ** 2
        return (
            (first, 1, KERNEL, KERNEL),
            (first,),
            (second, first, KERNEL, KERNEL),
            (second,),
            (self.hidden, features),
            (self.hidden,),
            (self.classes, self.hidden),
            (self.classes,),
        )


HIDDEN = 4
"""The index of the hidden layer's matrix, which is nearly all of the model."""


@dataclass(frozen=True)
class _Net:
    """A model in the form in which it is multiplied."""

    picture: Floats32
    filters: Floats32
    second_biases: Floats32
    hidden: DeferredMatrix
    hidden_biases: Floats32
    output: Floats32
    output_biases: Floats32


@dataclass(frozen=True)
class _Pass:
    """The outputs of the layers of a net for a batch, with the examples last."""

    windows: Floats32
    first: Floats32
    first_pooled: Floats32
    spectrum: Floats32
    second: Floats32
    second_pooled: Floats32
    features: Floats32
    hidden: Floats32
    scores: Floats32


@final
class ConvNetLearner(Learner):
    """A ConvNet with the multinomial logistic loss, trained by plain SGD."""

    def __init__(self, shape: Shape, make: Callable[[Any], Any]) -> None:
        """Set the sizes, and a function that makes the same net as a torch module."""
        self.shape, self._make = shape, make
        self.classes = shape.classes
        sizes = [math.prod(part) for part in shape.parameters]
        self.dim = sum(sizes)
        before = sum(sizes[:HIDDEN])
        self._hidden = slice(before, before + sizes[HIDDEN])
        self._picture = PictureConvolution(shape.side, shape.kernels[0])
        self._fourier = FourierConvolution(shape.side // POOL)

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Return Glorot-uniform matrices and kernels, and zero biases."""
        return np.concatenate([glorot(part, rng).ravel() for part in self.shape.parameters])

    @np.errstate(over="ignore", invalid="ignore")  # a model that diverges is the server's affair
    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """Return the change by local SGD."""
        labels = np.asarray(y, np.int64)
        others, matrix = self._split(start)
        first, pull = others.copy(), np.float32(plan.rate * plan.proximal)
        whole = plan.tail or plan.proximal  # both need the model itself at every step
        hidden = DeferredMatrix(matrix, 0 if whole else WAITING)
        tails = Tail(plan, others), Tail(plan, matrix)
        for rows in plan.batches:
            net = self._net(others, hidden)
            passed = self._forward(net, x[rows])
            step, outputs = self._backward(net, passed, labels[rows], plan.rate)
            if plan.proximal:
                others += pull * (first - others)
                settled = hidden.settled()
                settled += pull * (matrix - settled)
            others -= step
            hidden.subtract(outputs, passed.features)
            if plan.tail:
                tails[0].add(others)
                tails[1].add(hidden.settled())
        change = np.empty(self.dim, np.float32)
        self._join(change, tails[0].mean(others) - first)
        inner = change[self._hidden].reshape(matrix.shape)
        if plan.tail:
            np.subtract(tails[1].mean(hidden.settled()), matrix, out=inner)
        else:
            hidden.write_change(inner)
        return change

    @np.errstate(over="ignore", invalid="ignore")
    def scores(self, w: Floats32, x: Any) -> Floats32:
        """Return the scores, computed block by block."""
        others, matrix = self._split(w)
        net = self._net(others, DeferredMatrix(matrix))
        blocks = [x[i : i + BLOCK] for i in range(0, len(x), BLOCK)]
        return np.concatenate([self._forward(net, block).scores.T for block in blocks])

    def module(self, w: Floats32) -> Any:
        """Return the module with the parameters of a model."""
        return NetworkLearner(self._make, self.classes).module(w)

    def _split(self, w: Floats32) -> tuple[Floats32, Floats32]:
        """Return a copy of all parameters but the hidden layer's matrix, and that matrix."""
        others = np.concatenate([w[: self._hidden.start], w[self._hidden.stop :]])
        return others, w[self._hidden].reshape(self.shape.parameters[HIDDEN])

    def _join(self, w: Floats32, others: Floats32) -> None:
        """Write all parameters except the hidden layer's matrix into a model."""
        w[: self._hidden.start] = others[: self._hidden.start]
        w[self._hidden.stop :] = others[self._hidden.start :]

    def _net(self, others: Floats32, hidden: DeferredMatrix) -> _Net:
        shapes = [part for i, part in enumerate(self.shape.parameters) if i != HIDDEN]
        ends = np.cumsum([math.prod(part) for part in shapes])[:-1]
        parts = [
            part.reshape(shape) for part, shape in zip(np.split(others, ends), shapes, strict=True)
        ]
        kernels, biases, more_kernels, more_biases, *dense = parts
        return _Net(
            self._picture.matrix(kernels[:, 0], biases),
            self._fourier.filters(more_kernels),
            more_biases,
            hidden,
            *dense,
        )

    def _forward(self, net: _Net, x: Floats32) -> _Pass:
        n, pixels = len(x), (self.shape.side // POOL) ** 2
        windows = self._picture.windows(x)
        first = (net.picture @ windows).reshape(POOL * POOL, -1, pixels, n)
        first_pooled = pool(first)
        pictures = np.ascontiguousarray(_swapped(first_pooled))
        spectrum = self._fourier.spectrum(pictures)
        second = self._fourier.values(net.filters @ spectrum, net.second_biases)
        blank = self._fourier.blank(pictures)
        if blank.any():
            np.copyto(second, net.second_biases[:, None], where=blank[:, :, None])
        second_pooled = pool(second)
        features = np.ascontiguousarray(_swapped(second_pooled)).reshape(-1, n)
        hidden = net.hidden.times(features)
        hidden += net.hidden_biases[:, None]
        np.maximum(hidden, 0, out=hidden)
        scores = net.output @ hidden
        scores += net.output_biases[:, None]
        return _Pass(
            windows, first, first_pooled, spectrum, second, second_pooled, features, hidden, scores
        )

    def _backward(
        self, net: _Net, passed: _Pass, labels: Any, rate: float
    ) -> tuple[Floats32, Floats32]:
        """Return the rate times the gradients.

        Returns:
            The gradient in all parameters except the hidden layer's matrix, and the gradient in the
            layer's outputs, which gives that of the matrix together with the features.
        """
        outputs = residuals(passed.scores, labels, axis=0)
        outputs *= np.float32(rate / len(labels))
        hidden = net.output.T @ outputs
        hidden *= passed.hidden > 0
        features = net.hidden.transposed_times(hidden)
        second_pooled = _swapped(features.reshape(self.shape.kernels[1], -1, len(labels)))
        second = unpool(passed.second, passed.second_pooled, second_pooled)
        spectrum, second_biases = self._fourier.from_values(second)
        filters = spectrum @ passed.spectrum.transpose(0, 2, 1)
        pictures = self._fourier.from_spectrum(net.filters.transpose(0, 2, 1) @ spectrum)
        first = unpool(passed.first, passed.first_pooled, _swapped(pictures))
        picture = first.reshape(len(net.picture), -1) @ passed.windows.T
        parts = (
            *self._picture.gradients(picture),
            self._fourier.kernels(filters),
            second_biases,
            hidden.sum(axis=1),
            outputs @ passed.hidden.T,
            outputs.sum(axis=1),
        )
        return np.concatenate([part.ravel() for part in parts]), hidden


def _swapped(values: Floats32) -> Floats32:
    """Return values with channels and pixels swapped, and the examples last."""
    return values.transpose(1, 0, 2)
