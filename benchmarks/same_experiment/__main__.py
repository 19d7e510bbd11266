"""Count the lines of each script, run it in fresh processes, and print a table in Markdown.

`.venv-bench/bin/python -m benchmarks.same_experiment`, after `make bench` has made the environment.
Each process starts with nothing: it imports its library, and has an empty folder and cache.
"""

from __future__ import annotations

import ast
import datetime
import importlib.metadata
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from pathlib import Path

import rfa.lab.datasets

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
DIGITS = Path(str(rfa.lab.datasets.__file__)).with_name("digits.npz")
LIBRARIES = ("rfa", "byzfl", "pfl")
SEEDS = (1, 2, 3)
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
HERE = """
import runpy, sys
if sys.argv[2] == "byzfl":
    from benchmarks.peers import load_byzfl
    load_byzfl()  # all of it would need torchvision
runpy.run_path(sys.argv.pop(), run_name="__main__")
"""


def count_lines(source: str) -> int:
    """The lines of a program without blank ones, comments and docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            texts |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in BLANK
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - texts)


def run_script(library: str, seed: int) -> tuple[float, float]:
    """The seconds of a script in a process of its own, and the accuracy that it prints."""
    script = FOLDER / f"with_{library}.py"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(DIGITS, folder)
        added = {
            "OMP_NUM_THREADS": "1",  # the matrices are small: more threads gain the peers nothing
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "RFA_CACHE": str(Path(folder) / "cache"),
        }
        start = time.perf_counter()
        done = subprocess.run(  # noqa: S603 our own scripts
            [sys.executable, "-c", HERE, str(seed), library, str(script)],
            cwd=folder,
            env=os.environ | added,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        seconds = time.perf_counter() - start
    return seconds, float(done.stdout.split()[-1])


def main() -> None:
    """Measure, the libraries taking turns, and print the table."""
    runs: dict[str, list[tuple[float, float]]] = {library: [] for library in LIBRARIES}
    for library in LIBRARIES:
        run_script(library, SEEDS[0])  # files come into memory
    for seed in SEEDS:
        for library in LIBRARIES:
            runs[library].append(run_script(library, seed))
    print("| | lines of code | seconds | accuracy, %, by seed | mean |")
    print("|---|---:|---:|---|---:|")
    for library in LIBRARIES:
        lines = count_lines((FOLDER / f"with_{library}.py").read_text(encoding="utf-8"))
        seconds = statistics.median(run[0] for run in runs[library])
        accuracies = [100 * run[1] for run in runs[library]]
        name = f"{library} {importlib.metadata.version(library)}"
        each = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        mean = statistics.mean(accuracies)
        print(f"| {name} | {lines} | {seconds:.1f} | {each} | {mean:.1f} |")
    today = datetime.datetime.now(datetime.UTC).date()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"\n{today}, {os.cpu_count()} cores, load {load:.1f} at the end.")


if __name__ == "__main__":
    main()
