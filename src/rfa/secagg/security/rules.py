"""The rules on drop-outs, which devices, server and the sum without masks all keep."""

from __future__ import annotations

from rfa.secagg.errors import ParameterError, SurvivorsChangedError, TooFewDevicesError
from rfa.secagg.security.parameters import LEAST_HONEST, Parameters
from rfa.secagg.security.terms import Terms

Members = frozenset[int]


def agree_on(terms: Terms, joined: int, queries: int) -> Parameters:
    """The parameters for as many devices as joined a round of so many queries.

    Raises:
        TooFewDevicesError: if there are none.
    """
    if joined < LEAST_HONEST:
        msg = f"{joined} devices joined the round, and at least {LEAST_HONEST} must be honest"
        raise TooFewDevicesError(msg)
    try:
        return terms.parameters(joined, queries)
    except ParameterError as error:
        msg = f"{joined} devices joined the round: {error}"
        raise TooFewDevicesError(msg) from None


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
