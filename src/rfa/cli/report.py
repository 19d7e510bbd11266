"""`rfa report`: results on one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rfa.cli.run import user_errors
from rfa.cli.runs import find_run, folder_option, open_store


@click.command()
@click.argument("runs", nargs=-1)
@folder_option
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write.  [default: report.html in the folder of results]",
)
def report(runs: tuple[str, ...], out: Path, to: Path | None) -> None:
    """Write one HTML page with the results in a folder: all, or RUNS.

    RUNS are names of experiments (of `rfa reproduce` and `rfa sweep`) or of single runs, as
    `rfa runs` lists them. Without any, the page shows all experiments, or all runs where there are
    no experiments. The page is one file that needs no network.
    """
    from rfa.lab.report.report import write_report  # noqa: PLC0415

    with user_errors():
        path = write_report(out, _choose(runs, out), to)
    click.echo(path)


def _choose(names: tuple[str, ...], out: Path) -> list[Any]:
    from rfa.lab.report.report import find_exhibits, known_exhibits  # noqa: PLC0415
    from rfa.lab.report.runs import show_runs  # noqa: PLC0415

    known = known_exhibits(out)
    wanted = [name for name in names if name in known] if names else list(known)
    exhibits = find_exhibits(out, wanted)
    single = [name for name in names if name not in known]
    if not single and (names or exhibits):
        return exhibits
    _check_folder(out)
    with open_store(out) as store:
        rows = store.runs()
        chosen = [find_run(rows, name) for name in single] if single else rows
        chosen = [row for row in chosen if row["test_accuracy"] is not None]
        if not chosen:
            msg = f"there is nothing to show in {out}: `rfa run` or `rfa sweep` make something"
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
