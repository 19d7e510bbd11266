"""A release of numbers is what its files say: no edit of any of them goes unnoticed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.paper.numbers import read_numbers
from rfa.lab.runs.store import Store
from tests.lab.paper.releases import (
    FILES,
    SCALES,
    SUMS,
    SWEEP,
    copy,
    edit,
    first,
    reproduce,
    rows,
)

Made = tuple[Path, Path, Path]
DOCS = Path(__file__).parents[3] / "docs" / "numbers"


def take(made: Made, numbers: Path, out: Path) -> Any:
    return reproduce(made[0], out, "--show", "--numbers-from", str(numbers))


def refused(made: Made, numbers: Path, out: Path, *texts: str) -> None:
    """Numbers are refused with these words, and nothing of them is taken."""
    result = take(made, numbers, out)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    for text in texts:
        assert text in result.stderr
    with Store(out) as store:
        assert not store.runs()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7, 1.0])
def test_a_single_byte_that_is_another_is_found(
    made: Made, tmp_path: Path, file: str, place: float
) -> None:
    broken = copy(made[2], tmp_path / "broken")
    text = bytearray((broken / file).read_bytes())
    where = int(place * (len(text) - 1))
    text[where] = ord("1") if text[where] != ord("1") else ord("2")
    (broken / file).write_bytes(bytes(text))
    refused(made, broken, tmp_path / "out", str(broken / file))


def test_sums_that_were_edited_are_found(made: Made, tmp_path: Path) -> None:
    for number, change in enumerate((("0", "1"), (".csv", ".txt"), ("  ", " "), ("\n", "\n\n"))):
        broken = copy(made[2], tmp_path / f"broken {number}")
        (broken / SUMS).write_text((broken / SUMS).read_text().replace(*change, 1))
        refused(made, broken, tmp_path / "out", SUMS)
    binary = copy(made[2], tmp_path / "binary")
    (binary / SUMS).write_bytes(b"\xff\n")
    refused(made, binary, tmp_path / "out", SUMS)


def test_the_sums_are_those_of_other_tools(made: Made) -> None:
    lines = [line.split("  ") for line in (made[2] / SUMS).read_text().splitlines()]
    assert [name for _, name in lines] == list(FILES)
    for digest, name in lines:
        assert digest == hashlib.sha256((made[2] / name).read_bytes()).hexdigest()


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_was_deleted_is_missed(made: Made, tmp_path: Path, file: str) -> None:
    broken = copy(made[2], tmp_path / "broken", file)
    refused(made, broken, tmp_path / "out", file)


def test_a_deliberate_removal_can_be_mended_as_the_message_says(made: Made, tmp_path: Path) -> None:
    files, out, numbers = made
    left = copy(numbers, tmp_path / "left", "numbers.csv")
    refused(made, left, tmp_path / "out", "remove its line from SHA256SUMS", "--numbers-to")
    lines = (left / SUMS).read_text().splitlines(keepends=True)
    (left / SUMS).write_text("".join(line for line in lines if "numbers.csv" not in line))
    assert take(made, left, tmp_path / "out").exit_code == 0
    again = reproduce(files, out, "--show", "--numbers-to", str(left))
    assert again.exit_code == 0, again.output
    assert (left / SUMS).read_bytes() == (numbers / SUMS).read_bytes()


def test_a_deliberate_edit_can_be_mended_as_the_message_says(made: Made, tmp_path: Path) -> None:
    edited = copy(made[2], tmp_path / "edited")
    edit(edited / "runs.csv", lambda row: row | {"note": "checked by hand"})
    refused(made, edited, tmp_path / "out", "runs.csv", "delete SHA256SUMS", "--numbers-to")
    (edited / SUMS).unlink()
    result = reproduce(made[0], made[1], "--show", "--numbers-to", str(edited))
    assert result.exit_code == 0, result.output
    assert (edited / SUMS).exists()
    assert take(made, edited, tmp_path / "out").exit_code == 0


def test_a_folder_without_sums_is_read_and_the_command_says_so(made: Made, tmp_path: Path) -> None:
    older = copy(made[2], tmp_path / "older", SUMS)
    result = take(made, older, tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"{older} has no SHA256SUMS" in result.output
    assert "SHA256SUMS" not in take(made, made[2], tmp_path / "other").output


def test_damaged_numbers_are_not_made_good_by_adding_to_them(made: Made, tmp_path: Path) -> None:
    files, out, numbers = made
    broken = copy(numbers, tmp_path / "broken")
    edit(broken / "runs.csv", lambda row: row | {"note": "edited"})
    before = (broken / SUMS).read_bytes()
    result = reproduce(files, out, "--show", "--numbers-to", str(broken))
    assert result.exit_code == 1
    assert str(broken / "runs.csv") in result.stderr
    assert (broken / SUMS).read_bytes() == before


def test_numbers_that_do_not_follow_from_the_runs_are_refused(made: Made, tmp_path: Path) -> None:
    measure = "test_accuracy at the end"
    name = rows(made[2] / "numbers.csv")[0]["run"]
    where = {"run": name, "measure": measure}
    for column, value in (
        ("value", "99.5"),
        ("horizon", "6000"),
        ("code", "0123456789ab"),
        ("seed", "7"),
        ("parameters", "budget=99"),
        ("settings", "rounds=1"),
    ):
        broken = copy(made[2], tmp_path / column, SUMS)
        edit(broken / "numbers.csv", first({column: value}, **where))
        texts = [str(broken / "numbers.csv"), name, measure, column, value, "--numbers-to"]
        refused(made, broken, tmp_path / "out", *texts)


def test_rows_of_numbers_that_are_lost_or_new_are_found(made: Made, tmp_path: Path) -> None:
    found = rows(made[2] / "numbers.csv")[0]
    run, measure = found["run"], found["measure"]
    lost = copy(made[2], tmp_path / "lost", SUMS)
    edit(lost / "numbers.csv", lambda row: None if row == found else row)
    refused(made, lost, tmp_path / "out", "numbers.csv", run, measure, "is missing")
    for number, change in enumerate(
        ({"measure": "beauty"}, {"run": "tiny.other.1"}, {"value": "1.5"})
    ):
        more = copy(made[2], tmp_path / f"more {number}", SUMS)
        with (more / "numbers.csv").open("a") as stream:
            stream.write(",".join(f'"{value}"' for value in (found | change).values()) + "\n")
        refused(made, more, tmp_path / "out", "numbers.csv", *change.values())


EDITS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "a status that there is not": ("runs.csv", {"status": "foo"}, {}),
    "a run that goes on": ("runs.csv", {"status": "running"}, {}),
    "a share above one": ("evaluations.csv", {"test_accuracy": "7.006"}, {}),
    "a share below zero": ("evaluations.csv", {"worst_tenth": "-0.25"}, {}),
    "a share that is no number": ("evaluations.csv", {"honest_accuracy": "nan"}, {}),
    "a share that is not there": ("evaluations.csv", {"median_device": ""}, {"round": "12"}),
    "a share that is there once": ("evaluations.csv", {"backdoor": "0.5"}, {"round": "12"}),
    "a loss that is no number": ("evaluations.csv", {"train_loss": "nan"}, {"round": "12"}),
    "an endless loss": ("evaluations.csv", {"test_loss": "inf"}, {"round": "12"}),
    "a loss that is not there": ("evaluations.csv", {"train_loss": ""}, {"round": "12"}),
    "calls that a run did not have": ("evaluations.csv", {"oracle_calls": "99"}, {"round": "12"}),
    "a round before the first": ("evaluations.csv", {"round": "-4"}, {"round": "4"}),
    "too many calls for a store": ("runs.csv", {"oracle_calls": "9" * 30}, {}),
    "a count below zero": ("runs.csv", {"devices": "-1"}, {}),
    "a count that is not there": ("runs.csv", {"corrupted_devices": ""}, {}),
    "an endless time": ("runs.csv", {"seconds": "inf"}, {}),
    "a bound that is no number": ("runs.csv", {"certificate": "nan"}, {}),
    "another level": ("runs.csv", {"rho": "0.5"}, {}),
    "another seed": ("runs.csv", {"seed": "9"}, {"seed": "1"}),
    "another rule": ("runs.csv", {"aggregator": "trimmed-mean"}, {}),
    "a model that is none": ("runs.csv", {"model_sha256": "abc"}, {}),
    "an origin that is a list": ("runs.csv", {"origin": "[1, 2]"}, {}),
    "a code that is a number": ("runs.csv", {"origin": '{"code": 1}'}, {}),
    "an origin without an end": ("runs.csv", {"origin": "[" * 100_000}, {}),
    "a weight above all": ("facts.csv", {"value": "100.5"}, {}),
    "a fact that is no number": ("facts.csv", {"value": "nan"}, {}),
    "a length below zero": (
        "facts.csv",
        {"value": "-1.0"},
        {"measure": "length of honest updates"},
    ),
    "a fact of another run": ("facts.csv", {"run": "tiny.other.1"}, {}),
    "a fact that is told twice": (
        "facts.csv",
        {"measure": "length of honest updates"},
        {"measure": "weight of the poisoned in the mean"},
    ),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("told", ["with sums", "alone"])
def test_values_that_no_run_has_are_refused(
    made: Made, tmp_path: Path, name: str, told: str
) -> None:
    file, change, where = EDITS[name]
    without = () if told == "with sums" else (SUMS, "numbers.csv")
    broken = copy(made[2], tmp_path / "broken", *without)
    edit(broken / file, first(change, **where))
    texts = [str(broken / file)]
    if told == "alone":
        texts += [*change, *(value for value in change.values() if len(value) < 50)]
    refused(made, broken, tmp_path / "out", *texts)


@pytest.mark.parametrize("round_", ["0", "4", "8"])
def test_an_evaluation_that_is_left_out_is_missed(made: Made, tmp_path: Path, round_: str) -> None:
    broken = copy(made[2], tmp_path / "broken", SUMS)
    name = rows(broken / "evaluations.csv")[0]["run"]
    gone = name, round_
    edit(
        broken / "evaluations.csv", lambda row: None if (row["run"], row["round"]) == gone else row
    )
    texts = [str(broken / "evaluations.csv"), name, f"round {round_}"]
    refused(made, broken, tmp_path / "out", *texts)


def test_files_that_have_a_part_of_the_evaluations_are_read_and_the_command_says_so(
    made: Made, tmp_path: Path
) -> None:
    """Earlier versions wrote the last tenth of long runs, and one evaluation in thirty before."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "mine.toml").write_text(SWEEP.replace('"decides"', '"sweep"'))
    scale = '[short.tasks."tests.tiny:TASK"]\nrounds = 60\neval_every = 1\n'
    (files / "scales.toml").write_text(SCALES + scale)
    whole = tmp_path / "whole"
    assert reproduce(files, tmp_path / "out", "--numbers-to", str(whole)).exit_code == 0
    thin = copy(whole, tmp_path / "thin", SUMS)
    kept = {*range(0, 61, 2), *range(55, 61)}
    edit(thin / "evaluations.csv", lambda row: row if int(row["round"]) in kept else None)
    result = reproduce(files, tmp_path / "other", "--show", "--numbers-from", str(thin))
    assert result.exit_code == 0, result.output
    assert "8 of them have only some of their evaluations" in result.output
    checked = reproduce(files, tmp_path / "other", "--numbers-from", str(thin), "--check", "1")
    assert checked.exit_code == 0, checked.output
    edit(thin / "evaluations.csv", lambda row: row if row["round"] != "22" else None)
    result = reproduce(files, tmp_path / "third", "--show", "--numbers-from", str(thin))
    assert result.exit_code == 1
    assert "has no evaluation after round" in result.stderr


def test_evaluations_that_are_told_twice_are_refused(made: Made, tmp_path: Path) -> None:
    broken = copy(made[2], tmp_path / "broken", SUMS)
    lines = (broken / "evaluations.csv").read_text().splitlines()
    (broken / "evaluations.csv").write_text("\n".join([*lines[:3], *lines[2:], ""]))
    refused(made, broken, tmp_path / "out", "evaluations.csv", lines[2].split(",")[0])


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Experiments of which some runs diverge, and their numbers."""
    base = tmp_path_factory.mktemp("diverged")
    (base / "files").mkdir()
    wild = SWEEP.replace("rho = 0.25", "rho = 0.25\ndivergence_factor = 0.001")
    (base / "files/mine.toml").write_text(wild)
    (base / "files/scales.toml").write_text(SCALES)
    numbers = ["--numbers-to", str(base / "numbers")]
    assert reproduce(base / "files", base / "out", *numbers).exit_code == 0
    return base / "files", base / "numbers"


@pytest.mark.parametrize("loss", ["0.5", "", "inf"])
def test_a_run_that_diverged_may_have_lost_its_loss(
    diverged: tuple[Path, Path], tmp_path: Path, loss: str
) -> None:
    files, numbers = diverged
    lost = copy(numbers, tmp_path / "numbers", SUMS, "numbers.csv")
    ends = {row["run"] for row in rows(lost / "runs.csv") if row["status"] == "diverged"}
    assert len(ends) == 4
    edit(
        lost / "evaluations.csv",
        lambda row: row | {"train_loss": loss} if row["run"] in ends else row,
    )
    result = reproduce(files, tmp_path / "out", "--show", "--numbers-from", str(lost))
    assert result.exit_code == 0, result.output
    again = ["--show", "--numbers-to", str(tmp_path / "again")]
    assert reproduce(files, tmp_path / "out", *again).exit_code == 0
    assert len(read_numbers(tmp_path / "again")) == 8


def test_shares_of_a_run_that_diverged_are_shares(
    diverged: tuple[Path, Path], tmp_path: Path
) -> None:
    files, numbers = diverged
    broken = copy(numbers, tmp_path / "numbers", SUMS, "numbers.csv")
    edit(broken / "evaluations.csv", lambda row: row | {"test_accuracy": "nan"})
    result = reproduce(files, tmp_path / "out", "--show", "--numbers-from", str(broken))
    assert result.exit_code == 1
    assert "test_accuracy must be a share from 0 to 1, not 'nan'" in result.stderr


@pytest.mark.parametrize("file", ["facts.csv", "numbers.csv"])
def test_what_two_machines_did_of_an_experiment_stays(
    made: Made, tmp_path: Path, file: str
) -> None:
    """The second machine has the runs of one seed; the numbers of the other stay."""
    files, _, numbers = made
    both = copy(numbers, tmp_path / "numbers")
    seed = ["--seed", "2", "--numbers-to", str(both)]
    result = reproduce(files, tmp_path / "out", *seed)
    assert result.exit_code == 0, result.output
    names = ["run", "measure"]
    assert [[row[name] for name in names] for row in rows(both / file)] == [
        [row[name] for name in names] for row in rows(numbers / file)
    ]
    assert len(read_numbers(both)) == 8


@pytest.mark.parametrize("folder", sorted(path.name for path in DOCS.iterdir()))
def test_the_numbers_in_the_repository_are_whole(folder: str) -> None:
    assert read_numbers(DOCS / folder)
