"""A small release of numbers, made once for all tests that read one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.paper.releases import SCALES, SWEEP, reproduce


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Experiments, the results of their runs, and the numbers of these."""
    base = tmp_path_factory.mktemp("numbers")
    (base / "files").mkdir()
    (base / "files/mine.toml").write_text(SWEEP)
    (base / "files/scales.toml").write_text(SCALES)
    numbers = ["--numbers-to", str(base / "numbers")]
    result = reproduce(base / "files", base / "out", *numbers)
    assert result.exit_code == 0, result.output
    assert "8 runs" in result.output
    return base / "files", base / "out", base / "numbers"
