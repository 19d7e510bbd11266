"""The readers, on tiny sources in the public layouts, and on broken ones."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa._types import Array
from rfa.lab.datasets.cache import locate
from rfa.lab.datasets.dataset import DataError, Index, Reader
from rfa.lab.tasks.emnist import Emnist
from rfa.lab.tasks.sent140 import Sent140, tokens
from rfa.lab.tasks.shakespeare import OTHER, Shakespeare, encode, read_texts, windows
from tests.lab.datasets.conftest import (
    glove,
    png,
    write_femnist,
    write_parquet,
    write_plays,
    write_sent140,
)

arrow: Any = pytest.importorskip("pyarrow")
pytest.importorskip("PIL")

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "


def read_all(reader: Reader, directory: Path) -> tuple[Index, Array]:
    """The index, and all examples in the order of the source."""
    paths = locate(reader, directory)
    index = reader.index(paths)
    out = np.full((len(index.device), *reader.shape), 7, reader.dtype)
    reader.fill(paths, index, np.arange(len(index.device)), out)
    return index, out


@pytest.fixture
def ink() -> Array:
    return np.random.default_rng(1).integers(0, 256, (5, 28, 28)).astype(np.uint8)


class TestEmnist:
    def test_pixels_labels_and_writers_are_those_of_the_source(
        self, tmp_path: Path, ink: Array
    ) -> None:
        write_femnist(tmp_path / "femnist.parquet", [png(image) for image in ink])
        index, out = read_all(Emnist(), tmp_path)
        assert list(index.names) == ["f0", "f1"]
        assert index.device.tolist() == [0, 1, 0, 1, 0]
        assert index.y.tolist() == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(out, ink.reshape(5, 784))

    def test_writers_may_be_dictionary_encoded(self, tmp_path: Path, ink: Array) -> None:
        writers = arrow.array(["b", "a", "b", "b", "a"]).dictionary_encode()
        path = tmp_path / "femnist.parquet"
        write_femnist(path, [png(image) for image in ink], writer_id=writers)
        index = Emnist().index({"femnist.parquet": path})
        assert [index.names[d] for d in index.device] == ["b", "a", "b", "b", "a"]

    def test_a_folder_of_parts_is_read_in_order(self, tmp_path: Path, ink: Array) -> None:
        folder = tmp_path / "femnist.parquet"
        folder.mkdir()
        for k in (1, 0):
            part = folder / f"train-0000{k}-of-00002.parquet"
            write_femnist(part, [png(ink[k])], writer_id=[f"w{k}"])
        index, out = read_all(Emnist(), tmp_path)
        assert list(index.names) == ["w0", "w1"]
        np.testing.assert_array_equal(out, ink[:2].reshape(2, 784))

    def test_only_what_has_a_place_is_decoded(self, tmp_path: Path, ink: Array) -> None:
        path = tmp_path / "femnist.parquet"
        write_femnist(path, [b"no image", png(ink[1]), b"no image"])
        out = np.zeros((1, 784), np.uint8)
        reader = Emnist()
        index = reader.index({path.name: path})
        reader.fill({path.name: path}, index, np.array([-1, 0, -1]), out)
        np.testing.assert_array_equal(out[0], ink[1].reshape(-1))

    @pytest.mark.parametrize(
        "bad", [b"", b"no image", None, png(np.zeros((28, 28), np.uint8))[:48]], ids=range(4)
    )
    def test_an_image_that_cannot_be_decoded(self, tmp_path: Path, bad: bytes | None) -> None:
        write_femnist(tmp_path / "femnist.parquet", [png(np.zeros((28, 28), np.uint8)), bad])
        with pytest.raises(DataError, match=r"femnist\.parquet, row 1: the image cannot"):
            read_all(Emnist(), tmp_path)

    def test_an_image_of_another_size(self, tmp_path: Path) -> None:
        write_femnist(tmp_path / "femnist.parquet", [png(np.zeros((28, 27), np.uint8))])
        with pytest.raises(DataError, match=r"row 0: .* 28 by 28 pixels, not \(28, 27\)"):
            read_all(Emnist(), tmp_path)

    @pytest.mark.parametrize("label", [62, -1, None])
    def test_a_label_out_of_range(self, tmp_path: Path, label: int | None) -> None:
        write_femnist(tmp_path / "femnist.parquet", [b"", b""], character=[0, label])
        with pytest.raises(DataError, match=rf"row 1: character must be 0 to 61, not {label}"):
            read_all(Emnist(), tmp_path)

    def test_an_image_without_a_writer(self, tmp_path: Path) -> None:
        write_femnist(tmp_path / "femnist.parquet", [b"", b""], writer_id=["a", None])
        with pytest.raises(DataError, match=r"femnist\.parquet has an example without a device"):
            read_all(Emnist(), tmp_path)

    def test_a_column_is_missing(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "femnist.parquet", {"writer_id": ["a"], "label": [1]})
        with pytest.raises(DataError, match=r"femnist\.parquet has no column 'character', only"):
            read_all(Emnist(), tmp_path)

    @pytest.mark.parametrize("content", [b"", b"PAR1 is not enough"])
    def test_no_parquet_file(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "femnist.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"femnist\.parquet is no Parquet file.*get it again"):
            read_all(Emnist(), tmp_path)

    def test_a_folder_without_parts(self, tmp_path: Path) -> None:
        (tmp_path / "femnist.parquet").mkdir()
        with pytest.raises(DataError, match=r"a folder without \.parquet files"):
            read_all(Emnist(), tmp_path)

    def test_pyarrow_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        (tmp_path / "femnist.parquet").touch()
        with pytest.raises(DataError, match=re.escape("pyarrow is missing")) as caught:
            read_all(Emnist(), tmp_path)
        assert "pip install 'rfa[lab]'" in str(caught.value)


PLAY = """<title>A play</title>
<blockquote><i>Enter ANN and a Page</i></blockquote>
<blockquote><A NAME=1.0.1>A prologue that nobody says</A><br></blockquote>
<A NAME=speech1><b>ANN</b></a>
<blockquote>
<A NAME=1.1.1>Who's there?</A><br>
<p><i>Knocking</i></p>
<A NAME=1.1.2>Come &amp; speak.</A><br>
</blockquote>
<A NAME=speech2><b>First  Page</b></a>
<blockquote>
<A NAME=1.1.3>I.</A><br>
</blockquote>
<A NAME=speech3><b>MUTE</b></a>
<blockquote><p><i>Bows</i></p></blockquote>
<A NAME=speech4><b>ANN</b></a>
<blockquote>
<A NAME=1.1.4>You?</A><br>
</blockquote>
"""


class TestShakespeare:
    def test_speeches_are_gathered_by_role(self, tmp_path: Path) -> None:
        path = tmp_path / "shakespeare.zip"
        plays = {"r/b/full.html": PLAY, "r/a/full.html": PLAY, "r/a/index.html": "no play"}
        write_plays(path, plays | {"r/Comedy/a/full.html": "a copy", "full.html": "too high"})
        texts = dict(read_texts(path))
        said = {"ANN": "Who's there?\nCome & speak.\nYou?", "First Page": "I.", "MUTE": ""}
        assert texts == {f"{play}/{role}": text for play in "ab" for role, text in said.items()}

    def test_windows_by_hand(self, tmp_path: Path) -> None:
        write_plays(tmp_path / "shakespeare.zip", {"r/a/full.html": PLAY})
        index, out = read_all(Shakespeare(), tmp_path)
        assert list(index.names) == ["a/ANN", "a/First Page", "a/MUTE"]
        assert np.bincount(index.device, minlength=3).tolist() == [31, 2, 0]
        first = " " * 20 + "Who s there  Come   s"
        assert "".join(LETTERS[code] for code in out[0]) == first
        assert "".join(LETTERS[code] for code in out[31]) == " " * 20 + "I" + " " * 20
        assert index.y[:3].tolist() == [26 + 22, 7, 14]
        np.testing.assert_array_equal(index.y, out[:, 20])

    def test_only_what_has_a_place_is_written(self, tmp_path: Path) -> None:
        path = tmp_path / "shakespeare.zip"
        write_plays(path, {"r/a/full.html": PLAY})
        index, whole = read_all(Shakespeare(), tmp_path)
        rows = np.random.default_rng(1).permutation(len(index.device))[:9]
        dest = np.full(len(index.device), -1)
        dest[rows] = np.arange(9)
        out = np.empty((9, 41), np.uint8)
        Shakespeare().fill({path.name: path}, index, dest, out)
        np.testing.assert_array_equal(out, whole[rows])

    def test_codes(self) -> None:
        assert encode("azAZ").tolist() == [0, 25, 26, 51]
        assert encode("\n 1.\xe9\u2014").tolist() == [OTHER] * 6
        assert windows(encode("")).shape == (0, 41)

    def test_a_text_can_be_put_together_again(self) -> None:
        text = "It is a tale told by an idiot full of sound and fury signifying nothing"
        rows = windows(encode(text))
        for shift in range(41):
            column = "".join(LETTERS[code] for code in rows[:, shift])
            padded = " " * 20 + text + " " * 20
            assert column == padded[shift : shift + len(text)]

    @pytest.mark.parametrize("content", [b"", b"no archive"])
    def test_no_archive(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "shakespeare.zip").write_bytes(content)
        with pytest.raises(DataError, match=r"shakespeare\.zip is no zip archive.*get it again"):
            read_all(Shakespeare(), tmp_path)

    def test_a_truncated_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "shakespeare.zip"
        write_plays(path, {f"r/{k}/full.html": PLAY for k in range(9)})
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError, match=r"shakespeare\.zip is no zip archive"):
            read_all(Shakespeare(), tmp_path)

    def test_a_damaged_member(self, tmp_path: Path) -> None:
        path = tmp_path / "shakespeare.zip"
        write_plays(path, {"r/a/full.html": PLAY})
        content = bytearray(path.read_bytes())
        content[60:90] = bytes(30)
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"shakespeare\.zip .* damaged"):
            read_all(Shakespeare(), tmp_path)

    def test_no_plays(self, tmp_path: Path) -> None:
        write_plays(tmp_path / "shakespeare.zip", {"r/readme.txt": "none"})
        with pytest.raises(DataError, match=r"shakespeare\.zip has no play as <root>/<play>"):
            read_all(Shakespeare(), tmp_path)

    @pytest.mark.parametrize(
        "page", ["<html></html>", "<A NAME=speech1><b>MUTE</b></a><blockquote></blockquote>"]
    )
    def test_a_play_without_any_text(self, tmp_path: Path, page: str) -> None:
        write_plays(tmp_path / "shakespeare.zip", {"r/a/full.html": PLAY, "r/b/full.html": page})
        with pytest.raises(DataError, match=r"shakespeare\.zip, r/b/full\.html has no speeches"):
            read_all(Shakespeare(), tmp_path)


class TestSent140:
    def test_the_mean_of_the_known_words(self, tmp_path: Path) -> None:
        (tmp_path / "glove.6B.50d.txt").write_text(glove("the", "good", "n't", "do"))
        write_sent140(
            tmp_path, ["Good GOOD unheard", "Don't", "...", ""], user=["a", "b", "a", "b"]
        )
        index, out = read_all(Sent140(), tmp_path)
        assert [index.names[d] for d in index.device] == ["a", "b", "a", "b"]
        assert index.y.tolist() == [0, 1, 0, 1]
        base = np.arange(50) / 2
        np.testing.assert_allclose(out, [base + 1, base + 2.5, 0 * base, 0 * base], rtol=1e-6)

    @pytest.mark.parametrize("name", ["glove.6B.50d.txt.gz", "glove.6B.50d.subset.txt.gz"])
    def test_vectors_may_be_compressed(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(gzip.compress(glove("the", "good").encode()))
        write_sent140(tmp_path, ["good"])
        _, out = read_all(Sent140(), tmp_path)
        np.testing.assert_allclose(out[0], np.arange(50) / 2 + 1)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("I can't; they've", "i ca n't ; they 've"),
            ("2nd at 1,000 or 8:30", "2nd at 1,000 or 8:30"),
            ("@ann see www.a.bc &lt;3", "see < 3"),
            ("a_b -- c---d .. e.", "a _ b -- c -- d ... e ."),
            ("it\u2019s caf\xe9", "it 's caf\xe9"),
            ("  ", ""),
        ],
    )
    def test_tokens(self, text: str, expected: str) -> None:
        assert " ".join(tokens(text)) == expected

    @pytest.mark.parametrize("sentiment", [2, 1, None])
    def test_a_label_out_of_range(self, tmp_path: Path, sentiment: int | None) -> None:
        (tmp_path / "glove.6B.50d.txt").write_text(glove("good"))
        write_sent140(tmp_path, ["good", "good"], sentiment=[4, sentiment])
        wanted = rf"sent140\.parquet, row 1: sentiment must be 0 or 4, not {sentiment}"
        with pytest.raises(DataError, match=wanted):
            read_all(Sent140(), tmp_path)

    def test_a_column_is_missing(self, tmp_path: Path) -> None:
        (tmp_path / "glove.6B.50d.txt").write_text(glove("good"))
        write_parquet(tmp_path / "sent140.parquet", {"text": ["good"], "sentiment": [0]})
        with pytest.raises(DataError, match=r"sent140\.parquet has no column 'user'"):
            read_all(Sent140(), tmp_path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"the 1 2\ngood 1 2 3\n", r"line 2, 'good': must have 50 finite numbers, not 3"),
            (b"good 1 x\n", "line 1, 'good': a word must be followed by numbers"),
            (b"good" + b" nan" * 50, "line 1, 'good': must have 50 finite"),
            (b"bad 1\n", "has a vector for none of 1 words"),
            (b"", "has a vector for none of 1 words"),
            (b"\xff\xfe\x00", "holds no GloVe vectors"),
        ],
    )
    def test_vectors_that_are_wrong(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "glove.6B.50d.txt").write_bytes(content)
        write_sent140(tmp_path, ["good"])
        with pytest.raises(DataError, match=rf"glove\.6B\.50d\.txt.*{message}"):
            read_all(Sent140(), tmp_path)

    def test_compressed_vectors_that_are_truncated(self, tmp_path: Path) -> None:
        whole = gzip.compress(glove("good", "bad").encode())
        (tmp_path / "glove.6B.50d.txt.gz").write_bytes(whole[: len(whole) // 2])
        write_sent140(tmp_path, ["good"])
        with pytest.raises(DataError, match=r"glove\.6B\.50d\.txt\.gz .* damaged"):
            read_all(Sent140(), tmp_path)
