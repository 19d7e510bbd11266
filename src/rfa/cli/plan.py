"""`rfa plan`: what a federation takes, before it is built."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import click
from rich.console import Console

from rfa.cli.plan_noise import certificate_line, noise_lines
from rfa.lab.settings.settings import FIELDS
from rfa.planning import FederationPlan, PlanRequest, describe_sums, make_terms
from rfa.planning import plan as make_plan
from rfa.privacy.budget import DELTA
from rfa.secagg.security.parameters import HONEST_PER_QUERY

MIB = 1 << 20
LABEL = 22


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
@click.option(
    "--metrics",
    type=int,
    help="Numbers summed beside the update.  [default: 2; with --epsilon none]",
)
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
@click.option(
    "--epsilon",
    type=float,
    help="Differential privacy: plan for noise, so that no device is told more about than this.",
)
@click.option(
    "--delta", default=DELTA, show_default=True, help="The probability that epsilon leaves out."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(as_json: bool, **options: Any) -> None:
    """Tell how many devices a round takes, what it withstands, and what it costs.

    From the corrupted share, the rounds and the confidence: the devices a round, by the paper's
    theorem and by the exact law of the draw; the neighbors and thresholds of the secure sum; bytes
    up and down; how many drop-outs are survived. With --epsilon: the noise, what is left of a step,
    and what would help.
    """
    request = _request(options)
    made = make_plan(request)
    if as_json:
        click.echo(json.dumps(made.report()))
        return
    width = Console().width - LABEL - 1
    for label, text in plan_table(request, made):
        for place, line in enumerate(textwrap.wrap(text, max(width, LABEL)) or [""]):
            click.echo(f"{'' if place else label:<{LABEL}} {line}")


def _request(options: dict[str, Any]) -> PlanRequest:
    names = ("colluder_fraction", "max_dropout_fraction", "server_model", "honest_per_query")
    terms = make_terms(*(options.pop(name) for name in names))
    population, devices = options.pop("devices"), options.pop("devices_per_round")
    return PlanRequest(population=population, devices=devices, terms=terms, **options)


def plan_table(request: PlanRequest, found: FederationPlan) -> list[tuple[str, str]]:
    """A plan in words, line by line."""
    p, cost = found.parameters, found.traffic
    each = " in each part" if found.parts > 1 else ""
    return [
        (
            "devices a round",
            f"{found.devices} of {request.population} "
            f"(the theorem asks for {found.theorem}, the draw for {found.exact})",
        ),
        (
            "corrupted devices",
            f"{request.rho:.0%} of all; a round bears {found.theta:.1%}: "
            f"{found.holds:.1%} that all {request.rounds} rounds hold no more",
        ),
        ("the error grows by", f"C_theta = {found.c_theta:.1f}"),
        *_part_lines(found),
        ("colluders, drop-outs", f"{p.num_colluders} and {p.num_dropouts} are withstood{each}"),
        (
            "neighbors, threshold",
            f"k = {p.degree}, t = {p.threshold} ({p.server_model.label} server)",
        ),
        ("least in a sum", f"{p.survivors} devices, {p.honest} of them honest{each}"),
        ("honest devices needed", f"{found.honest_needed} for {describe_sums(request.layout)}"),
        ("exchanges, per device", f"{1 + cost.exchanges} a round, with the one for training"),
        ("up, per device", f"{_size(cost.up)} ({cost.up / found.fedavg:.2f} times FedAvg's)"),
        ("down, per device", f"{_size(cost.down)}, beside the model"),
        ("largest share", f"{found.share:.1%} of a step, if all updates are equally far away"),
        certificate_line(found),
        *noise_lines(request, found),
    ]


def _part_lines(found: FederationPlan) -> list[tuple[str, str]]:
    if found.parts == 1:
        return []
    return [
        (
            "sums of their own",
            f"{found.parts} parts of {found.parameters.cohort} devices or one more; "
            f"{found.part_holds:.1%} that one holds at most {found.theta:.1%} corrupted in a round",
        ),
        ("liars inside of a sum", f"{found.liars} are withstood"),
    ]


def _size(count: int) -> str:
    return f"{count / MIB:.2f} MiB" if count >= MIB else f"{count / 1024:.1f} KiB"
