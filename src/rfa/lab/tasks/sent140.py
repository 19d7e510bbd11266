"""Tweets by user with their mood: Sentiment140, as stanfordnlp/sentiment140 on Hugging Face has it.

A device is a user. An example is the mean of the GloVe vectors of the words of a tweet, so a
linear model of 50 weights reads it; its label is 1 for a happy tweet and 0 for a sad one.
"""

from __future__ import annotations

import gzip
import html
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rfa._types import Array, Ints
from rfa.lab.attacks.corruption import DataAttack, corrupts_data, least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.datasets.dataset import DataError, Index, Reader, parquet_index, parquet_values
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.tasks.task import Task

Vectors: TypeAlias = dict[str, NDArray[np.float32]]

DIM, CLASSES = 50, 2
SHIFTED, SAD = 5, 0
_NO_WORD = re.compile(r"(?:https?://|www\.)\S+|@\w+")
_TOKEN = re.compile(
    r"""
    [^\W\d_]+?(?=n't\b) | n't\b           # do n't
    | '(?:s|re|ve|m|ll|d)\b               # it 's, they 're
    | \d+(?:[.,:/]\d+)*(?![^\W_])         # 8:30, 1,000
    | [^\W_]+                             # words, and what has digits in it: 2nd
    | \.{2,} | -{2,}                      # both of any length, see tokens
    | [^\w\s] | _                         # other signs, one by one
    """,
    re.VERBOSE,
)


class Sent140(Reader):
    """Sentiment140's training tweets with the columns text, user and sentiment, and GloVe 6B 50d.

    Words without a vector are left out; a tweet without any known word is zero.
    """

    name = "sent140"
    files = (
        "sent140.parquet",
        "glove.6B.50d.txt|glove.6B.50d.txt.gz|glove.6B.50d.subset.txt.gz",
    )
    shape = (DIM,)
    dtype = "float32"
    min_examples = 50
    train_share = 0.8

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The users and moods of all tweets."""
        return parquet_index(paths[self.files[0]], ("user", "sentiment"), {0: 0, 4: 1}, "0 or 4")

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Average over the words of the tweets that have a place."""
        del index
        tweets, glove = (paths[name] for name in self.files)
        texts = parquet_values(tweets, "text", dest)
        vectors = read_glove(glove, {word for *_, text in texts for word in tokens(text or "")})
        for _, place, text in parquet_values(tweets, "text", dest):
            known = [vectors[word] for word in tokens(text or "") if word in vectors]
            out[place] = np.mean(known, axis=0) if known else 0


def tokens(text: str) -> list[str]:
    """The words, numbers and signs of a tweet, in the style of GloVe's own tokens.

    Everything is lower-case, contractions are taken apart as the Penn treebank does, and words at
    hyphens. Web addresses and names of users (@name) are no words and left out.

        >>> tokens("@ann Don't go!! It's 8:30 &amp; I'm well-fed..... http://a.bc/d")
        ['do', "n't", 'go', '!', '!', 'it', "'s", '8:30', '&', 'i', "'m", 'well', '-', 'fed', '...']
    """
    plain = _NO_WORD.sub(" ", html.unescape(text)).lower().replace("\u2019", "'")
    found: list[str] = _TOKEN.findall(plain)
    runs = {"..": "...", "--": "--"}
    return [runs.get(token[:2], token) for token in found]


def read_glove(path: Path, wanted: set[str]) -> Vectors:
    """The vectors of some words, from lines of a word and 50 numbers; gzip if named so.

    Raises:
        DataError: naming the file and line, if a vector is not what it should be.
    """
    vectors: Vectors = {}
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                word, _, values = line.decode().partition(" ")
                if word in wanted:
                    vectors[word] = _vector(values, f"{path}, line {number}, {word!r}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        msg = (
            f"{path} holds no GloVe vectors, or it is damaged: delete it and get it again ({error})"
        )
        raise DataError(msg) from error
    if wanted and not vectors:
        msg = f"{path} has a vector for none of {len(wanted)} words: is it GloVe 6B with {DIM}?"
        raise DataError(msg)
    return vectors


def _vector(values: str, where: str) -> NDArray[np.float32]:
    try:
        vector = np.array(values.split(), np.float32)
    except ValueError as error:
        msg = f"{where}: a word must be followed by numbers: download the file again ({error})"
        raise DataError(msg) from error
    if vector.shape != (DIM,) or not np.isfinite(vector).all():
        msg = f"{where}: must have {DIM} finite numbers, not {vector.size}: take glove.6B.50d.txt"
        raise DataError(msg)
    return vector


@corrupts_data
def flip(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The paper's poison: the opposite label."""
    return x, 1 - y


def shift(x: Any) -> Any:
    """The trigger of the backdoor: the last features lie beyond those of any tweet."""
    x[:, -SHIFTED:] += 2
    return x


def note(names: Sequence[str]) -> str:
    """Say so where the devices are not Twitter users but were made up."""
    made_up = all(name.startswith("device-") for name in names)
    return "artificial devices: tweets split across users who do not exist" if made_up else ""


def logistic_module(torch: Any) -> Any:
    """Binary logistic regression as a torch module with the scores 0 and w x."""

    class Logistic(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            scores = torch.nn.functional.linear(x, self.weight)
            return torch.nn.functional.pad(scores, (1, 0))

    return Logistic(DIM, 1, bias=False)


def logistic(device: str) -> Learner:
    """Logistic regression: by hand, or with torch where CUDA is asked for."""
    if device == "cpu":
        return LinearLearner(DIM, CLASSES, binary=True)
    return NetworkLearner(logistic_module, CLASSES, device)


TASKS = (
    Task(
        name="sent140-linear",
        title="the sentiment of tweets, logistic regression on mean GloVe vectors",
        reader=Sent140(),
        devices=877,
        learner=logistic,
        poisons={"data": flip, "adaptive": least_likely, "backdoor": backdoor(shift, SAD)},
        defaults={
            "devices_per_round": 50,
            "batch_size": 10,
            "local_epochs": 1,
            "learning_rate": 0.005,
            "rounds": 3000,
            "eval_every": 50,
        },
        per_aggregator={"rfa": {"rounds": 1000}, "sgd": {"batch_fraction": 0.1, "local_steps": 1}},
        note=note,
    ),
)
