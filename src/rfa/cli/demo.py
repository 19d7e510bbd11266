"""`rfa demo`: the paper's main result, in a minute."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click
from rich.console import Console

from rfa.cli.options import FOLDER
from rfa.lab import demo as lab_demo

TITLE = "Test accuracy after {rounds} rounds. A quarter of the data is on corrupted devices."
EXPLAINED = """\
Corrupted devices train on poisoned data, or know every update and together reverse the mean. \
FedAvg takes the mean of the updates. RFA takes their geometric median, which the server computes \
from sums over devices alone. One-step RFA costs no more communication than FedAvg. This is one \
seed of an easy task: docs/results.md and docs/beyond.md have harder ones, where RFA loses more."""
WIDTH = 80


@click.command()
@click.option(
    "--out",
    type=FOLDER,
    default=Path("out/demo"),
    show_default=True,
    help="The folder for the picture and the results.",
)
@click.option("--fresh", is_flag=True, help="Do the runs again, even if they are done.")
def demo(out: Path, fresh: bool) -> None:
    """Show how FedAvg fails under attack and RFA does not; no download."""
    console = Console(markup=False, highlight=False)
    if not lab_demo.can_draw():
        msg = "the demo draws a picture: pip install 'rfa[lab]'"
        raise click.ClickException(msg)
    curves = lab_demo.learn(out, fresh=fresh)
    console.print(TITLE.format(rounds=lab_demo.SETTINGS["rounds"]), style="bold", soft_wrap=True)
    console.print()
    console.print(lab_demo.bar_chart(curves, ascii_only=console.options.ascii_only))
    console.print()
    console.print(textwrap.fill(EXPLAINED, min(console.width, WIDTH)))
    picture = out / "demo.png"
    lab_demo.draw(curves, picture)
    console.print(f"\nData:    {curves[0].note}", soft_wrap=True)
    console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"Runs:    rfa runs --out {out}", soft_wrap=True)
    console.print(f"\nThe omniscient attack from Python:\n\n{lab_demo.PYTHON}", soft_wrap=True)
