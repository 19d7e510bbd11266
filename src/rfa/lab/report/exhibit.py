"""The exhibit of an experiment: lines, matrices, tables, and their origin.

Code that measures makes an `Exhibit`; code that draws (`draw`, `html`, `markdown`) uses nothing
else.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from rfa._files import replace_file
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.lab.errors import LabError

FEW = 10
"""Up to this number of seeds can be shown one by one."""
Value: TypeAlias = str | float | int | None
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """The values of several seeds at one place."""

    values: Sequence[float] = ()

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


@dataclass(frozen=True)
class Line:
    """One line: the mean over seeds, and the band from the lowest to the highest."""

    label: str  # its name in the legend
    x: Sequence[float]  # the places of its values
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    seeds: int = 1
    note: str = ""  # a note for the reader, such as runs that diverged
    dashed: bool = False  # whether it is a bound or a reference and not a measurement
    points: Sequence[Sequence[float]] = ()  # the values of single seeds at each place, if shown

    @classmethod
    def over_seeds(
        cls, label: str, x: Sequence[float], spreads: Sequence[Spread], note: str = ""
    ) -> Line:
        """Return the line through the values of several seeds."""
        mean = [spread.mean for spread in spreads]
        low, high = [spread.low for spread in spreads], [spread.high for spread in spreads]
        seeds = max((len(spread.values) for spread in spreads), default=1)
        few = 1 < seeds <= FEW
        points = [list(spread.values) for spread in spreads] if few else []
        return cls(label, x, mean, low, high, seeds, note, points=points)

    @classmethod
    def flat(
        cls, label: str, x: Sequence[float], heights: Sequence[float], *, dashed: bool = False
    ) -> Line:
        """Return a line without a band."""
        return cls(label, x, heights, heights, heights, dashed=dashed)


@dataclass(frozen=True)
class Panel:
    """One part of a picture."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    view: str = ""  # panels of the same view belong to the same picture
    ticks: Sequence[str] = ()  # names of the places 0, 1, ... where the axis has no numbers
    log_x: bool = False
    log_y: bool = False
    note: str = ""  # the horizon, and the data used


@dataclass(frozen=True)
class Entry:
    """One place of a matrix."""

    value: float  # NaN if it is unknown
    mark: str = ""  # a sign beside the number, such as that of a run that diverged
    note: str = ""  # what a reader should know of it
    best: bool = False  # whether it leads its row


@dataclass(frozen=True)
class Matrix:
    """A table whose numbers are also colors."""

    title: str
    label: str  # what the numbers are
    rows: Sequence[str]
    columns: Sequence[str]
    entries: Sequence[Sequence[Entry]]  # row by row, one for each column
    groups: Sequence[str] = ()  # the group of each column; columns of a group stand together
    summary: int = 0  # how many of the last rows sum up the others
    view: str = ""  # matrices of the same view belong to the same picture, and share its colors
    note: str = ""  # what the marks mean, the horizon, and what comes out

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
    """A table with numbers as numbers; the code that shows it decides about digits."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True)
class Exhibit:
    """An experiment to be shown."""

    name: str  # its name on the command line
    title: str
    claim: str = ""  # what it should show
    paper: str = ""  # where the paper has it; empty for a user's experiment
    panels: Sequence[Panel] = ()
    matrices: Sequence[Matrix] = ()
    tables: Sequence[Table] = ()
    command: str = ""  # the command that made it
    scale: str = ""  # how much of it was done, in words
    data: Sequence[str] = ()  # the data used, one sentence for each data set
    missing: Sequence[str] = ()  # what could not be shown, and what to do about it
    order: int = 0  # its place among others
    settings: str = ""  # the files that describe it, as text
    origins: Sequence[str] = ()  # the code, libraries and machines behind its runs
    describes: bool = False  # whether the claim only says what is shown
    absent: Sequence[str] = ()  # lines that should be there, and have no run

    @property
    def caption(self) -> str:
        """The claim, which is the paper's where the paper has the exhibit, and no finding."""
        told = self.claim and self.paper and not self.describes
        return f"The paper's claim: {self.claim}" if told else self.claim

    @property
    def views(self) -> list[str]:
        """The pictures, in order."""
        return list(dict.fromkeys(part.view for part in (*self.panels, *self.matrices)))

    @property
    def all_tables(self) -> list[Table]:
        """The numbers of the matrices, and the tables."""
        return [*(matrix.table for matrix in self.matrices), *self.tables]


class ExhibitError(LabError):
    """A file of results to show cannot be read."""


def save(exhibit: Exhibit, path: Path) -> None:
    """Write an exhibit as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(exhibit), indent=1, ensure_ascii=False, allow_nan=False)
    with replace_file(path) as file:
        file.write(f"{text}\n".encode())


def load(path: Path) -> Exhibit:
    """Return the exhibit in a JSON file.

    Raises:
        ExhibitError: if it cannot be read; the message names the file.
    """
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f"{path} cannot be read as results to show: delete it, and make it again ({error})"
        raise ExhibitError(msg) from None


def to_json(exhibit: Exhibit) -> dict[str, Any]:
    """Return an exhibit as values for JSON; numbers that are not finite become null."""
    return _plain(dataclasses.asdict(exhibit))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(values: Mapping[str, Any]) -> Exhibit:
    """Return the exhibit from the values of `to_json`, with NaN for null heights.

    Raises:
        InvalidTypeError: if a value has the wrong type.
        InvalidValueError: if the parts of a line, a matrix or a table differ in length.
    """
    exhibit: Exhibit = _read(Exhibit, {"matrices": [], **values})
    lines = [line for panel in exhibit.panels for line in panel.lines]
    sizes = [{len(line.x), len(line.mean), len(line.low), len(line.high)} for line in lines]
    sizes += [{len(line.points), len(line.x)} for line in lines if line.points]
    sizes += [{len(table.head), *map(len, table.rows)} for table in exhibit.tables]
    for matrix in exhibit.matrices:
        width = len(matrix.columns)
        sizes += [{len(matrix.rows), len(matrix.entries)}]
        sizes += [{width, len(matrix.groups) or width, *map(len, matrix.entries)}]
    if any(len(size) > 1 for size in sizes):
        msg = "the parts of a line, a matrix or a table differ in length"
        raise InvalidValueError(msg)
    return exhibit


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value in the type of its annotation; null among floats is NaN."""
    if dataclasses.is_dataclass(kind):
        kinds = get_type_hints(kind)
        entries = {name: _read(kinds[name], entry) for name, entry in value.items()}
        return cast("type[Any]", kind)(**entries)
    if get_origin(kind) is Sequence:
        return [_read(get_args(kind)[0], entry) for entry in value]
    if kind is float:
        return math.nan if value is None else float(value)
    if not isinstance(value, kind):
        msg = f"{value!r} is no {'text' if kind is str else kind}"
        raise InvalidTypeError(msg)
    return value


def group(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items of each key, with keys and items in their first order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
