"""Do the runs of a command: one with a bar, one on Flower, or many at the same time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rfa import lab
from rfa.cli.show import say
from rfa.lab.api.result import RunResult
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.settings.settings import Settings

if TYPE_CHECKING:
    from rfa.lab.report.exhibit import Exhibit
    from rfa.lab.report.gather import Result
    from rfa.lab.runs.sweep import Sweep


def do_run(task: Any, options: dict[str, Any], **how: Any) -> RunResult:
    """Do a run with the options of a command, and say if it was done before."""
    from rfa.lab.tracking.find import find_tracker  # noqa: PLC0415 most runs are not tracked

    began = _Began()
    watched = how.get("engine", "lab") == "lab"
    trackers = [find_tracker(text) for text in options.get("track") or ()]
    with contextlib.redirect_stdout(sys.stderr):  # the user's own code may print
        result = lab.run(
            task,
            out=options["out"],
            data_dir=options["data_dir"],
            workers=options["workers"],
            checkpoint_every=options["checkpoint_every"],
            fresh=options["fresh"],
            callbacks=[began, *trackers] if watched else [],
            progress=False if options["as_json"] else None,
            **how,
        )
    if watched and not began.seen:
        click.echo(f"{result.name} was done before: --fresh does it again", err=True)
    return result


class _Began(Callback):
    """Whether a run began, or was done before."""

    seen = False

    def on_begin(self, run: RunView) -> None:
        """The rounds begin, or resume."""
        del run
        self.seen = True


def do_runs(
    runs: list[Settings], out: Path, options: dict[str, Any], *, more: float = 0.0
) -> dict[str, str]:
    """Say how long runs take, and do them; return the problems of those that failed, by name.

    `more` is the number of seconds for the work after the runs.

    Raises:
        DataError: if a library that runs or pictures need is missing; the message says what to
            install.
    """
    from rfa.lab.api.many import run_many  # noqa: PLC0415 a single run does not need it

    names = ("data_dir", "fresh", "dry_run")
    how = {name: options[name] for name in names}
    problems = run_many(runs, out, jobs=options["jobs"] or 0, more=more, **how)
    if problems:
        count = f"{len(problems)} run{'s' if len(problems) > 1 else ''}"
        click.echo(f"{count} failed, for the reasons above; the others are done", err=True)
    return problems


def do_sweep(
    plan: Sweep,
    options: dict[str, Any],
    command: str,
    draw: Callable[..., Exhibit] | None = None,
    show: Callable[[Sequence[Result]], None] | None = None,
) -> None:
    """Do the runs of a sweep, save their exhibit, and say where; exit with 1 if some failed.

    Args:
        plan: the sweep.
        options: how to do the runs, and the folder of results.
        command: the command that does the same again.
        draw: makes the exhibit; by default `gather`.
        show: shows the results on the terminal, too.
    """
    from rfa.lab.report.gather import find_results, gather  # noqa: PLC0415 a single run draws none
    from rfa.lab.report.report import keep  # noqa: PLC0415
    from rfa.lab.runs.store import Store  # noqa: PLC0415
    from rfa.lab.runs.sweep import cells  # noqa: PLC0415

    runs, out = list(cells(plan)), options["out"]
    problems = do_runs([cell.settings for cell in runs], out, options)
    if not options["dry_run"]:
        with Store(out) as store:
            results = find_results(store, runs)
        absent = len(runs) - len(results)
        missing = [f"{absent} of {len(runs)} runs are not done"] if absent else []
        exhibit = (draw or gather)(plan, results, command=command, missing=missing)
        pictures = keep(exhibit, out)
        if show is not None:
            show(results)
        if not options.get("as_json"):
            for picture in pictures:
                say(f"Picture: {picture}")
            say(f"Page: rfa report --out {out}")
    if problems:
        sys.exit(1)
