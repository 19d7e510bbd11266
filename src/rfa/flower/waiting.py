"""Waits for the nodes that a round needs, and logs how many are connected."""

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
"""Seconds between two checks for nodes."""
TELL_EVERY = 5.0
"""Seconds between two lines that say how many nodes are connected."""
SETTLED = 2.0
"""Seconds without a new node after which all nodes of a simulation are assumed to be there."""
MORE = 'give it more, flwr run . --federation-config "num-supernodes={}"'
"""How a simulation gets more nodes."""


class SteadyGrid:
    """A grid whose list of nodes does not change while a round is configured.

    Flower's sampling would wait without end for a node that left after it was counted.
    """

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        """Wrap a grid with a fixed list of nodes."""
        self._grid, self._nodes = grid, nodes

    def get_node_ids(self) -> list[int]:
        """Return the fixed list of nodes."""
        return list(self._nodes)

    def __getattr__(self, name: str) -> Any:
        """Return every other attribute of the grid."""
        return getattr(self._grid, name)


@dataclass(frozen=True)
class Need:
    """The number of nodes that a round needs.

    Attributes:
        fraction: the fraction of nodes that take part.
        least: the least number of connected nodes.
        what: what they are needed for; empty to omit it.
    """

    fraction: float
    least: int
    what: str = ""

    def among(self, there: int) -> int:
        """Return how many nodes are needed, given the number of connected ones."""
        return max(self.least, int(there * self.fraction))


def wait_for_nodes(grid: Grid, need: Need, watch: Watch, timeout: float) -> Grid:
    """Wait for the nodes that a round needs, without those under suspicion, up to a limit.

    It logs the number of nodes every few seconds. In a simulation no further nodes appear.

    Args:
        grid: Flower's grid.
        need: the number of nodes needed.
        watch: knows which nodes are left out.
        timeout: seconds to wait.

    Returns:
        The grid, with a fixed list of its nodes.

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
            text = "%s, %s are needed%s: waiting for more, for another %.0f s"
            LOG.info(text, _count(there), needed, need.what, began + timeout - now)
            told = now - began
        time.sleep(min(PAUSE, timeout))


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
