"""Waiting for as many nodes as a round needs, and saying so meanwhile."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, cast

from flwr.serverapp import Grid

from rfa.flower.refusals import RoundSkippedError
from rfa.flower.simulation import is_simulation
from rfa.flower.suspicion import Watch

LOG = logging.getLogger("flwr")
PAUSE = 0.2
"""Seconds between two looks for nodes."""
TELL_EVERY = 5.0
"""Seconds between two lines that say how many are there."""
SETTLED = 2.0
"""Seconds without a new node after which those of a simulation are all there."""
MORE = 'give it more, flwr run . --federation-config "num-supernodes={}"'
"""How a simulation gets more nodes."""


class SteadyGrid:
    """A grid whose list of nodes does not change while a round is configured.

    Flower's sampling waits without end for a node that left after it was counted.
    """

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        """Take a grid, and the nodes that were there."""
        self._grid, self._nodes = grid, nodes

    def get_node_ids(self) -> list[int]:
        """The nodes that were there."""
        return list(self._nodes)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the grid's."""
        return getattr(self._grid, name)


@dataclass(frozen=True)
class Need:
    """How many nodes a round needs.

    Attributes:
        fraction: the fraction of nodes that take part.
        least: how many must be there, at least.
        what: what they are needed for; empty to say nothing of it.
    """

    fraction: float
    least: int
    what: str = ""

    def among(self, there: int) -> int:
        """How many are needed where so many are there."""
        return max(self.least, int(there * self.fraction))


def wait_for_nodes(grid: Grid, need: Need, watch: Watch, timeout: float) -> Grid:
    """Wait for as many nodes that nothing speaks against as a round needs, up to a limit.

    How many there are is logged every few seconds. In a simulation no more come than there are.

    Args:
        grid: Flower's grid.
        need: how many are needed.
        watch: knows which nodes are left out.
        timeout: seconds to wait.

    Returns:
        The grid, with the nodes that were there.

    Raises:
        RoundSkippedError: if there are too few.
    """
    began, told, simulated = time.monotonic(), -TELL_EVERY, is_simulation(grid)
    there, since = -1, began
    while True:
        nodes = watch.trusted(grid.get_node_ids(), need.least)
        now, before, there = time.monotonic(), there, len(nodes)
        since = now if there != before else since
        needed = need.among(there)
        if there >= needed:
            return cast("Grid", SteadyGrid(grid, nodes))
        if simulated and now - since >= min(SETTLED, timeout):
            msg = f"{_count(there)} in this simulation, {needed} are needed{need.what}: "
            raise RoundSkippedError(msg + MORE.format(needed))
        if now - began >= timeout:
            msg = f"{_count(there)} after {timeout:g} s, {needed} are needed{need.what}"
            raise RoundSkippedError(msg)
        if now - began >= told + TELL_EVERY and not simulated:
            text = "%s, %s are needed%s: waiting for more, for %.0f s yet"
            LOG.info(text, _count(there), needed, need.what, began + timeout - now)
            told = now - began
        time.sleep(min(PAUSE, timeout))


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
