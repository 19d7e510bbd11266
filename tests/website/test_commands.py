"""The commands of the guide to Flower and of the examples run, or say why they do not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("torch", reason="needs the lab: pip install 'rfa[lab]'")

from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from rfa.cli.main import main
from rfa.receipts import read_receipt
from tests.flower.grid import LocalGrid
from tests.flower.toy import model, nodes
from tests.website.pages import ROOT, blocks_of, guides
from tests.website.test_pages import Script

TLS, EMNIST = "docs/how-to/tls-and-authentication.md", "examples/flower-emnist/README.md"


@pytest.mark.parametrize("page", guides())
def test_the_commands_of_a_guide_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    script = Script(page, tmp_path, monkeypatch)
    for block in blocks_of(ROOT / page):
        if block.language != "python":
            script.play(block)


@pytest.mark.parametrize(("page", "folder"), [(TLS, "."), (EMNIST, "keys")])
def test_nodes_accept_the_certificates_that_a_page_makes(
    page: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name and by the address of the server, and Flower takes keys of this curve."""
    script = Script(page, tmp_path, monkeypatch)
    for block in blocks_of(ROOT / page):
        if "openssl req" in block.code:
            script.play(block)
    keys = tmp_path / folder
    for whom in (["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"]):
        command = ["openssl", "verify", "-purpose", "sslserver", *whom, "-CAfile", "ca.pem"]
        subprocess.run([*command, "server.pem"], cwd=keys, check=True, capture_output=True)  # noqa: S603
    later = "".join(block.code for block in blocks_of(ROOT / page))
    files = re.findall(r"--(?:ssl-\w+|ssl-ca-certfile|root-certificates) (\S+)", later)
    assert len(files) == len(["authority", "certificate", "key", "of a node"])
    assert all((tmp_path / file).exists() for file in files)
    key = load_ssh_private_key((keys / "node-0").read_bytes(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey)
    assert key.curve.name == "secp384r1"


def test_a_page_makes_an_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(EMNIST, tmp_path, monkeypatch)
    (block,) = [block for block in blocks_of(ROOT / EMNIST) if "create_identity" in block.code]
    script.play(block)
    assert (tmp_path / "node-0" / "identity").exists()


def test_rfa_verify_prints_what_the_page_on_receipts_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same words, with other keys, digests and numbers."""
    monkeypatch.setenv("RFA_HOME", str(tmp_path / "server-home"))
    monkeypatch.chdir(tmp_path)
    strategy, shown, *_ = blocks_of(ROOT / "docs" / "receipts.md")
    names: dict[str, Any] = {}
    exec(compile(strategy.code, "docs/receipts.md", "exec"), names)  # noqa: S102
    names["strategy"].start(LocalGrid(nodes(tmp_path)), model(), 1)
    command, _, expected = shown.code.partition("\n")
    (receipt,) = Path("receipts").glob("*.rfa")
    known = {"receipts/*.rfa": str(receipt), "03a107bf…": read_receipt(receipt).signer.hex()}
    done = CliRunner().invoke(main, [known.get(word, word) for word in command.split()[2:]])
    assert done.exit_code == 0, done.output
    assert masked(done.output) == masked(expected)


def masked(text: str) -> str:
    return " ".join(re.sub(r"\b[0-9a-f]{12,}\b|\d+(\.\d+)?", "#", text).split())
