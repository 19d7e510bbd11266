"""A device whose secrets and progress in the round are in a store of its own, and survive restarts.

Each request is one transaction: the memory is read, the answer is made, the new memory is on the
disk, and only then the answer is returned. Whatever is killed in between, the device goes on from
before the request, of which nothing has left, or from after it, and a retry gets the stored bytes.
Two processes cannot answer at once. What is no longer needed is overwritten in the file, which gets
shorter by it; a file system may keep older blocks.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from rfa.secagg.device.ahead import check_listed, take_secrets
from rfa.secagg.device.kept import Kept
from rfa.secagg.device.machine import Device
from rfa.secagg.device.marks import Marks
from rfa.secagg.device.memory import GONE, Memory
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.sent import note_opened, note_sent
from rfa.secagg.device.sharing import Entropy
from rfa.secagg.device.store import Store
from rfa.secagg.errors import ShareLimitError, SpentUpdateError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import NO_BASIS, OpenRound
from rfa.secagg.messages.round import FirstSum, OpenFirstSum
from rfa.secagg.messages.stages import LEFT, START, Moment, Stage
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.transcript import request_digest


class DurableDevice:
    """A device that keeps what it must not forget in a file, which only its owner may read.

    *Formal guarantee*: killed whenever it is, it has charged itself for each sum with noise that it
    was in (test_privacy_spent.py::test_a_device_that_is_killed_is_never_charged_too_little).
    """

    def __init__(  # noqa: PLR0913
        self,
        path: Path | str | Store,
        profile: Profile,
        *,
        spent: Path | str | None = None,
        sent: Path | None = None,
        rounding: bytes | None = None,
        noise: bytes | None = None,
        entropy: Entropy = os.urandom,
        durable: bool = True,
    ) -> None:
        """Open the store, or make it.

        Args:
            path: the file, or a store.
            profile: what the device is.
            spent: the file that keeps what updates were in a sum, the last nu, and what all sums
                were charged, if they are to outlive this one.
            sent: the file that lists the digests of the masked inputs that it sends, if any.
            rounding: the key of the random choices in rounding, fresh for each update by default.
            noise: the secret that its noise is from, 32 bytes, fresh in each round by default; with
                one that is given, the noise of all rounds is the same.
            entropy: where its secrets come from.
            durable: False where nothing need survive a machine that loses its power.

        Raises:
            VaultError: if the file cannot be used.
        """
        self._profile = profile
        self._rounding, self._noise, self._entropy = rounding, noise, entropy
        self._sent = sent
        device = int(profile.device)
        self._kept = Kept(path, device, spent=spent, entropy=entropy, durable=durable)
        charged = profile.policy.epsilon is not None or not profile.policy.is_wary
        self._spends = Marks(device, self._kept.store, self._kept.damaged, charged)

    def __enter__(self) -> DurableDevice:
        """Begin to use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its use."""
        self.close()

    @property
    def due(self) -> Moment:
        """The moment of the request that the device waits for."""
        with self._kept.transaction():
            return self._kept.memory.due

    @property
    def spent_rho(self) -> float:
        """What all sums with noise that it was in were charged, in zCDP, in whatever runs."""
        with self._kept.transaction():
            return self._kept.memory.rho

    def bring(
        self,
        contribution: Contribution | None,
        label: bytes = NO_BASIS,
        opening: OpenRound | None = None,
        *,
        noisy: bool = False,
    ) -> bytes:
        """Bring something into the next round; None to abstain from it. The last round is over.

        Args:
            contribution: what it brings.
            label: a digest of what its metrics mean.
            opening: how the round begins, if it does so at once; what it is about, and how many
                metrics it has, is taken from what is brought.
            noisy: whether the round is said to have noise, and so to be charged.

        Returns:
            What the device answers to the opening; nothing without one.

        Raises:
            RefusalError, MessageError: if it refuses the opening; nothing was brought then.
            SpentUpdateError: if the update, or what has the same mark, was masked in an earlier
                round, and one of both is exact. The difference of two sums about the same updates
                can tell on one device, so it takes a new one, or a repeat.
        """
        with self._kept.transaction():
            if contribution:
                self._spends.check_unspent(contribution, noisy=noisy)
            self._kept.bring(contribution, label)
            return self._join(contribution, opening)

    def check_ahead(self, request: bytes) -> int:
        """Refuse a round that begins with its first sum if its keys of this device are not there.

        Args:
            request: the message `OpenFirstSum`.

        Returns:
            The number of the round.

        Raises:
            NoKeysAheadError, MessageError: saying why.
        """
        message = decode_as(OpenFirstSum, request)
        opening, first = decode_as(OpenRound, message.opening), decode_as(FirstSum, message.first)
        with self._kept.transaction():
            secrets = take_secrets(self._kept.memory.ahead, opening)
        check_listed(int(self._profile.device), secrets, opening, first)
        return opening.round

    def begin(
        self,
        contribution: Contribution,
        label: bytes,
        request: bytes,
        *,
        noisy: bool = False,
        whom: bytes = b"",
    ) -> bytes:
        """Bring something into a round that begins with its first sum, and answer that at once.

        The device joins with the keys that it has sent ahead. They, the mark of what it brings and
        its charge change in the transaction in which its masked input is made.

        Args:
            contribution: what it brings.
            label: a digest of what its metrics mean.
            request: the message `OpenFirstSum`.
            noisy: whether the round is said to have noise.
            whom: the digest of the devices that the first sum is over, as in `receive`.

        Returns:
            Its `FirstInput`.

        Raises:
            RefusalError, MessageError: if it refuses; nothing has changed then.
            SpentUpdateError: as in `bring`.
        """
        with self._kept.transaction():
            self._spends.check_unspent(contribution, noisy=noisy)
            before = self._kept.memory.before_next()
            self._kept.bring(contribution, label)
            device = self._device(contribution, before)
            decode_as(OpenFirstSum, request)
            reply = device.receive(request)
            self._spend(contribution, device.memory, whom)
            self._kept.memory = device.memory
            self._note(before, device.memory, reply)
        return reply

    def repeat(
        self,
        contribution: Contribution,
        label: bytes = NO_BASIS,
        opening: OpenRound | None = None,
    ) -> tuple[bytes, bytes]:
        """Bring something that was in a sum before, into a round that repeats this sum.

        Args:
            contribution: what it would bring if it had not been; where it has a mark, what was
                brought then takes the place of its weight and metrics.
            label: a digest of what its metrics mean.
            opening: how the round begins, as in `bring`.

        Returns:
            By what all devices of that sum name it: part of the basis of a round that repeats it;
            and what the device answers to the opening.

        Raises:
            SpentUpdateError: if it was in none, or in one that cannot be repeated, saying why.
        """
        with self._kept.transaction():
            if self._profile.policy.server_model == ServerModel.MALICIOUS:
                raise self._spends.refusal(contribution, "who else is in a sum is a server's word")
            again, token = self._spends.repeat(contribution, label)
            self._kept.bring(again, label)
            self._kept.brings_again(token)
            return token, self._join(again, opening)

    def _join(self, contribution: Contribution | None, opening: OpenRound | None) -> bytes:
        """The answer to an opening that comes before what it is about."""
        if opening is None:
            return b""
        if contribution:
            metrics, basis = len(contribution.metrics), contribution.basis
            opening = dataclasses.replace(opening, metrics=metrics, basis=basis)
        device = self._device(contribution, self._kept.memory)
        reply = device.receive(opening.encode())
        self._kept.memory = device.memory
        return reply

    def _device(self, contribution: Contribution | None, memory: Memory) -> Device:
        """The device where it is."""
        return Device(
            contribution,
            self._profile,
            rounding=self._rounding_of(contribution, memory),
            noise=self._noise,
            entropy=self._entropy,
            memory=memory,
        )

    def receive(self, request: bytes, whom: bytes = b"") -> bytes:
        """Answer a request, and remember it first. After the last one the update is forgotten.

        Args:
            request: the request.
            whom: where a sum is to be opened, or can be opened over one set of devices alone, the
                digest of these, as a server says that is trusted; by it the sum can be repeated
                over the same ones.

        Raises:
            RefusalError, MessageError: if it is refused, as `Device.receive` does.
            SpentUpdateError: if the update was masked in another run since it was brought, or this
                is no repeat of the sum that it was in; the device has left the round then.
            VaultError: if the store cannot be used, or nothing was brought.
        """
        with self._kept.transaction():
            memory = self._kept.memory
            if memory.request == request_digest(request):
                return memory.reply
            contribution = self._kept.contribution
            device = self._device(contribution, memory)
            refused, reply = None, b""
            try:
                reply = device.receive(request)
                if contribution and device.memory.context not in (GONE, memory.context):
                    self._spend(contribution, device.memory, whom)
                elif contribution and _opens(memory, device.memory):
                    self._spends.open(contribution, memory, whom)
            except ShareLimitError as error:  # which ends the round for the device
                refused = error
            except SpentUpdateError as error:
                refused, device.memory = error, memory.left()
            if device.memory is not memory:
                self._kept.memory = device.memory
            if refused is None:
                self._note(memory, device.memory, reply)
            if device.over and refused is None:
                self._kept.forget_brought()
        if refused is not None:
            raise refused
        return reply

    def end(self, number: int | None = None, *, opened: bool = True) -> None:
        """Forget the round but for its number, and a salted digest of the update.

        Args:
            number: forget this round only, and what was brought for it; by default any.
            opened: False where the server says that it has asked nobody to open a sum of this very
                round. If it is trusted to follow the protocol, the update may be brought again.
        """
        with self._kept.transaction():
            memory = self._kept.memory
            later = number is not None and memory.round > number
            if later or (memory.round == number and memory.due == START):  # a new update is there
                return
            if not opened and memory.round == number and _may_take_back(memory):
                self._take_back(memory)
            self._kept.memory = memory.between_rounds()
            self._kept.forget_brought()

    def _spend(self, contribution: Contribution, memory: Memory, whom: bytes) -> None:
        """Mark what a masked input is about, and its charge, in the transaction that makes it.

        From now on others may open a sum about it, whether or not this device is asked. Another run
        may have masked it since it was brought: one transaction locks both files.
        """
        kept = self._kept
        self._spends.spend(contribution, memory, kept.label, again=kept.again, whom=whom)
        kept.let_last(memory)

    def _note(self, before: Memory, after: Memory, reply: bytes) -> None:
        """Add to the device's own list what is about to leave."""
        if not self._sent or after is before:
            return
        if after.context not in {before.context, GONE}:
            note_sent(self._sent, self._profile.device, after.context, reply)
        elif _opens(before, after):
            note_opened(self._sent, self._profile.device, reply)

    def _take_back(self, memory: Memory) -> None:
        """Forget that what was brought was asked about in this round."""
        contribution = self._kept.contribution
        if contribution:
            self._spends.take_back(contribution, memory)

    def close(self) -> None:
        """Close the store; everything is on the disk already."""
        self._kept.store.close()

    def _rounding_of(self, contribution: Contribution | None, memory: Memory) -> bytes | None:
        """The key of the random choices in rounding, the same for what is the same.

        It is needed where a round may be joined: also in place of one of which only keys have left.
        """
        if self._rounding or contribution is None or memory.due > Moment(0, Stage.ROSTER):
            return self._rounding
        return self._spends.rounding_of(contribution)


def _opens(before: Memory, after: Memory) -> bool:
    """Whether the device released shares between two memories."""
    return before.due.stage == Stage.UNMASK and after.roster == before.roster


def _may_take_back(memory: Memory) -> bool:
    """Whether a server may say of a round that no sum of it was opened.

    Not one that may lie; and a device that opened a sum itself, or has left since, knows better.
    """
    if not memory.opening or memory.due == LEFT or memory.survivors:
        return False
    return decode_as(OpenRound, memory.opening).server_model == ServerModel.SEMI_HONEST
