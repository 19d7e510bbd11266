"""The polarity of EMNIST's pixels and its fraction of digits, as parameters of the tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa._types import Array
from rfa.lab.datasets.arrangement import arrange
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.emnist import LETTER_A, Emnist, left_out
from rfa.lab.tasks.registry import find_task
from tests.lab.datasets.test_readers import png, read_all, write_femnist

INK = "emnist-linear:polarity=ink"


def test_where_ink_is_1_all_pixels_are_the_other_way_round(tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (3, 28, 28)).astype(np.uint8)
    write_femnist(tmp_path / "femnist.parquet", [png(image) for image in images])
    paper, ink = (read_all(Emnist(polarity=which), tmp_path)[1] for which in ("paper", "ink"))
    np.testing.assert_array_equal(ink.astype(int), 255 - paper.astype(int))


def test_the_backdoor_is_a_square_of_ink_in_both_polarities() -> None:
    for name, value in (("emnist-linear", 0.0), (INK, 1.0)):
        trigger = find_task(name).poisons["backdoor"].trigger
        assert trigger is not None
        stained: Array = trigger.stamp(np.full((1, 784), 0.5, np.float32))
        corner = stained.reshape(28, 28)[:4, :4]
        assert (corner == value).all()
        assert (stained == 0.5).sum() == 784 - 16


@given(st.integers(1, 300), st.integers(1, 300), st.floats(0.05, 0.95))
def test_as_few_as_possible_are_left_out(digits: int, letters: int, fraction: float) -> None:
    kinds = np.arange(digits + letters) < digits
    kept = ~left_out(kinds, fraction)
    assert kept[kinds].all() or kept[~kinds].all()  # of one kind only
    counts = kept[kinds].sum(), kept[~kinds].sum()
    if min(counts) > 0:  # to the nearest example
        assert abs(counts[0] * (1 - fraction) - counts[1] * fraction) <= 0.5


def test_examples_that_are_left_out_are_on_no_device(tmp_path: Path) -> None:
    characters = [0, 1, 2, 3, 4, 5, 6, 7, 40, 41] * 30
    images = [png(np.zeros((28, 28), np.uint8))] * len(characters)
    path = tmp_path / "femnist.parquet"
    write_femnist(path, images, character=characters, writer_id=["a", "b", "c"] * 100)
    reader = Emnist(digits=0.5)
    reader.min_examples = 2
    index = reader.index({path.name: path})
    plan = arrange(reader, index)
    placed = index.y[plan.dest >= 0]
    assert plan.total == 120
    assert (placed < LETTER_A).sum() == 60


def test_one_task_has_one_name() -> None:
    for same in ("emnist-linear:polarity=paper", "emnist-linear:digits=none", "emnist-linear"):
        assert Settings.of(same) == Settings.of("emnist-linear")
    one = Settings.of("emnist-linear:digits=0.5,polarity=ink", rounds=3)
    two = Settings.of("emnist-linear:polarity=ink,digits=0.5", rounds=3)
    assert one.task == two.task == "emnist-linear:polarity=ink,digits=0.5"
    assert one.run_name == two.run_name != Settings.of(INK, rounds=3).run_name
    assert one.training.learning_rate == 0.08  # the paper's settings stay
    assert find_task("emnist-convnet:polarity=ink").learner is find_task("emnist-convnet").learner


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("emnist-linear:polarity=blue", "polarity must be one of paper, ink, not 'blue'"),
        ("emnist-linear:digits=1.5", "digits must be a fraction between 0 and 1, not 1.5"),
        ("emnist-linear:digits=0", "digits must be a positive number"),
        ("emnist-linear:color=red", "it has no parameter 'color', but polarity, digits"),
        ("emnist-linear:name=x", "name"),
        ("glyphs-linear:polarity=ink", "task glyphs-linear takes no parameters"),
    ],
)
def test_parameters_that_make_no_sense(task: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Settings.of(task)


def test_real_images_with_as_many_digits_as_letters(real_data: Path) -> None:
    task = find_task("emnist-linear:polarity=ink,digits=0.5")
    population = task.load(real_data)
    assert abs(float((population.y < LETTER_A).mean()) - 0.5) < 0.02
    assert population.x[:1000].mean() < 64  # most of an image is paper, which is 0
