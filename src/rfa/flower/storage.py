"""The device's own folder, for files that are large or secret and that the server never gets.

<folder>/identity                        its Ed25519 identity, if it has one
<folder>/identities.json                 the public identities of all nodes: {"node": "hex"}
<folder>/flower/<run>/<node>.<task>      the secure sum: written before each reply leaves
<folder>/flower/spent/<who>.<task>       salted digests of updates that were in a sum, kept
                                         permanently; for evaluated models also its answers; and
                                         the charges of sums with noise. A node without a
                                         partition uses `own-<number>.<task>`, and with a budget
                                         `own.<task>`
<folder>/flower/sent/<who>.<task>        masked inputs that it sent, sums that it opened
<folder>/flower/weights/<who>            the power of two for its examples, kept permanently
<folder>/flower/personal/<name>/<who>    its personal parameters u_i (Algorithm 4)
<folder>/flower/before/<name>/<who>      the same before its last training, and in which round
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context

from rfa._files import replace_file
from rfa.flower.weighing import Surrogates
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.kept import read_charges
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import VaultError
from rfa.secagg.security.identities import read_identities

VARIABLE, NODE_CONFIG = "RFA_HOME", "rfa-home"
FORGOTTEN = 24 * 3600
"""Seconds after which a run is assumed to be over."""
SECRET_SIZE = 32
OWN = "own"
"""The name of the device to which a folder belongs."""


@dataclass(frozen=True)
class DeviceStorage:
    """The folder of a device in a run.

    Attributes:
        root: the folder itself.
        run: the run.
        node: the node's number.
        who: the name of the device in all runs: its partition, or else its number.
        named: whether its owner has named it, by a partition; the server gives the number.
    """

    root: Path
    run: int
    node: int
    who: str
    named: bool

    def vault(self, task: str) -> Path:
        """Return the file of the secure sum over a task."""
        return self.root / "flower" / str(self.run) / f"{self.node}.{task}"

    def spent(self, task: str, *, budget: bool = False) -> Path:
        """Return the file with the spent updates and the charges of all runs.

        A node that restarts gets a new number. So a budget belongs to a name that the owner gave,
        and without one to the folder: nodes that share a folder without names share a budget.
        """
        unnamed = OWN if budget else f"{OWN}-{self.who}"
        return self.root / "flower" / "spent" / f"{self.who if self.named else unnamed}.{task}"

    def spent_elsewhere(self, task: str) -> float:
        """Return the charges in other files of the folder that may be of this device.

        It may have been without a budget, or without a name, and a file that has no name may be of
        any device. So too much may be counted, and never too little.

        Raises:
            VaultError: if the folder or a file cannot be read.
        """
        own = self.spent(task, budget=True)
        try:
            there = sorted(own.parent.iterdir()) if own.parent.exists() else []
        except OSError as error:  # a glob would find nothing
            msg = f"the ledgers at {own.parent} cannot be listed: {error.strerror}"
            raise VaultError(msg) from None
        which = f"{OWN}*.{task}" if self.named else f"*.{task}"
        return sum(read_charges(path) for path in there if path.match(which) and path != own)

    def sent(self, task: str) -> Path:
        """Return the file with the masked inputs that the device sent, to compare with receipts."""
        return self.root / "flower" / "sent" / f"{self.who}.{task}"

    def weights(self) -> Path | Surrogates:
        """Return the file with the surrogates of its numbers of examples, over all runs."""
        return self.root / "flower" / "weights" / self.who

    def read_kept(self, kind: str, name: str) -> bytes | None:
        """Return what the device keeps of a kind under a name, in all runs; None for nothing."""
        return read_private(self._kept(kind, name))

    def write_kept(self, kind: str, name: str, content: bytes) -> None:
        """Keep something of a kind under a name in place of the content before."""
        write_private(self._kept(kind, name), content)

    def _kept(self, kind: str, name: str) -> Path:
        return self.root / "flower" / kind / name / self.who

    def device(self, task: str, profile: Profile) -> DurableDevice:
        """Return the device in the secure sum over a task.

        Raises:
            VaultError: if its files cannot be used.
        """
        budget = profile.policy.epsilon is not None
        if budget:
            elsewhere = self.spent_elsewhere(task)
            profile = dataclasses.replace(profile, spent_elsewhere=elsewhere)
        spent = self.spent(task, budget=budget)
        return DurableDevice(self.vault(task), profile, spent=spent, sent=self.sent(task))

    def tidy(self) -> None:
        """Remove the files of old runs, also under earlier numbers of the node."""
        for path in self.root.glob("flower/[0-9]*/*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - FORGOTTEN:
                    path.unlink()

    def identity(self) -> Identity | None:
        """Return the device's identity and those it knows; None if it has none.

        Raises:
            VaultError: if they cannot be read.
        """
        path = self.root / "identity"
        if not path.exists():
            return None
        return Identity(_read_secret(path), read_identities(self.root / "identities.json"))


def storage_of(context: Context, given: Path | None = None) -> DeviceStorage:
    """Return the storage in the given folder, or that of the node config, RFA_HOME, or ~/.rfa."""
    named = context.node_config.get(NODE_CONFIG) or os.environ.get(VARIABLE)
    root = given or (Path(str(named)).expanduser() if named else Path.home() / ".rfa")
    partition = context.node_config.get("partition-id")
    named = isinstance(partition, int)
    who = f"{partition if named else context.node_id}"
    return DeviceStorage(root, context.run_id, context.node_id, who, named=named)


def server_home() -> Path:
    """Return the default folder of the server's identity."""
    named = os.environ.get(VARIABLE)
    return (Path(named).expanduser() if named else Path.home() / ".rfa") / "server"


def read_identity(folder: Path) -> bytes:
    """Return the secret half of the identity in a folder, and create it if there is none.

    Raises:
        VaultError: if there is none, and none can be created.
    """
    create_identity(folder)
    return _read_secret(folder / "identity")


def create_identity(folder: Path) -> str:
    """Create an identity in a folder, unless there is one, and return its public half in hex.

    Args:
        folder: the folder; the secret half never leaves it.

    Raises:
        VaultError: if that is not possible.
    """
    path = folder / "identity"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _write_secret(path)
    except OSError as error:
        msg = f"no identity can be made at {path}: {error}"
        raise VaultError(msg) from None
    return identity_of(_read_secret(path)).hex()


def _write_secret(path: Path) -> None:
    """Write a fresh secret to a file that only its owner can ever read, or nothing."""
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # for its owner only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(os.urandom(SECRET_SIZE).hex())
        Path(new).chmod(0o600)  # restores the bits that the umask removed
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(new, path)
    finally:
        Path(new).unlink()


def _read_secret(path: Path) -> bytes:
    try:
        secret = bytes.fromhex(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        secret = b""
    if len(secret) != SECRET_SIZE:
        msg = f"{path} is not an identity: it must hold {SECRET_SIZE} bytes in hex"
        raise VaultError(msg)
    return secret


def read_private(path: Path) -> bytes | None:
    """Return the content of a file; None if there is no file."""
    return path.read_bytes() if path.exists() else None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, so that it has the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replace_file(path, mode=0o600) as file:
        file.write(content)
