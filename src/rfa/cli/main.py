"""The command line. Mistakes of the user end in one line, not in a traceback."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from rfa.cli.arena import arena
from rfa.cli.data import data
from rfa.cli.plan import plan
from rfa.cli.report import report
from rfa.cli.reproduce import reproduce
from rfa.cli.run import run, tasks, user_errors
from rfa.cli.runs import runs
from rfa.cli.sweep import sweep
from rfa.cli.tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rfa")
def main() -> None:
    """Robust and private aggregation for federated learning."""


main.add_command(run)
main.add_command(tasks)
main.add_command(tune)
main.add_command(runs)
main.add_command(data)
main.add_command(sweep)
main.add_command(arena)
main.add_command(report)
main.add_command(reproduce)
main.add_command(plan)


@main.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/demo"),
    show_default=True,
    help="Where the picture and the results go.",
)
@click.option("--fresh", is_flag=True, help="Do the runs again, even if they are done.")
def demo(out: Path, fresh: bool) -> None:
    """Show FedAvg breaking and RFA standing, on data that needs no download."""
    from rfa.lab import demo as show  # noqa: PLC0415

    console = Console(markup=False)
    with user_errors():
        if not show.can_draw():
            msg = "the demo draws its data and its picture: pip install 'rfa[lab]'"
            raise click.ClickException(msg)
        curves = show.learn(out, fresh=fresh)
        console.print(show.tabulate(curves))
        console.print(
            f"Data: {curves[0].note}. RFA aggregates by the geometric median, which holds where "
            "the mean is dragged away, and which the server computes from sums over devices "
            "alone. One-step RFA costs no more communication than FedAvg."
        )
        picture = out / "demo.png"
        show.draw(curves, picture)
    console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"Results: rfa runs --out {out}", soft_wrap=True)
