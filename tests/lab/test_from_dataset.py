"""Tasks of the user's own data: every kind of it, what is wrong with it, and what it learns."""

from __future__ import annotations

import importlib
import io
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rfa._types import Array
from rfa.errors import InvalidTypeError, InvalidValueError, RfaError
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.dataset import DataError, Population
from rfa.lab.datasets.examples import Examples, read_examples
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.tasks.task import Task

RNG = np.random.default_rng(5)
Y = np.arange(60) % 3
VECTORS = (np.eye(3)[Y] + 0.1 * RNG.standard_normal((60, 3))).astype(np.float64)
GRAY = RNG.integers(0, 256, (60, 8, 6), np.uint8)
COLOR = RNG.integers(0, 256, (60, 8, 6, 3), np.uint8)
OWNERS = np.array(["ann", "bob", "eve", "tim"])[np.arange(60) // 15]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RFA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pillow(pixels: Array) -> Any:
    return pytest.importorskip("PIL.Image").fromarray(pixels)


def png(pixels: Array) -> bytes:
    file = io.BytesIO()
    pillow(pixels).save(file, "PNG")
    return file.getvalue()


def hugging_face(columns: dict[str, Any], **features: Any) -> Any:
    library: Any = pytest.importorskip("datasets")
    data = library.Dataset.from_dict(columns)
    for name, feature in features.items():
        data = data.cast_column(name, feature)
    return data


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    arrow: Any = pytest.importorskip("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), path)
    return path


def make(data: Any, **values: Any) -> Task:
    usual: dict[str, Any] = {"name": "mine", "module": "linear", "devices": 4}
    return Task.from_dataset(data, **usual | values)


def population(task: Task) -> Population:
    partition = "device" if task.reader.has_devices else "iid"
    return load(task.reader, partition=partition, devices=task.devices)


def nothing_finite(x: Any) -> Any:
    return np.full(x.shape, np.nan, np.float32)


def first_only(x: Array) -> Array:
    return x[:1]


def same(examples: Examples, x: Array, y: Array = Y) -> None:
    np.testing.assert_array_equal(examples.x, x)
    np.testing.assert_array_equal(examples.y, y)


class TestKinds:
    """The same examples, however they come."""

    def test_a_pair_of_arrays_or_lists_or_tensors(self) -> None:
        same(read_examples((VECTORS, Y)), VECTORS.astype(np.float32))
        same(read_examples((VECTORS.tolist(), Y.tolist())), VECTORS.astype(np.float32))
        torch = pytest.importorskip("torch")
        same(read_examples((torch.tensor(GRAY), torch.tensor(Y))), GRAY)

    def test_a_mapping(self) -> None:
        data = {"image": GRAY, "label": Y, "who": OWNERS}
        same(read_examples(data, features="image"), GRAY)
        examples = read_examples(data, device="who")
        same(examples, GRAY)
        assert examples.names == ["ann", "bob", "eve", "tim"]
        np.testing.assert_array_equal(examples.device, np.arange(60) // 15)

    def test_several_columns_of_numbers(self) -> None:
        data = {"a": VECTORS[:, 0], "b": Y * 7, "label": Y}
        expected = np.stack([VECTORS[:, 0], Y * 7], axis=1).astype(np.float32)
        same(read_examples(data, features=["a", "b"]), expected)

    def test_torchvision_s_sets(self) -> None:
        same(read_examples(SimpleNamespace(data=COLOR, targets=Y.tolist())), COLOR)

    @pytest.mark.parametrize("pixels", [GRAY, COLOR], ids=["gray", "color"])
    def test_pairs_with_images(self, pixels: Array) -> None:
        pairs = [(pillow(image), int(label)) for image, label in zip(pixels, Y, strict=True)]
        same(read_examples(pairs), pixels)

    @pytest.mark.parametrize("pixels", [GRAY, COLOR], ids=["gray", "color"])
    def test_hugging_face_images(self, pixels: Array, tmp_path: Path) -> None:
        library: Any = pytest.importorskip("datasets")
        kinds = library.ClassLabel(names=["a", "b", "c", "never"])
        columns = {"image": [pillow(image) for image in pixels], "label": Y.tolist()}
        data = hugging_face(columns, label=kinds)
        data.to_parquet(str(tmp_path / "it.parquet"))
        for given in (data, tmp_path / "it.parquet"):
            examples = read_examples(given)
            same(examples, pixels)
            assert examples.classes == 4, "a class without examples is one, too"

    def test_hugging_face_splits_and_selections(self) -> None:
        library: Any = pytest.importorskip("datasets")
        parts = [
            hugging_face({"x": VECTORS[part].tolist(), "label": Y[part].tolist()})
            for part in (slice(0, 40), slice(40, 60))
        ]
        data = library.DatasetDict(train=parts[0], test=parts[1])
        numbers = VECTORS.astype(np.float32)
        same(read_examples(data), numbers[:40], Y[:40])
        same(read_examples(data, split="test"), numbers[40:], (Y[40:]))
        same(read_examples(data, split="all"), numbers)
        backwards = parts[0].select(range(39, -1, -1))
        same(read_examples(backwards), numbers[39::-1], Y[39::-1])
        with pytest.raises(InvalidValueError, match=r"split='dev'.*train, test"):
            read_examples(data, split="dev")

    def test_hugging_face_arrays_of_a_fixed_shape(self) -> None:
        library: Any = pytest.importorskip("datasets")
        kind = library.Array2D((8, 6), "uint8")
        data = hugging_face({"x": GRAY.tolist(), "label": Y.tolist()}, x=kind)
        same(read_examples(data), GRAY)

    def test_parquet(self, tmp_path: Path) -> None:
        data = {"x": VECTORS.astype(np.float32).tolist(), "label": Y, "who": OWNERS}
        path = write_parquet(tmp_path / "all.parquet", data)
        same(read_examples(path, device="who"), VECTORS.astype(np.float32))
        folder = tmp_path / "parts"
        folder.mkdir()
        for number, part in enumerate((slice(0, 25), slice(25, 60))):
            some = {"image": [{"bytes": png(image), "path": None} for image in GRAY[part]]}
            write_parquet(folder / f"{number}.parquet", some | {"label": Y[part]})
        same(read_examples(str(folder)), GRAY)

    def test_labels_are_numbered_in_their_order(self) -> None:
        words = np.array(["no", "yes", "maybe"])
        examples = read_examples((VECTORS, words[Y]))
        np.testing.assert_array_equal(examples.y, np.array([1, 2, 0])[Y])
        examples = read_examples((VECTORS, np.array([4, -1, 2])[Y]))
        np.testing.assert_array_equal(examples.y, np.array([2, 0, 1])[Y])
        assert read_examples((VECTORS, Y), classes=5).classes == 5


NAN = VECTORS.copy()
NAN[17, 1] = np.nan
RAGGED = [*VECTORS.tolist()[:9], [1.0], *VECTORS.tolist()[10:]]
MISSING = ["a"] * 8 + [None] + ["b"] * 51


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        ((NAN, Y), {}, "column 'x', row 17: it has a NaN"),
        ((VECTORS * 1e300, Y), {}, "column 'x', row 0: .*too large for float32"),
        ((RAGGED, Y), {}, r"column 'x', row 9: its shape is \(1,\), that of row 0 \(3,\)"),
        ((VECTORS, Y[:50]), {}, "60 of 'x', 50 of 'y'"),
        ((VECTORS, Y / 2), {}, "column 'y' holds floats: a label is a whole number"),
        ((VECTORS, np.eye(3)[Y]), {}, r"column 'y' holds floats of shape \(3,\)"),
        ((VECTORS, Y), {"classes": 2}, "column 'y', row 2: the label 2 is not from 0 to 1"),
        ((VECTORS, Y - 1), {"classes": 3}, "row 0: the label -1 is not from 0 to 2"),
        ((VECTORS, Y * 0), {}, "1 different labels, not at least 2"),
        ((VECTORS, [str(y) for y in Y]), {"classes": 2}, "3 different labels, not classes=2"),
        ((VECTORS, MISSING), {}, "column 'y', row 8: it is None"),
        ((VECTORS[:0], Y[:0]), {}, "column 'x' is empty"),
        ((np.array(["a"] * 60), Y), {}, "column 'x' holds texts, no numbers"),
        ({"x": VECTORS, "label": Y}, {"label": "y"}, "no column 'y', only x, label"),
        ({"x": VECTORS, "label": Y}, {"features": "z"}, "no column 'z', only x, label"),
        ({"x": VECTORS, "label": Y}, {"device": "who"}, "no column 'who'"),
        ({"a": Y, "b": Y, "label": Y}, {}, "Name them by features=, of a, b"),
        ({"x": VECTORS, "b": Y, "label": Y}, {"features": ["x", "b"]}, r"shape \(3,\)"),
        ({"x": VECTORS, "label": Y, "w": VECTORS}, {"device": "w"}, "column 'w' holds floats"),
        ({}, {}, "no column 'label'"),
        ([(VECTORS[0], 1), VECTORS[1]], {}, "row 1 of the data must be a pair"),
        ("nowhere.parquet", {}, "nowhere.parquet is no Parquet file"),
        (VECTORS, {}, "not a ndarray"),
        (7, {}, "not a int"),
    ],
)
def test_what_is_wrong_is_named(data: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RfaError, match=why):
        read_examples(data, **options)


def test_what_is_wrong_in_parquet(tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match=r"no\.parquet is no Parquet file"):
        read_examples(tmp_path / "no.parquet")
    holes = write_parquet(tmp_path / "a.parquet", {"x": [1.0, None, 2.0], "label": [0, 1, 0]})
    with pytest.raises(DataError, match="column 'x', row 1: there is no value"):
        read_examples(holes)
    inner = write_parquet(tmp_path / "b.parquet", {"x": [[1.0], [None]], "label": [0, 1]})
    with pytest.raises(DataError, match="column 'x', row 1: there is no value"):
        read_examples(inner)
    ragged = write_parquet(tmp_path / "c.parquet", {"x": [[1.0], [1.0, 2.0]], "label": [0, 1]})
    with pytest.raises(DataError, match=r"row 1: its shape is \(2,\)"):
        read_examples(ragged)
    broken = write_parquet(tmp_path / "d.parquet", {"x": [b"no image", b""], "label": [0, 1]})
    with pytest.raises(DataError, match="column 'x', row 0: it is not an image"):
        read_examples(broken)
    (tmp_path / "mixed").mkdir()
    write_parquet(tmp_path / "mixed" / "a.parquet", {"x": [1.0], "label": [0]})
    write_parquet(tmp_path / "mixed" / "b.parquet", {"z": [1.0]})
    with pytest.raises(DataError, match=r"b\.parquet has other columns than a\.parquet"):
        read_examples(tmp_path / "mixed")


class TestTasks:
    def test_examples_come_back_by_device(self) -> None:
        task = make({"x": VECTORS, "label": Y, "who": OWNERS}, device="who", devices=0)
        there = population(task)
        assert (task.devices, sorted(there.names)) == (4, ["ann", "bob", "eve", "tim"])
        assert task.defaults["partition"] == "device"
        for k, name in enumerate(there.names):
            rows = there.x[there.offsets[k] : there.offsets[k + 1]]
            expected = VECTORS[name == OWNERS].astype(np.float32)
            np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(expected, axis=0))
        assert there.train.tolist() == [12] * 4

    def test_examples_without_devices_are_dealt_out(self) -> None:
        task = make((VECTORS, Y))
        there = population(task)
        assert task.defaults["partition"] == "iid"
        assert np.diff(there.offsets).tolist() == [15] * 4
        label_of = {
            tuple(x): y for x, y in zip(VECTORS.astype(np.float32).tolist(), Y, strict=True)
        }
        pairs = zip(there.x.tolist(), there.y, strict=True)
        assert all(label_of.pop(tuple(x)) == y for x, y in pairs)
        assert not label_of
        assert make((np.zeros((9000, 1)), np.arange(9000) % 2), devices=0).devices == 100
        assert make((VECTORS, Y), devices=0).devices == 1

    def test_settings_are_the_task_s(self) -> None:
        task = make((VECTORS, Y), learning_rate=0.7, rounds=3, partition="dirichlet:alpha=1")
        usual = task.settings_for("fedavg")
        assert (usual["learning_rate"], usual["rounds"]) == (0.7, 3)
        assert usual["partition"] == "dirichlet:alpha=1"
        assert usual["devices_per_round"] == 4

    def test_another_process_reads_them_by_their_digest(self) -> None:
        task = make((VECTORS, Y))
        packed = pickle.dumps(task.reader)
        assert len(packed) < 1000, "the examples stay in the cache"
        show = "import pickle, sys; from rfa.lab.datasets.cache import load; " + (
            "r = pickle.loads(sys.stdin.buffer.read());"
            "p = load(r, partition='size:law=linear', devices=3); print(float(p.x.sum()), len(p))"
        )
        pytest.importorskip("flwr_datasets")
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", show], input=packed, capture_output=True, check=True
        )
        total, count = done.stdout.split()
        assert float(total) == pytest.approx(float(VECTORS.sum()), rel=1e-4)
        assert int(count) == 3

    def test_other_content_is_another_task_and_does_not_pile_up(self, cache: Path) -> None:
        sums = [float(population(make((VECTORS + k, Y))).x.sum()) for k in range(12)]
        assert sums == pytest.approx([float(VECTORS.sum()) + 180 * k for k in range(12)], rel=1e-3)
        names = [path.name for path in cache.iterdir()]
        assert sum(name.startswith("source-") for name in names) == 9
        assert sum(name.startswith("mine-") for name in names) == 2
        make((VECTORS + 11, Y))
        assert len(list(cache.iterdir())) == 11

    def test_without_its_examples_it_says_what_to_do(self, cache: Path) -> None:
        task = make((VECTORS, Y))
        for path in cache.iterdir():
            (path / "x.npy").unlink()
        with pytest.raises(DataError, match=r"call Task\.from_dataset again"):
            population(task)
        assert len(population(make((VECTORS, Y)))) == 4, "which mends it"

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"train_share": 1.0}, "train_share must be between 0 and 1"),
            ({"min_examples": 1}, "min_examples must be"),
            ({"devices": -1}, "devices must be"),
            ({"name": ""}, "name"),
            ({"partition": "by-hand"}, "no partition is called"),
            ({"module": "cnn"}, "module='cnn'"),
            ({"prepare": first_only}, "a row for each of 2 examples"),
            ({"prepare": np.int64}, "must give float32"),
            ({"prepare": nothing_finite}, "not finite"),
            ({"prepare": np.linalg.inv}, "prepare fails with examples of shape"),
        ],
    )
    def test_arguments_without_a_meaning(self, options: dict[str, Any], why: str) -> None:
        with pytest.raises(InvalidValueError, match=why):
            make((VECTORS, Y), **options)


class TestModels:
    def test_linear_without_torch(self) -> None:
        task = make((COLOR, Y))
        learner = task.learner("cpu")
        assert isinstance(learner, LinearLearner)
        assert (learner.features, learner.classes) == (8 * 6 * 3, 3)
        flat = task.prepare(COLOR)
        assert flat.shape == (60, 144)
        np.testing.assert_allclose(flat, COLOR.reshape(60, -1) / 255, rtol=1e-6)

    def test_images_come_as_convolutions_want_them(self) -> None:
        torch: Any = pytest.importorskip("torch")
        nn = torch.nn

        def network(channels: int) -> Any:
            return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(48, 3))

        gray, color = (
            make((pixels, Y), module=lambda c=channels: network(c))
            for pixels, channels in ((GRAY, 1), (COLOR, 3))
        )
        np.testing.assert_allclose(gray.prepare(GRAY)[:, 0], GRAY / 255, rtol=1e-6)
        np.testing.assert_allclose(color.prepare(COLOR), np.moveaxis(COLOR, -1, 1) / 255, rtol=1e-6)
        assert color.learner("cpu").scores(
            color.learner("cpu").initial(np.random.default_rng(1)), color.prepare(COLOR)
        ).shape == (60, 3)
        assert {"data", "adaptive"} <= set(color.poisons)
        assert "data" not in make((VECTORS, Y)).poisons

    def test_a_class_starts_by_the_seed_and_an_instance_as_it_is(self) -> None:
        torch: Any = pytest.importorskip("torch")

        def module() -> Any:
            return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), last())

        def last() -> Any:
            return torch.nn.Linear(4, 3)

        before = torch.random.get_rng_state()
        task = make((VECTORS, Y), module=module)
        first, again, other = (
            task.learner("cpu").initial(np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
        assert (first[16:20] == 1).all(), "layer norm starts at one"
        assert torch.equal(torch.random.get_rng_state(), before), "torch's own state is untouched"
        given = module()
        learner = make((VECTORS, Y), module=given).learner("cpu")
        start = learner.initial(np.random.default_rng(1))
        parts = [p.detach().numpy().ravel() for p in given.parameters()]
        np.testing.assert_array_equal(start, np.concatenate(parts))

    def test_it_learns(self) -> None:
        torch: Any = pytest.importorskip("torch")
        plan: Any = importlib.import_module("rfa.lab.learners.learner").Plan
        task = make((VECTORS, Y), module=lambda: torch.nn.Linear(3, 3))
        learner, x = task.learner("cpu"), task.prepare(VECTORS)
        w = learner.initial(np.random.default_rng(1))
        w = w + learner.train(w, x, Y, plan([np.arange(60)] * 200, 1.0))
        assert (learner.scores(w, x).argmax(axis=1) == Y).mean() > 0.9

    def test_modules_that_cannot_be_used(self) -> None:
        torch: Any = pytest.importorskip("torch")
        nn = torch.nn
        for module, kind, why in (
            (lambda: nn.Linear(4, 3), InvalidValueError, r"fails with examples of shape \(3,\)"),
            (lambda: nn.Linear(3, 2), InvalidValueError, r"3 scores.*shape \(2, 2\)"),
            (lambda: 3, InvalidTypeError, "torch.nn.Module"),
            (3, InvalidTypeError, "not 3"),
            (nn.Identity(), InvalidValueError, "no parameters"),
            (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), InvalidValueError, "GroupNorm"),
            (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), InvalidValueError, "leave it out"),
        ):
            with pytest.raises(kind, match=why):
                make((VECTORS, Y), module=module)
