"""Order statistics of each coordinate across the points."""
from __future__ import annotations
import numpy as np
from rfa.cloud import Array, Rows
from rfa.kernel import Floats


def column_median(rows: Rows, weights: Floats) -> Array:
    m = np.stack(list(rows)); o = np.argsort(m, axis=0, kind="stable")
    c = np.cumsum(weights[o], axis=0); i = (c >= c[-1] / 2).argmax(0)
    return np.take_along_axis(m, np.take_along_axis(o, i[None], 0), 0)[0]
