"""Characters in the handwriting of writers that do not exist: a stand-in for EMNIST.

A writer has a typeface, a thickness of the pen, a slant, a width, a rotation, a smooth warp of the
page and one more of each character, and paper that is more or less clean. An image differs from the
next of the same writer and character by a small warp and by noise. As in EMNIST, whose writers fill
in the same form, writers have almost the same mix of labels.

A pixel of an image looks up one point of a large blurred drawing of the character (`draw_masters`).
Where it looks is a polynomial in its place on the page, with whole numbers as basis and multiples
of 2 ** -14 as coefficients. Sums of these are exact in float32, in whatever order a processor adds.

    >>> index = Glyphs(writers=2).index({})
    >>> images = np.empty((len(index.y), 784), np.uint8)
    >>> Glyphs(writers=2).fill({}, index, np.arange(len(images)), images)
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rfa._checks import check_count
from rfa._threads import in_threads
from rfa._types import Array, Floats, Ints
from rfa.lab.datasets.dataset import DataError, Index, Reader, lab_module
from rfa.lab.tasks import emnist

Bytes: TypeAlias = NDArray[np.uint8]
Face: TypeAlias = tuple[str, int]

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-BoldOblique",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSansMono-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-BoldItalic",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralBolIta",
    "STIXGeneralItalic",
    "cmb10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)
STROKES = (0, 2, 4)  # what the pen adds on each side of a line, in 1/160 of an em

SIDE = 28  # pixels of an image
FINE = 4  # points of a master per pixel of an image
MASTER = SIDE * FINE
EM = 160  # the size at which a font is drawn before it is brought to the size of a master
LONGEST = 72  # the longer side of a character in its master: 18 pixels of an image
BLUR = 1.6  # about what it takes for one point to stand for a pixel
DEGREE = 3
WHOLE = 64  # the basis is made of whole numbers up to this one
FRACTION = 2**14

# How far pages, the characters of a writer and the images of a character go from the usual.
SLANT, ROTATION, WIDTH, SIZE = 0.35, 0.16, 0.25, 0.12
PAGE = (0.0, 0.0, 4.0)  # terms of degree 0, 1 and more, in points of a master
HAND = (4.0, 6.0, 4.0)
IMAGE = (4.0, 4.0, 2.0)
NOISE = 30  # of the worst paper, in shades of gray
KEEN = 0.3  # the share of writers that write twice as much as the others
SKEW = 1000.0  # the smaller, the more writers differ in their labels


class Glyphs(Reader):
    """Images of 62 characters by many writers, with the shape and the sizes of EMNIST.

    An image is 28 x 28 bytes, ink 0 on paper 255. Labels are the places in `CHARACTERS`.
    """

    name = "glyphs"
    files = ()
    shape = (SIDE * SIDE,)
    dtype = "uint8"
    min_examples = 100
    train_share = 0.9

    def __init__(self, writers: int = 1000, seed: int = 1) -> None:
        """Choose the writers. Writer k is the same however many there are.

        Args:
            writers: how many devices there are.
            seed: another one gives other writers.
        """
        check_count("writers", writers)
        check_count("seed", seed, least=0)
        self.writers = writers
        self.seed = seed

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The writers and labels, without an image being drawn."""
        del paths
        labels = [_labels(np.random.default_rng([self.seed, k, 0])) for k in range(self.writers)]
        sizes = [len(y) for y in labels]
        return Index(
            names=[f"writer-{k:04d}" for k in range(self.writers)],
            device=np.repeat(np.arange(self.writers), sizes),
            y=np.concatenate(labels),
        )

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Draw the images that have a place in `out`, writer by writer.

        Raises:
            DataError: if the libraries or fonts that it takes are not installed.
        """
        del paths
        starts = np.searchsorted(index.device, np.arange(self.writers + 1))
        faces: dict[Face, list[tuple[slice, np.random.Generator]]] = {}
        for k in range(self.writers):
            rows = slice(int(starts[k]), int(starts[k + 1]))
            if (dest[rows] >= 0).any():
                rng = np.random.default_rng([self.seed, k, 1])
                face = FONTS[rng.integers(len(FONTS))], STROKES[rng.integers(len(STROKES))]
                faces.setdefault(face, []).append((rows, rng))

        basis = _basis()

        def draw(face: Face) -> None:
            masters = draw_masters(*face)
            for rows, rng in faces[face]:
                images = _write(masters, basis, index.y[rows], rng)
                chosen = dest[rows] >= 0
                out[dest[rows][chosen]] = images[chosen]

        for _ in in_threads(draw, list(faces)):
            pass


def draw_masters(font: str, stroke: int) -> Bytes:
    """All characters of a font, a row each: ink 255 on 0, in the middle of MASTER x MASTER points.

    Args:
        font: one of `FONTS`.
        stroke: the width added on each side of a line, in 1 / EM of an em.

    Raises:
        DataError: if the libraries or the font are not installed.
    """
    fonts = lab_module("PIL.ImageFont")
    file = Path(lab_module("matplotlib").get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    try:
        face = fonts.truetype(str(file), EM, layout_engine=fonts.Layout.BASIC)
    except OSError as error:
        msg = f"matplotlib should carry the font {font}.ttf but does not: pip install 'rfa[lab]'"
        raise DataError(msg) from error
    return np.stack([_master(face, character, stroke) for character in CHARACTERS])


def _master(face: Any, character: str, stroke: int) -> Bytes:
    """One character, brought to the size that all have: its longer side is LONGEST."""
    image = lab_module("PIL.Image")
    large = image.new("L", (2 * EM, 2 * EM))
    pen = lab_module("PIL.ImageDraw").Draw(large)
    pen.text((EM // 2, EM // 2), character, fill=255, font=face, stroke_width=stroke)
    large = large.crop(large.getbbox())
    width, height = (max(1, round(side * LONGEST / max(large.size))) for side in large.size)
    master = image.new("L", (MASTER, MASTER))
    small = large.resize((width, height), image.Resampling.BICUBIC)
    master.paste(small, ((MASTER - width) // 2, (MASTER - height) // 2))
    blurred = master.filter(lab_module("PIL.ImageFilter").GaussianBlur(BLUR))
    return np.asarray(blurred, np.uint8).ravel()


def _labels(rng: np.random.Generator) -> Ints:
    """The labels of a writer: most write about 170 characters, some twice as many, as in EMNIST."""
    size = rng.normal(350, 38) if rng.random() < KEEN else rng.laplace(172, 11)
    letters = len(CHARACTERS) - 10
    usual = np.repeat([0.5 / 10, 0.5 / letters], [10, letters])
    mix = rng.dirichlet(SKEW * usual)
    count = int(np.clip(size, 103, 464))
    even = (np.arange(count) + rng.random()) / count
    return np.searchsorted(np.cumsum(mix)[:-1], even, side="right").astype(np.int64)


def _basis() -> NDArray[np.float32]:
    """Polynomials at the pixels, rounded to whole numbers: 1, x, y, then those of more degrees."""
    at = np.polynomial.legendre.legvander((2 * np.arange(SIDE) - SIDE + 1) / SIDE, DEGREE)
    powers = [(total - j, j) for total in range(DEGREE + 1) for j in range(total + 1)]
    rows = [np.outer(at[:, j], at[:, i]).ravel() for i, j in powers]
    return np.rint(WHOLE * np.array(rows)).astype(np.float32)


def _write(masters: Bytes, basis: NDArray[np.float32], y: Array, rng: np.random.Generator) -> Bytes:
    """The images of one writer, of the characters y."""
    terms = len(basis)
    page = _page(rng, terms) + _spread(rng, PAGE, (2, terms))
    hand = _spread(rng, HAND, (len(CHARACTERS), 2, terms))
    coefs = page + hand[y] + _spread(rng, IMAGE, (len(y), 2, terms))
    exact = np.rint(coefs * (FRACTION / WHOLE)).astype(np.float32) / np.float32(FRACTION)
    points = np.clip(exact @ basis, 0, MASTER - 1).astype(np.int32)
    points[:, 1] *= MASTER
    places = points[:, 0] + points[:, 1] + (y * MASTER**2).astype(np.int32)[:, None]
    shades = _pen(rng)[masters.ravel()[places]]
    worst = int(rng.integers(NOISE + 1))
    shades += rng.integers(-worst, worst + 1, size=shades.shape, dtype=np.int8)
    return np.clip(shades, 0, 255).astype(np.uint8)


def _page(rng: np.random.Generator, terms: int) -> Floats:
    """Where in a master x and y of a slanted, turned and stretched page lie."""
    slant, turn, width, size = rng.uniform(-1, 1, size=4) * (SLANT, ROTATION, WIDTH, SIZE)
    turned = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    upright = np.array([[1.0, slant], [0.0, 1.0]])
    stretched = np.exp([[-size - width / 2], [-size + width / 2]])
    page = np.zeros((2, terms))
    page[:, 0] = MASTER / 2
    page[:, 1:3] = MASTER / 2 * stretched * (upright @ turned)
    return page


def _spread(
    rng: np.random.Generator, scale: tuple[float, float, float], shape: tuple[int, ...]
) -> Floats:
    """Random coefficients, with a scale for each degree."""
    scales = np.repeat(scale, [1, 2, shape[-1] - 3])
    return rng.uniform(-1, 1, size=shape) * scales


def _pen(rng: np.random.Generator) -> NDArray[np.int16]:
    """The shade of gray that a writer's pen leaves for each value of a master."""
    thick, contrast, dark = rng.uniform((-25, 1.2, 0.7), (40, 2.2, 1.0))
    value = np.arange(256)
    ink = np.clip(128 + contrast * (value - 128 + thick), 0, 255)
    ink = np.minimum(ink, 4 * value)  # none where the master has none
    return np.rint(255 - dark * ink).astype(np.int16)


def note(names: Sequence[str]) -> str:
    """Say that the writers do not exist."""
    return f"synthetic: characters drawn from fonts, {len(names)} made-up writers"


TASKS = tuple(
    dataclasses.replace(
        task,
        vary=None,
        name=task.name.replace("emnist", "glyphs"),
        title=task.title.replace("handwritten characters", "drawn characters (synthetic)"),
        reader=Glyphs(),
        note=note,
        defaults=task.defaults | {"rounds": 200},
        per_aggregator={"sgd": task.per_aggregator["sgd"]},
    )
    for task in emnist.TASKS
)
