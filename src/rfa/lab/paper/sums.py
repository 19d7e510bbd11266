"""SHA256SUMS beside files of numbers, as `sha256sum` writes it: no byte changes unseen."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rfa._files import replace_file
from rfa.lab.paper.kept_rows import NumbersError, damaged

SUMS = "SHA256SUMS"
LINE = re.compile("([0-9a-f]{64})  (.+)")
AGAIN = "restore the folder from where it comes"


def write_sums(folder: Path, names: Sequence[str]) -> None:
    """Write the sums of those files that are in a folder."""
    with replace_file(folder / SUMS) as file:
        file.write(_as_text(_sums(folder, names)).encode())


def check_sums(folder: Path, names: Sequence[str], made_again: str = "") -> None:
    """Compare the files of a folder with their sums, if it has any.

    Args:
        folder: the folder.
        names: the files that it can have.
        made_again: one of them that may be missing, because it is made from the others.

    Raises:
        NumbersError: naming the file that is another, missing or new, and the remedies.
    """
    if not (folder / SUMS).exists():
        return
    told, here = _read(folder / SUMS, names), _sums(folder, names)
    for name in names:
        if told.get(name) != here.get(name) and (name in here or name != made_again):
            raise NumbersError(_difference(folder / name, name in told, name in here))


def _difference(path: Path, told: bool, here: bool) -> str:
    """How a file differs from its sum, and what to do."""
    if told and not here:
        remedies = f"{AGAIN}, or write it again with --numbers-to {path.parent}"
        end = f"if it is left out on purpose, remove its line from {SUMS}"
        return f"{path} is missing, and {SUMS} lists it: {remedies}; {end}"
    what = f"is not the file that {SUMS} lists" if told else f"is not listed in {SUMS}"
    end = f"if it was changed on purpose, delete {SUMS}: --numbers-to {path.parent} writes it again"
    return f"{path} {what}: {AGAIN}; {end}"


def _read(path: Path, names: Sequence[str]) -> dict[str, str]:
    """The sums in a file, which is exactly as it would be written."""
    text = path.read_bytes().decode(errors="replace")
    found = [LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    sums = {match[2]: match[1] for match in found if match}
    if text != _as_text(sums) or not sums.keys() <= set(names):
        why = f"it must have lines of sha256sum for {', '.join(names)}, sorted; delete it, and"
        raise damaged(path, f"{why} --numbers-to {path.parent} writes it again")
    return sums


def _sums(folder: Path, names: Sequence[str]) -> dict[str, str]:
    there = [folder / name for name in names if (folder / name).exists()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in there}


def _as_text(sums: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
