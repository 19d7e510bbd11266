"""What fits secure sums, checked before anything is trained, and in which words it is said."""

from __future__ import annotations

import math
from typing import Any

from rfa.aggregators import Layout, SumAggregator
from rfa.errors import InvalidValueError
from rfa.secagg.errors import ParameterError
from rfa.secagg.security.parameters import (
    HONEST_PER_QUERY,
    MAX_MASKED_SUMS,
    MAX_VOTERS,
    ServerModel,
)
from rfa.secagg.security.terms import Terms
from rfa.secagg.weights import EQUAL, ONE_COORDINATE


def make_terms(
    colluder_fraction: float,
    max_dropout_fraction: float,
    server_model: str,
    honest_per_query: int = HONEST_PER_QUERY,
) -> Terms:
    """Terms in the words of the command line, with a quarter of honest devices or the rest."""
    left = 1 - colluder_fraction - max_dropout_fraction
    return Terms(
        colluder_fraction,
        max_dropout_fraction,
        max(0.0, min(0.25, left)),
        ServerModel[server_model.upper().replace("-", "_")],
        honest_per_query=honest_per_query,
    )


def check_fit(  # noqa: PLR0913
    aggregator: SumAggregator[Any],
    terms: Terms,
    *,
    devices: int | None = None,
    max_share: float = 0.0,
    max_queries: int = MAX_MASKED_SUMS,
    weights: str = EQUAL,
) -> None:
    """Check that secure sums under some terms are enough for an aggregator, and promise something.

    Args:
        aggregator: the aggregator.
        terms: whom the secure sum must withstand.
        devices: the devices per round, where they are known.
        max_share: the largest share of a step that a device may have; 0 for any.
        max_queries: the most queries that devices answer in a round.
        weights: how examples make a weight.

    Raises:
        InvalidValueError: naming what does not fit, and what would.
    """
    aggregator.check_secure()
    layout = aggregator.layout(devices or terms.smallest())
    masked_sums = layout.queries * (2 if max_share else 1)
    _check_blocks(aggregator.block, layout.queries, max_share, weights)
    if terms.server_model == ServerModel.MALICIOUS and layout.queries > 1:
        msg = "the protection from a malicious server holds for one query a device, not for "
        msg += f"{layout.queries}: take rfa-one-step, or RFA in sub-cohorts"
        raise InvalidValueError(msg)
    if layout.queries > max_queries:
        msg = f"budget={layout.queries}: devices answer at most {max_queries} queries a round"
        raise InvalidValueError(msg)
    if masked_sums > MAX_MASKED_SUMS:
        msg = f"{layout.queries} queries take {masked_sums} secure sums per round, more than "
        raise InvalidValueError(msg + f"{MAX_MASKED_SUMS}: give a smaller budget")
    if devices is None:
        return
    if layout.parts > devices:
        msg = f"{devices} devices per round cannot form {layout.parts} parts: give fewer parts"
        raise InvalidValueError(msg)
    together = devices // layout.parts
    check_votes(aggregator, devices)
    try:
        terms.parameters(together, layout.queries)
    except ParameterError as error:
        if layout.parts == 1:
            raise
        msg = f"in each of {layout.parts} parts: {error}"
        raise InvalidValueError(msg) from None
    if 0 < max_share < 1 / together:
        least = math.ceil(1000 / together) / 1000
        msg = f"max_share={max_share} cannot hold for {together} devices: give {least} or more"
        raise InvalidValueError(msg)


def _check_blocks(block: int, queries: int, max_share: float, weights: str) -> None:
    """Check what else a round of blocks has; 0 for none.

    Raises:
        InvalidValueError: naming what does not fit.
    """
    if block and (max_share or queries > 1):
        given = f"max_share={max_share:g}" if max_share else f"{queries} queries"
        msg = f"a radius for each block takes one sum per round, without a mass: {given} does not "
        raise InvalidValueError(msg + "fit; give max_share=0, and one query")
    if block == 1 and weights != EQUAL:
        msg = f"weights={weights!r} with a radius for each coordinate: {ONE_COORDINATE}, or blocks "
        raise InvalidValueError(msg + "of 2 or more")


def check_votes(aggregator: SumAggregator[Any], devices: int) -> None:
    """Check that the votes of each part of a cohort, where it votes on blocks, fit into its words.

    Raises:
        InvalidValueError: saying how many groups would do.
    """
    most = math.ceil(devices / aggregator.layout(devices).parts)
    if aggregator.block and most > MAX_VOTERS:
        msg = f"the votes of {most} devices on blocks leave no digits for the push: give groups="
        msg += (
            f"{math.ceil(devices / MAX_VOTERS)} or more, or at most {MAX_VOTERS} devices per round"
        )
        raise InvalidValueError(msg)


def describe_sums(layout: Layout) -> str:
    """What a round asks of devices, in words."""
    count = layout.queries
    sums = "one secure sum" if count == 1 else f"{count} secure sums about the same updates"
    return sums if layout.parts == 1 else f"{sums} in each of {layout.parts} parts"
