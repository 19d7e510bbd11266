"""Aggregators with randomness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rfa._checks import check_count


@dataclass(frozen=True)
class Randomized:
    """Adds the parameter `seed` to an aggregator.

    Attributes:
        seed: decides the random choices. A whole number repeats them in each call; a generator
            continues from call to call. The lab makes new ones in each round, from the seed of the
            run.
    """

    set_in_rounds: ClassVar[tuple[str, ...]] = ("seed",)
    """Parameters that a run sets in each round, and a text cannot."""
    seed: int | np.random.Generator = field(default=0, kw_only=True)

    def check_seed(self) -> None:
        """Check the seed.

        Raises:
            ValueError, TypeError: if it is neither a whole number nor a generator.
        """
        if not isinstance(self.seed, np.random.Generator):
            check_count("seed", self.seed, least=0)

    def rng(self) -> np.random.Generator:
        """Return the generator of random numbers."""
        if isinstance(self.seed, np.random.Generator):
            return self.seed
        return np.random.default_rng(self.seed)
