"""The replies of nodes that do not take part in a round, and when to give up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rfa.errors import OracleStoppedError
from rfa.flower.records import Ready

SHOWN = 5
"""The most nodes, and different texts, in a message."""
ABSTAINS = (
    "it abstains, as a node does that has no examples, an update that is not finite, or the very "
    "update that was in a sum before (its log says which). Where a seed is fixed, let it depend on "
    "context.run_id"
)
"""The possible reasons of a node that abstains."""


class RoundSkippedError(OracleStoppedError):
    """There is nothing to sum in this round; the message says why."""


class AllRefusedError(RoundSkippedError):
    """Every node that was asked refused; the message quotes their reasons."""


def check_refusals(asked: Iterable[int], said: Mapping[int, str]) -> None:
    """End a round in which all nodes refuse.

    Args:
        asked: the nodes that were asked.
        said: the reasons of nodes that do not take part.

    Raises:
        AllRefusedError: if all of them gave one.
    """
    nodes = set(asked)
    if nodes and nodes <= said.keys():
        told = describe_refusals({node: said[node] for node in nodes})
        msg = f"all {len(nodes)} nodes refuse: {told}"
        raise AllRefusedError(msg)


def describe_refusals(said: Mapping[int, str]) -> str:
    """Return the reasons of nodes: each text once, with its nodes."""
    by_text: dict[str, list[int]] = {}
    for node, text in sorted(said.items()):
        by_text.setdefault(text, []).append(node)
    texts = sorted(by_text, key=lambda text: -len(by_text[text]))
    told = [f"{list_nodes(by_text[text])}: {text}" for text in texts[:SHOWN]]
    return "; ".join(told)


def describe_ready(ready: Mapping[Ready, list[int]]) -> str:
    """Return how nodes differ: their metrics, run configs or earlier sums."""
    runs, again = {found.run for found in ready}, {found.again for found in ready}
    told: list[str] = []
    for found, nodes in sorted(ready.items(), key=lambda item: -len(item[1]))[:SHOWN]:
        text = f"{list_nodes(nodes)}: the metrics {', '.join(found.layout.names) or 'none'}"
        if len(runs) > 1:
            text += f", the run config {found.run[:4].hex()}..."
        if len(again) > 1:
            text += ", in a sum before" if found.again else ", in no sum before"
        told.append(text)
    return "; ".join(told)


def list_nodes(nodes: Iterable[int]) -> str:
    """Return nodes in words: the first of them by number."""
    known = sorted(nodes)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"node{'' if len(known) == 1 else 's'} {', '.join(map(str, known[:SHOWN]))}{more}"
