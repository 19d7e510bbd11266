"""The devices that join a round, with keys of which no two are equal."""

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
            terms: the terms that the server offers.
            identities: the public identities of the devices, if the server is malicious.
        """
        self._opening, self._terms, self._identities = opening, terms, identities
        self.joined: dict[int, DeviceKeys] = {}
        self._taken: set[bytes] = set()

    def take(self, device: int, keys: DeviceKeys) -> None:
        """Check the keys of a device, and add it.

        Raises:
            NotCanonicalError, CohortError: if the keys are not valid; the message says why.
        """
        self.check(device, keys)
        self._taken.update(keys.all_keys)
        self.joined[device] = keys

    def check(self, device: int, keys: DeviceKeys) -> None:
        """Check that keys belong to the device, fit the round, and are not taken.

        Raises:
            NotCanonicalError, CohortError: if the keys are not valid; the message says why.
        """
        if keys.device != device:
            msg = f"device {device} calls itself {keys.device}"
            raise NotCanonicalError(msg)
        check_device_keys(keys, self._opening, self._identities)
        offered = set(keys.all_keys)
        if len(offered) <= self._opening.masked_sums or offered & self._taken:
            msg = f"device {device} has a key that another device has"
            raise DuplicateKeyError(msg)

    def close(self, faults: Mapping[int, SecAggError]) -> Table:
        """Return the table of the devices that joined.

        Args:
            faults: why the others did not.

        Raises:
            AbortError: if they are too few.
        """
        parameters = self._agree(len(self.joined), faults)
        return form_table(self._opening, self.joined.values(), parameters)

    def _agree(self, joined: int, faults: Mapping[int, SecAggError]) -> Parameters:
        """Return the parameters of the cohort; the error also says why others did not join."""
        try:
            return agree_on(self._terms, joined, self._opening)
        except TooFewDevicesError as error:
            if not faults:
                raise
            first = next(iter(faults.values()))
            msg = f"{error}; {len(faults)} did not, the first because {first}"
            raise TooFewDevicesError(msg) from None
