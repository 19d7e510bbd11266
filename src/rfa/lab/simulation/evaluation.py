"""How well a model serves the devices of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats


@dataclass(frozen=True)
class Evaluation:
    """How well a model serves the devices, on clean data.

    Attributes:
        round: after how many rounds.
        calls: calls of the secure average oracle so far.
        test_accuracy: over all test examples, from 0 to 1.
        honest_accuracy: over the test examples of honest devices, those that are not corrupted in
            this run; NaN where there are none. With attackers drawn in each round, no device is
            corrupted for good, and this is the accuracy over all.
        test_loss: their mean loss.
        train_loss: the mean loss over all training examples, the objective F.
        device_accuracy: the test accuracy of each device.
        is_honest: which devices are honest.
        backdoor: the share of the test examples of other classes that a trigger puts into its
            target class; None where there is no backdoor.
        epsilon_server: the privacy spent so far against the server, by the device that was charged
            most; None where sums have no noise, or a trusted server adds it.
        epsilon_readers: the same against those who read the models alone; None where it is not
            known.
    """

    round: int
    calls: int
    test_accuracy: float
    honest_accuracy: float
    test_loss: float
    train_loss: float
    device_accuracy: Floats
    is_honest: NDArray[np.bool_]
    backdoor: float | None = None
    epsilon_server: float | None = None
    epsilon_readers: float | None = None

    @property
    def median_device(self) -> float:
        """The accuracy of the median device."""
        return _median(self.device_accuracy)

    @property
    def worst_tenth(self) -> float:
        """The mean accuracy of the worst tenth of the devices."""
        return _worst_tenth(self.device_accuracy)

    @property
    def honest_median_device(self) -> float:
        """The accuracy of the median honest device."""
        return _median(self.device_accuracy[self.is_honest])

    @property
    def honest_worst_tenth(self) -> float:
        """The mean accuracy of the worst tenth of the honest devices."""
        return _worst_tenth(self.device_accuracy[self.is_honest])


def _median(accuracies: Floats) -> float:
    return float(np.median(accuracies)) if accuracies.size else math.nan


def _worst_tenth(accuracies: Floats) -> float:
    tenth = max(1, round(len(accuracies) / 10))
    return float(np.sort(accuracies)[:tenth].mean()) if accuracies.size else math.nan
