"""Matrices as pictures for papers: a square for each number, in the shades of its picture."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from rfa.lab.datasets.dataset import lab_module
from rfa.lab.report.exhibit import Entry, Matrix
from rfa.lab.report.style import DEEP, SHADES, Shading, shading

WIDE = 8
"""Matrices with more columns than this are placed below each other."""
SQUARE = (0.62, 0.34)
"""The width and the height of a place, in inches."""
MARGIN = (2.1, 2.3)
"""The space for names, title and note around a matrix, in inches."""
LETTERS = 10
"""The number of letters that fit below a column."""
NARROW = 3
"""Matrices with fewer columns get the space of this many, for their titles and notes."""
TITLE = (12, 7, 60)
"""The letters of a title that fit above no place, those of each further one, and the most."""
UNKNOWN = "#e4e6e9"
GAP = 0.25
"""The distance of the summary rows from the others, in rows."""


def heat_figure(matrices: Sequence[Matrix]) -> Any:
    """Return a figure with the matrices one after the other, and the scale of the shades."""
    beside = len(matrices) if max(len(matrix.columns) for matrix in matrices) <= WIDE else 1
    rows = math.ceil(len(matrices) / beside)
    width = max(SQUARE[0] * _room(matrix) for matrix in matrices) + MARGIN[0]
    height = max(SQUARE[1] * len(matrix.rows) for matrix in matrices) + MARGIN[1]
    figure = lab_module("matplotlib.figure").Figure(
        figsize=(beside * width, rows * height + 0.5), layout="constrained"
    )
    places = figure.subplots(rows, beside, squeeze=False).ravel()
    shades = shading(matrices)
    for axes, matrix in zip(places, matrices, strict=True):
        _matrix(axes, matrix, shades)
    _scale(figure, list(places), matrices[0].label, shades)
    return figure


def _room(matrix: Matrix) -> int:
    """Return the number of columns for which there is space."""
    return max(len(matrix.columns), NARROW)


def _matrix(axes: Any, matrix: Matrix, shades: Shading) -> None:
    plain = len(matrix.rows) - matrix.summary
    heights = [row + (GAP if row >= plain else 0) for row in range(len(matrix.rows))]
    for y, entries in zip(heights, matrix.entries, strict=True):
        for x, entry in enumerate(entries):
            _square(axes, x, y, entry, shades)
    axes.set_xlim(-0.5, len(matrix.columns) - 0.5)
    axes.set_ylim(max(heights, default=0) + 0.5, -0.5)
    names = range(len(matrix.columns))
    axes.set_xticks(names, matrix.columns, rotation=35, ha="left", rotation_mode="anchor")
    axes.set_yticks(heights, matrix.rows)
    for name in axes.get_yticklabels()[plain:]:
        name.set_fontweight("bold")
    axes.tick_params(length=0, labelsize=8, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    letters = min(TITLE[0] + TITLE[1] * _room(matrix), TITLE[2])
    title = textwrap.fill(matrix.title, letters)
    axes.set_title(title, fontsize=10, fontweight="bold", loc="left")
    lines = _groups(axes, matrix, max(heights, default=0) + 0.5)
    note = textwrap.fill(matrix.note, int(LETTERS * (_room(matrix) + 2)))
    axes.annotate(
        note, (0, 0), (0, -8 - 11 * lines), xycoords="axes fraction", textcoords="offset points",
        fontsize=7, color="#444444", va="top", annotation_clip=False,
    )  # fmt: skip


def _square(axes: Any, x: int, y: float, entry: Entry, shades: Shading) -> None:
    shade = shades.of(entry.value)
    rectangle = lab_module("matplotlib.patches").Rectangle
    color = UNKNOWN if shade is None else SHADES[shade]
    axes.add_patch(rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=color))
    ink = "white" if shade is not None and shade < DEEP else "black"
    text = "-" if shade is None else f"{entry.value:.1f}{entry.mark}"
    weight = "bold" if entry.best else "normal"
    axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=8, fontweight=weight)
    if entry.best:
        frame = {"facecolor": "none", "edgecolor": ink, "linewidth": 1.2}
        axes.add_patch(rectangle((x - 0.42, y - 0.37), 0.84, 0.74, **frame))


def _groups(axes: Any, matrix: Matrix, bottom: float) -> int:
    """Draw a bracket with a name below the columns of each group; return its number of lines."""
    start, lines = 0, 0
    for group, columns in itertools.groupby(matrix.groups):
        end = start + len(list(columns))
        name = textwrap.fill(group, int(LETTERS * (end - start)))
        lines = max(lines, name.count("\n") + 1)
        ends = [start - 0.4, end - 0.6]
        axes.plot(ends, [bottom + 0.15] * 2, color="#444444", linewidth=1.2, clip_on=False)
        axes.annotate(
            name, ((start + end - 1) / 2, bottom), (0, -8), textcoords="offset points",
            ha="center", va="top", fontsize=8, annotation_clip=False,
        )  # fmt: skip
        start = end
    return lines


def _scale(figure: Any, places: list[Any], label: str, shades: Shading) -> None:
    colors = lab_module("matplotlib.colors")
    scale = colors.Normalize(shades.low, shades.high), colors.ListedColormap(SHADES)
    mapped = lab_module("matplotlib.cm").ScalarMappable(*scale)
    bar = figure.colorbar(mapped, ax=places, shrink=0.6, aspect=30, pad=0.02)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
