"""The paper's statements, each judged by the runs at hand.

A statement is confirmed, not confirmed, not clear where the seeds differ by more than the methods
do, or open where its runs are missing. The numbers stand beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeAlias

from rfa.lab.paper.evidence import (
    POINT,
    AbsentError,
    Clear,
    Evidence,
    after,
    ahead,
    all_of,
    equal,
    say,
    variation,
    without_corruption,
)
from rfa.lab.report.exhibit import Table, Value
from rfa.lab.runs.headline import HONEST

WORDS = {True: "confirmed", False: "not confirmed", None: "not clear"}
OPEN = "open"
HIGH = 0.25
EMNIST, SENT = "EMNIST linear, data", "Sent140 linear, data"
LINES = ("RFA", "FedAvg")
OMNISCIENT, CLEAN = "EMNIST linear, omniscient", "EMNIST linear, no corruption"
Verdict: TypeAlias = tuple[Clear, str]
Judge: TypeAlias = Callable[[Evidence], Verdict]
JUDGES: list[Judge] = []
"""The statements, in the paper's order."""


def statement(parts: Callable[[Evidence], Iterator[Verdict]]) -> Judge:
    """Judge what the docstring says: it holds if all parts do. The numbers of all are told."""

    @functools.wraps(parts)
    def judge_all(evidence: Evidence) -> Verdict:
        verdicts, numbers = zip(*parts(evidence), strict=True)
        return all_of(verdicts), "; ".join(numbers)

    JUDGES.append(judge_all)
    return judge_all


@statement
def separates_linear(evidence: Evidence) -> Iterator[Verdict]:
    """RFA beats FedAvg on EMNIST linear with a quarter of the data poisoned."""
    (rfa, fedavg), text = evidence.ends("robustness", EMNIST, LINES, HIGH)
    yield ahead(rfa, fedavg), text


@statement
def omniscient_linear(evidence: Evidence) -> Iterator[Verdict]:
    """Omniscient devices take FedAvg on EMNIST linear to about 0 %, RFA keeps over 40 %."""
    (rfa, fedavg), text = evidence.ends("robustness", OMNISCIENT, LINES, HIGH)
    yield rfa.mean > 40 and fedavg.mean < 10, text  # noqa: PLR2004


@statement
def omniscient_nets(evidence: Evidence) -> Iterator[Verdict]:
    """On the ConvNet and the LSTM, too, RFA keeps most of its accuracy, and FedAvg does not."""
    for panel in ("EMNIST ConvNet, omniscient", "Shakespeare LSTM, omniscient"):
        clean = evidence.end("robustness", panel, "RFA", 0.0)
        (rfa, fedavg), _ = evidence.ends("robustness", panel, LINES, HIGH)
        text = f"{panel}: RFA {say(rfa)} (clean {say(clean)}), FedAvg {say(fedavg)}"
        yield rfa.mean > clean.mean / 2 > fedavg.mean, text


@statement
def nets_alike(evidence: Evidence) -> Iterator[Verdict]:
    """Poisoned data hardly separates RFA and FedAvg on deep nets (within three points)."""
    for panel in ("EMNIST ConvNet, data", "Shakespeare LSTM, data"):
        (rfa, fedavg), text = evidence.ends("robustness", panel, LINES, HIGH)
        yield equal(rfa, fedavg, 3 * POINT), f"{panel}: {text}"


@statement
def small_gap(evidence: Evidence) -> Iterator[Verdict]:
    """Without corruption RFA is at most 1.4 points behind FedAvg, after as many rounds."""
    for panel in (EMNIST, "Shakespeare LSTM, data", SENT):
        rfa, fedavg, text = without_corruption(evidence, "robustness", panel)
        yield fedavg.mean - rfa.mean <= 1.4, f"{panel.rsplit(',', 1)[0]}: {text}"  # noqa: PLR2004


@statement
def iid_gap(evidence: Evidence) -> Iterator[Verdict]:
    """The gap without corruption vanishes for an i.i.d. split (EMNIST; half a point)."""
    rfa, fedavg, text = without_corruption(evidence, "iid", "EMNIST linear, i.i.d., data")
    *_, by_writer = without_corruption(evidence, "robustness", EMNIST)
    yield equal(rfa, fedavg, POINT / 2), f"i.i.d.: {text}; by writer: {by_writer}"


@statement
def three_calls(evidence: Evidence) -> Iterator[Verdict]:
    """RFA matches FedAvg round for round without corruption, so it needs three calls to one."""
    runs = evidence.runs("curves", CLEAN, "RFA")
    rounds = min(result.cell.settings.rounds for result in runs)
    rfa, fedavg = after(runs, rounds), after(evidence.runs("curves", CLEAN, "FedAvg"), rounds)
    calls = max(result.row["oracle_calls"] for result in runs) / rounds
    text = f"after {rounds} rounds RFA {say(rfa)}, FedAvg {say(fedavg)}; {calls:.1f} calls a round"
    yield equal(rfa, fedavg), text


@statement
def steadier(evidence: Evidence) -> Iterator[Verdict]:
    """Runs of RFA vary less than those of FedAvg (EMNIST, a quarter of the data poisoned)."""
    panel = "EMNIST linear, data 0.25"
    widths = [variation(evidence.runs("seeds", panel, line)) for line in LINES]
    (rfa, fedavg), at_end = evidence.ends("seeds", panel, LINES)
    text = "mean width of the band of seeds in the later half: "
    text += f"RFA {widths[0]:.1f}, FedAvg {widths[1]:.1f}; at the end: {at_end}"
    less, less_at_end = widths[0] < widths[1], rfa.high - rfa.low < fedavg.high - fedavg.low
    yield less if less == less_at_end else None, text


@statement
def beats_comparators(evidence: Evidence) -> Iterator[Verdict]:
    """RFA beats the coordinate median, norm clipping and the trimmed mean on Sent140."""
    lines = ("RFA", "coordinate median", "norm clipping", "trimmed mean")
    (rfa, *others), text = evidence.ends("comparators", SENT, lines, HIGH)
    yield all_of([ahead(rfa, other) for other in others]), text


@statement
def krum_ahead(evidence: Evidence) -> Iterator[Verdict]:
    """Multi-Krum, which is told rho, beats RFA on Sent140."""
    (krum, rfa), text = evidence.ends("comparators", SENT, ("multi-Krum", "RFA"), HIGH)
    yield ahead(krum, rfa), text


@statement
def one_step(evidence: Evidence) -> Iterator[Verdict]:
    """One-step RFA is at most two points behind RFA, for the communication of FedAvg."""
    for panel in (EMNIST, OMNISCIENT, "EMNIST ConvNet, omniscient"):
        (rfa, step), _ = evidence.ends("one-step", panel, ("RFA", "one-step RFA"), HIGH)
        yield step.mean > rfa.mean - 2 * POINT, f"{panel}: RFA {say(rfa)}, one-step {say(step)}"


@statement
def personal_gain(evidence: Evidence) -> Iterator[Verdict]:
    """Personalization raises the accuracy of honest devices on EMNIST, also under corruption."""
    for level in (0.0, HIGH):
        for line in ("FedAvg", "RFA"):
            lines = (line, f"{line}, personalized")
            where = ("personalization", EMNIST, lines, level)
            (plain, personal), _ = evidence.ends(*where, measure=HONEST)
            text = f"{line} at {level:g}: {say(plain)}, personalized {say(personal)}"
            yield ahead(personal, plain), text


@statement
def personal_equal(evidence: Evidence) -> Iterator[Verdict]:
    """Personalized FedAvg equals personalized RFA on Sent140 (honest devices)."""
    for level in (0.0, HIGH):
        lines = ("FedAvg, personalized", "RFA, personalized")
        where = ("personalization", SENT, lines, level)
        (fedavg, rfa), _ = evidence.ends(*where, measure=HONEST)
        yield equal(fedavg, rfa), f"at {level:g}: FedAvg {say(fedavg)}, RFA {say(rfa)}"


@statement
def few_calls(evidence: Evidence) -> Iterator[Verdict]:
    """Few calls a round are faster without corruption (EMNIST, after as many calls)."""
    runs = [evidence.runs("budget", CLEAN, line) for line in ("2 calls", "10 calls")]
    calls = min(result.row["oracle_calls"] for some in runs for result in some)
    few, many = (after(some, calls, "oracle_calls") for some in runs)
    yield ahead(few, many), f"after {calls} calls: 2 a round {say(few)}, 10 a round {say(many)}"


@statement
def many_calls(evidence: Evidence) -> Iterator[Verdict]:
    """More calls a round help against omniscient devices (EMNIST, after as many rounds)."""
    panel = "EMNIST linear, omniscient 0.25"
    runs = [evidence.runs("budget", panel, line) for line in ("2 calls", "10 calls")]
    rounds = min(result.cell.settings.rounds for result in runs[1])
    few, many = (after(some, rounds) for some in runs)
    yield ahead(many, few), f"after {rounds} rounds: 2 a round {say(few)}, 10 a round {say(many)}"


@statement
def ten_devices(evidence: Evidence) -> Iterator[Verdict]:
    """Ten devices a round are too few, fifty are enough where nobody is corrupted (2 points)."""
    lines = ("10 devices", "50 devices", "100 devices")
    (ten, fifty, hundred), text = evidence.ends("devices", CLEAN, lines)
    yield all_of([ahead(hundred, ten), equal(fifty, hundred, 2 * POINT)]), text


@statement
def small_cohorts_diverge(evidence: Evidence) -> Iterator[Verdict]:
    """Some runs with 10 or 50 devices diverge against omniscient devices."""
    diverged, parts = list[int](), list[str]()
    for line in ("10 devices", "50 devices", "100 devices"):
        where = ("devices", "EMNIST linear, omniscient 0.25", line)
        runs, end = evidence.runs(*where), evidence.end(*where)
        diverged.append(sum(result.diverged for result in runs))
        parts.append(f"{line}: {diverged[-1]} of {len(runs)} diverged, {say(end)}")
    yield sum(diverged[:2]) > 0, "; ".join(parts)


@statement
def epochs(evidence: Evidence) -> Iterator[Verdict]:
    """Local epochs hardly matter on Sent140."""
    for name in ("FedAvg", "RFA"):
        for level in (0.0, HIGH):
            panel, lines = f"Sent140 linear, {name}", ("1 epoch", "5 epochs")
            (once, five), _ = evidence.ends("epochs", panel, lines, level)
            yield equal(once, five), f"{name} at {level:g}: 1 {say(once)}, 5 {say(five)}"


@statement
def one_epoch(evidence: Evidence) -> Iterator[Verdict]:
    """RFA with one local epoch is a little lower without corruption than with more (Sent140)."""
    lines = ("1 epoch", "5 epochs")
    (once, five), text = evidence.ends("epochs", "Sent140 linear, RFA", lines, 0.0)
    yield ahead(five, once), text


@statement
def linear_rate(evidence: Evidence) -> Iterator[Verdict]:
    """Weiszfeld's algorithm converges linearly near the median, on every frozen cohort."""
    exhibit = evidence.exhibits.get("weiszfeld")
    if exhibit is None or not exhibit.tables[0].rows:
        msg = "weiszfeld"
        raise AbsentError(msg)
    rates = [row[-1] for row in exhibit.tables[0].rows]
    known = [float(rate) for rate in rates if isinstance(rate, int | float)]
    text = "no cohort came near its median"
    if known:
        text = f"a step shortens the distance to {min(known):.2f} to {max(known):.2f} of it"
        text += f", on {len(known)} cohorts"
    yield len(known) == len(rates) and max(known) < 1, text


def judge(evidence: Evidence) -> Table:
    """All statements, whether they are confirmed, and the numbers."""
    rows: list[list[Value]] = []
    for judge_one in JUDGES:
        text = (judge_one.__doc__ or "").strip()
        try:
            good, numbers = judge_one(evidence)
        except AbsentError as error:
            rows.append([text, OPEN, f"there are no such runs: {error}"])
        else:
            rows.append([text, WORDS[good], numbers])
    head = ["statement", "verdict", "numbers (accuracy in %)"]
    return Table("Statements of the paper", head, rows)
