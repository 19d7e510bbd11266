"""An LSTM that reads symbols, on one device: its gradient by hand, for one processor thread.

torch's own LSTM multiplies one-hot rows by a matrix, computes a gradient for them too, and stores
gradients of everything, which SGD reads once. Here a symbol selects its row of a table, and
products that give a gradient are added to the model at once, as SGD's step.

The gates are in torch's order rotated by one, (o, i, f, g). So the three sigmoids are adjacent, and
each has its partner in a buffer of the same layout, (tanh c, g, c before):

    c = i * g + f * c before,    h = o * tanh c.

With ten rows per batch, the cost of the calls matters. Numpy starts a small operation in half the
time of torch; torch has the faster products of few rows, the faster sigmoid, and sums of rows by
index. Both work in the same memory, which torch allocates because it aligns it to cache lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._types import Floats32, Ints
from rfa.errors import InvalidValueError
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.learners.learner import Learner, Plan, Tail
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.learners.softmax import residuals

GATES = 4
BLOCK = 64
"""The examples that are scored at a time: their intermediate results fit into the cache."""


@dataclass(frozen=True)
class LstmSize:
    """The sizes of an LSTM.

    Attributes:
        length: the number of symbols at the beginning of an example; they are read in order.
        symbols: the number of different symbols.
        units: the length of the state.
        classes: the number of scores from the last state.
    """

    length: int
    symbols: int
    units: int
    classes: int


@final
class LstmLearner(Learner):
    """One layer of torch.nn.LSTM with one bias, and torch.nn.Linear on its last state."""

    def __init__(self, plain: NetworkLearner, size: LstmSize) -> None:
        """Set the learner of such a module, for the first model and the order of parameters."""
        self._plain, self._size = plain, size
        self._torch = lab_module("torch")
        self.dim, self.classes = plain.dim, plain.classes

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Return the first model of the plain learner."""
        return self._plain.initial(rng)

    @np.errstate(over="ignore", invalid="ignore")  # a model that diverges is the server's affair
    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """Return the change by local SGD, with gradients by hand."""
        symbols, labels = self._symbols(x), np.asarray(y, np.int64)
        model = _Model(self._torch, self._size, start)
        first = model.flat.copy()
        tapes = {count: self._tape(count) for count in {len(rows) for rows in plan.batches}}
        tail = Tail(plan, first)
        for rows in plan.batches:
            tape = tapes[len(rows)]
            tape.read(model, symbols[rows])
            steps = residuals(tape.scores(model), labels[rows], axis=1)
            steps *= np.float32(plan.rate / len(rows))
            tape.go_back(model, steps)
            if plan.proximal:
                model.flat += np.float32(plan.rate * plan.proximal) * (first - model.flat)
            tape.step(model, steps)
            tail.add(model.flat)
        return model.in_torchs_order(tail.mean(model.flat) - first)

    @np.errstate(over="ignore", invalid="ignore")
    def scores(self, w: Floats32, x: Any) -> Floats32:
        """Return the scores, computed block by block."""
        symbols = self._symbols(x)
        model = _Model(self._torch, self._size, w)
        blocks = [slice(i, i + BLOCK) for i in range(0, len(symbols), BLOCK)]
        tapes = {count: self._tape(count) for count in {len(symbols[rows]) for rows in blocks}}
        scores = np.empty((len(symbols), self.classes), np.float32)
        for rows in blocks:
            tape = tapes[len(symbols[rows])]
            tape.read(model, symbols[rows])
            scores[rows] = tape.scores(model)
        return scores

    def module(self, w: Floats32) -> Any:
        """Return the torch module with the parameters of a model."""
        return self._plain.module(w)

    def _tape(self, count: int) -> _Tape:
        return _Tape(self._torch, self._size, count)

    def _symbols(self, x: Any) -> Ints:
        symbols = np.asarray(x)[:, : self._size.length].astype(np.int64)
        if symbols.size and not 0 <= symbols.min() <= symbols.max() < self._size.symbols:
            msg = f"symbols must lie in 0 to {self._size.symbols - 1}, not in {symbols.min()} to "
            msg += f"{symbols.max()}"
            raise InvalidValueError(msg)
        return symbols


class _Model:
    """The parameters in the layout of the training, as parts of one flat vector.

    Attributes:
        flat: the vector.
        table: a row per symbol for each gate: torch's weight_ih, transposed gate by gate.
        recurrent: torch's weight_hh; `weights` is the same memory as a tensor.
        bias: torch's bias_ih.
        out: the matrix of the last layer.
        out_bias: its bias.
    """

    def __init__(self, torch: Any, size: LstmSize, w: Floats32) -> None:
        by_unit, by_symbol = (GATES, size.units, size.symbols), (GATES, size.symbols, size.units)
        others = [(GATES, size.units, size.units), (GATES, size.units)]
        others += [(size.classes, size.units), (size.classes,)]
        self._shapes = [by_symbol, *others]
        self.flat: Floats32 = torch.empty(len(w)).numpy()
        np.concatenate(_turned(_cut(w, [by_unit, *others]), 1), out=self.flat)
        parts = _cut(self.flat, self._shapes)
        self.table, self.recurrent, self.bias, self.out, self.out_bias = parts
        self.weights = torch.from_numpy(self.recurrent)

    def in_torchs_order(self, flat: Floats32) -> Floats32:
        """Return a vector of this layout in the order of the module's parameters."""
        return np.concatenate(_turned(_cut(flat, self._shapes), -1))


def _cut(flat: Floats32, shapes: list[tuple[int, ...]]) -> list[Floats32]:
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]


def _turned(parts: list[Floats32], by: int) -> list[Floats32]:
    """Return the flat parts with their gates rotated and the table transposed."""
    table, recurrent, bias, out, out_bias = parts
    gates = [np.roll(part, by, axis=0) for part in (table.transpose(0, 2, 1), recurrent, bias)]
    return [part.ravel() for part in (*gates, out, out_bias)]


class _Tape:
    """The intermediate results of both passes over a batch of one size, moment by moment.

    The views of a moment are made once, because that takes as long as a small operation.
    """

    def __init__(self, torch: Any, size: LstmSize, count: int) -> None:
        self._torch, self._size, self._count = torch, size, count

        def empty(*shape: int) -> Floats32:
            return torch.empty((*shape, count, size.units)).numpy()

        self._symbols = np.zeros((size.length, count), np.int64)
        self._offsets = np.arange(GATES) * size.symbols
        self._gates = empty(size.length, GATES)
        self._partners = empty(size.length + 1, 3)  # and c after the last moment
        self._states = empty(size.length + 1)
        self._partners[0, 2] = self._states[0] = 0
        self._slopes = empty(1 + GATES, size.length)
        self._pair, self._parts = empty(2), empty(GATES)
        self._d_state, self._d_cell = empty(), empty()
        self._forth = [self._views_forth(t) for t in range(size.length)]
        self._back = [self._views_back(t) for t in reversed(range(size.length))]

    def _views_forth(self, t: int) -> Any:
        gates, partners, states = self._gates[t], self._partners[t], self._states[t : t + 2]
        tensor = self._torch.from_numpy
        before = tensor(states[0]).expand(gates.shape) if t else None  # nothing comes of zeros
        to_cell = gates[3], partners[1], gates[1:3], partners[1:3], self._partners[t + 1, 2]
        return before, tensor(gates), tensor(gates[:3]), *to_cell, partners[0], gates[0], states[1]

    def _views_back(self, t: int) -> Any:
        slopes = self._slopes[:, t]
        gates = self._torch.from_numpy(slopes[1:]) if t else None
        return slopes[:2], slopes[0], slopes[2:], self._gates[t, 2], gates

    def read(self, model: _Model, symbols: Ints) -> None:
        """Let the model read symbols, a row for each example."""
        self._symbols = symbols.T
        table = (model.table + model.bias[:, None]).reshape(-1, self._size.units)
        rows = self._symbols[:, None] + self._offsets[:, None]
        np.take(table, rows, axis=0, out=self._gates, mode="clip")  # the mode that copies nothing
        weights, (new, kept) = model.weights.transpose(1, 2), self._pair
        for before, gates, sigmoids, raw, g, i_f, g_c, cell, tanh_cell, o, state in self._forth:
            if before is not None:
                gates.baddbmm_(before, weights)
            sigmoids.sigmoid_()
            np.tanh(raw, g)
            np.multiply(i_f, g_c, self._pair)
            np.add(new, kept, cell)
            np.tanh(cell, tanh_cell)
            np.multiply(o, tanh_cell, state)

    def scores(self, model: _Model) -> Floats32:
        """Return the scores that the last state gives."""
        return self._states[-1] @ model.out.T + model.out_bias

    def go_back(self, model: _Model, d_scores: Floats32) -> None:
        """Compute the gradient in the gates, before their functions, from that in the scores."""
        self._find_slopes()
        d_state, d_cell, parts = self._d_state, self._d_cell, self._torch.from_numpy(self._parts)
        np.matmul(d_scores, model.out, out=d_state)
        d_cell[:] = 0
        multiply, bmm = np.multiply, self._torch.bmm
        for by_state, into_cell, by_cell, f, gates in self._back:
            multiply(by_state, d_state, by_state)
            np.add(d_cell, into_cell, d_cell)
            multiply(by_cell, d_cell, by_cell)
            if gates is not None:
                multiply(d_cell, f, d_cell)
                bmm(gates, model.weights, out=parts)
                np.add.reduce(self._parts, axis=0, out=d_state)

    def _find_slopes(self) -> None:
        """Compute the factors of gradients: from h to c and o, then from c to i, f and g.

        torch.ops.aten has the formulas of autograd: p s (1 - s) and p (1 - tanh^2) in one pass.
        """
        tensor, aten = self._torch.from_numpy, self._torch.ops.aten
        gates, partners = tensor(self._gates), tensor(self._partners[:-1])
        slopes = tensor(self._slopes).transpose(0, 1)
        aten.sigmoid_backward.grad_input(partners, gates[:, :3], grad_input=slopes[:, 1:4])
        aten.tanh_backward.grad_input(gates[:, 0], partners[:, 0], grad_input=slopes[:, 0])
        aten.tanh_backward.grad_input(gates[:, 1], partners[:, 1], grad_input=slopes[:, 4])

    def step(self, model: _Model, d_scores: Floats32) -> None:
        """Subtract the gradient from the model."""
        tensor, units = self._torch.from_numpy, self._size.units
        d_gates = tensor(self._slopes[1:].reshape(GATES, -1, units))
        states = tensor(self._states[1:-1].reshape(-1, units))
        later = d_gates[:, self._count :].transpose(1, 2)  # the first state is zero
        model.weights.baddbmm_(later, states.expand(GATES, *states.shape), alpha=-1)
        sums = np.zeros_like(model.table)
        rows = tensor((self._symbols + self._offsets[:, None, None]).ravel())
        tensor(sums.reshape(-1, units)).index_add_(0, rows, d_gates.reshape(-1, units))
        model.table -= sums
        model.bias -= sums.sum(axis=1)
        model.out -= d_scores.T @ self._states[-1]
        model.out_bias -= d_scores.sum(axis=0)
