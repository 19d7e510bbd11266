"""A character LSTM that predicts the next character, with its gradient written out by hand.

At each of `window` steps the network reads a character x. It has an output h and a cell c, both
zero at first, and gates i (input), f (forget), g (candidate for the cell) and o (output):

    z = W_ih[:, x] + b_ih + W_hh h + b_hh       for each gate,
    i, f, o = sigmoid(z),   g = tanh(z),
    c <- f c + i g,   h <- o tanh(c).

The scores are V h + a with the last h; the loss is the multinomial logistic one. A flat model is
laid out like the parameters of `torch.nn.LSTM(classes, hidden, batch_first=True)` and then
`torch.nn.Linear(hidden, classes)`: W_ih, W_hh, b_ih, b_hh with gates i, f, g, o; then V, a.

Training has its own, inner form of the model, a linear image of the flat one, in which
- gates are a stack g, i, f, o: neighbours are the sigmoids, and the three that act on the cell;
- sigmoids have the opposite sign, as in 1 / (1 + exp(-z)): no pass to negate z;
- W_ih is transposed, so that a character picks a row, and there is only b = b_ih + b_hh.

    >>> LstmLearner().dim
    100533
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from rfa.federated.learner import Floats32, Learner, Plan

BLOCK = 256  # how many examples are scored at once
ROWS = 4  # products of a few rows are fastest if their number is a multiple of this
ONE = np.float32(1)
Codes: TypeAlias = NDArray[np.intp]
Step: TypeAlias = tuple[Floats32, Floats32, Floats32, Floats32, Floats32, Floats32, Floats32]
"""Of a step: rows from h before the step on, h after it, dz of g, of i and f, of o; f; u."""


class Inner(NamedTuple):
    """The inner form of a model, or its gradient: views of one vector, `all`."""

    all: Floats32
    w_ih: Floats32
    w_hh: Floats32
    b: Floats32
    v: Floats32
    a: Floats32


class Cell:
    """The state of n examples, and the part of a step that is not linear."""

    def __init__(self, n: int, hidden: int) -> None:
        self.z, self.spare = np.empty((2, 4, n, hidden), np.float32)
        self.ig_fc = np.empty((2, n, hidden), np.float32)
        self.c, self.tanh_c = np.zeros((2, n, hidden), np.float32)
        self._gates, self._sigmoids = tuple(self.z), self.z[1:]
        self._less_one = self.spare[1:], self.spare[1:3], self.spare[3]
        self._products = tuple(self.ig_fc)

    def run(self, h: Floats32) -> None:
        """Turn z into gates in place, then update c and write h."""
        (g, i, f, o), (ig, fc), sigmoids = self._gates, self._products, self._sigmoids
        np.exp(sigmoids, sigmoids)
        np.add(sigmoids, ONE, sigmoids)
        np.reciprocal(sigmoids, sigmoids)
        np.tanh(g, g)
        np.multiply(i, g, ig)
        np.multiply(f, self.c, fc)
        np.add(ig, fc, self.c)
        np.tanh(self.c, self.tanh_c)
        np.multiply(o, self.tanh_c, h)

    def differentiate(self, step: Step) -> None:
        """After `run`, fill in a step; this spoils all but z and c.

        With the sign of the inner sigmoids, dc/dz is i - i g g for g, (i - 1) i g for i and
        (f - 1) f c for f; dh/dz is (o - 1) h for o, and u = dh/dc is o - h tanh(c).
        """
        _, h, dg, d_if, do, f, u = step
        less_one, i_f_less_one, o_less_one = self._less_one
        (g, i, forget, o), ig, tanh_c = self._gates, self._products[0], self.tanh_c
        np.subtract(self._sigmoids, ONE, less_one)
        np.multiply(i_f_less_one, self.ig_fc, d_if)
        np.multiply(o_less_one, h, do)
        np.multiply(ig, g, ig)
        np.subtract(i, ig, dg)
        np.multiply(h, tanh_c, tanh_c)
        np.subtract(o, tanh_c, u)
        np.copyto(f, forget)


class Room:
    """Buffers for batches of n, and views of them for each step.

    Products read the n rows of a step and some of those that follow, up to a multiple of `ROWS`;
    what comes of the latter is never used.

    Attributes:
        dz: (4, steps * n, hidden), at first derivatives of the gates, at last those of the loss.
        h: (steps * n, hidden), the outputs before each step; those of the last step follow.
        product, used: the result of a product with W_hh, and its first n rows.
        ahead, back: the views that the steps of the passes need, in their order.
    """

    def __init__(self, steps: int, n: int, hidden: int) -> None:
        wide = n if n == 1 else -(-n // ROWS) * ROWS
        flat = np.zeros((4 * steps * n + wide - n, hidden), np.float32)
        self.n, self.cell = n, Cell(n, hidden)
        self.dz = flat[: 4 * steps * n].reshape(4, steps * n, hidden)
        self.h = np.zeros((steps * n + wide, hidden), np.float32)
        self.product = np.empty((4, wide, hidden), np.float32)
        self.used = self.product[:, :n]
        self.dh, self.dc = np.empty((2, n, hidden), np.float32)
        self.ahead: list[Step] = []
        self.back: list[tuple[Floats32, ...]] = []
        for k, (f, u) in enumerate(np.zeros((steps, 2, n, hidden), np.float32)):
            rows = slice(k * n, k * n + n)
            dz, h = self.dz[:, rows], self.h[n:][rows]
            wide_dz = as_strided(flat[k * n :], self.product.shape, self.dz.strides)
            self.ahead.append((self.h[k * n : k * n + wide], h, dz[0], dz[1:3], dz[3], f, u))
            self.back.insert(0, (wide_dz, dz[:3], dz[3], f, u))


class LstmLearner(Learner):
    """An LSTM that reads the first `window` codes of an example, each less than `classes`.

    It keeps buffers, so only one thread at a time may use it.
    """

    def __init__(self, classes: int = 53, hidden: int = 128, window: int = 20) -> None:
        self.classes, self.hidden, self.window = classes, hidden, window
        gates, last = 4 * hidden, [(classes, hidden), (classes,)]
        self._flat = [(gates, classes), (gates, hidden), (gates,), (gates,), *last]
        self.dim = sum(prod(shape) for shape in self._flat)
        inner = [(4, classes, hidden), (4, hidden, hidden), (4, 1, hidden), *last]
        model, gradient = np.zeros((2, self.dim - gates), np.float32)
        self._model = Inner(model, *_views(model, inner))
        self._gradient = Inner(gradient, *_views(gradient, inner))
        self._table = np.empty((4, classes, hidden), np.float32)
        self._eye = np.eye(classes, dtype=np.float32)
        self._rooms: dict[int, Room] = {}

    def initial(self, rng: np.random.Generator) -> Floats32:
        """The first model: kernels Glorot-uniform like TensorFlow's, the forget bias one.

        A kernel of shape (n, m) is uniform up to sqrt(6 / (n + m)), where the four gates are one
        kernel. Biases are zero but for that of the forget gate, a one that stands in b_ih.
        """
        w = np.zeros(self.dim, np.float32)
        parts = _views(w, self._flat)
        for kernel in (parts[0], parts[1], parts[4]):
            limit = np.sqrt(6 / sum(kernel.shape))
            kernel[:] = rng.uniform(-limit, limit, kernel.shape)
        parts[2][self.hidden : 2 * self.hidden] = 1
        return w

    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """What local SGD changes; x holds uint8 codes (n, >= window), y the codes that follow."""
        codes, labels = self._read(x), np.asarray(y, np.intp)
        self._load(start)
        model, gradient, steps = self._model.all, self._gradient.all, len(plan.batches)
        first, rate, tail = model.copy(), np.float32(plan.rate), np.zeros(model.size)
        with np.errstate(all="ignore"):
            for k, batch in enumerate(plan.batches):
                self._differentiate(codes[batch], labels[batch])
                np.multiply(gradient, rate, gradient)
                np.subtract(model, gradient, model)
                if plan.tail and k >= steps // 2:
                    np.add(tail, model, tail)
            if plan.tail and steps:
                model[:] = tail / (steps - steps // 2)
            np.subtract(model, first, model)
            return self._change()

    def scores(self, w: Floats32, x: Any) -> Floats32:
        """The scores of the characters that may follow, (n, classes)."""
        codes = self._read(x)
        self._load(w)
        blocks = [codes[k : k + BLOCK] for k in range(0, max(len(codes), 1), BLOCK)]
        with np.errstate(all="ignore"):
            np.add(self._model.w_ih, self._model.b, self._table)
            return np.concatenate([self._score(block) for block in blocks])

    def _score(self, codes: NDArray[np.uint8]) -> Floats32:
        n, w_hh = len(codes), self._model.w_hh.transpose(0, 2, 1)
        cell, h = Cell(n, self.hidden), np.zeros((n, self.hidden), np.float32)
        for t in range(self.window):
            np.take(self._table, codes[:, t], 1, cell.z, "clip")
            cell.z += np.matmul(h, w_hh, cell.spare)
            cell.run(h)
        return h @ self._model.v.T + self._model.a

    def _differentiate(self, codes: NDArray[np.uint8], labels: Codes) -> None:
        """Write the gradient of the mean loss of a batch at `_model` into `_gradient`."""
        if len(codes) not in self._rooms:
            self._rooms[len(codes)] = Room(self.window, len(codes), self.hidden)
        room, columns = self._rooms[len(codes)], codes.T.astype(np.intp, "C")
        self._forward(room, columns)
        self._last_layer(room, labels)
        self._backward(room)
        self._collect(room, columns.ravel())

    def _forward(self, room: Room, codes: Codes) -> None:
        np.add(self._model.w_ih, self._model.b, self._table)
        w_hh, cell, z = self._model.w_hh.transpose(0, 2, 1), room.cell, room.cell.z
        cell.c.fill(0)
        for column, step in zip(codes, room.ahead, strict=True):
            np.matmul(step[0], w_hh, room.product)
            np.take(self._table, column, 1, z, "clip")
            np.add(z, room.used, z)
            cell.run(step[1])
            cell.differentiate(step)

    def _last_layer(self, room: Room, labels: Codes) -> None:
        """Write the gradients of V and a, and the derivative of the loss in the last h."""
        model, h = self._model, room.ahead[-1][1]
        p = h @ model.v.T + model.a
        p -= p.max(axis=1, keepdims=True)
        np.exp(p, p)
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(room.n), labels] -= ONE
        p /= np.float32(room.n)
        np.matmul(p.T, h, self._gradient.v)
        np.sum(p, axis=0, out=self._gradient.a)
        np.matmul(p, model.v, room.dh)

    def _backward(self, room: Room) -> None:
        """Turn `room.dz` from derivatives of the gates into derivatives of the loss."""
        w_hh, product, dh, dc = self._model.w_hh, room.product, room.dh, room.dc
        pair, (half, other) = room.cell.ig_fc, room.cell.ig_fc
        used_gi, used_fo = room.used[:2], room.used[2:]
        dc.fill(0)
        for rows, dz_gif, dz_o, f, u in room.back:
            np.multiply(dh, u, half)
            np.add(dc, half, dc)
            np.multiply(dz_gif, dc, dz_gif)
            np.multiply(dz_o, dh, dz_o)
            np.multiply(dc, f, dc)
            np.matmul(rows, w_hh, product)
            np.add(used_gi, used_fo, pair)
            np.add(half, other, dh)

    def _collect(self, room: Room, codes: Codes) -> None:
        """Sum over steps and examples what they add to the gradients of W_ih, W_hh and b."""
        gradient, n, dz = self._gradient, room.n, room.dz
        np.matmul(dz[:, n:].transpose(0, 2, 1), room.h[n : codes.size], gradient.w_hh)
        seen = np.flatnonzero(np.bincount(codes, minlength=self.classes))
        sums = np.matmul(self._eye[seen][:, codes], dz)
        gradient.w_ih.fill(0)
        gradient.w_ih[:, seen] = sums
        # Both biases move by this much, so their sum moves twice as far.
        np.multiply(np.sum(sums, axis=1, keepdims=True), np.float32(2), gradient.b)

    def _load(self, w: Floats32) -> None:
        """Write the inner form of a flat model into `_model`."""
        w_ih, w_hh, b_ih, b_hh, *last = _views(np.asarray(w, np.float32), self._flat)
        model = self._model
        model.w_ih[:] = _stacked(w_ih).transpose(0, 2, 1)
        model.w_hh[:] = _stacked(w_hh)
        model.b[:, 0] = _stacked(b_ih + b_hh)
        model.v[:], model.a[:] = last

    def _change(self) -> Floats32:
        """The change of a flat model when `_model` is that of the inner form."""
        change = self._model
        half = _unstacked(change.b[:, 0]) / np.float32(2)
        w_ih = _unstacked(change.w_ih.transpose(0, 2, 1))
        parts = [w_ih, _unstacked(change.w_hh), half, half, change.v, change.a]
        return np.concatenate([part.ravel() for part in parts])

    def _read(self, x: Any) -> NDArray[np.uint8]:
        codes = np.asarray(x)[:, : self.window]
        if codes.shape[1] < self.window or codes.max(initial=0) >= self.classes:
            msg = f"x must have at least {self.window} columns of codes below {self.classes}, "
            msg += f"not {codes.shape[1]} columns up to {codes.max(initial=0)}"
            raise ValueError(msg)
        return codes


def _views(vector: Floats32, shapes: Sequence[tuple[int, ...]]) -> list[Floats32]:
    parts = np.split(vector, np.cumsum([prod(shape) for shape in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _stacked(part: Floats32) -> Floats32:
    """Gates i, f, g, o one after the other to the stack g, -i, -f, -o."""
    i, f, g, o = np.split(part, 4)
    return np.stack([g, -i, -f, -o])


def _unstacked(part: Floats32) -> Floats32:
    """The inverse of `_stacked`."""
    g, i, f, o = part
    return np.concatenate([-i, -f, g, -o])
