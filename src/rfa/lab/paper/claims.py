"""The paper's statements, each judged by the runs at hand.

A statement is confirmed, not confirmed, not clear where the seeds differ by more than the methods
do, or open where its runs are missing. The numbers stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rfa.lab.paper.evidence import (
    POINT,
    AbsentError,
    Clear,
    Evidence,
    after,
    after_calls,
    ahead,
    all_of,
    equal,
    say,
    variation,
    without_corruption,
)
from rfa.lab.report.exhibit import Table, Value

WORDS = {True: "confirmed", False: "not confirmed", None: "not clear"}
OPEN = "open"
HIGH = 0.25
EMNIST, SENT = "EMNIST linear, data", "Sent140 linear, data"
Verdict: TypeAlias = tuple[Clear, str]


def separates_linear(evidence: Evidence) -> Verdict:
    """RFA beats FedAvg on EMNIST linear with a quarter of the data poisoned."""
    rfa = evidence.end("robustness", EMNIST, "RFA", HIGH)
    fedavg = evidence.end("robustness", EMNIST, "FedAvg", HIGH)
    return ahead(rfa, fedavg), f"RFA {say(rfa)}, FedAvg {say(fedavg)}"


def omniscient_linear(evidence: Evidence) -> Verdict:
    """Omniscient devices take FedAvg on EMNIST linear to about 0 %, RFA keeps over 40 %."""
    panel = "EMNIST linear, omniscient"
    rfa = evidence.end("robustness", panel, "RFA", HIGH)
    fedavg = evidence.end("robustness", panel, "FedAvg", HIGH)
    good = rfa.mean > 40 and fedavg.mean < 10  # noqa: PLR2004
    return good, f"RFA {say(rfa)}, FedAvg {say(fedavg)}"


def omniscient_nets(evidence: Evidence) -> Verdict:
    """On the ConvNet and the LSTM, too, RFA keeps most of its accuracy, and FedAvg does not."""
    verdicts, parts = list[Clear](), list[str]()
    for panel in ("EMNIST ConvNet, omniscient", "Shakespeare LSTM, omniscient"):
        clean = evidence.end("robustness", panel, "RFA", 0.0)
        rfa = evidence.end("robustness", panel, "RFA", HIGH)
        fedavg = evidence.end("robustness", panel, "FedAvg", HIGH)
        verdicts.append(rfa.mean > clean.mean / 2 > fedavg.mean)
        parts.append(f"{panel}: RFA {say(rfa)} (clean {say(clean)}), FedAvg {say(fedavg)}")
    return all_of(verdicts), "; ".join(parts)


def nets_alike(evidence: Evidence) -> Verdict:
    """Poisoned data hardly separates RFA and FedAvg on deep nets (within three points)."""
    verdicts, parts = list[Clear](), list[str]()
    for panel in ("EMNIST ConvNet, data", "Shakespeare LSTM, data"):
        rfa = evidence.end("robustness", panel, "RFA", HIGH)
        fedavg = evidence.end("robustness", panel, "FedAvg", HIGH)
        verdicts.append(equal(rfa, fedavg, 3 * POINT))
        parts.append(f"{panel}: RFA {say(rfa)}, FedAvg {say(fedavg)}")
    return all_of(verdicts), "; ".join(parts)


def small_gap(evidence: Evidence) -> Verdict:
    """Without corruption RFA is at most 1.4 points behind FedAvg, after as many rounds."""
    verdicts, parts = list[Clear](), list[str]()
    for panel in (EMNIST, "Shakespeare LSTM, data", SENT):
        rfa, fedavg, text = without_corruption(evidence, "robustness", panel)
        verdicts.append(fedavg.mean - rfa.mean <= 1.4)  # noqa: PLR2004
        parts.append(f"{panel.rsplit(',', 1)[0]}: {text}")
    return all_of(verdicts), "; ".join(parts)


def iid_gap(evidence: Evidence) -> Verdict:
    """The gap without corruption vanishes for an i.i.d. split (EMNIST; half a point)."""
    rfa, fedavg, text = without_corruption(evidence, "iid", "EMNIST linear, i.i.d., data")
    *_, other = without_corruption(evidence, "robustness", EMNIST)
    return equal(rfa, fedavg, POINT / 2), f"i.i.d.: {text}; by writer: {other}"


def three_calls(evidence: Evidence) -> Verdict:
    """RFA matches FedAvg round for round without corruption, so it needs three calls to one."""
    panel = "EMNIST linear, no corruption"
    rfa = evidence.runs("curves", panel, "RFA")
    rounds = min(result.cell.settings.rounds for result in rfa)
    mine, theirs = after(rfa, rounds), after(evidence.runs("curves", panel, "FedAvg"), rounds)
    calls = max(result.row["oracle_calls"] for result in rfa) / rounds
    text = f"after {rounds} rounds RFA {say(mine)}, FedAvg {say(theirs)}; {calls:.1f} calls a round"
    return equal(mine, theirs), text


def steadier(evidence: Evidence) -> Verdict:
    """Runs of RFA vary less than those of FedAvg (EMNIST, a quarter of the data poisoned)."""
    panel = "EMNIST linear, data 0.25"
    runs = [evidence.runs("seeds", panel, line) for line in ("RFA", "FedAvg")]
    rfa, fedavg = (variation(found) for found in runs)
    mine, theirs = (evidence.end("seeds", panel, line) for line in ("RFA", "FedAvg"))
    text = f"mean width of the band of seeds in the later half: RFA {rfa:.1f}, FedAvg {fedavg:.1f}"
    text += f"; at the end: RFA {say(mine)}, FedAvg {say(theirs)}"
    at_end = mine.high - mine.low < theirs.high - theirs.low
    return (rfa < fedavg) if at_end == (rfa < fedavg) else None, text


def beats_comparators(evidence: Evidence) -> Verdict:
    """RFA beats the coordinate median, norm clipping and the trimmed mean on Sent140."""
    rfa = evidence.end("comparators", SENT, "RFA", HIGH)
    verdicts, parts = list[Clear](), [f"RFA {say(rfa)}"]
    for name in ("coordinate median", "norm clipping", "trimmed mean"):
        other = evidence.end("comparators", SENT, name, HIGH)
        verdicts.append(ahead(rfa, other))
        parts.append(f"{name} {say(other)}")
    return all_of(verdicts), ", ".join(parts)


def krum_ahead(evidence: Evidence) -> Verdict:
    """Multi-Krum, which is told rho, beats RFA on Sent140."""
    krum = evidence.end("comparators", SENT, "multi-Krum", HIGH)
    rfa = evidence.end("comparators", SENT, "RFA", HIGH)
    return ahead(krum, rfa), f"multi-Krum {say(krum)}, RFA {say(rfa)}"


def one_step(evidence: Evidence) -> Verdict:
    """One-step RFA is at most two points behind RFA, for the communication of FedAvg."""
    verdicts, parts = list[Clear](), list[str]()
    for panel in (EMNIST, "EMNIST linear, omniscient", "EMNIST ConvNet, omniscient"):
        rfa = evidence.end("one-step", panel, "RFA", HIGH)
        step = evidence.end("one-step", panel, "one-step RFA", HIGH)
        verdicts.append(step.mean > rfa.mean - 2 * POINT)
        parts.append(f"{panel}: RFA {say(rfa)}, one-step {say(step)}")
    return all_of(verdicts), "; ".join(parts)


def personal_gain(evidence: Evidence) -> Verdict:
    """Personalization raises accuracy on EMNIST without corruption, and under it."""
    verdicts, parts = list[Clear](), list[str]()
    for level in (0.0, HIGH):
        for line in ("FedAvg", "RFA"):
            plain = evidence.end("personalization", EMNIST, line, level)
            own = evidence.end("personalization", EMNIST, f"{line}, personalized", level)
            verdicts.append(ahead(own, plain))
            parts.append(f"{line} at {level:g}: {say(plain)}, personalized {say(own)}")
    return all_of(verdicts), "; ".join(parts)


def personal_equal(evidence: Evidence) -> Verdict:
    """Personalized FedAvg equals personalized RFA on Sent140."""
    verdicts, parts = list[Clear](), list[str]()
    for level in (0.0, HIGH):
        mean = evidence.end("personalization", SENT, "FedAvg, personalized", level)
        median = evidence.end("personalization", SENT, "RFA, personalized", level)
        verdicts.append(equal(mean, median))
        parts.append(f"at {level:g}: FedAvg {say(mean)}, RFA {say(median)}")
    return all_of(verdicts), "; ".join(parts)


def few_calls(evidence: Evidence) -> Verdict:
    """Few calls a round are faster without corruption (EMNIST, after as many calls)."""
    panel = "EMNIST linear, no corruption"
    few, many = (evidence.runs("budget", panel, line) for line in ("2 calls", "10 calls"))
    calls = min(result.row["oracle_calls"] for result in [*few, *many])
    one, other = after_calls(few, calls), after_calls(many, calls)
    return ahead(one, other), f"after {calls} calls: 2 a round {say(one)}, 10 a round {say(other)}"


def many_calls(evidence: Evidence) -> Verdict:
    """More calls a round help against omniscient devices (EMNIST, after as many rounds)."""
    panel = "EMNIST linear, omniscient 0.25"
    few, many = (evidence.runs("budget", panel, line) for line in ("2 calls", "10 calls"))
    rounds = min(result.cell.settings.rounds for result in many)
    one, other = after(few, rounds), after(many, rounds)
    text = f"after {rounds} rounds: 2 a round {say(one)}, 10 a round {say(other)}"
    return ahead(other, one), text


def ten_devices(evidence: Evidence) -> Verdict:
    """Ten devices a round are too few, fifty are enough where nobody is corrupted (2 points)."""
    panel, counts = "EMNIST linear, no corruption", (10, 50, 100)
    ten, fifty, hundred = (evidence.end("devices", panel, f"{n} devices") for n in counts)
    text = f"10 devices {say(ten)}, 50 devices {say(fifty)}, 100 devices {say(hundred)}"
    return all_of([ahead(hundred, ten), equal(fifty, hundred, 2 * POINT)]), text


def small_cohorts_diverge(evidence: Evidence) -> Verdict:
    """Some runs with 10 or 50 devices diverge against omniscient devices."""
    panel = "EMNIST linear, omniscient 0.25"
    parts: list[str] = []
    lost = 0
    for count in (10, 50, 100):
        found = evidence.runs("devices", panel, f"{count} devices")
        ended = sum(result.diverged for result in found)
        lost += ended if count < 100 else 0  # noqa: PLR2004
        end = evidence.end("devices", panel, f"{count} devices")
        parts.append(f"{count} devices: {ended} of {len(found)} diverged, {say(end)}")
    return lost > 0, "; ".join(parts)


def epochs(evidence: Evidence) -> Verdict:
    """Local epochs hardly matter on Sent140."""
    verdicts, parts = list[Clear](), list[str]()
    for panel in ("Sent140 linear, FedAvg", "Sent140 linear, RFA"):
        for level in (0.0, HIGH):
            one = evidence.end("epochs", panel, "1 epoch", level)
            five = evidence.end("epochs", panel, "5 epochs", level)
            verdicts.append(equal(one, five))
            parts.append(f"{panel.split(', ')[1]} at {level:g}: 1 {say(one)}, 5 {say(five)}")
    return all_of(verdicts), "; ".join(parts)


def one_epoch(evidence: Evidence) -> Verdict:
    """RFA with one local epoch is a little lower without corruption than with more (Sent140)."""
    panel = "Sent140 linear, RFA"
    one = evidence.end("epochs", panel, "1 epoch", 0.0)
    five = evidence.end("epochs", panel, "5 epochs", 0.0)
    return ahead(five, one), f"1 epoch {say(one)}, 5 epochs {say(five)}"


def linear_rate(evidence: Evidence) -> Verdict:
    """Weiszfeld's algorithm converges linearly near the median, on every frozen cohort."""
    exhibit = evidence.exhibits.get("weiszfeld")
    if exhibit is None or not exhibit.tables[0].rows:
        msg = "weiszfeld"
        raise AbsentError(msg)
    rates = [row[-1] for row in exhibit.tables[0].rows]
    known = [float(rate) for rate in rates if isinstance(rate, int | float)]
    if not known:
        return False, "no cohort came near its median"
    text = f"a step shortens the distance to {min(known):.2f} to {max(known):.2f} of it"
    return len(known) == len(rates) and max(known) < 1, f"{text}, on {len(known)} cohorts"


JUDGES: tuple[Callable[[Evidence], Verdict], ...] = (
    separates_linear,
    omniscient_linear,
    omniscient_nets,
    nets_alike,
    small_gap,
    iid_gap,
    three_calls,
    steadier,
    beats_comparators,
    krum_ahead,
    one_step,
    personal_gain,
    personal_equal,
    few_calls,
    many_calls,
    ten_devices,
    small_cohorts_diverge,
    epochs,
    one_epoch,
    linear_rate,
)


def judge(evidence: Evidence) -> Table:
    """All statements, whether they are confirmed, and the numbers."""
    rows: list[list[Value]] = []
    for one in JUDGES:
        statement = (one.__doc__ or "").strip()
        try:
            good, text = one(evidence)
        except AbsentError as error:
            rows.append([statement, OPEN, f"there are no such runs: {error}"])
        else:
            rows.append([statement, WORDS[good], text])
    head = ["statement", "verdict", "numbers (accuracy in %)"]
    return Table("Statements of the paper", head, rows)
