"""Verdicts follow the numbers: each statement is confirmed by some and refuted by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rfa.lab.paper import claims
from rfa.lab.paper.claims import OPEN, WORDS, judge
from rfa.lab.paper.evidence import Evidence, ahead, all_of, equal, say
from rfa.lab.paper.page import paper_numbers
from rfa.lab.report.exhibit import Exhibit, Spread, Table
from rfa.lab.report.gather import Result
from rfa.lab.runs.sweep import Cell, settle

SETTINGS = settle({"task": "tests.tiny:TASK", "rounds": 100})


def runs(
    panel: str, line: str, value: Any, accuracies: Sequence[float], **more: Any
) -> list[Result]:
    """Runs that stay at one accuracy all along, over all devices or over honest ones."""
    honest = more.pop("honest", {})
    return [
        Result(
            Cell(panel, line, value, SETTINGS),
            {"status": "finished", "rounds": 100, "oracle_calls": 300, **more},
            [
                {
                    "round": t,
                    "oracle_calls": 3 * t,
                    "test_accuracy": a / 100,
                    "honest_accuracy": honest.get(line, a) / 100,
                }
                for t in (0, 50, 100)
            ],
        )
        for a in accuracies
    ]


def verdict(judge_one: Any, results: dict[str, list[Result]]) -> bool:
    return judge_one(Evidence(results, {}))[0]


def test_every_statement_is_open_without_runs() -> None:
    table = judge(Evidence({}, {}))
    assert len(table.rows) == len(claims.JUDGES)
    assert {row[1] for row in table.rows} == {OPEN}
    assert all(str(row[0]).endswith(".") for row in table.rows)


@pytest.mark.parametrize(("rfa", "fedavg", "good"), [(50, 40, True), (40, 50, False)])
def test_who_is_ahead_under_poisoned_data(rfa: float, fedavg: float, good: bool) -> None:
    results = runs(claims.EMNIST, "RFA", 0.25, [rfa]) + runs(
        claims.EMNIST, "FedAvg", 0.25, [fedavg]
    )
    assert verdict(claims.separates_linear, {"robustness": results}) is good
    rows = judge(Evidence({"robustness": results}, {})).rows
    (row,) = [row for row in rows if row[0] == claims.separates_linear.__doc__]
    assert row[1] == WORDS[good]
    assert f"RFA {rfa:.1f}" in str(row[2])


@pytest.mark.parametrize(
    ("rfa", "fedavg", "good"), [(45, 6, True), (39, 6, False), (45, 12, False)]
)
def test_omniscient_devices(rfa: float, fedavg: float, good: bool) -> None:
    panel = "EMNIST linear, omniscient"
    results = runs(panel, "RFA", 0.25, [rfa]) + runs(panel, "FedAvg", 0.25, [fedavg])
    assert verdict(claims.omniscient_linear, {"robustness": results}) is good


@pytest.mark.parametrize(("iid", "good"), [(65.0, True), (60.0, False)])
def test_the_gap_for_an_even_split(iid: float, good: bool) -> None:
    by_writer = runs(claims.EMNIST, "RFA", 0.0, [64]) + runs(claims.EMNIST, "FedAvg", 0.0, [65])
    panel = "EMNIST linear, i.i.d., data"
    dealt = runs(panel, "RFA", 0.0, [iid]) + runs(panel, "FedAvg", 0.0, [65])
    assert verdict(claims.iid_gap, {"robustness": by_writer, "iid": dealt}) is good


@pytest.mark.parametrize(("lost", "good"), [(1, True), (0, False)])
def test_small_cohorts_that_diverge(lost: int, good: bool) -> None:
    panel = "EMNIST linear, omniscient 0.25"
    found: list[Result] = []
    for count in (10, 50, 100):
        found += runs(panel, f"{count} devices", None, [50, 50])
    found += lost * runs(panel, "10 devices", None, [5], status="diverged")
    assert verdict(claims.small_cohorts_diverge, {"devices": found}) is good


@pytest.mark.parametrize(("krum", "good"), [(70.0, True), (50.0, False)])
def test_krum_and_the_others(krum: float, good: bool) -> None:
    found = runs(claims.SENT, "RFA", 0.25, [60]) + runs(claims.SENT, "multi-Krum", 0.25, [krum])
    for name in ("coordinate median", "norm clipping", "trimmed mean"):
        found += runs(claims.SENT, name, 0.25, [58 if good else 62])
    assert verdict(claims.krum_ahead, {"comparators": found}) is good
    assert verdict(claims.beats_comparators, {"comparators": found}) is good


@pytest.mark.parametrize(("rate", "good"), [(0.4, True), (1.0, False), (None, False)])
def test_linear_convergence(rate: float | None, good: bool) -> None:
    shown = Exhibit("weiszfeld", "", tables=[Table("", ["rate"], [[0.3], [rate]])])
    assert claims.linear_rate(Evidence({}, {"weiszfeld": shown}))[0] is good


def test_what_equal_means() -> None:
    assert equal(Spread([50.0]), Spread([50.9])) is True
    assert equal(Spread([50.0]), Spread([51.1])) is None  # one seed each tells too little
    assert equal(Spread([50.0]), Spread([52.1])) is False
    assert equal(Spread([50.0, 50.0]), Spread([51.1, 51.1])) is False
    assert equal(Spread([48.0, 52.0]), Spread([51.5])) is None
    assert say(Spread([50.04])) == "50.0"
    assert say(Spread([1.0, 3.0])) == "2.0 (1.0 to 3.0)"


def test_who_is_ahead_is_not_clear_amid_noise() -> None:
    assert ahead(Spread([50.0]), Spread([48.9])) is True
    assert ahead(Spread([48.9]), Spread([50.0])) is False
    assert ahead(Spread([50.0]), Spread([49.1])) is None  # one seed each tells too little
    assert ahead(Spread([50.0, 50.0]), Spread([49.1, 49.1])) is True
    assert ahead(Spread([50.0]), Spread([50.0])) is None
    assert ahead(Spread([40.0, 60.0]), Spread([45.0])) is None
    assert ahead(Spread([59.0, 60.0]), Spread([45.0])) is True
    assert all_of([True, None, True]) is None
    assert all_of([True, None, False]) is False
    assert all_of([True, True]) is True


def test_budgets_are_compared_after_as_many_calls() -> None:
    panel = "EMNIST linear, no corruption"
    few = runs(panel, "2 calls", None, [60])
    late = runs(panel, "10 calls", None, [50], oracle_calls=60)
    good, text = claims.few_calls(Evidence({"budget": few + late}, {}))
    assert good
    assert text.startswith("after 60 calls")


@pytest.mark.parametrize(("rfa", "good"), [(50.0, True), (4.0, False)])
def test_nets_must_keep_half_of_what_they_had(rfa: float, good: bool) -> None:
    found: list[Result] = []
    for panel in ("EMNIST ConvNet, omniscient", "Shakespeare LSTM, omniscient"):
        found += runs(panel, "RFA", 0.0, [80]) + runs(panel, "RFA", 0.25, [rfa])
        found += runs(panel, "FedAvg", 0.25, [1.5])
    assert verdict(claims.omniscient_nets, {"robustness": found}) is good


@pytest.mark.parametrize(("honest", "good"), [(70, True), (40, False)])
def test_personalization_is_judged_by_honest_devices(honest: float, good: bool) -> None:
    found: list[Result] = []
    for level in (0.0, 0.25):
        for line in ("FedAvg", "RFA"):
            personal = f"{line}, personalized"
            found += runs(claims.EMNIST, line, level, [55])
            found += runs(claims.EMNIST, personal, level, [50], honest={personal: honest})
    assert verdict(claims.personal_gain, {"personalization": found}) is good


def test_variation_takes_two_seeds() -> None:
    panel = "EMNIST linear, data 0.25"
    one = runs(panel, "RFA", None, [50]) + runs(panel, "FedAvg", None, [50])
    (row,) = [r for r in judge(Evidence({"seeds": one}, {})).rows if "vary less" in str(r[0])]
    assert row[1] == OPEN
    two = runs(panel, "RFA", None, [50, 51]) + runs(panel, "FedAvg", None, [40, 50])
    assert verdict(claims.steadier, {"seeds": two}) is True


def test_the_papers_numbers_are_gathered_from_all_experiments() -> None:
    head = ["panel", "line", "corruption level", "accuracy (%)", "lowest", "highest"]
    table = Table("t", [*head, "rounds", "paper (%)"], [
        ["EMNIST", "RFA", 0.25, 50.0, 49.0, 51.0, 200, 52.8],
        ["EMNIST", "RFA", 0.0, 60.0, 60.0, 60.0, 200, None],
    ])  # fmt: skip
    found = paper_numbers([Exhibit("robustness", "Robustness", tables=[table])])
    assert found.rows == [["Robustness", "EMNIST, 0.25: RFA", 52.8, 50.0, 49.0, 51.0, 200]]
    again = [Exhibit("robustness", "Robustness", tables=[table]), Exhibit("s", "", tables=[found])]
    assert paper_numbers(again).rows == found.rows


def test_variation_is_not_clear_where_the_end_says_otherwise() -> None:
    panel = "EMNIST linear, data 0.25"

    def run(line: str, last: float, before: float) -> Result:
        heights = {60: before, 70: before, 80: before, 90: before, 100: last}
        (one,) = runs(panel, line, None, [0])
        return Result(
            one.cell, one.row, [{"round": t, "test_accuracy": h} for t, h in heights.items()]
        )

    fedavg = [run("FedAvg", 0.40, 0.40), run("FedAvg", 0.43, 0.43)]
    calm = [run("RFA", 0.50, 0.50), run("RFA", 0.51, 0.51)]
    late = [run("RFA", 0.50, 0.50), run("RFA", 0.56, 0.51)]
    assert verdict(claims.steadier, {"seeds": calm + fedavg}) is True
    assert verdict(claims.steadier, {"seeds": late + fedavg}) is None
