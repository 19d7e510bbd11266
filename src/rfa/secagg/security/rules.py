"""The rules on drop-outs and further queries, for the server and for the sum without masks.

Devices also check the rules on drop-outs. They cannot check how many devices are beyond a radius.
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
    """The last answered query of a round.

    Attributes:
        queries: the number of answered queries, including this one.
        nu: its radius.
        total: its sum.
    """

    queries: int
    nu: float
    total: Sum


def agree_on(terms: Terms, joined: int, opening: OpenRound) -> Parameters:
    """Return the parameters for the number of devices that joined a round.

    Raises:
        TooFewDevicesError: if no parameters are safe.
        AbortError: if the noise of the round does not fit this number of devices.
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
    """Return whether enough devices are left that their sum may be opened."""
    return len(members) >= parameters.survivors


def needed_answers(parameters: Parameters, members: Members, *, free: bool) -> int:
    """Return how many devices must answer: all, unless a loss here has no consequences.

    Between two queries no device may be lost, or the next sum would reveal it.
    """
    return min(len(members), parameters.survivors) if free else len(members)


def may_follow(
    parameters: Parameters, before: Members | None, now: Members, *, same_query: bool
) -> bool:
    """Return whether a sum over these devices may be opened after the masked sum before.

    The difference of the two sums is about the devices that left. Near convergence it reveals their
    inputs. So either nobody left, or enough devices left together that h of them are honest. Within
    a query nobody may leave, because shares are fractions of the total mass of all.
    """
    if before is None or now == before:
        return True
    enough = len(before - now) >= parameters.min_honest + parameters.num_colluders
    return now < before and enough and not same_query


def require_enough(parameters: Parameters, members: Members, what: str) -> None:
    """End the round if too few devices did something.

    Raises:
        TooFewDevicesError: saying what they did.
    """
    if not are_enough(parameters, members):
        least, cohort = parameters.survivors, parameters.cohort
        msg = f"{len(members)} of {cohort} devices {what}, and at least {least} are needed"
        raise TooFewDevicesError(msg)


def require_same(
    parameters: Parameters, before: Members | None, now: Members, *, same_query: bool
) -> None:
    """End the round if the sum over the survivors would reveal the devices that left.

    Raises:
        SurvivorsChangedError: saying how many left.
    """
    if not may_follow(parameters, before, now, same_query=same_query):
        gone = len(before or ()) - len(now)
        msg = f"{gone} devices left since the last query, and the next sum would reveal them"
        raise SurvivorsChangedError(msg)


def require_many_beyond(
    parameters: Parameters, last: Answered | None, nu: float, per_query: int
) -> None:
    """End the round if the next sum would reveal the few devices that are beyond the radius.

    Devices within nu of v at two queries add the same to both, except for v itself, so they cancel
    in the difference. The difference is about the other devices. So for each answered query, half
    as many honest devices as a query takes must be beyond the radius. The rule counts those beyond
    REACH nu, which are fewer. It does not apply to a smaller radius than the last one, because
    nobody knows how many devices are beyond that, nor to a sum with noise, which hides them and is
    charged.

    Args:
        parameters: those of the cohort.
        last: the last answered query; None before the first.
        nu: the radius of the next query.
        per_query: the honest devices for each query after the first; 0 for no rule.

    Raises:
        ExposingSumError: saying how many devices there are.
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
            f"sum reveals them unless {needed} are: the sums so far stay valid"
        )
        raise ExposingSumError(msg)
