"""The public identities of devices, in a file that everyone got through another channel.

Every valid file has one reading, so two readers never see two different lists.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from rfa._checks import check_regular
from rfa.errors import InvalidValueError
from rfa.secagg.errors import VaultError
from rfa.secagg.security.cohort import Identities

_NODE = re.compile("0|[1-9][0-9]{0,19}")
_NODES = 1 << 64
"""The numbers of nodes are below this."""
_PUBLIC = re.compile("[0-9a-fA-F]{64}")
_SHOWN = 40


def read_identities(path: Path) -> Identities:
    """Read the public identities of nodes from a JSON object {"node": "hex"}.

    Raises:
        VaultError: if a node is listed twice, or is not a number from 0 to 2^64 - 1 in plain
            digits, or if an identity is not 64 hexadecimal digits.
    """
    try:
        check_regular(path)
        pairs = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_Pairs)
        return _identities(pairs)
    except (OSError, ValueError, RecursionError) as error:
        msg = f'{path} must hold the public identities of all nodes, {{"node": "hex"}}: {error}'
        raise VaultError(msg) from None


class _Pairs(list[tuple[str, object]]):
    """A JSON object with all its entries, including duplicates."""


def _identities(pairs: object) -> Identities:
    if not isinstance(pairs, _Pairs):
        msg = "it is not an object"
        raise InvalidValueError(msg)
    known: dict[int, bytes] = {}
    for name, public in pairs:
        shown = repr(name[:_SHOWN])
        if not _NODE.fullmatch(name) or int(name) >= _NODES:
            msg = f"{shown} is not a node: write its number from 0 to 2^64 - 1 in plain digits"
            raise InvalidValueError(msg)
        if int(name) in known:
            msg = f"node {shown} is listed twice: keep the identity that is its own"
            raise InvalidValueError(msg)
        if not isinstance(public, str) or not _PUBLIC.fullmatch(public):
            msg = f"the identity of node {shown} is not 64 hexadecimal digits"
            raise InvalidValueError(msg)
        known[int(name)] = bytes.fromhex(public)
    return known
