"""The order of requests: the one that a device answers next, and what it has answered."""

from __future__ import annotations

from rfa.secagg.device.memory import Memory
from rfa.secagg.errors import AskedTwiceError, OtherSessionError, OutOfStageError
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import FirstSum
from rfa.secagg.messages.stages import LEFT, START, Moment, Stage, moment_of
from rfa.secagg.security.parameters import ServerModel


def opening_of(memory: Memory) -> OpenRound:
    """Return the opening that a device accepted."""
    return decode_as(OpenRound, memory.opening)


def is_over(memory: Memory) -> bool:
    """Return whether a device has answered all requests of a round."""
    due = memory.due
    return due > START and due >= Moment(opening_of(memory).masked_sums, Stage.SUM)


def check_due(message: Message, memory: Memory, *, abstains: bool) -> None:
    """Check that a message is of this session, due now, and new.

    Args:
        message: the message.
        memory: the state of the device.
        abstains: whether the device has no input.

    Raises:
        OutOfStageError, OtherSessionError, AskedTwiceError: if it is not; the message says why.
    """
    name, due, asked = type(message).__name__, memory.due, moment_of(message)
    if isinstance(message, OpenRound) and due == Moment(0, Stage.ROSTER):
        return  # only keys were sent in the round before: joining checks that this one is later
    if asked is None:
        msg = f"{name} is not a request to a device"
        raise OutOfStageError(msg)
    if due > START and message.session != opening_of(memory).session:
        msg = f"{name} of session {message.session.hex()}, which is not that of this round"
        raise OtherSessionError(msg)
    if due == LEFT:
        msg = f"{name} is asked of a device that has left the round"
        raise OutOfStageError(msg)
    if asked < due:
        msg = f"{name} was asked before, with another request"
        raise AskedTwiceError(msg)
    late = asked > due and not _may_regroup(asked, memory)
    wrong = due > START and isinstance(message, FirstSum) != _is_first(asked, memory)
    if late or wrong or is_over(memory) or (due > START and abstains):
        msg = f"{name} is asked out of order: it is at {asked}, and {due} is due"
        raise OutOfStageError(msg)


def released(before: Memory, after: Memory) -> bool:
    """Return whether the device released shares between two memories."""
    return before.due.stage == Stage.UNMASK and after.roster == before.roster


def may_take_back(memory: Memory) -> bool:
    """Return whether a server may say that no sum of a round was opened.

    A malicious server may not. A device that opened a sum itself, or has left since, knows better.
    """
    if not memory.opening or memory.due == LEFT or memory.survivors:
        return False
    return opening_of(memory).server_model == ServerModel.SEMI_HONEST


def _may_regroup(asked: Moment, memory: Memory) -> bool:
    """Return whether a roster may replace that of a fast sum, which is then never opened."""
    if memory.due != Moment(0, Stage.UNMASK):
        return False
    opening = opening_of(memory)
    return bool(opening.fast) and asked == Moment(opening.each_roster, Stage.ROSTER)


def _is_first(asked: Moment, memory: Memory) -> bool:
    """Return whether a roster comes with the first sum, as in fast rounds."""
    return asked == Moment(0, Stage.ROSTER) and bool(opening_of(memory).fast)
