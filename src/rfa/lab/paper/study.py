"""Tasks that take EMNIST apart, to find out what the effect of poisoned data depends on.

`rfa run rfa.lab.paper.study:DIGITS` learns only the digits, `LETTERS` only the letters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rfa.lab.datasets.dataset import Index
from rfa.lab.tasks.emnist import Emnist
from rfa.lab.tasks.registry import TASKS

TEN = 10


class Some(Emnist):
    """EMNIST with some of its labels; writers with fewer than 40 such characters are left out."""

    source = Emnist.name
    min_examples = 40

    def __init__(self, name: str, *, digits: bool) -> None:
        super().__init__()
        self.name, self._only_digits = name, digits

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The source's examples, where each unwanted one has a device of its own, too small."""
        all_labels = super().index(paths)
        unwanted = np.flatnonzero((all_labels.y < TEN) != self._only_digits)
        device = all_labels.device.copy()
        device[unwanted] = len(all_labels.names) + np.arange(len(unwanted))
        names = [*all_labels.names, *(f"unwanted {row}" for row in unwanted)]
        return Index(names, device, all_labels.y)


DIGITS, LETTERS = (
    dataclasses.replace(
        TASKS["emnist-linear"],
        name=f"rfa.lab.paper.study:{name.upper()}",
        title=f"handwritten {name} alone, softmax regression",
        reader=Some(f"emnist-{name}", digits=name == "digits"),
    )
    for name in ("digits", "letters")
)
