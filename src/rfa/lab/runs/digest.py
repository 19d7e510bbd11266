"""What tells the data of runs, and the code of the user's own, from others."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from rfa._plugins import plugin_digest
from rfa.lab.datasets.dataset import Population
from rfa.lab.objects import names_of
from rfa.lab.settings.settings import Settings

if TYPE_CHECKING:
    from _hashlib import HASH as Digest  # noqa: N811


def begin_digest(population: Population) -> Digest:
    """The part of a digest that takes time: the examples."""
    digest = hashlib.sha256(json.dumps(list(population.names)).encode())
    for array in (population.offsets, population.train, population.y, population.x):
        digest.update(np.ascontiguousarray(array).data)
    return digest


def finish_digest(begun: Digest, settings: Settings, count: int) -> str:
    """The digest of the examples, the number of devices, and the user's own code.

    It tells one data set from another, and one version of the code, with all that it imports of
    the user's own.

    Raises:
        PluginError: if the code has changed since this process read it.
    """
    digest = begun.copy()
    digest.update(str(count).encode())
    for name in names_of(settings):
        digest.update(plugin_digest(name))
    return digest.hexdigest()
