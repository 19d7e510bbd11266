"""Verdicts follow the numbers: each statement is confirmed by some and refuted by others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rfa.lab.paper.claims import STATEMENTS, judge
from rfa.lab.paper.evidence import Evidence
from rfa.lab.paper.frozen import EXCESS, MEAN_SHARE, MEDIAN_SHARE, RATE
from rfa.lab.paper.page import paper_numbers
from rfa.lab.paper.statements import CONVNET, EMNIST, EQUAL_ROUNDS, SENT, judge_one
from rfa.lab.paper.verdicts import CONFIRMED, INCONCLUSIVE, OPEN, REFUTED
from rfa.lab.report.exhibit import Exhibit, Table
from rfa.lab.report.gather import Result
from rfa.lab.runs.sweep import Cell, settle

BY_NAME = {statement.name: statement for statement in STATEMENTS}
TASKS = {
    "EMNIST linear": "emnist-linear",
    "EMNIST linear (ink 1)": "emnist-linear:polarity=ink",
    "Sent140 linear": "sent140-linear",
    "EMNIST ConvNet": "emnist-convnet",
    "EMNIST ConvNet (ink 1)": "emnist-convnet:polarity=ink",
    "Shakespeare LSTM": "shakespeare-lstm",
}
NOISE = (-0.2, 0.0, 0.2)
"""What seeds add, in another order for each line."""


def runs(
    setting: str, panel: str, line: str, value: Any, accuracy: float, **more: Any
) -> list[Result]:
    """Three seeds of a line that stay about one accuracy all along."""
    given: dict[str, Any] = {"task": TASKS[setting], "aggregator": more.pop("aggregator", "fedavg")}
    given |= {name: more.pop(name) for name in ("rounds", "budget") if name in more}
    turn = len(line) // 3 % 3
    noise: Sequence[float] = more.pop("noise", NOISE[turn:] + NOISE[:turn])
    swing, slope = more.pop("swing", 0.0), more.pop("slope", 0.0)
    found: list[Result] = []
    for seed, extra in enumerate(noise, start=1):
        settings = settle({**given, "seed": seed})
        times = [settings.rounds * step // 20 for step in range(21)]
        rise = [slope * (t - 20) / 20 for t in range(21)]
        heights = [(accuracy + extra + swing * (-1) ** t + rise[t]) / 100 for t in range(21)]
        points = [
            {"round": t, "oracle_calls": 3 * t, "test_accuracy": h, "honest_accuracy": h}
            for t, h in zip(times, heights, strict=True)
        ]
        row = {"status": "finished", "rounds": settings.rounds, "note": ""}
        row |= {"oracle_calls": points[-1]["oracle_calls"], **more}
        found.append(Result(Cell(panel, line, value, settings), row, points))
    return found


def cleanly(setting: str, accuracy: float = 65.0) -> list[Result]:
    return runs(setting, f"{setting}, data", "FedAvg", 0.0, accuracy)


def verdict(name: str, setting: str, results: dict[str, list[Result]], **classes: float) -> str:
    named = {key.replace("_", "-"): value for key, value in classes.items()}
    evidence = Evidence(results, {}, named)
    return judge_one(BY_NAME[name], evidence, setting)[0]


def poisoned(setting: str, rfa: float, fedavg: float, **more: Any) -> list[Result]:
    panel = f"{setting}, data"
    return (
        runs(setting, panel, "RFA", 0.25, rfa, **{"aggregator": "rfa", **more})
        + runs(setting, panel, "FedAvg", 0.25, fedavg, **more)
    )  # fmt: skip


@pytest.mark.parametrize("setting", EMNIST)
@pytest.mark.parametrize(
    ("rfa", "fedavg", "word"),
    [(52.8, 41.2, CONFIRMED), (14.0, 28.0, REFUTED), (41.3, 41.2, INCONCLUSIVE)],
)
def test_who_is_ahead_under_poisoned_data(
    setting: str, rfa: float, fedavg: float, word: str
) -> None:
    results = {"robustness": cleanly(setting) + poisoned(setting, rfa, fedavg)}
    assert verdict("separates_linear", setting, results) == word


@pytest.mark.parametrize("setting", EMNIST)
@pytest.mark.parametrize(
    ("rfa", "fedavg", "word"),
    [(52.8, 41.2, CONFIRMED), (51.3, 41.2, INCONCLUSIVE), (68.4, 61.9, REFUTED)],
)
def test_ten_points_are_more_than_to_be_ahead(
    setting: str, rfa: float, fedavg: float, word: str
) -> None:
    results = {"robustness": cleanly(setting) + poisoned(setting, rfa, fedavg)}
    assert verdict("ten_points", setting, results) == word
    assert verdict("separates_linear", setting, results) == CONFIRMED


def test_no_verdict_on_a_model_that_has_not_learned() -> None:
    results = {"robustness": cleanly(EMNIST[0], 30.0) + poisoned(EMNIST[0], 52.8, 41.2)}
    evidence = Evidence(results, {})
    word, numbers = judge_one(BY_NAME["separates_linear"], evidence, EMNIST[0])
    assert word == OPEN
    assert numbers.startswith("not trained: 30.0 without corruption, not above 54.3")
    floor = {"emnist-linear": 66.0}
    learned = {"robustness": cleanly(EMNIST[0], 65.0) + poisoned(EMNIST[0], 52.8, 41.2)}
    assert (
        judge_one(BY_NAME["separates_linear"], Evidence(learned, {}, floor), EMNIST[0])[0] == OPEN
    )


def test_no_verdict_at_another_horizon_or_with_two_seeds() -> None:
    short = {"robustness": cleanly(EMNIST[0]) + poisoned(EMNIST[0], 52.8, 41.2, rounds=200)}
    assert verdict("separates_linear", EMNIST[0], short) == OPEN
    two = {"robustness": cleanly(EMNIST[0]) + poisoned(EMNIST[0], 52.8, 41.2, noise=[0.0, 0.1])}
    assert verdict("separates_linear", EMNIST[0], two) == OPEN


@pytest.mark.parametrize(("clean", "word"), [(65.0, CONFIRMED), (50.0, OPEN)])
def test_deep_nets_are_judged_at_a_reduced_horizon_if_they_have_learned(
    clean: float, word: str
) -> None:
    setting = CONVNET[1]
    found = runs(setting, f"{setting}, data", "FedAvg", 0.0, clean, rounds=100)
    found += poisoned(setting, 60.0, 60.5, rounds=100)
    evidence = Evidence({"robustness": found}, {})
    verdict, numbers = judge_one(BY_NAME["nets_alike"], evidence, setting)
    assert verdict == word
    assert "a reduced horizon (100 rounds, the paper has 2000; 100 devices per round)" in numbers


def test_differences_are_paired_by_seed() -> None:
    """Seeds that differ by far more than the methods do say the same of each."""
    panel, far = f"{EMNIST[0]}, data", (-9.0, 0.0, 9.0)
    found = cleanly(EMNIST[0])
    found += runs(EMNIST[0], panel, "RFA", 0.25, 52.0, aggregator="rfa", noise=far)
    same = tuple(extra + shift for extra, shift in zip(far, (0.1, -0.1, 0.0), strict=True))
    found += runs(EMNIST[0], panel, "FedAvg", 0.25, 50.0, noise=same)
    assert verdict("separates_linear", EMNIST[0], {"robustness": found}) == CONFIRMED


@pytest.mark.parametrize(
    ("rfa", "fedavg", "word"), [(45, 6, CONFIRMED), (39, 6, REFUTED), (45, 30, REFUTED)]
)
def test_omniscient_devices(rfa: float, fedavg: float, word: str) -> None:
    panel = f"{EMNIST[0]}, omniscient"
    found = cleanly(EMNIST[0])
    found += runs(EMNIST[0], panel, "RFA", 0.25, rfa, aggregator="rfa")
    found += runs(EMNIST[0], panel, "FedAvg", 0.25, fedavg, status="diverged")
    assert verdict("omniscient", EMNIST[0], {"robustness": found}, emnist_linear=7.0) == word


@pytest.mark.parametrize(
    ("gap", "word"), [(1.4, CONFIRMED), (1.2, CONFIRMED), (2.4, INCONCLUSIVE), (4.0, REFUTED)]
)
def test_the_gap_without_corruption(gap: float, word: str) -> None:
    """The paper's own gap, found again, confirms it."""
    found = cleanly(EMNIST[1])
    found += runs(EMNIST[1], f"{EMNIST[1]}, data", "RFA", 0.0, 65.0 - gap, aggregator="rfa")
    assert verdict("small_gap", EMNIST[1], {"robustness": found}) == word


def test_after_as_many_rounds_other_runs_are_compared() -> None:
    """FedAvg is ahead because it has three times as many rounds, and then no more."""
    setting, panel = SENT[0], f"{SENT[0]}, data"
    found = cleanly(setting, 67.0)
    found += runs(setting, panel, "RFA", 0.0, 64.5, aggregator="rfa")
    longer = runs(setting, panel, "FedAvg", 0.0, 67.0)
    longer += runs(setting, panel, "RFA", 0.0, 66.7, aggregator="rfa", rounds=3000)
    results = {"robustness": found, "comparators": longer}
    assert verdict("small_gap", setting, results) == REFUTED
    assert verdict("small_gap", EQUAL_ROUNDS, results) == CONFIRMED


SUMMARY = {
    "no_worse": [(60.0, 50.0, CONFIRMED), (50.0, 50.0, CONFIRMED), (45.0, 50.0, REFUTED)],
    "no_worse, and far behind without": [(60.0, 50.0, REFUTED)],
    "graceful": [(60.0, 50.0, CONFIRMED), (60.0, 61.0, INCONCLUSIVE), (45.0, 50.0, REFUTED)],
}


@pytest.mark.parametrize(
    ("name", "rfa", "fedavg", "word"),
    [(name, *case) for name, cases in SUMMARY.items() for case in cases],
)
def test_the_summary(name: str, rfa: float, fedavg: float, word: str) -> None:
    """Without corruption FedAvg has 65 and RFA 64, so at 60 and 61 both have lost 4 points."""
    setting, panel = EMNIST[0], f"{EMNIST[0]}, data"
    found = cleanly(setting) + poisoned(setting, rfa, fedavg)
    name, _, behind = name.partition(",")
    found += runs(setting, panel, "RFA", 0.0, 61.0 if behind else 64.0, aggregator="rfa")
    if name == "no_worse":
        where = f"{setting}, omniscient"
        found += runs(setting, where, "RFA", 0.25, 45.0, aggregator="rfa")
        found += runs(setting, where, "FedAvg", 0.25, 5.0)
    assert verdict(name, setting, {"robustness": found}) == word


def test_a_loss_without_seeds_in_common_is_open() -> None:
    """The losses of a seed are only known where it has runs with and without corruption."""
    setting, panel = EMNIST[0], f"{EMNIST[0]}, data"
    found = cleanly(setting) + poisoned(setting, 60.0, 50.0)
    found += runs(setting, panel, "RFA", 0.0, 63.0, aggregator="rfa", noise=[0.0, 0.1])
    word, numbers = judge_one(BY_NAME["graceful"], Evidence({"robustness": found}, {}), setting)
    assert word == OPEN
    assert "2 seeds of at least 3" in numbers


def test_numbers_name_the_rounds_that_they_are_read_after() -> None:
    """Two accuracies of one method may only differ because of their rounds."""
    setting, panel = "Sent140 linear", "Sent140 linear, data"
    results = {"robustness": cleanly(setting) + poisoned(setting, 62.9, 65.0)}
    word = judge_one(BY_NAME["separates_linear"], Evidence(results, {}), setting)[1]
    assert "RFA 62.9 (1000 rounds) minus FedAvg 65.0 (3000 rounds): " in word
    found = runs(setting, panel, "RFA", 0.25, 65.2, aggregator="rfa", rounds=3000)
    found += runs(setting, panel, "multi-Krum", 0.25, 64.9, aggregator="multi-krum")
    results |= {"comparators": found}
    word = judge_one(BY_NAME["krum_ahead"], Evidence(results, {}), setting)[1]
    assert "multi-Krum 64.9 minus RFA 65.2 (3000 rounds): " in word


@pytest.mark.parametrize(("slope", "word"), [(0.0, CONFIRMED), (9.0, REFUTED)])
def test_an_even_split_is_judged_after_as_many_rounds(slope: float, word: str) -> None:
    """FedAvg ends at 65 as RFA does; with a slope it has 6 points less when RFA ends."""
    panel, same = f"{SENT[0]}, i.i.d., data", (-0.02, 0.0, 0.02)
    note = "artificial devices: dealt out"
    found = runs(SENT[0], panel, "RFA", 0.0, 65.0, aggregator="rfa", noise=same, note=note)
    found += runs(SENT[0], panel, "FedAvg", 0.0, 65.0, noise=same, slope=slope)
    evidence = Evidence({"iid": found, "robustness": cleanly(SENT[0])}, {})
    verdict, numbers = judge_one(BY_NAME["iid_gap"], evidence, SENT[0])
    assert verdict == word
    assert "after 1000 rounds, of artificial devices" in numbers


@pytest.mark.parametrize(("krum", "word"), [(70.0, CONFIRMED), (50.0, REFUTED)])
def test_krum_and_the_others(krum: float, word: str) -> None:
    setting, panel = "Sent140 linear", "Sent140 linear, data"
    found = runs(setting, panel, "RFA", 0.25, 60, aggregator="rfa")
    found += runs(setting, panel, "multi-Krum", 0.25, krum, aggregator="multi-krum")
    for name in ("coordinate median", "norm clipping", "trimmed mean"):
        found += runs(setting, panel, name, 0.25, 58 if word == CONFIRMED else 62)
    results = {"comparators": found, "robustness": cleanly(setting)}
    assert verdict("krum_ahead", setting, results) == word
    assert verdict("beats_comparators", setting, results) == word


@pytest.mark.parametrize(("swing", "word"), [(0.5, CONFIRMED), (8.0, REFUTED)])
def test_runs_that_swing(swing: float, word: str) -> None:
    panel = f"{EMNIST[0]}, data 0.25"
    found = runs(EMNIST[0], panel, "RFA", None, 50, aggregator="rfa", swing=swing)
    found += runs(EMNIST[0], panel, "FedAvg", None, 40, swing=3.0)
    results = {"seeds": found, "robustness": cleanly(EMNIST[0])}
    assert verdict("steadier", EMNIST[0], results) == word


def test_a_run_that_still_learns_does_not_swing_by_that() -> None:
    panel = f"{EMNIST[0]}, data 0.25"
    found = runs(EMNIST[0], panel, "RFA", None, 50, aggregator="rfa", swing=0.1, slope=20.0)
    found += runs(EMNIST[0], panel, "FedAvg", None, 40, swing=1.0)
    results = {"seeds": found, "robustness": cleanly(EMNIST[0])}
    assert verdict("steadier", EMNIST[0], results) == CONFIRMED


def test_bands_of_seeds_are_compared_over_the_same_rounds() -> None:
    """FedAvg, whose seeds meet after RFA has ended, had as wide a band until then."""
    panel, apart = f"{EMNIST[0]}, data 0.25", (-3.0, 0.0, 3.0)
    rfa = runs(EMNIST[0], panel, "RFA", None, 50, aggregator="rfa", noise=apart)
    met = [
        dataclasses.replace(
            run,
            evaluations=[
                {**point, "test_accuracy": 0.4} if point["round"] > 2000 else point
                for point in run.evaluations
            ],
        )
        for run in runs(EMNIST[0], panel, "FedAvg", None, 40, noise=apart)
    ]
    results = {"seeds": rfa + met, "robustness": cleanly(EMNIST[0])}
    word, numbers = judge_one(BY_NAME["narrower"], Evidence(results, {}), EMNIST[0])
    assert word == OPEN
    assert "width of the band of seeds, RFA 6.0, FedAvg 6.0" in numbers


@pytest.mark.parametrize(
    ("shared", "personal", "word"),
    [(52.8, 66.4, CONFIRMED), (60.9, 67.9, INCONCLUSIVE), (60.9, 66.4, REFUTED)],
)
def test_personal_parameters_must_soften_the_loss_and_not_only_be_ahead(
    shared: float, personal: float, word: str
) -> None:
    """Without corruption RFA has 62.9, personalized 69.9; only honest devices are compared."""
    setting, panel = EMNIST[0], f"{EMNIST[0]}, data"
    found: list[Result] = []
    for value, ours, theirs in ((0.0, 62.9, 69.9), (0.25, shared, personal)):
        found += runs(setting, panel, "RFA", value, ours, aggregator="rfa")
        found += runs(setting, panel, "RFA, personalized", value, theirs, aggregator="rfa")
    hidden = [
        dataclasses.replace(run, evaluations=[{**e, "test_accuracy": 0.5} for e in run.evaluations])
        for run in found
    ]
    results = {"personalization": hidden, "robustness": cleanly(setting)}
    assert verdict("personal_robust", setting, results) == word


@pytest.mark.parametrize(
    ("step", "fedavg", "word"), [(52, 40, CONFIRMED), (45, 40, REFUTED), (52, 60, REFUTED)]
)
def test_one_step_must_beat_fedavg_too(step: float, fedavg: float, word: str) -> None:
    panel = f"{EMNIST[0]}, data"
    found = poisoned(EMNIST[0], 53.0, fedavg)
    found += runs(EMNIST[0], panel, "one-step RFA", 0.25, step, aggregator="rfa-one-step")
    results = {"one-step": found, "robustness": cleanly(EMNIST[0])}
    assert verdict("one_step", EMNIST[0], results) == word


@pytest.mark.parametrize(("lost", "word"), [(1, CONFIRMED), (0, INCONCLUSIVE)])
def test_small_cohorts_that_diverge(lost: int, word: str) -> None:
    panel = f"{EMNIST[0]}, omniscient 0.25"
    found: list[Result] = []
    for count, accuracy in ((10, 5.0), (50, 30.0), (100, 45.0)):
        more = {"status": "diverged"} if lost and count == 10 else {}
        found += runs(
            EMNIST[0], panel, f"{count} devices", None, accuracy, aggregator="rfa", **more
        )
    results = {"devices": found, "robustness": cleanly(EMNIST[0])}
    assert verdict("small_cohorts", EMNIST[0], results) == word


def test_budgets_are_compared_after_as_many_calls() -> None:
    found: list[Result] = []
    for panel, few, many in (("no corruption", 60, 50), ("omniscient 0.25", 20, 40)):
        for budget, accuracy, rounds in ((2, few, 3000), (10, many, 600)):
            where = EMNIST[0], f"{EMNIST[0]}, {panel}", f"{budget} calls", None, accuracy
            found += runs(*where, aggregator="rfa", budget=budget, rounds=rounds)
    results = {"budget": found, "robustness": cleanly(EMNIST[0])}
    evidence = Evidence(results, {})
    word, numbers = judge_one(BY_NAME["budgets"], evidence, EMNIST[0])
    assert word == CONFIRMED, numbers
    assert "after 1800 calls" in numbers


def frozen(**columns: Any) -> Evidence:
    """Two frozen cohorts, of which the second has some other values."""
    first = {"task": "EMNIST", "corruption": "data", MEAN_SHARE: 25.0, MEDIAN_SHARE: 10.0}
    first |= {EXCESS: 0.1, RATE: 0.3}
    rows = [first, first | columns]
    table = Table("", list(first), [list(row.values()) for row in rows])
    return Evidence({}, {"weiszfeld": Exhibit("weiszfeld", "", tables=[table])})


@pytest.mark.parametrize(
    ("name", "column", "good", "bad", "word"),
    [
        ("linear_rate", RATE, 0.4, None, REFUTED),
        ("three_steps", EXCESS, 0.9, 1.1, REFUTED),
        ("less_weight", MEDIAN_SHARE, 24.0, 25.1, INCONCLUSIVE),
    ],
)
def test_frozen_cohorts(name: str, column: str, good: Any, bad: Any, word: str) -> None:
    for value, expected in ((good, CONFIRMED), (bad, word)):
        evidence = frozen(**{column: value})
        assert judge_one(BY_NAME[name], evidence, "frozen cohorts")[0] == expected


def test_matching_round_for_round_is_judged_on_the_way_too() -> None:
    """RFA ends where FedAvg is after as many rounds, and was far behind before."""
    setting, found = SENT[0], cleanly(SENT[0])
    for level in (0.0, 0.01):
        for line, slope in (("RFA", 30.0), ("FedAvg", 0.0)):
            name = "rfa" if line == "RFA" else "fedavg"
            where = setting, f"{setting}, data", line, level, 65.0
            found += runs(*where, aggregator=name, slope=slope)
    results = {"robustness": found}
    assert verdict("three_calls", setting, results) == REFUTED


GAMES = 200


def equal_methods(rng: np.random.Generator, setting: str, distance: float) -> list[Result]:
    """Runs in which only chance tells RFA and FedAvg apart, but for a given distance."""
    found: list[Result] = []
    for line, name, mean in (("RFA", "rfa", 60.0 + distance), ("FedAvg", "fedavg", 60.0)):
        for value in (0.0, 0.25):
            noise = [float(each) for each in rng.standard_normal(3)]
            where = setting, f"{setting}, data", line, value, mean
            found += runs(*where, aggregator=name, noise=noise, rounds=6000)
    return found


@pytest.mark.parametrize(
    ("name", "distance"),
    [("separates_linear", 0.0), ("ten_points", 10.0), ("graceful", 0.0), ("small_gap", -0.4)],
)
def test_judges_decide_by_chance_in_5_of_100_cases(name: str, distance: float) -> None:
    """Each judge as a whole, from runs to the verdict, where the truth lies on its bound."""
    rng = np.random.default_rng(5)
    words = [
        verdict(name, EMNIST[0], {"robustness": equal_methods(rng, EMNIST[0], distance)})
        for _ in range(GAMES)
    ]
    allowed = 0.05 + 3 * (0.05 * 0.95 / GAMES) ** 0.5
    assert words.count(OPEN) == 0
    assert (words.count(CONFIRMED) + words.count(REFUTED)) / GAMES < allowed


def test_every_statement_is_open_without_runs_and_quotes_the_paper() -> None:
    table = judge(Evidence({}, {}))
    assert {row[3] for row in table.rows} == {OPEN}
    assert {row[2] for row in table.rows} >= set(TASKS)
    quotes = [row[0] for row in table.rows if row[0]]
    assert quotes == [statement.quote for statement in STATEMENTS]
    assert all(str(row[1]).endswith(".") for row in table.rows)


def test_a_scale_may_have_no_verdicts() -> None:
    results = {"robustness": cleanly(EMNIST[0]) + poisoned(EMNIST[0], 52.8, 41.2)}
    table = judge(Evidence(results, {}), verdicts=False)
    assert {row[3] for row in table.rows} == {"not judged"}


def test_the_papers_numbers_are_gathered_from_all_experiments() -> None:
    head = ["panel", "line", "corruption level", "accuracy (%)", "lowest", "highest"]
    table = Table("t", [*head, "95 % from", "to", "rounds", "seeds", "paper (%)"], [
        ["EMNIST", "RFA", 0.25, 50.0, 49.0, 51.0, 48.0, 52.0, 200, 3, 52.8],
        ["EMNIST", "RFA", 0.0, 60.0, 60.0, 60.0, None, None, 200, 1, None],
    ])  # fmt: skip
    found = paper_numbers([Exhibit("robustness", "Robustness", tables=[table])])
    assert found.rows == [
        ["Robustness", "EMNIST, 0.25: RFA", 52.8, 50.0, 49.0, 51.0, 48.0, 52.0, 200, 3]
    ]
    again = [Exhibit("robustness", "Robustness", tables=[table]), Exhibit("s", "", tables=[found])]
    assert paper_numbers(again).rows == found.rows
