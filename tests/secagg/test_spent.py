"""An update is in one sum: from when on it is spent, and who may say that it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import ShareLimitError, SpentUpdateError
from rfa.secagg.messages.round import Message, Roster, SumRequest, Unmask
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.terms import Terms
from tests.secagg.attack import altered, reach
from tests.secagg.party import Party, contributions, party
from tests.secagg.test_vault import durable, profile

AGAIN = "in a sum with this very update before"


def masked_once(
    folder: Path, server_model: ServerModel, stage: type[Message] = SumRequest
) -> tuple[Party, int, DurableDevice]:
    """A device of a round that has answered the request of a stage."""
    terms = Terms(0, 0.2, server_model=server_model, honest_per_query=0)
    table = party(contributions(6, 3), terms, queries=2, number=4)
    name = min(table.devices)
    device = durable(table, folder)[name]
    table.devices[name] = device  # type: ignore[assignment]
    device.receive(reach(table, stage)[name])
    return table, name, device


@pytest.mark.parametrize("server_model", ServerModel)
def test_an_update_is_spent_when_its_masked_input_leaves(
    tmp_path: Path, server_model: ServerModel
) -> None:
    """Others may open the sum though this device's own request for it is lost."""
    table, name, device = masked_once(tmp_path, server_model)
    device.end(4)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])
    device.close()
    after = DurableDevice(tmp_path / f"{name}", profile(table, name))
    with pytest.raises(SpentUpdateError, match=AGAIN):
        after.bring(table.parts[name])
    after.bring(contributions(6, 3, seed=1)[name])
    with pytest.raises(SpentUpdateError, match=AGAIN):
        after.bring(table.parts[name])


@pytest.mark.parametrize("server_model", ServerModel)
def test_an_update_is_not_spent_before_anything_of_it_leaves(
    tmp_path: Path, server_model: ServerModel
) -> None:
    table, name, device = masked_once(tmp_path, server_model, Roster)
    device.end(4)
    device.bring(table.parts[name])


def test_a_server_that_is_trusted_may_say_that_no_sum_was_opened(tmp_path: Path) -> None:
    """Or a round that stopped would lock out an app that always has the same update."""
    table, name, device = masked_once(tmp_path, ServerModel.SEMI_HONEST)
    for number in (3, None):  # the word must be about this very round
        other = masked_once(tmp_path / f"{number}", ServerModel.SEMI_HONEST)[2]
        other.end(number, opened=False)
        other.end(4, opened=True)
        with pytest.raises(SpentUpdateError, match=AGAIN):
            other.bring(table.parts[name])
    device.end(4, opened=False)
    device.bring(table.parts[name])


def test_a_server_that_is_not_trusted_takes_no_mark_back(tmp_path: Path) -> None:
    table, name, device = masked_once(tmp_path, ServerModel.MALICIOUS)
    device.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])


def test_a_device_that_opened_a_sum_knows_better(tmp_path: Path) -> None:
    """Also if it left the round after it, by the limit on shares."""
    table, name, device = masked_once(tmp_path / "1", ServerModel.SEMI_HONEST, Unmask)
    device.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])
    table = party(contributions(6, 3), max_share=0.9, number=4)
    device = durable(table, tmp_path / "2")[name]
    table.devices[name] = device  # type: ignore[assignment]
    request = reach(table, SumRequest, masked_sum=1)[name]
    with pytest.raises(ShareLimitError):
        device.receive(altered(request, mass=1))
    device.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])
