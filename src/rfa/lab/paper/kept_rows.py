"""Rows of the CSV files that numbers are kept in; a file that is damaged is refused.

Floats are written so that they are read to the bit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rfa._files import replace_file
from rfa.lab.errors import LabError

Row = TypeVar("Row")


class NumbersError(LabError):
    """A file of numbers cannot be read."""


def damaged(path: Path, why: object) -> NumbersError:
    """Return the error that names a damaged file, its fault, and the remedy."""
    return NumbersError(f"{path} cannot be read as numbers: restore it from the repository ({why})")


def read_rows(path: Path, convert: Callable[[Mapping[str, str]], Row]) -> list[Row]:
    """Return the rows of a file, each converted.

    Raises:
        NumbersError: naming the file and the mistake. A file that ends within a line is refused,
            too: its last number would be another.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [
                convert(row) for row in csv.DictReader(_whole(stream), strict=True) if _full(row)
            ]
    except OSError as error:
        msg = f"there are no numbers to read in {path.parent}: {error.strerror} ({path.name})"
        raise NumbersError(msg) from None
    except KeyError as error:
        raise damaged(path, f"it has no column {error}") from None
    except (csv.Error, ValueError, TypeError) as error:
        raise damaged(path, error) from None


def _whole(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines; there must be one, and the last must have its end."""
    line = ""
    for line in lines:
        yield line
    if not line.endswith("\n"):
        msg = "its last line is cut off" if line else "it is empty"
        raise ValueError(msg)


def _full(row: Mapping[str | None, object]) -> bool:
    """Refuse a row that has not as many columns as the head."""
    if None in row or None in row.values():
        msg = f"a row has too {'many' if None in row else 'few'} columns"
        raise ValueError(msg)
    return True


def write_rows(path: Path, head: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to a file, those columns of them that are in the head."""
    with replace_file(path) as file:
        for row in ({name: name for name in head}, *rows):
            texts = [as_text(row[name]) for name in head]
            file.write((",".join(map(_quoted, texts)) + "\n").encode())


def as_text(value: Any) -> str:
    """Return a value as it is written; nothing for None."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    needed = any(sign in text for sign in ',"\n\r')
    return '"' + text.replace('"', '""') + '"' if needed else text
