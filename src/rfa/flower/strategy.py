"""The server's side: strategies that aggregate by secure sums, in place of FedAvg.

A round is one exchange for training, two that form the cohort and, for each sum, two more (three
where the server is not trusted). At no time does the server hold an update, an example count or a
metric of a single node.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from rfa._types import Vector
from rfa.aggregators.accelerated import accelerated
from rfa.aggregators.adaptive_radius import Radius
from rfa.aggregators.summed import center_of_groups, rfa, secure_mean, sub_cohorts
from rfa.aggregators.weiszfeld import one_step, weiszfeld
from rfa.errors import InvalidValueError, OracleStoppedError
from rfa.flower import records as wire
from rfa.flower.arrays import moved, size_of
from rfa.flower.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rfa.flower.options import check_own, check_usual
from rfa.flower.oracles import GridSums, RoundSkippedError, Sums, mean_metrics, split
from rfa.flower.transport import GridExchange, SteadyGrid, letters_of
from rfa.lab.simulation.summed import nearness
from rfa.oracle import SumOracle
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.terms import Terms

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class _Run:
    """What stays the same from round to round."""

    grid: Grid
    train: ConfigRecord
    evaluate: ConfigRecord
    timeout: float
    evaluate_fn: Evaluate | None


class RFA(FedAvg):
    """RFA: the geometric median by Weiszfeld steps, each a secure sum (Algorithms 1 and 2).

    Every node needs `ClientApp(mods=[robust_mod])`.
    """

    stepped, uses_nu = True, True
    """Whether the steps are as many as the budget says, and whether there is a radius to learn."""

    def __init__(  # noqa: PLR0913
        self,
        *,
        budget: int = 3,
        nu: float | None = None,
        start: str = "zero",
        weiszfeld: str = "plain",
        groups: int = 1,
        radius: float = 100.0,
        example_cap: float = 1000.0,
        personal: str = "",
        terms: Terms | None = None,
        identities: Identities | None = None,
        stage_timeout: float = 120.0,
        node_timeout: float = 600.0,
        checkpoint: Path | str | None = None,
        **usual: Any,
    ) -> None:
        """A strategy with the options of Flower's FedAvg, and its own.

        Args:
            budget: sums that a round may take, R.
            nu: the smoothing radius. By default half the median distance of the updates, which is
                learned from how many nodes each sum counts within 2 nu, and followed.
            start: where the steps start: zero (the current model), or mean (itself a sum).
            weiszfeld: how the budget is spent: plain steps; accelerated, the last sum at an
                extrapolation; or sub-cohorts, each step another part of the nodes, so that every
                node answers once.
            groups: random groups of nodes, each with sums of its own, whose geometric median is
                taken: nodes that lie inside the sums do no harm while more than half of the groups
                that give a result have none of them.
            radius: to what length a mean cuts updates.
            example_cap: the most examples that count: a public number, by which weights are
                divided. Weights far below it lose digits.
            personal: a name under which each node keeps parameters of its own (Algorithm 4): the
                app then trains and evaluates the model plus those. Empty for none.
            terms: what the secure sum must withstand.
            identities: the public identities of nodes, where these do not trust the server.
            stage_timeout: seconds to wait for the answers to a stage of the secure sum.
            node_timeout: seconds to wait for enough nodes, before a round is skipped.
            checkpoint: the file from which a server that was restarted goes on.
            usual: the options of FedAvg: fraction_train, min_available_nodes and so on. By default
                the least numbers of nodes are what the terms need.

        Raises:
            ValueError: if an option has no meaning, or its value none; the message says which.
        """
        terms = Terms() if terms is None else terms
        self.budget, self.nu, self.start_at, self.radius = budget, nu, start, radius
        self.weiszfeld, self.groups, self.learned = weiszfeld, groups, Radius()
        check_usual(usual, terms, self)
        super().__init__(**usual)
        self.example_cap, self.personal = example_cap, personal
        self.stage_timeout, self.node_timeout = stage_timeout, node_timeout
        self.checkpoint = Path(checkpoint) if checkpoint else None
        self.terms, self.identities = terms, identities
        check_own(self)

    @property
    def sums(self) -> int:
        """The sums that a node takes part in, in a round, at most."""
        return 1 if self.weiszfeld == "sub-cohorts" else self.budget

    @property
    def parts(self) -> int:
        """Into how many parts, each with sums of its own, the nodes are split."""
        return self.budget if self.weiszfeld == "sub-cohorts" else self.groups

    @property
    def learns(self) -> bool:
        """Whether nu is learned from the sums."""
        return self.uses_nu and self.nu is None

    @property
    def nu_now(self) -> float:
        """The radius of this round."""
        return self.learned.nu if self.nu is None else self.nu

    def aggregate(self, ask: SumOracle, dim: int) -> Vector:
        """The step of the model, from the sums over a group of nodes, or over all."""
        return rfa(
            ask,
            dim,
            nu=self.nu_now,
            budget=self.budget,
            start=self.start_at,
            radius=self.radius,
            steps=accelerated if self.weiszfeld == "accelerated" else weiszfeld,
        )

    def combine(self, asks: Sequence[SumOracle], dim: int) -> Vector:
        """The step of the model, from the sums over each part of the nodes."""
        if self.weiszfeld == "sub-cohorts":
            return sub_cohorts(asks, np.zeros(dim), nu=self.nu_now)
        if len(asks) > 1:
            return center_of_groups(asks, lambda ask: self.aggregate(ask, dim))
        return self.aggregate(asks[0], dim)

    def summary(self) -> None:
        """Log how the strategy is set up."""
        super().summary()
        LOG.info("\t└──> Secure sums: %s a round, under %s", self.sums, self.terms)
        nu = "learned" if self.learns else self.nu
        LOG.info("\t\t├── nu %s, radius %g, start at %s", nu, self.radius, self.start_at)
        LOG.info("\t\t├── %s steps, %s parts", self.weiszfeld, self.parts)
        LOG.info("\t\t└── at most %g examples of a node count", self.example_cap)

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

        Args:
            grid: Flower's grid.
            initial_arrays: the first model.
            num_rounds: rounds in all, with those of the checkpoint.
            timeout: seconds to wait for nodes that train or evaluate.
            train_config: what the app's training is told.
            evaluate_config: what the app's evaluation is told.
            evaluate_fn: evaluates a model on the server, before the first round and after each.
        """
        began = time.monotonic()
        LOG.info("Starting %s strategy: %s rounds", type(self).__name__, num_rounds)
        self.summary()
        if not size_of(initial_arrays):
            msg = "the model has no floating-point numbers: there is nothing to aggregate"
            raise InvalidValueError(msg)
        state = load_checkpoint(self.checkpoint, initial_arrays)
        self.learned = state.radius
        if state.round:
            LOG.info("going on after round %s, from %s", state.round, self.checkpoint)
        elif evaluate_fn:
            _note(state.result.evaluate_metrics_serverapp, 0, evaluate_fn(0, state.arrays))
        train, evaluate = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        run = _Run(grid, train, evaluate, timeout, evaluate_fn)
        for t in range(state.round + 1, num_rounds + 1):
            LOG.info("")
            LOG.info("[ROUND %s/%s]", t, num_rounds)
            state = self._round(run, t, state)
            save_checkpoint(self.checkpoint, state)
        if num_rounds and state.arrays is initial_arrays:
            LOG.warning("no round gave a step: the model is the first one, and the log says why")
        _tell(state.result, time.monotonic() - began)
        return state.result

    def _round(self, run: _Run, t: int, state: Checkpoint) -> Checkpoint:
        """Train, evaluate, and note what came of it."""
        arrays, metrics = self._train(run, t, state.arrays)
        result = state.result
        result.arrays = arrays
        _note(result.train_metrics_clientapp, t, metrics)
        save_checkpoint(self.checkpoint, Checkpoint(t, arrays, result, self.learned))
        _note(result.evaluate_metrics_clientapp, t, self._evaluate(run, t, arrays))
        if run.evaluate_fn:
            _note(result.evaluate_metrics_serverapp, t, run.evaluate_fn(t, arrays))
        return Checkpoint(t, arrays, result, self.learned)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
        """There are no updates to aggregate here."""
        _refuse_replies(server_round, replies)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
        """There are no metrics to aggregate here."""
        _refuse_replies(server_round, replies)

    def _train(
        self, run: _Run, t: int, arrays: ArrayRecord
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        """A round of training: the arrays after it, which are those before if there is no sum."""
        if not self.fraction_train:
            return arrays, None
        try:
            grid = self._steady(run.grid, self.fraction_train, self.min_train_nodes)
            letters = letters_of(self.configure_train(t, arrays, run.train, grid))
            sums = GridSums(run.grid, self.terms, self.identities)
            cohort = sums.gather(self._work(wire.TRAIN), letters, t, run.timeout)
            if cohort.dim != size_of(arrays):
                msg = f"updates have {cohort.dim} numbers, and the model {size_of(arrays)}"
                raise RoundSkippedError(msg)
            exchange = GridExchange(run.grid, wire.TRAIN, t, self.stage_timeout)
            parts = split(cohort.devices, self.parts)
            with sums.over_parts(cohort, exchange, parts, steps=self.sums) as asks:
                step = self.combine(asks, cohort.dim)
        except OracleStoppedError as error:
            LOG.warning("round %s is skipped, and the model is kept: %s", t, error)
            return arrays, None
        self._learn(asks)
        return moved(arrays, step), mean_metrics(cohort.layout, asks)

    def _learn(self, asks: Sequence[Sums]) -> None:
        """Steer nu by how many nodes the last sums counted as near."""
        if self.learns:
            self.learned = self.learned.after(nearness(asks))

    def _evaluate(self, run: _Run, t: int, arrays: ArrayRecord) -> MetricRecord | None:
        """The means of the metrics of an evaluation, from one sum."""
        if not self.fraction_evaluate:
            return None
        try:
            grid = self._steady(run.grid, self.fraction_evaluate, self.min_evaluate_nodes)
            letters = letters_of(self.configure_evaluate(t, arrays, run.evaluate, grid))
            sums = GridSums(run.grid, self.terms, self.identities)
            cohort = sums.gather(self._work(wire.EVALUATE), letters, t, run.timeout)
            exchange = GridExchange(run.grid, wire.EVALUATE, t, self.stage_timeout)
            with sums.over(cohort, exchange, steps=1) as ask:
                ask(np.zeros(cohort.dim), 1.0)
        except OracleStoppedError as error:
            LOG.warning("the evaluation of round %s is skipped: %s", t, error)
            return None
        return mean_metrics(cohort.layout, [ask])

    def _work(self, task: str) -> wire.Work:
        return wire.Work(task, float(self.example_cap), self.weighted_by_key, self.personal)

    def _steady(self, grid: Grid, fraction: float, least: int) -> Grid:
        """Wait for as many nodes as a round needs, but not for ever, and hold on to their list.

        Raises:
            RoundSkippedError: if there are too few.
        """
        end = time.monotonic() + self.node_timeout
        while True:
            nodes = list(grid.get_node_ids())
            there = len(nodes)
            needed = max(self.min_available_nodes, least, int(there * fraction))
            if there >= needed:
                return cast("Grid", SteadyGrid(grid, nodes))
            if time.monotonic() >= end:
                msg = f"{there} nodes are there after {self.node_timeout:g} s, and {needed} are "
                msg += "needed"
                raise RoundSkippedError(msg)
            time.sleep(min(0.2, self.node_timeout))


class OneStepRFA(RFA):
    """One Weiszfeld step from the current model: the communication of FedAvg (Algorithm 3)."""

    stepped = False

    @property
    def sums(self) -> int:
        """One."""
        return 1

    def aggregate(self, ask: SumOracle, dim: int) -> Vector:
        """The step of the model, from one sum."""
        return one_step(ask, dim, nu=self.nu_now)


class SecureFedAvg(OneStepRFA):
    """FedAvg by one secure sum, with updates cut to a declared length: private, hardly robust."""

    uses_nu = False

    def aggregate(self, ask: SumOracle, dim: int) -> Vector:
        """The mean of the updates, each cut to the radius."""
        return secure_mean(ask, dim, radius=self.radius)


def _refuse_replies(server_round: int, replies: Iterable[Message]) -> NoReturn:
    msg = (
        f"round {server_round}: RFA has no replies of single nodes to aggregate ({type(replies)}); "
        "it takes secure sums in start(), so wrappers of aggregate_train cannot work on it"
    )
    raise NotImplementedError(msg)


def _note(history: dict[int, MetricRecord], t: int, found: MetricRecord | None) -> None:
    if found is not None:
        LOG.info("\t└──> MetricRecord: %s", found)
        history[t] = found


def _tell(result: Result, seconds: float) -> None:
    LOG.info("")
    LOG.info("Strategy execution finished in %.2fs", seconds)
    for line in io.StringIO(str(result)):
        LOG.info("\t%s", line.rstrip("\n"))
