"""A user's torch module as a learner, with its own initial weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rfa._plugins import describe_failure
from rfa._types import Array, Floats32
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.learners.network import NetworkLearner

Module: TypeAlias = "Callable[[], Any] | Any"
"""A class or function that makes a torch.nn.Module, or such a module."""


class OwnModuleLearner(NetworkLearner):
    """A user's module with its own initialization."""

    def __init__(self, module: Module, classes: int, device: str = "cpu") -> None:
        """Set a class or function that makes the module, or a module that is copied."""
        self._make = module
        super().__init__(lambda torch: _made(torch, module, 0), classes, device)

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Return the module's initial weights, by a seed; those of a given module unchanged."""
        module = _made(self._torch, self._make, int(rng.integers(2**63)))
        parts = [p.detach().numpy().ravel() for p in module.parameters() if p.requires_grad]
        return np.concatenate(parts).astype(np.float32)


@dataclass(frozen=True)
class OwnModel:
    """Makes the learner of a task; it can be sent to other processes.

    Attributes:
        module: the module, or a function that makes it.
        classes: the number of classes in its scores.
    """

    module: Module
    classes: int

    def __call__(self, device: str) -> Learner:
        """Return the learner on a torch device."""
        return OwnModuleLearner(self.module, self.classes, device)


@dataclass(frozen=True)
class LinearModel:
    """Makes softmax regression: by hand, or with torch for CUDA."""

    features: int
    classes: int

    def __call__(self, device: str) -> Learner:
        """Return the learner that computes on a device."""
        if device == "cpu":
            return LinearLearner(self.features, self.classes)
        return NetworkLearner(
            lambda torch: torch.nn.Linear(self.features, self.classes, bias=False),
            self.classes,
            device,
        )


def check_model(model: OwnModel, x: Array) -> None:
    """Check a module with a few examples.

    Raises:
        InvalidTypeError: if it is not a module.
        InvalidValueError: if it cannot learn from these examples in the lab; the message says why.
    """
    torch = lab_module("torch")
    module = _made(torch, model.module, 0)
    norms, dropouts = torch.nn.modules.batchnorm._NormBase, torch.nn.modules.dropout._DropoutNd
    for part in module.modules():
        kind = type(part).__name__
        if isinstance(part, norms) and part.track_running_stats:
            msg = f"module has a {kind}, whose running averages are not part of the model that is "
            msg += "aggregated: use GroupNorm or LayerNorm"
            raise InvalidValueError(msg)
        if (isinstance(part, dropouts) and part.p) or getattr(part, "dropout", 0):
            msg = f"module has a {kind} with dropout, which differs from process to process: "
            msg += "leave it out"
            raise InvalidValueError(msg)
    try:
        scores = module(torch.from_numpy(np.array(x)))
    except Exception as error:
        msg = f"module fails with examples of shape {x.shape[1:]}: {describe_failure(error)}: give "
        msg += "another module, or a prepare that brings examples to its shape"
        raise InvalidValueError(msg) from error
    if tuple(getattr(scores, "shape", ())) != (len(x), model.classes):
        shape = tuple(getattr(scores, "shape", ()))
        msg = f"module must give {model.classes} scores for each example, one a class: for "
        msg += f"{len(x)} examples of shape {x.shape[1:]} it gives an output of shape {shape}"
        raise InvalidValueError(msg)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        msg = "module has no parameters to train: give one that has"
        raise InvalidValueError(msg)


def _made(torch: Any, module: Module, seed: int) -> Any:
    """Return a module, the same in every process, without changing other random states."""
    if isinstance(module, torch.nn.Module):
        return copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = module() if callable(module) else None
    if not isinstance(made, torch.nn.Module):
        msg = "module must be a torch.nn.Module, or a class or function that makes one, or "
        msg += f"'linear', not {module!r}"
        raise InvalidTypeError(msg)
    return made
