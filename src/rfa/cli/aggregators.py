"""`rfa aggregators`: the aggregators and their parameters."""

from __future__ import annotations

import click

from rfa.aggregators.registry import ENTRIES


@click.command()
def aggregators() -> None:
    """List the aggregators and their parameters."""
    for entry in ENTRIES.values():
        click.echo(f"{entry.name}: {entry.summary}")
        if entry.parameters:
            click.echo(f"    {entry.name}:{','.join(f'{name}=…' for name in entry.parameters)}")
    click.echo("module:NAME: an aggregator of your own, from the working directory")
