"""Pictures of runs and studies, as matplotlib figures."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rfa._types import Floats
from rfa.errors import InvalidValueError
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.report.style import COLORS
from rfa.lab.runs.statistics import Interval, mean_interval
from rfa.lab.table import Table

PERCENT = ("accuracy", "median_device", "worst_tenth", "backdoor")
"""Endings of columns that are fractions, which are drawn in percent."""


def plot_run(evaluations: Table, measures: Sequence[str], title: str, axes: Any = None) -> Any:
    """Draw columns of the evaluations of a run."""
    axes = axes if axes is not None else new_axes(1)[0]
    for measure in measures:
        check_column(evaluations, measure)
        shown = _scaled(evaluations[measure], measure)
        label = measure.replace("_", " ")
        axes.plot(evaluations["round"], shown, "-o", markersize=3, label=label)
    finish(axes, title, "round", measures[0])
    limit([axes], measures[0])
    if len(measures) > 1:
        axes.set_ylabel("accuracy (%)")
        axes.legend(frameon=False)
    return axes.figure


def plot_lines(axes: Any, table: Table, x: str, y: str, by: str) -> None:
    """Draw the mean of a column against another, one line for each value of a third.

    The band is the 95 % interval of the mean, where several rows share a place.
    """
    for number, label in enumerate(dict.fromkeys(table[by].tolist())) if by else [(0, None)]:
        some = table.where(**{by: label}) if by else table
        places = sorted(set(some[x].tolist()), key=_order)
        spots: Any = places if _are_numbers(places) else range(len(places))
        means = [mean_interval(_scaled(some.where(**{x: place})[y], y)) for place in places]
        color = COLORS[number % len(COLORS)]
        middle = [mean.mean for mean in means]
        axes.plot(spots, middle, "-o", color=color, label=label, markersize=4)
        _draw_band(axes, spots, means, color)
        if not _are_numbers(places):
            axes.set_xticks(list(spots), [str(place) for place in places])
    finish(axes, "", x, y)
    if by:
        axes.legend(title=by.replace("_", " "), frameon=False)


def _draw_band(axes: Any, spots: Any, means: Sequence[Interval], color: str) -> None:
    if any(mean.low < mean.high for mean in means):
        low, high = [mean.low for mean in means], [mean.high for mean in means]
        axes.fill_between(list(spots), low, high, color=color, alpha=0.15, linewidth=0)


def new_axes(panels: int) -> list[Any]:
    """Return a figure with this number of panels side by side."""
    figure = _new_figure(figsize=(max(5.5, 4.2 * panels), 4), layout="constrained")
    return list(figure.subplots(1, panels, squeeze=False, sharey=True)[0])


def _new_figure(**options: Any) -> Any:
    """A matplotlib figure that notebooks show, without pyplot and its global state."""
    base: Any = lab_module("matplotlib.figure").Figure

    class Picture(base):
        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png", dpi=100)
            return stream.getvalue()

    return Picture(**options)


def finish(axes: Any, title: str, x: str, y: str) -> None:
    """Put the words around a panel."""
    unit = " (%)" if y.endswith(PERCENT) else ""
    axes.set(title=title, xlabel=x.replace("_", " "), ylabel=y.replace("_", " ") + unit)
    axes.grid(alpha=0.3)


def limit(panels: Sequence[Any], y: str) -> None:
    """Keep shares between 0 and 100 %: an interval of a mean may reach further."""
    if y.endswith(PERCENT):
        low = min(axes.get_ylim()[0] for axes in panels)
        high = max(axes.get_ylim()[1] for axes in panels)
        for axes in panels:
            axes.set_ylim(max(low, 0), min(high, 102))


def check_column(table: Table, name: str) -> None:
    """Check that a table has a column of numbers.

    Raises:
        InvalidValueError: naming the columns that it has.
    """
    if table[name].dtype.kind not in "ifb":
        numbers = [column for column in table.columns if table[column].dtype.kind in "ifb"]
        msg = f"{name} is no column of numbers: there are {', '.join(numbers)}"
        raise InvalidValueError(msg)


def _scaled(values: Any, name: str) -> Floats:
    numbers: Floats = np.asarray(values, np.float64)
    return 100 * numbers if name.endswith(PERCENT) else numbers


def _are_numbers(places: Sequence[Any]) -> bool:
    return all(isinstance(place, int | float) for place in places)


def _order(place: Any) -> tuple[float, str]:
    is_number = isinstance(place, int | float)
    return (float(place), "") if is_number else (math.inf, str(place))
