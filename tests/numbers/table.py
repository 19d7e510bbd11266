"""The table of reference numbers, and how to come by the numbers of an entry.

The table is `reference.json`, which alone has the settings, by the names that users write. Entries
of "runs" are short runs of the lab, on its workers or on Flower; entries of "points" are calls of
the library on points that are the same everywhere. The library is used in `play`, `call`,
`protocol` and `_on_flower` only.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Entry = dict[str, Any]
PATH = Path(__file__).with_name("reference.json")
KINDS = ("runs", "points")
DIRECTIONS = 6
"""Projections in a fingerprint."""
PACKAGES = ("numpy", "torch", "pillow")
"""Packages that numbers go through."""


def read() -> dict[str, Any]:
    """The table: "arithmetic", "protocol", "runs" and "points"."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def write(table: dict[str, Any]) -> None:
    """Write the table, one line an entry, so that a change shows what changed."""
    parts = [
        f'"{name}": {json.dumps(table[name], indent=1)}' for name in ("arithmetic", "protocol")
    ]
    for kind in KINDS:
        lines = ",\n".join(json.dumps(entry, allow_nan=False) for entry in table[kind])
        parts.append(f'"{kind}": [\n{lines}\n]')
    PATH.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def play(entry: Entry, out: Path) -> Entry:
    """The numbers of a run, which is done as `rfa run` does it."""
    from rfa.lab.runs.callback import Callback, RunView  # noqa: PLC0415
    from rfa.lab.runs.run import Options, run  # noqa: PLC0415
    from rfa.lab.settings.settings import Settings  # noqa: PLC0415

    elsewhere = functools.partial(_on_flower, out / "home") if entry["engine"] == "flower" else None

    class Watcher(Callback):
        """Keeps the last model of a run."""

        model: Any = None

        def on_end(self, run: RunView, status: str) -> None:
            self.model = run.model

    watcher = Watcher()
    settings = Settings.where_taken(**{**entry["settings"], "rounds": entry["rounds"]})
    row = run(settings, Options(out=out, workers=1), [watcher], elsewhere)
    found = _numbers(watcher.model)
    assert row["model_sha256"] == found["sha256"]
    return found | {"results": {name: row[name] for name in entry["results"]}}


def call(entry: Entry) -> Entry:
    """The numbers of what the library makes of the points."""
    import rfa  # noqa: PLC0415
    from rfa.aggregators import clear  # noqa: PLC0415
    from rfa.lab.training.pool import one_blas_thread  # noqa: PLC0415

    def make(spec: Entry) -> Any:
        """A value of a class of the library, or one of its functions with options."""
        options = {
            name: make(cast("Entry", value)) if isinstance(value, dict) else value
            for name, value in spec["options"].items()
        }
        named = getattr(rfa if hasattr(rfa, spec["call"]) else clear, spec["call"])
        return named(**options) if isinstance(named, type) else functools.partial(named, **options)

    rows, dim, kind = entry["points"]
    points = cloud(rows, dim).astype(kind)
    with one_blas_thread():
        point = make(entry)(points, 1.0 + np.arange(rows) % 4).point
    return _numbers(point)


def _on_flower(home: Path, devices: Any, crew: Any) -> Any:
    from rfa.lab.on_flower.server import FlowerEngine  # noqa: PLC0415
    from tests.lab.test_on_flower import flower_grid  # noqa: PLC0415

    return FlowerEngine(devices, crew, flower_grid(devices, home), 60.0)


def measure(kind: str, entry: Entry) -> Entry:
    """The numbers of an entry of "runs" or "points"."""
    if kind == "points":
        return call(entry)
    with tempfile.TemporaryDirectory() as folder:
        return play(entry, Path(folder))


def cloud(rows: int, dim: int) -> NDArray[np.float64]:
    """Points in a cube, the last fifth of them far away: to the bit the same everywhere."""
    whole: Any = np.random.PCG64(rows * dim).random_raw(rows * dim) >> np.uint64(11)
    points = 2.0**-52 * whole.reshape(rows, dim).astype(np.float64) - 1
    far = rows // 5
    points[rows - far :] = 30 * points[rows - far :] + 3
    return points


def _numbers(vector: Any) -> Entry:
    """The digest of a vector; and its norm and projections onto random signs, which have its size.

    The signs are the bits of PCG64, which no version of numpy changes.
    """
    x = np.asarray(vector)
    wide = x.astype(np.float64)
    fingerprint = [float(np.sqrt(np.square(wide).sum()))]
    for seed in range(DIRECTIONS):
        raw: Any = np.random.PCG64(seed).random_raw(wide.size)
        fingerprint.append(float(np.where(raw >> np.uint64(63), wide, -wide).sum()))
    return {"sha256": hashlib.sha256(x.tobytes()).hexdigest(), "fingerprint": fingerprint}


def arithmetic() -> dict[str, Any]:
    """What decides the last bits of a sum: versions, processor, and the code made for it."""
    show: Any = np.show_config
    simd = show(mode="dicts")["SIMD Extensions"]
    pools: Any = importlib.import_module("threadpoolctl")
    torch: Any = importlib.import_module("torch")
    loaded = [library for library in pools.threadpool_info() if library["user_api"] == "blas"]
    own = [library for library in loaded if "numpy" in library["filepath"]]  # not one of scipy
    libraries = {
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
        for library in own or loaded
    }
    limits = {name: value for name, value in os.environ.items() if name.endswith("_CPU_ISA")}
    return {
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "numpy_simd": [*simd["baseline"], *simd.get("found", [])],
        "torch_simd": torch.backends.cpu.get_cpu_capability(),
        "blas": sorted(libraries),
        "limits": limits,
        "libc": " ".join(platform.libc_ver()),
        "processor": _processor(),
    }


def protocol() -> int:
    """The version of the protocol, which is in the seeds of the rounding of secure sums."""
    from rfa.secagg.messages.codec import VERSION  # noqa: PLC0415

    return VERSION


def _processor() -> dict[str, str]:
    """The processor: its model, its caches (BLAS cuts sums to fit), a digest of its features."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0]
    except OSError:
        return {"machine": platform.machine(), "model": platform.processor()}
    pairs = (line.partition(":") for line in text.splitlines())
    known = {name.strip(): value.strip() for name, _, value in pairs}
    names = ("vendor_id", "cpu family", "model", "model name", "cache size")
    flags = sorted((known.get("flags") or known.get("Features") or "").split())
    digest = hashlib.sha256(" ".join(flags).encode()).hexdigest()[:16]
    told = {name: known[name] for name in names if name in known}
    return {"machine": platform.machine(), **told, "features": digest}
