"""`rfa report`: results on one self-contained page."""

from __future__ import annotations

from pathlib import Path

import click

from rfa.cli.options import FILE, out_option
from rfa.lab.report.exhibit import Exhibit
from rfa.lab.report.report import find_exhibits, known_exhibits, write_report
from rfa.lab.report.runs import show_runs
from rfa.lab.runs.store import Store, find_run


@click.command()
@click.argument("runs", nargs=-1)
@out_option
@click.option(
    "--to",
    type=FILE,
    help="The file to write.  [default: report.html in the folder of results]",
)
def report(runs: tuple[str, ...], out: Path, to: Path | None) -> None:
    """Write the results in a folder, or those of RUNS, to one HTML page.

    RUNS are names of experiments (of `rfa reproduce`, `rfa sweep` and `rfa arena`) or of single
    runs (`rfa runs` lists them). By default the page shows all experiments, or all runs if there
    are no experiments. The page is one file that needs no network.
    """
    click.echo(write_report(out, _choose(runs, out), to))


def _choose(names: tuple[str, ...], out: Path) -> list[Exhibit]:
    known = known_exhibits(out)
    wanted = [name for name in names if name in known] if names else list(known)
    exhibits = find_exhibits(out, wanted)
    single = [name for name in names if name not in known]
    if not single and (names or exhibits):
        return exhibits
    _check_folder(out)
    with Store(out, create=False) as store:
        rows = store.runs()
        chosen = [find_run(rows, name) for name in single] if single else rows
        chosen = [row for row in chosen if row["test_accuracy"] is not None]
        if not chosen:
            msg = f"there are no results in {out}: `rfa run` or `rfa sweep` produce some"
            raise click.ClickException(msg)
        command = " ".join(("rfa report", *single, "--out", str(out)))
        return [*(exhibits if names else []), show_runs(store, chosen, command)]


def _check_folder(out: Path) -> None:
    """Where a folder has no results but its subfolders have, name those."""
    inside = sorted(path.parent for path in out.glob("*/runs.sqlite"))
    if inside and not (out / "runs.sqlite").exists():
        names = " or ".join(f"--out {path}" for path in inside)
        msg = f"there are no results in {out} itself: give {names}"
        raise click.UsageError(msg)
