"""The options of a strategy, and the checks of them before a round is played."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from rfa._checks import check_choice, check_count, check_number
from rfa.aggregators import Layout, SumAggregator
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.flower import records
from rfa.flower.histograms import BINS, Histograms, histograms_of
from rfa.planning import check_fit, describe_sums
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.terms import Terms
from rfa.secagg.weights import EXAMPLES, MODES, cap_fault


class StrategyOptions(TypedDict, total=False):
    """What every strategy takes: the fields of `SecureOptions`, and the options of FedAvg."""

    example_cap: float
    weights: str
    robust_metrics: Mapping[str, tuple[float, float]] | None
    metric_bins: int
    personal: str
    terms: Terms
    identities: Identities | None
    max_share: float
    stage_timeout: float
    stage_grace: float
    num_liars: int | None
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
        node_timeout: seconds to wait for enough nodes, before a round is skipped.
        checkpoint: the file from which a server that was restarted goes on.
        receipts: the folder for a signed record of each round, which `rfa verify` checks; None for
            none. Publishing it publishes the sums.
        receipts_identity: the folder of the identity that signs them, which is made if there is
            none; by default `server` in RFA_HOME or ~/.rfa.
    """

    example_cap: float = 1024.0
    weights: str = EXAMPLES
    robust_metrics: Mapping[str, tuple[float, float]] | None = None
    metric_bins: int = BINS
    personal: str = ""
    terms: Terms = field(default_factory=Terms)
    identities: Identities | None = None
    max_share: float = 0.0
    stage_timeout: float = 120.0
    stage_grace: float = 10.0
    num_liars: int | None = None
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
        if self.metric_bins != BINS and not self.robust_metrics:
            msg = f"metric_bins={self.metric_bins} is for robust_metrics: give these, too"
            raise InvalidValueError(msg)
        for reason in self._reasons():
            raise InvalidValueError(reason)
        histograms_of(self.robust_metrics, self.metric_bins)

    @property
    def histograms(self) -> Histograms:
        """The metrics of which nodes are asked for histograms."""
        return histograms_of(self.robust_metrics, self.metric_bins)

    def _reasons(self) -> Iterator[str]:
        if fault := cap_fault(float(self.example_cap), self.weights):
            yield fault
        if self.max_share > 1:
            yield f"max_share is a fraction, from 0 to 1, not {self.max_share}"
        if self.personal and not records.NAME.fullmatch(str(self.personal)):
            yield f"personal must be letters, digits and _.-, not {self.personal!r}"
        if self.terms.server_model == ServerModel.MALICIOUS and not isinstance(
            self.identities, Mapping
        ):
            yield "nodes that do not trust the server sign their keys: give identities, by node"


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
    secure = {name: value for name, value in options.items() if name in SECURE}
    for name in ("checkpoint", "receipts", "receipts_identity"):
        if secure.get(name):
            secure[name] = Path(secure[name])
    return SecureOptions(**secure), {k: v for k, v in options.items() if k in FEDAVG}


def check_strategy(
    aggregator: SumAggregator[Any], secure: SecureOptions, fedavg: dict[str, Any], max_queries: int
) -> None:
    """Check that an aggregator and options go together, and fill in the least numbers of nodes.

    Raises:
        InvalidValueError: naming the option.
    """
    check_fit(aggregator, secure.terms, max_share=secure.max_share, max_queries=max_queries)
    for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
        if fedavg.get(name) is not None:
            msg = f"{name} would need the metrics of single nodes, and there are only sums of them"
            raise InvalidValueError(msg)
    for name in ("fraction_train", "fraction_evaluate"):
        check_number(name, fedavg.get(name, 1.0))
        if fedavg.get(name, 1.0) > 1:
            msg = f"{name} must be at most 1, not {fedavg[name]}"
            raise InvalidValueError(msg)
    if records.KEY in (fedavg.get("arrayrecord_key"), fedavg.get("configrecord_key")):
        msg = f"{records.KEY!r} is the key of rfa's own record: give another"
        raise InvalidValueError(msg)
    _fill_in_nodes(aggregator, secure.terms, fedavg)


def _fill_in_nodes(aggregator: SumAggregator[Any], terms: Terms, fedavg: dict[str, Any]) -> None:
    """The least numbers of nodes, which follow from the parts of a cohort and their queries."""
    layout = aggregator.layout(terms.smallest())
    sums = {
        "min_train_nodes": layout,
        "min_evaluate_nodes": Layout(),
        "min_available_nodes": layout,
    }
    for name, asked in sums.items():
        least = asked.parts * terms.smallest(asked.queries)
        check_count(name, fedavg.setdefault(name, least))
        if fedavg[name] < least:
            msg = f"{name}={fedavg[name]}: {least} nodes or more are needed under {terms} for "
            raise InvalidValueError(msg + describe_sums(asked) + remedy_of(asked))


def remedy_of(layout: Layout) -> str:
    """What to take where there are too few nodes for as many queries as a layout has."""
    if layout.queries == 1:
        return ""
    return "; OneStepRFA() and schedule='sub-cohorts' ask each node once, and need fewer"
