"""The secure sum: the server learns the totals of masked inputs over devices, and nothing else.

Devices and server are state machines without I/O; an exchange carries their bytes. Two oracles
implement the seam: `SecureOracle` runs the real protocol, and `UnmaskedOracle` computes the same
numbers without masks. docs/threat-model.md states every guarantee.

    >>> import numpy as np
    >>> updates = {name: np.full(2, name, np.float32) for name in range(1, 7)}
    >>> devices = {name: Device(Contribution(w), Profile(name)) for name, w in updates.items()}
    >>> terms = Terms(colluder_fraction=0.1, max_dropout_fraction=0.25)
    >>> opening = open_round(1, terms, queries=1, dim=2)
    >>> lost = {4: Moment(0, Stage.SUM)}
    >>> ask = SecureOracle(opening, terms, devices, InProcess(devices, lost))
    >>> total = ask(np.zeros(2), 10.0)
    >>> total.count, (10 * total.push / total.weight).round(4)
    (5, array([3.4, 3.4]))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rfa._lazy import names_on_use

if TYPE_CHECKING:
    from rfa.secagg.crypto.keys import identity_of
    from rfa.secagg.device.machine import Device
    from rfa.secagg.device.profile import Identity, Profile
    from rfa.secagg.device.vault import DurableDevice
    from rfa.secagg.errors import (
        AbortError,
        MessageError,
        NotFiniteError,
        ParameterError,
        PrivacySpentError,
        RefusalError,
        SecAggError,
        VaultError,
    )
    from rfa.secagg.fixed_point import Contribution, Encoding, Total
    from rfa.secagg.in_process import InProcess
    from rfa.secagg.messages.stages import Moment, Stage
    from rfa.secagg.oracle import Exchange, SecureOracle, open_round
    from rfa.secagg.security.parameters import Parameters, ServerModel, derive
    from rfa.secagg.security.policy import Policy
    from rfa.secagg.security.terms import Terms
    from rfa.secagg.server.machine import Server
    from rfa.secagg.server.requests import Outbox
    from rfa.secagg.unmasked import UnmaskedOracle

_HOMES = {
    "rfa.secagg.crypto.keys": ("identity_of",),
    "rfa.secagg.device.machine": ("Device",),
    "rfa.secagg.device.profile": ("Identity", "Profile"),
    "rfa.secagg.device.vault": ("DurableDevice",),
    "rfa.secagg.errors": (
        "AbortError",
        "MessageError",
        "NotFiniteError",
        "ParameterError",
        "PrivacySpentError",
        "RefusalError",
        "SecAggError",
        "VaultError",
    ),
    "rfa.secagg.fixed_point": ("Contribution", "Encoding", "Total"),
    "rfa.secagg.in_process": ("InProcess",),
    "rfa.secagg.messages.stages": ("Moment", "Stage"),
    "rfa.secagg.oracle": ("Exchange", "SecureOracle", "open_round"),
    "rfa.secagg.security.parameters": ("Parameters", "ServerModel", "derive"),
    "rfa.secagg.security.policy": ("Policy",),
    "rfa.secagg.security.terms": ("Terms",),
    "rfa.secagg.server.machine": ("Server",),
    "rfa.secagg.server.requests": ("Outbox",),
    "rfa.secagg.unmasked": ("UnmaskedOracle",),
}

__all__ = [
    "AbortError",
    "Contribution",
    "Device",
    "DurableDevice",
    "Encoding",
    "Exchange",
    "Identity",
    "InProcess",
    "MessageError",
    "Moment",
    "NotFiniteError",
    "Outbox",
    "ParameterError",
    "Parameters",
    "Policy",
    "PrivacySpentError",
    "Profile",
    "RefusalError",
    "SecAggError",
    "SecureOracle",
    "Server",
    "ServerModel",
    "Stage",
    "Terms",
    "Total",
    "UnmaskedOracle",
    "VaultError",
    "derive",
    "identity_of",
    "open_round",
]

__getattr__, __dir__ = names_on_use(__name__, _HOMES)
