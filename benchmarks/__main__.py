"""Measurements, written to docs/benchmarks.md: `make bench`, or `python -m benchmarks PART...`."""

from __future__ import annotations

import itertools
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import aggregators, growth, median, noise, secagg, short_runs, simulation
from benchmarks.peers import load_torch

OUT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def preface() -> Iterator[str]:
    """What was measured, and on what."""
    yield "# Benchmarks"
    yield ""
    yield "How fast is rfa, and how much memory does it take, compared with other libraries?"
    yield "`make bench` runs rfa and its peers in turns in one process and takes the median. Times"
    yield "differ between machines; the ratios are what counts."
    yield ""
    yield (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"numpy {np.__version__}, torch {load_torch().__version__}, "
        "geom_median 0.1.0, byzfl 0.0.11."
    )
    yield ""


PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "median": median.run,
    "aggregators": aggregators.run,
    "simulation": simulation.run,
    "growth": growth.run,
    "short_runs": short_runs.run,
    "secagg": secagg.run,
    "noise": noise.run,
}


def sections(text: str) -> dict[str, str]:
    """A report by the headings of its sections, in order; what comes first is under ""."""
    parts = filter(None, re.split(r"^(?=## )", text, flags=re.MULTILINE))
    return {part.partition("\n")[0] if part.startswith("## ") else "": part for part in parts}


def main(names: list[str]) -> None:
    """Measure these parts, or everything, print as it comes, and keep it.

    With names, the other sections stay as they were.
    """
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        sys.exit(f"no part is called {unknown[0]!r}: give some of {', '.join(PARTS)}")
    kept = sections(OUT.read_text().rstrip() + "\n\n") if names else {}
    heads = [] if names else [preface()]
    for part in itertools.chain(heads, (PARTS[name]() for name in names or PARTS)):
        lines: list[str] = []
        for line in part:
            print(line, flush=True)
            lines.append(line)
        kept |= sections("\n".join([*lines, ""]))
        OUT.write_text("".join(kept.values()).rstrip() + "\n")  # what comes after may fail
    print(f"written to {OUT}")


if __name__ == "__main__":
    main(sys.argv[1:])
