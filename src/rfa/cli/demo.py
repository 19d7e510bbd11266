"""`rfa demo`: what the paper shows, in a minute."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from rfa.cli.options import FOLDER
from rfa.lab import demo as lab_demo


@click.command()
@click.option(
    "--out",
    type=FOLDER,
    default=Path("out/demo"),
    show_default=True,
    help="Where the picture and the results go.",
)
@click.option("--fresh", is_flag=True, help="Do the runs again, even if they are done.")
def demo(out: Path, fresh: bool) -> None:
    """Show FedAvg breaking and RFA standing, on data that needs no download."""
    console = Console(markup=False)
    if not lab_demo.can_draw():
        msg = "the demo draws its data and its picture: pip install 'rfa[lab]'"
        raise click.ClickException(msg)
    curves = lab_demo.learn(out, fresh=fresh)
    console.print(lab_demo.tabulate(curves))
    console.print(
        f"Data: {curves[0].note}. RFA aggregates by the geometric median, which holds where "
        "the mean is dragged away, and which the server computes from sums over devices "
        "alone. One-step RFA costs no more communication than FedAvg."
    )
    picture = out / "demo.png"
    lab_demo.draw(curves, picture)
    console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"Results: rfa runs --out {out}", soft_wrap=True)
    console.print(f"The same from Python:\n\n{lab_demo.PYTHON}", highlight=False, soft_wrap=True)
