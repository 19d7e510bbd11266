"""The server's side of a secure sum: bytes in, bytes out, and never a device's input.

Each stage is a method that closes the stage before and returns the requests to send. The server
takes replies in any order. A bad reply costs at most its device its place (`faults` says why); too
few devices end the round with an `AbortError`. The server adds masked vectors to one running total
when they arrive, so it holds none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rfa.radii import Radius
from rfa.secagg.errors import OutOfStageError, ParameterError, SecAggError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import (
    SIGNATURE_SIZE,
    AdvertiseKeys,
    DeviceKeys,
    FirstInput,
    MaskedInput,
    ShareKeys,
    SurvivorSignature,
    UnmaskShares,
)
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.rules import Members, needed_answers, require_enough
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.admission import Admission
from rfa.secagg.server.ahead import admit_ahead, check_keys, may_be_ahead, with_opening
from rfa.secagg.server.complaints import Dispute, Unopened
from rfa.secagg.server.masked_sum import MaskedSum
from rfa.secagg.server.queries import Progress
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.server.replies import Expected
from rfa.secagg.server.requests import Requests, whom_of
from rfa.secagg.server.table import Table


class Server:
    """A server in one round.

    Attributes:
        faults: the devices at fault, most of which lost their place, and the reason.
        disputes: pairs of a dealer and a holder of shares, one of which is at fault.
        unopened: the secret that could not be opened, if that ended the round.
        masked_sum: the number of the next masked sum.
        begun: the number of sums over its cohort for which it asked for masked inputs, whether or
            not they were opened. A sum that is asked for again, after a new cohort was formed,
            counts once.
        opened: whether it asked any device to open a sum.
    """

    def __init__(
        self,
        opening: OpenRound,
        terms: Terms,
        identities: Identities | None = None,
        recorder: Recorder | None = None,
        *,
        ask_ahead: bool = False,
    ) -> None:
        """Create the server of a round.

        Args:
            opening: the round, from `open_round`.
            terms: the terms that it offers to the devices.
            identities: the public identities of the devices; required if the server is malicious.
            recorder: records the round for a receipt, if one is wanted.
            ask_ahead: whether to ask devices, with the last sum, for their keys of the next round;
                only in fast rounds of a semi-honest server.

        Raises:
            ParameterError: if the opening and the terms have different server models.
        """
        if opening.server_model != terms.server_model:
            msg = f"a round of server model {opening.server_model} cannot be held under {terms}"
            raise ParameterError(msg)
        self._opening = opening
        self._terms = terms
        self._admission = Admission(opening, terms, identities or {})
        self._identities = identities or {}
        self._recorder = recorder
        self._table: Table | None = None
        self._now: MaskedSum | None = None
        self._progress = Progress()
        self._expected = Expected(Message, 0, ())
        self._asks_ahead = ask_ahead and may_be_ahead(opening)
        self._begins_ahead = False
        self._next = Admission(opening, terms, {})
        self.masked_sum = 0
        self.begun = 0
        self.opened = False
        self.faults: dict[int, SecAggError] = {}
        self.disputes: set[Dispute] = set()
        self.unopened: Unopened | None = None

    @property
    def parameters(self) -> Parameters:
        """The parameters, once the cohort is formed."""
        return self._formed().cohort.parameters

    @property
    def keys_ahead(self) -> Mapping[int, DeviceKeys]:
        """The keys for the next round that devices sent with their last shares."""
        return self._next.joined

    def open(self, devices: Iterable[int]) -> Requests:
        """Begin the round: ask devices for their keys."""
        asked = sorted(set(devices))
        size = 32 * self._opening.masked_sums
        self._expected = Expected(AdvertiseKeys, size, asked, may_abstain=True)
        message = self._opening.encode()
        return Requests(
            ((device, message) for device in asked),
            self._terms.enough(len(asked), self._opening.queries),
        )

    def open_ahead(self, keys: Iterable[DeviceKeys]) -> None:
        """Begin a fast round with devices that sent their keys in the one before.

        They learn about it with the first sum.

        Raises:
            AbortError: if they are too few, or two have the same key.
            ParameterError: if the round is not fast, or its server may be malicious.
        """
        admit_ahead(keys, self._opening, self._admission)
        self._begins_ahead = True
        self.form()

    def roster(self) -> Requests:
        """Send the cohort to its members, who deal shares.

        Raises:
            AbortError: if too few devices joined.
        """
        self.form()
        table = self._formed()
        self._expected = Expected(ShareKeys, table.deal_size, table.names)
        return Requests(table.rosters(), self.parameters.survivors)

    def form(self) -> None:
        """Form the cohort of the devices that joined, once.

        Raises:
            AbortError: if too few devices joined.
        """
        if self._table is None:
            self._seat(self._admission.close(self.faults))

    def first(self, v: Any, nu: Radius) -> Requests:
        """Send the cohort, and ask for all inputs at v at once, in a fast round.

        Raises:
            AbortError: if too few devices joined.
            ValueError: if v or nu is not valid.
        """
        self.form()
        table = self._formed()
        now = self._begin(table.everyone, v, nu)
        size = table.deal_size + now.reply_size
        self._expected = Expected(FirstInput, size, table.names, may_abstain=self._begins_ahead)
        requests = table.rosters(now.sum_request)
        if self._begins_ahead:
            requests = with_opening(self._opening, requests)
        return Requests(requests, self.parameters.survivors, whom_of(self._opening, table.names))

    @property
    def is_complete(self) -> bool:
        """Whether all devices that were asked in the current masked sum have answered."""
        return self._masked_sum().is_complete

    def regroup(self) -> Requests:
        """Send a cohort without the devices that did not answer the first sum of a fast round.

        That sum is never opened; the first masked sum over the new cohort is about the same query.

        Raises:
            AbortError: if too few devices are left.
        """
        now, table = self._masked_sum(), self._formed()
        if self.opened or not now.is_first:
            msg = "a new cohort can only replace one whose first sum was not opened"
            raise OutOfStageError(msg)
        self.masked_sum = self._opening.each_roster
        left = table.without(table.everyone - now.arrived, self.masked_sum, self._terms)
        self._now = None
        self._seat(left)
        return self.roster()

    def _seat(self, table: Table) -> None:
        """Continue with the devices of a table."""
        self._table = table
        if self._recorder:
            self._recorder.form(table, self._identities)

    def ask(self, v: Any, nu: Radius) -> Requests:
        """Begin a masked sum: ask for all inputs at v.

        With a limit on shares, the first masked sum of a query asks for the scalars and the next
        one, at the same v and nu, for the vectors.

        Raises:
            AbortError: if too few devices are left, or no masked sum is.
            ValueError: if v or nu is not valid.
        """
        table = self._formed()
        alive, is_first = self._progress.alive(table), self._progress.survivors is None
        require_enough(self.parameters, alive, "are left")
        now = self._begin(alive, v, nu)
        self._expected = Expected(MaskedInput, now.reply_size, table.devices(alive))
        enough = needed_answers(self.parameters, alive, free=is_first)
        return Requests(now.sum_requests(), enough)

    def _begin(self, alive: Members, v: Any, nu: Radius) -> MaskedSum:
        """Return the next masked sum, over some devices of the cohort."""
        table, per_query = self._formed(), self._terms.honest_per_query
        request = self._progress.request(table, self.masked_sum, alive, v, nu, per_query)
        self._now = MaskedSum(table, request, alive)
        self.masked_sum += 1
        self.begun = self.masked_sum - table.first
        return self._now

    def survivors(self) -> Requests:
        """Send the list of survivors, to be signed; only if the server is malicious.

        Raises:
            AbortError: if the sum over them may not be opened.
        """
        now = self._closed()
        devices = self._formed().devices(now.survivors)
        self._expected = Expected(SurvivorSignature, SIGNATURE_SIZE, devices)
        enough = needed_answers(self.parameters, now.survivors, free=now.is_last)
        return Requests(now.survivor_requests(), enough)

    def unmask(self) -> Requests:
        """Ask for the shares that open the sum.

        Raises:
            AbortError: if the sum may not be opened.
        """
        now, trusted = self._masked_sum(), self._opening.server_model == ServerModel.SEMI_HONEST
        if trusted or now.is_first:
            members = self._closed().survivors
        else:
            members = frozenset(now.signatures)
            require_enough(self.parameters, members, "signed the survivors")
        self.opened = True
        devices = self._formed().devices(members)
        self._expected = Expected(UnmaskShares, now.opened_size, devices)
        requests = now.unmask_requests(members, ahead=self._asks_ahead and now.is_last)
        enough = needed_answers(self.parameters, members, free=now.is_last)
        return Requests(requests, enough, whom_of(self._opening, devices))

    def total(self) -> Total:
        """Open the sum and return its total.

        Raises:
            AbortError: if that is not possible; it names the device at fault if it is known.
        """
        now = self._masked_sum()
        require_enough(self.parameters, frozenset(now.opened), "opened the sum")
        self.faults |= now.faults
        try:
            total = now.total()
        finally:
            self.disputes |= now.disputes
            self.unopened = now.unopened
        if self._recorder:
            self._recorder.close(now)
        self._progress, self._now = self._progress.after(now, total), None
        return total

    def take(self, device: int, reply: bytes) -> bool:
        """Take a reply, and return whether it is good. A bad one costs its device its place.

        A reply from a device that was not asked, or has answered, changes nothing.
        """
        if device not in self._expected.devices:
            msg = f"device {device} was not asked, or has answered"
            self.faults.setdefault(device, OutOfStageError(msg))
            return False
        try:
            self._accept(device, self._expected.read(device, reply, self._opening.session))
        except SecAggError as error:
            self.faults[device] = error
            return False
        if self._recorder and self._expected.kind in (MaskedInput, FirstInput):
            self._recorder.take(self._formed().positions[device], reply)
        return True

    def _accept(self, device: int, message: Message) -> None:
        if isinstance(message, AdvertiseKeys):
            self._admission.take(device, message.keys)
            return
        table = self._formed()
        position = table.positions[device]
        match message:
            case ShareKeys():
                table.take_deal(position, message)
            case FirstInput():
                table.take_deal(position, message.deal)
                self._masked_sum().take_masked(position, message.masked)
            case MaskedInput():
                self._masked_sum().take_masked(position, message)
            case SurvivorSignature():
                self._masked_sum().take_consent(position, message, self._identities)
            case UnmaskShares():
                self._take_opened(device, position, message)
            case _:  # the server never asks for it
                raise AssertionError

    def _take_opened(self, device: int, position: int, message: UnmaskShares) -> None:
        """Take shares, and the keys for the next round that come with the last ones."""
        now = self._masked_sum()
        check_keys(device, message.keys, self._next, asked=self._asks_ahead and now.is_last)
        now.take_opened(position, message, self._identities)
        for keys in message.keys:
            self._next.take(device, keys)

    def _formed(self) -> Table:
        if self._table is None:
            msg = "there is no cohort yet: open, take the replies, and send the roster first"
            raise OutOfStageError(msg)
        return self._table

    def _closed(self) -> MaskedSum:
        """Return the masked sum with its survivors, after all complaints.

        Raises:
            AbortError: if the sum over them may not, or cannot, be opened.
        """
        now = self._masked_sum()
        self.faults |= now.faults
        self.disputes |= now.disputes
        now.close(self._progress.survivors)
        return now

    def _masked_sum(self) -> MaskedSum:
        if self._now is None:
            msg = "no masked sum has begun: call ask first"
            raise OutOfStageError(msg)
        return self._now
