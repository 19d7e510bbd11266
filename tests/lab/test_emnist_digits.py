"""The digits of FEMNIST without their writers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rfa.lab.datasets.arrangement import arrange
from rfa.lab.datasets.partition import Similarity
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.emnist_digits import EmnistDigits
from tests.lab.datasets.test_readers import png, write_femnist


def test_digits_alone_and_ink_as_1(tmp_path: Path) -> None:
    characters = [3, 40, 0, 61, 9, 10, 3, 7]
    images = [np.full((28, 28), shade, np.uint8) for shade in range(0, 80, 10)]
    path = tmp_path / "femnist.parquet"
    writers = ["a", "b"] * 4
    write_femnist(path, [png(image) for image in images], character=characters, writer_id=writers)
    reader, paths = EmnistDigits(), {path.name: path}
    index = reader.index(paths)
    assert index.y.tolist() == [3, 0, 9, 3, 7]
    assert index.names == []
    dest = np.array([4, -1, 0, 1, 2])
    out = np.zeros((5, 784), np.uint8)
    reader.fill(paths, index, dest, out)
    assert out[:, 0].tolist() == [255 - 40, 255 - 60, 255 - 70, 0, 255 - 0]
    assert (out == out[:, :1]).all()


def test_a_sixth_as_many_are_there_to_test(tmp_path: Path) -> None:
    path = tmp_path / "femnist.parquet"
    images = [png(np.zeros((28, 28), np.uint8))] * 140
    write_femnist(path, images, character=[k % 10 for k in range(140)], writer_id=["a"] * 140)
    reader = EmnistDigits()
    plan = arrange(reader, reader.index({path.name: path}), Similarity(1), 10)
    assert plan.total == 140
    assert plan.train.tolist() == [12] * 10


def test_the_settings_of_the_benchmark() -> None:
    settings = Settings.of("emnist-digits-linear")
    training = settings.training
    assert (training.batch_size, training.local_steps, training.worker_momentum) == (25, 1, 0.9)
    assert (training.learning_rate, settings.rounds, training.weights) == (0.1, 800, "equal")
