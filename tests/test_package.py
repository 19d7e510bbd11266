"""The package as such: its public names, what importing it loads, and its command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import rfa
from rfa import demo
from rfa.cli import main

PUBLIC = [
    "Aggregate",
    "CoordinateMedian",
    "CountedOracle",
    "Krum",
    "Median",
    "MultiKrum",
    "NormClipping",
    "PlainOracle",
    "Relative",
    "SeesUpdates",
    "Sum",
    "SumOracle",
    "TrimmedMean",
    "geometric_median",
    "one_step",
    "weiszfeld",
]


def test_the_public_names() -> None:
    assert rfa.__all__ == PUBLIC
    assert all(hasattr(rfa, name) for name in PUBLIC)


def test_importing_loads_numpy_and_nothing_heavy() -> None:
    code = (
        "import sys, rfa, numpy; rfa.geometric_median(numpy.eye(3));"
        "print([m for m in ('torch', 'matplotlib', 'click', 'rich', 'cryptography', 'scipy')"
        " if m in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_demo_shows_the_mean_dragged_away_and_the_median_staying() -> None:
    rows = {row.share: row.errors for row in demo.measure()}
    assert set(rows) == set(demo.SHARES)
    for share, errors in rows.items():
        if share > 0:
            assert errors["mean (FedAvg)"] > 1.9
            assert errors["geometric median"] < errors["mean (FedAvg)"] / 2
    assert rows[0.1]["geometric median"] < 0.2


def test_the_demo_command(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "demo.png"
    result = CliRunner().invoke(main, ["demo", "--out", str(picture)])
    assert result.exit_code == 0
    assert str(picture) in result.output.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_demo_names_the_file_that_it_wrote(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "picture")])
    assert (tmp_path / "picture.png").exists()
    assert "picture.png" in result.output.replace("\n", "")


@pytest.mark.parametrize("name", ["demo.xyz", "file/demo.png"])
def test_a_picture_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / name)])
    assert result.exit_code == 1
    assert "cannot be written" in result.output
    assert "Traceback" not in result.output


def test_without_the_lab_the_demo_still_shows_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "can_draw", lambda: False)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0
    assert "pip install 'rfa[lab]'" in result.output
