"""Any torch module as a learner: the general path, for networks and for CUDA.

The module maps a batch of examples to scores. Its trainable parameters, flattened in their order,
are the model. Only this module of the lab needs torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rfa._types import Floats32
from rfa.errors import InvalidValueError
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.learners.learner import Learner, Plan, Tail

BLOCK = 256
"""The number of examples that are scored at a time."""


class NetworkLearner(Learner):
    """A torch module with the multinomial logistic loss, trained by plain SGD."""

    def __init__(self, make: Callable[[Any], Any], classes: int, device: str = "cpu") -> None:
        """Set a function that makes the module from torch."""
        torch = lab_module("torch")
        if device == "cuda" and not torch.cuda.is_available():
            msg = "device='cuda' asks for a CUDA device, and torch finds none: use device='cpu'"
            raise InvalidValueError(msg)
        self._torch, self._device = torch, device
        self._module = make(torch).to(device)
        self._parameters = [p for p in self._module.parameters() if p.requires_grad]
        self._loss = torch.nn.functional.cross_entropy
        self.classes = classes
        self.dim = sum(parameter.numel() for parameter in self._parameters)
        self._flat = torch.empty(self.dim, device=device)
        self._share_memory()

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Return Glorot-uniform matrices and kernels, and zero biases."""
        parts = [glorot(tuple(parameter.shape), rng) for parameter in self._parameters]
        return np.concatenate([part.ravel() for part in parts])

    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """Return the change by local SGD, with torch's own gradients."""
        torch = self._torch
        first = self._tensor(start)
        self._flat.copy_(first)
        inputs, labels = self._tensor(x), self._tensor(np.asarray(y, np.int64))
        tail = Tail(plan, start)
        for rows in plan.batches:
            batch = self._tensor(rows)
            loss = self._loss(self._module(inputs[batch]), labels[batch])
            gradients = torch.autograd.grad(loss, self._parameters)
            with torch.no_grad():
                if plan.proximal:
                    self._flat.lerp_(first, plan.rate * plan.proximal)
                torch._foreach_add_(self._parameters, gradients, alpha=-plan.rate)
            if plan.tail:
                tail.add(self._flat.cpu().numpy())
        if plan.tail:
            return tail.mean(self._flat.cpu().numpy()) - start
        return (self._flat - first).cpu().numpy()

    def scores(self, w: Floats32, x: Any) -> Floats32:
        """Return the scores, computed block by block."""
        self._flat.copy_(self._tensor(w))
        with self._torch.no_grad():
            blocks = [x[i : i + BLOCK] for i in range(0, len(x), BLOCK)]
            parts = [self._module(self._tensor(block)) for block in blocks]
            return self._torch.cat(parts).cpu().numpy()

    def module(self, w: Floats32) -> Any:
        """Return a copy of the module with the parameters of a model."""
        self._flat.copy_(self._tensor(w))
        return copy.deepcopy(self._module).eval()

    def _share_memory(self) -> None:
        """Make the parameters views of one flat vector."""
        sizes = [parameter.numel() for parameter in self._parameters]
        parts = self._flat.split(sizes)
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.data = part.view(parameter.shape)

    def _tensor(self, array: Any) -> Any:
        own = array if array.flags.writeable else array.copy()  # torch would warn
        return self._torch.from_numpy(np.ascontiguousarray(own)).to(self._device)


def glorot(shape: tuple[int, ...], rng: np.random.Generator) -> Floats32:
    """Return an initial parameter: uniform within Glorot's bound, or zero for a bias."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    field = math.prod(shape[2:])
    bound = math.sqrt(6 / (field * (shape[0] + shape[1])))
    return rng.uniform(-bound, bound, shape).astype(np.float32)
