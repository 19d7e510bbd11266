"""What devices that take the server for malicious insist on, and the attacks that it stops."""

from __future__ import annotations

import numpy as np
import pytest

from rfa.secagg.fixed_point import Contribution
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from tests.secagg.party import MALICIOUS, Party, contributions, party

NOBODY = Terms(0, 0, 0, server_model=ServerModel.MALICIOUS)
WARY = Policy(server_model=ServerModel.MALICIOUS)


def asked_in_three(policy: Policy) -> tuple[Party, SecureOracle]:
    """A malicious server asks three of ten devices, and says that none of them collude."""
    table = party(contributions(10, 30), NOBODY, policy=policy)
    three = sorted(table.devices)[:3]
    return table, SecureOracle(table.opening, NOBODY, three, table.carry, table.known)


def test_two_identities_read_the_update_of_a_third() -> None:
    table, ask = asked_in_three(WARY)
    nu, (victim, *colluders) = 100.0, sorted(table.devices)[:3]
    total = ask(np.zeros(30), nu)
    known = [part for part in (table.parts[device] for device in colluders) if part]
    push = nu * total.push - sum(part.weight * part.update.astype(float) for part in known)
    found = push / (total.weight - sum(part.weight for part in known))
    part = table.parts[victim]
    assert part
    assert np.linalg.norm(found - part.update) < 1e-5 * np.linalg.norm(part.update)


@pytest.mark.parametrize("guess", [True, False])
def test_a_guessed_point_and_a_tiny_radius_tell_whether_an_update_is_the_guess(guess: bool) -> None:
    parts = contributions(10, 30)
    ask = party(parts, MALICIOUS, policy=WARY).oracle()
    part: Contribution = parts[sorted(parts)[4]]
    total = ask(part.update if guess else part.update + 0.01, 1e-6)
    assert (total.near, total.mass > 1e-3) == (int(guess), guess)
