"""What the sources of rfa.flower may hold: nothing unsafe, and of Flower what is public."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

import rfa.flower
from tests.secagg.test_hygiene import faults, imported

FOLDER = Path(rfa.flower.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_only_what_is_public_of_flower_is_used(path: Path) -> None:
    names = [name for node in ast.walk(ast.parse(path.read_text())) for name in imported(node)]
    of_flower = [name for name in names if name.split(".")[0] == "flwr"]
    assert all(name.startswith(PUBLIC) for name in of_flower), of_flower


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.parent == FOLDER], ids=lambda path: path.name
)
def test_nothing_that_is_unsafe_for_secrets_is_used(path: Path) -> None:
    found = set(faults(ast.parse(path.read_text())))
    assert {fault for fault in found if not fault.startswith("import of logging")} == set()
