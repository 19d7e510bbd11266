"""`rfa plan`: what a federation takes, before it is built."""

from __future__ import annotations

import json
from typing import Any

import click

from rfa.cli.plan_noise import noise_lines, share_lines
from rfa.cli.show import say_labeled
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
@click.option(
    "--confidence",
    default=0.95,
    show_default=True,
    help="The probability that no round has more corrupted devices than it tolerates.",
)
@click.option(
    "--theta",
    type=float,
    help="The fraction of corrupted devices that a round tolerates.  [default: halfway between "
    "rho and 1/2]",
)
@click.option("--devices", default=1000, show_default=True, help="Devices in the population.")
@click.option(
    "--devices-per-round",
    default=0,
    help="Devices that take part in a round.  [default: as many as it needs]",
)
@click.option(
    "--dim", default=1_000_000, show_default=True, help="Number of parameters of the model."
)
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
    help="Numbers summed besides the update.  [default: 2; 0 with --epsilon]",
)
@click.option(
    "--nu-share", default=0.5, show_default=True, help="nu as a fraction of the typical distance."
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
    help="The server against which the secure sum protects.",
)
@click.option(
    "--honest-per-query",
    default=HONEST_PER_QUERY,
    show_default=True,
    help="Additional honest devices that each further sum of the same updates needs.",
)
@click.option(
    "--epsilon",
    type=float,
    help="Plan for differential privacy: add noise so that no device spends more than this.",
)
@click.option(
    "--delta",
    default=DELTA,
    show_default=True,
    help="The delta of (epsilon, delta)-differential privacy.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(as_json: bool, **options: Any) -> None:
    """Plan a federation: how many devices, what it tolerates, what it costs.

    The plan has the number of devices per round, by the paper's theorem and by the exact
    probability. It has the parameters of secure aggregation, the drop-outs and colluders that a
    round tolerates, and the bytes that a device sends and receives. With --epsilon it also has the
    noise, the error that the noise adds to a step, and what would reduce that error.

    \b
      rfa plan --rho 0.1 --rounds 100 --devices 1000 --dim 1000000
      rfa plan --epsilon 8 --devices 1000000 --aggregator rfa-one-step
    """  # noqa: D301 click reads the backspace
    request = _request(options)
    made = make_plan(request)
    if as_json:
        click.echo(json.dumps(made.report()))
        return
    for label, text in plan_table(request, made):
        say_labeled(label, text, LABEL + 1)


def _request(options: dict[str, Any]) -> PlanRequest:
    names = ("colluder_fraction", "max_dropout_fraction", "server_model", "honest_per_query")
    terms = make_terms(*(options.pop(name) for name in names))
    return PlanRequest(terms=terms, **options)


def plan_table(request: PlanRequest, found: FederationPlan) -> list[tuple[str, str]]:
    """A plan in words, line by line."""
    p, cost = found.parameters, found.traffic
    each = " in each part" if found.parts > 1 else ""
    return [
        *_draw_lines(request, found),
        *_part_lines(found),
        ("colluders, drop-outs", f"up to {p.num_colluders} and up to {p.num_dropouts}{each}"),
        (
            "neighbors, threshold",
            f"k = {p.degree}, t = {p.threshold} ({p.server_model.label} server)",
        ),
        ("smallest sum", f"{p.survivors} devices, {p.honest} of them honest{each}"),
        ("honest devices needed", f"{found.honest_needed} for {describe_sums(request.layout)}"),
        ("exchanges per device", f"{cost.exchanges} per round, training included"),
        (
            "upload per device",
            f"{_size(cost.up)} per round ({cost.up / found.fedavg:.2f} x FedAvg)",
        ),
        ("download per device", f"{_size(cost.down)} per round, plus the model"),
        *share_lines(found),
        *noise_lines(request, found),
    ]


def _draw_lines(request: PlanRequest, found: FederationPlan) -> list[tuple[str, str]]:
    """How many devices a round draws, how many of them are corrupted, and what that does."""
    drawn = f"{found.devices_per_round} of {request.devices}"
    if found.c_theta is None:
        return [
            ("devices per round", f"{drawn} (the exact probability needs {found.exact})"),
            (
                "corrupted devices",
                f"{request.rho:.0%} of all; with probability {found.holds:.1%} no round of "
                f"{request.rounds} has more than {found.theta:.1%}",
            ),
            ("tolerated", _tolerated(found)),
        ]
    return [
        (
            "devices per round",
            f"{drawn} (the paper's theorem needs {found.theorem}, the exact probability "
            f"{found.exact})",
        ),
        (
            "corrupted devices",
            f"{request.rho:.0%} of all; a round tolerates {found.theta:.1%}; with probability "
            f"{found.holds:.1%} none of {request.rounds} rounds has more",
        ),
        ("error factor", f"C_theta = {found.c_theta:.1f}"),
    ]


def _tolerated(found: FederationPlan) -> str:
    """What a round is proven to tolerate if its aggregator is not the geometric median."""
    if found.liars:
        return f"up to {found.liars} corrupted devices, which are in fewer than half of the parts"
    return (
        "nothing proven: the paper's theorem is about the geometric median (rfa, rfa-one-step), "
        "and one corrupted device moves a mean"
    )


def _part_lines(found: FederationPlan) -> list[tuple[str, str]]:
    if found.parts == 1:
        return []
    return [
        (
            "parts of the cohort",
            f"{found.parts}, each with {found.parameters.cohort} devices or one more and sums of "
            f"its own; with probability {found.part_holds:.1%} a part has at most "
            f"{found.theta:.1%} corrupted devices in a round",
        ),
        ("liars inside a sum", f"up to {found.liars}"),
    ]


def _size(count: int) -> str:
    return f"{count / MIB:.2f} MiB" if count >= MIB else f"{count / 1024:.1f} KiB"
