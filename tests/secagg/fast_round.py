"""A server that plays a fast round honestly up to a stage, for the tests of what comes after."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa.radii import Radius
from rfa.secagg.crypto.graph import neighbors
from rfa.secagg.device.machine import Device
from rfa.secagg.messages.round import DeviceKeys, Roster
from rfa.secagg.security.cohort import in_order
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Outbox
from rfa.secagg.transcript import leaf_of
from tests.secagg.attack import NU, TERMS, adverts, victim_leaf, victim_of
from tests.secagg.party import MALICIOUS, Party, contributions, party

MODELS = {"semi_honest": TERMS, "malicious": MALICIOUS}
POINT = np.ones(3)
"""Where the first sum is asked for."""
SILENT = 5
"""The device that does not answer where a second roster is wanted."""


@dataclass
class FastRound:
    """A fast round with its server, at a stage of it.

    Attributes:
        table: the devices.
        server: the server.
        box: the requests of the stage, not yet delivered.
    """

    table: Party
    server: Server
    box: dict[int, bytes]

    @property
    def victim(self) -> Device:
        return self.table.devices[victim_of(self.table)]

    @property
    def request(self) -> bytes:
        """What the victim is asked."""
        return self.box[victim_of(self.table)]

    @property
    def first(self) -> Parameters:
        return self.server.parameters

    def deliver(self, silent: Collection[int] = ()) -> None:
        """Bring all requests, and the replies of all but some."""
        for device, request in self.box.items():
            if device not in silent:
                reply = self.table.devices[device].receive(request)
                self.table.said.append((device, request, reply))
                assert self.server.take(device, reply)

    def ask(self, requests: Outbox) -> FastRound:
        self.box = dict(requests)
        return self

    def unmask(self) -> FastRound:
        """Go on to the opening of the first sum."""
        self.deliver()
        return self.ask(self.server.unmask())

    def regroup(self, silent: Collection[int] = (SILENT,)) -> FastRound:
        """Go on to the second roster, without some."""
        self.deliver(silent)
        return self.ask(self.server.regroup())

    def second(self, members: Collection[int], **changes: Any) -> bytes:
        """A second roster of the server's choice for the victim, over some devices."""
        opening = self.table.opening
        leaves = {leaf_of(opening, one): one for one in self.keys if one.device in members}
        nonce = bytes(16)
        order = in_order(nonce, list(leaves))
        numbers = self.table.terms.without(self.first, len(self.keys) - len(members)).numbers
        roster = Roster(
            opening.session,
            numbers,
            nonce,
            order,
            tuple(leaves[leaf] for leaf in order),
            opening.each_roster,
        )
        roster = dataclasses.replace(roster, **changes)
        if opening.server_model == ServerModel.MALICIOUS:
            return roster.encode()
        return self._for_victim(roster).encode()

    def _for_victim(self, roster: Roster) -> Roster:
        """With the keys of the victim's neighbors alone."""
        opening = self.table.opening
        here = roster.leaves.index(victim_leaf(self.table))
        keys = {leaf_of(opening, one): one for one in roster.keys}
        around = sorted(neighbors(here, roster.parameters[0], roster.parameters[4]))
        return dataclasses.replace(
            roster, keys=tuple(keys[roster.leaves[place]] for place in around)
        )

    @property
    def keys(self) -> list[DeviceKeys]:
        return adverts(self.table)


def first_sum(
    terms: Terms = TERMS,
    *,
    table: Party | None = None,
    point: Any = POINT,
    radius: Radius = NU,
    **how: Any,
) -> FastRound:
    """A fast round at the requests for the first sum."""
    table = table or party(contributions(10, 3), terms, fast=True, **how)
    server = Server(table.opening, table.terms, table.known)
    begun = FastRound(table, server, dict(server.open(table.devices)))
    begun.deliver()
    return begun.ask(server.first(point, radius))
