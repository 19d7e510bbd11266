"""Convolutions of 5 x 5 by matrix products, in numpy: of a picture, and of many channels.

Arrays have the examples last, so every step is one large product or runs along contiguous memory.
Values before a 2 x 2 pooling have the shape (4, ...): the four positions of a window first.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from rfa._types import Array, Floats, Floats32, Ints

KERNEL, MARGIN = 5, 2
POOL = 2
WINDOW = KERNEL + POOL - 1
"""The side of the window of the picture that decides a pooled value."""


def pool(values: Floats32) -> Floats32:
    """Return the largest of each window, or 0 if that is larger: pooling and ReLU commute."""
    top = np.maximum.reduce(values, axis=0)
    return np.maximum(top, 0, out=top)


def unpool(values: Floats32, top: Floats32, gradient: Floats32) -> Floats32:
    """Return the gradient in the values from that in the result of `pool`.

    The first of the largest gets it, as in torch, and none does where ReLU is zero.
    """
    left = gradient * (top > 0)
    back = np.empty_like(values)
    for here, value in zip(back[:-1], values[:-1], strict=True):
        np.multiply(left, value == top, out=here)
        left -= here
    back[-1] = left
    return back


@final
class PictureConvolution:
    """Kernels over pictures of one channel, for a pooling that follows.

    A pooled value depends on a window of 6 x 6 pixels, and its four values before the pooling are
    linear in that window: one product with a matrix that has each kernel four times.
    """

    def __init__(self, side: int, kernels: int) -> None:
        self._side, self._kernels = side, kernels

    def windows(self, pictures: Floats32) -> Floats32:
        """Return the windows of pictures (n, side^2) as columns, and a row of ones for biases."""
        side, half, n = self._side, self._side // POOL, len(pictures)
        padded = np.zeros((side + 2 * MARGIN, side + 2 * MARGIN, n), np.float32)
        padded[MARGIN:-MARGIN, MARGIN:-MARGIN] = pictures.T.reshape(side, side, n)
        seen = np.ones((WINDOW * WINDOW + 1, half, half, n), np.float32)
        for i in range(WINDOW):
            for j in range(WINDOW):
                rows, columns = slice(i, i + side, POOL), slice(j, j + side, POOL)
                seen[i * WINDOW + j] = padded[rows, columns]
        return seen.reshape(len(seen), -1)

    def matrix(self, kernels: Floats32, biases: Floats32) -> Floats32:
        """Return the matrix for products with windows: rows are positions and kernels."""
        spread = np.zeros((POOL, POOL, self._kernels, WINDOW, WINDOW), np.float32)
        for i, j in np.ndindex(POOL, POOL):
            spread[i, j, :, i : i + KERNEL, j : j + KERNEL] = kernels
        flat = spread.reshape(POOL * POOL * self._kernels, -1)
        return np.hstack([flat, np.tile(biases, POOL * POOL)[:, None]])

    def gradients(self, matrix: Floats32) -> tuple[Floats32, Floats32]:
        """Return the gradients in kernels and biases from that in the matrix."""
        spread = matrix[:, :-1].reshape(POOL, POOL, self._kernels, WINDOW, WINDOW)
        parts = [spread[i, j, :, i : i + KERNEL, j : j + KERNEL] for i, j in np.ndindex(POOL, POOL)]
        biases = matrix[:, -1].reshape(POOL * POOL, self._kernels).sum(axis=0)
        return np.add.reduce(parts), biases


@final
class Transform:
    """Sums of pixels with cosines, and with sines.

    Pixels are symmetric about the center, where the angles are 0: cosines need the sum of two
    opposite pixels, sines their difference. So both are products of half the size.
    """

    def __init__(self, cosines: Floats, sines: Floats) -> None:
        self._half = cosines.shape[1] // 2
        self._cosines = cosines[:, : self._half].astype(np.float32)
        self._sines = sines[:, : self._half].astype(np.float32)

    def __call__(self, pixels: Floats32) -> Floats32:
        """Return the transform (frequencies, 2 channels, n) of pixels (points, channels, n)."""
        _, channels, n = pixels.shape
        flat = pixels.reshape(len(pixels), -1)
        near, far = flat[: self._half], flat[: self._half - 1 : -1]
        spectrum = np.empty((len(self._cosines), 2, channels * n), np.float32)
        np.matmul(self._cosines, near + far, out=spectrum[:, 0])
        np.matmul(self._sines, near - far, out=spectrum[:, 1])
        return spectrum.reshape(-1, 2 * channels, n)

    def adjoint(self, spectrum: Floats32) -> Floats32:
        """Return the adjoint: pixels from a spectrum."""
        count, channels, n = spectrum.shape
        parts = spectrum.reshape(count, 2, -1)
        even, odd = self._cosines.T @ parts[:, 0], self._sines.T @ parts[:, 1]
        flat = np.empty((2 * self._half, even.shape[1]), np.float32)
        np.add(even, odd, out=flat[: self._half])
        np.subtract(even, odd, out=flat[: self._half - 1 : -1])
        return flat.reshape(-1, channels // 2, n)


@final
class FourierConvolution:
    """Kernels over pictures of many channels, by the convolution theorem.

    On a circle of side + 2 points a kernel of 5 never wraps around to a pixel, so convolution is a
    product at each frequency: for pictures of 14 x 14 a ninth of the arithmetic, and a third with
    the transforms, which are products with constant matrices. Of two conjugate frequencies one is
    kept, with its complex numbers as real ones, so a spectrum is (frequency, 2 channels, n): real
    parts of all channels, then imaginary ones. The backward pass is the adjoint of each step.
    """

    def __init__(self, side: int) -> None:
        circle = side + MARGIN
        self._points = circle * circle
        u, v, twice = _frequencies(circle)
        self._count = len(u)
        rows = np.arange(side * side).reshape(side // POOL, POOL, side // POOL, POOL)
        self._order = rows.transpose(1, 3, 0, 2).reshape(POOL * POOL, -1)
        i, j = ((side - 1) / 2 - axis.ravel() for axis in np.indices((side, side)))
        self._to = Transform(*_waves(u, v, i, j, circle))
        order = self._order.ravel()
        scale = (twice / self._points)[:, None]
        cosines, sines = _waves(u, v, i[order], j[order], circle)
        self._from = Transform(scale * cosines, scale * sines)
        i, j = (axis.ravel() - MARGIN for axis in np.indices((KERNEL, KERNEL)))
        taps = np.stack(_waves(u, v, i, j, circle), axis=1)
        self._taps = taps.reshape(2 * self._count, -1).astype(np.float32)

    def spectrum(self, pictures: Floats32) -> Floats32:
        """Return the spectrum of pictures (side^2, channels, n)."""
        return self._to(pictures)

    def from_spectrum(self, spectrum: Floats32) -> Floats32:
        """Return the gradient in pictures from that in their spectrum."""
        return self._to.adjoint(spectrum)

    def filters(self, kernels: Floats32) -> Floats32:
        """Return kernels (outputs, channels, 5, 5) as matrices for products with spectra."""
        outputs, channels = kernels.shape[:2]
        flat = kernels.reshape(outputs * channels, -1)
        parts = (self._taps @ flat.T).reshape(self._count, 2, outputs, channels)
        filters = np.empty((self._count, 2, outputs, 2, channels), np.float32)
        filters[:, 0, :, 0] = filters[:, 1, :, 1] = parts[:, 0]
        filters[:, 1, :, 0] = parts[:, 1]
        np.negative(parts[:, 1], out=filters[:, 0, :, 1])
        return filters.reshape(self._count, 2 * outputs, 2 * channels)

    def kernels(self, filters: Floats32) -> Floats32:
        """Return the gradient in kernels from that in their filters."""
        _, outputs, channels = filters.shape
        blocks = filters.reshape(self._count, 2, outputs // 2, 2, channels // 2)
        parts = np.empty((self._count, 2, outputs // 2, channels // 2), np.float32)
        np.add(blocks[:, 0, :, 0], blocks[:, 1, :, 1], out=parts[:, 0])
        np.subtract(blocks[:, 1, :, 0], blocks[:, 0, :, 1], out=parts[:, 1])
        flat = parts.reshape(2 * self._count, -1).T @ self._taps
        return flat.reshape(outputs // 2, channels // 2, KERNEL, KERNEL)

    def values(self, spectrum: Floats32, biases: Floats32) -> Floats32:
        """Return the values before pooling (4, pooled, outputs, n); the spectrum is overwritten."""
        _, outputs, n = spectrum.shape
        spectrum[0, : outputs // 2] += np.float32(self._points) * biases[:, None]
        return self._from.adjoint(spectrum).reshape(POOL * POOL, -1, outputs // 2, n)

    def blank(self, pictures: Floats32) -> NDArray[np.bool_]:
        """Return which values have only zeros under their kernels.

        They equal their bias exactly, and the derivative of ReLU depends on an exact 0.
        """
        side, n = math.isqrt(len(pictures)), pictures.shape[-1]
        ink = (np.maximum.reduce(pictures, axis=1) != 0).reshape(side, side, n)
        for _ in range(2):
            wide = np.zeros((side + 2 * MARGIN, *ink.shape[1:]), np.bool_)
            wide[MARGIN:-MARGIN] = ink
            near = np.logical_or.reduce([wide[k : k + side] for k in range(KERNEL)])
            ink = near.swapaxes(0, 1)
        return ~ink.reshape(side * side, n)[self._order]

    def from_values(self, values: Floats32) -> tuple[Floats32, Floats32]:
        """Return the gradients in spectrum and biases from that in the values."""
        _, _, outputs, n = values.shape
        spectrum = self._from(values.reshape(-1, outputs, n))
        return spectrum, np.float32(self._points) * spectrum[0, :outputs].sum(axis=1)


def _frequencies(circle: int) -> tuple[Ints, Ints, Ints]:
    """Return one of each pair of conjugate frequencies, 0 first, and how many each stands for."""
    u, v = (axis.ravel() for axis in np.indices((circle, circle)))
    mirrored = -u % circle * circle + -v % circle
    own = u * circle + v
    kept = own <= mirrored
    return u[kept], v[kept], np.where(own == mirrored, 1, 2)[kept]


def _waves(u: Ints, v: Ints, i: Array, j: Array, circle: int) -> tuple[Floats, Floats]:
    """Return cosine and sine of each frequency (u, v), one per row, at each point (i, j)."""
    angles = 2 * np.pi / circle * (np.outer(u, i) + np.outer(v, j))
    return np.cos(angles), np.sin(angles)
