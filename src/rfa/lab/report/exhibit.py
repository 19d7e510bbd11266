"""What is shown of an experiment, apart from how: lines, matrices, tables, and their origin.

Whoever measures makes an `Exhibit`; whoever draws (`draw`, `html`, `markdown`) knows nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from rfa._files import replace_file
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.lab.errors import LabError

Value: TypeAlias = str | float | int | None


@dataclass(frozen=True)
class Line:
    """One line: the mean over seeds, and the band from the lowest to the highest.

    Attributes:
        label: its name in the legend.
        x: where it is known.
        mean: its height there.
        low: the lowest seed there.
        high: the highest seed there.
        seeds: over how many seeds.
        note: what a reader should know of it, such as runs that diverged.
        dashed: whether it is a bound or a reference and not a measurement.
    """

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    seeds: int = 1
    note: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One part of a picture.

    Attributes:
        title: its title.
        x_label: the name of its horizontal axis.
        y_label: the name of its vertical axis.
        lines: its lines.
        view: panels of the same view belong to the same picture; an exhibit can have several.
        ticks: names of the places 0, 1, ... on the horizontal axis, where it has no numbers.
        log_x: whether the horizontal axis is logarithmic.
        log_y: whether the vertical axis is logarithmic.
        note: the horizon, and the data used.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    view: str = ""
    ticks: Sequence[str] = ()
    log_x: bool = False
    log_y: bool = False
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One place of a matrix.

    Attributes:
        value: its number; NaN where it is not known.
        mark: a sign beside the number, such as that of a run that diverged.
        note: what a reader should know of it.
        best: whether it leads its row.
    """

    value: float
    mark: str = ""
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class Matrix:
    """A table whose numbers are colors, too.

    Attributes:
        title: its title.
        label: what the numbers are.
        rows: the names of the rows.
        columns: the names of the columns.
        entries: row by row, one for each column.
        groups: the group of each column; columns of a group stand together.
        summary: how many of the last rows sum up the others.
        view: matrices of the same view belong to the same picture, and share its colors.
        note: what the marks mean, the horizon, and what comes out.
    """

    title: str
    label: str
    rows: Sequence[str]
    columns: Sequence[str]
    entries: Sequence[Sequence[Entry]]
    groups: Sequence[str] = ()
    summary: int = 0
    view: str = ""
    note: str = ""

    @property
    def table(self) -> Table:
        """The numbers alone."""
        rows: list[list[Value]] = [
            [name, *(entry.value if math.isfinite(entry.value) else None for entry in entries)]
            for name, entries in zip(self.rows, self.entries, strict=True)
        ]
        return Table(f"{self.title}: {self.label}", ["", *self.columns], rows)


@dataclass(frozen=True)
class Table:
    """A table: numbers as numbers, so that whoever shows it decides about digits."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True)
class Exhibit:
    """An experiment to be shown.

    Attributes:
        name: its name on the command line.
        title: its title.
        claim: what it should show.
        paper: where the paper has it; empty for a user's own.
        panels: the parts of its pictures.
        matrices: the matrices, which are pictures of their own.
        tables: its tables.
        command: the command that made it.
        scale: how much of it was done, in words.
        data: the data used, one sentence for each data set.
        missing: what could not be shown, and what to do about it.
        order: its place among others.
    """

    name: str
    title: str
    claim: str = ""
    paper: str = ""
    panels: Sequence[Panel] = ()
    matrices: Sequence[Matrix] = ()
    tables: Sequence[Table] = ()
    command: str = ""
    scale: str = ""
    data: Sequence[str] = ()
    missing: Sequence[str] = ()
    order: int = 0

    @property
    def views(self) -> list[str]:
        """The pictures, in order."""
        return list(dict.fromkeys(part.view for part in (*self.panels, *self.matrices)))


class ExhibitError(LabError):
    """A file of results to show cannot be read."""


def save(exhibit: Exhibit, path: Path) -> None:
    """Write an exhibit as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(exhibit), indent=1, ensure_ascii=False, allow_nan=False)
    with replace_file(path) as file:
        file.write(f"{text}\n".encode())


def load(path: Path) -> Exhibit:
    """The exhibit in a JSON file.

    Raises:
        ExhibitError: naming the file.
    """
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f"{path} cannot be read as results to show: delete it, and make it anew ({error})"
        raise ExhibitError(msg) from None


def to_json(exhibit: Exhibit) -> dict[str, Any]:
    """An exhibit as JSON can hold it: numbers that are not finite become null."""
    return cast("dict[str, Any]", _plain(dataclasses.asdict(exhibit)))


def from_json(values: Mapping[str, Any]) -> Exhibit:
    """The exhibit that `to_json` was given, with NaN for null heights."""
    panels = [
        Panel(**panel | {"lines": [_line(line) for line in panel["lines"]]})
        for panel in values["panels"]
    ]
    parts = {
        "panels": panels,
        "matrices": [_matrix(matrix) for matrix in values["matrices"]],
        "tables": [Table(**table) for table in values["tables"]],
    }
    whole: dict[str, Any] = {**values, **parts}
    exhibit = Exhibit(**whole)
    _check(exhibit)
    return exhibit


def _check(exhibit: Exhibit) -> None:
    """Refuse what the types promise but a file need not keep."""
    texts: list[Any] = [exhibit.name, exhibit.title, exhibit.claim, exhibit.paper]
    texts += [exhibit.command, exhibit.scale, *exhibit.data, *exhibit.missing]
    for panel in exhibit.panels:
        texts += [panel.title, panel.x_label, panel.y_label, panel.view, panel.note, *panel.ticks]
        texts += [text for line in panel.lines for text in (line.label, line.note)]
    for matrix in exhibit.matrices:
        texts += [matrix.title, matrix.label, matrix.view, matrix.note]
        texts += [*matrix.rows, *matrix.columns, *matrix.groups]
        texts += [text for row in matrix.entries for one in row for text in (one.mark, one.note)]
    if not all(isinstance(text, str) for text in texts):
        msg = "something is no text that should be"
        raise InvalidTypeError(msg)
    lines = [line for panel in exhibit.panels for line in panel.lines]
    sizes = [{len(line.x), len(line.mean), len(line.low), len(line.high)} for line in lines]
    sizes += [{len(table.head), *map(len, table.rows)} for table in exhibit.tables]
    for matrix in exhibit.matrices:
        sizes += [{len(matrix.rows), len(matrix.entries)}]
        sizes += [{len(matrix.columns), *map(len, matrix.entries)}]
        sizes += [{len(matrix.columns), len(matrix.groups) or len(matrix.columns)}]
    if any(len(size) > 1 for size in sizes):
        msg = "a line, a matrix or a table is not as long everywhere"
        raise InvalidValueError(msg)


def _line(values: Mapping[str, Any]) -> Line:
    numbers: dict[str, Any] = {
        name: [_number(value) for value in values[name]] for name in ("x", "mean", "low", "high")
    }
    return Line(**{**values, **numbers})


def _matrix(values: Mapping[str, Any]) -> Matrix:
    entries = [
        [Entry(**one | {"value": _number(one["value"])}) for one in row]
        for row in values["entries"]
    ]
    whole: dict[str, Any] = {**values, "entries": entries}
    return Matrix(**whole)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        named = cast("dict[str, Any]", value)
        return {key: _plain(entry) for key, entry in named.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in cast("Sequence[Any]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


@dataclass(frozen=True)
class Spread:
    """Values of several seeds at one place, in brief."""

    values: Sequence[float] = field(default_factory=list[float])

    @property
    def mean(self) -> float:
        """Their mean."""
        return math.fsum(self.values) / len(self.values) if self.values else math.nan

    @property
    def low(self) -> float:
        """The lowest."""
        return min(self.values, default=math.nan)

    @property
    def high(self) -> float:
        """The highest."""
        return max(self.values, default=math.nan)
