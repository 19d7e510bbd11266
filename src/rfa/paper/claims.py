"""The paper's statements, each judged by the runs at hand.

A statement is confirmed, not confirmed, or open where its runs are missing; the numbers stand
beside it. What "equal" means is said where it is used: within a point of accuracy, or within the
spread of the seeds where that is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rfa.paper.evidence import POINT, Absent, Evidence, after, equal, gap, say, swing
from rfa.report.exhibit import Table, Value

YES, NO, OPEN = "confirmed", "not confirmed", "open"
HIGH = 0.25
EMNIST, SENT = "EMNIST linear, data", "Sent140 linear, data"


def three_calls(evidence: Evidence) -> tuple[bool, str]:
    """RFA matches FedAvg round for round, so it needs three calls to one."""
    panel = "EMNIST linear, no corruption"
    rfa = evidence.runs("curves", panel, "RFA")
    rounds = min(result.row["rounds"] for result in rfa)
    mine, theirs = after(rfa, rounds), after(evidence.runs("curves", panel, "FedAvg"), rounds)
    calls = max(result.row["oracle_calls"] for result in rfa) / rounds
    text = f"after {rounds} rounds RFA {say(mine)}, FedAvg {say(theirs)}; {calls:.1f} calls a round"
    return equal(mine, theirs), text


def separates_linear(evidence: Evidence) -> tuple[bool, str]:
    """RFA beats FedAvg on EMNIST linear with a quarter of the data poisoned."""
    rfa = evidence.end("robustness", EMNIST, "RFA", HIGH)
    fedavg = evidence.end("robustness", EMNIST, "FedAvg", HIGH)
    return rfa.mean > fedavg.mean, f"RFA {say(rfa)}, FedAvg {say(fedavg)}"


def omniscient_linear(evidence: Evidence) -> tuple[bool, str]:
    """Omniscient devices take FedAvg to about 0 %, RFA keeps over 40 %."""
    panel = "EMNIST linear, omniscient"
    rfa = evidence.end("robustness", panel, "RFA", HIGH)
    fedavg = evidence.end("robustness", panel, "FedAvg", HIGH)
    good = rfa.mean > 40 and fedavg.mean < 10  # noqa: PLR2004
    return good, f"RFA {say(rfa)}, FedAvg {say(fedavg)}"


def omniscient_nets(evidence: Evidence) -> tuple[bool, str]:
    """The same holds for the ConvNet and the LSTM."""
    good, parts = True, list[str]()
    for panel in ("EMNIST ConvNet, omniscient", "Shakespeare LSTM, omniscient"):
        rfa = evidence.end("robustness", panel, "RFA", HIGH)
        clean = evidence.end("robustness", panel, "RFA", 0.0)
        fedavg = evidence.end("robustness", panel, "FedAvg", HIGH)
        good = good and rfa.mean > 2 * fedavg.mean
        parts.append(f"{panel}: RFA {say(rfa)} (clean {say(clean)}), FedAvg {say(fedavg)}")
    return good, "; ".join(parts)


def nets_alike(evidence: Evidence) -> tuple[bool, str]:
    """Poisoned data hardly separates RFA and FedAvg on deep nets."""
    good, parts = True, list[str]()
    for panel in ("EMNIST ConvNet, data", "Shakespeare LSTM, data"):
        rfa = evidence.end("robustness", panel, "RFA", HIGH)
        fedavg = evidence.end("robustness", panel, "FedAvg", HIGH)
        good = good and abs(rfa.mean - fedavg.mean) <= 3 * POINT
        parts.append(f"{panel}: RFA {say(rfa)}, FedAvg {say(fedavg)}")
    return good, "; ".join(parts)


def beats_comparators(evidence: Evidence) -> tuple[bool, str]:
    """RFA beats the coordinate median, norm clipping and the trimmed mean on Sent140."""
    rfa = evidence.end("comparators", SENT, "RFA", HIGH)
    good, parts = True, [f"RFA {say(rfa)}"]
    for name in ("coordinate median", "norm clipping", "trimmed mean"):
        other = evidence.end("comparators", SENT, name, HIGH)
        good = good and rfa.mean > other.mean
        parts.append(f"{name} {say(other)}")
    return good, ", ".join(parts)


def krum_ahead(evidence: Evidence) -> tuple[bool, str]:
    """Multi-Krum, which is told rho, beats RFA on Sent140."""
    krum = evidence.end("comparators", SENT, "multi-Krum", HIGH)
    rfa = evidence.end("comparators", SENT, "RFA", HIGH)
    return krum.mean > rfa.mean, f"multi-Krum {say(krum)}, RFA {say(rfa)}"


def small_gap(evidence: Evidence) -> tuple[bool, str]:
    """Without corruption RFA is at most 1.4 points behind FedAvg, after as many rounds."""
    good, parts = True, list[str]()
    for panel in (EMNIST, "Shakespeare LSTM, data", SENT):
        behind, text = gap(evidence, "robustness", panel)
        good = good and behind <= 1.4  # noqa: PLR2004
        parts.append(f"{panel.rsplit(',', 1)[0]}: {text}")
    return good, "; ".join(parts)


def iid_gap(evidence: Evidence) -> tuple[bool, str]:
    """The gap without corruption vanishes for an i.i.d. split (of EMNIST; same rounds)."""
    split, text = gap(evidence, "iid", "EMNIST linear, i.i.d., data")
    real, other = gap(evidence, "robustness", EMNIST)
    good = abs(split) <= max(abs(real), 0.5) and abs(split) <= POINT
    return good, f"i.i.d.: {text}; by writer: {other}"


def budget(evidence: Evidence) -> tuple[bool, str]:
    """Few calls are faster at low corruption, more help at high (at equal calls)."""
    clean, hard = "EMNIST linear, no corruption", "EMNIST linear, omniscient 0.25"
    few, many = evidence.end("budget", clean, "2 calls"), evidence.end("budget", clean, "10 calls")
    low, high = (evidence.runs("budget", hard, line) for line in ("2 calls", "10 calls"))
    rounds = min(result.row["rounds"] for result in high)
    at_low, at_high = after(low, rounds), after(high, rounds)
    text = f"clean, equal calls: 2 {say(few)}, 10 {say(many)}; omniscient, after {rounds} rounds: "
    text += f"2 {say(at_low)}, 10 {say(at_high)}"
    return few.mean > many.mean and at_high.mean > at_low.mean, text


def ten_devices(evidence: Evidence) -> tuple[bool, str]:
    """Ten devices a round are too few, fifty are enough where nobody is corrupted."""
    panel = "EMNIST linear, no corruption"
    found = [evidence.end("devices", panel, f"{count} devices") for count in (10, 50, 100)]
    text = ", ".join(
        f"{count} devices {say(end)}" for count, end in zip((10, 50, 100), found, strict=True)
    )
    ten, fifty, hundred = found
    return ten.mean < hundred.mean - POINT and fifty.mean > hundred.mean - 2 * POINT, text


def small_cohorts_diverge(evidence: Evidence) -> tuple[bool, str]:
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


def steadier(evidence: Evidence) -> tuple[bool, str]:
    """Runs of RFA vary less than those of FedAvg with poisoned data (EMNIST, a quarter)."""
    panel = "EMNIST linear, data 0.25"
    swings = {line: swing(evidence.runs("curves", panel, line)) for line in ("RFA", "FedAvg")}
    text = ", ".join(f"{line} {swing:.1f}" for line, swing in swings.items())
    text = f"standard deviation over seeds and evaluations of the later half: {text} points"
    return swings["RFA"] < swings["FedAvg"], text


def epochs(evidence: Evidence) -> tuple[bool, str]:
    """Local epochs hardly matter on Sent140."""
    good, parts = True, list[str]()
    for panel in ("Sent140 linear, FedAvg", "Sent140 linear, RFA"):
        for level in (0.0, HIGH):
            one = evidence.end("epochs", panel, "1 epoch", level)
            five = evidence.end("epochs", panel, "5 epochs", level)
            good = good and equal(one, five)
            parts.append(f"{panel.split(', ')[1]} at {level:g}: 1 {say(one)}, 5 {say(five)}")
    return good, "; ".join(parts)


def personal_gain(evidence: Evidence) -> tuple[bool, str]:
    """Personalisation raises accuracy on EMNIST without corruption, and under it."""
    good, parts = True, list[str]()
    for level in (0.0, HIGH):
        for line in ("FedAvg", "RFA"):
            plain = evidence.end("personalisation", EMNIST, line, level)
            own = evidence.end("personalisation", EMNIST, f"{line}, personalised", level)
            good = good and own.mean > plain.mean
            parts.append(f"{line} at {level:g}: {say(plain)}, personalised {say(own)}")
    return good, "; ".join(parts)


def personal_equal(evidence: Evidence) -> tuple[bool, str]:
    """Personalised FedAvg equals personalised RFA on Sent140."""
    good, parts = True, list[str]()
    for level in (0.0, HIGH):
        mean = evidence.end("personalisation", SENT, "FedAvg, personalised", level)
        median = evidence.end("personalisation", SENT, "RFA, personalised", level)
        good = good and equal(mean, median)
        parts.append(f"at {level:g}: FedAvg {say(mean)}, RFA {say(median)}")
    return good, "; ".join(parts)


def one_step(evidence: Evidence) -> tuple[bool, str]:
    """One-step RFA keeps most of RFA's accuracy, or more, for the calls of FedAvg."""
    good, parts = True, list[str]()
    for panel in (EMNIST, "EMNIST linear, omniscient", "EMNIST ConvNet, omniscient"):
        rfa = evidence.end("one-step", panel, "RFA", HIGH)
        step = evidence.end("one-step", panel, "one-step RFA", HIGH)
        good = good and step.mean > rfa.mean - 2 * POINT
        parts.append(f"{panel}: RFA {say(rfa)}, one-step {say(step)}")
    return good, "; ".join(parts)


def linear_rate(evidence: Evidence) -> tuple[bool, str]:
    """Weiszfeld's algorithm converges linearly near the median, in few steps."""
    exhibit = evidence.exhibits.get("weiszfeld")
    rates = [row[-1] for row in exhibit.tables[0].rows] if exhibit else []
    known = [float(rate) for rate in rates if isinstance(rate, int | float)]
    if not known:
        msg = "weiszfeld"
        raise Absent(msg)
    text = f"a step shortens the distance to {min(known):.2f} to {max(known):.2f} of it"
    return max(known) < 1, f"{text}, on {len(known)} cohorts"


Judge: TypeAlias = Callable[[Evidence], tuple[bool, str]]
JUDGES: tuple[Judge, ...] = (
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
    budget,
    ten_devices,
    small_cohorts_diverge,
    epochs,
    linear_rate,
)


def judge(evidence: Evidence) -> Table:
    """All statements, whether they are confirmed, and the numbers."""
    rows: list[list[Value]] = []
    for one in JUDGES:
        statement = (one.__doc__ or "").strip()
        try:
            good, text = one(evidence)
        except (Absent, IndexError) as error:
            rows.append([statement, OPEN, f"not all runs are done: {error}"])
        else:
            rows.append([statement, YES if good else NO, text])
    return Table(
        "Statements of the paper", ["statement", "verdict", "numbers (accuracy in %)"], rows
    )
