"""A budget, a name or a folder that a node gets later: what it was charged before still counts."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from rfa.flower import OneStepRFA, Policy, Terms
from rfa.flower.errors import NodesSpentError
from rfa.flower.storage import DeviceStorage
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import VaultError
from tests.flower.grid import LocalGrid
from tests.flower.noisy import NAMES, RHO, Z, budget_of
from tests.flower.test_own_budget import masked_inputs
from tests.flower.toy import NODES, app, model, with_nu

RICH = 1000.0
"""A budget, in rounds, that no test spends."""


@dataclasses.dataclass(frozen=True)
class How:
    """How the nodes of a run are set up, each in a folder of its own.

    Attributes:
        budget: their budget in rounds; None for none.
        named: whether they have a partition.
        first: what their numbers have beyond their names.
        folder: the folder of all folders.
    """

    budget: float | None = None
    named: bool = False
    first: int = 0
    folder: str = "nodes"

    def grid(self, home: Path, run: int) -> LocalGrid:
        epsilon = budget_of(self.budget) if self.budget else None
        policy = Policy(epsilon=epsilon)
        root = home / self.folder
        grid = LocalGrid(
            {self.first + n: app(n, root / str(n), policy=policy) for n in NAMES}, run=run
        )
        for node, context in grid.contexts.items():
            if self.named:
                context.node_config["partition-id"] = node - self.first
        return grid


def play(how: How, home: Path, run: int) -> int:
    """Run a round with noise, and count the masked inputs that left."""
    grid = how.grid(home, run)
    strategy = OneStepRFA(noise_multiplier=Z, **with_nu(terms=Terms()))
    try:
        strategy.start(grid, model(), 1)
    except NodesSpentError:
        assert not masked_inputs(grid)
    return len(masked_inputs(grid))


BEFORE = {
    "neither name nor budget": [How()],
    "another number each time": [How(), How(first=500), How(first=900)],
    "no name": [How(RICH)],
    "no name, then a budget": [How(), How(RICH)],
}
"""How nodes were set up in earlier runs."""
AFTER = {
    "a budget": How(1.0),
    "a budget, under another number": How(1.0, first=300),
    "a budget and a name": How(1.0, named=True),
    "a budget, a name and another number": How(1.0, named=True, first=300),
}
"""How they are set up then."""


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("before", BEFORE)
def test_charges_before_a_budget_or_a_name_count(tmp_path: Path, before: str, after: str) -> None:
    runs = BEFORE[before]
    for run, how in enumerate(runs, 7):
        assert play(how, tmp_path, run) == NODES
    poor = dataclasses.replace(AFTER[after], budget=len(runs) + 0.9)
    assert play(poor, tmp_path, 20) == 0, "less than a round is left"
    rich = dataclasses.replace(AFTER[after], budget=len(runs) + 1.001)
    assert play(rich, tmp_path, 21) == NODES, "and no more is counted than there was"
    assert play(rich, tmp_path, 22) == 0


def test_charges_under_a_name_count_for_a_node_that_has_lost_it(tmp_path: Path) -> None:
    assert play(How(named=True), tmp_path, 7) == NODES
    assert play(How(1.9), tmp_path, 8) == 0
    assert play(How(2.001), tmp_path, 9) == NODES
    assert play(How(2.9, named=True), tmp_path, 10) == 0, "and back"
    assert play(How(3.001, named=True), tmp_path, 11) == NODES


def test_names_in_one_folder_have_budgets_of_their_own(tmp_path: Path) -> None:
    """What was charged before they had names counts for each of them."""
    epsilon = budget_of(NODES + 1.001)
    for run, named in ((7, False), (8, True), (9, True)):
        policy = Policy(epsilon=epsilon if named else None)
        grid = LocalGrid({node: app(node, tmp_path, policy=policy) for node in NAMES}, run=run)
        for node, context in grid.contexts.items():
            if named:
                context.node_config["partition-id"] = node
        strategy = OneStepRFA(noise_multiplier=Z, **with_nu(terms=Terms()))
        if run < 9:
            strategy.start(grid, model(), 1)
        else:
            with pytest.raises(NodesSpentError):
                strategy.start(grid, model(), 1)
        assert len(masked_inputs(grid)) == (NODES if run < 9 else 0)


def test_another_folder_or_another_name_is_another_device(tmp_path: Path) -> None:
    """Nothing tells that it is the same one: docs/privacy.md says so."""
    assert play(How(), tmp_path, 7) == NODES
    assert play(How(1.001, folder="others"), tmp_path, 8) == NODES
    assert play(How(named=True, folder="named"), tmp_path, 9) == NODES
    home, node = tmp_path / "named" / str(NAMES[0]), NAMES[0]
    for who, charged in ((node, RHO), (node + 1, 0.0)):
        storage = DeviceStorage(home, 10, node, str(who), named=True)
        with storage.device("train", Profile(node, Policy(epsilon=RICH))) as device:
            assert device.spent_rho == pytest.approx(charged)


def test_ledgers_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may let its files be opened, and not be listed."""
    assert play(How(), tmp_path, 7) == NODES

    def forbidden(folder: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", forbidden)
    monkeypatch.setattr(os, "scandir", forbidden)
    storage = DeviceStorage(tmp_path / "nodes" / str(NAMES[0]), 8, 1, "1", named=False)
    with pytest.raises(VaultError, match="Permission denied"):
        storage.device("train", Profile(1, Policy(epsilon=RICH)))


def test_a_damaged_ledger_that_may_be_its_own_stops_a_node(tmp_path: Path) -> None:
    home, node = tmp_path / "nodes" / str(NAMES[0]), NAMES[0]
    assert play(How(), tmp_path, 7) == NODES
    (ledger,) = (home / "flower" / "spent").iterdir()
    ledger.write_bytes(b"not a ledger" * 100)
    for named in (True, False):
        storage = DeviceStorage(home, 8, 300 + node, str(300 + node), named=named)
        with pytest.raises(VaultError, match=ledger.name):
            storage.device("train", Profile(300 + node, Policy(epsilon=RICH)))
        storage.device("train", Profile(300 + node, Policy())).close()
