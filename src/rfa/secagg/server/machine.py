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
from rfa.secagg.blocks import sent_radius
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.errors import (
    AbortError,
    OtherSessionError,
    OutOfStageError,
    ParameterError,
    RefusalError,
    SecAggError,
)
from rfa.secagg.fixed_point import Total, as_sent
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import (
    SIGNATURE_SIZE,
    Abstain,
    AdvertiseKeys,
    DeviceKeys,
    FirstInput,
    MaskedInput,
    ShareKeys,
    SumRequest,
    SurvivorList,
    SurvivorSignature,
    UnmaskShares,
)
from rfa.secagg.messages.values import write_bitmap
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.rules import (
    Answered,
    Members,
    require_enough,
    require_many_beyond,
)
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.admission import Admission
from rfa.secagg.server.ahead import check_keys, may_be_ahead, with_opening
from rfa.secagg.server.complaints import Dispute, Unopened, disputes_of, faults_of
from rfa.secagg.server.masked_sum import MaskedSum
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.server.requests import Requests
from rfa.secagg.server.table import Table
from rfa.secagg.transcript import devices_digest

SLACK = 1 << 9
"""The bytes of a reply beside its lists."""


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
        self._positions: dict[int, int] = {}
        self._before: Members | None = None
        self._ready: Members = frozenset()
        self._now: MaskedSum | None = None
        self._mass = 0
        self._answered: Answered | None = None
        self._wanted: type[Message] = Message
        self._largest = 0
        self._asked: set[int] = set()
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
        self._expect(AdvertiseKeys, SLACK + 32 * self._opening.masked_sums, asked)
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
        if not may_be_ahead(self._opening):
            msg = "a round begins with keys of the round before if it is fast, and the server is "
            raise ParameterError(msg + "semi-honest: give fast=True, or ask for new keys")
        for each in keys:
            try:
                self._admission.take(each.device, each)
            except SecAggError as error:
                msg = f"the keys that devices sent ahead make no cohort: {error}"
                raise AbortError(msg) from None
        self._begins_ahead = True
        self.form()

    def roster(self) -> Requests:
        """Send the cohort to its members, who deal shares.

        Raises:
            AbortError: if too few devices joined.
        """
        self.form()
        table = self._formed()
        self._expect(ShareKeys, SLACK + table.deal_size, self._positions)
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
        self._expect(FirstInput, SLACK + table.deal_size + now.reply_size, self._positions)
        requests = table.rosters(now.sum_request)
        if self._begins_ahead:
            requests = with_opening(self._opening, requests)
        return Requests(requests, self.parameters.survivors, self._whom(self._positions))

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
        self._positions = {keys.device: position for position, keys in enumerate(table.keys)}
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
        alive = frozenset(table.deals) if self._before is None else self._ready
        require_enough(self.parameters, alive, "are left")
        now = self._begin(alive, v, nu)
        self._expect(MaskedInput, SLACK + now.reply_size, table.devices(alive))
        requests = ((table.keys[at].device, each) for at, each in now.sum_requests())
        return Requests(requests, self._enough(alive, free=self._before is None))

    def _begin(self, alive: Members, v: Any, nu: Radius) -> MaskedSum:
        """Return the next masked sum, over some devices of the cohort."""
        table, opening = self._formed(), self._opening
        if self.masked_sum not in opening.sums_from(table.first):
            msg = f"all {opening.each_roster} masked sums of the round are used up"
            raise AbortError(msg)
        least, levels = sent_radius(opening, nu)
        second = opening.is_second(self.masked_sum)
        if not second:
            require_many_beyond(
                self.parameters, self._answered, least, self._terms.honest_per_query
            )
        sum_request = SumRequest(
            session=opening.session,
            masked_sum=self.masked_sum,
            vector=int(second or not opening.max_share),
            nu=float(least),
            mass=self._mass if second else 0,
            alive=write_bitmap(alive, table.cohort.parameters.cohort),
            sealed=(),
            v=as_sent(v, opening.dim),
            levels=levels,
        )
        self._now = MaskedSum(table, sum_request, alive)
        self.masked_sum += 1
        self.begun = self.masked_sum - table.first
        return self._now

    def survivors(self) -> Requests:
        """Send the list of survivors, to be signed; only if the server is malicious.

        Raises:
            AbortError: if the sum over them may not be opened.
        """
        now = self._closed()
        message = SurvivorList(self._opening.session, now.sum_request.masked_sum, now.bitmap)
        encoded, devices = message.encode(), self._formed().devices(now.survivors)
        self._expect(SurvivorSignature, SLACK + SIGNATURE_SIZE, devices)
        requests = ((device, encoded) for device in devices)
        return Requests(requests, self._enough(now.survivors, free=self._is_last))

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
        table, size = self._formed(), SIGNATURE_SIZE + SHARE_SIZE * self.parameters.degree
        size += 32 * self._opening.masked_sums
        self._expect(UnmaskShares, SLACK + size, table.devices(members))
        shares = now.unmask_requests(members, ahead=self._asks_ahead and self._is_last)
        requests = ((table.keys[at].device, each) for at, each in shares)
        whom = self._whom(table.devices(members))
        return Requests(requests, self._enough(members, free=self._is_last), whom)

    def _whom(self, devices: Iterable[int]) -> bytes:
        """Return the digest by which devices recognize a sum; empty for a malicious server."""
        trusted = self._opening.server_model == ServerModel.SEMI_HONEST
        return devices_digest(devices) if trusted else b""

    def total(self) -> Total:
        """Open the sum and return its total.

        Raises:
            AbortError: if that is not possible; it names the device at fault if it is known.
        """
        now = self._masked_sum()
        require_enough(self.parameters, frozenset(now.opened), "opened the sum")
        self._hear(now)
        try:
            total = now.total()
        finally:
            self.disputes |= disputes_of(now.wrong, self._formed().names, now.forgers)
            self.unopened = now.unopened
        if self._recorder:
            self._recorder.close(now)
        self._before, self._ready = now.survivors, frozenset(now.opened)
        if now.sum_request.vector:
            queries = self._answered.queries + 1 if self._answered else 1
            self._answered = Answered(queries, now.sum_request.nu, total.sum)
        self._mass, self._now = total.mass, None
        return total

    def take(self, device: int, reply: bytes) -> bool:
        """Take a reply, and return whether it is good. A bad one costs its device its place.

        A reply from a device that was not asked, or has answered, changes nothing.
        """
        if device not in self._asked:
            msg = f"device {device} was not asked, or has answered"
            self.faults.setdefault(device, OutOfStageError(msg))
            return False
        self._asked.discard(device)
        try:
            self._accept(device, decode(reply, self._largest))
        except SecAggError as error:
            self.faults[device] = error
            return False
        if self._recorder and self._wanted in (MaskedInput, FirstInput):
            self._recorder.take(self._positions[device], reply)
        return True

    def _accept(self, device: int, message: Message) -> None:
        if message.session != self._opening.session:
            msg = f"the reply of device {device} is of another session"
            raise OtherSessionError(msg)
        joins = self._wanted is AdvertiseKeys or (self._begins_ahead and self._wanted is FirstInput)
        if isinstance(message, Abstain) and joins:
            msg = f"device {device} abstains: its update is not finite, of no examples, or not new"
            raise RefusalError(msg)
        if not isinstance(message, self._wanted):
            msg = f"device {device} sent {type(message).__name__} for {self._wanted.__name__}"
            raise OutOfStageError(msg)
        match message:
            case AdvertiseKeys():
                self._admission.take(device, message.keys)
            case ShareKeys():
                self._formed().take_deal(self._positions[device], message)
            case FirstInput():
                self._formed().take_deal(self._positions[device], message.deal)
                self._masked_sum().take_masked(self._positions[device], message.masked)
            case MaskedInput():
                self._masked_sum().take_masked(self._positions[device], message)
            case SurvivorSignature():
                self._masked_sum().take_consent(self._positions[device], message, self._identities)
            case UnmaskShares():
                self._take_opened(device, message)
            case _:  # the server never asks for it
                raise AssertionError

    def _take_opened(self, device: int, message: UnmaskShares) -> None:
        """Take shares, and the keys for the next round that come with the last ones."""
        check_keys(device, message.keys, self._next, asked=self._asks_ahead and self._is_last)
        self._masked_sum().take_opened(self._positions[device], message, self._identities)
        for keys in message.keys:
            self._next.take(device, keys)

    def _expect(self, wanted: type[Message], largest: int, devices: Iterable[int]) -> None:
        self._wanted, self._largest, self._asked = wanted, largest, set(devices)

    @property
    def _is_last(self) -> bool:
        """Whether no query comes after the current one."""
        return self._opening.is_last(self.masked_sum - 1)

    def _enough(self, members: Members, *, free: bool) -> int:
        """Return how many devices must answer: all, unless a loss here has no consequences.

        Between two queries no device may be lost, or the next sum would reveal it.
        """
        return min(len(members), self.parameters.survivors) if free else len(members)

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
        self._hear(now)
        now.close(self._before)
        return now

    def _hear(self, now: MaskedSum) -> None:
        """Process the complaints of devices about shares that they could not unseal."""
        names = self._formed().names
        self.faults |= faults_of(now.complaints, self.parameters.num_colluders, names)
        self.disputes |= disputes_of(now.complaints, names)

    def _masked_sum(self) -> MaskedSum:
        if self._now is None:
            msg = "no masked sum has begun: call ask first"
            raise OutOfStageError(msg)
        return self._now
