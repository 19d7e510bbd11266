"""All measurements, written to docs/benchmarks.md: `make bench`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import aggregators, median
from benchmarks.peers import load_torch

OUT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
IMPORT = "import time; t = time.perf_counter(); import rfa; print(time.perf_counter() - t)"


def preface() -> Iterator[str]:
    """What was measured, and on what."""
    yield "# Benchmarks"
    yield ""
    yield "Made by `make bench`, which runs rfa and its peers in turns in one process and takes the"
    yield "median. Times drift from machine to machine; the ratios are what counts."
    yield ""
    yield (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"numpy {np.__version__}, torch {load_torch().__version__}, "
        "geom_median 0.1.0, byzfl 0.0.11."
    )
    yield ""


def importing() -> Iterator[str]:
    """How long it takes to import rfa, in fresh processes."""
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(5)]  # noqa: S603
    taken = sorted(float(run.stdout) for run in runs)
    yield "## Importing"
    yield ""
    yield f"`import rfa`: {1e3 * taken[2]:.0f} ms in a fresh process, numpy included."
    yield ""


def main() -> None:
    """Measure everything, print as it comes, and keep it."""
    lines: list[str] = []
    for part in (preface(), median.run(), aggregators.run(), importing()):
        for line in part:
            print(line, flush=True)
            lines.append(line)
    OUT.write_text("\n".join(lines).rstrip() + "\n")
    print(f"written to {OUT.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
