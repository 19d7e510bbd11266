"""What the roles of Shakespeare's plays say: the archive of the repository TheMITTech/shakespeare.

A device is a role in a play. Its text is its lines in the order of the play, joined by newlines;
stage directions are left out where the source marks them as such. Each character of the text is
an example, kept with its surroundings:

    20 characters before, the character itself (the label), 20 characters after,

as codes: a to z are 0 to 25, A to Z are 26 to 51, and everything else is 52, as is what would lie
beyond the ends of the text.

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
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rfa._types import Array, Ints
from rfa.lab.datasets.dataset import DataError, Index, Reader, damaged

Codes: TypeAlias = NDArray[np.uint8]

REACH = 20
OTHER = 52
CLASSES = 53

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
    version = "1"
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
