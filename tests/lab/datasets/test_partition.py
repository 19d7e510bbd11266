"""Partitions: who gets which example, the same in every process; what is impossible is refused."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa._types import Array, Ints
from rfa.errors import InvalidTypeError, InvalidValueError, PluginError
from rfa.lab.datasets.arrangement import arrange
from rfa.lab.datasets.dataset import DataError, Index, Reader
from rfa.lab.datasets.keys import key_of
from rfa.lab.datasets.partition import (
    ByDevice,
    Dirichlet,
    Iid,
    Partition,
    Pathological,
    Similarity,
    Size,
)
from rfa.lab.datasets.partition_registry import find_partition

MADE = ("dirichlet:alpha=0.5", "pathological:classes=2", "size:law=linear", "iid")


class Pooled(Reader):
    """Examples without devices: 600 of 5 classes, in a row by class."""

    name = "pooled"
    files = ()
    shape = (1,)
    dtype = "int64"
    min_examples = 50
    train_share = 0.8
    has_devices = False

    def index(self, paths: Mapping[str, Path]) -> Index:
        return pooled(labels())

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        out[dest] = 0


class Natural(Pooled):
    has_devices = True


@dataclass(frozen=True)
class Halves(Partition):
    """The first half of the examples on device 0, the rest on device 1, but some left out."""

    left_out: int = 0

    def assign(self, index: Index, devices: int) -> Ints:
        device = np.arange(len(index.y)) * 2 // len(index.y)
        device[: self.left_out] = -1
        return device


class Broken(Partition):
    def assign(self, index: Index, devices: int) -> Ints:
        return np.zeros(3, np.int64)[index.y]


HALVES = Halves(left_out=3)


def labels(count: int = 600, classes: int = 5) -> Array:
    return np.sort(np.arange(count) % classes)


def pooled(y: Array) -> Index:
    return Index([], np.zeros(len(y), np.int64), y)


def natural(y: Array, devices: int) -> Index:
    names = [f"w{k}" for k in range(devices)]
    return Index(names, np.arange(len(y)) % devices, y)


def entropy(y: Array, device: Ints) -> float:
    """The mean entropy of the labels of a device."""
    counts = np.array([np.bincount(y[device == d], minlength=y.max() + 1) for d in range(10)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1).mean())


class TestNames:
    def test_texts(self) -> None:
        assert find_partition("device") == ByDevice()
        assert find_partition("iid") == Iid()
        assert find_partition("dirichlet:alpha=1") == Dirichlet(1)
        assert find_partition("dirichlet:alpha=0.3,seed=4,min-examples=2") == Dirichlet(0.3, 4, 2)
        assert find_partition("pathological:classes=2,seed=7") == Pathological(2, 7)
        assert find_partition("size:law=square") == Size("square")
        assert find_partition(Iid()) == Iid()

    @pytest.mark.parametrize("text", [*MADE, "device", f"{__name__}:Halves:left_out=2"])
    def test_a_value_has_a_text_that_makes_it_again(self, text: str) -> None:
        partition = find_partition(text)
        assert find_partition(str(partition)) == partition

    def test_of_the_user_s(self) -> None:
        assert find_partition(f"{__name__}:HALVES") is HALVES
        assert find_partition(f"{__name__}:Halves") == Halves()

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("dirichlet", "alpha"),
            ("dirichlet:alpha=0", "positive"),
            ("dirichlet:alpha=-1", "positive"),
            ("dirichlet:alpha=nan", "positive"),
            ("dirichlet:alpha=few", "positive"),
            ("dirichlet:alpha=1,min_examples=1", "from 2 on"),
            ("dirichlet:beta=1", "beta"),
            ("pathological:classes=0", "from 1 on"),
            ("pathological:classes=1.5", "whole"),
            ("size:law=cubic", "linear, square, exponential"),
            ("size:law=linear,seed=-1", "from 0 on"),
            ("device:seed=1", "seed"),
            ("similarity", "gamma"),
            ("similarity:gamma=1.1", "at most 1"),
            ("similarity:gamma=-0.1", "gamma"),
            ("dirichlet:0.3", "dirichlet:alpha=0.3"),
            ("by-hand", "device, iid, dirichlet, pathological, similarity, size"),
            ("", "module:NAME"),
            (f"{__name__}:HALVES:left_out=1", "name its class"),
        ],
    )
    def test_what_has_no_meaning(self, text: str, why: str) -> None:
        with pytest.raises(InvalidValueError, match=why):
            find_partition(text)

    def test_what_is_no_partition(self) -> None:
        with pytest.raises(InvalidTypeError, match="not 3"):
            find_partition(3)
        with pytest.raises(InvalidTypeError, match="a Partition"):
            find_partition(f"{__name__}:MADE")
        with pytest.raises(PluginError, match="no_module_of_that_name"):
            find_partition("no_module_of_that_name:X")


@settings(max_examples=30)
@given(
    text=st.sampled_from(MADE),
    devices=st.integers(1, 8),
    count=st.integers(200, 400),
    classes=st.integers(2, 6),
    by_device=st.booleans(),
)
def test_every_example_is_on_one_device(
    text: str, devices: int, count: int, classes: int, by_device: bool
) -> None:
    pytest.importorskip("flwr_datasets")
    y = labels(count, classes)
    index = natural(y, 3) if by_device else pooled(y)
    reader, partition = Natural() if by_device else Pooled(), find_partition(text)
    plan = arrange(reader, index, partition, devices)
    made = 3 if by_device and text == "iid" else devices
    assert len(plan.names) == len(set(plan.names)) == made
    assert len(plan.offsets) == made + 1
    assert sorted(plan.dest[plan.dest >= 0]) == list(range(plan.total))
    assert ((plan.train >= 1) & (plan.train < np.diff(plan.offsets))).all()
    if not text.startswith("pathological") or devices >= classes:
        assert plan.total == count
    else:
        used = set(y[plan.dest >= 0])
        assert plan.total == sum(label in used for label in y), "a label is used or left out"


class TestFlowers:
    """Those of flwr-datasets deal as its partitioners do, called by hand on a shuffled data set."""

    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("flwr_datasets")

    @staticmethod
    def by_hand(name: str, y: Array, order: int, **values: Any) -> Ints:
        library: Any = importlib.import_module("flwr_datasets.partitioner")
        dataset: Any = importlib.import_module("datasets").Dataset
        partitioner = getattr(library, name)(num_partitions=10, **values)
        columns = {"label": y, "row": np.arange(len(y))}
        partitioner.dataset = dataset.from_dict(columns).shuffle(seed=order)
        device = np.full(len(y), -1)
        for k in range(10):
            device[partitioner.load_partition(k)["row"]] = k
        return device

    def test_dirichlet(self) -> None:
        values = {"partition_by": "label", "alpha": 0.5, "seed": 3, "min_partition_size": 10}
        expected = self.by_hand("DirichletPartitioner", labels(), 3, **values)
        assigned = Dirichlet(0.5, seed=3).assign(pooled(labels()), 10)
        np.testing.assert_array_equal(assigned, expected)

    def test_pathological(self) -> None:
        values = {"partition_by": "label", "num_classes_per_partition": 2, "seed": 4}
        mode = {"class_assignment_mode": "first-deterministic"}
        expected = self.by_hand("PathologicalPartitioner", labels(), 4, **values, **mode)
        np.testing.assert_array_equal(Pathological(2, 4).assign(pooled(labels()), 10), expected)

    @pytest.mark.parametrize("law", ["linear", "square"])
    def test_sizes(self, law: str) -> None:
        expected = self.by_hand(f"{law.capitalize()}Partitioner", labels(), 5)
        assigned = Size(law, 5).assign(pooled(labels()), 10)
        np.testing.assert_array_equal(assigned, expected)
        sizes = np.bincount(assigned)
        assert (np.diff(sizes) > 0).all()
        assert len(np.unique(labels()[assigned == 9])) == 5, "labels are i.i.d."

    def test_the_smaller_alpha_the_fewer_labels(self) -> None:
        index = pooled(labels(2000))
        skew = [
            np.mean([entropy(index.y, Dirichlet(a, s, 2).assign(index, 10)) for s in range(5)])
            for a in (0.1, 1.0, 100.0)
        ]
        assert skew[0] < skew[1] < skew[2]
        assert skew[2] == pytest.approx(np.log(5), rel=0.02)

    def test_a_device_has_as_many_classes_as_it_shall(self) -> None:
        index = pooled(labels())
        device = Pathological(2).assign(index, 10)
        assert {len(np.unique(index.y[device == d])) for d in range(10)} == {2}

    @pytest.mark.parametrize("gamma", [0, 0.33, 0.66, 1])
    def test_a_fraction_at_random_and_the_rest_by_label(self, gamma: float) -> None:
        y = np.random.default_rng(8).permutation(labels(1000))
        device = Similarity(gamma).assign(pooled(y), 10)
        order = np.random.default_rng(1).permutation(1000)
        alike, rest = order[: int(1000 * gamma)], order[int(1000 * gamma) :]
        sizes = np.bincount(device[alike], minlength=10), np.bincount(device[rest], minlength=10)
        assert all(size.max() - size.min() <= 1 for size in sizes)
        by_device = [sorted(y[rest[device[rest] == d]]) for d in range(10)]
        assert [label for part in by_device for label in part] == sorted(y[rest])
        if gamma == 0:
            assert {len(np.unique(y[device == d])) for d in range(10)} == {1}

    @pytest.mark.parametrize("text", [*MADE[:3], "similarity:gamma=0.5"])
    def test_another_seed_deals_otherwise(self, text: str) -> None:
        index = pooled(labels())
        first, again, other = (
            find_partition(f"{text},seed={seed}").assign(index, 10) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_devices_of_the_source_do_not_matter(self) -> None:
        y = labels()
        for text in MADE[:3]:
            partition = find_partition(text)
            np.testing.assert_array_equal(
                partition.assign(pooled(y), 10), partition.assign(natural(y, 4), 10)
            )

    def test_a_partitioner_as_it_is(self) -> None:
        library: Any = importlib.import_module("flwr_datasets.partitioner")
        made = library.ShardPartitioner(10, "label", num_shards_per_partition=2)
        partition = find_partition(made)
        first, again = (partition.assign(pooled(labels()), 0) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        assert set(first) == set(range(10))
        assert not made.is_dataset_assigned(), "it can be used elsewhere"
        groups = library.GroupedNaturalIdPartitioner("device", 2)
        plan = arrange(Natural(), natural(labels(), 6), find_partition(groups))
        assert len(plan.names) == 3
        keys = {key_of(Pooled(), {}, find_partition(each), 0).name for each in (made, groups)}
        assert len(keys) == 2

    def test_a_partitioner_that_cannot(self) -> None:
        library: Any = importlib.import_module("flwr_datasets.partitioner")

        class Everything(library.Partitioner):
            num_partitions = 2

            def load_partition(self, partition_id: int) -> Any:
                return self.dataset

        for made, why in (
            (library.NaturalIdPartitioner("writer"), "cannot be made"),
            (library.VerticalEvenPartitioner(2), "cannot be made"),
            (Everything(), "example 0 is on two devices"),
        ):
            with pytest.raises(InvalidValueError, match=why):
                arrange(Pooled(), pooled(labels()), find_partition(made))

    @pytest.mark.parametrize(
        ("text", "devices", "why"),
        [
            ("dirichlet:alpha=0.01,min_examples=50", 10, "larger alpha, fewer devices"),
            ("dirichlet:alpha=1", 301, "from 1 to 300"),
            ("size:law=linear", 0, "from 1 to 300"),
            ("iid", 301, "from 1 to 300"),
            ("pathological:classes=6", 10, "the data has 5 classes"),
            ("size:law=exponential", 30, "take fewer devices"),
            ("size:law=square", 10, "1 of 10 devices fewer than 2 examples"),
            ("device", 10, "no devices of its own"),
        ],
    )
    def test_the_impossible(self, text: str, devices: int, why: str) -> None:
        with pytest.raises(InvalidValueError, match=why):
            arrange(Pooled(), pooled(labels()), find_partition(text), devices)


def test_one_of_the_user_s() -> None:
    plan = arrange(Pooled(), pooled(labels()), HALVES, 2)
    assert plan.total == 597
    assert sorted(plan.names) == ["device-0", "device-1"]
    assert (plan.dest[:3] == -1).all()
    for partition, devices, why in (
        (Broken(), 2, r"Broken.* failed: IndexError.*test_partition\.py, line \d+"),
        (Halves(300), 2, "1 of 2 devices fewer than 2"),
        (Halves(600), 2, "from 0 to 1, or -1"),
        (Halves(), 1, "from 0 to 0, or -1, not from 0 to 1"),
        (Halves(), 3, "1 of 3 devices fewer than 2"),
    ):
        with pytest.raises(InvalidValueError, match=why):
            arrange(Pooled(), pooled(labels()), partition, devices)


def test_small_devices_of_the_source_are_left_out_first() -> None:
    index = natural(labels(), 10)
    index.device[index.device == 9] = np.where(np.arange(60) < 10, 9, 0)
    for text in ("device", "iid", "size:law=linear"):
        if text.startswith("size"):
            pytest.importorskip("flwr_datasets")
        plan = arrange(Natural(), index, find_partition(text), 4)
        assert plan.total == 590
        assert (plan.dest[index.device == 9] == -1).all()


def test_keys_count_the_devices_where_they_matter() -> None:
    def key(reader: Reader, partition: Partition, devices: int) -> str:
        return key_of(reader, {}, partition, devices).name

    assert key(Natural(), ByDevice(), 3) == key(Natural(), ByDevice(), 4)
    assert key(Natural(), Iid(), 3) == key(Natural(), Iid(), 4)
    assert key(Pooled(), Iid(), 3) != key(Pooled(), Iid(), 4)
    assert key(Natural(), Halves(), 3) != key(Natural(), Halves(), 4)
    assert key(Natural(), Halves(), 3) != key(Natural(), Halves(1), 3)


def test_without_the_library_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", None)
    with pytest.raises(DataError, match=r"pip install 'rfa\[datasets\]'"):
        Dirichlet(1).assign(pooled(labels()), 3)


OFFLINE = """
import socket, sys
import numpy as np
from rfa.lab.datasets.dataset import Index
from rfa.lab.datasets.partition_registry import find_partition
def refuse(*values):
    sys.exit("it asks the network")
socket.socket.connect = socket.socket.sendto = socket.getaddrinfo = refuse
y = np.arange(600) % 5
index = Index([], np.zeros(600, np.int64), y)
for text in ("dirichlet:alpha=0.3", "pathological:classes=2", "size:law=linear"):
    print(find_partition(text).assign(index, 10).tolist())
"""


def test_another_process_deals_alike_without_network_or_noise(tmp_path: Path) -> None:
    pytest.importorskip("flwr_datasets")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    index = pooled(np.arange(600) % 5)
    expected = [find_partition(text).assign(index, 10).tolist() for text in MADE[1:3]]
    lines = done.stdout.splitlines()
    assert lines[1:] == [str(numbers) for numbers in expected]
    assert lines[0] == str(Dirichlet(0.3).assign(index, 10).tolist())
    assert list(tmp_path.iterdir()) == []
