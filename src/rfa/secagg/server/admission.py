"""Who joins a round: the keys that devices offer, none of them twice."""

from __future__ import annotations

from collections.abc import Mapping

from rfa.secagg.errors import (
    DuplicateKeyError,
    NotCanonicalError,
    SecAggError,
    TooFewDevicesError,
)
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.security.cohort import Identities, check_device_keys
from rfa.secagg.security.parameters import Parameters
from rfa.secagg.security.rules import agree_on
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.table import Table, form_table


class Admission:
    """The devices that join a round.

    Attributes:
        joined: the keys of those who have.
    """

    def __init__(self, opening: OpenRound, terms: Terms, identities: Identities) -> None:
        """Begin with nobody.

        Args:
            opening: the round.
            terms: what is offered to the devices.
            identities: the public identities of the devices, where the server is malicious.
        """
        self._opening, self._terms, self._identities = opening, terms, identities
        self.joined: dict[int, DeviceKeys] = {}
        self._taken: set[bytes] = set()

    def take(self, device: int, keys: DeviceKeys) -> None:
        """Take the keys of a device.

        Raises:
            NotCanonicalError, CohortError: saying what is wrong with them.
        """
        self.check(device, keys)
        self._taken.update(keys.all_keys)
        self.joined[device] = keys

    def check(self, device: int, keys: DeviceKeys) -> None:
        """Refuse keys that are not those of the device, not good for the round, or taken.

        Raises:
            NotCanonicalError, CohortError: saying what is wrong with them.
        """
        if keys.device != device:
            msg = f"device {device} calls itself {keys.device}"
            raise NotCanonicalError(msg)
        check_device_keys(keys, self._opening, self._identities)
        offered = set(keys.all_keys)
        if len(offered) <= self._opening.masked_sums or offered & self._taken:
            msg = f"device {device} has a key that is taken"
            raise DuplicateKeyError(msg)

    def close(self, faults: Mapping[int, SecAggError]) -> Table:
        """The table of those who joined.

        Args:
            faults: what became of the others.

        Raises:
            AbortError: if they are too few.
        """
        parameters = self._agree(len(self.joined), faults)
        return form_table(self._opening, self.joined.values(), parameters)

    def _agree(self, joined: int, faults: Mapping[int, SecAggError]) -> Parameters:
        """The parameters of the cohort; if there are none, say what became of the others."""
        try:
            return agree_on(self._terms, joined, self._opening)
        except TooFewDevicesError as error:
            if not faults:
                raise
            first = next(iter(faults.values()))
            msg = f"{error}; {len(faults)} did not, the first because {first}"
            raise TooFewDevicesError(msg) from None
