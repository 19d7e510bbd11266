"""One masked sum as the server sees it: a running total, sets of positions, and opened shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from rfa.secagg.crypto.graph import rank
from rfa.secagg.crypto.keys import agree, is_signed, public_of
from rfa.secagg.crypto.masks import TAIL, WORD, Mask, add_masks
from rfa.secagg.crypto.shares import recover
from rfa.secagg.errors import (
    BadShareError,
    ImplausibleSumError,
    OutOfStageError,
    SignatureError,
    WrongDimensionError,
)
from rfa.secagg.fixed_point import Encoding, Total
from rfa.secagg.messages.round import (
    Consent,
    Deal,
    DeviceKeys,
    Masked,
    Opened,
    Question,
    read_share,
    write_bitmap,
)
from rfa.secagg.security.cohort import Cohort, Identities
from rfa.secagg.security.rules import Members, require_enough, require_same
from rfa.secagg.statistics import STATISTICS
from rfa.secagg.transcript import (
    commitment_to,
    context_of,
    pair_mask_key,
    point_of,
    self_mask_key,
    survivors_statement,
)


@dataclasses.dataclass(frozen=True)
class Table:
    """What the server knows of the cohort when its turns begin, by position.

    Attributes:
        cohort: the cohort.
        keys: the public keys of its members.
        deals: the sealed shares and commitments of those who dealt.
    """

    cohort: Cohort
    keys: list[DeviceKeys]
    deals: dict[int, Deal]


class Turn:
    """A masked sum on its way.

    Attributes:
        question: what is asked, without the sealed shares.
        alive: who is asked.
        survivors: whose parts came, once that is fixed.
        signatures: who signed them.
        opened: who opened shares.
    """

    def __init__(self, table: Table, question: Question, alive: Members) -> None:
        self._table = table
        self._context = context_of(table.cohort.digest, question, point_of(question.v, question.nu))
        self._words = np.zeros(table.cohort.opening.dim if question.vector else 0, WORD)
        self._tail = [0] * (len(STATISTICS) + table.cohort.opening.metrics)
        self._shares: dict[int, dict[int, int]] = {}
        self._doubted: set[int] = set()
        self.question = question
        self.alive = alive
        self.arrived: set[int] = set()
        self.survivors: Members = frozenset()
        self.signatures: dict[int, bytes] = {}
        self.opened: set[int] = set()

    @property
    def reply_size(self) -> int:
        """The bytes of the vector and the scalars in a reply."""
        return self._words.nbytes + 16 * len(self._tail)

    @property
    def bitmap(self) -> bytes:
        """The survivors as they travel."""
        return write_bitmap(self.survivors, self._table.cohort.parameters.cohort)

    def questions(self) -> Iterator[tuple[int, bytes]]:
        """For each device that is asked, the question with what its neighbors dealt to it."""
        turns, turn = self._table.cohort.opening.turns, self.question.turn
        for position in sorted(self.alive):
            sealed = tuple(
                self._table.deals[dealer].sealed[turns * (self._rank(position, dealer) - 1) + turn]
                for dealer in self._dealers(position)
            )
            yield position, dataclasses.replace(self.question, sealed=sealed).encode()

    def take_masked(self, position: int, masked: Masked) -> None:
        """Add a device's masked part to the total."""
        self._check_turn(masked.turn)
        if len(masked.words) != len(self._words) or len(masked.tail) != len(self._tail):
            msg = f"a part of {len(masked.words)} coordinates instead of {len(self._words)}"
            raise WrongDimensionError(msg)
        self._words += masked.words
        self._tail = [(a + b) % TAIL for a, b in zip(self._tail, masked.tail, strict=True)]
        self.arrived.add(position)

    def close(self, before: Members | None) -> None:
        """Fix the survivors.

        Raises:
            AbortError: if the sum over them may not be opened.
        """
        self.survivors = frozenset(self.arrived)
        cohort = self._table.cohort
        require_enough(cohort.parameters, self.survivors, "sent their parts")
        same = cohort.opening.is_second(self.question.turn)
        require_same(cohort.parameters, before, self.survivors, same_step=same)

    def take_consent(self, position: int, consent: Consent, identities: Identities) -> None:
        """Take a device's signature under the survivors."""
        self._check_turn(consent.turn)
        device = self._table.keys[position].device
        statement = survivors_statement(self._context, self.bitmap)
        if not is_signed(identities[device], statement, consent.signature):
            msg = f"device {device} did not sign the survivors"
            raise SignatureError(msg)
        self.signatures[position] = consent.signature

    def take_opened(self, position: int, opened: Opened) -> None:
        """Take the shares that a device opens."""
        self._check_turn(opened.turn)
        dealers = self._dealers(position)
        if len(opened.shares) != len(dealers):
            msg = f"{len(opened.shares)} shares were opened instead of {len(dealers)}"
            raise WrongDimensionError(msg)
        shares = [read_share(share) for share in opened.shares]
        for dealer, share in zip(dealers, shares, strict=True):
            if share is not None:
                self._shares.setdefault(dealer, {})[self._rank(position, dealer)] = share
        self.opened.add(position)

    def total(self) -> Total:
        """Take the masks off, and decode the sum.

        Raises:
            AbortError: if that cannot be done.
        """
        add_masks(self._words, self._tail, self._masks())
        encoding = Encoding(self._table.cohort.parameters.cohort)
        total = encoding.decode(self._words, self._tail)
        if total.sum.count != len(self.survivors):
            msg = f"{total.sum.count} devices are in a sum over {len(self.survivors)}"
            raise ImplausibleSumError(msg)
        return total

    def _masks(self) -> list[Mask]:
        """The masks that are still on the total: self-masks, and those shared with drop-outs."""
        masks = [
            (self_mask_key(self._seed(position), self._context), False)
            for position in self.survivors
        ]
        for position in self.alive - self.survivors:
            masks += self._masks_with(position)
        return masks

    def _seed(self, position: int) -> bytes:
        """The seed of a survivor's self-mask, which is what it committed to."""
        turn, cohort = self.question.turn, self._table.cohort.digest
        promised = self._table.deals[position].commitments[turn]
        return self._recover(
            position, lambda seed: commitment_to(seed, cohort, position, turn) == promised
        )

    def _masks_with(self, position: int) -> list[Mask]:
        """The masks that survivors share with a device that dropped out."""
        publics = [keys.mask_keys[self.question.turn] for keys in self._table.keys]
        secret = self._recover(position, lambda secret: public_of(secret) == publics[position])
        others = [
            other for other in self._table.cohort.neighbors(position) if other in self.survivors
        ]
        agreed = agree(secret, [publics[other] for other in others])
        return [
            (pair_mask_key(shared, self._context, position, other), position < other)
            for other, shared in zip(others, agreed, strict=True)
        ]

    def _recover(self, position: int, is_secret: Callable[[bytes], bool]) -> bytes:
        """A secret of a device, from the shares of holders who gave no reason for doubt first."""
        holders = self._table.cohort.neighbors(position)
        threshold = self._table.cohort.parameters.threshold
        given = self._shares.get(position, {})
        order = sorted(given, key=lambda rank: (holders[rank - 1] in self._doubted, rank))
        shares = {rank: given[rank] for rank in order}
        try:
            secret, used = recover(shares, threshold=threshold, is_secret=is_secret)
        except BadShareError as error:
            device = self._table.keys[position].device
            msg = f"a secret of device {device} cannot be opened: {error}; it, or neighbors, lie"
            raise BadShareError(msg) from None
        self._doubted |= {holders[rank - 1] for rank in order[:threshold] if rank not in used}
        return secret

    def _dealers(self, position: int) -> list[int]:
        """Whose shares a device holds in this turn."""
        return [other for other in self._table.cohort.neighbors(position) if other in self.alive]

    def _rank(self, holder: int, dealer: int) -> int:
        parameters = self._table.cohort.parameters
        return rank(holder, dealer, parameters.cohort, parameters.degree)

    def _check_turn(self, turn: int) -> None:
        if turn != self.question.turn:
            msg = f"a reply is about turn {turn}, and this is turn {self.question.turn}"
            raise OutOfStageError(msg)
