"""The server's state of one masked sum: a running total, sets of positions, and opened shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from rfa.secagg.crypto.keys import is_signed
from rfa.secagg.crypto.masks import add_masks
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.errors import (
    ImplausibleSumError,
    NotCanonicalError,
    OutOfStageError,
    SecAggError,
    SignatureError,
    TooFewDevicesError,
    WrongDimensionError,
)
from rfa.secagg.fixed_point import Encoding, Total
from rfa.secagg.messages.round import (
    SIGNATURE_SIZE,
    MaskedInput,
    SumRequest,
    SurvivorList,
    SurvivorSignature,
    Unmask,
    UnmaskShares,
)
from rfa.secagg.messages.values import read_share, write_bitmap
from rfa.secagg.security.cohort import Cohort, Identities
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.rules import Members, require_enough, require_same
from rfa.secagg.server.complaints import (
    Dispute,
    Unopened,
    disputes_of,
    faults_of,
    read_complaints,
    require_shares,
)
from rfa.secagg.server.table import Table
from rfa.secagg.server.unmasking import OpenedShares
from rfa.secagg.transcript import (
    context_of,
    point_of,
    survivors_statement,
)
from rfa.secagg.words import TAIL, WORD, Words


def tail_size(cohort: Cohort) -> int:
    """Return the number of scalars in a device's input."""
    return len(_encoding_of(cohort).rows) + cohort.opening.metrics


def decode_total(cohort: Cohort, words: Words, tail: Sequence[int], survivors: int) -> Total:
    """Decode the total of a sum over this number of devices, after the masks are removed.

    Raises:
        ImplausibleSumError: if honest devices cannot have such a total.
    """
    total = _encoding_of(cohort).decode(words, tail)
    if total.sum.count != survivors:
        msg = f"{total.sum.count} devices are in a sum over {survivors}"
        raise ImplausibleSumError(msg)
    return total


def _encoding_of(cohort: Cohort) -> Encoding:
    return Encoding.of(cohort.opening, cohort.parameters)


class MaskedSum:
    """A masked sum in progress.

    Attributes:
        sum_request: the request, without the sealed shares.
        alive: the devices that are asked.
        survivors: the devices whose inputs arrived, once that is fixed.
        signatures: the signatures of the survivors.
        opened: the shares that devices opened.
        words: the running total of the vectors; without masks once the sum is opened.
        tail: the running total of the scalars, likewise.
        complaints: for each dealer whose shares did not unseal, the holders who say so.
    """

    def __init__(self, table: Table, sum_request: SumRequest, alive: Members) -> None:
        self._table = table
        point = point_of(sum_request.v, sum_request.nu, sum_request.levels)
        self._context = context_of(table.cohort.digest, sum_request, point)
        self.words = np.zeros(table.cohort.opening.dim if sum_request.vector else 0, WORD)
        self.tail = [0] * tail_size(table.cohort)
        self._shares = OpenedShares(table, sum_request.masked_sum)
        self.sum_request = sum_request
        self.alive = alive
        self.arrived: set[int] = set()
        self.survivors: Members = frozenset()
        self.signatures: dict[int, bytes] = {}
        self.opened: set[int] = set()
        self.complaints: dict[int, set[int]] = {}

    @property
    def reply_size(self) -> int:
        """The bytes of the vector, the scalars and the complaints in a reply."""
        return self.words.nbytes + 16 * len(self.tail) + len(self.sum_request.alive)

    @property
    def opened_size(self) -> int:
        """The bytes of the signature, the shares and the keys for the next round in a reply."""
        opening, degree = self._table.cohort.opening, self._table.cohort.parameters.degree
        return SIGNATURE_SIZE + SHARE_SIZE * degree + 32 * opening.masked_sums

    @property
    def is_first(self) -> bool:
        """Whether it is the first sum of a fast round: over the whole roster, or never opened."""
        return self._table.cohort.opening.is_first(self.sum_request.masked_sum)

    @property
    def is_last(self) -> bool:
        """Whether no query comes after this one."""
        return self._table.cohort.opening.is_last(self.sum_request.masked_sum)

    @property
    def is_complete(self) -> bool:
        """Whether all inputs arrived."""
        return self.alive <= self.arrived

    @property
    def bitmap(self) -> bytes:
        """The survivors as they are sent."""
        return write_bitmap(self.survivors, self._table.cohort.parameters.cohort)

    @property
    def faults(self) -> dict[int, SecAggError]:
        """The devices about which more devices complain than can lie together, and the error."""
        colluders = self._table.cohort.parameters.num_colluders
        return faults_of(self.complaints, colluders, self._table.names)

    @property
    def disputes(self) -> set[Dispute]:
        """The pairs of a dealer and a holder of shares, one of which is at fault."""
        names = self._table.names
        wrong = disputes_of(self._shares.wrong, names, self._shares.forgers)
        return wrong | disputes_of(self.complaints, names)

    @property
    def secrets(self) -> Mapping[int, bytes]:
        """The secrets that removed masks, by position: seeds of survivors, keys of drop-outs."""
        return self._shares.secrets

    @property
    def unopened(self) -> Unopened | None:
        """The secret that could not be opened, if there is one."""
        return self._shares.unopened

    def sum_requests(self) -> Iterator[tuple[int, bytes]]:
        """Yield, for each device, the request with the shares that its neighbors dealt to it."""
        for position in sorted(self.alive):
            request = dataclasses.replace(self.sum_request, sealed=self._sealed_for(position))
            yield self._table.keys[position].device, request.encode()

    def survivor_requests(self) -> Iterator[tuple[int, bytes]]:
        """Return, for each survivor, the list of survivors to sign."""
        request = self.sum_request
        message = SurvivorList(request.session, request.masked_sum, self.bitmap).encode()
        return ((device, message) for device in self._table.devices(self.survivors))

    def unmask_requests(
        self, members: Members, *, ahead: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Yield, for each of some devices, the request to open the sum over the survivors.

        The request of the first sum of a fast round contains the shares that the device holds.

        Args:
            members: the devices to ask.
            ahead: whether to ask also for their keys of the next round.
        """
        signatures = tuple(sorted(self.signatures.items()))
        head = self.sum_request.session, self.sum_request.masked_sum, self.bitmap, signatures
        message = Unmask(*head, ahead=int(ahead))
        common = message.encode()
        for position in sorted(members):
            if self.is_first:
                common = dataclasses.replace(message, sealed=self._sealed_for(position)).encode()
            yield self._table.keys[position].device, common

    def _sealed_for(self, position: int) -> tuple[bytes, ...]:
        dealers = self._dealers(position)
        return self._table.sealed_for(position, dealers, self.sum_request.masked_sum)

    def take_masked(self, position: int, masked: MaskedInput) -> None:
        """Add a device's masked input to the total."""
        self._check_masked_sum(masked.masked_sum)
        if len(masked.words) != len(self.words) or len(masked.tail) != len(self.tail):
            msg = f"a part of {len(masked.words)} coordinates instead of {len(self.words)}"
            raise WrongDimensionError(msg)
        cohort = self._table.cohort.parameters.cohort
        accused = read_complaints(masked.complaints, self._dealers(position), cohort)
        self._note_complaints(position, accused)
        self.words += masked.words
        self.tail = [(a + b) % TAIL for a, b in zip(self.tail, masked.tail, strict=True)]
        self.arrived.add(position)

    def _note_complaints(self, holder: int, dealers: Iterable[int]) -> None:
        for dealer in dealers:
            self.complaints.setdefault(dealer, set()).add(holder)

    def close(self, before: Members | None) -> None:
        """Fix the survivors.

        Raises:
            AbortError: if the sum over them may not be opened.
        """
        self.survivors = frozenset(self.arrived)
        cohort = self._table.cohort
        if self.is_first and not self.is_complete:
            msg = "the first sum of a fast round is over all devices, and not all of them answered"
            raise TooFewDevicesError(msg)
        require_enough(cohort.parameters, self.survivors, "sent their inputs")
        same = cohort.opening.is_second(self.sum_request.masked_sum)
        require_same(cohort.parameters, before, self.survivors, same_query=same)
        require_shares(cohort, self.survivors, self.complaints, self._table.names)

    def take_consent(
        self, position: int, consent: SurvivorSignature, identities: Identities
    ) -> None:
        """Take a device's signature of the survivors."""
        self._check_masked_sum(consent.masked_sum)
        device = self._table.keys[position].device
        statement = survivors_statement(self._context, self.bitmap)
        if not is_signed(identities[device], statement, consent.signature):
            msg = f"device {device} did not sign the survivors"
            raise SignatureError(msg)
        self.signatures[position] = consent.signature

    def take_opened(self, position: int, opened: UnmaskShares, identities: Identities) -> None:
        """Take the shares that a device opens; in a first sum, its signature comes with them."""
        self._check_masked_sum(opened.masked_sum)
        model = self._table.cohort.opening.server_model
        if self.is_first and model == ServerModel.MALICIOUS:
            consent = SurvivorSignature(b"", opened.masked_sum, opened.signature)
            self.take_consent(position, consent, identities)
        dealers = self._dealers(position)
        if len(opened.shares) != len(dealers):
            msg = f"{len(opened.shares)} shares were opened instead of {len(dealers)}"
            raise WrongDimensionError(msg)
        shares = dict(zip(dealers, map(read_share, opened.shares), strict=True))
        missing = {dealer for dealer, share in shares.items() if share is None}
        if self.is_first:  # only now does the device have shares to complain about
            self._note_complaints(position, missing)
        self._check_missing(position, shares, missing)
        for dealer, share in shares.items():
            if share is not None:
                self._shares.take(position, dealer, share)
        self.opened.add(position)

    def _check_missing(self, position: int, dealers: Iterable[int], missing: set[int]) -> None:
        """Check that opened and missing shares agree with the holder's complaints.

        Raises:
            NotCanonicalError: if they do not; the message names the dealer.
        """
        for dealer in dealers:
            if (dealer in missing) != (position in self.complaints.get(dealer, ())):
                device = self._table.keys[dealer].device
                msg = f"a share of device {device} was opened, but the holder had said that it "
                msg += "could not be unsealed"
                if dealer in missing:
                    msg = f"no share of device {device} was opened, but the holder had not said "
                    msg += "that it could not be unsealed"
                raise NotCanonicalError(msg)

    def total(self) -> Total:
        """Remove the masks, and decode the sum.

        Raises:
            AbortError: if that is not possible.
        """
        if self.is_first:
            cohort, names = self._table.cohort, self._table.names
            require_shares(cohort, frozenset(self.opened), self.complaints, names)
        masks = self._shares.masks(self.alive, self.survivors, self._context)
        add_masks(self.words, self.tail, masks)
        return decode_total(self._table.cohort, self.words, self.tail, len(self.survivors))

    def _dealers(self, position: int) -> list[int]:
        """Return the dealers whose shares a device holds in this masked sum."""
        return [other for other in self._table.cohort.neighbors(position) if other in self.alive]

    def _check_masked_sum(self, masked_sum: int) -> None:
        if masked_sum != self.sum_request.masked_sum:
            current = self.sum_request.masked_sum
            msg = f"a reply is about masked sum {masked_sum}, and this is masked sum {current}"
            raise OutOfStageError(msg)
