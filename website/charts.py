"""Charts, from numbers that are committed on the pages themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rfa.lab.attacks.registry import NONE
from rfa.lab.report.arena import WORST
from website.arena import levels_of
from website.svg import BLUE, GRAY, GREEN, ORANGE, Picture

ROOT = Path(__file__).parents[1]
BOTTOM, MARGIN = 66, 16
LETTER = 0.57
"""The width of a letter over the size of its text, in the mean."""


@dataclass(frozen=True)
class Frame:
    """The size of a chart.

    Attributes:
        left: where its values begin.
        right: where they end.
        top: the height of the unit and the legend above it.
        height: its height, with the labels below it.
        value: the largest size of the number at a bar.
        label: the largest size of labels.
    """

    left: int = 56
    right: int = 744
    top: int = 52
    height: int = 330
    value: int = 12
    label: int = 13


WIDE = Frame()
NARROW = Frame(left=34, right=354, top=82, height=330, value=11, label=12)
"""For a phone."""


def read(path: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def bars(  # noqa: PLR0913
    title: str,
    unit: str,
    groups: Mapping[str, Sequence[float]],
    legend: Mapping[str, str],
    *,
    top: float,
    digits: int = 1,
    spans: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    frame: Frame = WIDE,
) -> Picture:
    """Groups of bars, with an interval on each bar of a group that `spans` has.

    The label of a group may have up to three lines, with a stroke between.
    """
    picture = _grid(title, unit, 0, top, frame)
    base = frame.height - BOTTOM
    plot = base - frame.top
    step = (frame.right - frame.left) / len(groups)
    each = min(58.0, step * 0.8 / len(legend))
    gap = min(2.0, each / 10)
    numbers = _size([f"{top:.{digits}f}"], 0.9 * each, frame.value)
    labels = _size([text for name in groups for text in name.split("/")], step, frame.label)
    for number, (name, values) in enumerate(groups.items()):
        middle = frame.left + step * (number + 0.5)
        for place, (value, color) in enumerate(zip(values, legend.values(), strict=True)):
            x = middle + each * (place - len(legend) / 2)
            tall = max(plot * min(value, top) / top, 1.5)
            picture.bar(x + gap, base - tall, each - 2 * gap, tall, color)
            if spans and name in spans:
                ends = [base - plot * end / top for end in spans[name][place]]
                picture.line([(x + each / 2, y) for y in ends], "currentColor", 1.5)
                tall = max(tall, base - min(ends))
            picture.text(x + each / 2, base - tall - 6, f"{value:.{digits}f}", size=numbers)
        for line, text in enumerate(name.split("/")):
            picture.text(middle, base + 22 + 17 * line, text, size=labels)
    _write_legend(picture, legend, frame)
    return picture


def _size(texts: Sequence[str], room: float, largest: int) -> int:
    """The size at which the longest of some texts fits."""
    return min(largest, int(room / (LETTER * max(map(len, texts)))))


def curves(  # noqa: PLR0913
    title: str,
    unit: str,
    labels: Sequence[str],
    lines: Mapping[str, tuple[str, Sequence[float]]],
    *,
    span: tuple[float, float],
    frame: Frame = WIDE,
) -> Picture:
    """Lines, each with a color, over labels at equal distances."""
    low, high = span
    picture = _grid(title, unit, low, high, frame)
    base = frame.height - BOTTOM
    step = (frame.right - frame.left) / len(labels)
    xs = [frame.left + step * (number + 0.5) for number in range(len(labels))]
    for x, label in zip(xs, labels, strict=True):
        picture.text(x, base + 22, label, size=_size(labels, step, frame.label))
    for color, values in lines.values():
        ys = [base - (base - frame.top) * (value - low) / (high - low) for value in values]
        points = list(zip(xs, ys, strict=True))
        picture.line(points, color)
        for point in points:
            picture.dot(*point, color, radius=4)
    _write_legend(picture, {name: color for name, (color, _) in lines.items()}, frame)
    return picture


def _grid(title: str, unit: str, low: float, high: float, frame: Frame) -> Picture:
    """An empty chart with five lines for its values."""
    picture = Picture(frame.right + MARGIN, frame.height, title)
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = frame.top + (frame.height - frame.top - BOTTOM) * (1 - share)
        picture.rule(frame.left, y, frame.right, y)
        text = f"{low + (high - low) * share:g}"
        picture.text(frame.left - 8, y + 5, text, anchor="end", size=12, soft=True)
    picture.text(12, 20, unit, anchor="start", size=13, soft=True)
    return picture


def _write_legend(picture: Picture, legend: Mapping[str, str], frame: Frame) -> None:
    """Write the names of the colors into the upper right corner, or below the unit."""
    if frame is NARROW:
        x, y = 12.0, 34
        for name, color in legend.items():
            wide = 6.9 * len(name) + 32
            if x + wide > frame.right + MARGIN:
                x, y = 12.0, y + 19
            picture.bar(x, y, 12, 12, color)
            picture.text(x + 18, y + 11, name, anchor="start", size=13)
            x += wide
        return
    x = float(frame.right)
    for name, color in reversed([*legend.items()]):
        picture.text(x, 21, name, anchor="end", size=13)
        x -= 6.9 * len(name) + 24
        picture.bar(x, 10, 12, 12, color)
        x -= 18


def draw_attacks(frame: Frame = WIDE) -> Picture:
    """Accuracy of FedAvg and RFA on Flower, by what three of ten nodes send."""
    rows = re.findall(
        r"^\| `(\w+)`: [^|]*\| ([\d.]+) \| ([\d.]+) \|$",
        read("examples/flower-emnist/README.md"),
        re.M,
    )
    labels = {
        "none": "honest/updates",
        "nan": "NaN",
        "huge": "1e8 times/their update",
        "omniscient": "what turns/the mean/around",
    }
    groups = {labels[name]: (float(fedavg), float(rfa)) for name, fedavg, rfa in rows}
    legend = {"FedAvg": ORANGE, "RFA": BLUE}
    title = "Accuracy after ten rounds when three of ten Flower nodes send wrong updates"
    return bars(title, "accuracy, %", groups, legend, top=80, frame=frame)


def draw_cost(frame: Frame = WIDE) -> Picture:
    """What a device sends, over what it sends under FedAvg in the clear."""
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\w+), R = \d \| \d+ \| [^|]+ \| [^|]+ \| ([\d.]+) \|$",
        read("docs/flower.md"),
        re.M,
    )
    sizes = {("100", "7850"): BLUE, ("10", "1000000"): GREEN}
    found = {(name, (nodes, dim)): float(cost) for nodes, dim, name, cost in rows}
    labels = {
        "SecureFedAvg": "SecureFedAvg/one sum",
        "OneStepRFA": "OneStepRFA/one sum",
        "RFA": "RFA/three sums",
    }
    groups: dict[str, Sequence[float]] = {"FedAvg/in the clear": (1.0, 1.0)}
    groups |= {text: [found[name, size] for size in sizes] for name, text in labels.items()}
    legend = {"100 nodes, 7,850 parameters": BLUE, "10 nodes, 1,000,000 parameters": GREEN}
    title = "Upload of a device in a round, relative to FedAvg in the clear"
    unit = "upload, times FedAvg's"
    return bars(title, unit, groups, legend, top=4, digits=2, frame=frame)


def draw_study(frame: Frame = WIDE) -> Picture:
    """The result of the tutorial: accuracy by aggregator and rho."""
    rows = re.findall(
        r"^(fedavg|rfa) +rho ([\d.]+): ([\d.]+)$", read("docs/tutorials/first-experiment.md"), re.M
    )
    found = {(name, float(rho)): 100 * float(value) for name, rho, value in rows}
    groups = {
        label: [found[name, rho] for name in ("fedavg", "rfa")]
        for label, rho in (("no corruption", 0.0), ("a quarter of the data/corrupted", 0.25))
    }
    title = "Test accuracy of FedAvg and RFA, without and with corrupted data"
    legend = {"FedAvg": ORANGE, "RFA": BLUE}
    return bars(title, "test accuracy, %", groups, legend, top=100, digits=0, frame=frame)


def draw_arena(frame: Frame = WIDE) -> Picture:
    """The worst case of some defenses on Sent140, at two levels of corruption."""
    levels = levels_of("arena-linear")["sent140-linear"][:2]
    shown = {
        "fedavg": "FedAvg",
        "rfa": "RFA",
        "rfa-one-step": "one-step/RFA",
        "centered-clipping": "centered/clipping",
        "coordinate-median": "coordinate/median",
        "trimmed-mean": "trimmed/mean",
        "multi-krum": "multi-/Krum",
    }
    clean, *worst = levels[0].heights(NONE), *(bout.heights(WORST) for bout in levels)
    groups = {
        label: [heights[name] for heights in (clean, *worst)] for name, label in shown.items()
    }
    legend = {"no corruption": GREEN, "a tenth of the data": BLUE, "a quarter": ORANGE}
    title = "Sent140: accuracy without corruption and in the worst of 16 attacks"
    return bars(title, "accuracy, %", groups, legend, top=80, digits=0, frame=frame)


def draw_epsilon(frame: Frame = WIDE) -> Picture:
    """Accuracy on Sent140 against epsilon, with few and with many devices per round."""
    text = read("docs/privacy-results.md")
    lines: dict[str, tuple[str, Sequence[float]]] = {}
    for devices, dim, bright in ((50, GRAY, ORANGE), (500, GREEN, BLUE)):
        rows = re.search(
            rf"^\| {devices}, none \| FedAvg, clipped \| (.+) \|\n\| \| one-step RFA \| (.+) \|$",
            text,
            re.M,
        )
        if rows is None:
            msg = f"docs/privacy-results.md has no rows for {devices} devices: adapt draw_epsilon"
            raise ValueError(msg)
        for name, color, row in (("FedAvg", dim, rows[1]), ("one-step RFA", bright, rows[2])):
            values = [float(value) for value in row.split(" | ")]
            lines[f"{name}, {devices}"] = (color, values)
    labels = ("epsilon 1", "2", "4", "8", "16", "no noise")
    title = "Sent140: accuracy against epsilon, with 50 and with 500 devices per round"
    return curves(title, "accuracy, %", labels, lines, span=(56, 68), frame=frame)
