"""`rfa plan`: what a federation takes, before it is built."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from rfa.lab.settings.settings import FIELDS
from rfa.planning import PlanRequest, make_terms, table
from rfa.planning import plan as make_plan
from rfa.secagg.security.parameters import HONEST_PER_QUERY


@click.command("plan")
@click.option("--rho", default=0.1, show_default=True, help="The fraction of corrupted devices.")
@click.option("--rounds", default=100, show_default=True, help="Rounds of communication T.")
@click.option("--confidence", default=0.95, show_default=True, help="That all rounds hold.")
@click.option(
    "--theta",
    type=float,
    help="Fraction of corrupted devices that a round withstands.  [default: between rho and 1/2]",
)
@click.option("--devices", default=1000, show_default=True, help="Devices in all.")
@click.option(
    "--devices-per-round", default=0, help="Devices a round.  [default: as many as it takes]"
)
@click.option("--dim", default=1_000_000, show_default=True, help="Parameters of the model.")
@click.option(
    "--aggregator",
    default="rfa",
    show_default=True,
    help="A private aggregator with its parameters, as in rfa:budget=4, rfa:schedule=sub-cohorts, "
    "rfa-one-step:groups=7, or your own module:NAME.",
)
@click.option("--metrics", default=2, show_default=True, help="Numbers summed beside the update.")
@click.option(
    "--nu-share", default=0.5, show_default=True, help="nu, as a share of the typical distance."
)
@click.option(
    "--colluder-fraction",
    default=0.1,
    show_default=True,
    help="The fraction of a cohort that may collude with the server.",
)
@click.option(
    "--max-dropout-fraction",
    default=0.2,
    show_default=True,
    help="The largest fraction of a cohort that may drop out of a round.",
)
@click.option(
    "--server-model",
    type=click.Choice(FIELDS["server_model"].choices),
    default="semi-honest",
    show_default=True,
    help="The server that the secure sum withstands.",
)
@click.option(
    "--honest-per-query",
    default=HONEST_PER_QUERY,
    show_default=True,
    help="How many more honest devices each further sum about the same updates asks for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(as_json: bool, **options: Any) -> None:
    """Tell how many devices a round takes, what it withstands, and what it costs.

    From the corrupted share, the rounds and the confidence: the devices a round, by the paper's
    theorem and by the exact law of the draw; the neighbors and thresholds of the secure sum; bytes
    up and down; how many drop-outs are survived.
    """
    request = _request(options)
    made = make_plan(request)
    if as_json:
        click.echo(json.dumps(made.report()))
        return
    console = Console(markup=False, highlight=False)
    for name, value in table(request, made):
        console.print(f"{name:<22} {value}", soft_wrap=True)


def _request(options: dict[str, Any]) -> PlanRequest:
    names = ("colluder_fraction", "max_dropout_fraction", "server_model", "honest_per_query")
    terms = make_terms(*(options.pop(name) for name in names))
    population, devices = options.pop("devices"), options.pop("devices_per_round")
    return PlanRequest(population=population, devices=devices, terms=terms, **options)
