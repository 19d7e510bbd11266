"""Detects Flower's simulation, on the device and on the server.

On a SuperNode a device must not forget which updates were in a sum. In Flower's simulation there is
no device: a run that is started again starts over, and nothing needs to survive it.

The context of a ClientApp does not show this: simulation sets `partition-id` and `num-partitions`,
and so do many SuperNodes in their node config. But the simulation engine calls ClientApps in Ray
actors, of a class that a SuperNode never loads. Everything else is treated as a deployment, where a
device keeps too much rather than too little.
"""

from __future__ import annotations

import sys
from typing import Any

ACTORS = "flwr.simulation.ray_transport.ray_actor"
"""The module of the actors that simulate nodes."""
GRID = "InMemoryGrid"
"""The grid of the simulation engine, whose nodes are all there from the start."""


def is_simulated() -> bool:
    """Return whether this process is an actor of Flower's simulation engine."""
    ray: Any = sys.modules.get("ray")
    if ray is None or ACTORS not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


def is_simulation(grid: object) -> bool:
    """Return whether a grid is that of Flower's simulation engine."""
    return any(kind.__name__ == GRID for kind in type(grid).__mro__)
