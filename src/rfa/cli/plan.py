"""`rfa plan`: what a federation takes, before it is built."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from rfa.cli.run import user_errors
from rfa.lab.settings.settings import WEISZFELD


@click.command("plan")
@click.option("--rho", default=0.1, show_default=True, help="The share of corrupted devices.")
@click.option("--rounds", default=100, show_default=True, help="Rounds of communication T.")
@click.option("--confidence", default=0.95, show_default=True, help="That all rounds hold.")
@click.option("--theta", type=float, help="What a round is to bear.  [default: amid rho and 1/2]")
@click.option("--devices", default=1000, show_default=True, help="Devices in all.")
@click.option(
    "--devices-per-round", default=0, help="Devices a round.  [default: as many as it takes]"
)
@click.option("--dim", default=1_000_000, show_default=True, help="Parameters of the model.")
@click.option("--budget", default=3, show_default=True, help="Secure sums a round; 1 for FedAvg.")
@click.option(
    "--weiszfeld",
    type=click.Choice(WEISZFELD),
    default="plain",
    show_default=True,
    help="How the sums are spent; with sub-cohorts, devices answer once.",
)
@click.option("--groups", default=0, help="Groups of a cohort with sums of their own.")
@click.option("--metrics", default=1, show_default=True, help="Numbers summed beside the update.")
@click.option(
    "--nu-share", default=0.5, show_default=True, help="nu, as a share of the typical distance."
)
@click.option(
    "--colluders", default=0.1, show_default=True, help="Share that sides with the server."
)
@click.option("--max-dropouts", default=0.2, show_default=True, help="Share that may drop out.")
@click.option(
    "--trust", type=click.Choice(["curious", "lying"]), default="curious", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(as_json: bool, **options: Any) -> None:
    """Tell how many devices a round takes, what it withstands, and what it costs.

    From the corrupted share, the rounds and the confidence: the devices a round, by the paper's
    theorem and by the exact law of the draw; the neighbors and thresholds of the secure sum; bytes
    up and down; how many drop-outs are survived.
    """
    from rfa.planning import plan as make  # noqa: PLC0415
    from rfa.planning import table  # noqa: PLC0415

    with user_errors():
        wish = _wish(options)
        found = make(wish)
    if as_json:
        click.echo(json.dumps(found.report()))
        return
    console = Console(markup=False, highlight=False)
    for name, value in table(wish, found):
        console.print(f"{name:<22} {value}", soft_wrap=True)


def _wish(options: dict[str, Any]) -> Any:
    from rfa.planning import Wish  # noqa: PLC0415
    from rfa.secagg.security.parameters import ServerModel  # noqa: PLC0415
    from rfa.secagg.security.terms import Terms  # noqa: PLC0415

    colluders, dropouts = options.pop("colluders"), options.pop("max_dropouts")
    honest = max(0.0, min(0.25, 1 - colluders - dropouts))
    malicious = options.pop("trust") == "lying"
    server_model = ServerModel.MALICIOUS if malicious else ServerModel.SEMI_HONEST
    terms = Terms(colluders, dropouts, honest, server_model)
    population, devices = options.pop("devices"), options.pop("devices_per_round")
    return Wish(population=population, devices=devices, terms=terms, **options)
