"""Private aggregators as values: each gets oracles, never updates.

A `SumAggregator` says how it queries a cohort (`layout`), computes an aggregate from the sums
(`aggregate`) and carries a state to the next round (`init`, `next_state`). The lab, Flower and the
planner take the same values. Your own aggregator is one class:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from rfa import PlainOracle
    >>> @dataclass(frozen=True)
    ... class HalfStep(SumAggregator[None]):
    ...     nu: float = 1.0
    ...
    ...     def aggregate(self, oracles, dim, state):
    ...         total = oracles[0](np.zeros(dim), self.nu)
    ...         return self.nu * total.push / total.mass / 2
    >>> result, _ = HalfStep()([PlainOracle(np.eye(3))], 3)
    >>> result.point.round(3), result.calls
    (array([0.167, 0.167, 0.167]), 1)
"""

from __future__ import annotations

import dataclasses
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np

from rfa._checks import check_count
from rfa._types import Array, Vector
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.oracle import TOTALS, RecordingOracle, Sum, SumOracle
from rfa.privacy.noisy_sum import NEAR_FACTOR

State = TypeVar("State")
MIN_NU = 1e-6
"""The smallest radius that devices accept by default."""


@dataclass(frozen=True)
class Layout:
    """How an aggregator queries a cohort in a round: its costs and its needs.

    Attributes:
        parts: the number of disjoint random parts of the cohort, each with its own oracle.
        queries: the most queries that a device answers.
        sequential: whether a part waits for the sums of the parts before it.
    """

    parts: int = 1
    queries: int = 1
    sequential: bool = False

    def __post_init__(self) -> None:
        """Check the counts."""
        check_count("parts", self.parts)
        check_count("queries", self.queries)

    @property
    def calls(self) -> int:
        """The number of sums that wait for each other: the cost of a round in time."""
        return self.queries * (self.parts if self.sequential else 1)


@dataclass(frozen=True)
class Result:
    """The result of an aggregator in a round.

    Attributes:
        point: the aggregate of the updates.
        calls: the number of calls of the oracle that waited for each other.
        certificate: a proven bound on the share of any one device in the last step.
        near: the fraction of the devices that the last sums count as near.
    """

    point: Vector
    calls: int
    certificate: float | None = None
    near: float | None = None


class SumAggregator(ABC, Generic[State]):
    """An aggregator that needs only sums, so it runs under secure aggregation.

    *Formal guarantee*: it gets oracles and no update. Whatever `aggregate` does, it learns the sums
    of at most `layout(m).queries` queries over each of `layout(m).parts` disjoint parts.
    """

    def init(self) -> State:
        """Return the state for the first round: None, or a frozen dataclass of plain values."""
        return cast("State", None)

    def layout(self, devices: int) -> Layout:  # noqa: ARG002
        """Return how it queries a cohort of this size: one part and one query by default."""
        return Layout()

    @abstractmethod
    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: State) -> Vector:
        """Return the aggregate of the updates, relative to the current model.

        Args:
            oracles: an oracle for each part.
            dim: the number of coordinates d.
            state: the state after the round before.

        Raises:
            OracleStoppedError: if the oracles give too few sums.
        """

    def next_state(self, oracles: Sequence[RecordingOracle], state: State) -> State:  # noqa: ARG002
        """Return the state for the next round, from the sums that the oracles gave."""
        return state

    @property
    def statistics(self) -> frozenset[str]:
        """The totals that it reads beside push and count; secure sums hold no others."""
        return TOTALS

    @property
    def block(self) -> int:
        """The number of coordinates in a block with its own radius; 0 for one radius."""
        return 0

    def certificate(self, oracle: RecordingOracle) -> float | None:  # noqa: ARG002
        """Return a proven bound on the share of a device in an oracle's step, or None."""
        return None

    @property
    def min_nu(self) -> float:
        """The smallest radius in its queries."""
        return MIN_NU

    def check_secure(self) -> None:
        """Check that it works with secure sums.

        Raises:
            InvalidValueError: if it does not; the message names the parameter that needs sums in
                the clear.
        """

    def check_noise(self) -> None:
        """Check that it works with noisy sums; the default is that it does.

        Totals with noise may be impossible for any devices: a mass may be negative, and more
        devices may be near than there are. `squares` is not among them.

        Raises:
            InvalidValueError: if it does not; the message names the parameter that needs exact
                sums, and a remedy.
        """

    def __call__(
        self, oracles: Sequence[SumOracle], dim: int, state: State | None = None
    ) -> tuple[Result, State]:
        """Aggregate a round.

        Args:
            oracles: an oracle for each part of the cohort, as many as `layout` says; fewer if there
                are fewer devices than parts.
            dim: the number of coordinates d.
            state: the state after the round before; None for the first round.

        Returns:
            The result, and the state for the next round.

        Raises:
            OracleStoppedError: if the oracles give too few sums; the state stays the same.
            InvalidValueError: if the aggregate is not a vector of `dim` numbers, or if there is a
                part without an oracle.
            InvalidTypeError: if `oracles` is no list.
        """
        check_count("dim", dim)
        before = self.init() if state is None else state
        recorded = _recorded(oracles)
        point = np.asarray(self._aggregated(recorded, dim, before), np.float64)
        if point.shape != (dim,):
            msg = f"{type(self).__name__} must return {dim} numbers, not shape {point.shape}"
            raise InvalidValueError(msg)
        calls = [oracle.calls for oracle in recorded]
        devices = sum(oracle.last.count for oracle in recorded if oracle.last) or len(recorded)
        layout = self.layout(devices)
        if len(recorded) < min(layout.parts, devices):  # more may be of a cohort before drop-outs
            msg = f"{type(self).__name__} has {layout.parts} parts, and takes one oracle for each, "
            raise InvalidValueError(msg + f"not {len(recorded)}")
        if max(calls, default=0) > layout.queries:
            msg = f"{type(self).__name__} made {max(calls)} queries, and its layout says "
            msg += f"{layout.queries}: let layout return Layout(queries={max(calls)})"
            raise InvalidValueError(msg)
        proven = [self.certificate(oracle) for oracle in recorded]
        result = Result(
            point,
            calls=sum(calls) if layout.sequential else max(calls, default=0),
            certificate=max((share for share in proven if share is not None), default=None),
            near=nearness(recorded),
        )
        return result, self.next_state(recorded, before)

    def _aggregated(self, oracles: list[RecordingOracle], dim: int, state: State) -> Vector:
        """Return the aggregate; an error about a missing total says how to request it."""
        try:
            return self.aggregate(oracles, dim, state)
        except TypeError as error:
            sums = [oracle.last for oracle in oracles if oracle.last]
            gone = sorted({name for total in sums for name in TOTALS if _lacks(total, name)})
            if not gone:
                raise
            msg = f"{type(self).__name__} asks for {sorted(self.statistics)} and no {gone}, and "
            msg += f"says: {error}: let its property `statistics` hold all that it reads"
            raise InvalidValueError(msg) from error


def only(oracles: Sequence[RecordingOracle]) -> RecordingOracle:
    """Return the oracle of an aggregator with one part.

    Raises:
        InvalidValueError: if there are more.
    """
    if len(oracles) != 1:
        msg = f"an aggregator with 1 part takes one oracle, not {len(oracles)}"
        raise InvalidValueError(msg)
    return oracles[0]


def nearness(oracles: Sequence[RecordingOracle]) -> float | None:
    """Return the fraction of devices near v in the last sums; the median over parts.

    A count with noise is clipped to the possible range. None if no sum contains it.
    """
    sums = [oracle.last for oracle in oracles if oracle.last]
    known = [total.near / total.count for total in sums if total.near is not None]
    return min(max(statistics.median(known), 0.0), 1.0) if known else None


def near_noise(oracles: Sequence[RecordingOracle]) -> float:
    """Return the standard error of that fraction through noise; 0 for none."""
    sums = [oracle.last for oracle in oracles if oracle.last and oracle.last.near is not None]
    return max((NEAR_FACTOR * total.noise / total.count for total in sums), default=0.0)


def pack_state(state: Any) -> dict[str, Array]:
    """Return a state as named arrays, for checkpoints and messages.

    Raises:
        InvalidValueError: if it is neither None nor a dataclass of numbers, texts and arrays.
    """
    if state is None:
        return {}
    if not dataclasses.is_dataclass(state) or isinstance(state, type):
        msg = f"the state of an aggregator must be None or a dataclass, not {state!r}"
        raise InvalidValueError(msg)
    values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            msg = f"{type(state).__name__}.{name} must be a number, a text or an array of them, "
            msg += f"not {values[name]!r}"
            raise InvalidValueError(msg)
    return arrays


def unpack_state(aggregator: SumAggregator[State], arrays: Mapping[str, Array]) -> State:
    """Return the state that `pack_state` packed; the first state if there are no arrays.

    Raises:
        InvalidValueError: if the arrays belong to another aggregator.
    """
    first: Any = aggregator.init()
    if not arrays or first is None:
        return cast("State", first)
    names = {field.name for field in dataclasses.fields(first)}
    if set(arrays) != names:
        msg = f"{sorted(arrays)} is not a state of {aggregator!r}, which has {sorted(names)}"
        raise InvalidValueError(msg)
    values = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    return type(first)(**values)


def _lacks(total: Sum, name: str) -> bool:
    return getattr(total, name) is None


def _recorded(oracles: Sequence[SumOracle]) -> list[RecordingOracle]:
    """Return oracles that remember their last sums."""
    if not isinstance(oracles, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"oracles must be a list, with one for each part, not {type(oracles).__name__}"
        raise InvalidTypeError(msg)
    if not oracles:
        msg = "an aggregator with 1 part or more takes one oracle for each, not 0"
        raise InvalidValueError(msg)
    return [
        oracle if isinstance(oracle, RecordingOracle) else RecordingOracle(oracle)
        for oracle in oracles
    ]
