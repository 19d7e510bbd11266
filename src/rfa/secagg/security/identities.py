"""The public identities of devices, in a file that everyone got by another way than the server."""

from __future__ import annotations

import json
from pathlib import Path

from rfa.secagg.errors import VaultError
from rfa.secagg.security.cohort import Identities


def read_identities(path: Path) -> Identities:
    """The public identities of nodes, from a JSON object {"node": "hex"}.

    Raises:
        VaultError: if the file holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {int(node): bytes.fromhex(public) for node, public in values.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        msg = f'{path} must hold the public identities of all nodes, {{"node": "hex"}}: {error}'
        raise VaultError(msg) from None
