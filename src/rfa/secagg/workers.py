"""Masks expanded by all cores: one process a core, each for a range of the coordinates.

The cipher's library holds Python's lock, so threads would not help. The processes are this module,
started anew, and get the keys through pipes of their own: nothing is pickled, forked or written to
a disk.

    with Workers() as workers:
        ask = SecureOracle(opening, terms, devices, exchange, expand=workers.add_masks)
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

import numpy as np

from rfa._threads import cores
from rfa.secagg.crypto.masks import WORD, Mask, Words, add_masks, add_to_tail, add_to_words
from rfa.secagg.transcript import SIZE

WORTH = 1 << 26
"""Bytes of keystream from which on other processes are asked."""
_COMMAND = [sys.executable, "-c", "from rfa.secagg.workers import main; main()"]
_JOB = struct.Struct("<QQI")
"""A job: the first word, how many, and how many masks follow."""


class Workers:
    """Processes that expand masks; the first large job starts them."""

    def __init__(self, count: int | None = None) -> None:
        """Use so many processes beside this one; by default one for each other core."""
        self._count = cores() - 1 if count is None else count
        self._lock = threading.RLock()
        self._hired: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Workers:
        """Begin to use them."""
        return self

    def __exit__(self, *_: object) -> None:
        """Dismiss them."""
        self.close()

    def close(self) -> None:
        """Dismiss the processes; a later job starts new ones."""
        with self._lock:
            for worker in self._hired:
                _end(worker)
            self._hired = []

    def add_masks(self, words: Words, tail: list[int], masks: Sequence[Mask]) -> None:
        """Add the streams of many keys, as `add_masks` of `masks` does, with all processes."""
        if len(masks) * words.nbytes < WORTH or not self._count:
            add_masks(words, tail, masks)
            return
        with self._lock:
            self._add(words, tail, masks)

    def _add(self, words: Words, tail: list[int], masks: Sequence[Mask]) -> None:
        if self._hire():  # do this one alone, while they start
            add_masks(words, tail, masks)
            return
        try:
            self._share_out(words, masks)
        except BaseException:
            self.close()  # an answer that is still in a pipe would be taken for the next one
            raise
        add_to_tail(tail, masks)

    def _share_out(self, words: Words, masks: Sequence[Mask]) -> None:
        """Give each process a range of the words, take one, and do again what gets lost."""
        ranges = _split(len(words), len(self._hired) + 1)
        asked = [
            (worker, place) if _ask(worker, place, masks) else (None, place)
            for worker, place in zip(self._hired, ranges[1:], strict=True)
        ]
        _add_range(words, ranges[0], masks)
        for worker, place in asked:
            done = _answer(worker, place) if worker else None
            if done is None:
                _add_range(words, place, masks)
            else:
                words[place.start : place.stop] += done

    def _hire(self) -> bool:
        """See to it that all processes are there; whether some had to be started."""
        there = [worker for worker in self._hired if worker.poll() is None]
        for worker in self._hired:
            if worker not in there:
                _end(worker)
        missing = self._count - len(there)
        for _ in range(missing):
            pipe = subprocess.PIPE
            there.append(subprocess.Popen(_COMMAND, stdin=pipe, stdout=pipe))  # noqa: S603
        self._hired = there
        return missing > 0


def _split(length: int, parts: int) -> list[range]:
    """Ranges of about the same size that begin at multiples of 4 words, a block of the cipher."""
    step = 4 * -(-length // (4 * parts))
    return [range(min(length, step * i), min(length, step * (i + 1))) for i in range(parts)]


def _add_range(words: Words, place: range, masks: Sequence[Mask]) -> None:
    add_to_words(words[place.start : place.stop], masks, place.start)


def _ask(worker: subprocess.Popen[bytes], place: range, masks: Sequence[Mask]) -> bool:
    """Send a job; whether there is a process that took it."""
    job = _JOB.pack(place.start, len(place), len(masks))
    pipe = worker.stdin
    try:
        if pipe is None:
            return False
        pipe.write(job + b"".join(key + bytes([plus]) for key, plus in masks))
        pipe.flush()
    except OSError:
        return False
    return True


def _answer(worker: subprocess.Popen[bytes], place: range) -> Words | None:
    """What a process made of its job; None if it died."""
    made = worker.stdout.read(len(place) * WORD.itemsize) if worker.stdout else b""
    return np.frombuffer(made, WORD) if len(made) == len(place) * WORD.itemsize else None


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    for pipe in (worker.stdin, worker.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    worker.wait()


def work(jobs: IO[bytes], made: IO[bytes]) -> None:
    """Expand masks as they are asked for, until nobody asks any more."""
    while len(header := jobs.read(_JOB.size)) == _JOB.size:
        start, length, count = _JOB.unpack(header)
        drawn = jobs.read((SIZE + 1) * count)
        masks = [
            (drawn[at : at + SIZE], bool(drawn[at + SIZE])) for at in range(0, len(drawn), SIZE + 1)
        ]
        words = np.zeros(length, WORD)
        add_to_words(words, masks, start)
        made.write(words.data)
        made.flush()


def main() -> None:
    """Be one of the processes."""
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        work(sys.stdin.buffer, sys.stdout.buffer)
