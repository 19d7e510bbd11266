"""What the server does with the aggregate: take it, or feed it to an optimizer (FedOpt).

The aggregate of the updates plays the part of a negative gradient (Reddi et al. 2021). Plain SGD
with rate 1 and no momentum adds it to the model, which is Algorithm 1 of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rfa._types import Floats32
from rfa.lab.settings.settings import Settings

BETA2 = 0.99
"""How slowly Adam forgets squares."""
TAU = 1e-3
"""How adaptive Adam is: added to the roots of the squares."""


@dataclass(frozen=True)
class ServerState:
    """What an optimizer keeps between rounds.

    Attributes:
        momentum: the running sum of aggregates; None until there is one.
        squares: Adam's running mean of squares.
    """

    momentum: Floats32 | None = None
    squares: Floats32 | None = None


def server_step(
    model: Floats32, aggregate: Floats32, state: ServerState, settings: Settings
) -> tuple[Floats32, ServerState]:
    """The next model and what the optimizer keeps."""
    if settings.server.optimizer == "adam":
        return _adam(model, aggregate, state, settings)
    step = aggregate
    if settings.server.momentum:
        last = 0 if state.momentum is None else state.momentum
        step = np.float32(settings.server.momentum) * last + aggregate
        state = ServerState(momentum=step)
    return _add(model, step, settings), state


def _adam(
    model: Floats32, aggregate: Floats32, state: ServerState, settings: Settings
) -> tuple[Floats32, ServerState]:
    beta1, beta2 = np.float32(settings.server.momentum), np.float32(BETA2)
    momentum = (1 - beta1) * aggregate
    squares = (1 - beta2) * np.square(aggregate)
    if state.momentum is not None and state.squares is not None:
        momentum += beta1 * state.momentum
        squares += beta2 * state.squares
    step = momentum / (np.sqrt(squares) + np.float32(TAU))
    kept = ServerState(momentum, squares)
    return _add(model, step, settings), kept


def _add(model: Floats32, step: Floats32, settings: Settings) -> Floats32:
    return (model + np.float32(settings.server.effective_learning_rate) * step).astype(
        np.float32, copy=False
    )
