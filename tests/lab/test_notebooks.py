"""The tutorial notebooks, each in a fresh kernel at the smallest sizes: what they show is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
TIMEOUT = 300
"""Seconds for a cell, with all that else may go on at the machine."""


@pytest.fixture(autouse=True)
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter's folders are the test's alone."""
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    for name in folders:
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def execute(name: str, folder: Path, *parameters: str, tell: str) -> tuple[Any, Any]:
    """Run a notebook with other parameters; what an expression is at its end, and the notebook."""
    reason = "needs {0}: pip install 'rfa[dev]'"
    nbformat: Any = pytest.importorskip("nbformat", reason=reason.format("nbclient"))
    nbclient: Any = pytest.importorskip("nbclient", reason=reason.format("nbclient"))
    pytest.importorskip("ipykernel", reason=reason.format("ipykernel"))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    (sizes,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    given = {line.split(" = ")[0] for line in parameters} | {"OUT"}
    assert given == {line.split(" = ")[0] for line in sizes.source.splitlines()}
    sizes.source = "\n".join([*parameters, f"OUT = {str(folder / 'out')!r}"])
    asked = f"import json\nprint(json.dumps({tell}))"
    notebook.cells.append(nbformat.v4.new_code_cell(asked))
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources=resources
    ).execute()
    (told,) = notebook.cells[-1].outputs
    return json.loads(told.text), notebook


def pictures(notebook: Any) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_notebooks_are_kept_without_outputs() -> None:
    names = {path.name for path in NOTEBOOKS.glob("*.ipynb")}
    assert names == {
        "first-experiment.ipynb",
        "own-attack-own-defense.ipynb",
        "own-data-dirichlet.ipynb",
    }
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_first_experiment(tmp_path: Path) -> None:
    (statuses, rounds, means), notebook = execute(
        "first-experiment.ipynb",
        tmp_path,
        "ROUNDS = 10",
        "SEEDS = [1]",
        tell="[[fedavg.status, rfa.status], rfa.evaluations['round'].tolist(), "
        "{f'{row[\"aggregator\"]} {row[\"rho\"]}': row['test_accuracy'] for row in study.means()}]",
    )
    assert statuses == ["diverged", "finished"]
    assert rounds == [0, 5, 10]
    assert min(means["fedavg 0.0"], means["rfa 0.0"], means["rfa 0.25"]) > 0.8
    assert means["fedavg 0.25"] < 0.5
    assert pictures(notebook) == 2


@pytest.mark.thorough
def test_own_attack_against_own_defense(tmp_path: Path) -> None:
    (means, harder, status), notebook = execute(
        "own-attack-own-defense.ipynb",
        tmp_path,
        "ROUNDS = 10",
        "LEVELS = [0.25]",
        tell="[dict(zip(study.means()['aggregator'], study.means('honest_accuracy')"
        "['honest_accuracy'].tolist())), {f'{row[\"aggregator\"]} {row[\"corruption\"]}': "
        "row['honest_accuracy'] for row in harder.means('honest_accuracy')}, "
        "[secure.status, secure.settings.secure.mode, secure.settings.rounds]]",
    )
    assert means["fedavg"] < 0.5
    assert min(means["rfa"], means["ShorterHalf"], means["FixedStep"]) > 0.75
    soft, loud = harder["ShorterHalf turn_back_softly"], harder["ShorterHalf turn_back"]
    assert soft < loud - 0.1 < harder["rfa turn_back_softly"], "as the notebook says"
    assert status == ["finished", "on", 5]
    assert pictures(notebook) == 1


@pytest.mark.thorough
def test_own_data_with_dirichlet_skew(tmp_path: Path) -> None:
    pytest.importorskip("flwr_datasets", reason="needs flwr-datasets: pip install 'rfa[datasets]'")
    (means, labels), notebook = execute(
        "own-data-dirichlet.ipynb",
        tmp_path,
        "ROUNDS = 5",
        "ALPHAS = [0.1, 10.0]",
        "AGGREGATORS = ['rfa', 'krum']",
        tell="[{f'{row[\"aggregator\"]} {row[\"partition\"]}': row['honest_accuracy'] "
        "for row in study.means('honest_accuracy')}, "
        "[float((np.array(panel) > 0).sum(axis=1).mean()) for panel in dealt]]",
    )
    assert means["krum dirichlet:alpha=10.0"] > means["krum dirichlet:alpha=0.1"] + 0.2
    assert means["rfa dirichlet:alpha=10.0"] > 0.5
    assert labels[0] + 2 < labels[1], "a smaller alpha gives devices fewer labels"
    assert pictures(notebook) == 2
