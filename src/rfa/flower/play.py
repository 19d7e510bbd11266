"""The rounds of a run: train, evaluate, record the results, and give up if there are none."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from rfa._types import Vector
from rfa.aggregators.adaptive_radius import RADIUS_RANGE
from rfa.aggregators.server_optimizer import build_optimizer
from rfa.errors import OracleStoppedError
from rfa.flower import records
from rfa.flower.arrays import moved, overflown, size_of
from rfa.flower.checkpoint import Checkpoint, save_checkpoint, save_spending
from rfa.flower.errors import NodesRefusedError, NodesSpentError, NothingDoneError
from rfa.flower.history import note_metrics
from rfa.flower.parts import PartOracle, summarize
from rfa.flower.receipts import receipt_of
from rfa.flower.refusals import AllRefusedError
from rfa.flower.summing import Asked, take_sums
from rfa.flower.transport import by_node
from rfa.receipts import ReceiptBook

if TYPE_CHECKING:
    from rfa.flower.strategy import SecureStrategy

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
LOG = logging.getLogger("flwr")
EVALUATION_RADIUS = RADIUS_RANGE[1]
"""A radius above the smallest one of any policy, and so large that nodes count by their weight."""


@dataclass(frozen=True)
class Run:
    """The values that stay the same in all rounds.

    Attributes:
        strategy: the strategy.
        grid: Flower's grid.
        train: the config for the app's training.
        evaluate: the config for its evaluation.
        timeout: seconds to wait for nodes that train or evaluate.
        evaluate_fn: evaluates a model on the server, if there is one.
        book: the book of receipts, if there is one.
    """

    strategy: SecureStrategy
    grid: Grid
    train: ConfigRecord
    evaluate: ConfigRecord
    timeout: float
    evaluate_fn: Evaluate | None
    book: ReceiptBook | None


class Progress:
    """Counts the rounds of a run that gave a result.

    Attributes:
        done: the number of rounds that did.
        refused: the number of rounds in a row, up to the last one, in which all nodes refused.
        why: why the last round without a result had none.
    """

    def __init__(self) -> None:
        """Begin a run."""
        self.done, self.refused, self.why = 0, 0, ""

    def count(self) -> None:
        """Count a round that gave a result."""
        self.done, self.refused = self.done + 1, 0

    def skip(self, error: OracleStoppedError, result: Result) -> None:
        """Continue after a round without a result, or give up.

        If all nodes refuse, the next round will probably fail too. A run that has had a result gets
        one more attempt.

        Raises:
            NodesRefusedError: if the run cannot continue.
        """
        self.why = str(error)
        self.refused = self.refused + 1 if isinstance(error, AllRefusedError) else 0
        if self.refused and (not self.done or self.refused > 1):
            raise NodesRefusedError(self.why, result)

    def finish(self, rounds: int, result: Result) -> None:
        """End a run.

        Raises:
            NothingDoneError: if none of its rounds gave a result.
        """
        if rounds and not self.done:
            count = "the round" if rounds == 1 else f"none of {rounds} rounds"
            msg = f"{count} gave {'no' if rounds == 1 else 'a'} result: {self.why}"
            raise NothingDoneError(msg, result)


def play_rounds(run: Run, state: Checkpoint, num_rounds: int) -> Checkpoint:
    """Run rounds until the total is reached, or `on_round` ends the run.

    Raises:
        RunFailedError: if they give no result.
    """
    strategy, progress, first = run.strategy, Progress(), state.round + 1
    for t in range(first, num_rounds + 1):
        if _is_spent(run, t, state, progress, began=first):
            return state
        LOG.info("")
        LOG.info("[ROUND %s/%s]", t, num_rounds)
        state, trained = _train(run, t, state, progress)
        save_checkpoint(strategy.options.checkpoint, state)
        evaluated = _evaluate(run, t, state, progress)
        strategy.missing.warn()
        if run.evaluate_fn:
            found = run.evaluate_fn(t, state.arrays)
            note_metrics(state.result.evaluate_metrics_serverapp, t, found)
        state = dataclasses.replace(state, suspicion=strategy.suspicion)  # of the evaluation, too
        save_checkpoint(strategy.options.checkpoint, state)
        answer = strategy.on_round(t, state.arrays, trained, evaluated)
        if _ends_run(answer, tell=t == first):
            LOG.info("on_round ends the run after round %s", t)
            break
    if not progress.done and _is_spent(run, num_rounds + 1, state, progress, began=first):
        return state
    if strategy.fraction_train or strategy.fraction_evaluate:
        progress.finish(max(0, num_rounds + 1 - first), state.result)
    return state


def _ends_run(answer: object, *, tell: bool) -> bool:
    """Return whether the answer of `on_round` ends the run: True does, of Python or numpy."""
    if isinstance(answer, bool | np.bool_):
        return bool(cast("Any", answer))
    if tell and answer is not None:
        LOG.warning("on_round returned %r, and the run continues: True ends it", answer)
    return False


def _is_spent(run: Run, t: int, state: Checkpoint, progress: Progress, *, began: int) -> bool:
    """Return whether a run ends before round t, because too few nodes have a privacy budget left.

    Raises:
        NodesSpentError: if it does, and nothing was trained.
    """
    why = run.strategy.privacy.over(run.grid)
    if not why:
        return False
    if not progress.done and began == 1:
        raise NodesSpentError(why, state.result)
    LOG.warning("the run ends before round %s, and the model is kept: %s", t, why)
    return True


def _train(
    run: Run, t: int, state: Checkpoint, progress: Progress
) -> tuple[Checkpoint, MetricRecord | None]:
    """Train for a round, and return the new state; the old state if there is no sum."""
    strategy, result = run.strategy, state.result
    if not strategy.fraction_train:
        return dataclasses.replace(state, round=t), None
    try:
        there = strategy.privacy.within_budget(run.grid)
        grid = strategy.steady(there, strategy.fraction_train, strategy.min_train_nodes)
        messages = by_node(strategy.configure_train(t, state.arrays, run.train, grid))
        strategy.privacy.ask(len(messages), len(list(grid.get_node_ids())))
        strategy.privacy.save = partial(save_spending, strategy.options.checkpoint, state)
        done = strategy.train_round(
            run.grid,
            t,
            messages,
            dim=size_of(state.arrays),
            timeout=run.timeout,
            state=state.aggregator,
        )
        arrays, optimizer = _move(strategy, state, done.result.point)
    except OracleStoppedError as error:
        LOG.warning("round %s is skipped, and the model is kept: %s", t, error)
        if not strategy.privacy.over(run.grid):
            progress.skip(error, result)
        metrics = strategy.privacy.told(None)  # requested sums are spent even if none was opened
        note_metrics(result.train_metrics_clientapp, t, metrics)
        known = {"suspicion": strategy.suspicion, "spending": strategy.privacy.spending}
        return dataclasses.replace(state, round=t, **known), metrics
    progress.count()
    result.arrays = arrays
    if run.book:  # before the checkpoint: a round that is done has a receipt
        run.book.write(receipt_of(t, strategy.aggregator, state, done, arrays))
    metrics = strategy.privacy.told(done.metrics)
    note_metrics(result.train_metrics_clientapp, t, metrics)
    kept = done.state, strategy.suspicion, optimizer, strategy.privacy.spending
    return Checkpoint(t, arrays, result, *kept), metrics


def _move(strategy: SecureStrategy, state: Checkpoint, point: Vector) -> tuple[ArrayRecord, Any]:
    """Return the model after a round, and the state of the server's optimizer.

    Raises:
        OracleStoppedError: if the aggregate would leave numbers in the model that are not finite.
    """
    step, optimizer = point, state.optimizer
    if chosen := build_optimizer(strategy.options.server_optimizer):
        step, optimizer = chosen(step, optimizer)
    with np.errstate(over="ignore"):
        arrays = moved(state.arrays, step)
    if names := overflown(state.arrays, arrays):
        msg = f"the aggregate of {type(strategy.aggregator).__name__} is not finite, or too large "
        raise OracleStoppedError(msg + f"for {names[0]}")
    return arrays, optimizer


def _evaluate(run: Run, t: int, state: Checkpoint, progress: Progress) -> MetricRecord | None:
    """Evaluate the model, and return the means of the metrics, from one sum."""
    strategy = run.strategy
    if not strategy.fraction_evaluate:
        return None
    try:
        grid = strategy.steady(run.grid, strategy.fraction_evaluate, strategy.min_evaluate_nodes)
        messages = by_node(strategy.configure_evaluate(t, state.arrays, run.evaluate, grid))
        sums, work = strategy.sums(run.grid, strategy.plan()), strategy.work(records.EVALUATE)
        asked = Asked(work, messages, t, run.timeout, records.STAND_IN)
        done = take_sums(strategy, sums, asked, _sum_of_one_part)
    except OracleStoppedError as error:
        LOG.warning("the evaluation of round %s is skipped: %s", t, error)
        if not strategy.fraction_train:
            progress.skip(error, state.result)
        return None
    if not strategy.fraction_train:
        progress.count()
    metrics = summarize(done.cohort, done.oracles)
    note_metrics(state.result.evaluate_metrics_clientapp, t, metrics)
    return metrics


def _sum_of_one_part(oracles: list[PartOracle]) -> None:
    """Ask for the one sum of an evaluation."""
    oracles[0](np.zeros(records.STAND_IN), EVALUATION_RADIUS)
