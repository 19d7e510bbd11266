"""What commands print fits into 80 columns, and no name is broken."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from rfa.cli.main import main
from rfa.cli.runs_table import runs_lines
from rfa.cli.text import labeled
from rfa.lab import demo
from rfa.lab.runs.screens import Shown, Terminal

WIDTH = 80


def all_commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that call each command, those of groups in groups as well."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*names, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, (*names, name))


def too_long(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > WIDTH]


@pytest.mark.parametrize("words", [(), *all_commands(main)], ids=" ".join)
def test_every_help_page_fits(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    assert not too_long(result.output)


@pytest.mark.parametrize(
    "words",
    [
        ("tasks",),
        ("aggregators",),
        ("reproduce", "--list"),
        ("plan",),
        ("plan", "--epsilon", "8", "--aggregator", "rfa-one-step:groups=7", "--devices", "100000"),
    ],
    ids=" ".join,
)
def test_what_commands_print_fits(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    assert not too_long(result.output)


def a_run(number: int, **values: Any) -> dict[str, Any]:
    settings = {
        "secure": {"mode": values.pop("secure", "off")},
        "attack": {"sybils": values.pop("sybils", 0)},
    }
    return {
        "run": f"digits-linear.rfa-one-step.{number:010x}",
        "task": "digits-linear",
        "aggregator": "rfa-one-step",
        "corruption": "omniscient-parameters",
        "rho": 0.25,
        "status": "interrupted",
        "seed": 1,
        "rounds": 40,
        "personalized": 0,
        "privacy": "",
        "test_accuracy": 0.9,
        "honest_accuracy": 0.91,
        "settings": json.dumps(settings),
    } | values


ALIKE = [a_run(1), a_run(2, aggregator="fedavg", seed=2)]
HEIGHTS = (0.94, 0.86, 0.93, 0.93, 0.1, 0.9, 1.0)
UNLIKE = [
    a_run(1, secure="on", privacy="epsilon 8, noise 1.25"),
    a_run(
        2, task="shakespeare-lstm", aggregator="rfa:budget=4,nu=0.5,schedule=sub-cohorts", seed=2
    ),
]


@pytest.mark.parametrize("rows", [ALIKE, UNLIKE], ids=["alike", "unlike"])
@pytest.mark.parametrize("width", [60, WIDTH, 160])
def test_a_list_of_runs_has_every_name_whole(rows: list[dict[str, Any]], width: int) -> None:
    lines = runs_lines(rows, width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())  # a line may end between words
    for row in rows:
        for value in (row["run"].rsplit(".", 1)[-1], row["task"], row["status"]):
            assert value in text
        assert f"{row['corruption']} 0.25" in text
        assert row["aggregator"] in text
        assert row["privacy"] in text


def test_a_list_of_runs_names_sybils() -> None:
    rows = [
        a_run(1, corruption="ipm", rho=0.0, sybils=5000),
        a_run(2, corruption="ipm", rho=0.2, sybils=1),
        a_run(3, corruption="ipm", rho=0.2),
        a_run(4, corruption="backdoor", rho=0.0),
    ]
    _, *lines = runs_lines(rows, 160)
    wanted = ("ipm by 5000 sybils", "ipm 0.2 and 1 sybil", "ipm 0.2", "backdoor")
    for line, words in zip(lines, wanted, strict=True):
        assert f" {words} " in line
        assert ("sybil" in line) == ("sybil" in words)


def test_a_wide_list_has_one_line_a_run_and_a_narrow_one_says_once_what_is_common() -> None:
    assert len(runs_lines(ALIKE, 160)) == 3
    above, header, *rows = runs_lines(ALIKE, 90)
    assert above == "task digits-linear"
    assert header.split()[:3] == ["id", "aggregator", "corruption"]
    assert len(rows) == 2
    assert len(runs_lines(UNLIKE, 60)) > 5


def test_a_label_stands_once_and_its_text_wraps_between_words() -> None:
    lines = labeled("model", "coordinate-median and\nrfa-one-step", 10, 30)
    assert lines == ["model     coordinate-median", "          and?rfa-one-step"]
    assert labeled("model", "", 10, 30) == ["model"]


def test_a_bar_keeps_its_label_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()

    def console(**_: Any) -> Console:
        return Console(file=written, force_terminal=True, width=WIDTH, color_system=None)

    monkeypatch.setattr("rich.console.Console", console)
    label = "7/7 one-step RFA, omniscient attack"
    with Terminal() as screen:
        screen.show(Shown(label, 40, 40, "40/40", "accuracy 88.6% (honest 89.3%), loss 0.59"))
    assert label in written.getvalue()
    assert "accuracy 88.6%" in written.getvalue()


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_chart_of_the_demo_fits(ascii_only: bool) -> None:
    curves = [
        demo.Curve(name, attack, [0, 5], [0.1, height], diverged=height < 0.5, note="")
        for (name, attack), height in zip(demo.CASES, HEIGHTS, strict=True)
    ]
    written = io.StringIO()
    Console(file=written, width=WIDTH).print(demo.bar_chart(curves, ascii_only=ascii_only))
    lines = [line.rstrip() for line in written.getvalue().splitlines()]
    assert len(lines) == len(demo.CASES)
    assert not too_long(written.getvalue())
    assert lines[4].startswith("omniscient attack  FedAvg ")
    assert lines[4].endswith("10.0%  diverged")
    bars = [line.count("#" if ascii_only else "█") for line in lines]
    assert bars == [28, 26, 28, 28, 3, 27, 30]
