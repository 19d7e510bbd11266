"""The made data set: its sizes and labels, the same for the same seed, and writers that differ."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import rfa.lab.tasks.glyphs as module
from rfa._types import Array
from rfa.lab.datasets.dataset import DataError, Index
from rfa.lab.datasets.keys import key_of
from rfa.lab.datasets.partition import ByDevice
from rfa.lab.tasks.glyphs import CHARACTERS, FONTS, MASTER, STROKES, Glyphs, draw_masters


def drawn(reader: Glyphs) -> tuple[Index, Array]:
    index = reader.index({})
    out = np.empty((len(index.y), *reader.shape), reader.dtype)
    reader.fill({}, index, np.arange(len(index.y)), out)
    return index, out


@pytest.fixture(scope="module")
def twenty() -> tuple[Index, Array]:
    return drawn(Glyphs(writers=20))


@pytest.fixture(scope="module")
def sizes() -> Array:
    return np.bincount(Glyphs().index({}).device)


def test_it_has_the_shape_of_emnist(twenty: tuple[Index, Array]) -> None:
    index, images = twenty
    reader = Glyphs()
    assert (reader.name, reader.files) == ("glyphs", ())
    assert (reader.shape, reader.dtype) == ((784,), "uint8")
    assert len(index.names) == len(set(index.names)) == 20
    assert index.device.shape == index.y.shape == (len(images),)
    assert set(index.y) == set(range(62))
    assert [CHARACTERS[k] for k in (0, 9, 10, 35, 36, 61)] == list("09AZaz")


def test_writers_write_as_much_as_those_of_emnist(sizes: Array) -> None:
    train = np.floor(sizes * Glyphs.train_share)
    assert len(sizes) == 1000
    assert sizes.min() >= Glyphs.min_examples
    assert np.median(train) == pytest.approx(160, abs=4)
    assert train.mean() == pytest.approx(202, abs=6)
    assert train.std() == pytest.approx(77, abs=6)
    assert train.min() == pytest.approx(92, abs=5)
    assert train.max() == pytest.approx(418, abs=25)


def test_labels_are_half_digits_and_writers_fill_in_almost_the_same_form() -> None:
    index = Glyphs(writers=200).index({})
    counts = np.zeros((200, 62))
    np.add.at(counts, (index.device, index.y), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    usual = shares.mean(axis=0)
    assert usual[:10].sum() == pytest.approx(0.5, abs=0.03)
    assert usual.min() > 0.005
    by_chance = np.sqrt(usual * (1 - usual) / counts.sum(axis=1).mean())
    assert np.all(shares.std(axis=0) > 0.2 * by_chance)
    assert np.all(shares.std(axis=0) < 0.9 * by_chance)


def test_a_seed_gives_the_same_images_and_another_seed_others(
    twenty: tuple[Index, Array],
) -> None:
    index, images = twenty
    again, same = drawn(Glyphs(writers=20, seed=1))
    assert np.array_equal(index.y, again.y)
    assert np.array_equal(images, same)
    other, different = drawn(Glyphs(writers=20, seed=2))
    assert not np.array_equal(index.y[:100], other.y[:100])
    assert not np.array_equal(images[:100], different[:100])


def test_a_writer_is_the_same_among_fewer_writers(twenty: tuple[Index, Array]) -> None:
    index, images = drawn(Glyphs(writers=3))
    assert np.array_equal(index.y, twenty[0].y[: len(images)])
    assert np.array_equal(images, twenty[1][: len(images)])


def test_the_cache_can_tell_other_writers() -> None:
    readers = [Glyphs(), Glyphs(writers=20), Glyphs(seed=2), Glyphs(writers=20, seed=2)]
    keys = {key_of(reader, {}, ByDevice(), 0).name for reader in (*readers, Glyphs())}
    assert len(keys) == len(readers)


def test_ink_is_dark_and_in_the_middle_of_white_paper(twenty: tuple[Index, Array]) -> None:
    images = twenty[1].reshape(-1, 28, 28)
    dark = images < 128
    assert np.percentile(images, 50) >= 230
    assert dark.any(axis=(1, 2)).mean() > 0.999
    assert 0.05 < dark.mean() < 0.35
    rim = np.ones((28, 28), bool)
    rim[1:-1, 1:-1] = False
    assert dark[:, rim].mean() < 0.02
    assert images.min() <= 5
    assert images.max() == 255


def test_writers_differ_more_than_the_images_of_one(twenty: tuple[Index, Array]) -> None:
    index, images = twenty
    own: list[float] = []
    means: list[Array] = []
    for writer in range(20):
        zeros = images[(index.device == writer) & (index.y == 0)].astype(float)
        if len(zeros) >= 6:
            own.append(float(np.linalg.norm(zeros[::2].mean(axis=0) - zeros[1::2].mean(axis=0))))
            means.append(zeros.mean(axis=0))
    assert len(means) >= 5
    between = [np.linalg.norm(a - b) for i, a in enumerate(means) for b in means[:i]]
    assert np.median(between) > 1.3 * np.median(own)


def test_fill_draws_what_is_chosen_to_where_it_shall_be(twenty: tuple[Index, Array]) -> None:
    index, images = twenty
    rng = np.random.default_rng(0)
    chosen = np.flatnonzero(rng.random(len(images)) < 0.3)
    chosen = rng.permutation(chosen[index.device[chosen] % 3 > 0])
    dest = np.full(len(images), -1)
    dest[chosen] = np.arange(len(chosen))
    out = np.full((len(chosen) + 1, 784), 7, np.uint8)
    Glyphs(writers=20).fill({}, index, dest, out)
    assert np.array_equal(out[:-1], images[chosen])
    assert np.all(out[-1] == 7)


def test_fill_draws_nothing_if_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draw_masters", None)
    index = Glyphs(writers=2).index({})
    Glyphs(writers=2).fill({}, index, np.full(len(index.y), -1), np.empty((0, 784), np.uint8))


@pytest.mark.parametrize("font", FONTS)
def test_each_font_has_all_characters_and_no_two_look_the_same(font: str) -> None:
    for stroke in (STROKES[0], STROKES[-1]):
        masters = draw_masters(font, stroke)
        assert len({master.tobytes() for master in masters}) == len(CHARACTERS)
        assert (masters.max(axis=1) > 200).all()
        square = masters.reshape(-1, MASTER, MASTER)
        assert not np.any([square[:, 0], square[:, -1], square[:, :, 0], square[:, :, -1]])
        some = masters[:, ::9].astype(np.float32)
        distances = np.array([np.abs(some - row).mean(axis=1) for row in some])
        np.fill_diagonal(distances, np.inf)
        assert distances.min() > 0.5, stroke


@pytest.mark.parametrize("missing", ["matplotlib", "PIL.ImageFont"])
def test_without_the_lab_it_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(DataError, match=r"pip install 'rfa\[lab\]'"):
        draw_masters(FONTS[0], 0)


def test_a_missing_font_is_named() -> None:
    with pytest.raises(DataError, match=r"no-such-font\.ttf"):
        draw_masters("no-such-font", 0)


@pytest.mark.parametrize("writers", [0, -1, 2.5])
def test_the_number_of_writers_is_checked(writers: int) -> None:
    with pytest.raises(ValueError, match="writers must be a whole number"):
        Glyphs(writers=writers)
