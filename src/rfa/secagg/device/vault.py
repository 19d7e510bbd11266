"""A device that keeps its secrets and its progress in its own store, and survives restarts.

Each request is one transaction: the device reads its memory, makes the answer, writes the new
memory to disk, and only then returns the answer. If it is killed in between, it continues either
from before the request, of which nothing was sent, or from after it, and a retry gets the stored
bytes. Two processes cannot answer at the same time. Values that are no longer needed are
overwritten in the file, which gets shorter; a file system may keep older blocks.
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
from rfa.secagg.device.order import may_take_back, released
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.sent import note_opened, note_sent
from rfa.secagg.device.sharing import Entropy
from rfa.secagg.device.store import Store
from rfa.secagg.errors import AskedTwiceError, ShareLimitError, SpentUpdateError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import NO_BASIS, OpenRound
from rfa.secagg.messages.round import FirstSum, OpenFirstSum
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.transcript import request_digest


class DurableDevice:
    """A device that keeps its state in a file that only its owner may read.

    *Formal guarantee*: the device has charged itself for each sum with noise that it was in, even
    if it is killed at any time
    (test_privacy_spent.py::test_a_device_that_is_killed_is_never_charged_too_little).
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
        """Open or create the store.

        Args:
            path: the file, or a store.
            profile: the number, policy and identity of the device.
            spent: the file for what outlives this one: the updates that were in a sum, the last nu,
                and the charges of all sums. By default the store itself keeps them.
            sent: the file that lists the digests of the masked inputs that the device sends, if
                any.
            rounding: the key of the random choices in rounding; fresh for each update by default.
            noise: the secret of its noise, 32 bytes; fresh in each round by default. With a given
                one, the noise of all rounds is the same.
            entropy: the source of its secrets.
            durable: False if nothing needs to survive a power failure.

        Raises:
            VaultError: if the file cannot be used.
        """
        self._profile = profile
        self._rounding, self._noise, self._entropy = rounding, noise, entropy
        self._sent = sent
        device = int(profile.device)
        self._kept = Kept(path, device, spent=spent, entropy=entropy, durable=durable)
        charged = profile.policy.epsilon is not None or not profile.policy.is_wary
        self._spends = Marks(device, self._kept.store, self._kept.damaged_marks, charged)

    def __enter__(self) -> DurableDevice:
        """Return the device itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    @property
    def due(self) -> Moment:
        """The moment of the request that the device expects next."""
        with self._kept.transaction():
            return self._kept.memory.due

    @property
    def spent_rho(self) -> float:
        """The charges of all sums with noise that the device was in, in zCDP, over all runs."""
        with self._kept.transaction():
            return self._kept.memory.rho + self._profile.spent_elsewhere

    def bring(
        self,
        contribution: Contribution | None,
        label: bytes = NO_BASIS,
        opening: OpenRound | None = None,
        *,
        noisy: bool = False,
    ) -> bytes:
        """Set the input to the next round; None to abstain from it. The last round is over.

        Args:
            contribution: the input.
            label: a digest of what its metrics mean.
            opening: the opening of the round, if it begins at once. Its basis and its number of
                metrics are taken from the input.
            noisy: whether the server says that the round has noise, and so is charged.

        Returns:
            The device's answer to the opening; empty without one.

        Raises:
            RefusalError, MessageError: if the device refuses the opening; the input is not set
                then.
            SpentUpdateError: if the update, or another with the same mark, was masked in an earlier
                round, and one of the two rounds is exact. The difference of two sums about the same
                updates can reveal one device. Bring a new update, or repeat the sum.
        """
        with self._kept.transaction():
            if contribution:
                self._spends.check_unspent(contribution, noisy=noisy)
            self._kept.bring(contribution, label)
            return self._join(contribution, opening)

    def check_ahead(self, request: bytes) -> int:
        """Check that the device has the keys with which a round begins.

        Args:
            request: the message `OpenFirstSum`.

        Returns:
            The number of the round.

        Raises:
            AskedTwiceError: if it has answered this very request, so its input is masked.
            NoKeysAheadError, MessageError: if it does not; the message says why.
        """
        message = decode_as(OpenFirstSum, request)
        opening, first = decode_as(OpenRound, message.opening), decode_as(FirstSum, message.first)
        with self._kept.transaction():
            memory = self._kept.memory
        if memory.request == request_digest(request):
            msg = f"device {self._profile.device} has answered the first sum of this round already"
            raise AskedTwiceError(msg)
        secrets = take_secrets(memory.ahead, opening)
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
        """Set the input to a round that begins with its first sum, and answer that sum.

        The device joins with the keys that it has sent ahead. One transaction makes its masked
        input, removes these keys, marks the input and adds its charge.

        Args:
            contribution: the input.
            label: a digest of what its metrics mean.
            request: the message `OpenFirstSum`.
            noisy: whether the server says that the round has noise.
            whom: the digest of the devices in the first sum, as in `receive`.

        Returns:
            Its `FirstInput`.

        Raises:
            RefusalError, MessageError: if the device refuses; its state is unchanged.
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
        """Set the input to a round that repeats a sum that it was in before.

        Args:
            contribution: the current input. If it has a mark, the weight and metrics of the first
                sum replace its own.
            label: a digest of what its metrics mean.
            opening: the opening of the round, as in `bring`.

        Returns:
            The token by which all devices of that sum name it, which is part of the basis of the
            repeat; and the device's answer to the opening.

        Raises:
            SpentUpdateError: if the input was in no sum, or in one that cannot be repeated; the
                message says why.
        """
        with self._kept.transaction():
            if self._profile.policy.server_model == ServerModel.MALICIOUS:
                raise self._spends.refusal(
                    contribution, "only the server knows who else is in a sum"
                )
            again, token = self._spends.repeat(contribution, label)
            self._kept.bring(again, label)
            self._kept.brings_again(token)
            return token, self._join(again, opening)

    def _join(self, contribution: Contribution | None, opening: OpenRound | None) -> bytes:
        """Return the answer to an opening, with the basis of the input."""
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
        """Return the device in its current state."""
        return Device(
            contribution,
            self._profile,
            rounding=self._rounding_of(contribution, memory),
            noise=self._noise,
            entropy=self._entropy,
            memory=memory,
        )

    def receive(self, request: bytes, whom: bytes = b"") -> bytes:
        """Answer a request, after storing the new state. The last request removes the update.

        Args:
            request: the request.
            whom: if a sum is to be opened, or can be opened over one set of devices only, the
                digest of these devices, from a server that is trusted. It allows to repeat the sum
                over the same devices.

        Raises:
            RefusalError, MessageError: if the device refuses, as in `Device.receive`.
            SpentUpdateError: if the update was masked in another run since it was brought, or this
                is not a repeat of the sum that it was in; the device has left the round then.
            VaultError: if the store cannot be used, or there is no input.
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
                elif contribution and released(memory, device.memory):
                    self._spends.open(contribution, memory, whom)
            except ShareLimitError as error:  # it ends the round for the device
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
        """Forget the round, except its number and a salted digest of the update.

        Args:
            number: forget only this round, and the input to it; by default any round.
            opened: False if the server says that it asked nobody to open a sum of this round. If
                the server is trusted to follow the protocol, the update may be brought again.
        """
        with self._kept.transaction():
            memory = self._kept.memory
            later = number is not None and memory.round > number
            if later or (memory.round == number and memory.due == START):  # there is a new update
                return
            if not opened and memory.round == number and may_take_back(memory):
                self._take_back(memory)
            self._kept.memory = memory.between_rounds()
            self._kept.forget_brought()

    def _spend(self, contribution: Contribution, memory: Memory, whom: bytes) -> None:
        """Mark an input and add its charge, in the transaction that masks it.

        From now on others may open a sum about it, whether or not this device is asked. Another run
        may have masked it since it was brought: one transaction locks both files.
        """
        kept = self._kept
        self._spends.spend(contribution, memory, kept.label, again=kept.again, whom=whom)
        kept.let_last(memory)

    def _note(self, before: Memory, after: Memory, reply: bytes) -> None:
        """Add the next reply to the device's own list."""
        if not self._sent or after is before:
            return
        if after.context not in {before.context, GONE}:
            note_sent(self._sent, self._profile.device, after.context, reply)
        elif released(before, after):
            note_opened(self._sent, self._profile.device, reply)

    def _take_back(self, memory: Memory) -> None:
        """Remove the mark that this round set on the input."""
        if contribution := self._kept.contribution:
            self._spends.take_back(contribution, memory)

    def close(self) -> None:
        """Close the store; everything is on the disk already."""
        self._kept.store.close()

    def _rounding_of(self, contribution: Contribution | None, memory: Memory) -> bytes | None:
        """Return the key of the random choices in rounding, the same for the same input.

        It is needed where a round may be joined, also in place of one in which only keys were sent.
        """
        if self._rounding or contribution is None or memory.due > Moment(0, Stage.ROSTER):
            return self._rounding
        return self._spends.rounding_of(contribution)
