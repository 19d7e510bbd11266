"""The server's side: strategies that aggregate by secure sums, in place of FedAvg.

A round is one exchange for training, two that form the cohort and, for each sum, two more (three
where the server is not trusted). At no time does the server hold an update, an example count or a
metric of a single node.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Unpack, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from rfa.aggregators import Layout, SumAggregator
from rfa.aggregators.adaptive_radius import RADIUS_RANGE
from rfa.aggregators.registry import build_private
from rfa.errors import InvalidValueError, OracleStoppedError
from rfa.flower import records
from rfa.flower.arrays import moved, size_of
from rfa.flower.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rfa.flower.errors import TooFewNodesError
from rfa.flower.history import log_result, note_metrics
from rfa.flower.options import (
    StrategyOptions,
    check_strategy,
    remedy_of,
    split_options,
)
from rfa.flower.oracles import GridSums, PartOracle, RoundSkippedError, split, summarize
from rfa.flower.receipts import open_book, receipt_of, records_of
from rfa.flower.suspicion import Watch
from rfa.flower.trained import TrainedRound
from rfa.flower.transport import Addressed, GridExchange, SteadyGrid, by_node
from rfa.planning import describe_sums
from rfa.receipts import ReceiptBook
from rfa.secagg.security.policy import MAX_QUERIES
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.server.suspicion import Suspicion
from rfa.secagg.weights import TELLS

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
LOG = logging.getLogger("flwr")
EVALUATION_RADIUS = RADIUS_RANGE[1]
"""Above the smallest radius of any policy, and so large that nodes count by their weight."""


@dataclass(frozen=True)
class _Run:
    """What stays the same from round to round."""

    grid: Grid
    train: ConfigRecord
    evaluate: ConfigRecord
    timeout: float
    evaluate_fn: Evaluate | None
    book: ReceiptBook | None


class SecureStrategy(FedAvg):
    """A private aggregator on Flower: every node needs `ClientApp(mods=[robust_mod])`."""

    max_queries = MAX_QUERIES
    """The most queries a round that devices answer by default."""

    def __init__(
        self, aggregator: SumAggregator[Any] | str, **options: Unpack[StrategyOptions]
    ) -> None:
        """Take an aggregator, and options.

        Args:
            aggregator: a value such as `rfa.aggregators.RFA(budget=3)`, one of your own, or a text
                such as "rfa:budget=3" or "module:NAME".
            options: those of `SecureOptions` and of Flower's FedAvg: fraction_train,
                min_available_nodes and so on. By default the least numbers of nodes are what the
                terms need.

        Raises:
            InvalidValueError: if a value is wrong; the message says which.
            InvalidTypeError: if there is no such option.
        """
        self.aggregator = build_private(aggregator)
        self.options, fedavg = split_options(type(self), options)
        check_strategy(self.aggregator, self.options, fedavg, self.max_queries)
        super().__init__(**fedavg)
        self._watch = Watch(self.options.terms, self.options.num_liars)

    @property
    def suspicion(self) -> Suspicion:
        """The ledger of what speaks against nodes, and whom it leaves out."""
        return self._watch.ledger

    def summary(self) -> None:
        """Log how the strategy is set up."""
        super().summary()
        layout = self.aggregator.layout(self.min_train_nodes)
        LOG.info("\t└──> Secure sums of %s", self.aggregator)
        LOG.info("\t\t├── %s queries a node, %s parts of nodes", layout.queries, layout.parts)
        LOG.info("\t\t├── %s", self.options.terms)
        LOG.info("\t\t├── at most %g examples of a node count", self.options.example_cap)
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

        Nodes that are too few for the first round are waited for, up to `node_timeout`; a later
        round without enough of them is skipped.

        Args:
            grid: Flower's grid.
            initial_arrays: the first model.
            num_rounds: rounds in all, with those of the checkpoint.
            timeout: seconds to wait for nodes that train or evaluate.
            train_config: what the app's training is told.
            evaluate_config: what the app's evaluation is told.
            evaluate_fn: evaluates a model on the server, before the first round and after each.

        Raises:
            TooFewNodesError: if there are too few for any round; nothing was trained then.
        """
        began = time.monotonic()
        LOG.info("Starting %s strategy: %s rounds", type(self).__name__, num_rounds)
        self.summary()
        if not size_of(initial_arrays):
            msg = "the model has no floating-point numbers: there is nothing to aggregate"
            raise InvalidValueError(msg)
        state = load_checkpoint(self.options.checkpoint, initial_arrays, self.aggregator)
        if state.round:
            LOG.info("going on after round %s, from %s", state.round, self.options.checkpoint)
            self._watch.go_on(state.suspicion, state.round)
        else:
            self._wait_for_nodes(grid)
        if evaluate_fn and not state.round:
            note_metrics(state.result.evaluate_metrics_serverapp, 0, evaluate_fn(0, state.arrays))
        train, evaluate = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        book = open_book(self.options, self.aggregator, state)
        run = _Run(grid, train, evaluate, timeout, evaluate_fn, book)
        for t in range(state.round + 1, num_rounds + 1):
            LOG.info("")
            LOG.info("[ROUND %s/%s]", t, num_rounds)
            state = self._round(run, t, state)
            save_checkpoint(self.options.checkpoint, state)
        if num_rounds and state.arrays is initial_arrays:
            LOG.warning("no round gave a step: the model is the first one, and the log says why")
        log_result(state.result, time.monotonic() - began)
        return state.result

    def train_round(  # noqa: PLR0913
        self, grid: Grid, t: int, messages: list[Addressed], *, dim: int, timeout: float, state: Any
    ) -> TrainedRound:
        """Let nodes train, and aggregate what they have by secure sums.

        Args:
            grid: Flower's grid.
            t: the round, from 1.
            messages: the messages that ask for training, by node.
            dim: how many numbers the model has.
            timeout: seconds to wait for nodes that train.
            state: what the aggregator carries from the round before.

        Raises:
            OracleStoppedError: if there is no aggregate; the text says why.
        """
        recorders: list[Recorder] | None = [] if self.options.receipts else None
        sums = self._sums(grid, recorders)
        cohort = sums.gather(self.work(records.TRAIN), messages, t, timeout, dim)
        layout = self.aggregator.layout(len(cohort.devices))
        exchange, oracles = self.exchange(grid, records.TRAIN, t), list[PartOracle]()
        try:
            with sums.over_parts(
                cohort,
                exchange,
                self.partition(cohort.devices, layout.parts, t),
                queries=layout.queries,
                statistics=self.aggregator.statistics,
                max_share=self.options.max_share,
            ) as oracles:
                result, after = self.aggregator(oracles, cohort.dim, state)
        finally:
            self._watch.note(oracles, exchange, t)
        abstained = frozenset[int]().union(*(oracle.abstained for oracle in oracles))
        metrics, parts = summarize(cohort, oracles), records_of(recorders)
        return TrainedRound(result, after, metrics, abstained, len(cohort.devices), parts)

    def partition(self, devices: Sequence[int], parts: int, t: int) -> list[list[int]]:  # noqa: ARG002
        """The parts of a cohort, by the randomness of the operating system."""
        return split(devices, parts)

    def exchange(self, grid: Grid, task: str, t: int) -> GridExchange:
        """What carries the messages of the secure sum."""
        options = self.options
        return GridExchange(grid, task, t, options.stage_timeout, grace=options.stage_grace)

    def work(self, task: str) -> records.Work:
        """What nodes are told about how to weight what they have."""
        options, name = self.options, self.weighted_by_key
        weighed = (float(options.example_cap), name, options.personal, options.weights)
        return records.Work(task, *weighed, options.histograms)

    def told(self, content: RecordDict) -> RecordDict:
        """What of a message's content all nodes are told, to which the sum is bound: all of it."""
        return content

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
        """There are no updates to aggregate here."""
        _refuse_replies(server_round, replies)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
        """There are no metrics to aggregate here."""
        _refuse_replies(server_round, replies)

    def _sums(self, grid: Grid, recorders: list[Recorder] | None = None) -> GridSums:
        return GridSums(grid, self.options.terms, self.options.identities, self.told, recorders)

    def _round(self, run: _Run, t: int, state: Checkpoint) -> Checkpoint:
        """Train, evaluate, and note what came of it."""
        arrays, metrics, carried = self._train(run, t, state)
        result = state.result
        result.arrays = arrays
        note_metrics(result.train_metrics_clientapp, t, metrics)
        after = Checkpoint(t, arrays, result, carried, self.suspicion)
        save_checkpoint(self.options.checkpoint, after)
        note_metrics(result.evaluate_metrics_clientapp, t, self._evaluate(run, t, arrays))
        if run.evaluate_fn:
            note_metrics(result.evaluate_metrics_serverapp, t, run.evaluate_fn(t, arrays))
        return after

    def _train(
        self, run: _Run, t: int, state: Checkpoint
    ) -> tuple[ArrayRecord, MetricRecord | None, Any]:
        """A round of training: the arrays after it, which are those before if there is no sum."""
        if not self.fraction_train:
            return state.arrays, None, state.aggregator
        try:
            grid = self._steady(run.grid, self.fraction_train, self.min_train_nodes)
            messages = by_node(self.configure_train(t, state.arrays, run.train, grid))
            done = self.train_round(
                run.grid,
                t,
                messages,
                dim=size_of(state.arrays),
                timeout=run.timeout,
                state=state.aggregator,
            )
        except OracleStoppedError as error:
            LOG.warning("round %s is skipped, and the model is kept: %s", t, error)
            return state.arrays, None, state.aggregator
        arrays = moved(state.arrays, done.result.point)
        if run.book:  # before the checkpoint: a round that is done has a receipt
            run.book.write(receipt_of(t, self.aggregator, state, done, arrays))
        return arrays, done.metrics, done.state

    def _evaluate(self, run: _Run, t: int, arrays: ArrayRecord) -> MetricRecord | None:
        """The means of the metrics of an evaluation, from one sum."""
        if not self.fraction_evaluate:
            return None
        try:
            grid = self._steady(run.grid, self.fraction_evaluate, self.min_evaluate_nodes)
            messages = by_node(self.configure_evaluate(t, arrays, run.evaluate, grid))
            sums, work = self._sums(run.grid), self.work(records.EVALUATE)
            cohort = sums.gather(work, messages, t, run.timeout, records.STAND_IN)
            exchange = self.exchange(run.grid, records.EVALUATE, t)
            share = self.options.max_share
            with sums.over(cohort, exchange, queries=1, statistics=(), max_share=share) as oracle:
                oracle(np.zeros(cohort.dim), EVALUATION_RADIUS)
        except OracleStoppedError as error:
            LOG.warning("the evaluation of round %s is skipped: %s", t, error)
            return None
        return summarize(cohort, [oracle])

    def _wait_for_nodes(self, grid: Grid) -> None:
        """Wait until there are enough nodes for the first round.

        Raises:
            TooFewNodesError: if there are not; the text says how many there must be, and why.
        """
        if not self.fraction_train and not self.fraction_evaluate:
            return
        layout, fraction, least = Layout(), self.fraction_evaluate, self.min_evaluate_nodes
        if self.fraction_train:
            fraction, least = self.fraction_train, self.min_train_nodes
            layout = self.aggregator.layout(least)
        try:
            self._steady(grid, fraction, least, f" for {describe_sums(layout)}")
        except RoundSkippedError as error:
            msg = f"{error}: no round can be played"
            raise TooFewNodesError(msg + remedy_of(layout)) from None

    def _steady(self, grid: Grid, fraction: float, least: int, what: str = "") -> Grid:
        """Wait for as many nodes that nothing speaks against as a round needs, up to a limit.

        Args:
            grid: Flower's grid.
            fraction: the fraction of nodes that take part.
            least: how many must, at least.
            what: what they are needed for.

        Raises:
            RoundSkippedError: if there are too few.
        """
        limit = self.options.node_timeout
        end, told = time.monotonic() + limit, False
        while True:
            needed = max(self.min_available_nodes, least)
            nodes = self._watch.trusted(grid.get_node_ids(), needed)
            there = len(nodes)
            needed = max(needed, int(there * fraction))
            if there >= needed:
                return cast("Grid", SteadyGrid(grid, nodes))
            if time.monotonic() >= end:
                msg = f"{there} nodes are there after {limit:g} s, and {needed} are needed{what}"
                raise RoundSkippedError(msg)
            if not told:
                text = "%s nodes are there, and %s are needed%s: waiting for more, up to %g s"
                LOG.info(text, there, needed, what, limit)
                told = True
            time.sleep(min(0.2, limit))


def _refuse_replies(server_round: int, replies: Iterable[Message]) -> NoReturn:
    msg = (
        f"round {server_round}: there are no replies of single nodes to aggregate "
        f"({type(replies)}): secure sums are taken in start(), so wrappers of aggregate_train "
        "cannot work here"
    )
    raise NotImplementedError(msg)
