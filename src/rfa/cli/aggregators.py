"""`rfa aggregators`: how a server can aggregate."""

from __future__ import annotations

import click

from rfa.aggregators.registry import ENTRIES


@click.command()
def aggregators() -> None:
    """List the aggregators, and the parameters that can follow a name."""
    for entry in ENTRIES.values():
        click.echo(f"{entry.name}: {entry.summary}")
        if entry.parameters:
            click.echo(f"    {entry.name}:{','.join(f'{name}=…' for name in entry.parameters)}")
    click.echo("module:NAME: a class or a value of your own, from the working directory")
