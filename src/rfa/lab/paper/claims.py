"""The statements of the paper in its own words, each judged with the available runs.

Statements about EMNIST are judged in both polarities, because the paper leaves that open.
`verdicts` explains the four verdicts. A model that has not learned without corruption gets no
verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rfa.lab.paper.evidence import (
    AbsentError,
    Evidence,
    Place,
    after,
    at_end,
    band,
    is_artificial,
    swing,
)
from rfa.lab.paper.statements import STATEMENTS, clean, judge_one, statement
from rfa.lab.paper.verdicts import Fact, Finding
from rfa.lab.report.exhibit import Table, Value
from rfa.lab.runs.headline import HONEST

POINT, HIGH = 1.0, 0.25
LINES = ("RFA", "FedAvg")
EMNIST = ("EMNIST linear", "EMNIST linear (ink 1)")
TASKS = {
    "EMNIST linear": "emnist-linear",
    "EMNIST linear (ink 1)": "emnist-linear:polarity=ink",
    "EMNIST ConvNet": "emnist-convnet",
    "EMNIST ConvNet (ink 1)": "emnist-convnet:polarity=ink",
}
SENT, LSTM = ("Sent140 linear",), ("Shakespeare LSTM",)
CONVNET = ("EMNIST ConvNet", "EMNIST ConvNet (ink 1)")
DEEP = (*CONVNET, *LSTM)
LOST = 5.0
"""A model whose accuracy is at most this number of points above the largest class is lost."""


@statement(
    "RFA gives improved robustness to linear models with data corruption. For instance, consider "
    "the EMNIST linear model at rho = 1/4. RFA achieves 52.8% accuracy, over 10% better than "
    "FedAvg at 41.2%.",
    (*EMNIST, *SENT),
)
def separates_linear(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA is ahead of FedAvg with a quarter of the data poisoned."""
    yield evidence.difference(Place("robustness", f"{setting}, data", HIGH), LINES)


@statement(
    "RFA performs similarly to FedAvg in deep nets with data corruption. RFA and FedAvg are within "
    "one standard deviations of each other for the Shakespeare LSTM model, and nearly equal for "
    "the EMNIST ConvNet model.",
    DEEP,
)
def nets_alike(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """With a quarter of the data poisoned RFA and FedAvg are within three points."""
    place = Place("robustness", f"{setting}, data", HIGH)
    yield evidence.difference(place, LINES, margin=3 * POINT)


@statement(
    "RFA gives improved robustness to omniscient corruptions for all models. For the omniscient "
    "corruption, the test accuracy of the FedAvg is close to 0% for the EMNIST linear model and "
    "ConvNet, while RFA still achieves over 40% at rho = 1/4 for the former and well over 60% for "
    "the latter. A similar trend holds for the Shakespeare LSTM model.",
    (*EMNIST, *DEEP),
)
def omniscient(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA keeps over 40 % (ConvNet 60, LSTM ahead of FedAvg); FedAvg falls to the largest class."""
    place = Place("robustness", f"{setting}, omniscient", HIGH)
    if setting in LSTM:
        yield evidence.difference(place, LINES, bound=LOST)
        return
    yield evidence.level(place, "RFA", above=60.0 if setting in CONVNET else 40.0)
    yield evidence.lost(place, "FedAvg", TASKS[setting], LOST)


@statement(
    "RFA almost matches FedAvg in the absence of corruption. [...] Empirically, we find that the "
    "performance hit of RFA due to heterogeneity is quite small: 1.4% for the EMNIST linear model "
    "(64.3% vs. 62.9%), under 0.4% for the Shakespeare LSTM, and 0.3% for Sent140 (65.0% vs. "
    "64.7%).",
    (*EMNIST, *LSTM, *SENT),
)
def small_gap(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA is behind FedAvg at the end by less than the paper's gap: 1.4, 0.4 and 0.3 points."""
    gap = {SENT[0]: 0.3, LSTM[0]: 0.4}.get(setting, 1.4)
    yield evidence.difference(clean(setting), LINES, bound=-gap)


@statement(
    "Recall that we had a small gap of 0.3% between the performance of RFA and FedAvg in the "
    "setting of no corruption. Consistent with the theory, this gap completely vanishes in the "
    "i.i.d. case [...].",
    SENT,
)
def iid_gap(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA and FedAvg are within 0.3 points where examples are split at random."""
    place = Place("iid", f"{setting}, i.i.d., data", 0.0)
    finding = evidence.difference(place, LINES, margin=0.3)
    if is_artificial(evidence.runs(place, "RFA")):
        why = "devices are artificial here, so there is no gap of users that could vanish"
        finding = dataclasses.replace(finding, why_open=why)
    yield finding


@statement(
    "We find that RFA is more robust than the two agnostic algorithms coordinate-wise median and "
    "norm clipping. Perhaps surprisingly, RFA is also more robust than the trimmed mean which uses "
    "perfect knowledge of the corruption level rho.",
    SENT,
)
def beats_comparators(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA is ahead of the three with a quarter of the data poisoned."""
    place = Place("comparators", f"{setting}, data", HIGH)
    for other in ("coordinate median", "norm clipping", "trimmed mean"):
        yield evidence.difference(place, ("RFA", other))


@statement("We note that multi-Krum is more robust than RFA.", SENT)
def krum_ahead(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Multi-Krum, which is told rho, is ahead of RFA with a quarter of the data poisoned."""
    place = Place("comparators", f"{setting}, data", HIGH)
    yield evidence.difference(place, ("multi-Krum", "RFA"))


@statement(
    "We note that in the low corruption regime of rho = 0 or rho = 10^-2 under data corruption, "
    "RFA requires 3x the number of calls to the secure average oracle to reach the same "
    "performance. However, it matches the performance of FedAvg when measured in terms of the "
    "number of outer iterations, with the additional communication cost coming from multiple "
    "Weiszfeld iterations for computation of the average.",
    (*EMNIST, *SENT),
)
def three_calls(evidence: Evidence, setting: str) -> Iterator[Finding | Fact]:
    """After as many rounds RFA is within a point of FedAvg, at 0 and 0.01, by three calls each."""
    for level in (0.0, 0.01):
        place = Place("robustness", f"{setting}, data", level)
        runs = evidence.runs(place, "RFA").values()
        rounds = min(result.cell.settings.rounds for result in runs)
        finding = evidence.difference(place, LINES, read=after(rounds), margin=POINT)
        words = f"after {rounds} rounds at {level:g}, {finding.words}"
        yield dataclasses.replace(finding, words=words)
        calls = max(result.row["oracle_calls"] for result in runs) / rounds
        yield Fact(f"{calls:.1f} calls per round", 2 < calls <= 3)  # noqa: PLR2004


@statement(
    "RFA exhibits more stable convergence under corruption. We also see from [the figure] (rho = "
    "1/4, Data) that the variability of accuracy across random runs, denoted here by the shaded "
    "region, is much smaller for RFA. Indeed, by being robust to the corrupted updates sent by "
    "random sampling of corrupted clients, RFA exhibits a more stable convergence across "
    "iterations.",
    EMNIST,
)
def steadier(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """In the later half of RFA's rounds the accuracy of a run swings less than that of FedAvg."""
    place = Place("seeds", f"{setting}, data 0.25")
    runs = [run for line in LINES for run in evidence.runs(place, line).values()]
    rounds = min(run.cell.settings.rounds for run in runs)
    finding = evidence.difference(place, ("FedAvg", "RFA"), read=swing(rounds))
    widths = [f"{line} {band(list(evidence.runs(place, line).values())):.1f}" for line in LINES]
    words = f"deviation over rounds, {finding.words}; width of the band of seeds, "
    yield dataclasses.replace(finding, words=words + ", ".join(widths))


@statement(
    "One-step RFA gives most of the robustness with no extra communication. [...] For instance, "
    "in the former [data corruption on an EMNIST linear model], one-step RFA gets 51.4% in "
    "accuracy, which is 10% better than FedAvg while being almost as good as full RFA (52.8%) at "
    "rho = 0.25.",
    EMNIST,
)
def one_step(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """With a quarter poisoned one-step RFA beats FedAvg, 2 points behind RFA or less."""
    place = Place("one-step", f"{setting}, data", HIGH)
    yield evidence.difference(place, ("one-step RFA", "FedAvg"))
    yield evidence.difference(place, ("one-step RFA", "RFA"), bound=-2 * POINT)


@statement(
    "Moreover, for the latter [omniscient corruption on an EMNIST ConvNet], we find that one-step "
    "RFA (67.9%) actually achieves higher test accuracy than full RFA (63.0%) at rho = 0.25.",
    CONVNET,
)
def one_step_net(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """One-step RFA is ahead of RFA against a quarter of omniscient devices."""
    place = Place("one-step", f"{setting}, omniscient", HIGH)
    yield evidence.difference(place, ("one-step RFA", "RFA"))


@statement(
    "First, we observe that personalization leads to an improvement with no corruption for both "
    "FedAvg and RFA. For the EMNIST linear model, we get 70.1% and 69.9% respectively from 64.3% "
    "and 62.9%.",
    (*EMNIST, *SENT),
)
def personal_gain(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Without corruption, personalized FedAvg and RFA are ahead of shared ones."""
    place = Place("personalization", f"{setting}, data", 0.0)
    for line in LINES:
        lines = (f"{line}, personalized", line)
        yield evidence.difference(place, lines, read=at_end(HONEST))


@statement(
    "Second, we observe that RFA exhibits greater robustness to corruption with personalization. "
    "At rho = 1/4 with the EMNIST linear model, RFA with personalization gives 66.4% (a reduction "
    "of 3.4%) while no personalization gives 52.8% (a reduction of 10.1%).",
    (*EMNIST, *SENT),
)
def personal_robust(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """With a quarter of the data poisoned personalized RFA is ahead of RFA, on honest devices."""
    place = Place("personalization", f"{setting}, data", HIGH)
    yield evidence.difference(place, ("RFA, personalized", "RFA"), read=at_end(HONEST))


@statement(
    "The results for Sent140 are similar, with the exception that FedAvg with personalization is "
    "nearly identical to RFA with personalization.",
    SENT,
)
def personal_equal(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Personalized FedAvg and RFA are within a point, at 0 and at 1/4, on honest devices."""
    lines = ("FedAvg, personalized", "RFA, personalized")
    for level in (0.0, HIGH):
        place = Place("personalization", f"{setting}, data", level)
        yield evidence.difference(place, lines, read=at_end(HONEST), margin=POINT)


@statement(
    "We observe that a low communication budget is faster in the regime of low corruption, while "
    "more iterations work better in the high corruption regime.",
    EMNIST,
)
def budgets(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """After as many calls 2 per round beat 10 without corruption, and 10 beat 2 if omniscient."""
    for panel, lines in (
        ("no corruption", ("2 calls", "10 calls")),
        ("omniscient 0.25", ("10 calls", "2 calls")),
    ):
        place = Place("budget", f"{setting}, {panel}")
        runs = [run for line in lines for run in evidence.runs(place, line).values()]
        stayed = [run for run in runs if not run.diverged] or runs
        calls = min(run.row["oracle_calls"] for run in stayed)
        finding = evidence.difference(place, lines, read=after(calls, "oracle_calls"))
        yield dataclasses.replace(finding, words=f"{panel}, after {calls} calls, {finding.words}")


@statement(
    "In the regime of low corruption, good performance is achieved by selecting 50 devices per "
    "round (5%), where as 10 devices per round (1%) is not enough.",
    EMNIST,
)
def ten_devices(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Without corruption 100 devices are ahead of 10, and within two points of 50."""
    place = Place("devices", f"{setting}, no corruption")
    yield evidence.difference(place, ("100 devices", "10 devices"))
    yield evidence.difference(place, ("100 devices", "50 devices"), margin=2 * POINT)


@statement(
    "In high corruption regimes, we see the benefit of choosing more devices per round, as a few "
    "runs with 10 or 50 devices per round with omniscient corruption at 25% diverged.",
    EMNIST,
)
def small_cohorts(evidence: Evidence, setting: str) -> Iterator[Finding | Fact]:
    """Some runs with 10 or 50 devices diverge; 100 devices are ahead of 10."""
    place = Place("devices", f"{setting}, omniscient 0.25")
    lost: list[str] = []
    for line in ("10 devices", "50 devices"):
        runs = evidence.runs(place, line).values()
        lost += [f"{sum(run.diverged for run in runs)} of {len(runs)} with {line} diverged"]
    some = any(not text.startswith("0 of") for text in lost)
    yield Fact(", ".join(lost), some or None)
    yield evidence.difference(place, ("100 devices", "10 devices"))


@statement(
    "We see that the performance is always within one standard deviation of each other "
    "irrespective of the amount of local computation.",
    SENT,
)
def epochs(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """One local epoch and five are within a point, for FedAvg and RFA, at 0 and at 1/4."""
    for line in ("FedAvg", "RFA"):
        for level in (0.0, HIGH):
            place = Place("epochs", f"{setting}, {line}", level)
            finding = evidence.difference(place, ("5 epochs", "1 epoch"), margin=POINT)
            yield dataclasses.replace(finding, words=f"{line} at {level:g}, {finding.words}")


@statement(
    "However, we also note that RFA with a single local epoch is obtains a slightly lower test "
    "accuracy in the no-corruption regime than using more local computation.",
    SENT,
)
def one_epoch(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA with five local epochs is ahead of RFA with one, without corruption."""
    place = Place("epochs", f"{setting}, RFA", 0.0)
    yield evidence.difference(place, ("5 epochs", "1 epoch"))


@statement(
    "The smoothed Weiszfeld algorithm displays (local) linear convergence, as evidenced by the "
    "straight line in log scale.",
    ("frozen cohorts",),
    gated=False,
)
def linear_rate(evidence: Evidence, setting: str) -> Iterator[Fact]:
    """On every frozen cohort a step shortens the distance to the median by a constant factor."""
    exhibit = evidence.exhibits.get("weiszfeld")
    if exhibit is None or not exhibit.tables[0].rows:
        raise AbsentError(setting)
    rates = [row[-1] for row in exhibit.tables[0].rows]
    known = [float(rate) for rate in rates if isinstance(rate, int | float)]
    if not known:
        yield Fact("no cohort came near its median", holds=False)
        return
    text = f"a step shortens the distance to {min(known):.2f} to {max(known):.2f} of it, "
    yield Fact(f"{text}on {len(known)} of {len(rates)} cohorts", len(known) == len(rates))


def judge(evidence: Evidence, *, verdicts: bool = True) -> Table:
    """Return all statements, each with the words of the paper, the verdict and its numbers.

    Without `verdicts` the runs are too short for conclusions, and there are only numbers.
    """
    rows: list[list[Value]] = []
    for each in STATEMENTS:
        for setting in each.settings:
            verdict, numbers = judge_one(each, evidence, setting)
            shown = verdict if verdicts else "not judged"
            again = setting != each.settings[0]
            rows.append(["" if again else each.quote, each.tested, setting, shown, numbers])
    head = ["the paper", "tested", "setting", "verdict", "numbers (accuracy in %, 95 % interval)"]
    return Table("Statements of the paper", head, rows)
