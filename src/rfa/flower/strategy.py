"""The server's side: strategies that aggregate by secure sums, in place of FedAvg.

A round takes one exchange for training, one that forms the cohort and collects masked inputs, and
one that opens the first sum; each further sum takes two more. If the nodes are those of the round
before, the first two exchanges are one (`rfa.flower.ahead`). The server never holds an update, an
example count or a metric of a single node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NoReturn, Unpack

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from rfa.aggregators import Layout, SumAggregator
from rfa.aggregators.registry import Context, build_private
from rfa.errors import OracleStoppedError
from rfa.flower import records
from rfa.flower.ahead import FirstWork, KeysAhead
from rfa.flower.arrays import size_of
from rfa.flower.checkpoint import Checkpoint, fits, load_checkpoint, save_checkpoint
from rfa.flower.checks import ON_ROUND, check_hook, check_start
from rfa.flower.errors import TooFewNodesError
from rfa.flower.fit import check_strategy, needs_of, remedy_of
from rfa.flower.histograms import MissingMetrics
from rfa.flower.history import log_result, note_metrics
from rfa.flower.metric_bounds import metric_bounds_of
from rfa.flower.noise import draw_of, wants_noise
from rfa.flower.options import StrategyOptions, split_options
from rfa.flower.oracles import Cohort, GridSums, SumPlan, split
from rfa.flower.overrides import check_overrides, refuse_replies
from rfa.flower.parts import PartOracle, summarize
from rfa.flower.play import Evaluate, Run, play_rounds
from rfa.flower.privacy import PrivacyMeter
from rfa.flower.receipts import open_book, records_of
from rfa.flower.refusals import RoundSkippedError
from rfa.flower.summing import Asked, take_sums
from rfa.flower.suspicion import Watch
from rfa.flower.trained import TrainedRound
from rfa.flower.transport import Addressed, GridExchange
from rfa.flower.waiting import Need, wait_for_nodes
from rfa.secagg.security.policy import MAX_QUERIES
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.server.suspicion import Suspicion
from rfa.secagg.weights import TELLS

LOG = logging.getLogger("flwr")


class SecureStrategy(FedAvg):
    """A private aggregator on Flower: every node needs `ClientApp(mods=[robust_mod])`.

    *Formal guarantee*: the server receives masked inputs and opens sums over many nodes. It never
    receives an update, an example count or a metric of a single node. docs/threat-model.md states
    the assumptions.
    """

    max_queries = MAX_QUERIES
    """The most queries per round that devices answer by default."""
    fast = True
    """Whether rounds take as few exchanges as possible."""

    def __init__(
        self, aggregator: SumAggregator[Any] | str, **options: Unpack[StrategyOptions]
    ) -> None:
        """Create the strategy from an aggregator and options.

        Args:
            aggregator: a value such as `rfa.aggregators.RFA(budget=3)`, your own aggregator, or a
                text such as "rfa:budget=3" or "module:NAME".
            options: those of `SecureOptions` and of Flower's FedAvg: fraction_train,
                min_available_nodes and so on. By default the least numbers of nodes follow from the
                terms.

        Raises:
            InvalidValueError: if a value is wrong; the message says which.
            InvalidTypeError: if there is no such option, or the class overrides a method that is
                never called.
        """
        check_overrides(type(self), SecureStrategy)
        check_hook("on_round", self.on_round, ON_ROUND)
        self.aggregator = build_private(aggregator, context=Context(noise=wants_noise(options)))
        self.options, fedavg = split_options(type(self), options)
        check_strategy(self.aggregator, self.options, fedavg, self.max_queries)
        super().__init__(**fedavg)
        self._watch = Watch(self.options.terms, self.options.num_liars)
        self.privacy = PrivacyMeter(self.aggregator, self.options)
        self.missing = MissingMetrics(self.options.robust_metrics, self.options.metric_bounds)
        self.ahead = KeysAhead()
        self._last: Checkpoint | None = None
        self._again = False

    @property
    def suspicion(self) -> Suspicion:
        """The ledger of the evidence against nodes, and of those that it leaves out."""
        return self._watch.ledger

    def summary(self) -> None:
        """Log how the strategy is set up."""
        super().summary()
        layout = self.aggregator.layout(self.min_train_nodes)
        LOG.info("\t└──> Secure sums of %s", self.aggregator)
        LOG.info("\t\t├── queries per node: %s; parts of nodes: %s", layout.queries, layout.parts)
        LOG.info("\t\t├── %s", self.options.terms)
        LOG.info("\t\t├── at most %g examples of a node count", self.options.example_cap)
        LOG.info("\t\t├── %s", self.privacy)
        LOG.info("\t\t├── the server's optimizer: %s", self.options.server_optimizer or "none")
        LOG.info("\t\t└── weights: %s: %s", self.options.weights, TELLS[self.options.weights])

    def start(  # noqa: PLR0913, PLR0917 as Flower has it
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Train for a number of rounds, and return Flower's usual result.

        The strategy waits up to `node_timeout` for enough nodes for the first round. It skips a
        later round if there are too few nodes. It keeps the state of the aggregator and of the
        server's optimizer for the next call, if that has a model of the same shape.

        Args:
            grid: Flower's grid.
            initial_arrays: the first model.
            num_rounds: the total number of rounds, including those of the checkpoint.
            timeout: seconds to wait for nodes that train or evaluate.
            train_config: the config for the app's training.
            evaluate_config: the config for the app's evaluation.
            evaluate_fn: evaluates a model on the server, before the first round and after each.

        Raises:
            InvalidTypeError, InvalidValueError: if an argument is wrong; the message says which.
            TooFewNodesError: if there are too few nodes for any round; nothing was trained then.
            NodesRefusedError: if all nodes refuse, or too few have a privacy budget left
                (`NodesSpentError`); the message says why, and what to do.
            NothingDoneError: if no round gave a result.
        """
        began = time.monotonic()
        configs = {"train_config": train_config, "evaluate_config": evaluate_config}
        check_start(initial_arrays, configs, num_rounds, timeout, evaluate_fn)
        LOG.info("Starting %s strategy: %s rounds", type(self).__name__, num_rounds)
        self.summary()
        state = self._begin(grid, initial_arrays, num_rounds)
        if evaluate_fn and not state.resumed:
            note_metrics(state.result.evaluate_metrics_serverapp, 0, evaluate_fn(0, state.arrays))
        save_checkpoint(self.options.checkpoint, state)  # it says whether there is noise
        train, evaluate = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        book = open_book(self.options, self.aggregator, state)
        run = Run(self, grid, train, evaluate, timeout, evaluate_fn, book)
        self._last = play_rounds(run, state, num_rounds)
        log_result(self._last.result, time.monotonic() - began)
        return self._last.result

    def on_round(
        self,
        t: int,
        arrays: ArrayRecord,
        train_metrics: MetricRecord | None,
        evaluate_metrics: MetricRecord | None,
    ) -> bool | None:
        """Called after each round, to log, to save, or to end the run; override it in your class.

        Args:
            t: the round, from 1.
            arrays: the model after it.
            train_metrics: the means of the metrics of training; None if the round was skipped.
            evaluate_metrics: those of its evaluation, if there was one.

        Returns:
            True to end the run after this round.
        """
        hook = self.options.on_round
        return None if hook is None else hook(t, arrays, train_metrics, evaluate_metrics)

    def _begin(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> Checkpoint:
        """Return the first state of a run: its checkpoint, or the learned state of the last run."""
        self.ahead.ask = self.fast
        self.ahead.begin(grid)
        state = load_checkpoint(self.options.checkpoint, initial_arrays, self.aggregator)
        self._again, last = state.resumed, self._last
        if state.resumed:
            LOG.info("continuing after round %s, from %s", state.round, self.options.checkpoint)
            self._watch.go_on(state.suspicion, state.round)
            if state.round >= num_rounds:
                text = "the checkpoint has %s rounds, and %s are asked for in all: none is left"
                LOG.warning(text, state.round, num_rounds)
        elif last and fits(last.arrays, initial_arrays):
            learned = {"aggregator": last.aggregator, "optimizer": last.optimizer}
            state = dataclasses.replace(state, **learned)
        if not state.round:
            self._wait_for_nodes(grid)
        left, dim = num_rounds - state.round, size_of(state.arrays)
        self.privacy.begin(grid, state.spending, draw_of(self), rounds=left, dim=dim)
        return dataclasses.replace(state, spending=self.privacy.spending)

    def train_round(  # noqa: PLR0913
        self, grid: Grid, t: int, messages: list[Addressed], *, dim: int, timeout: float, state: Any
    ) -> TrainedRound:
        """Let nodes train, and aggregate their updates by secure sums.

        Args:
            grid: Flower's grid.
            t: the round, from 1.
            messages: the messages that ask for training, by node.
            dim: the number of parameters of the model.
            timeout: seconds to wait for nodes that train.
            state: the state of the aggregator after the round before.

        Raises:
            OracleStoppedError: if there is no aggregate; the message says why.
        """
        recorders: list[Recorder] | None = [] if self.options.receipts else None
        sums = self.sums(grid, self.plan(self.aggregator, len(messages)), recorders)
        done = take_sums(
            self,
            sums,
            Asked(self.work(records.TRAIN), messages, t, timeout, dim),
            lambda oracles: self.aggregator(oracles, dim, state),
            self.aggregator.layout,
        )
        self._again = False
        cohort, oracles, (result, after) = done.cohort, done.oracles, done.value
        abstained = frozenset[int]().union(*(oracle.abstained for oracle in oracles))
        metrics, recorded = summarize(cohort, oracles), records_of(recorders)
        return TrainedRound(result, after, metrics, abstained, len(cohort.devices), recorded)

    def partition(self, devices: Sequence[int], parts: int, t: int) -> list[list[int]]:  # noqa: ARG002
        """Return the parts of a cohort, from the randomness of the operating system."""
        return split(devices, parts)

    def exchange(self, grid: Grid, task: str, t: int) -> GridExchange:
        """Return the exchange that carries the messages of the secure sum."""
        options = self.options
        return GridExchange(grid, task, t, options.stage_timeout, grace=options.stage_grace)

    def work(self, task: str) -> records.Work:
        """Return the request for work, which says how to weight the results."""
        options, name = self.options, self.weighted_by_key
        weighed = (float(options.example_cap), name, options.personal, options.weights)
        bounds, again = metric_bounds_of(options.metric_bounds), task == records.TRAIN
        asked = options.histograms, bounds, again and self._again, self.privacy.multiplier
        return records.Work(task, *weighed, *asked)

    def told(self, content: RecordDict) -> RecordDict:
        """Return the part of a message's content that all nodes get, to which the sum is bound."""
        return content

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
        """Raise an error: there are no single updates to aggregate."""
        refuse_replies(server_round, replies)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
        """Raise an error: there are no single metrics to aggregate."""
        refuse_replies(server_round, replies)

    def sums(self, grid: Grid, plan: SumPlan, recorders: list[Recorder] | None = None) -> GridSums:
        """Return the way in which sums are taken over a grid."""
        terms, identities = self.options.terms, self.options.identities
        hear, ahead = self.privacy.hear, self.ahead.ask
        return GridSums(grid, terms, plan, identities, self.told, recorders, hear, ahead)

    def plan(self, asking: SumAggregator[Any] | None = None, nodes: int = 1) -> SumPlan:
        """Return what a round asks of its nodes, for an aggregator or for metrics alone."""
        asked = (asking.layout(nodes).queries, asking.statistics) if asking else (1, ())
        return SumPlan(*asked, self.options.max_share, self.fast, asking.block if asking else 0)

    @contextlib.contextmanager
    def over(
        self,
        sums: GridSums,
        cohort: Cohort,
        parts: Sequence[Sequence[int]],
        first: FirstWork | None = None,
    ) -> Generator[list[PartOracle]]:
        """Yield an oracle over each part of a cohort; afterwards record the evidence about nodes.

        Args:
            sums: how sums are taken.
            cohort: the nodes.
            parts: its parts.
            first: sends the first requests with the messages that ask nodes for work, if the nodes
                are not ready yet.

        Raises:
            OracleStoppedError: if there is only one part, and it gives no sum.
        """
        exchange, oracles = self.exchange(sums.grid, cohort.task, cohort.round), list[PartOracle]()
        exchange.hear_adverts(cohort.adverts)
        exchange.work = first
        exchange.joined |= cohort.keys.keys()
        try:
            with sums.over_parts(cohort, exchange, parts) as oracles:
                self.privacy.charge(oracles, exchange)
                yield oracles
        except OracleStoppedError:
            exchange.check_refusals(cohort.devices)
            raise
        finally:
            self._watch.note(oracles, exchange, cohort.round)
            self.privacy.settle(oracles, exchange)

    def _wait_for_nodes(self, grid: Grid) -> None:
        """Wait until there are enough nodes for the first round.

        Raises:
            TooFewNodesError: if there are not; the message says how many there must be, and why.
        """
        if not self.fraction_train and not self.fraction_evaluate:
            return
        layout, fraction, least = Layout(), self.fraction_evaluate, self.min_evaluate_nodes
        if self.fraction_train:
            fraction, least = self.fraction_train, self.min_train_nodes
            layout = self.aggregator.layout(least)
        try:
            self.steady(grid, fraction, least, f" for {needs_of(layout, self.options.max_share)}")
        except RoundSkippedError as error:
            msg = f"{error}: no round can be played{remedy_of(layout)}"
            raise TooFewNodesError(msg) from None

    def steady(self, grid: Grid, fraction: float, least: int, what: str = "") -> Grid:
        """Wait for the nodes that a round needs, without those under suspicion, up to a limit.

        Args:
            grid: Flower's grid.
            fraction: the fraction of nodes that take part.
            least: the least number of nodes.
            what: what they are needed for.

        Raises:
            RoundSkippedError: if there are too few.
        """
        need = Need(fraction, max(self.min_available_nodes, least), what)
        return wait_for_nodes(grid, need, self._watch, self.options.node_timeout)
