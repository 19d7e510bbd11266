"""Numbers that are kept in files: read to the bit, adopted as runs, and checked by fresh ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rfa.lab.paper.numbers import MEASURED, read_numbers
from rfa.lab.runs.origin import code_fingerprint
from rfa.lab.runs.store import Store
from tests.lab.paper.releases import FILES, SCALES, SUMS, SWEEP, copy, reproduce, rows


def test_every_number_says_its_run_its_horizon_and_its_code(made: tuple[Path, ...]) -> None:
    _, out, numbers = made
    found = rows(numbers / "numbers.csv")
    assert {row["experiment"] for row in found} == {"mine"}
    assert {(row["aggregator"], row["rho"], row["seed"]) for row in found} == {
        (aggregator, rho, seed)
        for aggregator in ("fedavg", "rfa:nu=1e-06,start=mean")
        for rho in ("0.0", "0.25")
        for seed in ("1", "2")
    }
    assert {row["code"] for row in found} == {code_fingerprint()}
    assert {row["horizon"] for row in found} == {"12"}
    with Store(out) as store:
        stored = {row["run"]: row for row in store.runs()}
    hashes = {row["run"]: row["value"] for row in found if row["measure"] == "model_sha256"}
    assert hashes == {name: row["model_sha256"] for name, row in stored.items()}
    assert "rho=0.25" in {part for row in found for part in row["settings"].split(",")}


def test_numbers_are_read_to_the_bit(made: tuple[Path, ...]) -> None:
    _, out, numbers = made
    with Store(out) as store:
        for run in read_numbers(numbers):
            (row,) = store.runs(run=run.name)
            assert {name: run.row[name] for name in run.row} == {
                name: row[name] for name in run.row
            }
            stored = store.table("evaluations", run=run.name)
            assert [[e[name] for name in MEASURED] for e in run.evaluations] == [
                [e[name] for name in MEASURED] for e in stored
            ]


def test_adopted_runs_are_not_done_again_and_show_the_same(
    made: tuple[Path, ...], tmp_path: Path
) -> None:
    files, out, numbers = made
    result = reproduce(files, tmp_path / "out", "--numbers-from", str(numbers))
    assert result.exit_code == 0, result.output
    assert "8 runs are taken from" in result.output
    assert "other code" not in result.output
    assert not list((tmp_path / "out").glob("*/checkpoint.npz"))
    shown = [
        json.loads((where / "exhibits/mine.json").read_text()) for where in (out, tmp_path / "out")
    ]
    assert shown[0]["tables"] == shown[1]["tables"]
    assert shown[0]["panels"] == shown[1]["panels"]
    again = reproduce(files, tmp_path / "out", "--show", "--numbers-to", str(tmp_path / "numbers"))
    assert again.exit_code == 0, again.output
    for name in (*FILES, SUMS):
        assert (tmp_path / "numbers" / name).read_bytes() == (numbers / name).read_bytes()


def test_the_success_of_a_backdoor_is_adopted_too(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    arena = 'kind = "arena"\ntitle = "Mine"\nclaim = ""\nlevels = [0.25]\nattacks = ["backdoor"]\n'
    arena += 'defenses = ["fedavg"]\n[tasks]\n"digits-linear" = "Digits"\n'
    (files / "mine.toml").write_text(arena)
    (files / "scales.toml").write_text(SCALES + "[short.tasks.digits-linear]\nrounds = 2\n")
    first = reproduce(files, tmp_path / "out", "--numbers-to", str(tmp_path / "numbers"))
    assert first.exit_code == 0, first.output
    numbers = ["--show", "--numbers-from", str(tmp_path / "numbers")]
    assert reproduce(files, tmp_path / "other", *numbers).exit_code == 0
    shown = [
        json.loads((tmp_path / where / "exhibits/mine.json").read_text())["tables"]
        for where in ("out", "other")
    ]
    assert shown[0] == shown[1]
    assert "How often the backdoor works (%)" in {table["title"] for table in shown[1]}


def test_a_file_that_was_left_out_is_written_again(made: tuple[Path, ...], tmp_path: Path) -> None:
    files, out, numbers = made
    partial = copy(numbers, tmp_path / "numbers")
    (partial / "numbers.csv").unlink()
    result = reproduce(files, out, "--show", "--numbers-to", str(partial))
    assert result.exit_code == 0, result.output
    assert (partial / "numbers.csv").read_bytes() == (numbers / "numbers.csv").read_bytes()


def test_old_numbers_do_not_pass_for_new_ones(made: tuple[Path, ...], tmp_path: Path) -> None:
    files, _, numbers = made
    old = copy(numbers, tmp_path / "numbers", SUMS, "numbers.csv")
    text = (old / "runs.csv").read_text().replace(code_fingerprint(), "0123456789ab")
    (old / "runs.csv").write_text(text)
    result = reproduce(files, tmp_path / "out", "--numbers-from", str(old))
    assert "8 of them were made by other code (0123456789ab) than this" in result.output


def test_mistakes_are_named(made: tuple[Path, ...], tmp_path: Path) -> None:
    files, _, numbers = made
    broken = copy(numbers, tmp_path / "broken")
    (broken / "runs.csv").write_text("run,task\na,b\n")
    for arguments, code, text in (
        (["--check", "1"], 2, "--check needs --numbers-from FOLDER"),
        (["--numbers-from", str(tmp_path / "none")], 1, "there are no numbers to read in"),
        (["--numbers-from", str(broken)], 1, "cannot be read as numbers"),
        (["--numbers-from", str(numbers), "--check", "1", "--seed", "7"], 2, "called '7'"),
    ):
        result = reproduce(files, tmp_path / "out", *arguments)
        assert result.exit_code == code, result.output
        assert text in result.stderr
        assert "Traceback" not in result.output


def cut(lines: int, columns: int = 0, end: str = "\n") -> Callable[[str], str]:
    """Leave lines off the end of a text, and columns off what is its last line then."""

    def damage(text: str) -> str:
        kept = text.splitlines()[: -lines or None]
        kept[-1] = ",".join(kept[-1].split(",")[: -columns or None])
        return "\n".join(kept) + end

    return damage


DAMAGES: dict[str, tuple[str, Callable[[str], str], str]] = {
    "no evaluations": ("evaluations.csv", cut(4), "has no evaluation"),
    "evaluations end early": ("evaluations.csv", cut(1), "ends after round"),
    "runs end early": ("runs.csv", cut(1), "is not in runs.csv"),
    "a row is too short": ("evaluations.csv", cut(0, columns=3), "too few columns"),
    "a line is cut off": ("evaluations.csv", cut(0, end=""), "is cut off"),
    "an empty file": ("runs.csv", lambda _: "", "it is empty"),
    "facts are cut off": ("facts.csv", lambda text: text.rstrip()[:-4], "is cut off"),
    "a fact is no number": ("facts.csv", lambda text: text + "a,b,c\n", "could not convert"),
    "a fact without a value": ("facts.csv", lambda text: text + "a\n", "too few columns"),
    "an origin that is none": (
        "runs.csv",
        lambda text: text.replace('{""rfa""', "rfa", 1),
        "origin must be an object of texts",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_numbers_are_refused_and_nothing_of_them_is_taken(
    made: tuple[Path, ...], tmp_path: Path, damage: str
) -> None:
    files, _, numbers = made
    file, change, reason = DAMAGES[damage]
    broken = copy(numbers, tmp_path / "broken")
    (broken / file).write_text(change((broken / file).read_text()))
    result = reproduce(files, tmp_path / "out", "--numbers-from", str(broken), "--show")
    assert result.exit_code == 1, result.output
    with Store(tmp_path / "out") as store:
        assert not store.runs()
    assert f"{broken / file} cannot be read as numbers" in result.stderr
    assert reason in result.stderr
    assert "Traceback" not in result.output


def test_damaged_numbers_are_not_added_to(made: tuple[Path, ...], tmp_path: Path) -> None:
    files, out, numbers = made
    broken = copy(numbers, tmp_path / "broken")
    text = (broken / "numbers.csv").read_text().rstrip()[:-4]
    (broken / "numbers.csv").write_text(text)
    result = reproduce(files, out, "--show", "--numbers-to", str(broken))
    assert result.exit_code == 1
    assert f"{broken / 'numbers.csv'} is not the file that SHA256SUMS lists" in result.stderr
    assert (broken / "numbers.csv").read_text() == text


def test_what_another_machine_wrote_stays(made: tuple[Path, ...], tmp_path: Path) -> None:
    numbers = made[2]
    both = copy(numbers, tmp_path / "numbers")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/other.toml").write_text(SWEEP.replace("0.25", "0.1"))
    (tmp_path / "files/scales.toml").write_text(SCALES)
    result = reproduce(tmp_path / "files", tmp_path / "out", "--numbers-to", str(both))
    assert result.exit_code == 0, result.output
    assert {row["experiment"] for row in rows(both / "numbers.csv")} == {"mine", "other"}
    assert len(read_numbers(both)) == 8 + 4  # runs without corruption are the same


def test_long_runs_keep_all_evaluations(tmp_path: Path) -> None:
    """FedAvg has three times the rounds of RFA, and both have as many evaluations as they had."""
    files, numbers = tmp_path / "files", tmp_path / "numbers"
    files.mkdir()
    (files / "mine.toml").write_text(SWEEP.replace('"decides"', '"sweep"'))
    scales = '[short]\ntitle = "short"\nseeds = [1]\n[short.tasks."tests.tiny:TASK"]\n'
    (files / "scales.toml").write_text(scales + "calls = 132\neval_every = 1\n")
    result = reproduce(files, tmp_path / "out", "--numbers-to", str(numbers))
    assert result.exit_code == 0, result.output
    counts = {(run.row["aggregator"], len(run.evaluations)) for run in read_numbers(numbers)}
    assert {count for _, count in counts} == {133, 45}
    with Store(tmp_path / "out") as store:
        for run in read_numbers(numbers):
            assert len(run.evaluations) == len(store.table("evaluations", run=run.name))


def test_weights_and_lengths_go_with_the_numbers(made: tuple[Path, ...]) -> None:
    _, out, numbers = made
    shown = json.loads((out / "exhibits/mine.json").read_text())
    (table,) = [each for each in shown["tables"] if each["title"] == "Weights and lengths"]
    told = [dict(zip(table["head"], row, strict=True)) for row in table["rows"]]
    (rfa,) = [row for row in told if (row["setting"], row["line"]) == ("poisoned", "RFA")]
    assert 0 < rfa["weight of the poisoned in the median (%)"] < 100
    ratio = rfa["length of poisoned updates"] / rfa["length of honest updates"]
    assert rfa["poisoned over honest"] == pytest.approx(ratio)
    (fedavg,) = [row for row in told if (row["setting"], row["line"]) == ("poisoned", "FedAvg")]
    assert fedavg["weight of the poisoned in the median (%)"] is None
    assert fedavg["weight of the poisoned in the mean (%)"] == pytest.approx(
        rfa["weight of the poisoned in the mean (%)"]
    )
    assert {row["measure"] for row in rows(numbers / "facts.csv")} == {
        f"{what} of {whose}"
        for what, whose in (
            ("weight", "the poisoned in the mean"),
            ("weight", "the poisoned in the median"),
            ("length", "honest updates"),
            ("length", "poisoned updates"),
        )
    }
