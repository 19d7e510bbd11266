"""The accuracy of a run that is shown first: over all devices, or over honest ones.

A corrupted device with personal parameters trains them on poisoned data, and is evaluated with
them. Its accuracy says nothing about the aggregator. So personalized runs show the accuracy over
honest devices first, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rfa.lab.simulation.rounds import Evaluation

ALL, HONEST = "test_accuracy", "honest_accuracy"


def headline(*, personalized: bool) -> str:
    """Return the measure that is shown first."""
    return HONEST if personalized else ALL


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.1%}"


def both(overall: float | None, honest: float | None, *, personalized: bool) -> str:
    """Return both accuracies in words, over all and over honest devices; the main one is first.

    >>> both(0.5, 0.625, personalized=False)
    '50.0% (honest 62.5%)'
    >>> both(0.5, 0.625, personalized=True)
    'honest 62.5% (all 50.0%)'
    """
    if personalized:
        return f"honest {percent(honest)} (all {percent(overall)})"
    return f"{percent(overall)} (honest {percent(honest)})"


def evaluation_words(evaluation: Evaluation, *, personalized: bool) -> str:
    """The accuracy of an evaluation in words; that over all alone where all devices are honest."""
    if evaluation.is_honest.all():
        return percent(evaluation.test_accuracy)
    accuracies = evaluation.test_accuracy, evaluation.honest_accuracy
    return both(*accuracies, personalized=personalized)


def accuracy_words(row: Mapping[str, Any], measure: str, honest: str) -> str:
    """Two measures of a run in words; one where no device of it is corrupted for good."""
    if row["corrupted"] in (None, "[]"):
        return percent(row[measure])
    return both(row[measure], row[honest], personalized=bool(row["personalized"]))
