"""The removal of masks from a total: the shares that devices open give secrets, and these masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rfa.secagg.crypto.graph import rank
from rfa.secagg.crypto.keys import agree, public_of
from rfa.secagg.crypto.masks import Mask
from rfa.secagg.crypto.shares import borne, misfits, recover
from rfa.secagg.errors import BadShareError
from rfa.secagg.security.cohort import Cohort
from rfa.secagg.security.rules import Members
from rfa.secagg.server.complaints import Unopened
from rfa.secagg.server.table import Table
from rfa.secagg.transcript import commitment_to, pair_mask_key, self_mask_key


def masks_left(
    cohort: Cohort,
    publics: Sequence[bytes],
    secrets: Mapping[int, bytes],
    survivors: Members,
    context: bytes,
) -> list[Mask]:
    """Return the masks on a sum of masked inputs: self-masks, and masks shared with drop-outs.

    Args:
        cohort: the cohort.
        publics: the public mask keys of its devices in this masked sum.
        secrets: the secret of each device that was asked, by position: the seed of a survivor's
            self-mask, the secret mask key of a drop-out.
        survivors: the devices whose inputs are in the sum.
        context: the digest of the masked sum.
    """
    masks: list[Mask] = []
    for position, secret in secrets.items():
        if position in survivors:
            masks.append((self_mask_key(secret, context), False))
            continue
        others = [other for other in cohort.neighbors(position) if other in survivors]
        agreed = agree(secret, [publics[other] for other in others])
        masks += [
            (pair_mask_key(shared, context, position, other), position < other)
            for other, shared in zip(others, agreed, strict=True)
        ]
    return masks


class OpenedShares:
    """The shares of one masked sum that devices opened, and the secrets that they give.

    Attributes:
        shares: for each dealer, its shares by the rank of their holder.
        secrets: the secrets that removed the masks, by position: seeds of survivors, keys of
            drop-outs.
        wrong: for each dealer with wrong shares, the holders that surely opened them; all
            holders, if no shares give its secret.
        forgers: the number of liars around such a dealer that could make honest devices look like
            this.
        unopened: the secret that could not be opened, if there is one.
    """

    def __init__(self, table: Table, masked_sum: int) -> None:
        self._table, self._masked_sum = table, masked_sum
        self._doubted: set[int] = set()
        self.shares: dict[int, dict[int, int]] = {}
        self.secrets: dict[int, bytes] = {}
        self.wrong: dict[int, set[int]] = {}
        self.forgers: dict[int, int] = {}
        self.unopened: Unopened | None = None

    def take(self, holder: int, dealer: int, share: int) -> None:
        """Add a share that a device opened."""
        parameters = self._table.cohort.parameters
        at = rank(holder, dealer, parameters.cohort, parameters.degree)
        self.shares.setdefault(dealer, {})[at] = share

    def masks(self, alive: Members, survivors: Members, context: bytes) -> list[Mask]:
        """Return the masks that are still on the total.

        Args:
            alive: the devices that were asked.
            survivors: those whose inputs are in the total.
            context: the digest of the masked sum.

        Raises:
            BadShareError: if a secret cannot be opened; the message names the device.
        """
        publics = [keys.mask_keys[self._masked_sum] for keys in self._table.keys]
        for position in survivors:
            self._recover_seed(position)
        for position in alive - survivors:
            self._recover(
                position, lambda secret, public=publics[position]: public_of(secret) == public
            )
        return masks_left(self._table.cohort, publics, self.secrets, survivors, context)

    def _recover_seed(self, position: int) -> None:
        """Recover the seed of a survivor's self-mask, which its commitment identifies."""
        masked_sum, cohort = self._masked_sum, self._table.cohort.digest
        promised = self._table.commitment(position, masked_sum)
        self._recover(
            position, lambda seed: commitment_to(seed, cohort, position, masked_sum) == promised
        )

    def _recover(self, position: int, is_secret: Callable[[bytes], bool]) -> None:
        """Recover a secret of a device, from the shares of holders without complaints first."""
        holders = self._table.cohort.neighbors(position)
        threshold = self._table.cohort.parameters.threshold
        given = self.shares.get(position, {})
        order = sorted(given, key=lambda rank: (holders[rank - 1] in self._doubted, rank))
        shares = {rank: given[rank] for rank in order}
        try:
            secret, used = recover(shares, threshold=threshold, is_secret=is_secret)
        except BadShareError as error:
            self._note_unopened(position, {holders[rank - 1] for rank in given})
            device = self._table.keys[position].device
            msg = f"a secret of device {device} cannot be opened: {error}; it, or neighbors, lie"
            raise BadShareError(msg) from None
        if list(used) != order[:threshold]:
            self._note_wrong(position, shares, used)
        self.secrets[position] = secret

    def _note_unopened(self, position: int, holders: set[int]) -> None:
        """Record that no set of a dealer's shares gives its secret.

        The shares of an honest dealer do, unless more of them are forged than `recover` tolerates.
        """
        threshold = self._table.cohort.parameters.threshold
        if len(holders) >= threshold:
            self.wrong[position] = holders
            self.forgers[position] = borne(len(holders), threshold) + 1
            dealer = self._table.keys[position].device
            self.unopened = Unopened(dealer, len(holders), self.forgers[position])

    def _note_wrong(self, position: int, shares: Mapping[int, int], used: Sequence[int]) -> None:
        """Record the holders of shares that do not fit those that gave a secret.

        Colluders can choose wrong shares that give the secret together. So the others are recorded
        only if enough shares fit that t of them are honest. A polynomial that gives the secret and
        is not the dealer's goes through at most t - 2 honest shares: all others that fit it are
        forged.
        """
        holders, parameters = self._table.cohort.neighbors(position), self._table.cohort.parameters
        wrong = {holders[rank - 1] for rank in misfits(shares, used)}
        self._doubted |= wrong
        fit = len(shares) - len(wrong)
        if fit >= parameters.threshold + parameters.num_colluders:
            self.wrong[position] = wrong
            self.forgers[position] = fit - parameters.threshold + 2
