"""The pictures of a page: their frames as HTML, and the data that its script draws in them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from rfa.lab.report.exhibit import Exhibit, Line, Panel, group
from rfa.lab.report.style import COLORS, looks
from rfa.lab.runs.statistics import mean_interval

MARKS = (
    "m-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",  # disc
    "m-3.2,-3.2h6.4v6.4h-6.4z",  # square
    "m0,-4.4l4.2,7.4h-8.4z",  # triangle
    "m0,-4.8l4.2,4.8l-4.2,4.8l-4.2,-4.8z",  # diamond
    "m0,4.4l4.2,-7.4h-8.4z",  # triangle on its head
    "m-3.2,-3.2l6.4,6.4m0,-6.4l-6.4,6.4",  # cross
    "m0,-4.2v8.4m-4.2,-4.2h8.4",  # plus
)
DASHES = ("7 4", "2 3", "10 3 2 3", "4 2")
"""Patterns of bounds; measurements are solid."""
TOOLS = {
    "reset": ("Reset the zoom", "M3.5 8a4.5 4.5 0 1 0 1.6-3.4M3 2.5v3.2h3.2"),
    "in": ("Zoom in", "M8 3v10M3 8h10"),
    "out": ("Zoom out", "M3 8h10"),
    "svg": ("Save the picture (SVG)", "M8 2v8M4.5 6.5L8 10l3.5-3.5M3 13h10"),
    "csv": ("Save the numbers (CSV)", "M3 3h10v10H3zM3 7h10M7 3v10"),
    "expand": ("Show large", "M9.5 3H13v3.5M6.5 13H3V9.5M13 3L9 7M3 13l4-4"),
}
"""The tools of a panel, and their icons."""


def paragraph(kind: str, text: str) -> str:
    """Return a paragraph; empty if there is no text."""
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""


def pictures(exhibit: Exhibit, name: str) -> str:
    """Return the pictures without their lines, which the script draws."""
    if not exhibit.panels:
        return ""
    styles = _styles(exhibit)
    views = group(enumerate(exhibit.panels), lambda numbered: numbered[1].view)
    parts = [_chooser(views, name) if len(views) > 1 else ""]
    for view, numbered in views.items():
        panels = [panel for _, panel in numbered]
        kind = "view" if len(parts) == 1 else "view other"
        figures = "\n".join(_figure(panel, number, name) for number, panel in numbered)
        parts.append(
            f'<div class="{kind}">{paragraph("view-title", view)}{_legend(panels, styles)}'
            f'{_switches(panels)}{_reading(panels)}<div class="grid">{figures}</div>'
            f"{paragraph('caption', caption(exhibit, panels))}</div>"
        )
    large = (
        '<dialog aria-label="One panel"><button type="button" class="shut">Close</button></dialog>'
    )
    return f'<div class="pictures">{"".join(parts)}{large}</div>'


def _chooser(views: Iterable[str], name: str) -> str:
    """Return the choice between several pictures."""
    entries = "".join(
        f'<label><input type="radio" name="{name}-view" value="{number}"'
        f"{'' if number else ' checked'}><span>{escape(view or 'main')}</span></label>"
        for number, view in enumerate(views)
    )
    return f'<fieldset class="chooser"><legend>Show</legend>{entries}</fieldset>'


def _legend(panels: Iterable[Panel], styles: Mapping[str, _Style]) -> str:
    """Return a button for each line of a picture."""
    dashed = {line.label: line.dashed for panel in panels for line in panel.lines}
    entries = "".join(
        f'<button type="button" aria-pressed="true" data-label="{escape(label)}">'
        f"{_swatch(styles[label], dashed=bound)}<span>{escape(label)}</span></button>"
        for label, bound in dashed.items()
    )
    return f'<div class="legend" role="group" aria-label="Lines">{entries}</div>'


def _swatch(style: _Style, *, dashed: bool) -> str:
    dash = f' stroke-dasharray="{style.dash}"' if dashed else ""
    mark = "" if dashed else f'<path class="mark" d="M13,7{style.mark}"/>'
    return (
        f'<svg class="swatch c{style.color}" viewBox="0 0 26 14" aria-hidden="true">'
        f'<path class="line" d="M1,7H25"{dash}/>{mark}</svg>'
    )


def _switches(panels: Sequence[Panel]) -> str:
    """Return the switches: intervals instead of bands, single seeds, a logarithmic axis."""
    entries = {"log": "logarithmic"}
    if any(line.points for panel in panels for line in panel.lines):
        entries = {"interval": "95 % interval", "points": "single seeds"} | entries
    logs = all(panel.log_y for panel in panels)
    boxes = "".join(
        f'<label><input type="checkbox" class="{kind}"{_checked(kind, logs=logs)}>{words}</label>'
        for kind, words in entries.items()
    )
    return f'<div class="switches" role="group" aria-label="How to show it">{boxes}</div>'


def _checked(kind: str, *, logs: bool) -> str:
    return " checked" if kind == "points" or (kind == "log" and logs) else ""


def caption(exhibit: Exhibit, panels: Sequence[Panel]) -> str:
    """Return the caption of a figure, with enough to quote it alone."""
    where = f" (after the paper's {exhibit.paper})" if exhibit.paper else ""
    axes = "; ".join(dict.fromkeys(f"{each.y_label} by {each.x_label}" for each in panels))
    notes = group([panel for panel in panels if panel.note], lambda panel: panel.note)
    parts = [f"{exhibit.title}{where}: {axes}", _bands(panels).rstrip(".")]
    for note, same in notes.items():
        titles = ", ".join(panel.title for panel in same)
        parts.append(f"{titles}: {note}" if len(notes) > 1 else note)
    parts += [f"Data: {'; '.join(exhibit.data)}"] if exhibit.data else []
    return ". ".join(filter(None, parts)) + "."


def _bands(panels: Iterable[Panel]) -> str:
    """Return the number of seeds behind a line, and the meaning of its band."""
    lines = [line for panel in panels for line in panel.lines]
    seeds = max((line.seeds for line in lines), default=1)
    if seeds == 1:
        return ""
    up_to = "" if all(line.seeds == seeds for line in lines) else "up to "
    return f"Lines are means of {up_to}{seeds} seeds; bands reach from the lowest to the highest."


def _reading(panels: Sequence[Panel]) -> str:
    """Return how to read lines and bands."""
    lines = [line for panel in panels for line in panel.lines]
    words = [_bands(panels)] if _bands(panels) else []
    if any(line.dashed for line in lines):
        words.append("Broken lines are bounds or references.")
    return paragraph("reading", " ".join(words))


def _figure(panel: Panel, number: int, name: str) -> str:
    """Return the frame of a panel, with its notes and its own address."""
    notes = [panel.note, *(f"{line.label}: {line.note}" for line in panel.lines if line.note)]
    tools = "".join(
        f'<button type="button" class="{kind}" aria-label="{words}" title="{words}">'
        f'<svg viewBox="0 0 16 16" aria-hidden="true"><path d="{sign}"/></svg></button>'
        for kind, (words, sign) in TOOLS.items()
    )
    keys = f"{panel.title}: arrow keys read values, plus and minus zoom, 0 resets"
    return (
        f'<figure class="panel" id="{name}-{number + 1}"><figcaption>'
        f'<h3><a href="#{name}-{number + 1}">{escape(panel.title)}</a></h3>'
        f'<div class="tools">{tools}</div></figcaption>'
        f'<div><div class="chart" tabindex="0" role="group" aria-label="{escape(keys)}"'
        f' data-panel="{number}"><svg role="img" aria-label="{escape(_summary(panel))}"></svg>'
        f'<div class="tip" hidden></div></div>'
        f"{''.join(paragraph('note', note) for note in notes)}</div></figure>"
    )


def _summary(panel: Panel) -> str:
    """Return a panel in a sentence, for readers who cannot see it."""
    ends = "; ".join(f"{line.label} {_ends(line, panel.ticks)}" for line in panel.lines)
    return f"{panel.title}. {panel.y_label} by {panel.x_label}. {ends}."


def _ends(line: Line, ticks: Sequence[str]) -> str:
    known = [(x, y) for x, y in zip(line.x, line.mean, strict=True) if math.isfinite(y)]
    ends = known if len(known) < 2 else [known[0], known[-1]]  # noqa: PLR2004
    places = [ticks[int(x)] if x in range(len(ticks)) else f"{x:.6g}" for x, _ in ends]
    words = [f"{y:.4g} at {place}" for (_, y), place in zip(ends, places, strict=True)]
    return f"is {' and '.join(words)}" if words else "has no values"


def panel_data(exhibits: Iterable[Exhibit]) -> str:
    """Return the panels of each exhibit as JSON that cannot end its HTML element."""
    panels = [[_panel(panel, _styles(exhibit)) for panel in exhibit.panels] for exhibit in exhibits]
    text = json.dumps(panels, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _panel(panel: Panel, styles: Mapping[str, _Style]) -> dict[str, Any]:
    return {
        "title": panel.title,
        "xLabel": panel.x_label,
        "yLabel": panel.y_label,
        "ticks": list(panel.ticks),
        "logX": panel.log_x,
        "logY": panel.log_y,
        "lines": [_line(line, styles[line.label]) for line in panel.lines],
    }


def _line(line: Line, style: _Style) -> dict[str, Any]:
    heights = {"mean": line.mean, "low": line.low, "high": line.high}
    ends = [mean_interval(values) for values in line.points]
    heights |= {"from": [end.low for end in ends], "to": [end.high for end in ends]}
    return {
        "label": line.label,
        "color": style.color,
        "mark": style.mark,
        "dash": style.dash if line.dashed else "",
        "x": [_finite(x) for x in line.x],
        # six digits are more than can be seen
        **{key: _heights(ys) for key, ys in heights.items()},
        "points": [_heights(values) for values in line.points],
    }


def _heights(values: Sequence[float]) -> list[float | None]:
    return [_finite(float(f"{value:.6g}")) for value in values]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


class _Style(NamedTuple):
    """The look of a label; the color is never the only difference."""

    color: int
    mark: str
    dash: str


def _styles(exhibit: Exhibit) -> dict[str, _Style]:
    """Return a style for each label, the same in all panels."""
    return {
        label: _Style(n % len(COLORS), MARKS[n % len(MARKS)], DASHES[n % len(DASHES)])
        for label, n in looks(exhibit).items()
    }
