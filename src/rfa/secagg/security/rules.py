"""The rules on drop-outs and on further queries, which the server and the sum without masks keep.

Devices keep those on drop-outs, too; how many are beyond a radius they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass

from rfa.oracle import Sum
from rfa.secagg.errors import (
    AbortError,
    ExposingSumError,
    ParameterError,
    SurvivorsChangedError,
    TooFewDevicesError,
)
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.noise import noisy_sum
from rfa.secagg.security.parameters import LEAST_HONEST, Parameters
from rfa.secagg.security.terms import Terms

Members = frozenset[int]


@dataclass(frozen=True)
class Answered:
    """The last query of a round that was answered.

    Attributes:
        queries: how many were, with it.
        nu: its radius.
        total: its sum.
    """

    queries: int
    nu: float
    total: Sum


def agree_on(terms: Terms, joined: int, opening: OpenRound) -> Parameters:
    """The parameters for as many devices as joined a round.

    Raises:
        TooFewDevicesError: if there are none.
        AbortError: if the noise of the round does not fit so many devices.
    """
    if joined < LEAST_HONEST:
        msg = f"{joined} devices joined the round, and at least {LEAST_HONEST} must be honest"
        raise TooFewDevicesError(msg)
    try:
        parameters = terms.parameters(joined, opening.queries)
    except ParameterError as error:
        msg = f"{joined} devices joined the round: {error}"
        raise TooFewDevicesError(msg) from None
    try:
        noisy_sum(opening, parameters)
    except ParameterError as error:
        msg = f"{joined} devices joined the round: {error}"
        raise AbortError(msg) from None
    return parameters


def are_enough(parameters: Parameters, members: Members) -> bool:
    """Whether so few dropped out that a sum over these devices may be opened."""
    return len(members) >= parameters.survivors


def may_follow(
    parameters: Parameters, before: Members | None, now: Members, *, same_query: bool
) -> bool:
    """Whether a sum over these devices may be opened after one over those of the masked sum before.

    The difference of the two sums is about those who left. Near convergence it tells what they
    added, so either nobody left, or so many left together that h of them are honest. Within a query
    nobody may leave: shares of the query are of the total mass that was found for all.
    """
    if before is None or now == before:
        return True
    enough = len(before - now) >= parameters.min_honest + parameters.num_colluders
    return now < before and enough and not same_query


def require_enough(parameters: Parameters, members: Members, what: str) -> None:
    """End the round if too few devices did something.

    Raises:
        TooFewDevicesError: saying what.
    """
    if not are_enough(parameters, members):
        least, cohort = parameters.survivors, parameters.cohort
        msg = f"{len(members)} of {cohort} devices {what}, and at least {least} are needed"
        raise TooFewDevicesError(msg)


def require_same(
    parameters: Parameters, before: Members | None, now: Members, *, same_query: bool
) -> None:
    """End the round if the sum over the survivors would tell on those who left.

    Raises:
        SurvivorsChangedError: saying how many left.
    """
    if not may_follow(parameters, before, now, same_query=same_query):
        gone = len(before or ()) - len(now)
        msg = f"{gone} devices left since the last query, and the next sum would tell on them"
        raise SurvivorsChangedError(msg)


def require_many_beyond(
    parameters: Parameters, last: Answered | None, nu: float, per_query: int
) -> None:
    """End the round if the next sum would tell of the few devices that are beyond the radius.

    Devices within nu of v at two queries add the same to both but for v itself, so that they cancel
    in the difference, however many they are: it is about the others. So half as many honest devices
    as a query takes must be beyond the radius for each query that was answered. They are counted as
    those beyond REACH nu, which are fewer. A smaller radius than the last one is not held up: who
    is beyond it is not known. Nor is a sum with noise, which hides them by itself, and is charged.

    Args:
        parameters: those of the cohort.
        last: the last query that was answered; None before the first.
        nu: the radius of the next.
        per_query: the honest devices for each query after the first; 0 for no rule.

    Raises:
        ExposingSumError: saying how many there are.
    """
    if last is None or last.total.noise or nu < last.nu or not per_query:
        return
    needed = last.queries * per_query // 2
    near = last.total.near
    beyond = 0 if near is None else last.total.count - near
    honest = beyond - parameters.num_colluders
    if honest < needed:
        msg = (
            f"{max(honest, 0)} honest devices are sure to be beyond the radius {nu:g}, and another "
            f"sum tells of them unless {needed} are: the sums so far stand"
        )
        raise ExposingSumError(msg)
