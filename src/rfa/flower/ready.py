"""The nodes that are ready for a sum: what most of them have, and whether they may repeat a sum."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from rfa.flower import records
from rfa.flower.refusals import RoundSkippedError, describe_ready, list_nodes
from rfa.secagg.transcript import devices_digest

LOG = logging.getLogger("flwr")


def most_of(ready: Mapping[records.Ready, list[int]]) -> records.Ready:
    """Return what most nodes have.

    Raises:
        RoundSkippedError: if no majority has the same.
    """
    like = max(ready, key=lambda found: len(ready[found]))
    count = sum(map(len, ready.values()))
    if 2 * len(ready[like]) <= count:
        msg = f"no majority of {count} nodes has the same metrics, arrays and run config: "
        msg += f"{describe_ready(ready)}; let all nodes return the same metrics"
        raise RoundSkippedError(msg)
    if len(ready) > 1:
        LOG.info("\t> some nodes have other metrics or run configs: %s", describe_ready(ready))
    return like


def check_repeat(task: str, nodes: Sequence[int], again: bytes) -> None:
    """End a round that would repeat a sum without all of its nodes, before anything is masked.

    Raises:
        RoundSkippedError: if it would.
    """
    if again.endswith(devices_digest(nodes)):
        LOG.info("\t> all of these were in a sum about the same before: it is repeated")
        return
    what, remedy = "updates", "let training have randomness, or a seed that depends on the run"
    if task == records.EVALUATE:
        what, remedy = "model", "evaluate it over all of those nodes, or another model"
    msg = (
        f"{list_nodes(nodes)} were in a sum about the same {what} before, with others: the "
        f"difference of the two would reveal one of them; {remedy}"
    )
    raise RoundSkippedError(msg)
