"""`rfa verify`: a table a file, one-line errors, and an exit code."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rfa.aggregators import RFA, Groups, OneStepRFA
from rfa.cli.main import main
from rfa.cli.verify import _sums  # pyright: ignore[reportPrivateUsage]
from rfa.receipts import Expected, read_receipt, write_model
from rfa.receipts.parts import check_part
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.transcript import input_digest
from tests.receipts.rounds import SECRET, Run, first_model, forge
from tests.secagg.party import MALICIOUS, masked

KEY = identity_of(SECRET).hex()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[str]]:
    run = Run(tmp_path_factory.mktemp("run"), RFA(budget=2), count=6)
    return run, [str(path) for path in run.play(2)]


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", *arguments])


def test_receipts_that_hold_are_shown_and_the_exit_code_is_0(run: tuple[Run, list[str]]) -> None:
    where, files = run
    result = verify(*files, "--server-key", KEY, "--model", str(where.folder / "first-model.npz"))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == f"{files[0]}: holds"
    assert lines[-1] == "2 of 2 receipts hold"
    for line in (
        "  round         1, by rfa:budget=2, nu=0, start=current, schedule=plain,",
        "  nodes         6 of 6 in the last sums; 3 or more of them honest, by the",
        "                server's word",
        "  warning       part 0: fewer honest devices than 2 sums take: 3, and 19 are",
        "  sums          2 over 1 part; the totals are the server's word",
        "  chain         the first of its run",
        "  chain         follows round 1",
        f"  digest        {read_receipt(Path(files[1])).digest.hex()}",
        f"  signed by     {KEY}",
    ):
        assert line in lines
    (share, _) = (line for line in lines if "largest share" in line)
    certificate = read_receipt(Path(files[0])).receipt.certificate
    assert certificate is not None
    assert share.endswith(f"no node is more than {100 * certificate:.3g} % of the last step")
    assert sum("(computed)" in line for line in lines) == 2
    assert all(len(line) <= 80 for line in lines if not line.startswith(str(where.folder)))


def test_a_key_that_is_not_pinned_is_said_and_another_is_refused(
    run: tuple[Run, list[str]],
) -> None:
    _, files = run
    assert "(not pinned)" in verify(files[0]).output
    assert "(not pinned)" not in verify(files[0], "--server-key", KEY).output
    result = verify(files[0], "--server-key", "00" * 32)
    assert result.exit_code == 1
    assert "does not hold" in result.output
    assert result.output.splitlines()[-1] == "Error: 0 of 1 receipts hold"
    result = verify(files[0], "--server-key", "xyz")
    assert result.exit_code == 2
    assert "--server-key must be 64 hexadecimal digits, not 'xyz'" in result.output


def test_one_that_does_not_hold_does_not_hide_the_others(
    run: tuple[Run, list[str]], tmp_path: Path
) -> None:
    _, files = run
    data = Path(files[0]).read_bytes()
    changed = tmp_path / "changed.rfa"
    changed.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    result = verify(str(changed), files[1])
    assert result.exit_code == 1
    assert f"{changed}: does not hold" in result.output
    assert "  because       the result was changed after it was signed" in result.output
    assert f"{files[1]}: holds" in result.output
    assert "Error: 1 of 2 receipts hold" in result.output


def test_wrong_files_are_named_in_one_line(run: tuple[Run, list[str]], tmp_path: Path) -> None:
    _, files = run
    empty, other, absent = tmp_path / "empty", tmp_path / "other", tmp_path / "absent"
    empty.touch()
    other.write_text("hello, world")
    result = verify(str(empty), str(other), str(absent), str(tmp_path))
    assert result.exit_code == 1
    assert [line for line in result.output.splitlines() if "because" in line] == [
        "  because       it is empty",
        "  because       it is no receipt of rfa",
        "  because       it cannot be read: No such file or directory",
        "  because       it is a folder: give the receipts in it",
    ]
    for option in ("--model", "--sent", "--identities"):
        for path in (empty, other, absent, tmp_path):
            result = verify(files[0], option, str(path))
            assert result.exit_code == 1
            assert result.output.startswith(f"Error: {path} ")
            assert len(result.output.splitlines()) == 1
    assert verify().exit_code == 2


def test_a_published_model_that_is_another_is_found(
    run: tuple[Run, list[str]], tmp_path: Path
) -> None:
    where, files = run
    write_model(tmp_path / "published.npz", where.model)
    assert verify(*files, "--model", str(tmp_path / "published.npz")).exit_code == 0
    other = first_model()
    other["w"] = other["w"] + 1
    write_model(tmp_path / "other.npz", other)
    result = verify(*files, "--model", str(tmp_path / "other.npz"))
    assert result.exit_code == 1
    assert "other.npz is the model before or after none of these rounds" in result.output


def test_a_node_checks_that_it_took_part(run: tuple[Run, list[str]], tmp_path: Path) -> None:
    where, files = run
    verified = read_receipt(Path(files[1])).receipt
    (part,) = verified.parts
    session = where.parties[0].opening.session
    inputs = masked(where.parties[0])
    device = inputs[0][0]
    digests = [input_digest(reply) for name, _, reply in inputs if name == device]
    assert set(digests) <= {digest for one in part.sums for digest in one.inputs}
    log = tmp_path / "node.train"
    contexts = [where.parties[0].devices[device].memory.context] * 2
    log.write_text(
        "".join(
            f"{device} {index} {session.hex()} {context.hex()} {digest.hex()}\n"
            for index, (context, digest) in enumerate(zip(contexts, digests, strict=True))
        )
    )
    result = verify(files[1], "--sent", str(log))
    assert result.exit_code == 1, "the context of the first sum is another"
    assert "masked sum 0 of part 0 is recorded with another cohort, v or nu" in result.output


def test_identities_that_are_known(tmp_path: Path) -> None:
    run = Run(tmp_path, OneStepRFA(), count=12, terms=MALICIOUS)
    file = str(run.play()[0])
    assert "who and what signed by the server's list of identities" in " ".join(
        verify(file).output.split()
    )
    known = {str(device): key.hex() for device, key in run.parties[0].known.items()}
    (tmp_path / "identities.json").write_text(json.dumps(known))
    result = verify(file, "--identities", str(tmp_path / "identities.json"))
    assert result.exit_code == 0
    assert "signed by known identities" in " ".join(result.output.split())
    assert "or more of them honest, by the" not in result.output
    assert "or more of them honest, by the" in verify(file).output


def test_a_downgrade_does_not_hold_for_who_knows_the_identities(
    run: tuple[Run, list[str]], tmp_path: Path
) -> None:
    _, files = run
    (tmp_path / "identities.json").write_text(json.dumps({"900": KEY}))
    result = verify(files[0], "--identities", str(tmp_path / "identities.json"))
    assert result.exit_code == 1
    assert "opened for a semi-honest server" in " ".join(result.output.split())
    assert "identities" not in verify(files[0]).output


def test_signed_is_said_only_where_every_part_is(tmp_path: Path) -> None:
    """One part of a malicious server does not lend its signatures to the others."""
    groups = Groups(OneStepRFA(), 2)
    signed = read_receipt(Run(tmp_path / "a", groups, count=24, terms=MALICIOUS).play()[0]).receipt
    plain = Run(tmp_path / "b", groups, count=24)
    receipt = plain.receipt()
    # only the words for the table are wanted: no aggregator runs over parts of two rounds
    parts = [check_part(0, signed.parts[0], None), check_part(1, receipt.parts[1], None)]
    words = _sums(tuple(parts), Expected())
    assert "signed" not in words
    assert "signed" in _sums((parts[0],), Expected())


def test_what_a_receipt_says_cannot_write_on_the_terminal(
    run: tuple[Run, list[str]], tmp_path: Path
) -> None:
    _, files = run
    receipt = dataclasses.replace(
        read_receipt(Path(files[0])).receipt, aggregator="rfa\x1b[2J\x1b[31m"
    )
    result = verify(str(forge(tmp_path / "lie.rfa", receipt)))
    assert result.exit_code == 1
    assert "\x1b" not in result.output


def test_it_needs_neither_flower_nor_torch() -> None:
    code = (
        "import sys, rfa.cli.verify;"
        "print([m for m in ('torch', 'flwr', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture
def pipe(tmp_path: Path) -> Generator[Path]:
    """A pipe into which nobody writes: who opens it as a file waits, here for a few seconds."""

    def stop(_number: int, _frame: object) -> None:
        msg = "it waits for a pipe"
        raise TimeoutError(msg)

    path = tmp_path / "pipe"
    os.mkfifo(path)
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("option", ["", "--model", "--sent", "--identities"])
def test_a_pipe_is_refused_by_name_and_not_waited_for(
    run: tuple[Run, list[str]], pipe: Path, option: str
) -> None:
    _, files = run
    result = verify(*([files[0], option, str(pipe)] if option else [str(pipe)]))
    assert result.exit_code in {1, 2}
    said = " ".join(result.output.split())
    assert str(pipe) in said
    assert "it is no regular file, but a folder, a pipe or a device" in said


def test_a_device_file_is_no_receipt(run: tuple[Run, list[str]]) -> None:
    result = verify("/dev/zero")
    assert result.exit_code == 1
    assert "it is no regular file" in " ".join(result.output.split())
