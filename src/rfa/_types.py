"""The array types, once for the whole house."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Vector: TypeAlias = Floats
"""A point of the model's space, as one flat array."""
