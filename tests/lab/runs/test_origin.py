"""Numbers say which code made them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from rfa.lab.runs.origin import DECIDING, PACKAGE, code_fingerprint, origin
from rfa.lab.runs.run import Options, run
from rfa.lab.settings.settings import Settings


def test_a_change_of_what_decides_about_numbers_is_seen_and_of_a_page_is_not(
    tmp_path: Path,
) -> None:
    for name in ("one", "two", "three"):
        shutil.copytree(PACKAGE, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "two/lab/report/html.py").open("a") as page:
        page.write("PAGE = 1\n")
    with (tmp_path / "three/lab/training/batches.py").open("a") as batches:
        batches.write("BATCH = 1\n")
    prints = [code_fingerprint(tmp_path / name) for name in ("one", "two", "three")]
    assert prints[0] == prints[1] == code_fingerprint()
    assert prints[2] != prints[0]


def test_all_that_decides_is_there() -> None:
    assert all((PACKAGE / part).exists() for part in DECIDING)


def test_a_run_keeps_what_made_it(tmp_path: Path) -> None:
    settings = Settings.of("tests.tiny:TASK", rounds=1)
    row = run(settings, Options(out=tmp_path, in_process=True))
    assert json.loads(row["origin"]) == origin()
    assert {"rfa", "code", "python", "numpy", "machine"} <= set(origin())
