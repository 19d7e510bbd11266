"""The secure sum as an oracle, with any transport for its messages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Generator, Iterable, Mapping

from rfa._checks import check_count, check_flag, check_number
from rfa._types import Vector
from rfa.oracle import Sum
from rfa.radii import Radius, check_block
from rfa.secagg.blocks import block_fault
from rfa.secagg.errors import AbortError, ParameterError, SecAggError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.opening import MAX_METRICS, NO_BASIS, OpenRound
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.noise import noise_fault
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import MAX_MASKED_SUMS, ServerModel, insist
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.machine import Server
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.server.requests import Outbox, Requests
from rfa.secagg.statistics import ALL, mask_of_round

Exchange = Callable[[Outbox], Iterable[tuple[int, bytes]]]
"""A function that sends requests and returns the replies that arrive, by device."""


def open_round(  # noqa: PLR0913
    number: int,
    terms: Terms,
    *,
    queries: int,
    dim: int,
    metrics: int = 0,
    max_share: float = 0.0,
    statistics: Collection[str] = ALL,
    equal_weights: bool = False,
    basis: bytes = NO_BASIS,
    noise: float = 0.0,
    fast: bool = False,
    block: int = 0,
) -> OpenRound:
    """Return the opening of a new round, with a fresh session.

    Args:
        number: the number of the round, greater than that of any round before.
        terms: the terms that the server offers to the devices.
        queries: the number of queries R that the round may make.
        dim: the number of coordinates d.
        metrics: the number of further numbers of each device to sum.
        max_share: the largest share of any device in a sum; 0 for no limit. Each device checks its
            own share, after a first phase that sums the scalars alone.
        statistics: the names of the totals to sum beside the push. The count is always summed, the
            mass where max_share needs it, and near where another query may depend on it; equal
            weights are never summed.
        equal_weights: whether every device was told to bring a weight of exactly 1.
        basis: the digest of the task, model and configs that devices started from, 32 bytes.
        noise: the least noise of a sum, divided by the most that one device can add to the push; 0
            for none. A round with noise has equal weights, no metrics, no limit on shares and no
            squares.
        fast: whether to take the first sum together with the roster. It saves two exchanges (three
            with a malicious server), and costs one more if a device is lost there. It excludes
            max_share.
        block: the number of coordinates that share a radius, one radius for each block; 0 for one
            radius. A round of blocks has one query, no noise and no limit on shares.

    Returns:
        The first message of the round, for `SecureOracle` or `UnmaskedOracle`.

    Raises:
        ParameterError: if there are too many masked sums or metrics, if a statistic is unknown, or
            if some options exclude each other.
    """
    insist(check_number, "max_share", max_share)
    insist(check_number, "noise", noise)
    insist(check_flag, "equal_weights", equal_weights)
    insist(check_flag, "fast", fast)
    insist(check_block, "block", block, least=0)
    opening = OpenRound(
        os.urandom(16),
        *_sizes(number, queries, dim, metrics),
        float(max_share),
        int(terms.server_model),
        mask_of_round(
            statistics,
            queries=queries,
            max_share=max_share,
            equal_weights=equal_weights,
            noise=noise,
        ),
        int(equal_weights),
        basis,
        float(noise),
        int(fast),
        int(block),
    )
    _check(opening)
    return opening


def _check(opening: OpenRound) -> None:
    """Check that the sizes of a round are allowed, and that its options fit together.

    Raises:
        ParameterError: naming the first that does not.
    """
    number, dim, metrics, max_share = (
        opening.round,
        opening.dim,
        opening.metrics,
        opening.max_share,
    )
    large = opening.masked_sums > MAX_MASKED_SUMS or metrics > MAX_METRICS or number >= 1 << 64
    if large or max_share > 1 or dim >= 1 << 32:
        msg = (
            f"a round has at most {MAX_MASKED_SUMS} masked sums, {MAX_METRICS} metrics, 2^32 - 1 "
            "coordinates, and a max_share of 1, and a number below 2^64: not "
            f"{opening.masked_sums}, {metrics}, {dim}, {max_share} and {number}"
        )
        raise ParameterError(msg)
    basis = opening.basis
    if not isinstance(basis, bytes) or len(basis) != len(NO_BASIS):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the basis is a digest of {len(NO_BASIS)} bytes, not {basis!r}"
        raise ParameterError(msg)
    if opening.fast and max_share:
        msg = f"a fast round takes its first sum at once, and max_share={max_share:g} asks for the "
        raise ParameterError(msg + "scalars before: give fast=False, or max_share=0")
    if fault := noise_fault(opening) or block_fault(opening):
        raise ParameterError(fault)


def _sizes(number: int, queries: int, dim: int, metrics: int) -> tuple[int, int, int, int]:
    """Return the counts of a round, after checking that they are whole numbers."""
    for name, value, least in (
        ("the number of the round", number, 1),
        ("queries", queries, 1),
        ("dim", dim, 1),
        ("metrics", metrics, 0),
    ):
        insist(check_count, name, value, least=least)
    return int(number), int(queries), int(dim), int(metrics)


class Ended:
    """The state of a round that an abort may end: no sum comes after one."""

    def __init__(self, exchange: object = None) -> None:
        """Add the refusals of devices in this process to the message of an abort."""
        self._refused: Mapping[int, SecAggError] = getattr(exchange, "refused", {})
        self._why: AbortError | None = None

    def check(self) -> None:
        """Check that the round has not ended.

        Raises:
            AbortError: if it has; the message says why.
        """
        if self._why is not None:
            msg = f"the round has ended: {self._why}"
            raise AbortError(msg)

    @contextlib.contextmanager
    def watch(self) -> Generator[None]:
        """Record an abort in the block."""
        try:
            yield
        except AbortError as error:
            self._why = error
            if not self._refused:
                raise
            device, why = next(iter(self._refused.items()))
            msg = f"{error} ({len(self._refused)} refused; device {device} said: {why})"
            self._why = type(error)(msg)
            raise self._why from None


class SecureOracle:
    """An oracle that runs the secure sum with devices.

    *Formal guarantee*: if no more devices collude and drop out than the terms allow, the server
    learns the opened totals and nothing else about the updates of honest devices.
    docs/threat-model.md lists the assumptions and the exceptions, each with its test.

    Attributes:
        opening: the round, as it was opened.
        server: the server's state machine, with the parameters, the devices that were lost, and
            why.
        last: the last total, with the sums of the metrics.
    """

    def __init__(  # noqa: PLR0913
        self,
        opening: OpenRound,
        terms: Terms,
        devices: Iterable[int],
        exchange: Exchange,
        identities: Identities | None = None,
        *,
        recorder: Recorder | None = None,
        adverts: Mapping[int, bytes] | None = None,
        keys_ahead: Mapping[int, DeviceKeys] | None = None,
        ask_ahead: bool = False,
    ) -> None:
        """Open a round with these devices, and form the cohort.

        Args:
            opening: the round, from `open_round`.
            terms: the terms that the server offers to the devices.
            devices: the devices to ask.
            exchange: carries the messages.
            identities: the public identities of the devices; required with a malicious server.
            recorder: records the round for a receipt, if one is wanted.
            adverts: the answers of devices to the opening, if they have answered already.
            keys_ahead: the keys that all devices sent in the round before (`server.keys_ahead`).
                With them, a fast round takes one exchange less.
            ask_ahead: whether to ask devices for such keys with the last sum.

        Raises:
            AbortError: if too few devices join.
        """
        self.opening = opening
        self._exchange = exchange
        self._ended = Ended(exchange)
        self._recorder = recorder
        self.server = Server(opening, terms, identities, recorder, ask_ahead=ask_ahead)
        self.last: Total | None = None
        with self._watched():
            if keys_ahead is not None:
                self.server.open_ahead(keys_ahead[device] for device in sorted(set(devices)))
                return
            requests = self.server.open(devices)
            if adverts is None:
                self._carry(requests)
            else:
                for device, reply in adverts.items():
                    self.server.take(device, reply)
            self.server.form()
            if not opening.fast:
                self._carry(self.server.roster())

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """Return the sum at v, rounded to float32.

        Raises:
            AbortError: if the protocol does not open this sum; the earlier sums stay valid.
        """
        self._ended.check()
        with self._watched():
            if self.opening.max_share:
                self._masked_sum(v, nu)
            self.last = self._masked_sum(v, nu)
        return self.last.sum

    @contextlib.contextmanager
    def _watched(self) -> Generator[None]:
        """Record an abort in the block, here and in the recorder."""
        try:
            with self._ended.watch():
                yield
        except AbortError as error:
            if self._recorder:
                self._recorder.stop(error)
            raise

    def _masked_sum(self, v: Vector, nu: Radius) -> Total:
        if self.opening.fast and not self.server.masked_sum:
            self._carry(self.server.first(v, nu))
            if self.server.is_complete:
                self._carry(self.server.unmask())
                return self.server.total()
            self._carry(self.server.regroup())
        self._carry(self.server.ask(v, nu))
        if self.opening.server_model == ServerModel.MALICIOUS:
            self._carry(self.server.survivors())
        self._carry(self.server.unmask())
        return self.server.total()

    def _carry(self, requests: Requests) -> None:
        for device, reply in self._exchange(requests):
            requests.spoilt += not self.server.take(device, reply)
