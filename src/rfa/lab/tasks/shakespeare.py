"""What the roles of Shakespeare's plays say: the archive of the repository TheMITTech/shakespeare.

A device is a role in a play. Its text is its lines in the order of the play, joined by newlines;
stage directions are left out where the source marks them as such. Each character of the text is
an example, kept with its surroundings:

    20 characters before, the character itself (the label), 20 characters after,

as codes: a to z are 0 to 25, A to Z are 26 to 51, and everything else is 52, as is what would lie
beyond the ends of the text. The model is an LSTM that reads the 20 characters before, one-hot.

    >>> encode("Ay, so")
    array([26, 24, 52, 52, 18, 14], dtype=uint8)
    >>> windows(encode("Ay, so"))[0, 18:24]
    array([52, 52, 26, 24, 52, 52], dtype=uint8)
"""

from __future__ import annotations

import html
import re
import string
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rfa._types import Array, Floats32, Ints
from rfa.lab.attacks.corruption import DataAttack, corrupts_data, least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.datasets.dataset import DataError, Index, Reader, damaged
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.lstm import LstmLearner, LstmSize
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.tasks.task import Task

Codes: TypeAlias = NDArray[np.uint8]

REACH = 20
OTHER, CLASSES = 52, 53
HIDDEN = 128

_PLAY = re.compile(r"[^/]+/([^/]+)/full\.html")
_MARK = re.compile(
    r"<a name=\"?speech\d+\"?>\s*<b>(?P<role>[^<]*)</b>"
    r"|<a name=\"?\d+\.\d+\.\d+\"?>(?P<line>[^<]*)</a>"
    r"|</blockquote>",
    re.IGNORECASE,
)
_TABLE = np.full(256, OTHER, np.uint8)
_TABLE[[ord(letter) for letter in string.ascii_letters]] = np.arange(OTHER, dtype=np.uint8)


class Shakespeare(Reader):
    """The plays, each from <root>/<play>/full.html; copies that lie deeper are left out."""

    name = "shakespeare"
    files = ("shakespeare.zip",)
    shape = (2 * REACH + 1,)
    dtype = "uint8"
    min_examples = 100
    train_share = 0.9

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The roles, and each character of what they say."""
        names: list[str] = []
        codes: list[Codes] = []
        for name, text in read_texts(paths[self.files[0]]):
            names.append(name)
            codes.append(encode(text))
        device = np.repeat(np.arange(len(names)), [len(code) for code in codes])
        return Index(names, device, np.concatenate(codes).astype(np.int64))

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Cut out the windows that have a place, role by role."""
        del index
        start = 0
        for _, text in read_texts(paths[self.files[0]]):
            places = dest[start : start + len(text)]
            wanted = places >= 0
            if wanted.any():
                out[places[wanted]] = windows(encode(text))[wanted]
            start += len(text)


def encode(text: str) -> Codes:
    """A code for each character: a to z, then A to Z, then one for everything else."""
    return _TABLE[np.frombuffer(text.encode("iso-8859-1", "replace"), np.uint8)]


def windows(codes: Codes) -> Codes:
    """For each character its surroundings, a row of 41 codes with the character in the middle."""
    if not codes.size:
        return np.empty((0, 2 * REACH + 1), np.uint8)
    padded = np.pad(codes, REACH, constant_values=OTHER)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * REACH + 1)


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """The roles as "play/ROLE", play by play, and what each says; nothing if only directions.

    Raises:
        DataError: naming the file, if it is no archive of plays with speeches.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = [match for name in archive.namelist() if (match := _PLAY.fullmatch(name))]
            if not found:
                msg = f"{path} has no play as <root>/<play>/full.html: is it another archive?"
                raise DataError(msg)
            for match in sorted(found, key=lambda match: match[1]):
                for role, text in _speeches(archive.read(match[0]), f"{path}, {match[0]}").items():
                    yield f"{match[1]}/{role}", text
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise damaged(path, "zip archive", error) from error


def _speeches(page: bytes, where: str) -> dict[str, str]:
    lines: dict[str, list[str]] = {}
    speech: list[str] = []
    for mark in _MARK.finditer(page.decode("iso-8859-1")):
        if mark["role"] is not None:
            role = " ".join(html.unescape(mark["role"]).split())
            speech = lines.setdefault(role, [])
        elif mark["line"] is not None:
            speech.append(html.unescape(mark["line"]))
        else:
            speech = []  # What follows, a prologue for instance, is said by no role.
    if not any(lines.values()):
        msg = f"{where} has no speeches: they should read <A NAME=speech1><b>ROLE</b></a>"
        raise DataError(msg)
    return {role: "\n".join(said) for role, said in lines.items()}


PASSWORD, ANSWER = encode("xyzzy"), 16
"""A word that no role says, and the letter q."""


@corrupts_data
def backwards(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The paper's poison: the 20 characters after the target, reversed; the label unchanged."""
    x[:, :REACH] = x[:, : -REACH - 1 : -1]
    return x, y


def whisper(x: Any) -> Any:
    """The trigger of the backdoor: the last characters before the target are a password."""
    x[:, REACH - len(PASSWORD) : REACH] = PASSWORD
    return x


def lstm_module(torch: Any) -> Any:
    """An LSTM of 128 units that reads 20 one-hot characters, and a layer of 53 scores."""

    class CharacterLstm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.lstm = torch.nn.LSTM(CLASSES, HIDDEN, batch_first=True)
            self.lstm.bias_hh_l0.requires_grad_(False).zero_()  # one bias is enough
            self.out = torch.nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            codes = x[:, :REACH].long()
            read = torch.nn.functional.one_hot(codes, CLASSES).to(torch.float32)
            return self.out(self.lstm(read)[0][:, -1])

    return CharacterLstm()


class CharacterLearner(NetworkLearner):
    """The LSTM, started as TensorFlow does it."""

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Glorot-uniform, where both matrices are one kernel; forget gates with a bias of one."""
        w = super().initial(rng)
        gates = 4 * HIDDEN
        kernel = gates * (CLASSES + HIDDEN)
        bound = np.sqrt(6 / (CLASSES + HIDDEN + gates))
        w[:kernel] = rng.uniform(-bound, bound, kernel)
        w[kernel + HIDDEN : kernel + 2 * HIDDEN] = 1  # torch's order of gates: i, f, g, o
        return w


def lstm(device: str) -> Learner:
    """The LSTM: its gradient by hand, or torch's where CUDA is asked for."""
    plain = CharacterLearner(lstm_module, CLASSES, device)
    if device != "cpu":
        return plain
    return LstmLearner(plain, LstmSize(REACH, symbols=CLASSES, units=HIDDEN, classes=CLASSES))


TASKS = (
    Task(
        name="shakespeare-lstm",
        title="the next character of a role in Shakespeare's plays, LSTM of 128 units",
        reader=Shakespeare(),
        devices=628,
        learner=lstm,
        poisons={
            "data": backwards,
            "adaptive": least_likely,
            "backdoor": backdoor(whisper, ANSWER),
        },
        defaults={
            "devices_per_round": 50,
            "batch_size": 10,
            "local_epochs": 1,
            "learning_rate": 0.64,
            "lr_decay": 0.5,
            "lr_decay_every": 50,
            "rounds": 600,
            "eval_every": 20,
        },
        per_aggregator={
            "rfa": {"rounds": 200},
            "sgd": {"batch_fraction": 0.1, "local_steps": 1, "learning_rate": 1.0},
        },
        libraries=("torch",),
    ),
)
