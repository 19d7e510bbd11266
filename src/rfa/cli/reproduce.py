"""`rfa reproduce`: every figure and table of the paper, by one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rfa.cli.options import FILE, FOLDER, many_runs_options
from rfa.cli.running import do_runs
from rfa.cli.show import say
from rfa.lab.paper.page import check_page, collect, statements, write_page
from rfa.lab.paper.reproduce import PLACES, Experiment, all_runs, find_experiments
from rfa.lab.report.exhibit import Exhibit, ExhibitError
from rfa.lab.report.report import find_exhibits, keep, known_exhibits, write_report


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", "scale", flag_value="quick", help="A small version of all of it.")
@click.option("--full", "scale", flag_value="full", help="The paper's own setting.")
@click.option("--scale", "scale", default="short", help="A scale of experiments/scales.toml.")
@click.option("--out", type=FOLDER, help="The folder of results.  [default: out/SCALE]")
@many_runs_options
@click.option(
    "--from",
    "folder",
    type=FOLDER,
    help="A folder with experiments of your own, and scales.toml.",
)
@click.option(
    "--page",
    type=FILE,
    help="Write a Markdown page with all results, too, and its pictures beside it.",
)
@click.option("--task", "tasks", multiple=True, help="Do the runs of this task only; repeatable.")
@click.option(
    "--seed", "seeds", multiple=True, type=int, help="Do the runs of this seed only; repeatable."
)
@click.option("--list", "listing", is_flag=True, help="List the experiments.")
def reproduce(names: tuple[str, ...], scale: str, **options: Any) -> None:
    """Reproduce the paper: all of its figures and tables, or those NAMED.

    Experiments that go beyond the paper are done by name only: --list shows all.

    Runs that are done already are not done again, and interrupted ones go on. Pictures, tables and
    one page that shows them all go to the folder of results. Where data is missing it says what to
    get; with --quick, drawn characters stand in for it.
    """
    folders = [options["folder"]] if options["folder"] else PLACES
    known = find_experiments((), scale, options["data_dir"], folders)
    chosen = find_experiments(names, scale, options["data_dir"], folders)
    if options["listing"]:
        for each in find_experiments(names, scale, options["data_dir"], folders, beyond=True):
            click.echo(f"{each.name:<16} {each.plan.get('paper') or each.plan['title']}")
        return
    if options["page"]:
        check_page(options["page"])
    out = options["out"] or Path("out") / scale
    waiting = [each for each in chosen if each.seconds and not _done(each, out, options["fresh"])]
    more = sum(each.seconds for each in waiting)
    runs = all_runs(chosen, options["tasks"], options["seeds"])
    problems = do_runs(runs, out, options, more=more)
    if not options["dry_run"]:
        shown = _show(chosen, out, scale, fresh=options["fresh"])
        _conclude(known, shown, out, options["page"])
    if problems:
        sys.exit(1)


def _show(
    experiments: list[Experiment], out: Path, scale: str, *, fresh: bool
) -> list[tuple[Exhibit, list[Path]]]:
    """Keep what each experiment shows, and draw it: exhibits, with their pictures."""
    flag = {"short": "", "quick": " --quick", "full": " --full"}.get(scale, f" --scale {scale}")
    shown: list[tuple[Exhibit, list[Path]]] = []
    for experiment in experiments:
        exhibit = _done(experiment, out, fresh) if experiment.seconds else None
        exhibit = exhibit or experiment.show(out, f"rfa reproduce {experiment.name}{flag}")
        pictures = keep(exhibit, out)
        shown.append((exhibit, pictures))
        where = ", ".join(str(path) for path in pictures) or "a table"
        say(f"{experiment.name:<16} {where}")
    for text in dict.fromkeys(text for exhibit, _ in shown for text in exhibit.missing):
        say(f"Missing: {text}")
    return shown


def _conclude(
    known: list[Experiment],
    shown: list[tuple[Exhibit, list[Path]]],
    out: Path,
    page: Path | None,
) -> None:
    """Judge the paper's statements by all that there is, and write the pages."""
    scale = known[0].scale.words
    verdicts = statements(collect(known, find_exhibits(out), out), scale)
    keep(verdicts, out)
    if page:
        write_page(page, shown, verdicts)
        say(f"Page: {page}")
    say(f"Report: {write_report(out)}")


def _done(experiment: Experiment, out: Path, fresh: bool) -> Exhibit | None:
    """What was shown before of an experiment, if it is still right."""
    if fresh or experiment.name not in known_exhibits(out):
        return None
    try:
        (exhibit,) = find_exhibits(out, [experiment.name])
    except ExhibitError:
        return None
    return exhibit if exhibit.scale == experiment.scale.words else None
