"""A file is replaced as a whole or not at all, and who may read it is as asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rfa._files import put_in_place, replace_file


def test_the_new_content_comes_at_once_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replace_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as file:
        file.write(b"half of the n" * (1 // (file.write(b"x") - 1)))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_process_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    code = (
        "import os, sys, pathlib\nfrom rfa._files import replace_file\n"
        "with replace_file(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half of the n'); file.flush(); os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)  # noqa: S603
    assert done.returncode == 9
    assert path.read_text() == "old"


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_secret_is_its_owners_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with replace_file(path, mode=0o600) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_finished_file_takes_its_place(tmp_path: Path) -> None:
    new, path = tmp_path / "new", tmp_path / "file"
    new.write_text("content")
    put_in_place(new, path)
    assert path.read_text() == "content"
    assert not new.exists()
