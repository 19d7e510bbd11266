"""The record of an update that was in a sum, by which the same sum can be repeated.

The difference of two sums about the same updates can reveal one device: a device that is only in
the first, or whose input changed in between. A repeat has no such difference. It is a sum over the
same devices, each with the same input, at the same point, so it reveals only the first sum again.
Each device checks these conditions:

    its own input    the same bytes as before; or, where a mark stands for it (the evaluation of a
                     model), the numbers that it brought then, whatever it computed now;
    the others'      a round that repeats a sum has its own basis (`repeated_basis`), which holds
                     the session of the first: a device with any new input has another basis;
    the devices      it opens the sum only over the devices that it opened the first over;
    the point        it masks at the same v and nu, with the same random choices in rounding.

The server says who the devices are, so a malicious server gets no repeats.

Sums with noise need none of this: each has its own noise and is charged, so an update may be in
several of them, with any other devices. The mark keeps it out of exact sums.
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
"""The placeholder for the devices of several sums that were over different ones."""
TOKEN_SIZE = 16 + 32
"""The length of the token by which all devices of a sum name it, in bytes."""
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
    """The stored record of an update that was masked. Its repr contains no secret.

    Attributes:
        own: the digest by which the device recognizes its round; GONE for several rounds with
            noise, of which none can be taken back.
        session: the session of that round.
        content: the salted digest of the input.
        label: the digest of what its metrics mean.
        whom: the digest of the devices that the sum was opened over, or that the first sum of a
            fast round can be opened over; GONE if they are unknown, CHANGED if several sums were
            over different ones.
        row: the weight and the metrics, if a mark stands for the input; else empty.
        questions: the digests of the requests, one per masked sum.
        noisy: whether it was only in sums with noise.
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
        """Return its bytes, with a digest of them."""
        *values, noisy = (getattr(self, item.name) for item in dataclasses.fields(self))
        return guard(write_message(_NOISY if noisy else _KIND, _LAYOUT, tuple(values)))

    @property
    def token(self) -> bytes:
        """The token by which all devices of the sum name it: its session, and its devices."""
        return self.session + self.whom

    def repeated(self, contribution: Contribution, content: bytes, label: bytes) -> Contribution:
        """Return the input of the device to a repeat, in place of its current input.

        Args:
            contribution: its current input.
            content: the salted digest of that.
            label: the digest of what its metrics mean.

        Raises:
            SpentUpdateError: if there can be no repeat; the message says why.
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
        """Return the record after another masked input of this update.

        The first sum of a fast round is opened over its whole roster or never, so its devices are
        known with the input. The devices of a second roster are known when its sum is opened.

        Args:
            memory: the memory after the input is masked.
            whom: the digest of the devices, if they are known.

        Raises:
            SpentUpdateError: if the request differs from the one before.
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
                "repeated only as it was"
            )
            raise SpentUpdateError(msg)
        if at < len(self.questions):
            return self
        return dataclasses.replace(self, questions=(*self.questions, question))

    def opened(self, whom: bytes, own: bytes) -> Spent:
        """Return the record after the device opens a sum over these devices, in its own round.

        Raises:
            SpentUpdateError: if that repeats a sum over other devices.
        """
        if own != self.own:
            if whom != self.whom:
                msg = (
                    "this sum is not over the devices of the first one, and the difference would "
                    "reveal those who are in only one of them"
                )
                raise SpentUpdateError(msg)
            return self
        known = whom or GONE
        if self.whom not in (GONE, known):
            known = CHANGED
        return dataclasses.replace(self, whom=known)


def first_spent(salt: bytes, contribution: Contribution, label: bytes, memory: Memory) -> Spent:
    """Return the record of an input that a device masks for the first time."""
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
    """Return the salted digest of a device's input, without its basis."""
    numbers = (contribution.weight, *contribution.metrics)
    equal = bytes([contribution.equal_weights])
    return content_digest(salt, many(REAL).write(numbers), equal, contribution.update)


def question_of(memory: Memory) -> bytes:
    """Return the digest of the request of the device's last masked sum, in any round.

    With one sum, the number of devices that joined makes no difference to what it reveals. Several
    sums must have the same digits, and so the same scale.
    """
    opening = decode_as(OpenRound, memory.opening)
    same = dataclasses.replace(opening, session=bytes(16), round=1, basis=NO_BASIS, fast=0)
    query, joined = opening.query_of(memory.due.masked_sum), 0
    if opening.each_roster > 1:
        joined = decode_as(Roster, memory.roster).parameters[0]
    return question_digest(same.encode(), joined, query, memory.asked)


def read_spent(data: bytes) -> Spent:
    """Return the record of an update from its bytes.

    Raises:
        MessageError, ValueError: if they are damaged.
    """
    kind, values = read_message(unguard(data), {_KIND: _LAYOUT, _NOISY: _LAYOUT})
    return Spent(*values, noisy=kind == _NOISY)
