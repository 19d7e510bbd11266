"""Do runs for a command: one with a bar, one on Flower, or many at once."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from rfa.cli.show import say
from rfa.lab.datasets.cache import data_dir
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.on_flower.launch import LOCAL, Where, launch
from rfa.lab.report.exhibit import Exhibit
from rfa.lab.report.gather import Result, find_results, gather
from rfa.lab.report.report import keep
from rfa.lab.runs.callback import Callback
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.progress import choose_overview, choose_progress
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import JSON_COLUMNS, Store
from rfa.lab.runs.sweep import Sweep, cells
from rfa.lab.settings.settings import Settings


def do_run(
    settings: Settings,
    options: dict[str, Any],
    *,
    quiet: bool,
    label: str = "",
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Do a run with a progress bar, and return its row of the store."""
    how = Options(
        options["out"],
        options["data_dir"],
        options["workers"] or 0,
        options["checkpoint_every"],
        fresh=options["fresh"],
        rebuild=options["fresh"],
    )
    bar = choose_progress(label or settings.aggregator, progress=False if quiet else None)
    with bar, contextlib.redirect_stdout(sys.stderr):  # the user's own code may print
        row = run(settings, how, [bar, *callbacks])
    if not bar.began:
        click.echo(f"{row['run']} was done before: --fresh does it again", err=True)
    return row


def do_run_on_flower(settings: Settings, options: dict[str, Any]) -> dict[str, Any]:
    """Do a run on Flower, with its log on standard error, and return its row of the store."""
    federation, data = options["federation"] or LOCAL, options["data_dir"]
    where = Where(
        options["out"] / "flower",
        data_dir(data) if federation == LOCAL else data,
        federation,
        fresh=options["fresh"],
    )
    row = launch(settings, where, lambda line: click.echo(line, err=True))
    return row | {name: json.dumps(row[name]) for name in JSON_COLUMNS}


def do_runs(
    runs: list[Settings], out: Path, options: dict[str, Any], *, more: float = 0.0
) -> dict[str, str]:
    """Say how long runs take, and do them; return the problems of those that failed, by name.

    What comes after them takes so many seconds `more`.

    Raises:
        DataError: saying what to install, if what runs need or what draws them is missing.
    """
    if not options["dry_run"]:
        for name in ("threadpoolctl", "matplotlib"):
            lab_module(name)
    fresh = options["fresh"]
    how = Options(out, options["data_dir"], checkpoint_every=50, fresh=fresh, rebuild=fresh)
    work = plan_work(runs, how, options["jobs"] or 0)
    work = dataclasses.replace(work, seconds=work.seconds + more)
    with choose_overview(work) as overview:
        todo = work.todo and not options["dry_run"]
        problems = do_work(work, how, overview) if todo else {}
    if problems:
        count = f"{len(problems)} run{'s' if len(problems) > 1 else ''}"
        click.echo(f"{count} failed, for the reasons above; the others are done", err=True)
    return problems


def do_sweep(
    plan: Sweep,
    options: dict[str, Any],
    command: str,
    draw: Callable[..., Exhibit] = gather,
    show: Callable[[Sequence[Result]], None] | None = None,
) -> None:
    """Do the runs of a sweep, keep what they show, and say where it is; end with 1 if some failed.

    Args:
        plan: the sweep.
        options: how to do the runs, and the folder of results.
        command: what does the same again.
        draw: makes the exhibit, as `gather` does.
        show: shows the results on the terminal, too.
    """
    runs, out = list(cells(plan)), options["out"]
    problems = do_runs([cell.settings for cell in runs], out, options)
    if not options["dry_run"]:
        with Store(out) as store:
            results = find_results(store, runs)
        absent = len(runs) - len(results)
        missing = [f"{absent} of {len(runs)} runs are not done"] if absent else []
        pictures = keep(draw(plan, results, command=command, missing=missing), out)
        if show is not None:
            show(results)
        if not options.get("as_json"):
            for picture in pictures:
                say(f"Picture: {picture}")
            say(f"Page: rfa report --out {out}")
    if problems:
        sys.exit(1)
