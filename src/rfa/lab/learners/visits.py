"""The batches of local training, arranged so that each is a slice of one order of examples."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import final, overload

import numpy as np
from numpy.typing import NDArray

from rfa._types import Ints

Batch = NDArray[np.int64]


@final
class Visits(Sequence[Batch]):
    """The batch of each step; a repeated batch is the same array.

    Attributes:
        order: the rows of the different batches, one batch after the other.
        spans: for each different batch its first row in that order, and the one after its last.
        turns: for each step the index of its batch.
        is_disjoint: whether different batches have no example in common, and no batch has one
            twice.
    """

    def __init__(
        self,
        order: Ints,
        spans: Sequence[tuple[int, int]],
        turns: Sequence[int],
        *,
        is_disjoint: bool,
    ) -> None:
        self.order, self.spans, self.turns = order, spans, turns
        self.is_disjoint = is_disjoint

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> Visits:
        """Return the arrangement of batches; a repeated array is arranged once."""
        if isinstance(batches, Visits):
            return batches
        places: dict[int, int] = {}
        parts, spans, stop = [np.empty(0, np.int64)], list[tuple[int, int]](), 0
        for batch in batches:
            if id(batch) not in places:
                places[id(batch)] = len(spans)
                spans.append((stop, stop + len(batch)))
                stop += len(batch)
                parts.append(batch)
        order = np.concatenate(parts)
        turns = [places[id(batch)] for batch in batches]
        return cls(order, spans, turns, is_disjoint=len(np.unique(order)) == len(order))

    @classmethod
    def cut(cls, order: Ints, size: int, steps: int) -> Visits:
        """Split different rows into batches of a size, the last perhaps smaller, for some steps.

        The steps take one batch after the other, and start over after the last one.
        """
        spans, turns = _cut(len(order), size, steps)
        return cls(order[: spans[-1][1]] if spans else order[:0], spans, turns, is_disjoint=True)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.turns)

    @overload
    def __getitem__(self, step: int) -> Batch: ...
    @overload
    def __getitem__(self, step: slice) -> list[Batch]: ...
    def __getitem__(self, step: int | slice) -> Batch | list[Batch]:
        """Return the batch of a step, or those of several."""
        if isinstance(step, slice):
            return [self._parts[turn] for turn in self.turns[step]]
        return self._parts[self.turns[step]]

    @functools.cached_property
    def _parts(self) -> list[Batch]:
        return [self.order[start:stop] for start, stop in self.spans]


@functools.lru_cache(maxsize=4096)
def _cut(count: int, size: int, steps: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return spans and turns, which depend only on these numbers."""
    spans = [(start, min(start + size, count)) for start in range(0, count, size)][:steps]
    return spans, [step % len(spans) for step in range(steps)] if spans else []
