"""What the tests of data sets share: a cache, tiny sources, and the real data if there is some."""

from __future__ import annotations

import importlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa._types import Array
from tests.lab.datasets.server import Server, serve


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the directories that the user may have set are forgotten."""
    monkeypatch.delenv("RFA_DATA", raising=False)
    monkeypatch.setenv("RFA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server that answers as the test wants."""
    monkeypatch.setenv("no_proxy", "*")
    with serve() as running:
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where a download shall go."""
    return tmp_path / "deep" / "file.bin"


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)


def png(pixels: Array) -> bytes:
    pillow: Any = importlib.import_module("PIL.Image")
    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_femnist(path: Path, images: list[Any], **columns: Any) -> None:
    n = len(images)
    usual = {"writer_id": [f"f{k % 2}" for k in range(n)], "hsf_id": [0] * n}
    given = usual | {"character": list(range(n))} | columns
    write_parquet(path, {"image": [{"bytes": b, "path": None} for b in images], **given})


def write_plays(path: Path, plays: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, page in plays.items():
            archive.writestr(name, page.encode("iso-8859-1"))


def write_sent140(directory: Path, texts: list[str], **columns: Any) -> None:
    n = len(texts)
    usual: dict[str, Any] = {"user": ["ann"] * n, "sentiment": [0, 4] * (n // 2) + [0] * (n % 2)}
    write_parquet(
        directory / "sent140.parquet", {"text": texts, "query": [""] * n} | usual | columns
    )


def glove(*words: str) -> str:
    """Lines of GloVe: the vector of word k is k, k + 0.5, ..."""
    rows = (np.arange(50) / 2 + k for k in range(len(words)))
    return "".join(f"{w} {' '.join(map(str, row))}\n" for w, row in zip(words, rows, strict=True))
