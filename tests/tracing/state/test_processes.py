"""What other processes have a part of, or do meanwhile, is theirs; so are locks that the caller holds."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest
import torch
from tests.tracing.state.using import Using

import opgraph
from opgraph.tracing.state import guard

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

X = torch.randn(2, 8)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread of a runner of tests is one that may have done something."""
    monkeypatch.setattr(guard, "alone", lambda: True)


def model(use: Callable[[], Any] = int, **held: Any) -> Using:
    made = Using(use)
    vars(made).update(held)
    return made


@contextmanager
def beside(work: Callable[..., Any], *args: Any) -> Iterator[Any]:
    """Within, another process works."""
    process = FORK.Process(target=work, args=args, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join(9)


def _takes(lock: Any, done: Any) -> None:
    for _ in range(400):
        with lock:
            time.sleep(0.001)
        time.sleep(0.001)
    done.value = 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore"])
@pytest.mark.parametrize("used", [False, True])
def test_a_lock_that_another_process_takes(kind: str, used: bool) -> None:
    lock, done = getattr(FORK, kind)(), FORK.Value("i", 0, lock=False)

    def use() -> None:
        if used:
            with lock:
                pass

    made = model(use, lock=lock)
    with beside(_takes, lock, done) as process:
        while not done.value and process.is_alive():
            assert opgraph.profile(made, X).model.notes == ()
        process.join(9)
        assert process.exitcode == 0
    assert lock.acquire(timeout=9)
    assert lock.acquire(block=False) is (kind == "RLock")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore"])
@pytest.mark.parametrize("others", [False, True])
def test_a_lock_that_forward_keeps_or_gives_back(kind: str, others: bool) -> None:
    taken, given = (getattr(FORK, kind)() for _ in range(2))
    given.acquire()
    made = model(lambda: (taken.acquire(block=False), given.release()), locks=[taken, given])
    with beside(time.sleep, 9) if others else nullcontext():
        assert opgraph.profile(made, X).model.notes == ()
    assert (taken._semlock._get_value(), given._semlock._get_value()) == (1, 0)
    given.release()


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_an_event_that_another_process_sets() -> None:
    for _ in range(5):
        event = FORK.Event()
        with beside(event.set):
            while not event.is_set():
                opgraph.profile(model(event=event), X)
            opgraph.profile(model(event.clear, event=event), X)
        assert event.is_set()


def _squares(tasks: Any, results: Any) -> None:
    while True:
        results.put(tasks.get() ** 2)


@pytest.mark.slow
def test_queues_of_processes_at_work() -> None:
    tasks, results = FORK.Queue(), FORK.Queue()
    made = model(tasks=tasks, results=results)
    with beside(_squares, tasks, results) as process:
        for _ in range(15):
            for each in range(3):
                tasks.put(each)
            for _ in range(3):
                assert opgraph.profile(made, X).model.notes == ()
            assert [results.get(timeout=9) for _ in range(3)] == [0, 1, 4]
        assert process.is_alive()
    tasks.close()
    results.close()


def test_what_is_put_into_a_queue_of_processes_is_said() -> None:
    queue = FORK.Queue()
    notes = opgraph.profile(model(lambda: queue.put(1), queue=queue), X).model.notes
    assert "forward sent through a connection: that cannot be taken back" in notes
    assert queue.get(timeout=9) == 1
    queue.close()
    queue.join_thread()


def _counts(value: Any, array: Any, name: str, stop: Any, done: Any) -> None:
    memory = SharedMemory(name)
    seen = np.ndarray((1,), np.int64, memory.buf)
    while not stop.value:
        value.value += 1
        array[0] += 1
        seen[0] += 1
        time.sleep(0.0002)
        done.value += 1
    os._exit(0)


@pytest.mark.slow
def test_what_another_process_counts_in_shared_memory_stays() -> None:
    value, array, stop, done = (
        FORK.Value("q", 0), FORK.Array("q", 2), FORK.Value("i", 0, lock=False), FORK.Value("q", 0),
    )  # fmt: skip
    memory = SharedMemory(create=True, size=8)
    try:
        seen = np.ndarray((1,), np.int64, memory.buf)
        seen[0] = 0
        made, notes = model(value=value, array=array, seen=seen), set[str]()
        with beside(_counts, value, array, memory.name, stop, done) as process:
            while done.value < 200:
                notes |= set(opgraph.profile(made, X).model.notes)
            stop.value = 1
            process.join(9)
        assert value.value == array[0] == seen[0] == done.value
        assert notes == {
            "memory that processes share was changed, by forward or by another process: "
            "that cannot be taken back"
        }
        del seen, made
    finally:
        memory.close()
        memory.unlink()


def test_a_lock_that_the_caller_holds_is_not_let_go_of() -> None:
    """Nobody else gets in, however long he waits for it."""
    lock, inside, stop = threading.RLock(), [], threading.Event()

    def waits() -> None:
        while not stop.is_set():
            with lock:
                inside.append(1)
            time.sleep(0.001)

    def use() -> None:
        with lock:
            pass

    made = model(use, lock=lock)
    other = threading.Thread(target=waits)
    other.start()
    for _ in range(20):
        with lock:
            before = len(inside)
            opgraph.profile(made, X)
            assert len(inside) == before
    stop.set()
    other.join()


def test_how_often_a_lock_is_held() -> None:
    lock = threading.RLock()
    lock.acquire()
    made = model(lambda: [lock.acquire() for _ in range(3)], lock=lock)
    opgraph.profile(made, X)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


@pytest.mark.slow
@pytest.mark.parametrize("values", [False, True])
def test_what_a_thread_finishes_meanwhile_is_finished(values: bool) -> None:
    """As where a forward takes what a thread fetched, and asks for the next."""

    class Fetching(Using):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert self.coming.result(timeout=30) is None
            self.coming = pool.submit(time.sleep, 0.2)
            return super().forward(x)

    with ThreadPoolExecutor(1) as pool:
        model: Any = Fetching(int, values)
        model.coming = pool.submit(time.sleep, 0.2)
        for _ in range(2):
            notes = opgraph.profile(model, X).model.notes
            assert any("gave a future its result" in each for each in notes)
            model(X)
