"""The lines of `rfa plan` about noise: how much, what it is worth, what it costs, what helps."""

from __future__ import annotations

from dataclasses import replace

from rfa.planning import FederationPlan, NoisePlan, PlanRequest
from rfa.planning.noise import MOST_ERROR
from rfa.privacy.zcdp import large_delta

Line = tuple[str, str]


def certificate_line(found: FederationPlan) -> Line:
    """What is proven of the share of a device in a step."""
    if found.noise:
        return ("certificate", "none: it is proven from exact sums")
    return (
        "certificate",
        f"about {found.certificate:.1%} is proven, {found.certificate_most:.1%} at most "
        "where half are no farther than is typical",
    )


def noise_lines(request: PlanRequest, found: FederationPlan) -> list[Line]:
    """The noise of a plan in words; without noise, what is not hidden."""
    noise = found.noise
    if noise is None:
        hidden = "a coordinate that one device alone moves: its number, not whose it is"
        return [("not hidden", hidden)]
    sums = noise.device_rounds * request.layout.queries
    return [
        (
            "noise multiplier",
            f"{noise.multiplier:.3g}, since a device is in up to {noise.device_rounds} of "
            f"{request.rounds} rounds, so in {sums} sums",
        ),
        (
            "epsilon, server",
            f"{noise.epsilon:.2f} at delta {noise.delta:g}: it knows who takes part",
        ),
        *_delta_lines(request, noise),
        ("epsilon, readers", _readers(noise)),
        ("error of a step", f"{_number(noise.error)} times nu: {noise.verdict}"),
        *_help_lines(request, noise),
        ("not hidden", "who takes part in which round"),
    ]


def _delta_lines(request: PlanRequest, noise: NoisePlan) -> list[Line]:
    """That delta is too large, where it is."""
    fault = large_delta(noise.delta, request.population)
    return [("", fault)] if fault else []


def _readers(noise: NoisePlan) -> str:
    if noise.readers_epsilon is None:
        return "not computed: pip install 'rfa[dp]'"
    return (
        f"{noise.readers_epsilon:.2f} for those who see the models alone, and not who was drawn "
        "for which round"
    )


def _help_lines(request: PlanRequest, noise: NoisePlan) -> list[Line]:
    """What an error that loses little takes: each by itself."""
    little = noise.error <= MOST_ERROR
    asked = replace(noise.enough, rounds=None, epsilon=None) if little else noise.enough
    helps = asked.describe()
    if not little and request.layout.queries > 1:
        helps.append("less noise with one sum a round, as rfa-one-step takes")
    lines = [text if not place else f"or {text}" for place, text in enumerate(helps)]
    if asked.devices is None:
        lines.append(f"(all {request.population} devices a round are too few)")
    labels = [f"for an error of {MOST_ERROR:g}", *[""] * len(lines)]
    return list(zip(labels, lines, strict=False))


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004
