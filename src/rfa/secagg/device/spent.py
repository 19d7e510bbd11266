"""What a device keeps of an update that was in a sum, by which the same sum can be had again.

The difference of two sums about the same updates can tell on one device: on one that is in the
first and not in the second, or whose input changed in between. A repeat has no such difference: it
is a sum over the same devices, each with the same input, at the same point. It tells the first sum
once more, and nothing else. What makes it one is checked by each device:

    its own input    the same bytes as before, or, where a mark stands for it (the evaluation of a
                     model), the very numbers that it brought then, whatever it found now;
    the others'      a round that repeats a sum has a basis of its own (`repeated_basis`), which
                     holds the session of the first: a device with anything new has another;
    who is in it     it opens the sum only over the devices that it opened the first over;
    the point        it masks at the same v and nu, with the same random choices in rounding.

Who the devices are is the server's word, so a malicious one gets no repeats.

Sums with noise need none of this: each has noise of its own and is charged, so that an update may
be in several of them, whoever else is. The mark of it keeps it out of exact sums.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from rfa.secagg.device.memory import GONE, Memory, guard, unguard
from rfa.secagg.errors import SpentUpdateError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.codec import KEY, REAL, fixed, many, read_message, rows, write_message
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import MAX_METRICS, NO_BASIS, OpenRound
from rfa.secagg.messages.round import Roster
from rfa.secagg.security.parameters import MAX_MASKED_SUMS
from rfa.secagg.transcript import content_digest, own_round_digest, question_digest, repeated_basis

CHANGED = b"\xff" * 32
"""What stands for the devices of sums that were not over the same ones."""
TOKEN_SIZE = 16 + 32
"""The bytes by which all devices of a sum name it."""
_KIND, _NOISY = 202, 203
_LAYOUT = (
    KEY,
    fixed(16),
    KEY,
    KEY,
    KEY,
    many(REAL, MAX_METRICS + 1),
    rows(32, MAX_MASKED_SUMS),
)


@dataclass(frozen=True)
class Spent:
    """An update that was masked, as a device keeps it. Its repr holds no secret.

    Attributes:
        own: by what the device knows its round; GONE for several rounds with noise, of which a word
            about one of them takes nothing back.
        session: the session of that round.
        content: the salted digest of what it brought.
        label: what it said of the meaning of its metrics.
        whom: the digest of the devices that the sum was opened over, or that the first sum of a
            fast round can be opened over; GONE where it knows of none, CHANGED where several sums
            were over different ones.
        row: the weight and the metrics, where a mark stands for what it brought; else empty.
        questions: the digests of what it was asked, one a masked sum.
        noisy: whether it was in sums with noise alone.
    """

    own: bytes
    session: bytes
    content: bytes
    label: bytes = NO_BASIS
    whom: bytes = GONE
    row: tuple[float, ...] = field(default=(), repr=False)
    questions: tuple[bytes, ...] = ()
    noisy: bool = False

    def encode(self) -> bytes:
        """Its bytes, with a digest of them."""
        *values, noisy = (getattr(self, item.name) for item in dataclasses.fields(self))
        return guard(write_message(_NOISY if noisy else _KIND, _LAYOUT, tuple(values)))

    @property
    def token(self) -> bytes:
        """By what all devices of the sum name it: its session, and who was in it."""
        return self.session + self.whom

    def repeated(self, contribution: Contribution, content: bytes, label: bytes) -> Contribution:
        """What the device brings into a repeat, in place of what it would bring now.

        Args:
            contribution: what it would bring now.
            content: the salted digest of that.
            label: what it says of the meaning of its metrics.

        Raises:
            SpentUpdateError: if there can be no repeat, saying why.
        """
        if self.whom in (GONE, CHANGED):
            msg = "it does not know who else was in that sum, so it cannot be in it again"
            raise SpentUpdateError(msg)
        if self.label != label:
            msg = "its metrics had another meaning then: return the same ones, weighted the same"
            raise SpentUpdateError(msg)
        if contribution.mark is not None:
            weight, *metrics = self.row
            contribution = dataclasses.replace(contribution, weight=weight, metrics=tuple(metrics))
        elif self.content != content:
            msg = "its weight or its metrics have changed since"
            raise SpentUpdateError(msg)
        return dataclasses.replace(
            contribution, basis=repeated_basis(contribution.basis, self.token)
        )

    def asked(self, memory: Memory, whom: bytes = b"") -> Spent:
        """The same after another masked input of this update.

        The first sum of a fast round is opened over all of its roster or never, so that who is in
        it is known with the input. In a second roster it is known when its sum is opened.

        Args:
            memory: the memory after the input is masked.
            whom: the digest of these devices, where it is known.

        Raises:
            SpentUpdateError: if it is asked something else than before.
        """
        question = question_of(memory)
        opening = decode_as(OpenRound, memory.opening)
        at = opening.query_of(memory.due.masked_sum)
        if self.own == own_round_digest(memory.advert):
            known = self.whom if at or not opening.fast else whom or GONE
            return dataclasses.replace(self, questions=(*self.questions[:at], question), whom=known)
        if at < len(self.questions) and self.questions[at] != question:
            msg = (
                "the sum that it was in was at another point, or of another kind: a sum can be "
                "repeated as it was"
            )
            raise SpentUpdateError(msg)
        if at < len(self.questions):
            return self
        return dataclasses.replace(self, questions=(*self.questions, question))

    def opened(self, whom: bytes, own: bytes) -> Spent:
        """The same after the device opens a sum over these devices, in a round of its own.

        Raises:
            SpentUpdateError: if that repeats a sum that was over others.
        """
        if own != self.own:
            if whom != self.whom:
                msg = (
                    "not the devices of the first sum are in this one, and the difference would "
                    "tell on those who are in one of them"
                )
                raise SpentUpdateError(msg)
            return self
        known = whom or GONE
        if self.whom not in (GONE, known):
            known = CHANGED
        return dataclasses.replace(self, whom=known)


def first_spent(salt: bytes, contribution: Contribution, label: bytes, memory: Memory) -> Spent:
    """What a device keeps of what it masks for the first time."""
    opening = decode_as(OpenRound, memory.opening)
    row = () if contribution.mark is None else (contribution.weight, *contribution.metrics)
    return Spent(
        own_round_digest(memory.advert),
        opening.session,
        content_of(salt, contribution),
        label,
        row=row,
        noisy=opening.noise > 0,
    )


def content_of(salt: bytes, contribution: Contribution) -> bytes:
    """The salted digest of what a device brings, whatever it started from."""
    numbers = (contribution.weight, *contribution.metrics)
    equal = bytes([contribution.equal_weights])
    return content_digest(salt, many(REAL).write(numbers), equal, contribution.update)


def question_of(memory: Memory) -> bytes:
    """The digest of what a device was asked in its last masked sum, in whatever round.

    With one sum, how many devices joined makes no difference to what it tells. Several sums must
    have the same digits, and so the same scale.
    """
    opening = decode_as(OpenRound, memory.opening)
    same = dataclasses.replace(opening, session=bytes(16), round=1, basis=NO_BASIS, fast=0)
    query, joined = opening.query_of(memory.due.masked_sum), 0
    if opening.each_roster > 1:
        joined = decode_as(Roster, memory.roster).parameters[0]
    return question_digest(same.encode(), joined, query, memory.asked)


def read_spent(data: bytes) -> Spent:
    """What is kept of an update, from its bytes.

    Raises:
        MessageError, ValueError: if they are damaged.
    """
    kind, values = read_message(unguard(data), {_KIND: _LAYOUT, _NOISY: _LAYOUT})
    return Spent(*values, noisy=kind == _NOISY)
