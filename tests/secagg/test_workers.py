"""Masks expanded by several processes are the masks."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from rfa.secagg import workers as module
from rfa.secagg.crypto.masks import Mask, add_masks
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.workers import Workers
from tests.secagg.party import contributions, party, same

MASKS: list[Mask] = [(bytes([index]) * 32, index % 3 != 0) for index in range(7)]


@pytest.fixture
def hired(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two processes that are asked whatever the size of the job."""
    monkeypatch.setattr(module, "WORTH", 0)
    with Workers(2) as workers:
        check(workers, 100)  # starts them
        yield workers


def check(workers: Workers, length: int) -> None:
    rng = np.random.default_rng(length)
    ours = rng.integers(0, 2**32, length, np.uint32)
    theirs, tail, other = ours.copy(), [5, 2**127], [5, 2**127]
    workers.add_masks(ours, tail, MASKS)
    add_masks(theirs, other, MASKS)
    assert np.array_equal(ours, theirs)
    assert tail == other


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 11, 12, 13, 1000, 100_003])
def test_any_split_gives_the_same(hired: Workers, length: int) -> None:
    check(hired, length)


def test_a_process_that_dies_is_replaced_and_its_work_done(hired: Workers) -> None:
    check(hired, 1000)
    processes: list[Any] = list(vars(hired)["_hired"])
    for process in processes:
        process.send_signal(signal.SIGKILL)
    check(hired, 1000)
    for process in processes:
        process.wait()
    check(hired, 1000)
    check(hired, 1000)
    assert all(process not in vars(hired)["_hired"] for process in processes)


def test_small_jobs_and_no_workers_need_no_process() -> None:
    for workers in (Workers(3), Workers(0)):
        check(workers, 1000)
        assert vars(workers)["_hired"] == []


def test_a_sum_with_workers_is_the_sum(hired: Workers) -> None:
    table = party(contributions(6, 1000), lost={5: 2})
    ask = SecureOracle(
        table.opening,
        table.terms,
        table.parts,
        table.carry,
        table.known,
        expand=hired.add_masks,
    )
    ring = table.ring()
    ask(np.zeros(1000), 1.0)
    ring(np.zeros(1000), 1.0)
    assert same(ask.last, ring.last)


def test_after_an_interrupted_job_the_next_one_is_right(
    hired: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is left in a pipe is not taken for another one."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_add_range", interrupted)
        with pytest.raises(KeyboardInterrupt):
            check(hired, 1000)
    check(hired, 1000)
    check(hired, 1000)
