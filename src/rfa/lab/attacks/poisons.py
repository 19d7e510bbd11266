"""Corruptions of data from the literature: flipped labels, and a backdoor.

A backdoor leaves the model as good as it was, but for examples that carry a trigger: these it puts
into a class of the attacker's choice. A task has one as its corruption "backdoor"; one of your own
is a name in a file of yours:

    HAT = backdoor(put_on_a_hat, target=3)         # --corruption my_module:HAT
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rfa.lab.attacks.corruption import DataAttack, DataCorruption, Trigger, corrupts_data


@corrupts_data
def label_flip(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    """The labels in reverse: class k becomes class K - 1 - k (Tolpegin et al. 2020)."""
    return x, attack.classes - 1 - y


def backdoor(stamp: Callable[[Any], Any], target: int) -> DataCorruption:
    """Half of a device's examples carry the trigger and the target's label (Gu et al. 2017).

    The other half is clean, so that the model goes on to learn its task (Bagdasaryan et al. 2020).

    Args:
        stamp: puts the trigger on examples, which it may change.
        target: the class that the model shall put them into.
    """

    def poison(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
        return plant(x, y, attack, stamp, target)

    return DataCorruption(poison, trigger=Trigger(stamp, target))


def plant(
    x: Any, y: Any, attack: DataAttack, stamp: Callable[[Any], Any], target: int
) -> tuple[Any, Any]:
    """Put a trigger on half of the examples, and its target in the place of their labels."""
    chosen = attack.rng.permutation(len(y))[: (len(y) + 1) // 2]
    x[chosen], y[chosen] = stamp(x[chosen]), target
    return x, y
