"""Screens for progress: a terminal, a notebook, lines, or none."""

from __future__ import annotations

import html
import importlib
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PAUSE = 0.2
"""Seconds between two pictures in a notebook: each is a message to the browser."""


@dataclass(frozen=True)
class Shown:
    """The content of a bar.

    Attributes:
        label: the name of the work.
        done: the amount that is done.
        total: the total amount; None while it is unknown.
        count: the same in words.
        text: further text.
        mark: whether to print it as a line if there is no bar.
    """

    label: str
    done: float = 0.0
    total: float | None = None
    count: str = ""
    text: str = ""
    mark: bool = False


class Screen:
    """Shows nothing. Use it in a `with` block, at whose end a bar is gone."""

    def __enter__(self) -> Screen:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""

    def show(self, shown: Shown) -> None:
        """Show a bar as it is now."""

    def say(self, text: str) -> None:
        """Print a line that stays."""


class Lines(Screen):
    """Lines on standard error; for a bar only those that are marked, and only if it is wanted."""

    def __init__(self, *, bar: bool) -> None:
        self._bar = bar

    def show(self, shown: Shown) -> None:
        """Print a line if it is marked."""
        if self._bar and shown.mark:
            parts = (shown.label, shown.count, shown.text)
            self.say(", ".join(part for part in parts if part))

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)


class Terminal(Screen):
    """A live bar on standard error."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 most processes show nothing
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column  # noqa: PLC0415

        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # it alone is cut where narrow
        self._console = Console(stderr=True, markup=False, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True, min_width=7)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
            TextColumn("{task.fields[text]}", markup=False, table_column=rest),
            console=self._console,
            transient=True,
            expand=True,
        )
        self._bar = self._progress.add_task("", total=None, count="", text="")
        self._total: float | None = None

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._progress.stop()

    def show(self, shown: Shown) -> None:
        """Show a bar as it is now."""
        if shown.total != self._total:  # the time before does not tell how fast it goes
            self._total = shown.total
            self._progress.reset(self._bar, total=shown.total, completed=int(shown.done))
        self._progress.update(
            self._bar,
            description=shown.label,
            completed=shown.done,
            count=shown.count,
            text=shown.text,
        )
        self._progress.start()  # the first time, when there is something to show

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, soft_wrap=True)


class Picture:
    """A bar as a notebook shows it: HTML, and text where there is no browser."""

    def __init__(self, shown: Shown, left: float | None) -> None:
        parts = (shown.count, shown.text, "" if left is None else f"{clock(left)} left")
        self._text = ", ".join(part for part in (shown.label, *parts) if part)
        known = shown.total is not None
        value = f' value="{shown.done:g}" max="{shown.total:g}"' if known else ""
        rest = html.escape(", ".join(part for part in parts if part))
        self._html = (
            f"{html.escape(shown.label)} <progress{value}></progress> <small>{rest}</small>"
        )

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        """The bar in words."""
        return self._text


class Nothing:
    """An empty picture in the place of a bar that has ended."""

    def _repr_html_(self) -> str:
        return ""

    def __repr__(self) -> str:
        """No words."""
        return ""


class Notebook(Screen):
    """A bar below the cell of a notebook, without widgets."""

    def __init__(
        self, display: Callable[..., Any], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._display, self._now = display, now
        self._handle: Any = None
        self._last = -math.inf
        self._first: tuple[float, float] | None = None
        self._total: float | None = None

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._handle is not None:
            self._handle.update(Nothing())

    def show(self, shown: Shown) -> None:
        """Show the bar, unless it was shown a moment ago; new totals are always shown."""
        now = self._now()
        fresh = self._handle is None or shown.total is None or shown.total != self._total
        if not fresh and now - self._last < PAUSE:
            return
        if fresh:
            self._first = None if shown.total is None else (now, shown.done)
        self._last, self._total = now, shown.total
        picture = Picture(shown, self._left(shown, now))
        if self._handle is None:
            self._handle = self._display(picture, display_id=True)
        else:
            self._handle.update(picture)

    def say(self, text: str) -> None:
        """Print a line that stays, as the cell's own."""
        print(text, flush=True)

    def _left(self, shown: Shown, now: float) -> float | None:
        """The seconds that are left, at the pace since the total is known."""
        if self._first is None or shown.total is None:
            return None
        began, before = self._first
        done = shown.done - before
        return (shown.total - shown.done) * (now - began) / done if done > 0 else None


def choose_screen(progress: bool | None) -> Screen:
    """Where progress is shown.

    Args:
        progress: None shows a bar in a terminal or notebook, and elsewhere only lines that were to
            stay anyway; True prints a bar as lines there, too; False shows nothing.
    """
    if progress is False:
        return Screen()
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__):
        return Notebook(importlib.import_module("IPython.display").display)
    from rich.console import Console  # noqa: PLC0415 where nothing is shown, nothing is asked

    return Terminal() if Console(stderr=True).is_terminal else Lines(bar=progress is True)


def clock(seconds: float) -> str:
    """A number of seconds as a clock shows it.

    >>> clock(5), clock(75), clock(3675)
    ('0:05', '1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
