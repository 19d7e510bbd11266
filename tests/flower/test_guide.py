"""The Python of docs/flower.md runs as it stands, on nodes of a grid in this process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from tests.flower.grid import LocalGrid
from tests.flower.toy import TARGET, model, nodes

GUIDE = Path(__file__).parents[2] / "docs" / "flower.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_a_block_runs(tmp_path: Path, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    block = block.replace("/home/device", str(tmp_path))
    names: dict[str, Any] = {"grid": LocalGrid(nodes(tmp_path)), "arrays": model()}
    exec(compile(block, GUIDE.name, "exec"), names)  # noqa: S102
    if "result" in names:
        w = names["result"].arrays["w"].numpy()
        assert float(w @ TARGET) > float(np.linalg.norm(w) * np.linalg.norm(TARGET)) * 0.99
        assert sorted(names["result"].train_metrics_clientapp) == [1, 2, 3]
