"""The lines of `rfa plan` about shares, and about noise: its privacy, its error, what helps."""

from __future__ import annotations

from dataclasses import replace

from rfa.planning import FederationPlan, NoisePlan, PlanRequest
from rfa.planning.noise import MOST_ERROR
from rfa.privacy.zcdp import large_delta

Line = tuple[str, str]


def share_lines(found: FederationPlan) -> list[Line]:
    """Return the lines about the share of a device in a step, and about its proven bound."""
    about, most = found.certificate, found.certificate_most
    if about is not None and about == most == found.share:  # a mean
        shares = f"{found.share:.1%} of a step, for devices of equal weight"
        return [("largest share", shares), ("certificate", "the same: a mean shares by weights")]
    if found.noise:
        text = "none: only exact sums prove one"
    elif about is None:
        text = "none: the aggregator proves none"
    else:
        text = f"about {about:.1%}; at most {most:.1%} if half of the updates are no farther away "
        text += "than is typical"
    shares = f"{found.share:.1%} of a step, if all updates are equally far away"
    return [("largest share", shares), ("certificate", text)]


def noise_lines(request: PlanRequest, found: FederationPlan) -> list[Line]:
    """Return the lines about the noise of a plan; without noise, what the sums do not hide."""
    noise = found.noise
    if noise is None:
        hidden = "a coordinate that only one device changes: its value, but not which device"
        return [("not hidden", hidden)]
    sums = noise.device_rounds * request.layout.queries
    return [
        (
            "noise multiplier",
            f"{noise.multiplier:.3g}, because a device is in up to {noise.device_rounds} of "
            f"{request.rounds} rounds, which makes {sums} sums",
        ),
        (
            "epsilon, server",
            f"{noise.epsilon:.2f} at delta {noise.delta:g}; the server knows who takes part",
        ),
        *_delta_lines(request, noise),
        ("epsilon, readers", _readers(noise)),
        ("error of a step", f"{_number(noise.error)} times nu: {noise.verdict}"),
        *_help_lines(request, noise),
        ("not hidden", "who takes part in which round"),
    ]


def _delta_lines(request: PlanRequest, noise: NoisePlan) -> list[Line]:
    """Return a warning if delta is too large for the population."""
    fault = large_delta(noise.delta, request.devices)
    return [("  delta", fault)] if fault else []


def _readers(noise: NoisePlan) -> str:
    if noise.readers_epsilon is None:
        return "not computed: pip install 'rfa[dp]'"
    return (
        f"{noise.readers_epsilon:.2f}, for those who see only the models and not who took part "
        "in which round"
    )


def _help_lines(request: PlanRequest, noise: NoisePlan) -> list[Line]:
    """Return changes that reduce the error to `MOST_ERROR`, each sufficient by itself."""
    little = noise.error <= MOST_ERROR
    asked = replace(noise.enough, rounds=None, epsilon=None) if little else noise.enough
    helps = asked.describe()
    if not little and request.layout.queries > 1:
        helps.append("less noise with one sum per round: --aggregator rfa-one-step")
    lines = [text if not place else f"or {text}" for place, text in enumerate(helps)]
    if asked.devices_per_round is None:
        lines.append(f"(all {request.devices} devices per round are too few)")
    labels = [f"for an error of {MOST_ERROR:g}", *[""] * len(lines)]
    return list(zip(labels, lines, strict=False))


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004
