"""The cache: what lies where, the order of devices, damage, builders at once; and the real data."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa._types import Array, Ints
from rfa.lab.datasets.cache import cache_dir, data_dir, load, locate
from rfa.lab.datasets.dataset import DataError, Index, Population, Reader
from rfa.lab.tasks.emnist import Emnist
from rfa.lab.tasks.sent140 import Sent140
from rfa.lab.tasks.shakespeare import Shakespeare, encode, read_texts, windows

BUILDS: list[str] = []
SIZES = {"zoe": 20, "ann": 3, "ben": 2, "tim": 11, "eve": 15}


class Tiny(Reader):
    """A source of lines "name"; example k of the source is (k, -k), its label is k modulo 7."""

    name = "tiny"
    files = ("tiny.txt|tiny.csv",)
    shape = (2,)
    dtype = "float32"
    min_examples = 3
    train_share = 0.8

    def index(self, paths: Mapping[str, Path]) -> Index:
        BUILDS.append(self.name)
        self.seen = sorted(paths)  # a reader may keep what it likes while it reads
        lines = paths[self.files[0]].read_text().split()
        names = list(dict.fromkeys(lines))
        device = np.array([names.index(line) for line in lines], np.int64)
        return Index(names, device, np.arange(len(lines)) % 7)

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        del paths, index
        rows = np.flatnonzero(dest >= 0)
        out[dest[rows]] = np.stack([rows, -rows], axis=1)


class Made(Tiny):
    files = ()

    def index(self, paths: Mapping[str, Path]) -> Index:
        assert not paths
        return Index(["one", "two"], np.arange(20) % 2, np.zeros(20))


class Failing(Tiny):
    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        del paths, index, dest, out
        msg = "tiny.txt is wrong"
        raise DataError(msg)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lines = [name for name, size in SIZES.items() for _ in range(size)]
    np.random.default_rng(3).shuffle(lines)
    (tmp_path / "tiny.txt").write_text("\n".join(lines))
    return tmp_path


def owners(population: Population, directory: Path) -> list[set[str]]:
    """For each device the names that its examples have in the source."""
    lines = np.array((directory / "tiny.txt").read_text().split())
    rows = population.x[:, 0].astype(int)
    return [set(lines[part]) for part in np.split(rows, population.offsets[1:-1])]


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


class TestPlaces:
    def test_the_data_directory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RFA_DATA", raising=False)
        assert data_dir(None) is None
        monkeypatch.setenv("RFA_DATA", "there")
        assert data_dir(None) == Path("there")
        assert data_dir(Path("here")) == Path("here")

    def test_the_cache_directory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RFA_CACHE", "mine")
        monkeypatch.setenv("XDG_CACHE_HOME", "usual")
        assert cache_dir() == Path("mine")
        monkeypatch.delenv("RFA_CACHE")
        assert cache_dir() == Path("usual/rfa")
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert cache_dir().is_relative_to(Path.home())

    def test_the_first_alternative_that_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "tiny.csv").touch()
        assert locate(Tiny(), tmp_path) == {"tiny.txt|tiny.csv": tmp_path / "tiny.csv"}
        (tmp_path / "tiny.txt").touch()
        assert locate(Tiny(), tmp_path) == {"tiny.txt|tiny.csv": tmp_path / "tiny.txt"}

    @pytest.mark.usefixtures("cache")
    @pytest.mark.parametrize("given", [True, False])
    def test_what_is_missing_is_named_with_the_remedies(self, tmp_path: Path, given: bool) -> None:
        with pytest.raises(DataError, match=r"tiny\.txt or tiny\.csv") as caught:
            load(Tiny(), tmp_path if given else None)
        assert not given or str(tmp_path) in str(caught.value)
        for remedy in ("--data-dir", "RFA_DATA", "rfa data get tiny"):
            assert remedy in str(caught.value)


@pytest.mark.usefixtures("cache")
class TestOrder:
    def test_examples_lie_by_device(self, source: Path) -> None:
        population = load(Tiny(), source)
        assert sorted(population.names) == ["ann", "eve", "tim", "zoe"], "ben is too small"
        assert np.diff(population.offsets).tolist() == [SIZES[name] for name in population.names]
        assert owners(population, source) == [{name} for name in population.names]
        np.testing.assert_array_equal(population.x[:, 0], -population.x[:, 1])
        np.testing.assert_array_equal(population.x[:, 0] % 7, population.y)
        train = {"zoe": 16, "ann": 2, "tim": 9, "eve": 12}
        assert population.train.tolist() == [train[name] for name in population.names]

    def test_devices_do_not_follow_the_source(self, source: Path, tmp_path: Path) -> None:
        names = list(load(Tiny(), source).names)
        lines = (source / "tiny.txt").read_text().split()
        (tmp_path / "tiny.txt").write_text("\n".join(sorted(lines, reverse=True)))
        assert list(load(Tiny(), tmp_path).names) == names

    def test_a_device_has_an_example_for_each_purpose(self, tmp_path: Path) -> None:
        (tmp_path / "tiny.txt").write_text("a b b c c c")
        for share in (0.0, 1.0):
            reader = Tiny()
            reader.min_examples, reader.train_share = 1, share
            population = load(reader, tmp_path)
            sizes = np.diff(population.offsets)
            assert sorted(sizes) == [2, 3]
            assert population.train.tolist() == (sizes - 1 if share else sizes * 0 + 1).tolist()

    def test_iid_deals_the_same_examples_out(self, source: Path) -> None:
        population, dealt = load(Tiny(), source), load(Tiny(), source, partition="iid")
        assert list(dealt.names) == list(population.names)
        np.testing.assert_array_equal(dealt.offsets, population.offsets)
        assert set(dealt.x[:, 0]) == set(population.x[:, 0])
        np.testing.assert_array_equal(dealt.x[:, 0] % 7, dealt.y)
        assert max(map(len, owners(dealt, source))) > 1

    def test_no_device_is_large_enough(self, tmp_path: Path) -> None:
        (tmp_path / "tiny.txt").write_text("a b")
        with pytest.raises(DataError, match="no device of tiny has 3 examples"):
            load(Tiny(), tmp_path)


class TestEntries:
    def test_a_second_time_nothing_is_built(self, source: Path, cache: Path) -> None:
        reader, told, before = Tiny(), list[str](), len(BUILDS)
        first = load(reader, source, on_progress=told.append)
        assert len(told) == 3
        second = load(reader, source, on_progress=told.append)
        assert (len(BUILDS) - before, len(told), len(folders(cache))) == (1, 3, 1)
        np.testing.assert_array_equal(first.x, second.x)
        assert isinstance(second.x, np.memmap)
        assert not second.x.flags.writeable

    def test_made_data_needs_no_directory(self, cache: Path) -> None:
        assert len(load(Made())) == 2
        assert len(folders(cache)) == 1

    def test_what_changed_gives_another_entry_and_only_the_last_one_stays_beside_it(
        self, source: Path, cache: Path
    ) -> None:
        reader = Tiny()
        load(reader, source, partition="iid")
        for size in range(3, 8):
            (source / "tiny.txt").write_text("a\n" * size)
            assert np.diff(load(reader, source).offsets).tolist() == [size]
            time.sleep(0.01)
        dealt = [name for name in folders(cache) if name.startswith("tiny-iid-")]
        assert (len(dealt), len(folders(cache))) == (1, 3)
        (source / "tiny.txt").write_text("a\n" * 6)
        load(reader, source)
        assert len(folders(cache)) == 3

    def test_other_parameters_are_another_data_set(self, source: Path, cache: Path) -> None:
        for least in (3, 12, 3, 12):
            reader = Tiny()
            reader.min_examples = least
            load(reader, source)
        for alpha in (1.0, 2.0, 3.0):
            load(Tiny(), source, partition=f"dirichlet:alpha={alpha},min_examples=2", devices=2)
        assert len(folders(cache)) == 5, "none replaces another"

    def test_an_attribute_of_the_class_counts(
        self, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert len(load(Tiny(), source)) == 4
        monkeypatch.setattr(Tiny, "min_examples", 12)
        assert len(load(Tiny(), source)) == 2

    @pytest.mark.usefixtures("cache")
    def test_rebuilt_beside_somebody_who_uses_it(self, source: Path, cache: Path) -> None:
        used, before = load(Tiny(), source), len(BUILDS)
        entry = next(cache.iterdir())
        number = (entry / "x.npy").stat().st_ino
        anew = load(Tiny(), source, rebuild=True)
        assert len(BUILDS) == before + 1
        assert folders(cache) == [entry.name]
        assert (entry / "x.npy").stat().st_ino != number
        np.testing.assert_array_equal(used.x, anew.x)

    def test_rebuilding_mends_what_is_wrong_but_whole(self, source: Path, cache: Path) -> None:
        right = load(Tiny(), source).y.copy()
        path = next(cache.iterdir()) / "y.npy"
        np.save(path, np.zeros_like(right))
        assert not load(Tiny(), source).y.any()
        np.testing.assert_array_equal(load(Tiny(), source, rebuild=True).y, right)

    @pytest.mark.parametrize("file", ["x.npy", "y.npy", "offsets.npy", "train.npy", "names.json"])
    @pytest.mark.parametrize("damage", ["truncated", "empty", "gone", "other"])
    def test_damage_is_seen_and_mended(
        self, source: Path, cache: Path, file: str, damage: str
    ) -> None:
        load(Tiny(), source)
        path = next(cache.iterdir()) / file
        content = path.read_bytes()
        path.unlink()
        if damage == "other":
            other = b"[1]" if file == "names.json" else content.replace(b"(", b"[")
            path.write_bytes(other)
        elif damage != "gone":
            path.write_bytes(content[: len(content) - 8 if damage == "truncated" else 0])
        before = len(BUILDS)
        load(Tiny(), source)
        assert len(BUILDS) == before + 1
        assert path.read_bytes() == content
        assert len(folders(cache)) == 1

    def test_a_reader_that_fails_leaves_nothing(self, source: Path, cache: Path) -> None:
        with pytest.raises(DataError, match=r"tiny\.txt is wrong"):
            load(Failing(), source)
        assert folders(cache) == []

    def test_leftovers_go_after_a_day(self, source: Path, cache: Path) -> None:
        for name, age in ((".building-old", 2), (".building-young", 0)):
            (cache / name).mkdir(parents=True)
            (cache / name / "x.npy").touch()
            then = time.time() - age * 24 * 60 * 60
            os.utime(cache / name, (then, then))
        load(Tiny(), source)
        assert ".building-old" not in folders(cache)
        assert ".building-young" in folders(cache)

    def test_a_cache_that_cannot_be_written(
        self, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (source / "file").touch()
        monkeypatch.setenv("RFA_CACHE", str(source / "file" / "cache"))
        with pytest.raises(DataError, match="set RFA_CACHE to another") as caught:
            load(Tiny(), source)
        assert str(source / "file" / "cache") in str(caught.value)

    @pytest.mark.skipif(sys.platform == "win32", reason="starts processes by fork")
    def test_builders_at_once(self, source: Path, cache: Path) -> None:
        with multiprocessing.get_context("forkserver").Pool(4) as pool:
            sums = pool.starmap(_total, [(source, cache)] * 12, chunksize=1)
        assert len(set(sums)) == 1
        assert len(folders(cache)) == 1


MODULE = """
from helper_of_mine import scale
from rfa.lab.datasets.dataset import Index, Reader
import numpy as np

ALPHA = {alpha}

class Mine(Reader):
    name = "mine"
    files = ()
    shape = (1,)
    dtype = "float64"
    min_examples = 2
    train_share = 0.5

    def __init__(self, beta=1.0):
        self.beta = beta

    def index(self, paths):
        return Index(["a", "b"], np.arange(8) % 2, np.zeros(8, np.int64))

    def fill(self, paths, index, dest, out):
        out[dest] = scale(ALPHA * self.beta)

READER = Mine()
"""
HELPER = "def scale(value):\n    return {factor} * value\n"
SHOW = """
import sys
from rfa._plugins import load_plugin
from rfa.lab.datasets.cache import load
print(load(load_plugin(sys.argv[1], object, "a reader")).x[0, 0])
"""


class TestCodeOfTheUsers:
    """Made data whose reader's code changes between processes: no old numbers."""

    @staticmethod
    def value(folder: Path, alpha: float, factor: int) -> float:
        (folder / "mine_of_mine.py").write_text(MODULE.format(alpha=alpha))
        (folder / "helper_of_mine.py").write_text(HELPER.format(factor=factor))
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-B", "-c", SHOW, "mine_of_mine:READER"],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
        )
        return float(done.stdout)

    def test_a_constant_and_a_helper_module(self, tmp_path: Path, cache: Path) -> None:
        assert self.value(tmp_path, 0.1, 1) == pytest.approx(0.1)
        assert self.value(tmp_path, 0.5, 1) == pytest.approx(0.5), "its constant changed"
        assert self.value(tmp_path, 0.5, 3) == pytest.approx(1.5), "its helper's code changed"
        assert len(folders(cache)) == 2, "old entries go"

    def test_a_parameter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.value(tmp_path, 0.1, 1)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        module: Any = importlib.import_module("mine_of_mine")
        assert [load(module.Mine(beta)).x[0, 0] for beta in (1.0, 2.0, 1.0)] == [0.1, 0.2, 0.1]
        for name in ("mine_of_mine", "helper_of_mine"):
            monkeypatch.delitem(sys.modules, name)


def _total(source: Path, cache: Path) -> float:
    os.environ["RFA_CACHE"] = str(cache)
    return float(load(Tiny(), source).x[:, 0].sum())


@pytest.mark.usefixtures("cache")
class TestRealData:
    @staticmethod
    def load(reader: Reader, directory: Path) -> Population:
        try:
            locate(reader, directory)
        except DataError as error:
            pytest.skip(f"no real data: {error}")
        return load(reader, directory)

    def test_emnist(self, real_data: Path) -> None:
        population = self.load(Emnist(), real_data)
        assert len(population) == 447
        assert population.x.shape == (72857, 784)
        assert np.median(population.train) == 151
        assert 0.7 < (population.y < 10).mean() < 0.72
        corners = population.x[::100, 0]
        assert np.median(corners) == 255, "paper should be white"

    def test_shakespeare(self, real_data: Path) -> None:
        """1131 roles have more than 100 characters, and one has just 100, which is enough."""
        population = self.load(Shakespeare(), real_data)
        sizes = np.diff(population.offsets)
        assert len(population) == 1132
        assert (sizes > 100).sum() == 1131
        assert len({name.split("/")[0] for name in population.names}) == 37
        assert population.x.shape == (4_324_697, 41)
        np.testing.assert_array_equal(population.y[::50], population.x[::50, 20])
        said = dict(read_texts(real_data / "shakespeare.zip"))["hamlet/BERNARDO"]
        assert said.startswith("Who's there?\nLong live the king!\nHe.\n'Tis now struck twelve;")
        device = list(population.names).index("hamlet/BERNARDO")
        rows = population.x[population.offsets[device] : population.offsets[device + 1]]
        assert sorted(map(bytes, rows)) == sorted(map(bytes, windows(encode(said))))

    def test_sent140(self, real_data: Path) -> None:
        population = self.load(Sent140(), real_data)
        assert len(population) == 877
        assert population.x.shape == (70596, 50)
        assert np.isfinite(population.x).all()
        assert (~population.x.any(axis=1)).mean() < 0.005, "most tweets have words"
        assert set(np.unique(population.y)) == {0, 1}
        assert np.diff(population.offsets).min() >= 50
