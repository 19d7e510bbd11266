"""Pictures for papers: PNG and PDF, one file for each view of an exhibit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rfa.lab.datasets.dataset import lab_module
from rfa.lab.report.exhibit import Exhibit, Line, Panel
from rfa.lab.report.heat import heat_figure
from rfa.lab.report.style import COLORS, looks

MARKS = ("o", "s", "^", "D", "v", "X", "P")
"""The marks of lines, as on the page."""
COLUMNS = 4
WIDTH = 36
"""The number of letters of a title that fit above a panel."""
CROWDED = 30
"""Lines with more points than this have only some marks."""


def draw(exhibit: Exhibit, folder: Path) -> list[Path]:
    """Write the pictures of an exhibit, and return the PNG files."""
    pictures: list[Path] = []
    for view in exhibit.views:
        panels = [panel for panel in exhibit.panels if panel.view == view]
        matrices = [matrix for matrix in exhibit.matrices if matrix.view == view]
        path = folder / f"{exhibit.name}{_slug(view)}.png"
        _save(_figure(panels, looks(exhibit)) if panels else heat_figure(matrices), path)
        pictures.append(path)
    return pictures


def _figure(panels: Sequence[Panel], numbers: dict[str, int]) -> Any:
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (3.1 * columns + 0.5, 2.7 * rows + 0.6)
    figure = lab_module("matplotlib.figure").Figure(
        figsize=size if columns > 1 else (5.4, 4.0), layout="constrained"
    )
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        _panel(axes, panel, numbers)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    drawn = [axes.get_legend_handles_labels() for axes in places[: len(panels)]]
    handles = {label: handle for some in drawn for handle, label in zip(*some, strict=True)}
    widest = 0.075 * max(map(len, handles), default=0) + 0.6
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=max(1, min(len(handles), int(figure.get_figwidth() / widest))),
        frameon=False,
        fontsize=9,
    )
    return figure


def _panel(axes: Any, panel: Panel, numbers: dict[str, int]) -> None:
    for line in panel.lines:
        _line(axes, line, numbers[line.label], panel)
    axes.set_title(textwrap.fill(panel.title, WIDTH), fontsize=9)
    axes.set_xlabel(panel.x_label, fontsize=8)
    axes.set_ylabel(panel.y_label, fontsize=8)
    axes.tick_params(labelsize=8, which="both")
    axes.grid(alpha=0.25)
    if panel.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(lab_module("matplotlib.ticker").NullFormatter())
    notes = [f"{line.label}: {line.note}" for line in panel.lines if line.note]
    if notes:
        text = textwrap.fill("; ".join(notes), 2 * WIDTH)
        axes.text(0.02, 0.02, text, transform=axes.transAxes, fontsize=5.5, color="#444444")
    if panel.log_y:
        axes.set_yscale("log")
    elif panel.y_label.endswith("(%)"):
        low, high = axes.get_ylim()
        axes.set_ylim(0 if low < high / 2 else low, high)
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=20)


def _line(axes: Any, line: Line, look: int, panel: Panel) -> None:
    color = COLORS[look % len(COLORS)]
    every = max(1, math.ceil(len(line.x) / 8)) if len(line.x) > CROWDED else 1
    axes.plot(
        line.x,
        line.mean,
        linestyle=(0, (4, 2)) if line.dashed else "-",
        marker="" if line.dashed and len(line.x) > 1 else MARKS[look % len(MARKS)],
        markevery=every,
        markersize=4.5,
        linewidth=1.6,
        color=color,
        label=line.label,
    )
    _seeds(axes, line, color)
    if line.seeds > 1 and not panel.ticks:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.18, linewidth=0)
    elif line.seeds > 1:
        ends = [[m - a for m, a in zip(line.mean, line.low, strict=True)]]
        ends.append([b - m for m, b in zip(line.mean, line.high, strict=True)])
        axes.errorbar(line.x, line.mean, ends, fmt="none", color=color, alpha=0.6, capsize=3)


def _seeds(axes: Any, line: Line, color: str) -> None:
    """Draw single seeds, if values of x are far enough apart."""
    if not line.points or len(line.x) > CROWDED:
        return
    spots = [(x, y) for x, values in zip(line.x, line.points, strict=True) for y in values]
    axes.plot(
        *zip(*spots, strict=True), "o", markersize=2.2, color=color, fillstyle="none", mew=0.6
    )


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    figure.set_layout_engine("none")  # the layout is done, and takes longer than drawing
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})


def _slug(view: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in view.lower()).split()
    return "".join(f"-{word}" for word in words)
