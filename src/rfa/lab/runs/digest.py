"""Digests of the data of runs and of the user's own code."""

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
    """Return the digest of the examples, the number of devices, and the user's own code.

    It distinguishes data sets and versions of the code, including the user's modules that the code
    imports.

    Raises:
        PluginError: if the code has changed since this process read it.
    """
    digest = begun.copy()
    digest.update(str(count).encode())
    for name in names_of(settings):
        digest.update(plugin_digest(name))
    return digest.hexdigest()
