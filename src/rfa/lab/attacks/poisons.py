"""Corruptions of data from the literature: flipped labels, and a backdoor.

A backdoor keeps the accuracy of the model, except on examples with a trigger: the model predicts a
class of the attacker's choice for those. A task has one as its corruption "backdoor". Your own is a
name in your file:

    HAT = backdoor(put_on_a_hat, target=3)         # --corruption my_module:HAT
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rfa.lab.attacks.corruption import DataAttack, DataCorruption, Trigger, corrupts_data


@corrupts_data
def label_flip(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    """Reverse the labels: class k becomes class K - 1 - k (Tolpegin et al. 2020)."""
    return x, attack.classes - 1 - y


def backdoor(stamp: Callable[[Any], Any], target: int) -> DataCorruption:
    """Return a backdoor: half of a device's examples get a trigger and its label (Gu et al. 2017).

    The other half is clean, so that the model still learns its task (Bagdasaryan et al. 2020).

    Args:
        stamp: puts the trigger on examples, which it may change.
        target: the class that the model is to predict for them.
    """

    def poison(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
        return plant(x, y, attack, stamp, target)

    return DataCorruption(poison, trigger=Trigger(stamp, target))


def plant(
    x: Any, y: Any, attack: DataAttack, stamp: Callable[[Any], Any], target: int
) -> tuple[Any, Any]:
    """Put a trigger on half of the examples, and replace their labels by its target."""
    chosen = attack.rng.permutation(len(y))[: (len(y) + 1) // 2]
    x[chosen], y[chosen] = stamp(x[chosen]), target
    return x, y
