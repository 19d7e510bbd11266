"""The options of a strategy, and the checks of them before a round is played."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from flwr.app import ArrayRecord, MetricRecord

from rfa._checks import check_choice, check_count, check_number
from rfa._files import as_path
from rfa.aggregators import Layout, SumAggregator
from rfa.aggregators.partition import LEAST_GROUPS
from rfa.aggregators.server_optimizer import ServerOptimizer, build_optimizer
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.flower import records
from rfa.flower.checks import ON_ROUND, check_hook, check_keys
from rfa.flower.histograms import BINS, Histograms, histograms_of
from rfa.flower.metric_bounds import metric_bounds_of
from rfa.flower.noise import wants_noise
from rfa.planning import check_fit, describe_sums
from rfa.privacy.budget import DELTA
from rfa.privacy.zcdp import check_delta
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import LARGEST_COHORT, ServerModel
from rfa.secagg.security.terms import Terms
from rfa.secagg.weights import EQUAL, EXAMPLE_CAP, EXAMPLES, MODES, cap_fault

OnRound = Callable[[int, ArrayRecord, MetricRecord | None, MetricRecord | None], bool | None]
"""What is called after a round."""


class StrategyOptions(TypedDict, total=False):
    """What every strategy takes: the fields of `SecureOptions`, and the options of FedAvg."""

    example_cap: float
    weights: str
    robust_metrics: Mapping[str, tuple[float, float]] | None
    metric_bins: int
    metric_bounds: Mapping[str, tuple[float, float]] | None
    server_optimizer: ServerOptimizer | str | None
    on_round: OnRound | None
    personal: str
    terms: Terms
    identities: Identities | None
    max_share: float
    stage_timeout: float
    stage_grace: float
    num_liars: int | None
    epsilon: float | None
    delta: float
    noise_multiplier: float | None
    node_timeout: float
    checkpoint: Path | str | None
    receipts: Path | str | None
    receipts_identity: Path | str | None
    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: Callable[..., Any] | None
    evaluate_metrics_aggr_fn: Callable[..., Any] | None


@dataclass(frozen=True, kw_only=True)
class SecureOptions:
    """The options of a strategy beside those of Flower's FedAvg.

    Attributes:
        example_cap: the most examples that count: a public number, by which weights are divided.
            Weights far below it lose digits. A power of two, where weights are buckets.
        weights: how examples make a weight. "examples": min(N, cap) / cap, as Flower's users
            expect; the total weights of rounds that differ by one node tell how many examples it
            has. "buckets": the same for a power of two beside N, which each node draws once and
            keeps; such rounds tell that power, whatever the caps. "equal": 1 for every node that
            has an example; nothing is left to learn.
        robust_metrics: bounds by name, such as {"loss": (0.0, 10.0)}: medians and quantiles of
            these metrics over nodes, beside their means. The server learns how many nodes are in
            each bin between the bounds.
        metric_bins: the bins between them, a power of two: the resolution of quantiles.
        metric_bounds: bounds by name, such as {"loss": (0.0, 10.0)}: what a node has beyond them
            counts as the bound in means.
        server_optimizer: what is done with the aggregate: "momentum", "adam", "yogi", with
            parameters as in "adam:learning_rate=0.05", or a `ServerOptimizer`; None to add it to
            the model.
        on_round: is called after each round with its number, the model, and the metrics of
            training and evaluation, None where there are none; True ends the run.
        personal: a name under which each node keeps parameters of its own (Algorithm 4): the app
            then trains and evaluates the model plus those. Empty for none.
        terms: what the secure sum must withstand.
        identities: the public identities of nodes, where these do not trust the server.
        max_share: the largest share of a step that a node may have, which doubles the sums; 0 for
            any. Nodes whose policy has a `max_share` ask for one.
        stage_timeout: seconds to wait for the answers to a stage of the secure sum.
        stage_grace: seconds to wait for the others once so many nodes have answered a stage that
            the round can go on without them; who is later has lost its place in the round.
        num_liars: how many nodes may lie together inside of sums, for the ledger of suspicion;
            None for as many as the groups withstand. Fewer are found sooner.
        epsilon: the budget of a node: what all rounds of the run together may tell the server of
            it, as differential privacy at `delta`. Nodes add noise to what they send, weights are
            equal, and there are no metrics of nodes, which would be exact. None for no budget.
        delta: the probability that is left out.
        noise_multiplier: the noise of a sum over what one node can add to it; by default what
            `epsilon` takes where every node is in every round. With both, the run stops when the
            budget is spent. None, without an epsilon, for no noise.
        node_timeout: seconds to wait for enough nodes, before a round is skipped.
        checkpoint: the file from which a server that was restarted goes on.
        receipts: the folder for a signed record of each round, which `rfa verify` checks; None for
            none. Publishing it publishes the sums.
        receipts_identity: the folder of the identity that signs them, which is made if there is
            none; by default `server` in RFA_HOME or ~/.rfa.
    """

    example_cap: float = EXAMPLE_CAP
    weights: str = EXAMPLES
    robust_metrics: Mapping[str, tuple[float, float]] | None = None
    metric_bins: int = BINS
    metric_bounds: Mapping[str, tuple[float, float]] | None = None
    server_optimizer: ServerOptimizer | str | None = None
    on_round: OnRound | None = None
    personal: str = ""
    terms: Terms = field(default_factory=Terms)
    identities: Identities | None = None
    max_share: float = 0.0
    stage_timeout: float = 120.0
    stage_grace: float = 10.0
    num_liars: int | None = None
    epsilon: float | None = None
    delta: float = DELTA
    noise_multiplier: float | None = None
    node_timeout: float = 600.0
    checkpoint: Path | None = None
    receipts: Path | None = None
    receipts_identity: Path | None = None

    def __post_init__(self) -> None:
        """Check each option."""
        if not isinstance(self.terms, Terms):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = "terms must be Terms(...), such as Terms(server_model=ServerModel.MALICIOUS), "
            msg += f"not {self.terms!r}"
            raise InvalidValueError(msg)
        for name in ("example_cap", "stage_timeout"):
            check_number(name, getattr(self, name), positive=True)
        for name in ("node_timeout", "max_share", "stage_grace"):
            check_number(name, getattr(self, name))
        if self.num_liars is not None:
            check_count("num_liars", self.num_liars)
        check_choice("weights", self.weights, MODES)
        if self.on_round is not None:
            check_hook("on_round", self.on_round, ON_ROUND)
        if self.metric_bins != BINS and not self.robust_metrics:
            msg = f"metric_bins={self.metric_bins} is for robust_metrics: give these, too"
            raise InvalidValueError(msg)
        self._check_noise()
        for reason in self._reasons():
            raise InvalidValueError(reason)
        histograms_of(self.robust_metrics, self.metric_bins)
        metric_bounds_of(self.metric_bounds)
        build_optimizer(self.server_optimizer)

    @property
    def histograms(self) -> Histograms:
        """The metrics of which nodes are asked for histograms."""
        return histograms_of(self.robust_metrics, self.metric_bins)

    @property
    def has_noise(self) -> bool:
        """Whether nodes add noise to what they send."""
        return self.epsilon is not None or self.noise_multiplier is not None

    def _check_noise(self) -> None:
        """Check the numbers, and that nothing is asked for that noise would not cover."""
        check_delta(self.delta)
        for name in ("epsilon", "noise_multiplier"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)
        for reason in self._exact():
            raise InvalidValueError(reason)

    def _exact(self) -> Iterator[str]:
        """What does not go with noise, or without."""
        if not self.has_noise:
            if self.delta != DELTA:
                yield f"delta={self.delta} is for epsilon or noise_multiplier: give one, too"
            return
        if self.weights != EQUAL:
            yield (
                f"weights={self.weights!r} would let one node count more than another, and noise "
                "hides nodes that count alike: give weights='equal', or none"
            )
        if self.max_share:
            yield f"max_share={self.max_share} needs exact sums, and these have noise: give none"
        if self.metric_bounds:
            yield "metric_bounds are for metrics of nodes, and with noise there are none: give none"
        if self.robust_metrics:
            yield (
                "robust_metrics are counted exactly, which no noise covers: give none, and "
                "evaluate_fn to start() for metrics on data of the server's own"
            )

    def _reasons(self) -> Iterator[str]:
        if fault := cap_fault(float(self.example_cap), self.weights):
            yield fault
        if self.server_optimizer is not None and self.receipts is not None:
            yield (
                "a receipt tells that the model follows from a step, and a server_optimizer makes "
                "another of it: give one of the two"
            )
        if self.max_share > 1:
            yield f"max_share is a fraction, from 0 to 1, not {self.max_share}"
        if 0 < self.max_share < 1 / LARGEST_COHORT:
            most = LARGEST_COHORT
            yield f"max_share={self.max_share:g} is below 1/{most}: no sum has so many nodes"
        if self.receipts_identity is not None and self.receipts is None:
            yield "receipts_identity signs receipts: give a folder for these, too, as receipts"
        if fault := records.personal_fault(self.personal):
            yield fault
        if self.terms.server_model == ServerModel.MALICIOUS and not isinstance(
            self.identities, Mapping
        ):
            yield "nodes that do not trust the server sign their keys: give identities, by node"


PATHS = {"checkpoint": "a file", "receipts": "a folder", "receipts_identity": "a folder"}
"""The options that name a path, and of what."""
SECURE = frozenset(option.name for option in dataclasses.fields(SecureOptions))
FEDAVG = frozenset(StrategyOptions.__annotations__) - SECURE


def split_options(
    strategy: type[Any], options: Mapping[str, Any]
) -> tuple[SecureOptions, dict[str, Any]]:
    """The options of ours, and those of FedAvg.

    Raises:
        InvalidTypeError: naming an option that the strategy has not, and those that it has.
        InvalidValueError: naming an option with a wrong value.
    """
    unknown = sorted(set(options) - SECURE - FEDAVG)
    if unknown:
        named = [name for name in inspect.signature(strategy).parameters if name != "options"]
        known = ", ".join((*named, *sorted(SECURE | FEDAVG)))
        msg = f"{strategy.__name__} has no option {unknown[0]!r}: it has {known}"
        raise InvalidTypeError(msg)
    options = _with_implied(options)
    secure = {name: value for name, value in options.items() if name in SECURE}
    for name, what in PATHS.items():
        if name in secure:
            secure[name] = as_path(name, secure[name], what)
    return SecureOptions(**secure), {k: v for k, v in options.items() if k in FEDAVG}


def _with_implied(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options with those that noise implies, unless they are spelled out."""
    implied = {"weights": EQUAL, "fraction_evaluate": 0.0} if wants_noise(options) else {}
    return {**implied, **options}


def check_strategy(
    aggregator: SumAggregator[Any], secure: SecureOptions, fedavg: dict[str, Any], max_queries: int
) -> None:
    """Check that an aggregator and options go together, and fill in the least numbers of nodes.

    Raises:
        InvalidValueError: naming the option.
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
        msg = f"num_liars={secure.num_liars}: who lies inside of sums is told by random groups, "
        msg += f"{LEAST_GROUPS} or more: give groups={LEAST_GROUPS} or more, or no num_liars"
        raise InvalidValueError(msg)
    check_keys(fedavg)
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
    for name in ("fraction_train", "fraction_evaluate"):
        check_number(name, fedavg.get(name, 1.0))
        if fedavg.get(name, 1.0) > 1:
            msg = f"{name} must be at most 1, not {fedavg[name]}"
            raise InvalidValueError(msg)
    _fill_in_nodes(aggregator, secure, fedavg)


def _fill_in_nodes(
    aggregator: SumAggregator[Any], secure: SecureOptions, fedavg: dict[str, Any]
) -> None:
    """The least numbers of nodes, which follow from the parts of a cohort and their queries."""
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
    """What nodes are needed for, in words."""
    sums = describe_sums(layout)
    if not max_share:
        return sums
    return f"{sums} with max_share={max_share:g}: of n nodes in a sum one has 1/n of it or more"


def _sharers(max_share: float) -> int:
    """How many nodes there must be in a sum of which none may have a larger share."""
    return math.ceil(1 / max_share - 1e-9) if max_share else 0


def remedy_of(layout: Layout) -> str:
    """What to take where there are too few nodes for as many queries as a layout has."""
    if layout.queries == 1:
        return ""
    return (
        "; OneStepRFA() and schedule='sub-cohorts' ask each node once, as the text 'rfa:budget=1' "
        "does, and need fewer"
    )
