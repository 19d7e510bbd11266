"""Whether an aggregator and options fit together, and how many nodes they need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rfa._checks import check_count, check_number
from rfa.aggregators import Layout, SumAggregator
from rfa.aggregators.partition import LEAST_GROUPS
from rfa.errors import InvalidValueError
from rfa.flower import records
from rfa.flower.checks import check_keys
from rfa.flower.options import SecureOptions
from rfa.planning import check_fit, describe_sums


def check_strategy(
    aggregator: SumAggregator[Any], secure: SecureOptions, fedavg: dict[str, Any], max_queries: int
) -> None:
    """Check that an aggregator and options fit together, and fill in the least numbers of nodes.

    Raises:
        InvalidValueError: if they do not; the message names the option.
    """
    check_fit(
        aggregator,
        secure.terms,
        max_share=secure.max_share,
        max_queries=max_queries,
        weights=secure.weights,
    )
    if secure.has_noise:
        aggregator.check_noise()
        if fedavg.get("fraction_evaluate"):
            msg = f"fraction_evaluate={fedavg['fraction_evaluate']}: metrics of nodes are exact, "
            msg += "and no noise covers them: give 0, or none, and evaluate_fn to start()"
            raise InvalidValueError(msg)
    parts = aggregator.layout(secure.terms.smallest()).parts
    if secure.num_liars is not None and parts < LEAST_GROUPS:
        msg = f"num_liars={secure.num_liars}: liars in sums are found by random groups, "
        msg += f"{LEAST_GROUPS} or more: give groups={LEAST_GROUPS} or more, or no num_liars"
        raise InvalidValueError(msg)
    check_keys(fedavg)
    _check_metrics(secure, fedavg)
    _check_fractions(fedavg)
    _fill_in_nodes(aggregator, secure, fedavg)


def _check_metrics(secure: SecureOptions, fedavg: Mapping[str, Any]) -> None:
    """Check that no option asks for metrics of single nodes, or quantiles of their examples."""
    weight = fedavg.get("weighted_by_key", records.WEIGHTED_BY)
    if weight in secure.histograms.names:
        msg = f"robust_metrics[{weight!r}]: it counts the examples (weighted_by_key), and no sum "
        raise InvalidValueError(msg + "is about it: name metrics that nodes return beside it")
    for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
        if fedavg.get(name) is not None:
            msg = (
                f"{name} would need the metrics of single nodes, and there are only sums of them: "
            )
            msg += "on_round gets the means after each round"
            raise InvalidValueError(msg)


def _check_fractions(fedavg: Mapping[str, Any]) -> None:
    for name in ("fraction_train", "fraction_evaluate"):
        check_number(name, fedavg.get(name, 1.0))
        if fedavg.get(name, 1.0) > 1:
            msg = f"{name} must be at most 1, not {fedavg[name]}"
            raise InvalidValueError(msg)


def _fill_in_nodes(
    aggregator: SumAggregator[Any], secure: SecureOptions, fedavg: dict[str, Any]
) -> None:
    """Fill in the least numbers of nodes, which follow from the layout of a cohort."""
    terms = secure.terms
    layout = aggregator.layout(terms.smallest())
    sums = {
        "min_train_nodes": layout,
        "min_evaluate_nodes": Layout(),
        "min_available_nodes": layout,
    }
    for name, asked in sums.items():
        least = asked.parts * max(terms.smallest(asked.queries), _sharers(secure.max_share))
        check_count(name, fedavg.setdefault(name, least))
        if fedavg[name] < least:
            msg = f"{name}={fedavg[name]}: {least} nodes or more are needed under {terms} for "
            raise InvalidValueError(msg + needs_of(asked, secure.max_share) + remedy_of(asked))


def needs_of(layout: Layout, max_share: float) -> str:
    """Return in words why nodes are needed."""
    sums = describe_sums(layout)
    if not max_share:
        return sums
    return f"{sums} with max_share={max_share:g}: of n nodes in a sum one has 1/n of it or more"


def _sharers(max_share: float) -> int:
    """Return the least number of nodes in a sum such that none needs a larger share."""
    return math.ceil(1 / max_share - 1e-9) if max_share else 0


def remedy_of(layout: Layout) -> str:
    """Return what to use if there are too few nodes for the queries of a layout."""
    if layout.queries == 1:
        return ""
    return (
        "; OneStepRFA() and schedule='sub-cohorts' ask each node once, as the text 'rfa:budget=1' "
        "does, and need fewer"
    )
