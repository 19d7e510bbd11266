"""Aggregators that draw at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rfa._checks import check_count


@dataclass(frozen=True)
class Randomized:
    """Gives an aggregator the parameter `seed`.

    Attributes:
        seed: decides what is drawn. A whole number draws the same in each call; a generator goes on
            from call to call. The lab draws anew in each round, by the seed of the run.
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
        """Where random numbers come from."""
        if isinstance(self.seed, np.random.Generator):
            return self.seed
        return np.random.default_rng(self.seed)
