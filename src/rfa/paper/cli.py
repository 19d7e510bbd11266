"""`rfa reproduce`: every figure and table of the paper, by one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rfa.experiments.cli import user_errors
from rfa.experiments.sweep_cli import do_runs, many_runs_options


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", "scale", flag_value="quick", help="A small version of all of it.")
@click.option("--full", "scale", flag_value="full", help="The paper's own setting.")
@click.option("--scale", "scale", default="short", help="A scale of experiments/scales.toml.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of results.  [default: out/SCALE]",
)
@many_runs_options
@click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder with experiments of your own, and scales.toml.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a Markdown page with all results, too, and its pictures beside it.",
)
@click.option("--list", "listing", is_flag=True, help="List the experiments.")
def reproduce(names: tuple[str, ...], scale: str, **options: Any) -> None:
    """Reproduce the paper: all of its figures and tables, or those NAMED.

    Runs that are done already are not done again, and interrupted ones go on. Pictures, tables and
    one page that shows them all go to the folder of results. Where data is missing it says what to
    get; with --quick, drawn characters stand in for it.
    """
    from rfa.paper.reproduce import PLACES, find_experiments  # noqa: PLC0415

    with user_errors():
        places = [options["folder"]] if options["folder"] else PLACES
        experiments = find_experiments(names, scale, options["data_dir"], places)
        if options["listing"]:
            for experiment in experiments:
                about = experiment.plan.get("paper", "Theorem 1, thm:rfa:convergence")
                click.echo(f"{experiment.name:<16} {about}")
            return
        problems = _do(experiments, scale, options)
    if problems:
        sys.exit(1)


def _do(experiments: list[Any], scale: str, options: dict[str, Any]) -> dict[str, str]:
    from rfa.paper.reproduce import all_runs  # noqa: PLC0415

    out = options["out"] or Path("out") / scale
    problems = do_runs(list(all_runs(experiments)), out, options)
    if not options["dry_run"]:
        _show(experiments, out, scale, options["page"], fresh=options["fresh"])
    return problems


def _show(experiments: list[Any], out: Path, scale: str, page: Path | None, *, fresh: bool) -> None:
    """Write pictures and numbers of each experiment, and the page of all."""
    from rfa.experiments.estimate import in_words  # noqa: PLC0415
    from rfa.paper.page import collect, statements, write_page  # noqa: PLC0415
    from rfa.report.report import keep, write_report  # noqa: PLC0415

    console = Console(markup=False, highlight=False)
    flag = {"short": "", "quick": " --quick", "full": " --full"}.get(scale, f" --scale {scale}")
    shown: list[Any] = []
    for experiment in experiments:
        exhibit = _done(experiment, out, fresh=fresh)
        if exhibit is None:
            if experiment.seconds:
                console.print(f"{experiment.name}: {in_words(experiment.seconds)} more")
            exhibit = experiment.show(out, f"rfa reproduce {experiment.name}{flag}")
        pictures = keep(exhibit, out)
        shown.append((exhibit, pictures))
        where = ", ".join(str(path) for path in pictures) or "a table"
        console.print(f"{experiment.name:<16} {where}", soft_wrap=True)
    exhibits = [exhibit for exhibit, _ in shown]
    problems = [text.partition(": ") for exhibit in exhibits for text in exhibit.missing]
    for problem in dict.fromkeys(problem or text for text, _, problem in problems):
        console.print(f"Missing: {problem}", soft_wrap=True)
    verdicts = statements(collect(experiments, exhibits, out))
    keep(verdicts, out)
    if page:
        write_page(page, shown, verdicts.tables[0], exhibits[0].scale)
        console.print(f"Page: {page}", soft_wrap=True)
    console.print(f"Report: {write_report(out)}", soft_wrap=True)


def _done(experiment: Any, out: Path, *, fresh: bool) -> Any:
    """What was shown before of an experiment that takes time itself, if it is still right."""
    from rfa.report.report import find_exhibits, known_exhibits  # noqa: PLC0415

    if fresh or not experiment.seconds or experiment.name not in known_exhibits(out):
        return None
    (exhibit,) = find_exhibits(out, [experiment.name])
    scale = f"{experiment.scale.name}: {experiment.scale.title}"
    return exhibit if exhibit.scale == scale else None
