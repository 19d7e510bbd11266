"""The secure sum behind the seam: an oracle that asks devices, whoever carries the messages."""

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
"""Sends requests, and brings the replies that come, by device."""


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
    """A round to begin, under a session of its own.

    Args:
        number: the number of the round, greater than that of any round before.
        terms: what is offered to the devices.
        queries: how many sums may be asked for, R.
        dim: the number of coordinates d.
        metrics: how many further numbers of each device are summed.
        max_share: the largest share of any device in a sum, which each device checks for itself
            after a phase that sums the scalars alone; 0 for none.
        statistics: the names of the totals that are summed beside the push; count always is, the
            mass where max_share needs it, near where another query may depend on it, and equal
            weights never are.
        equal_weights: whether every device was told to bring a weight of exactly 1.
        basis: the digest of what devices trained or evaluated from, 32 bytes.
        noise: the least noise of a sum over what one device can add to its push; 0 for none. With
            noise, weights are equal, there are no metrics and no limit on shares, and no squares
            are summed.
        fast: whether the first sum is taken with the roster, which takes two exchanges less (three
            where the server is malicious), and one more where a device is lost there. Not with
            max_share.
        block: how many coordinates share a radius, of which there is one for each block then; 0
            for one radius. Such a round has one query, no noise and no limit on shares.

    Raises:
        ParameterError: if there are too many masked sums or metrics, no such statistics, or what
            does not go with noise.
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
    """Refuse what is too large for a round, or does not go together.

    Raises:
        ParameterError: naming it.
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
            "coordinates and a max_share of 1, and a number below 2^64: not "
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
    """The counts of a round, which are whole numbers."""
    for name, value, least in (
        ("the number of the round", number, 1),
        ("queries", queries, 1),
        ("dim", dim, 1),
        ("metrics", metrics, 0),
    ):
        insist(check_count, name, value, least=least)
    return int(number), int(queries), int(dim), int(metrics)


class Ended:
    """Whether a round has ended by an abort: no sum comes after one."""

    def __init__(self, exchange: object = None) -> None:
        """Tell with an abort what devices in this process refused."""
        self._refused: Mapping[int, SecAggError] = getattr(exchange, "refused", {})
        self._why: AbortError | None = None

    def check(self) -> None:
        """Refuse to go on after an abort.

        Raises:
            AbortError: saying why the round ended.
        """
        if self._why is not None:
            msg = f"the round has ended: {self._why}"
            raise AbortError(msg)

    @contextlib.contextmanager
    def watch(self) -> Generator[None]:
        """Note an abort in the block."""
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
    """The real protocol.

    Attributes:
        opening: the round, as it was opened.
        server: the server's side: parameters, and who lost a place and why.
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
            opening: the round.
            terms: what is offered to the devices.
            devices: whom to ask.
            exchange: carries the messages.
            identities: the public identities of the devices, where the server is malicious.
            recorder: keeps what a receipt tells of the round, if one is wanted.
            adverts: what devices answered to the opening, if they know it already.
            keys_ahead: the keys that all devices sent in the round before
                (`server.keys_ahead`), with which a fast round takes one exchange less.
            ask_ahead: whether devices are asked for such keys with the last sum.

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
        """The sum at v, rounded to float32.

        Raises:
            AbortError: if there is no such sum; the sums before stand.
        """
        self._ended.check()
        with self._watched():
            if self.opening.max_share:
                self._masked_sum(v, nu)
            self.last = self._masked_sum(v, nu)
        return self.last.sum

    @contextlib.contextmanager
    def _watched(self) -> Generator[None]:
        """Note an abort in the block, here and in the record."""
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
