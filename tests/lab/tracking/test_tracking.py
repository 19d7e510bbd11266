"""Trackers: what they keep of a run in local files is what the run had."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa import InvalidValueError
from rfa.cli.main import main
from rfa.lab.datasets.dataset import DataError
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.store import MEASURES, Store
from rfa.lab.tracking import MLflow, TensorBoard, Tracker, TrackingError, WandB, find_tracker
from rfa.lab.tracking.find import FORMS
from tests.lab.runs.test_callbacks import Stop
from tests.lab.runs.test_run import Notes, do
from tests.lab.tracking.readers import Kept, read_mlflow, read_tensorboard, read_wandb

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries are theirs
SETTINGS: dict[str, Any] = {"corruption": "backdoor", "rho": 0.2, "rounds": 6}
ROUND = {"norm", "rejected", "dropped", "corrupted_fraction", "calls"}
ROOT = Path(__file__).parents[3]
SPENT = {"epsilon_server", "epsilon_readers"}
"""What runs without noise do not have."""
LIBRARIES = ("tensorboardX", "wandb", "mlflow")


@pytest.fixture(scope="module", autouse=True)
def telemetry() -> Iterator[None]:
    """No library tells anybody anything."""
    off = {
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "WANDB_MODE": "offline",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in off.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow's, which takes seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=f"sqlite:///{path}")
    client.search_experiments()
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No library writes beside the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    yield
    end_wandb()


def end_wandb() -> None:
    """End its process, which writes the last of its files, and forgets the environment."""
    library: Any = sys.modules.get("wandb")
    if library is not None:
        library.teardown()


def tensorboard(folder: Path) -> tuple[Tracker, Callable[[str], Kept]]:
    return TensorBoard(folder / "board"), lambda run: read_tensorboard(folder / "board" / run)


def wandb(folder: Path) -> tuple[Tracker, Callable[[str], Kept]]:
    def read(run: str) -> Kept:
        del run
        end_wandb()
        kept = Kept()
        for path in sorted(folder.glob("w/wandb/offline-run-*/*.wandb")):
            part = read_wandb(path)
            kept.settings, kept.status = part.settings, part.status
            for name, history in part.scalars.items():
                kept.scalars.setdefault(name, {}).update(history)  # as `wandb sync` appends
        return kept

    return WandB("tests", mode="offline", folder=folder / "w"), read


def mlflow(folder: Path, database: Path) -> tuple[Tracker, Callable[[str], Kept]]:
    uri = f"sqlite:///{shutil.copy(database, folder)}"

    def read(run: str) -> Kept:
        ((info, kept),) = read_mlflow(uri)
        assert info.run_name == run
        assert info.status == ("KILLED" if kept.status == "interrupted" else "FINISHED")
        return kept

    return MLflow(uri), read


@pytest.fixture(params=["tensorboard", "wandb", "mlflow"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A tracker, and what reads its files."""
    if request.param == "mlflow":
        return mlflow(tmp_path, request.getfixturevalue("database"))
    make, library = {"tensorboard": (tensorboard, "tensorboardX"), "wandb": (wandb, "wandb")}[
        request.param
    ]
    pytest.importorskip(library)
    return make(tmp_path)


def expected(out: Path, run: str) -> dict[str, dict[int, float]]:
    """The histories that a tracker should have, from the store."""
    histories: dict[str, dict[int, float]] = {}
    with Store(out) as store:
        for row in store.table("rounds", run=run):
            share = len(json.loads(row["corrupted"])) / len(json.loads(row["devices"]))
            values = {
                "norm": row["norm"],
                "rejected": row["rejected"],
                "dropped": len(json.loads(row["dropped"])),
                "corrupted_fraction": share,
                "calls": row["oracle_calls"],
            }
            for name, value in values.items():
                histories.setdefault(name, {})[row["round"]] = value
        for row in store.table("evaluations", run=run):
            for name in ("test_loss", *MEASURES):
                if row[name] is not None:
                    histories.setdefault(name, {})[row["round"]] = row[name]
    return histories


def same(kept: Kept, out: Path, run: str) -> bool:
    """Whether a tracker has all numbers of a run, in single precision, and no others."""
    wanted = expected(out, run)
    assert set(kept.scalars) == set(wanted)
    for name, history in wanted.items():
        assert kept.scalars[name] == pytest.approx(history, rel=1e-6), name
    return True


def test_a_tracker_keeps_the_settings_the_numbers_and_the_end(tmp_path: Path, tracker: Any) -> None:
    callback, read = tracker
    row = do(tmp_path / "out", callback, **SETTINGS)
    kept = read(row["run"])
    assert kept.status == "finished"
    assert same(kept, tmp_path / "out", row["run"])
    assert set(kept.scalars) == {*ROUND, "test_loss", *MEASURES} - SPENT
    assert list(kept.scalars["test_accuracy"]) == [0, 4, 6]
    assert kept.settings["corruption"] == "backdoor"
    assert kept.settings["rho"] == "0.2"
    assert kept.settings["rounds"] == "6"
    assert kept.settings["personalize"] == "False"
    again = do(tmp_path / "other", callback, **SETTINGS)  # the same object, for another run
    assert again["run"] == row["run"]


@pytest.mark.parametrize("end", ["on_begin", "on_round", "interrupted"])
def test_a_run_that_goes_on_is_one_run_there(tmp_path: Path, tracker: Any, end: str) -> None:
    callback, read = tracker
    if end != "interrupted":
        stop = Stop(end, 5 if end == "on_round" else 0)
        run = do(tmp_path / "out", callback, stop, checkpoint_every=2, **SETTINGS)["run"]
    else:  # rounds 5 and 6 come after the last checkpoint, and are played again
        with pytest.raises(KeyboardInterrupt):
            do(tmp_path / "out", callback, Notes(6), checkpoint_every=4, **SETTINGS)
        run = next(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert read(run).status == ("interrupted" if end == "interrupted" else "stopped")
    done = do(tmp_path / "out", callback, **SETTINGS)
    kept = read(done["run"])
    assert kept.status == "finished"
    assert kept.settings["rho"] == "0.2"
    assert same(kept, tmp_path / "out", run)


def test_a_run_that_is_started_anew_is_another(tmp_path: Path, database: Path) -> None:
    for library in LIBRARIES:
        pytest.importorskip(library)
    (board, read), (wandb_, _), (ml, _) = (
        tensorboard(tmp_path),
        wandb(tmp_path),
        mlflow(tmp_path, database),
    )
    rows = [do(tmp_path / "out", board, wandb_, ml, fresh=True, **SETTINGS) for _ in range(2)]
    run = rows[0]["run"]
    assert same(read(run), tmp_path / "out", run), "the old numbers are gone"
    end_wandb()
    files = list(tmp_path.glob("w/wandb/offline-run-*/*.wandb"))
    assert len({path.name for path in files}) == 2, "two ids"
    kept = [kept for _, kept in read_mlflow(f"sqlite:///{tmp_path / 'mlflow.db'}")]
    assert len(kept) == 2
    assert all(same(part, tmp_path / "out", run) for part in kept)


def test_numbers_that_are_none_do_no_harm(tmp_path: Path, tracker: Any) -> None:
    callback, read = tracker
    values: dict[str, Any] = {"corruption": "nan", "rho": 0.9, "devices_per_round": 1}
    row = do(tmp_path / "out", callback, rounds=8, **values)
    kept = read(row["run"])
    assert kept.status == "finished"
    assert any(math.isnan(value) for value in kept.scalars["norm"].values())
    assert len(kept.scalars["norm"]) == 8
    assert sum(kept.scalars["dropped"].values()) == row["dropped_updates"]
    assert "backdoor" not in kept.scalars
    callback.on_begin(view := _view(tmp_path))
    callback._log({"norm": math.inf, "test_loss": -math.inf}, 1)
    callback.on_end(view, "finished")


def _view(folder: Path) -> RunView:
    """A view of a run that has the settings of the one in a folder's store."""
    views: list[RunView] = []

    class Look(Callback):
        def on_begin(self, run: RunView) -> None:
            views.append(run)

    do(folder / "another", Look(), rounds=1)
    return views[0]


def test_a_tracker_that_never_began_has_nothing_to_end(tmp_path: Path, tracker: Any) -> None:
    callback, _ = tracker

    class Wrong(Callback):
        def on_begin(self, run: RunView) -> None:
            msg = "mine"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="mine") as caught:
        do(tmp_path / "out", Wrong(), callback, rounds=1)
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("library", "text"),
    [("tensorboardX", "tensorboard:x"), ("wandb", "wandb:x"), ("mlflow", "mlflow:sqlite:///x")],
)
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, library: str, text: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    extra = text.partition(":")[0]
    with pytest.raises(DataError, match=rf"{library} is missing: pip install 'rfa\[{extra}\]'"):
        find_tracker(text)


@pytest.mark.parametrize("text", ["", "tensorboard", "wandb:", "comet:x", ":x"])
def test_a_text_that_names_no_tracker(text: str) -> None:
    forms = "tensorboard:DIR, wandb:PROJECT, mlflow:URI"
    with pytest.raises(InvalidValueError, match=f"no tracker is '{text}': there are {forms}"):
        find_tracker(text)


def test_what_a_library_refuses_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    pytest.importorskip("mlflow")
    (tmp_path / "file").write_text("in the way")
    for tracker in (TensorBoard(tmp_path / "file"), MLflow("nonsense://nowhere")):
        with pytest.raises(TrackingError, match=f"{type(tracker).__name__} cannot keep the run: "):
            do(tmp_path / "out", tracker, rounds=1)


def test_trackers_on_the_command_line(tmp_path: Path, database: Path) -> None:
    for library in LIBRARIES:
        pytest.importorskip(library)
    uri = f"sqlite:///{shutil.copy(database, tmp_path)}"
    trackers = [f"tensorboard:{tmp_path / 'board'}", "wandb:tests", f"mlflow:{uri}"]
    arguments = [part for text in trackers for part in ("--track", text)]
    out = ["--out", str(tmp_path / "out"), "--workers", "1", "--json"]
    done = CliRunner().invoke(main, ["run", "tests.tiny:TASK", "--rounds", "2", *arguments, *out])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert same(read_tensorboard(tmp_path / "board" / row["run"]), tmp_path / "out", row["run"])
    ((_, kept),) = read_mlflow(uri)
    assert kept.status == "finished"
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 1
    for wrong, said in (
        (["--track", "comet:x"], "no tracker is 'comet:x'"),
        (["--track", "wandb:x", "--engine", "flower"], "does not work with --engine flower"),
    ):
        refused = CliRunner().invoke(main, ["run", "tests.tiny:TASK", *wrong])
        assert refused.exit_code == 2
        assert said in refused.output


def test_the_help_page_tells_the_trackers() -> None:
    shown = CliRunner().invoke(main, ["run", "--help"]).output
    assert FORMS in " ".join(shown.split())
