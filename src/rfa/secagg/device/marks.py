"""The permanent marks of inputs that were in a sum: salted digests in the device's store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from rfa.secagg.device.memory import GONE, Memory, unguard
from rfa.secagg.device.spent import Spent, content_of, first_spent, read_spent
from rfa.secagg.device.store import Store
from rfa.secagg.errors import MessageError, SpentUpdateError, VaultError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.transcript import (
    mark_digest,
    own_round_digest,
    repeated_rounding,
    update_digest,
)


@dataclass(frozen=True)
class Marks:
    """The marks of a device. All methods run within a transaction of the store.

    Attributes:
        device: the number of the device.
        store: the store that keeps them.
        damaged: makes the error for a damaged store.
        charged: whether charges alone limit sums with noise. They do not for a malicious server
            without a budget, which could repeat a sum until the noise averages out.
    """

    device: int
    store: Store
    damaged: Callable[[str], VaultError]
    charged: bool = True

    def check_unspent(self, contribution: Contribution, *, noisy: bool) -> None:
        """Check that an input is not marked, unless it only was and will be in sums with noise.

        Raises:
            SpentUpdateError: if it is marked.
        """
        spent = self._find(self._name(contribution))
        if spent and not (noisy and self._recurs(spent)):
            raise self.refusal(contribution)

    def _recurs(self, spent: Spent) -> bool:
        """Return whether an input of sums with noise may enter more of them."""
        return spent.noisy and self.charged

    def repeat(self, contribution: Contribution, label: bytes) -> tuple[Contribution, bytes]:
        """Return the input of the device to a repeat, and the token that names the sum.

        Raises:
            SpentUpdateError: if there can be no repeat; the message says why.
        """
        spent = self._find(self._name(contribution))
        if spent is None:
            raise self.refusal(contribution, "no sum that it was in is known")
        try:
            again = spent.repeated(contribution, content_of(self._salt(), contribution), label)
        except SpentUpdateError as error:
            raise self.refusal(contribution, str(error)) from None
        return again, spent.token

    def spend(
        self,
        contribution: Contribution,
        memory: Memory,
        label: bytes,
        *,
        again: bool,
        whom: bytes = b"",
    ) -> None:
        """Mark the input that a masked input was made of.

        Args:
            contribution: the input.
            memory: the memory after the input is masked.
            label: a digest of what its metrics mean.
            again: whether it was brought to repeat a sum.
            whom: the digest of the devices if the sum can be opened over all of them only; else
                empty.

        Raises:
            SpentUpdateError: if it is marked, and this is not a repeat, or a repeat of another sum.
        """
        name, first = (
            self._name(contribution),
            first_spent(self._salt(), contribution, label, memory),
        )
        spent = self._find(name)
        if first.noisy and (spent is None or self._recurs(spent)):
            several = spent is not None and spent.own != first.own
            self._keep(name, dataclasses.replace(first, own=GONE) if several else first)
            return
        if spent and not again and spent.own != first.own:
            raise self.refusal(contribution)
        spent = spent or first
        try:
            after = spent.asked(memory, whom)
        except SpentUpdateError as error:
            raise self.refusal(contribution, str(error)) from None
        self._keep(name, after)

    def open(self, contribution: Contribution, memory: Memory, whom: bytes) -> None:
        """Record the devices over which a sum is opened; refuse to open a repeat over others.

        Raises:
            SpentUpdateError: if these are others.
        """
        name = self._name(contribution)
        spent = self._find(name)
        if spent is None:
            raise self.refusal(contribution, "and the mark of it is gone")
        if self._recurs(spent):
            return
        try:
            after = spent.opened(whom, own_round_digest(memory.advert))
        except SpentUpdateError as error:
            raise self.refusal(contribution, str(error)) from None
        if after != spent:
            self._keep(name, after)

    def take_back(self, contribution: Contribution, memory: Memory) -> None:
        """Remove the mark of an input if only this round set it."""
        name = self._name(contribution)
        spent = self._find(name)
        if spent and spent.own == own_round_digest(memory.advert):
            self.store.remove(name, self.store.where)

    def rounding_of(self, contribution: Contribution) -> bytes:
        """Return the secret of the random choices in rounding, the same for the same input."""
        salt = self._salt()
        return repeated_rounding(salt, content_of(salt, contribution))

    def _find(self, name: str) -> Spent | None:
        """Return the entry of an input; None if it was in no sum."""
        stored = self._read(name)
        try:
            return None if stored is None else read_spent(stored)
        except (ValueError, MessageError) as error:
            raise self.damaged(str(error)) from None

    def refusal(self, contribution: Contribution, why: str = "") -> SpentUpdateError:
        """Return the error for an input that was in a sum before."""
        what = "this very update before: train again, with randomness"
        if contribution.mark is not None:
            what = "the very same before, and another would reveal it"
        more = f" ({why})" if why else ""
        return SpentUpdateError(f"device {self.device} was in a sum with {what}{more}")

    def _keep(self, name: str, spent: Spent) -> None:
        self.store.keep(name, spent.encode(), self.store.where)

    def _name(self, contribution: Contribution) -> str:
        """Return the name of the entry for an input."""
        salt, own = self._salt(), contribution.mark
        mark = update_digest(salt, contribution.update) if own is None else mark_digest(salt, own)
        return "spent " + mark.hex()

    def _salt(self) -> bytes:
        try:
            return unguard(self._read("salt") or b"")
        except ValueError:
            msg = "the salt of its marks is damaged"
            raise self.damaged(msg) from None

    def _read(self, name: str) -> bytes | None:
        value = self.store.find(name, self.store.where)
        if value is not None and not isinstance(value, bytes):
            msg = f"{name} is not bytes"
            raise self.damaged(msg)
        return value
