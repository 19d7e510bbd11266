"""What an installed wheel must do, run by the Python of a clean environment: `make wheel`.

    python -I tests/smoke.py <clone>

Works on copies in a folder of its own, so that nothing of the clone but what it was told is used.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = "flower-numpy"
HEAVY = ("torch", "sklearn", "jax", "transformers", "pytest", "matplotlib")
CELL = re.compile(r"([\d.]+) %")


def call(folder: Path, *command: str | Path) -> str:
    """What a command prints, in a folder and an environment that know nothing of the clone."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    done = subprocess.run(  # noqa: S603
        [str(part) for part in command],
        cwd=folder,
        env={**kept, "PATH": paths, "RFA_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(wanted: object, what: str) -> None:
    """End with a message unless something holds."""
    if not wanted:
        sys.exit(f"the wheel is not as it should be: {what}")
    print(f"  {what}")


def check_package(clone: Path) -> None:
    """The package is the installed one, whole, and alone."""
    import rfa  # noqa: PLC0415 the installed one, if this is run as it should be

    home = Path(rfa.__file__).parent
    check(not home.is_relative_to(clone / "src"), f"rfa is imported from {home}")
    for name in ("py.typed", "lab/datasets/digits.npz", "lab/paper/experiments"):
        check((home / name).exists(), f"{name} is in the wheel")
    installed = {each.metadata["Name"].lower() for each in importlib.metadata.distributions()}
    check(
        not installed.intersection(HEAVY), "nothing is installed that rfa[flower] does not ask for"
    )


def check_metadata(clone: Path) -> None:
    """The metadata is what the clone says."""
    about = importlib.metadata.metadata("rfa")
    check(about["License-Expression"] == "Apache-2.0", "the license is Apache-2.0")
    check(about["Description-Content-Type"] == "text/markdown", "the README is its description")
    text = (clone / "pyproject.toml").read_text(encoding="utf-8")
    version = re.findall(r'^version = "(.+)"$', text, re.MULTILINE)
    check([about["Version"]] == version, f"the version is {about['Version']}")


def check_commands(clone: Path, folder: Path) -> None:
    """`rfa --version`, the median of the README, and an example."""
    said = call(folder, "rfa", "--version")
    check(importlib.metadata.version("rfa") in said, f"rfa --version: {said.strip()}")
    readme = (clone / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (median,) = [block for block in blocks if "geometric_median" in block]
    said = call(folder, sys.executable, "-I", "-c", median)
    check(said.strip().endswith("True"), "the median of the README converges")
    shutil.copytree(clone / "examples" / EXAMPLE, folder / EXAMPLE)
    shutil.copy(clone / "examples" / "compare.py", folder)
    said = call(folder, sys.executable, "compare.py", EXAMPLE)
    print(said)
    fedavg, robust, broken, stands = map(float, CELL.findall(said.partition("|---")[2])[-4:])
    check(broken < fedavg - 20 and stands > robust - 10, "FedAvg breaks, and RFA stands")


def main() -> None:
    """Check the wheel that is installed beside this Python."""
    clone = Path(sys.argv[1]).resolve()
    check_package(clone)
    check_metadata(clone)
    with tempfile.TemporaryDirectory() as folder:
        check_commands(clone, Path(folder))


if __name__ == "__main__":
    main()
