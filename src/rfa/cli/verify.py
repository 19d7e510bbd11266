"""`rfa verify`: check receipts offline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rfa.cli.text import labeled
from rfa.errors import InvalidValueError
from rfa.privacy import epsilon_of
from rfa.privacy.zcdp import check_delta
from rfa.receipts import Expected, ReceiptError, Verified, Verifier, read_model
from rfa.receipts.parts import CheckedPart
from rfa.secagg.device.sent import SentInput, read_sent
from rfa.secagg.security.identities import read_identities
from rfa.secagg.security.parameters import ServerModel

PATH = click.Path(path_type=Path)
KEY_SIZE, SHORT, WIDTH, COLUMN = 32, 12, 80, 16


@click.command("verify")
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--server-key", metavar="HEX", help="The public key that must have signed the receipts."
)
@click.option(
    "--identities",
    type=PATH,
    metavar="FILE",
    help='A JSON file with the public identities of the nodes, {"node": "hex"}. They must have '
    "signed every part of each round, so receipts of a semi-honest server fail this check.",
)
@click.option(
    "--aggregator",
    metavar="TEXT",
    help="The aggregator that the server must have run, such as rfa:budget=3.",
)
@click.option(
    "--model",
    "models",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="A .npz file that must be the model before or after one of the rounds. From the model "
    "before a round, verify computes those after it. Repeatable.",
)
@click.option(
    "--sent",
    type=PATH,
    metavar="FILE",
    help="A node's list of what it sent (flower/sent/... in its folder). The sums must contain "
    "what it sent and nothing else from it, and every sum that it helped to open must be there.",
)
@click.option(
    "--delta",
    type=float,
    default=1e-5,
    show_default=True,
    help="The delta at which to state the epsilon of sums with noise.",
)
def verify(files: tuple[Path, ...], delta: float, **options: Any) -> None:
    """Check receipts offline: does each model follow from the recorded sums?

    Give the receipts of a run in order. For each receipt, verify checks the signature, the rules of
    the secure sum, and that the receipt follows the one before. It runs the aggregator again on
    the recorded sums and compares the result. The exit code is 0 only if every check succeeds.
    docs/receipts.md explains what this proves, and to whom.
    """
    check_delta(delta)
    verifier = Verifier(_expected(options))
    wrong, verified = 0, None
    for path in files:
        try:
            verified = verifier.check(path)
        except ReceiptError as error:
            wrong += 1
            click.echo(f"{path}: does not hold")
            _say("because", str(error))
        else:
            click.echo(f"{path}: holds")
            for label, text in _lines(verified, verifier.expected, delta):
                _say(label, text)
    if wrong:
        msg = f"{len(files) - wrong} of {len(files)} receipts hold"
        raise click.ClickException(msg)
    verifier.check_models()
    _check_unrecorded(verifier.unrecorded())
    click.echo(f"{len(files)} of {len(files)} receipts hold")
    if verified and verified.noisy:
        click.echo(f"in all {_epsilon(verified.total_rho, delta)} for the most charged node")


def _check_unrecorded(entries: Sequence[SentInput]) -> None:
    """Say what a node sent that is in no receipt, and fail where it opened the sum."""
    opened = [entry for entry in entries if entry.opened]
    if not entries:
        return
    click.echo("in no receipt")
    if left := len(entries) - len(opened):
        many = left > 1
        what = f"{left} masked input{'s' * many} of this node {'are' if many else 'is'} in no "
        what += f"receipt; it did not open the sum{'s' * many}: rounds that end early leave no "
        _say("not opened", what + "receipt, but others may have opened them")
    for entry in opened:
        what = f"this node opened a sum in session {entry.session.hex()} that no receipt shows: "
        what += "its round failed after that, it is of another run, or it is hidden"
        _say("opened", what)
    if opened:
        sums = f"{len(opened)} sum{'s' * (len(opened) > 1)}"
        msg = f"this node opened {sums} that no receipt shows"
        raise click.ClickException(msg)


def _expected(options: dict[str, Any]) -> Expected:
    identities, sent = options["identities"], options["sent"]
    return Expected(
        signer=_key(options["server_key"]),
        identities=read_identities(identities) if identities else None,
        aggregator=options["aggregator"],
        models=tuple((str(path), read_model(path)) for path in options["models"]),
        sent=read_sent(sent) if sent else None,
    )


def _key(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        msg = f"--server-key must be {2 * KEY_SIZE} hexadecimal digits, not {text!r}"
        raise InvalidValueError(msg)
    return key


def _lines(verified: Verified, expected: Expected, delta: float) -> list[tuple[str, str]]:
    """Return the content of a valid receipt in words."""
    signed, receipt, parts = verified.signed, verified.signed.receipt, verified.parts
    before, after = receipt.model_before.hex()[:SHORT], receipt.model_after.hex()[:SHORT]
    how = "computed" if verified.computed else "by digest: --model computes it"
    lines = [
        ("round", f"{receipt.round}, by {receipt.aggregator.replace(',', ', ')}"),
        ("nodes", _nodes(parts, expected)),
        ("sums", _sums(parts, expected)),
        ("largest share", _share(receipt.certificate)),
        ("model", f"{before} -> {after} ({how})"),
        ("chain", verified.chain),
        ("digest", signed.digest.hex()),
        ("signed by", f"{signed.signer.hex()}{'' if expected.signer else ' (not pinned)'}"),
    ]
    if verified.noisy:
        lines.insert(4, ("privacy", _privacy(verified, delta)))
    lines += [("warning", words) for words in verified.warnings]
    if verified.sent is not None:
        lines.append(("this node", f"{verified.sent} masked inputs, all as it sent them"))
    return lines


def _share(certificate: float | None) -> str:
    if certificate is None:
        return "the aggregator proves no bound"
    return f"no node is more than {100 * certificate:.3g} % of the last step"


def _privacy(verified: Verified, delta: float) -> str:
    """Return the epsilon of the round, and of all rounds so far, against the server."""
    noises = sorted({part.opening.noise for part in verified.parts})
    noise = " and ".join(f"{one:g}" if one else "none" for one in noises)
    words = f"noise {noise}: {_epsilon(verified.rho, delta)} for this round against the server"
    return f"{words}, {_epsilon(verified.total_rho, delta)} for the most charged node so far"


def _epsilon(rho: float, delta: float) -> str:
    if math.isinf(rho):
        return "no epsilon (a sum without noise)"
    return f"epsilon {epsilon_of(rho, delta):.3g} at delta {delta:g}"


def _nodes(parts: tuple[CheckedPart, ...], expected: Expected) -> str:
    """How many nodes are in the sums, and who dropped out."""
    joined = sum(len(part.keys) for part in parts)
    there = {device for part in parts if part.sums for device in part.inputs(part.sums[-1])}
    gone = sorted({keys.device for part in parts for keys in part.keys} - there)
    listed = f", without {', '.join(map(str, gone))}" if gone else ""
    honest = min((part.cohort.parameters.honest for part in parts if part.cohort), default=0)
    where = "in each part" if len(parts) > 1 else "of them"
    # without identities that are known, nothing but its word keeps a server from making up nodes
    word = "" if expected.identities is not None else ", by the server's word"
    counted = f"{len(there)} of {joined} in the last sums{listed}"
    return f"{counted}; {honest} or more {where} honest{word}"


def _sums(parts: tuple[CheckedPart, ...], expected: Expected) -> str:
    """Return how many sums there are, and who vouches for them."""
    count = sum(len(part.sums) for part in parts)
    stopped = [f"part {part.number}: {part.stopped}" for part in parts if part.stopped]
    malicious = all(part.opening.server_model == ServerModel.MALICIOUS for part in parts)
    words = f"{count} over {len(parts)} part{'s' * (len(parts) > 1)}"
    if malicious:
        whose = "known" if expected.identities is not None else "the server's list of"
        words += f", who and what signed by {whose} identities"
    words += "; the totals are the server's word"
    return "; ".join([words, *stopped])


def _say(label: str, text: str) -> None:
    for line in labeled(f"  {label}", text, COLUMN, WIDTH):
        click.echo(line)
