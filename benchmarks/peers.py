"""The peers, installed into an environment of their own (`make bench`)."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
import types
from typing import Any


def load_byzfl(part: str = "aggregators") -> Any:
    """Load byzfl's "aggregators", or its "preaggregators"."""
    _open_byzfl()
    return importlib.import_module(f"byzfl.aggregators.{part}")


@functools.cache
def _open_byzfl() -> None:
    """Make byzfl's parts importable without the whole package, which would need torchvision."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        msg = "byzfl is missing: run `make bench`"
        raise ImportError(msg)
    package = types.ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = package


def load_geom_median(kind: str) -> Any:
    """Load geom_median's function for "numpy" or "torch"."""
    return importlib.import_module(f"geom_median.{kind}").compute_geometric_median


def load_torch() -> Any:
    """Load torch, which is untyped enough to be treated as such."""
    return importlib.import_module("torch")


@functools.cache
def load_pfl() -> Any:
    """Load the parts of pfl that simulate FedAvg with torch, and its version."""
    parts = {
        "pfl.aggregate.simulate": ["SimulatedBackend"],
        "pfl.algorithm.base": ["NNAlgorithmParams"],
        "pfl.algorithm.federated_averaging": ["FederatedAveraging"],
        "pfl.data.federated_dataset": ["FederatedDataset"],
        "pfl.data.pytorch": ["PyTorchTensorDataset"],
        "pfl.hyperparam": ["NNTrainHyperParams"],
        "pfl.metrics": ["Weighted"],
        "pfl.model.pytorch": ["PyTorchModel"],
    }
    found: dict[str, Any] = {"version": importlib.metadata.version("pfl")}
    for module, names in parts.items():
        found |= {name: getattr(importlib.import_module(module), name) for name in names}
    return types.SimpleNamespace(**found)


@functools.cache
def load_flower() -> Any:
    """Load both sides of Flower's SecAgg+, and its version."""
    return types.SimpleNamespace(
        version=importlib.metadata.version("flwr"),
        common=importlib.import_module("flwr.common"),
        mod=importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod"),
        workflow=importlib.import_module(
            "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
        ),
    )
