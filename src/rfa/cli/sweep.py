"""`rfa sweep`: a user's own experiment, many runs for one picture, from one TOML file."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rfa.cli.run import OUT, user_errors

many_runs = [
    click.option("-j", "--jobs", type=click.IntRange(1), help="Runs at once.  [default: cores]"),
    click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="The folder of data sets.  [default: RFA_DATA]",
    ),
    click.option("--fresh", is_flag=True, help="Do runs anew that are done already."),
    click.option("--dry-run", is_flag=True, help="Say how long it takes, and do nothing."),
]


def many_runs_options(command: Any) -> Any:
    """Give a command the options of how to do many runs."""
    for option in reversed(many_runs):
        command = option(command)
    return command


out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=OUT,
    show_default=True,
    help="The folder of results.",
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@out_option
@many_runs_options
def sweep(file: Path, out: Path, **options: Any) -> None:
    """Do the runs that FILE describes, several at once, and draw them.

    Runs that are done already are not done again, and interrupted ones go on. `rfa report` shows
    the results on one page. docs/reproduce.md has the form of the file.

    \b
      title = "My attack"
      x = "rho"
      values = [0.0, 0.1, 0.25]
      seeds = [1, 2, 3]
      [settings]
      task = "glyphs-linear"
      corruption = "mine:attack"
      calls = 60
      [[lines]]
      label = "RFA"
      aggregator = "rfa"
    """  # noqa: D301 click reads the backspace
    from rfa.lab.runs.sweep import cells, read_sweep  # noqa: PLC0415

    with user_errors():
        plan = read_sweep(file)
        runs = list(cells(plan))
        if not options["dry_run"]:
            need_lab()
        problems = do_runs([cell.settings for cell in runs], out, options)
        if not options["dry_run"]:
            _show(plan, runs, out, f"rfa sweep {shlex.quote(str(file))}")
    if problems:
        sys.exit(1)


def do_runs(
    runs: list[Any], out: Path, options: dict[str, Any], *, more: float = 0.0
) -> dict[str, str]:
    """Say how long runs take, and do them; the problems of those that failed, by name.

    Args:
        runs: the settings of the runs.
        out: the folder of results.
        options: how to do them.
        more: seconds for what comes after them.
    """
    from rfa.lab.runs.jobs import do_work, plan_work  # noqa: PLC0415
    from rfa.lab.runs.overview import Overview  # noqa: PLC0415
    from rfa.lab.runs.run import Options  # noqa: PLC0415

    how = Options(out, options["data_dir"], checkpoint_every=50, fresh=options["fresh"])
    work = plan_work(runs, how, options["jobs"] or 0)
    work = dataclasses.replace(work, seconds=work.seconds + more)
    with Overview(work) as overview:
        todo = work.todo and not options["dry_run"]
        problems = do_work(work, how, overview) if todo else {}
    if problems:
        count = f"{len(problems)} run{'s' if len(problems) > 1 else ''}"
        click.echo(f"{count} failed, for the reasons above; the others are done", err=True)
    return problems


def need_lab() -> None:
    """Refuse to begin what cannot be done or drawn without the lab.

    Raises:
        DataError: saying what to install.
    """
    from rfa.lab.datasets.dataset import lab_module  # noqa: PLC0415

    for name in ("threadpoolctl", "matplotlib"):
        lab_module(name)


def _show(plan: Any, runs: list[Any], out: Path, command: str) -> None:
    from rfa.lab.report.gather import find_results, gather  # noqa: PLC0415
    from rfa.lab.report.report import keep  # noqa: PLC0415
    from rfa.lab.runs.store import Store  # noqa: PLC0415

    with Store(out) as store:
        results = find_results(store, runs)
    absent = len(runs) - len(results)
    missing = [f"{absent} of {len(runs)} runs are not done"] if absent else []
    pictures = keep(gather(plan, results, command=command, missing=missing), out)
    console = Console(markup=False, highlight=False)
    for picture in pictures:
        console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"Page: rfa report --out {out}", soft_wrap=True)
