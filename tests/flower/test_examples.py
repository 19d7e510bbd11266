"""The apps of examples/ do what their READMEs say: FedAvg, the two lines, and one attacker.

What an app needs and `make setup` does not bring, `make examples` does; without it, it is skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp

from rfa.flower import OneStepRFA
from tests.flower.grid import LocalGrid

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPARE = EXAMPLES / "compare.py"
APPS = {
    "flower-numpy": (),
    "flower-pytorch": ("torch",),
    "flower-sklearn": ("sklearn",),
    "flower-jax": ("jax",),
    "flower-lora": ("torch", "transformers", "peft"),
}
HEAVY = sorted({module for modules in APPS.values() for module in modules})
ROW = re.compile(r"^\| (.+) \| ([\d.]+) % \| ([\d.]+) % \|$", re.MULTILINE)
TOLERANCE = 5.0
"""Percent points that other processors and versions may change; what is broken changes at will."""
Rows = dict[str, tuple[float, float]]


def rows_of(text: str) -> Rows:
    """The accuracies of FedAvg and of RFA by row of a table."""
    return {row: (float(fedavg), float(robust)) for row, fedavg, robust in ROW.findall(text)}


def readme_of(name: str) -> str:
    return (EXAMPLES / name / "README.md").read_text(encoding="utf-8")


def about(name: str) -> dict[str, Any]:
    """What the pyproject.toml of an app says."""
    return tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


def package_of(name: str) -> Path:
    return EXAMPLES / name / name.replace("-", "_")


def need(name: str) -> None:
    """Skips a test where a package of the app is missing."""
    missing = [module for module in APPS[name] if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"{name} needs {', '.join(missing)}: make examples")


def call(
    *command: str | Path, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """A Python of its own: apps and their frameworks leave nothing behind."""
    return subprocess.run(  # noqa: S603
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**env, "FLWR_TELEMETRY_ENABLED": "0"},
    )


LONG = [pytest.param(name, marks=pytest.mark.thorough) for name in APPS if name != "flower-numpy"]


@pytest.mark.parametrize("name", ["flower-numpy", *LONG])
def test_the_command_prints_the_table_of_the_readme(name: str) -> None:
    """Of the app that needs no framework; of the others, `make thorough` and `make examples` do."""
    need(name)
    done = call(COMPARE, EXAMPLES / name)
    assert done.returncode == 0, done.stderr
    printed, written = rows_of(done.stdout), rows_of(readme_of(name))
    assert list(printed) == list(written)
    assert len(printed) == 2
    (fedavg, robust), (broken, stands) = printed.values()
    said = [*written.values()]
    assert (fedavg, robust) == pytest.approx(said[0], abs=TOLERANCE)
    assert stands == pytest.approx(said[1][1], abs=TOLERANCE)
    assert robust > fedavg - 5  # what the two lines cost without an attacker
    assert broken < fedavg - 20
    assert stands > robust - 10


def test_the_index_has_the_tables_of_the_readmes() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in APPS:
        assert f"({name}/README.md)" in index
        written = rows_of(readme_of(name))
        clean, attacked = written.values()
        cells = " | ".join(f"{value:.1f} %" for value in (*clean, *attacked))
        (row,) = [line for line in index.splitlines() if f"({name}/README.md) |" in line]
        assert row.endswith(f"| {cells} |")


@pytest.mark.parametrize("name", APPS)
def test_two_lines_and_their_imports_are_all_that_changes(name: str, tmp_path: Path) -> None:
    changed = {
        path.name: re.findall(r"^ *(.+)  # before: (.+)$", path.read_text(encoding="utf-8"), re.M)
        for path in package_of(name).glob("*.py")
    }
    assert {path: lines for path, lines in changed.items() if lines} == {
        "client_app.py": [
            ("from rfa.flower import robust_mod", "nothing"),
            ("app = ClientApp(mods=[robust_mod])", "app = ClientApp()"),
        ],
        "server_app.py": [
            ("from rfa.flower import OneStepRFA", "from flwr.serverapp.strategy import FedAvg"),
            ("strategy = OneStepRFA(**options)", "strategy = FedAvg(**options)"),
        ],
    }
    for lines in changed.values():
        for now, _ in lines[1:]:
            assert now in readme_of(name)
    compare = importlib.util.spec_from_file_location("compare", COMPARE)
    assert compare
    assert compare.loader
    module: Any = importlib.util.module_from_spec(compare)
    compare.loader.exec_module(module)
    before = module.undo(EXAMPLES / name, tmp_path / name)
    sources = [path.read_text(encoding="utf-8") for path in before.rglob("*.py")]
    assert not [text for text in sources if re.search(r"^ *(import|from) rfa", text, re.MULTILINE)]


@pytest.mark.parametrize("name", [*APPS, "flower-emnist"])
def test_a_node_loads_no_framework_before_it_trains(name: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES / name)!r});"
        f"import {package_of(name).name}.client_app;"
        f"print([module for module in {[*HEAVY, 'rfa.lab']!r} if module in sys.modules])"
    )
    done = call("-c", code)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.fixture
def home() -> Iterator[str]:
    """A folder in memory for what nodes keep, where there is one: it need not outlive anything."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", APPS)
def test_nodes_evaluate_by_a_secure_sum(
    name: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(name)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES / name), *sys.path])
    package, told = package_of(name).name, about(name)
    client: Any = importlib.import_module(f"{package}.client_app")
    server: Any = importlib.import_module(f"{package}.server_app")
    config, nodes = told["flwr"]["app"]["config"], told["compare"]["nodes"]
    member: ClientApp = client.app
    grid = LocalGrid(dict.fromkeys(range(101, 101 + nodes), member))
    for part, node in enumerate(grid.contexts):
        split: Any = {"partition-id": part, "num-partitions": nodes, "rfa-home": home}
        grid.contexts[node] = Context(7, node, split, RecordDict(), dict(config))
    results: list[Any] = []
    start = OneStepRFA.start

    def recorded(self: OneStepRFA, *arguments: Any, **named: Any) -> Any:
        results.append(start(self, *arguments, **named))
        return results[-1]

    monkeypatch.setattr(OneStepRFA, "start", recorded)
    config |= {"num-server-rounds": 1, "fraction-evaluate": 1.0}
    server.app(grid, Context(7, 1, {}, RecordDict(), config))
    (result,) = results
    assert 0 < result.evaluate_metrics_clientapp[1]["accuracy"] <= 1
    assert result.train_metrics_clientapp[1]


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # in Flower
@pytest.mark.parametrize("name", [*APPS, "flower-emnist"])
def test_flower_takes_the_app(name: str) -> None:
    assert len(build_fab_from_disk(EXAMPLES / name)) > 1000


def test_the_smallest_of_nine_sites_has_less_than_a_hundredth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("flower-sklearn")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES / "flower-sklearn"), *sys.path])
    task: Any = importlib.import_module("flower_sklearn.task")
    assert len(task.SIZES) == about("flower-sklearn")["compare"]["nodes"] == 9
    assert min(task.SIZES) / sum(task.SIZES) == pytest.approx(0.006)
    sites = [task.load_site(site)[1] for site in range(9)]
    assert [len(site) for site in sites] == list(task.SIZES)
    assert len(task.load_test()[1]) == 569 - sum(task.SIZES)


def test_only_adapters_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    need("flower-lora")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES / "flower-lora"), *sys.path])
    task: Any = importlib.import_module("flower_lora.task")
    model: Any = task.build_model()
    names = set(task.adapters_of(model))
    assert all("lora_" in name or "classifier" in name for name in names)
    sent = sum(weights.numel() for weights in model.parameters() if weights.requires_grad)
    told = f"{sent:,} of {sum(weights.numel() for weights in model.parameters()):,}"
    assert told in readme_of("flower-lora")


def test_nodes_that_take_turns_do_not_wait_for_threads() -> None:
    """With one thread a core, steps over 32 images took fifty times as long on a busy machine."""
    pytest.importorskip("threadpoolctl", reason="counts threads: pip install 'rfa[lab]'")
    code = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import compare, threadpoolctl;"
    code += "print({pool['num_threads'] for pool in threadpoolctl.threadpool_info()})"
    plain = {name: text for name, text in os.environ.items() if not name.endswith("_NUM_THREADS")}
    asked = call("-c", code, env=plain)
    assert asked.stdout.strip() == "{1}", asked.stderr
    given = call("-c", code, env={**plain, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"})
    assert given.stdout.strip() == "{2}", given.stderr  # what the user says stays


def test_what_cannot_be_compared_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    (tmp_path / "other" / "pyproject.toml").write_text("[project]\n")
    lacking, no_app = "has no [tool.compare]", "no Flower app"
    for name, words in ((".", lacking), ("other", lacking), ("no", no_app)):
        folder = tmp_path / name
        done = call(COMPARE, folder)
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("fedavg", ["fedavg-config = {strategy = 'fedavg'}", ""])
def test_a_missing_framework_is_named_with_the_remedy(tmp_path: Path, fedavg: str) -> None:
    """Also where it is missing from the copy of the app with FedAvg, which is gone by then."""
    folder = tmp_path / "flower-odd"
    package = folder / "flower_odd"
    package.mkdir(parents=True)
    components = 'components = {serverapp = "flower_odd:app", clientapp = "flower_odd:app"}'
    (folder / "pyproject.toml").write_text(
        '[project]\ndependencies = ["rfa[flower]", "odd-framework>=1.5", "torch>=2"]\n'
        f"[tool.flwr.app]\n{components}\nconfig = {{num-server-rounds = 1}}\n"
        f'[tool.compare]\nnodes = 4\nattack = "x"\nattack-config = {{}}\n{fedavg}\n'
    )
    (package / "__init__.py").write_text("import no_such_framework  # before: import odd_one\n")
    done = call(COMPARE, folder)
    assert done.returncode == 1
    name = "no_such_framework" if fedavg else "odd_one"
    assert f'flower-odd needs {name}: pip install "odd-framework>=1.5" "torch>=2"' in done.stderr
    assert "Traceback" not in done.stderr


def test_rounds_as_json() -> None:
    done = call(COMPARE, EXAMPLES / "flower-numpy", "--rounds", "2", "--json")
    found = json.loads(done.stdout)
    assert [len(rounds) for cells in found.values() for rounds in cells.values()] == [3] * 4
