"""The options of a strategy, and their checks before the first round."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from flwr.app import ArrayRecord, MetricRecord

from rfa._checks import check_choice, check_count, check_number
from rfa._files import as_path
from rfa.aggregators.server_optimizer import ServerOptimizer, build_optimizer
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.flower import records
from rfa.flower.checks import ON_ROUND, check_hook
from rfa.flower.histograms import BINS, Histograms, histograms_of
from rfa.flower.metric_bounds import metric_bounds_of
from rfa.flower.noise import wants_noise
from rfa.privacy.budget import DELTA
from rfa.privacy.zcdp import check_delta
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import LARGEST_COHORT, ServerModel
from rfa.secagg.security.terms import Terms
from rfa.secagg.weights import EQUAL, EXAMPLE_CAP, EXAMPLES, MODES, cap_fault

OnRound = Callable[[int, ArrayRecord, MetricRecord | None, MetricRecord | None], bool | None]
"""A function that is called after each round."""


class StrategyOptions(TypedDict, total=False):
    """The options of every strategy: the fields of `SecureOptions`, and the options of FedAvg."""

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
            Weights far below it lose digits. A power of two if weights are "buckets".
        weights: how a number of examples N becomes a weight. "examples": min(N, cap) / cap, as
            Flower's users expect. The total weights of rounds that differ by one node reveal its
            number of examples. "buckets": the same for a power of two near N, which each node draws
            once and keeps. Such rounds reveal that power only, for all caps. "equal": 1 for every
            node that has an example, which reveals nothing.
        robust_metrics: bounds by name, such as {"loss": (0.0, 10.0)}, for medians and quantiles of
            these metrics over nodes, beside their means. The server learns the number of nodes in
            each bin between the bounds.
        metric_bins: the number of bins between them, a power of two: the resolution of quantiles.
        metric_bounds: bounds by name, such as {"loss": (0.0, 10.0)}. A value of a node beyond them
            counts as the bound in means.
        server_optimizer: how the server applies the aggregate: "momentum", "adam" or "yogi", with
            parameters as in "adam:learning_rate=0.05", or a `ServerOptimizer`; None to add it to
            the model.
        on_round: a function that is called after each round with its number, the model, and the
            metrics of training and evaluation (None if there are none). True ends the run.
        personal: a name under which each node keeps its personal parameters (Algorithm 4). The app
            then trains and evaluates the model plus these. Empty for none.
        terms: the terms of the secure sum.
        identities: the public identities of nodes; required if the nodes do not trust the server.
        max_share: the largest share of a node in a step, which doubles the sums; 0 for any. It is
            required by nodes whose policy has a `max_share`.
        stage_timeout: seconds to wait for the answers to a stage of the secure sum.
        stage_grace: seconds to wait for the other nodes after enough nodes have answered a stage.
            Later nodes lose their place in the round.
        num_liars: the number of nodes that may lie together in sums, for the ledger of suspicion;
            None for as many as the groups withstand. Smaller numbers of liars are found sooner.
        epsilon: the privacy budget of a node against the server, at `delta`, for all rounds of the
            run together. Nodes add noise to their inputs, weights are equal, and there are no
            metrics of nodes, because these would be exact. None for no budget.
        delta: the delta of the privacy budget.
        noise_multiplier: the noise of a sum, divided by the most that one node can add to it. By
            default it follows from `epsilon`, as if every node were in every round. With both, the
            run stops when the budget is spent. None, without an epsilon, for no noise.
        node_timeout: seconds to wait for enough nodes, before a round is skipped.
        checkpoint: the file from which a restarted server continues.
        receipts: the folder for a signed record of each round, which `rfa verify` checks; None for
            none. If you publish it, you publish the sums.
        receipts_identity: the folder of the identity that signs them, which is created if there is
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
        """The metrics whose histograms nodes are asked for."""
        return histograms_of(self.robust_metrics, self.metric_bins)

    @property
    def has_noise(self) -> bool:
        """Whether nodes add noise to their inputs."""
        return self.epsilon is not None or self.noise_multiplier is not None

    def _check_noise(self) -> None:
        """Check the numbers, and that no option asks for values that noise would not cover."""
        check_delta(self.delta)
        for name in ("epsilon", "noise_multiplier"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)
        for reason in self._exact():
            raise InvalidValueError(reason)

    def _exact(self) -> Iterator[str]:
        """Yield why options contradict noise, or need it."""
        if not self.has_noise:
            if self.delta != DELTA:
                yield f"delta={self.delta} is for epsilon or noise_multiplier: give one, too"
            return
        if self.weights != EQUAL:
            yield (
                f"weights={self.weights!r} would let one node count more than another, and noise "
                "hides nodes that count the same: give weights='equal', or none"
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
                "a receipt proves that the model follows from a step, and a server_optimizer makes "
                "another of it: give one of the two"
            )
        if self.max_share > 1:
            yield f"max_share is a fraction, from 0 to 1, not {self.max_share}"
        if 0 < self.max_share < 1 / LARGEST_COHORT:
            most = LARGEST_COHORT
            yield f"max_share={self.max_share:g} is below 1/{most}: no sum has that many nodes"
        if self.receipts_identity is not None and self.receipts is None:
            yield "receipts_identity signs receipts: give a folder for these, too, as receipts"
        if fault := records.personal_fault(self.personal):
            yield fault
        if self.terms.server_model == ServerModel.MALICIOUS and not isinstance(
            self.identities, Mapping
        ):
            yield "nodes that do not trust the server sign their keys: give identities, by node"


PATHS = {"checkpoint": "a file", "receipts": "a folder", "receipts_identity": "a folder"}
"""The options that name a path, and its kind."""
SECURE = frozenset(option.name for option in dataclasses.fields(SecureOptions))
FEDAVG = frozenset(StrategyOptions.__annotations__) - SECURE


def split_options(
    strategy: type[Any], options: Mapping[str, Any]
) -> tuple[SecureOptions, dict[str, Any]]:
    """Return the options of rfa, and those of FedAvg.

    Raises:
        InvalidTypeError: if the strategy has no such option; the message lists those that it has.
        InvalidValueError: if a value is wrong; the message names the option.
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
    """Return options with those that noise implies, unless they are given."""
    implied = {"weights": EQUAL, "fraction_evaluate": 0.0} if wants_noise(options) else {}
    return {**implied, **options}
