"""Where numbers come from: the code, the libraries and the machine that made them.

The code is a fingerprint of the modules that decide about numbers, so that a number says which
version made it even between two releases, and a change of a page or a command is no change.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
DECIDING = (
    "_types.py",
    "aggregators",
    "median.py",
    "numerics",
    "oracle.py",
    "lab/attacks",
    "lab/datasets",
    "lab/learners",
    "lab/model.py",
    "lab/randomness.py",
    "lab/runs/run.py",
    "lab/simulation",
    "lab/tasks",
    "lab/training",
)
"""What decides about the numbers of a run, in the package."""
LIBRARIES = ("numpy",)
SHORT = 12
"""Digits of the fingerprint: enough to tell versions apart."""
CPU = Path("/proc/cpuinfo")


@functools.cache
def code_fingerprint(package: Path = PACKAGE) -> str:
    """Return the fingerprint of the code that makes numbers."""
    digest = hashlib.sha256()
    for part in DECIDING:
        place = package / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:SHORT]


@functools.cache
def origin() -> dict[str, str]:
    """Return the origin of numbers of this process: versions, code and machine."""
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {
        "rfa": importlib.metadata.version("rfa"),
        "code": code_fingerprint(),
        "python": platform.python_version(),
        **libraries,
        "machine": _machine(),
    }


def _machine() -> str:
    """The system and the processor, without the name that the machine has."""
    model = platform.processor() or platform.machine()
    if CPU.exists():
        lines = (line.partition(":") for line in CPU.read_text(encoding="utf-8").splitlines())
        model = next((value.strip() for key, _, value in lines if "model name" in key), model)
    return f"{platform.system()} {platform.machine()}, {model}"
