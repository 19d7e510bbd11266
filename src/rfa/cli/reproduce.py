"""`rfa reproduce`: all figures and tables of the paper with one command."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from rfa.cli.options import FILE, FOLDER, many_runs_options
from rfa.cli.running import do_runs
from rfa.cli.show import say
from rfa.lab.paper.check import Fresh, compare, sample
from rfa.lab.paper.facts import read_facts
from rfa.lab.paper.kept import code_of
from rfa.lab.paper.numbers import adopt, read_numbers, stale, write_numbers
from rfa.lab.paper.page import check_page, collect, statements, write_page
from rfa.lab.paper.planned import is_thinned
from rfa.lab.paper.reproduce import PLACES, Experiment, all_runs, find_experiments
from rfa.lab.paper.sums import SUMS
from rfa.lab.report.exhibit import Exhibit, ExhibitError
from rfa.lab.report.report import find_exhibits, keep, known_exhibits, write_report
from rfa.lab.runs.origin import code_fingerprint
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.settings import Settings


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="A small version of every experiment.")
@click.option("--full", is_flag=True, help="The settings of the paper.")
@click.option("--scale", "scales", multiple=True, help="A scale from experiments/scales.toml.")
@click.option("--out", type=FOLDER, help="The folder of results.  [default: out/SCALE]")
@many_runs_options
@click.option(
    "--from",
    "folder",
    type=FOLDER,
    help="A folder with experiments of your own and a scales.toml.",
)
@click.option(
    "--page",
    type=FILE,
    help="Also write a Markdown page with all results, and its pictures next to it.",
)
@click.option("--task", "tasks", multiple=True, help="Do only the runs of this task. Repeatable.")
@click.option(
    "--seed", "seeds", multiple=True, type=int, help="Do only the runs of this seed. Repeatable."
)
@click.option("--show", is_flag=True, help="Do no runs; show the results that exist.")
@click.option(
    "--numbers-from",
    type=FOLDER,
    help="Import runs that were done elsewhere from the numbers in this folder.",
)
@click.option(
    "--numbers-to",
    type=FOLDER,
    help="Export the numbers of all finished runs to this folder.",
)
@click.option(
    "--check",
    type=click.IntRange(1),
    metavar="N",
    help="Repeat N of the runs of --numbers-from, and compare them to the bit.",
)
@click.option("--list", "listing", is_flag=True, help="List the experiments.")
def reproduce(names: tuple[str, ...], **options: Any) -> None:
    """Reproduce the figures and tables of the paper: all, or those in NAMES.

    Experiments beyond the paper run only by name; --list shows all experiments. Runs that are done
    are not repeated, and interrupted runs are resumed. The folder of results gets pictures, tables
    and one page with all of them. If data is missing, the command says how to get it; --quick uses
    synthetic characters in its place.
    """
    scale = _scale(options)
    folders = [options["folder"]] if options["folder"] else PLACES
    known, chosen = (
        _shown(find_experiments(some, scale, options["data_dir"], folders), options["show"])
        for some in ((), names)
    )
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
    if options["check"]:
        _check(runs, _missing_data(chosen), out, options)
        return
    if options["numbers_from"]:
        _adopt(chosen, out, options["numbers_from"])
    problems = {} if options["show"] else do_runs(runs, out, options, more=more)
    if options["dry_run"]:
        _say_left(chosen)
    else:
        shown = _show(chosen, out, scale, fresh=options["fresh"])
        if options["numbers_to"]:
            count = write_numbers(chosen, out, options["numbers_to"])
            say(f"Numbers: {options['numbers_to']}, {count} runs")
        _conclude(known, shown, out, options["page"])
    if problems:
        sys.exit(1)


def _scale(options: dict[str, Any]) -> str:
    """The one scale that was given, or the usual one."""
    flags = {f"--{name}": name for name in ("quick", "full") if options[name]}
    given = flags | {f"--scale {name}": name for name in options["scales"]}
    if len(given) > 1:
        msg = f"give one scale: {' and '.join(given)} are different ones"
        raise ConfigError(msg)
    return next(iter(given.values()), "short")


def _adopt(experiments: list[Experiment], out: Path, folder: Path) -> None:
    """Put the runs of a folder of numbers into the store, and say which code made them."""
    wanted = {settings.run_name: settings for settings in all_runs(experiments)}
    adopted = adopt(folder, wanted, out)
    rows = [run.row for run in adopted]
    others = sorted({code_of(row) for row in rows} - {code_fingerprint()})
    say(f"{len(adopted)} runs are taken from {folder}")
    _say_unsummed(folder)
    if others:
        text = f"{len(stale(rows))} of them were made by other code ({', '.join(others)}) than this"
        say(f"{text} ({code_fingerprint()}): --check N does some again")
    if thin := sum(is_thinned(run, wanted[run.name]) for run in adopted):
        say(f"{thin} of them have only some of their evaluations, as earlier versions wrote them")


def _say_unsummed(folder: Path) -> None:
    """Say that nothing tells how the files of a folder were, if so."""
    if not (folder / SUMS).exists():
        say(f"{folder} has no {SUMS}: its files are only compared with each other")


def _shown(experiments: list[Experiment], show: bool) -> list[Experiment]:
    """The experiments; if results are only shown, with runs that have no data here."""
    return _with_all_runs(experiments) if show else experiments


def _with_all_runs(experiments: list[Experiment]) -> list[Experiment]:
    """The experiments with those runs whose data is missing here, which may be done elsewhere."""
    return [dataclasses.replace(each, without_data=True) for each in experiments]


def _missing_data(experiments: list[Experiment]) -> list[str]:
    """What experiments lack, in words, each text once."""
    return list(dict.fromkeys(text for each in experiments for text in each.with_data.missing))


def _check(runs: list[Settings], missing: list[str], out: Path, options: dict[str, Any]) -> None:
    """Do some runs of a folder of numbers again, and end with 1 if any number is another."""
    if not options["numbers_from"]:
        msg = "--check needs --numbers-from FOLDER: the numbers to check"
        raise ConfigError(msg)
    by_name = {settings.run_name: settings for settings in runs}
    kept, facts = (
        read_numbers(options["numbers_from"], by_name),
        read_facts(options["numbers_from"]),
    )
    _say_unsummed(options["numbers_from"])
    chosen = sample(kept, by_name, options["check"])
    if not chosen:
        msg = f"{options['numbers_from']} has no run of these experiments, tasks and seeds"
        msg += "".join(f"; missing: {text}" for text in missing)
        raise ConfigError(msg)
    out = out / "check"
    do_runs(chosen, out, {**options, "fresh": True})
    if options["dry_run"]:
        return
    comparisons = compare(kept, facts, chosen, Fresh(out, options["data_dir"]))
    for comparison in comparisons:
        say(comparison.words)
    if any(comparison.differences for comparison in comparisons):
        sys.exit(1)


def _show(
    experiments: list[Experiment], out: Path, scale: str, *, fresh: bool
) -> list[tuple[Exhibit, list[Path]]]:
    """Save the exhibit of each experiment with its pictures, and return them."""
    flag = {"short": "", "quick": " --quick", "full": " --full"}.get(scale, f" --scale {scale}")
    shown: list[tuple[Exhibit, list[Path]]] = []
    for experiment in experiments:
        exhibit = _done(experiment, out, fresh) if experiment.seconds else None
        exhibit = exhibit or experiment.show(out, f"rfa reproduce {experiment.name}{flag}")
        pictures = keep(exhibit, out)
        shown.append((exhibit, pictures))
        where = ", ".join(str(path) for path in pictures) or "a table"
        say(f"{experiment.name:<16} {where}")
    _say_missing(text for exhibit, _ in shown for text in exhibit.missing)
    return shown


def _say_left(experiments: list[Experiment]) -> None:
    """Print which data is missing, and how many runs cannot be done therefore."""
    _say_missing(_missing_data(experiments))
    if left := len(all_runs(_with_all_runs(experiments))) - len(all_runs(experiments)):
        say(f"{left} runs cannot be done without this data")


def _say_missing(texts: Iterable[str]) -> None:
    """Print the missing data and runs, each text once."""
    for text in dict.fromkeys(texts):
        say(f"Missing: {text}")


def _conclude(
    known: list[Experiment],
    shown: list[tuple[Exhibit, list[Path]]],
    out: Path,
    page: Path | None,
) -> None:
    """Judge the statements of the paper with all results, and write the pages."""
    verdicts = statements(collect(known, find_exhibits(out), out), known[0].scale)
    keep(verdicts, out)
    if page:
        write_page(page, shown, verdicts)
        say(f"Page: {page}")
    say(f"Report: {write_report(out)}")


def _done(experiment: Experiment, out: Path, fresh: bool) -> Exhibit | None:
    """Return the earlier exhibit of an experiment, if it is still valid."""
    if fresh or experiment.name not in known_exhibits(out):
        return None
    try:
        (exhibit,) = find_exhibits(out, [experiment.name])
    except ExhibitError:
        return None
    return exhibit if exhibit.scale == experiment.scale.words else None
