"""The form of a vector in a masked sum: words of 32 bits, and a tail of whole numbers of 128 bits.

This module does not import the masks, so counting bytes needs no cipher.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

WORD = np.dtype("<u4")
TAIL = 1 << 128
TAIL_BYTES = 16
