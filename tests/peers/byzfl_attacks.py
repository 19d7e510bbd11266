"""byzfl's attacks, where byzfl is installed (`make bench` has it)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

import pytest


def load_attacks() -> Any:
    """byzfl's attacks without the rest of the package, which would need torchvision."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("byzfl is not installed: see `make bench`", allow_module_level=True)
    if "byzfl" not in sys.modules:
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.attacks.attacks")
