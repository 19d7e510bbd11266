"""Targets of the secure sum: messages, devices, servers, and what a device keeps in files."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from rfa.secagg.device.machine import Device
from rfa.secagg.device.memory import read_memory
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import DuplicateKeyError, MessageError, SecAggError, ShareLimitError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.decoding import decode
from rfa.secagg.server.machine import Server
from tests.fuzz.engine import ACCEPTED, named
from tests.fuzz.mutate import mutate_bytes, mutate_message
from tests.fuzz.sessions import Answered, Asked, go_on, sessions
from tests.secagg.party import contributions
from tests.secagg.samples import SAMPLES

decoded = functools.cache(decode)
"""The honest messages, read once."""


class Codec:
    """Bytes are the one encoding of a message, or refused by a named error."""

    def __init__(self, folder: Path) -> None:
        self.last = b""
        said = [asked.request for session in sessions() for asked in session.asked[::5]]
        said += [next(iter(one.replies.values())) for s in sessions() for one in s.answered]
        self._messages = [*SAMPLES, *map(decode, said)]
        self._bytes = [message.encode() for message in self._messages]

    def one(self, rng: Random) -> str:
        """Read a message that is almost one, or random bytes."""
        if rng.random() < 0.1:
            head = rng.choice((b"", b"rfa", self._bytes[0][:4], rng.choice(self._bytes)[:5]))
            self.last = head + rng.randbytes(rng.randrange(120))
        else:
            self.last = mutate_message(rng, rng.choice(self._messages), self._bytes)
        try:
            found = decode(self.last)
        except MessageError as error:
            return named(error)
        assert found.encode() == self.last, "not the one encoding of a message"
        return ACCEPTED


class Devices:
    """A device answers, or refuses by a named error and is as it was before."""

    def __init__(self, folder: Path) -> None:
        self.last: Any = b""
        self._asked = [asked for session in sessions() for asked in session.asked]
        self._bytes = [asked.request for asked in self._asked]

    def one(self, rng: Random) -> str:
        """Ask a device that is somewhere in a round something; now and then more than once."""
        start = rng.choice(self._asked)
        device = copy.copy(start.device)
        device.memory = start.memory
        device._membership = None  # pyright: ignore[reportPrivateUsage]
        outcome = ACCEPTED
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            self.last = self._request(rng, start)
            outcome = self._ask(device, self.last)
        return outcome

    def _request(self, rng: Random, start: Asked) -> bytes:
        chance = rng.random()
        if chance < 0.1:
            return start.request
        if chance < 0.2:  # of another stage, device or session
            return rng.choice(self._bytes)
        return mutate_message(rng, decoded(start.request), self._bytes)

    def _ask(self, device: Device, request: bytes) -> str:
        before = device.memory
        try:
            device.receive(request)
        except ShareLimitError as error:
            return named(error)
        except SecAggError as error:
            assert device.memory is before, "a refusal changed the device"
            return named(error)
        return ACCEPTED


class Servers:
    """A bad reply costs its device its place, and nothing else; sums are opened or aborted."""

    def __init__(self, folder: Path) -> None:
        self.last: Any = b""
        self._answered = [one for session in sessions() for one in session.answered]
        self._bytes = [reply for one in self._answered for reply in one.replies.values()]
        self._servers = [copy.deepcopy(one.server) for one in self._answered]

    def one(self, rng: Random) -> str:
        """Let a server take a reply, and now and then all others, and go on."""
        index = rng.randrange(len(self._answered))
        at, server = self._answered[index], self._servers[index]
        name = rng.choice(list(at.replies))
        honest = at.replies[name]
        self.last = (
            rng.choice(self._bytes)
            if rng.random() < 0.1
            else mutate_message(rng, decoded(honest), self._bytes)
        )
        before = _state(server)
        good = server.take(name, self.last)
        outcome = ACCEPTED if good else named(server.faults[name])
        if not good:
            assert _state(server) == before, "a reply that was refused changed the server"
        if good or rng.random() < 0.02:
            if rng.random() < 0.5:
                outcome = self._go_on(at, server, name)
            self._servers[index] = copy.deepcopy(at.server)
        else:
            server.faults.pop(name)
            server._expected.devices.add(name)  # pyright: ignore[reportPrivateUsage]
        return outcome

    def _go_on(self, at: Answered, server: Server, name: int) -> str:
        for other, reply in at.replies.items():
            if other != name and not server.take(other, reply):
                # inputs are made of what others send, so of their keys: who of two copied them?
                assert isinstance(server.faults[other], DuplicateKeyError)
        try:
            result = go_on(server, at.then, list(at.replies), 3) if at.then else None
            if not isinstance(result, Total):
                list(result or ())
        except SecAggError as error:
            return named(error)
        return ACCEPTED


def _state(server: Any) -> tuple[Any, ...]:
    now, table = server._now, server._table
    running = (
        (
            now.words.tobytes(),
            tuple(now.tail),
            set(now.arrived),
            set(now.opened),
            dict(now.signatures),
            {key: dict(one) for key, one in now._shares.shares.items()},
        )
        if now
        else ()
    )
    dealt = set[int](table.deals if table else ())
    admission = server._admission
    return set(admission.joined), set(admission._taken), dealt, running


class Vaults:
    """Damaged files: a device goes on, or says which file it is and what to do."""

    def __init__(self, folder: Path) -> None:
        self.last: Any = b""
        self._folder = folder
        self._profile = Profile(5)
        self._brought = contributions(1, 3)[5]
        self._request = sessions()[0].asked[0].request
        with self._open() as device:
            device.bring(self._brought)
            device.receive(self._request)
        self._files = {path: path.read_bytes() for path in sorted(folder.iterdir())}

    def _open(self) -> DurableDevice:
        return DurableDevice(self._folder / "main", self._profile, spent=self._folder / "spent")

    def one(self, rng: Random) -> str:
        """Damage a file, and use the device."""
        for path, data in self._files.items():
            path.write_bytes(data)
        path = rng.choice(list(self._files))
        data = bytearray(self._files[path])
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            self._damage(rng, data)
        path.write_bytes(data)
        self.last = path.name, bytes(data)
        use: list[Callable[[DurableDevice], object]] = [
            lambda device: device.due,
            lambda device: device.bring(self._brought),
            lambda device: device.receive(self._request),
            lambda device: device.end(1, opened=False),
        ]
        try:
            with self._open() as device:
                rng.choice(use)(device)
        except SecAggError as error:
            return named(error)
        finally:
            for left in self._folder.glob("*-journal"):
                left.unlink()
        return ACCEPTED

    def _damage(self, rng: Random, data: bytearray) -> None:
        if not data:
            return
        page = 4096 * rng.randrange(3)
        near = (rng.randrange(120), page + rng.randrange(60), page + 4095 - rng.randrange(300))
        at = rng.choice((*near, rng.randrange(len(data)))) % len(data)
        end = min(len(data), at + rng.randrange(1, 64))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at:end] = bytes(end - at)
            case 2:
                data[at:end] = rng.randbytes(end - at)
            case 3 if rng.random() < 0.1:
                del data[at:]
            case _:
                data[at] = rng.randrange(256)


class Memories:
    """What a device keeps of a round, damaged."""

    def __init__(self, folder: Path) -> None:
        self.last = b""
        self._kept = [asked.memory.encode() for s in sessions() for asked in s.asked]

    def one(self, rng: Random) -> str:
        """Read a memory that is damaged."""
        self.last = mutate_bytes(rng, rng.choice(self._kept), self._kept)
        try:
            found = read_memory(self.last)
        except ValueError as error:
            assert "damaged" in str(error)  # noqa: PT017
            return "damaged"
        assert found.encode() == self.last
        return ACCEPTED
