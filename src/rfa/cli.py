"""The command line: `rfa demo`. Mistakes of the user end in one line, not in a traceback."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from rfa.data.cli import data
from rfa.experiments.cli import run, tasks
from rfa.experiments.runs_cli import runs
from rfa.experiments.tune_cli import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rfa")
def main() -> None:
    """Robust and private aggregation for federated learning."""


main.add_command(run)
main.add_command(tasks)
main.add_command(tune)
main.add_command(runs)
main.add_command(data)


@main.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("out/demo.png"),
    show_default=True,
    help="Where the picture goes.",
)
def demo(out: Path) -> None:
    """Show a corrupted cohort: the mean dragged away, the median staying."""
    from rfa import demo as cohort  # noqa: PLC0415

    rows = cohort.measure()
    table = Table(title="Distance from the honest mean, in honest spreads")
    table.add_column("corrupted", justify="right")
    for name in cohort.AGGREGATORS:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [f"{error:.2f}" for error in row.errors.values()]
        table.add_row(f"{row.share:.0%}", *cells)
    console = Console(markup=False)
    console.print(table)
    console.print(
        "The corrupted devices together turn the mean of the cohort into its opposite, however few "
        "they are. The geometric median gives way only as their share grows towards one half."
    )
    if not cohort.can_draw():
        console.print("For the picture, install the lab: pip install 'rfa[lab]'")
        return
    out = out if out.suffix else out.with_name(f"{out.name or 'demo'}.png")
    try:
        cohort.draw(rows, out)
    except (OSError, ValueError) as error:
        msg = f"the picture cannot be written to {out}: {error}"
        raise click.ClickException(msg) from None
    console.print(f"Picture: {out}", soft_wrap=True)
