"""Work shared out to threads: all of it, once, in order, and with its errors."""

from __future__ import annotations

import threading
import time

import pytest

from rfa._threads import Threads


@pytest.mark.parametrize("count", [1, 2, 7])
def test_each_item_is_done_once_and_answers_come_in_order(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfa._threads.cores", lambda: count)
    threads, done = Threads(), list[int]()

    def work(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        done.append(item)
        return item * item

    for items in (range(40), range(0), range(1), range(3)):
        done.clear()
        assert threads.map(work, items) == [item * item for item in items]
        assert sorted(done) == list(items)


def test_no_more_threads_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rfa._threads.cores", lambda: 8)
    for most in (1, 2):
        at_work, peak = set[int](), list[int]()

        def work(_: int, at_work: set[int] = at_work, peak: list[int] = peak) -> None:
            at_work.add(threading.get_ident())
            peak.append(len(at_work))
            time.sleep(0.001)
            at_work.discard(threading.get_ident())

        Threads().map(work, range(30), most)
        assert max(peak) <= most


def test_a_caller_that_is_held_up_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The item that the caller has waits for all others, which the helper must do."""
    monkeypatch.setattr("rfa._threads.cores", lambda: 2)
    caller, others = threading.get_ident(), threading.Semaphore(0)

    def work(item: int) -> int:
        if threading.get_ident() == caller:
            assert all(others.acquire(timeout=10) for _ in range(9))
        else:
            others.release()
        return item

    assert Threads().map(work, range(10)) == list(range(10))


@pytest.mark.parametrize("bad", [0, 5, 19])
def test_an_error_ends_the_work_and_the_threads_go_on_to_the_next(
    bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfa._threads.cores", lambda: 3)
    threads = Threads()

    def work(item: int) -> int:
        time.sleep(0.001)
        return 1 // (item - bad)

    with pytest.raises(ZeroDivisionError):
        threads.map(work, range(20))
    assert threads.map(str, range(4)) == ["0", "1", "2", "3"]


def test_threads_end_with_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rfa._threads.cores", lambda: 3)
    before, threads = set(threading.enumerate()), Threads()
    threads.map(lambda _: time.sleep(0.001), range(30))
    started = set(threading.enumerate()) - before
    assert started
    del threads
    for thread in started:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in started)
