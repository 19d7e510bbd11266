"""The device's side of a secure sum: bytes in, bytes out.

A device trusts its own code only. It answers each request of a round once, in order; it refuses
everything else with a named error, and its state is then as if it had not been asked.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from rfa.secagg.cohort import (
    accept,
    agreed_survivors,
    leaf_of,
    pair_mask,
    point_of,
    self_mask,
)
from rfa.secagg.crypto.keys import agree, public_of, seal, sign, unseal
from rfa.secagg.crypto.masks import Mask, add_masks
from rfa.secagg.crypto.shares import SHARE_SIZE, are_shares, split
from rfa.secagg.device.memory import GONE, Memory, forget
from rfa.secagg.device.position import Place
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import (
    AskedTwiceError,
    OtherSessionError,
    OutOfStageError,
    ReplayedRoundError,
    SignatureError,
    WeightLimitError,
)
from rfa.secagg.fixed_point import MASS, Contribution, Encoding, Part, weighs_more
from rfa.secagg.messages.round import (
    NO_SHARE,
    Abstain,
    Advertise,
    Consent,
    Deal,
    Entry,
    Masked,
    Message,
    Open,
    Opened,
    Question,
    Roster,
    Survivors,
    Unmask,
    decode,
    decode_as,
)
from rfa.secagg.security.parameters import Trust
from rfa.secagg.security.rules import Members
from rfa.secagg.transcript import SIZE, derive_key, digest, number

Entropy = Callable[[int], bytes]
PLACES: dict[type[Message], int] = {Open: 0, Roster: 1, Question: 2, Survivors: 3, Unmask: 4}
"""The order of what a device is asked; the last three come again in each turn."""
IN_TURN = 3
OVER = (1 << 32) - 1
"""What is due when a device has left the round."""


class Device:
    """A device in one round.

    Formal guarantees (tests/secagg/test_refusals.py, test_adversary.py): it masks one answer a
    turn; it releases one share of each neighbor's secrets a turn, of either kind and never both;
    and it does so only for cohorts, radii, steps and survivors that its policy and the parameters
    allow.
    """

    def __init__(
        self,
        mine: Contribution | None,
        profile: Profile,
        *,
        rounding: bytes | None = None,
        entropy: Entropy = os.urandom,
        memory: Memory | None = None,
    ) -> None:
        """A device with what it brings into a round.

        Args:
            mine: its update, weight and metrics; None if the update is not finite: it abstains.
            profile: what it is.
            rounding: the key of the random choices in rounding, fresh by default.
            entropy: where its secrets come from.
            memory: where it was, after a restart; or just the last round that it joined.
        """
        self._mine = mine
        self._device = int(profile.device)
        self._policy = profile.policy
        self._identity = profile.identity
        self._rounding = rounding
        self._entropy = entropy
        self._place: Place | None = None
        self._size = 4 * len(mine.update) if mine else 0
        self.memory = memory or Memory()

    @property
    def due(self) -> int:
        """The place in the round of the message that the device waits for."""
        return self.memory.due

    @property
    def over(self) -> bool:
        """Whether the device has answered everything that a round may ask."""
        due = self.memory.due
        return due > 0 and due >= PLACES[Question] + IN_TURN * self._opening().turns

    def receive(self, request: bytes) -> bytes:
        """Answer a request; the same request again gets the same bytes.

        Raises:
            RefusalError, MessageError: if it is refused; nothing has changed then. A refusal that
                depends on its update, by the limit on weights, ends the round for the device: the
                server learns that bit once.
        """
        message = decode(request, self._policy.largest + self._size)
        asked = digest(b"request", request)
        if asked == self.memory.request:
            return self.memory.reply
        self._check_stage(message)
        try:
            after, reply = self._answer(message, request)
        except WeightLimitError:
            self.memory = Memory(round=self.memory.round, due=OVER, opening=self.memory.opening)
            raise
        encoded = reply.encode()
        self.memory = dataclasses.replace(after, request=asked, reply=encoded)
        return encoded

    def _answer(self, message: Message, request: bytes) -> tuple[Memory, Message]:
        match message:
            case Open():
                return self._join(message, request)
            case Roster():
                return self._deal(message, request)
            case Question():
                return self._mask(message)
            case Survivors():
                return self._consent(message)
            case Unmask():
                return self._open(message)
            case _:  # _check_stage has refused it
                raise AssertionError

    def _check_stage(self, message: Message) -> None:
        """Refuse what is of another session, comes too early, or came before."""
        name, due = type(message).__name__, self.memory.due
        if type(message) not in PLACES:
            msg = f"{name} is nothing that a device is asked"
            raise OutOfStageError(msg)
        if due and message.session != self._opening().session:
            msg = f"{name} of session {message.session.hex()}, which is not that of this round"
            raise OtherSessionError(msg)
        if due == OVER:
            msg = f"{name} is asked of a device that has left the round"
            raise OutOfStageError(msg)
        place = PLACES[type(message)] + IN_TURN * getattr(message, "turn", 0)
        if place < due:
            msg = f"{name} was asked before, with another request"
            raise AskedTwiceError(msg)
        if place > due or self.over or (due and self._mine is None):
            msg = f"{name} is asked out of turn: it is number {place} of the round, not {due}"
            raise OutOfStageError(msg)

    def _opening(self) -> Open:
        return decode_as(Open, self.memory.opening)

    def _placed(self) -> Place:
        """Where the device stands, from its memory after a restart."""
        if self._place is None:
            self._place = self._find_place(decode_as(Roster, self.memory.roster))
        return self._place

    def _find_place(self, roster: Roster) -> Place:
        opening, own = self._opening(), decode_as(Advertise, self.memory.advert).entry
        known = self._identity.known if self._identity else None
        return Place(opening, *accept(roster, opening, own, known))

    def _join(self, opening: Open, request: bytes) -> tuple[Memory, Message]:
        """Make the secrets of a round, and advertise their public halves."""
        if opening.round <= self.memory.round:
            msg = f"round {opening.round} is not after round {self.memory.round}, the last joined"
            raise ReplayedRoundError(msg)
        if self._mine is None:
            abstained = Memory(round=opening.round, due=1, opening=request)
            return abstained, Abstain(opening.session, self._device)
        self._policy.check_opening(opening, len(self._mine.update), len(self._mine.metrics))
        draw, turns = self._entropy, range(opening.turns)
        memory = Memory(
            round=opening.round,
            due=1,
            opening=request,
            sealing=draw(SIZE),
            masks=tuple(draw(SIZE) for _ in turns),
            seeds=tuple(draw(SIZE) for _ in turns),
            rounding=self._rounding or draw(SIZE),
        )
        advert = Advertise(opening.session, self._entry(memory, opening))
        return dataclasses.replace(memory, advert=advert.encode()), advert

    def _entry(self, memory: Memory, opening: Open) -> Entry:
        publics = tuple(public_of(secret) for secret in memory.masks)
        sealing = public_of(memory.sealing)
        if opening.trust != Trust.LYING:
            return self._device, sealing, publics, b""
        leaf = leaf_of(opening, (self._device, sealing, publics, b""))
        return self._device, sealing, publics, self._sign(leaf)

    def _sign(self, statement: bytes) -> bytes:
        if self._identity is None:
            msg = f"device {self._device} has no identity to sign with: give it one"
            raise SignatureError(msg)
        return sign(self._identity.secret, statement)

    def _deal(self, roster: Roster, request: bytes) -> tuple[Memory, Message]:
        """Check the cohort, and deal shares of all secrets to the neighbors."""
        place, memory = self._find_place(roster), self.memory
        cohort, here = place.cohort, place.position
        self._policy.check_parameters(cohort.parameters)
        publics = [place.entries[other][1] for other in place.neighbors]
        agreed = list(zip(agree(memory.sealing, publics), place.neighbors, strict=True))
        outgoing = [cohort.seal_key(secret, here, other) for secret, other in agreed]
        incoming = tuple(cohort.seal_key(secret, other, here) for secret, other in agreed)
        commitments = tuple(
            cohort.commitment(here, turn, seed) for turn, seed in enumerate(memory.seeds)
        )
        after = dataclasses.replace(
            memory, due=PLACES[Question], roster=request, sealing=GONE, incoming=incoming
        )
        self._place = place
        return after, Deal(roster.session, commitments, self._seal_all(place, outgoing))

    def _seal_all(self, place: Place, keys: list[bytes]) -> tuple[bytes, ...]:
        """For each neighbor, its shares of the secrets of each turn."""
        dealt = [self._split(place, turn) for turn in range(place.opening.turns)]
        return tuple(
            seal(key, turn, plain[index], place.cohort.binding(place.position, other, turn))
            for index, (other, key) in enumerate(zip(place.neighbors, keys, strict=True))
            for turn, plain in enumerate(dealt)
        )

    def _split(self, place: Place, turn: int) -> list[bytes]:
        """For each neighbor, a share of the self-mask's seed and one of the mask's secret."""
        count, threshold = len(place.neighbors), place.cohort.parameters.threshold
        seeds, masks = (
            split(secret, count=count, threshold=threshold, entropy=self._entropy)
            for secret in (self.memory.seeds[turn], self.memory.masks[turn])
        )
        return [
            seed.to_bytes(SHARE_SIZE, "big") + mask.to_bytes(SHARE_SIZE, "big")
            for seed, mask in zip(seeds, masks, strict=True)
        ]

    def _mask(self, question: Question) -> tuple[Memory, Message]:
        """Compute what the device adds at v, and mask it."""
        place, memory, turn = self._placed(), self.memory, question.turn
        self._policy.check_radius(question.nu)
        point = point_of(question.v, question.nu)
        alive = place.check_question(question, point, memory)
        context = place.cohort.context(question, point)
        part = self._part(place, question)
        add_masks(part.words, part.tail, self._masks(place, turn, alive, context))
        lying = place.opening.trust == Trust.LYING
        after = dataclasses.replace(
            memory,
            due=memory.due + (1 if lying else 2),
            masks=forget(memory.masks, turn),
            seeds=forget(memory.seeds, turn),
            shares=self._unseal(place, question, alive),
            context=context,
            asked=point,
            alive=question.alive,
        )
        return after, Masked(question.session, turn, tuple(part.tail), part.words)

    def _part(self, place: Place, question: Question) -> Part:
        """What the device adds, if that is no more than the limit on weights allows."""
        if self._mine is None:
            msg = "a device that abstained has nothing to add"
            raise OutOfStageError(msg)
        rounding = derive_key(self.memory.rounding, b"rounding", number(question.turn))
        part = Encoding(place.cohort.parameters.cohort).part(
            self._mine, question.v, question.nu, rounding, vector=bool(question.vector)
        )
        limit = min(place.opening.limit, self._policy.limit)
        if question.mass and weighs_more(part.tail[MASS], question.mass, limit):
            msg = f"this device would weigh more than {limit} in the step"
            raise WeightLimitError(msg)
        return part

    def _masks(self, place: Place, turn: int, alive: Members, context: bytes) -> list[Mask]:
        """The device's own mask, and one with each neighbor in the turn."""
        others = place.among(alive)
        publics = [place.entries[other][2][turn] for other in others]
        agreed = agree(self.memory.masks[turn], publics)
        masks: list[Mask] = [(self_mask(self.memory.seeds[turn], context), True)]
        for other, secret in zip(others, agreed, strict=True):
            key = pair_mask(secret, context, place.position, other)
            masks.append((key, place.position < other))
        return masks

    def _unseal(self, place: Place, question: Question, alive: Members) -> tuple[bytes, ...]:
        """What the neighbors in the turn dealt; nothing where it was not sealed by them."""
        sealed = iter(question.sealed)
        found: list[bytes] = []
        for other, key in zip(place.neighbors, self.memory.incoming, strict=True):
            if other in alive:
                bound = place.cohort.binding(other, place.position, question.turn)
                plain = unseal(key, question.turn, next(sealed), bound) or b""
                found.append(plain if are_shares(plain) else b"")
        return tuple(found)

    def _consent(self, message: Survivors) -> tuple[Memory, Message]:
        """Sign the survivors, once."""
        self._placed().check_survivors(message.survivors, message.turn, self.memory)
        signature = self._sign(agreed_survivors(self.memory.context, message.survivors))
        after = dataclasses.replace(self.memory, due=self.memory.due + 1, signed=message.survivors)
        return after, Consent(message.session, message.turn, signature)

    def _open(self, unmask: Unmask) -> tuple[Memory, Message]:
        """Release one share for each neighbor: of its self-mask if it survived, else its key."""
        place, memory = self._placed(), self.memory
        survivors = place.check_survivors(unmask.survivors, unmask.turn, memory)
        if place.opening.trust == Trust.LYING:
            place.check_quorum(unmask, memory, self._identity.known if self._identity else {})
        others = place.among(place.members(memory.alive))
        released = tuple(
            (share[:SHARE_SIZE] if other in survivors else share[SHARE_SIZE:]) or NO_SHARE
            for other, share in zip(others, memory.shares, strict=True)
        )
        after = dataclasses.replace(
            memory, due=memory.due + 1, shares=(), survivors=unmask.survivors, signed=b""
        )
        if unmask.turn + 1 == place.opening.turns:
            after = dataclasses.replace(after, incoming=(), rounding=GONE)
        return after, Opened(unmask.session, unmask.turn, released)
