"""The server's step in the lab: the optimizer of `rfa.aggregators`, as the settings say."""

from __future__ import annotations

import numpy as np

from rfa._types import Floats32
from rfa.aggregators.server_optimizer import TAU, ServerOptimizer, ServerState
from rfa.lab.settings.settings import Settings

__all__ = ["TAU", "ServerState", "server_step"]


def server_step(
    model: Floats32, aggregate: Floats32, state: ServerState, settings: Settings
) -> tuple[Floats32, ServerState]:
    """The next model and what the optimizer keeps."""
    server = settings.server
    optimizer = ServerOptimizer(server.optimizer, server.effective_learning_rate, server.momentum)
    step, kept = optimizer(aggregate, state)
    return (model + step).astype(np.float32, copy=False), kept
