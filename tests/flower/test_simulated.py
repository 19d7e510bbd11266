"""In Flower's simulation nothing is kept from run to run, and nothing is on the disk."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Context, RecordDict

from rfa.flower import RFA, NodesRefusedError, OneStepRFA, SecureFedAvg
from rfa.flower.simulated import SimulatedStorage, storage_for
from rfa.flower.simulation import ACTORS, is_simulated, is_simulation
from rfa.flower.storage import DeviceStorage
from tests.flower.grid import LocalGrid
from tests.flower.toy import NODES, model, nodes, options, with_nu


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes as those of the simulation engine."""
    monkeypatch.setattr("rfa.flower.simulated.is_simulated", lambda: True)


def w_of(result: Any) -> Any:
    return result.arrays["w"].numpy()


@pytest.mark.usefixtures("simulation")
def test_a_seeded_run_is_done_again_and_comes_out_the_same(tmp_path: Path) -> None:
    results = [
        RFA(budget=2, **with_nu()).start(LocalGrid(nodes(tmp_path), run=run), model(), 2)
        for run in (7, 7, 8)
    ]
    assert not list(tmp_path.iterdir())
    for result in results:
        assert np.linalg.norm(w_of(result) - w_of(results[0])) < 1e-5
        assert list(result.evaluate_metrics_clientapp) == [1, 2]


def test_a_deployment_gives_the_same_and_keeps_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = OneStepRFA(**with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    assert list((tmp_path / "flower" / "spent").iterdir())
    monkeypatch.setattr("rfa.flower.simulated.is_simulated", lambda: True)
    simulated = OneStepRFA(**with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    assert np.linalg.norm(w_of(deployed) - w_of(simulated)) < 1e-5


@pytest.mark.usefixtures("simulation")
def test_within_a_run_an_update_is_in_one_sum_as_on_a_device(tmp_path: Path) -> None:
    """A simulation shows what a deployment would do."""
    grid = LocalGrid(nodes(tmp_path))
    SecureFedAvg(fraction_evaluate=0.0, **options()).start(grid, model(), 1)
    with pytest.raises(NodesRefusedError, match="it abstains"):
        SecureFedAvg(fraction_evaluate=0.0, **options()).start(grid, model(), 1)


@pytest.mark.usefixtures("simulation")
def test_after_a_round_a_context_holds_little(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    RFA(budget=2, **with_nu()).start(grid, model(), 3)
    for context in grid.contexts.values():
        record = context.state.config_records["rfa"]
        assert not [name for name in record if "contribution" in name]
        assert sum(len(value) for value in record.values() if isinstance(value, bytes)) < 8000


@pytest.mark.usefixtures("simulation")
def test_personal_parameters_and_buckets_last_for_a_run(tmp_path: Path) -> None:
    how: dict[str, Any] = {"personal": "mine", "weights": "buckets"}
    strategy = OneStepRFA(**with_nu(example_cap=256.0, **how))
    grid = LocalGrid(nodes(tmp_path))
    strategy.start(grid, model(), 2)
    for context in grid.contexts.values():
        kept = context.state.config_records["rfa"]
        assert np.frombuffer(kept["personal mine"], np.float32).any()  # type: ignore[arg-type]
        assert set(context.state.config_records["rfa-weights"]) == {
            f"{task} {name}"
            for task in ("train", "evaluate")
            for name in ("threshold", "below", "surrogate")
        }
    assert not list(tmp_path.iterdir())
    assert len(grid.contexts) == NODES


def context_with(**config: Any) -> Context:
    return Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={})


def test_a_node_config_like_that_of_a_simulation_makes_no_simulation(tmp_path: Path) -> None:
    """Many a SuperNode has it, and forgets nothing."""
    context = context_with(**{"partition-id": 0, "num-partitions": 5})
    assert type(storage_for(context, tmp_path)) is DeviceStorage


@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("actor", ["0a0b", None])
def test_a_simulation_is_an_actor_of_flowers_engine(
    monkeypatch: pytest.MonkeyPatch, module: bool, started: bool, actor: str | None
) -> None:
    """Neither an app that uses Ray for something else, nor a process that only loads the module."""

    def context() -> Any:
        return SimpleNamespace(get_actor_id=lambda: actor)

    ray = SimpleNamespace(is_initialized=lambda: started, get_runtime_context=context)
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    if module:
        monkeypatch.setitem(sys.modules, ACTORS, ray)  # type: ignore[arg-type]
    assert is_simulated() == (module and started and actor is not None)
    kind = type(storage_for(context_with()))
    assert (kind is SimulatedStorage) == is_simulated()


def test_here_is_no_simulation() -> None:
    assert not is_simulated()
    assert not is_simulation(LocalGrid({}))
