"""The paper's experiments: their files, and all of them in a very small form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab.paper.claims import STATEMENTS
from rfa.lab.paper.reproduce import PLACES, SWEEPS, all_runs, find_experiments
from rfa.lab.paper.scale import read_scales
from rfa.lab.report.exhibit import load
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.files import read_toml

HERE = PLACES[1]
SCALES = """
[tiny]
title = "the smallest of all"
seeds = [1]
stand_in = "tests.tiny:TASK"
frozen = { rounds = 2 }
theorem = "tiny"
[tiny.tasks."tests.tiny:TASK"]
calls = 6
eval_every = 2
[tiny.tasks.glyphs-linear]
rounds = 1
devices = 6
devices_per_round = 3
eval_every = 1
[tiny.experiments]
arena = { values = ["none", "omniscient"], rounds = 2 }
byzfl = { values = [1], rounds = 1 }
comparators = { rounds = 3, values = [0.25] }
corruptions = { values = ["none", "data", "omniscient"] }
devices = { devices_per_round = 6 }
iid = { values = [0.25] }
robustness = { values = [0.0, 0.25], seeds = [1, 2] }
study-content = { rounds = 2 }
study-devices = { rounds = 2, values = [4] }
study-long = { rounds = 2 }
study-polarity = { rounds = 2 }
study-rate = { rounds = 2 }
study-weight = { rounds = 2 }
"""


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiments with a scale for tests."""
    where = tmp_path_factory.mktemp("experiments")
    for path in HERE.glob("*.toml"):
        shutil.copy(path, where)
    (where / "scales.toml").write_text(SCALES)
    return where


@pytest.fixture(scope="module")
def done(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """All of the paper in its smallest form, with no data but what is made."""
    out = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RFA_DATA", raising=False)
        page = ["--page", str(out / "results.md")]
        scale = ["--scale", "tiny", "--from", str(folder), "--out", str(out / "out")]
        return out, rfa("reproduce", *scale, *page)


def test_the_whole_paper_in_its_smallest_form(done: tuple[Path, Any]) -> None:
    out, result = done
    assert result.exit_code == 0, result.output
    known = {path.stem: read_toml(path) for path in HERE.glob("*.toml")}
    names = {name for name, plan in known.items() if not plan.get("beyond")} - {"scales"}
    assert {path.stem for path in (out / "out/exhibits").glob("*.json")} == names | {"statements"}
    assert "rfa data get emnist" in result.stdout
    for name in names - {"data"}:
        exhibit = load(out / "out/exhibits" / f"{name}.json")
        assert exhibit.panels or exhibit.matrices, name
        assert exhibit.command == f"rfa reproduce {name} --scale tiny"
        for path in (out / "out/pictures").glob(f"{name}*"):
            assert path.stat().st_size > 5000
            assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    assert (out / "out/report.html").exists()


def test_the_page_shows_every_experiment(done: tuple[Path, Any]) -> None:
    out, _ = done
    page = (out / "results.md").read_text()
    for path in (out / "out/exhibits").glob("*.json"):
        assert f"## {load(path).title}" in page
    for line in page.splitlines():
        if line.startswith("!["):
            assert (out / line.rpartition("(")[2].rstrip(")")).exists()
    assert "results/numbers.csv" not in page or (out / "results/numbers.csv").exists()
    numbers = (out / "results/numbers.csv").read_text().splitlines()
    assert len(numbers) > 500
    assert all(each.quote in page and each.tested in page for each in STATEMENTS)


def test_a_second_time_nothing_is_left_to_do(done: tuple[Path, Any], folder: Path) -> None:
    out, _ = done
    again = ("reproduce", "--scale", "tiny", "--from", str(folder), "--out", str(out / "out"))
    result = CliRunner(env={"RFA_DATA": None}).invoke(main, [*again, "--dry-run"])
    assert result.exit_code == 0
    assert "runs are done already" in result.stderr
    before = json.loads((out / "out/exhibits/budget.json").read_text())
    CliRunner(env={"RFA_DATA": None}).invoke(main, [*again, "budget"])
    assert json.loads((out / "out/exhibits/budget.json").read_text()) == before


def test_a_dry_run_without_data_says_what_is_missing(tmp_path: Path) -> None:
    words = ["reproduce", "comparators", "--full", "--out", str(tmp_path), "--dry-run"]
    result = CliRunner(env={"RFA_DATA": None}).invoke(main, words)
    assert result.exit_code == 0
    assert "rfa data get sent140" in result.stdout
    assert "needed" not in result.output
    assert "120 runs cannot be done without this data" in result.stdout


FROZEN = Path(__file__).parents[3] / "docs/numbers/horizon"


def test_frozen_numbers_are_shown_and_judged_without_their_data(tmp_path: Path) -> None:
    words = ["reproduce", "robustness", "--scale", "horizon", "--show", "--out", str(tmp_path)]
    numbers = ["--numbers-from", str(FROZEN)]
    result = CliRunner(env={"RFA_DATA": None}).invoke(main, [*words, *numbers])
    assert result.exit_code == 0, result.output
    assert "0 runs are taken" not in result.stdout
    assert (tmp_path / "pictures/robustness.png").exists()
    table = load(tmp_path / "exhibits/statements.json").tables[0]
    verdicts = {(row[1], row[2]): (row[3], row[4]) for row in table.rows}
    ahead = "RFA is ahead of FedAvg with a quarter of the data poisoned."
    assert verdicts[ahead, "EMNIST linear (ink 1)"][0] == "confirmed"
    (omniscient,) = (
        row for row in table.rows if row[2] == "EMNIST linear" and "keeps over 40" in str(row[1])
    )
    assert omniscient[3] == "open"
    assert "the share of the largest class is not known" in str(omniscient[4])


def test_a_line_without_any_run_is_named(tmp_path: Path) -> None:
    words = ["reproduce", "one-step", "--scale", "horizon", "--show", "--out", str(tmp_path)]
    numbers = ["--numbers-from", str(FROZEN)]
    result = CliRunner(env={"RFA_DATA": None}).invoke(main, [*words, *numbers])
    assert result.exit_code == 0, result.output
    exhibit = load(tmp_path / "exhibits/one-step.json")
    assert exhibit.absent == ["one-step RFA"]
    assert "one-step RFA: none of its runs is done" in exhibit.missing


def test_numbers_cannot_be_checked_without_data_and_the_reason_is_named(tmp_path: Path) -> None:
    words = ["reproduce", "seeds", "--scale", "horizon", "--out", str(tmp_path), "--check", "1"]
    numbers = ["--numbers-from", str(FROZEN)]
    result = CliRunner(env={"RFA_DATA": None}).invoke(main, [*words, *numbers])
    assert result.exit_code == 2
    assert "rfa data get emnist" in result.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder where all data seems to be."""
    for name in ("femnist.parquet", "shakespeare.zip", "sent140.parquet", "glove.6B.50d.txt"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("scale", ["full", "horizon", "short", "quick"])
def test_every_run_of_every_scale_makes_sense(scale: str, data: Path) -> None:
    experiments = find_experiments([], scale, data)
    assert len(experiments) >= 14
    missing = [text for e in experiments if e.kind in SWEEPS for text in e.with_data.missing]
    assert all(text.endswith(f"not done at the scale {scale}") for text in missing)
    assert not (missing and scale == "full")
    runs = list(all_runs(experiments))
    assert len({settings.task for settings in runs}) >= 5
    if scale == "full":
        found = {
            s.rounds for s in runs if s.task == "emnist-linear" and s.aggregator.startswith("rfa:")
        }
        assert 2000 in found
        assert {s.seed for s in runs} == {1, 2, 3, 4, 5}


def test_paper_numbers_name_places_that_there_are() -> None:
    for experiment in find_experiments([], "full", None):
        if experiment.kind not in SWEEPS:
            continue
        plan = experiment.plan
        panels = {panel.get("title") for panel in plan.get("panels", [])}
        lines = {line["label"] for line in plan["lines"]}
        for number in plan.get("numbers", []):
            assert number["panel"] in panels
            assert number["line"] in lines
            assert number["value"] in plan["values"]


def test_mistakes_are_named(tmp_path: Path, folder: Path) -> None:
    for arguments, text in (
        (["nonsense"], "no experiment is called 'nonsense': there are arena-backdoors,"),
        (["--scale", "huge"], "no scale is called 'huge': there are full, horizon, short, quick"),
        (["--from", str(tmp_path)], "no scales.toml is found in"),
    ):
        result = rfa("reproduce", *arguments)
        assert result.exit_code == 2
        assert text in result.stderr
        assert "Traceback" not in result.stderr
    (tmp_path / "scales.toml").write_text("[tiny]\nseeds = [1]\n")
    with pytest.raises(ConfigError, match="title"):
        read_scales(tmp_path / "scales.toml")
    (tmp_path / "scales.toml").write_text(SCALES)
    (tmp_path / "odd.toml").write_text('kind = "poem"\n')
    with pytest.raises(
        ConfigError, match="kind must be one of sweep, weights, decides, corruptions, arena"
    ):
        find_experiments(["odd"], "tiny", None, [tmp_path])


def test_a_list_says_where_the_paper_has_it() -> None:
    result = rfa("reproduce", "--list")
    assert result.exit_code == 0
    assert "robustness       Figure 2" in result.stdout


def test_the_page_replaces_only_what_it_made(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    (tmp_path / "mine.md").write_text("# Mine")
    for name, text in (
        ("precious.md", "holds something else"),
        ("mine.md", "was not made by"),
        ("results", "does not end in .md"),
    ):
        page = ["--page", str(tmp_path / name)]
        result = rfa("reproduce", "data", "--quick", "--out", str(tmp_path / "out"), *page)
        assert result.exit_code == 2
        assert text in result.stderr
    assert (tmp_path / "precious/thesis.txt").exists()
    assert (tmp_path / "mine.md").read_text() == "# Mine"


def test_files_that_say_too_little_are_named(tmp_path: Path) -> None:
    (tmp_path / "scales.toml").write_text(SCALES)
    (tmp_path / "cold.toml").write_text('kind = "frozen"\ntitle = "t"\n')
    with pytest.raises(ConfigError, match="kind 'frozen' needs claim, paper, tasks"):
        find_experiments(["cold"], "tiny", None, [tmp_path])
    (tmp_path / "cold.toml").write_text("[[lines]]\ntask = 'glyphs-linear'\n")
    (one,) = find_experiments(["cold"], "tiny", None, [tmp_path])
    with pytest.raises(ConfigError, match="must name the task"):
        one.runs()
    for text in ("tasks = 3", "experiments = { a = 1 }", "seeds = 3"):
        line = "" if text.startswith("seeds") else "seeds = [1]\n"
        (tmp_path / "scales.toml").write_text(f"[odd]\ntitle = 't'\n{line}{text}\n")
        with pytest.raises(ConfigError, match=r"the scale odd in .* needs a list of seeds"):
            read_scales(tmp_path / "scales.toml")


@pytest.mark.parametrize("polarity", ["emnist-linear", "emnist-linear:polarity=ink"])
def test_the_horizon_is_the_papers_own(polarity: str, data: Path) -> None:
    runs = {
        (run.aggregator.partition(":")[0], run.rounds)
        for run in all_runs(find_experiments(["one-step"], "horizon", data), [polarity])
    }
    assert runs == {("fedavg", 6000), ("rfa", 2000), ("rfa-one-step", 6000)}


def test_a_scale_leaves_out_experiments_and_tasks(tmp_path: Path) -> None:
    shutil.copy(HERE / "robustness.toml", tmp_path)
    shutil.copy(HERE / "seeds.toml", tmp_path)
    (tmp_path / "scales.toml").write_text(
        '[one]\ntitle = "one"\nseeds = [1, 2]\nwithout = ["seeds", "emnist-linear"]\n'
        'stand_in = "glyphs-linear"\n'
    )
    (only,) = find_experiments([], "one", None, [tmp_path])
    assert only.name == "robustness"
    assert "EMNIST linear, data; EMNIST linear, omniscient: not done at the scale one" in str(
        only.with_data.missing
    )
    assert "EMNIST linear, data" not in {cell.panel for cell in only.with_data.cells}


def test_runs_of_some_tasks_and_seeds_alone(data: Path) -> None:
    (robustness,) = find_experiments(["robustness"], "horizon", data)
    runs = all_runs([robustness], ["sent140-linear"], [2, 3])
    assert {(run.task, run.seed) for run in runs} == {("sent140-linear", 2), ("sent140-linear", 3)}
    assert len({run.run_name for run in runs}) == 2 * 14
    with pytest.raises(ConfigError, match=r"no task .* called 'sent140': there are .*sent140-lin"):
        all_runs([robustness], ["sent140"])
    with pytest.raises(ConfigError, match=r"no seed .* called '99': there are 1, 2, 3, 4, 5"):
        all_runs([robustness], (), [99])


def test_the_benchmark_of_byzfl_without_its_data(folder: Path, tmp_path: Path) -> None:
    where = ["--scale", "tiny", "--from", str(folder), "--out", str(tmp_path)]
    result = CliRunner(env={"RFA_DATA": None}).invoke(main, ["reproduce", "byzfl", *where])
    assert result.exit_code == 0, result.output
    exhibit = load(tmp_path / "exhibits/byzfl.json")
    (matrix,) = exhibit.matrices
    assert list(matrix.rows) == ["gamma 1", "gamma 0.66", "gamma 0.33", "gamma 0"]
    assert list(matrix.columns) == ["sybils = 1"]
    assert all(0 < row[0].value < 100 for row in matrix.entries)
    assert any("digits-linear stands in" in text for text in exhibit.missing)
    assert (tmp_path / "pictures/byzfl.png").stat().st_size > 5000
