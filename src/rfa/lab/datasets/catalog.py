"""The data sets of the lab: their origins, licenses and sizes.

>>> CATALOG["emnist"].files
('femnist.parquet',)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rfa.lab.datasets.dataset import find_file


@dataclass(frozen=True)
class Source:
    """The origin of one file.

    Attributes:
        file: its name under the data directory.
        url: the address to download: the file itself, unless `member` or `split` is given.
        member: `url` is a zip archive, and the file is this member of it.
        split: `url` is a listing of parquet files, as JSON {config: {split: [urls]}}; the file
            consists of those of this split, one after the other.
        holds: for a zip archive that is kept as it is: the ending of the name of a member.
        sha256: the digest of the download, in hexadecimal, if it is known.
        size: its size in bytes, if it is known.
    """

    file: str
    url: str
    member: str | None = None
    split: str | None = None
    holds: str | None = None
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Counts:
    """The size of a data set, as the paper's table counts it.

    These are the devices, the training and test examples of all of them, the median, the largest
    and the smallest number of training examples of a device, and the labels.
    """

    devices: int
    train: int
    test: int
    median: float
    max: int
    min: int
    classes: int


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Attributes:
        name: its name in commands.
        title: what it is, in a few words.
        files: its files under the data directory; empty if it needs none. "a|b" is one file that
            may have either name; it is downloaded under the first one.
        sources: the origins of the files, in the same order.
        origin: the page about it.
        license: its license.
        paper: the counts of the paper, rounded as there; None if it is not in its table.
        note: further information.
        made: whether it is generated; a data set that is neither generated nor has files is part of
            rfa.
    """

    name: str
    title: str
    files: tuple[str, ...]
    sources: tuple[Source, ...]
    origin: str
    license: str
    paper: Counts | None = None
    note: str = ""
    made: bool = False

    def missing(self, directory: Path | None) -> tuple[str, ...]:
        """Return those of `files` that are not in the directory, by the first of their names."""
        return tuple(
            entry.split("|")[0]
            for entry in self.files
            if directory is None or find_file(directory, entry) is None
        )


HUGGING_FACE = "https://huggingface.co"


def _parquet(file: str, dataset: str) -> Source:
    """Return the training part of a data set on Hugging Face."""
    return Source(file, f"{HUGGING_FACE}/api/datasets/{dataset}/parquet", split="train")


_VECTORS = Source(
    file="glove.6B.50d.txt",
    url="https://nlp.stanford.edu/data/glove.6B.zip",
    member="glove.6B.50d.txt",
    size=862_182_613,
)
_VECTOR_FILES = "glove.6B.50d.txt|glove.6B.50d.txt.gz|glove.6B.50d.subset.txt.gz"
_PLAYS = "https://github.com/TheMITTech/shakespeare"

_DATA_SETS = (
    DataSet(
        name="emnist",
        title="Handwritten characters by writer (LEAF FEMNIST)",
        files=("femnist.parquet",),
        sources=(_parquet("femnist.parquet", "flwrlabs/femnist"),),
        origin=f"{HUGGING_FACE}/datasets/flwrlabs/femnist",
        license="BSD-2-Clause (LEAF); images of NIST SD 19, a work of the US government",
        paper=Counts(1000, 204_000, 23_000, median=160, max=418, min=92, classes=62),
        note="The paper takes 1000 of the writers.",
    ),
    DataSet(
        name="shakespeare",
        title="Shakespeare's plays by role",
        files=("shakespeare.zip",),
        sources=(
            Source(
                "shakespeare.zip", f"{_PLAYS}/archive/refs/heads/master.zip", holds="/full.html"
            ),
        ),
        origin=_PLAYS,
        license="the text is in the public domain",
        paper=Counts(628, 2_200_000, 250_000, median=1170, max=70_600, min=90, classes=53),
    ),
    DataSet(
        name="sent140",
        title="Tweets by user, glad or sad (Sentiment140)",
        files=("sent140.parquet", _VECTOR_FILES),
        sources=(_parquet("sent140.parquet", "stanfordnlp/sentiment140"), _VECTORS),
        origin=f"{HUGGING_FACE}/datasets/stanfordnlp/sentiment140",
        license="for research, under the terms of its authors: see its page",
        paper=Counts(877, 57_000, 15_000, median=55, max=479, min=40, classes=2),
        note="It is read with the word vectors of glove, which come with it.",
    ),
    DataSet(
        name="glove",
        title="Word vectors of 50 numbers (GloVe 6B)",
        files=(_VECTOR_FILES,),
        sources=(_VECTORS,),
        origin="https://nlp.stanford.edu/projects/glove/",
        license="Public Domain Dedication and License (PDDL) 1.0",
        note="862 MB are downloaded for one member of the archive; the rest is thrown away.",
    ),
    DataSet(
        name="glyphs",
        title="Drawn characters by artificial writer",
        files=(),
        sources=(),
        origin="made on the spot",
        license="that of this package",
        note="Nothing to download: for trials and tests.",
        made=True,
    ),
    DataSet(
        name="digits",
        title="Handwritten digits of 8 x 8 pixels (Optical Recognition of Handwritten Digits)",
        files=(),
        sources=(),
        origin="https://archive.ics.uci.edu/dataset/80",
        license="CC BY 4.0: E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998",
        note="The 1,797 images that scikit-learn calls digits come with rfa; its writers are not "
        "named, so a partition distributes the images.",
    ),
)

CATALOG: dict[str, DataSet] = {dataset.name: dataset for dataset in _DATA_SETS}
