"""The stages of a round, in the order in which a server asks."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rfa.secagg.messages.codec import U32, Field
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import (
    FirstSum,
    OpenFirstSum,
    Roster,
    SumRequest,
    SurvivorList,
    Unmask,
)
from rfa.secagg.security.parameters import MAX_MASKED_SUMS


class Stage(enum.IntEnum):
    """The kind of request to a device; SUM, SURVIVORS and UNMASK repeat in each masked sum."""

    OPEN = 0
    ROSTER = 1
    SUM = 2
    SURVIVORS = 3
    UNMASK = 4
    LEFT = 5
    """The device has left the round and expects nothing."""


@dataclass(frozen=True, order=True)
class Moment:
    """A stage of a masked sum of a round; moments are ordered in time.

    >>> Moment(0, Stage.UNMASK) < Moment(1, Stage.SUM)
    True

    Attributes:
        masked_sum: the index of the masked sum in the round; also 0 before the first one.
        stage: the stage.
    """

    masked_sum: int
    stage: Stage

    @property
    def number(self) -> int:
        """The number of moments before it in a round."""
        if self.stage is Stage.LEFT:
            return _LEFT
        return _EACH * self.masked_sum + self.stage

    @classmethod
    def numbered(cls, number: int) -> Moment:
        """Return the moment with this number of moments before it.

        >>> Moment.numbered(5)
        Moment(masked_sum=1, stage=<Stage.SUM: 2>)
        """
        if number == _LEFT:
            return LEFT
        if number < Stage.SUM:
            return cls(0, Stage(number))
        masked_sum, stage = divmod(number - Stage.SUM, _EACH)
        return cls(masked_sum, Stage(Stage.SUM + stage))


_EACH = len((Stage.SUM, Stage.SURVIVORS, Stage.UNMASK))
_LEFT = (1 << 32) - 1
START = Moment(0, Stage.OPEN)
LEFT = Moment(MAX_MASKED_SUMS, Stage.LEFT)
"""The moment after all others."""
MOMENT = Field(
    lambda moment: U32.write(moment.number), lambda reader: Moment.numbered(U32.read(reader)), 4
)
_STAGES: dict[type[Message], Stage] = {
    OpenRound: Stage.OPEN,
    OpenFirstSum: Stage.OPEN,
    Roster: Stage.ROSTER,
    FirstSum: Stage.ROSTER,
    SumRequest: Stage.SUM,
    SurvivorList: Stage.SURVIVORS,
    Unmask: Stage.UNMASK,
}


def moment_of(message: Message) -> Moment | None:
    """Return the moment of a request in a round; None if the message is a reply."""
    stage = _STAGES.get(type(message))
    return None if stage is None else Moment(getattr(message, "masked_sum", 0), stage)
