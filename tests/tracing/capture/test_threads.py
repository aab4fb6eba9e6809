"""Work that a forward hands to threads is counted, or it is said that it is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import opgraph

pytestmark = pytest.mark.live

LINEAR = 2 * 2 * 4 * 4


class Hands(nn.Module):
    """Two layers in a list, and a forward of one's own, which may keep something."""

    def __init__(self, run: Callable[[Hands, Tensor], object], kept: Any = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))])
        self.run, self.kept = run, kept

    def forward(self, x: Tensor) -> object:
        return self.run(self, x)


def profile(run: Callable[[Hands, Tensor], object], kept: Any = None) -> opgraph.Profile:
    return opgraph.profile(Hands(run, kept).eval(), torch.ones(2, 4))


def started(m: Hands, x: Tensor) -> object:
    out: dict[int, Tensor] = {}

    def work(place: int) -> None:
        out[place] = m.layers[place](x)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out[0] + out[1]


def pooled(m: Hands, x: Tensor) -> object:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda layer: layer(x), m.layers))


def one_in_another(m: Hands, x: Tensor) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: (m.layers[0](x), started_alone(m, x))).result()


def started_alone(m: Hands, x: Tensor) -> object:
    out: list[Tensor] = []
    thread = threading.Thread(target=lambda: out.append(m.layers[1](x)))
    thread.start()
    thread.join()
    return out[0]


class Worker(threading.Thread):
    """A thread with a method of its own."""

    def __init__(self, layer: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.layer, self.x = layer, x

    def run(self) -> None:
        self.x = self.layer(self.x)


def of_a_class(m: Hands, x: Tensor) -> object:
    workers = [Worker(layer, x) for layer in m.layers]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.x for worker in workers]


def awaited(m: Hands, x: Tensor) -> object:
    async def both() -> list[Tensor]:
        return await asyncio.gather(*(asyncio.to_thread(layer, x) for layer in m.layers))

    return asyncio.run(both())


def not_awaited(m: Hands, x: Tensor) -> object:
    for layer in m.layers:
        threading.Thread(target=lambda layer=layer: (time.sleep(0.1), layer(x))).start()
    return x


def forked(m: Hands, x: Tensor) -> object:
    return [torch.jit.wait(torch.jit.fork(layer, x)) for layer in m.layers]


@pytest.mark.parametrize(
    "run",
    [started, pooled, one_in_another, of_a_class, awaited, not_awaited, forked],
)
def test_what_threads_do_is_counted(run: Callable[[Hands, Tensor], object]) -> None:
    found = profile(run)
    assert [a.tensors for a in found.tracing.attempts] == ["fake"]
    assert found.totals.flops == 2 * LINEAR
    assert {n.scope for n in found.graph.nodes if n.op == "linear"} == {"layers.0", "layers.1.1"}
    assert not found.model.notes


class Forks(nn.Module):
    """Its second layer runs in a thread of torch's, which is begun in C."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        later = torch.jit.fork(self.second, x)
        return self.first(x) + torch.jit.wait(later)


@pytest.mark.parametrize("model", [Forks(), torch.jit.script(Forks())])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_a_scripted_model_forks_is_counted(model: nn.Module, mode: str) -> None:
    found = opgraph.profile(model, torch.ones(2, 4), mode=mode)
    assert found.totals.flops == 2 * LINEAR * (1 if mode == "infer" else 2)
    assert not [r for r in found.remarks if r.code == "not-counted"]


def test_a_pool_that_was_there_before_follows_and_is_left_as_it_was() -> None:
    def run(m: Hands, x: Tensor) -> object:
        return [f.result() for f in [m.kept.submit(layer, x) for layer in m.layers]]

    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            found = profile(run, pool)
            assert found.totals.flops == 2 * LINEAR
            assert not found.model.notes
        assert pool.submit(_get_current_function_mode_stack).result() == []
        assert pool.submit(_get_current_dispatch_mode_stack).result() == []


def test_a_remark_says_what_ran_in_threads_that_nobody_follows() -> None:
    with ThreadPool(1) as pool:
        found = profile(lambda m, x: pool.map(m.layers[0], [x]), pool)
    assert found.totals.flops == 0
    assert any("ran in threads that forward did not start" in note for note in found.model.notes)


def test_a_value_asked_for_in_a_thread_leads_to_real_tensors(capfd: Any) -> None:
    def run(m: Hands, x: Tensor) -> object:
        out = [x]

        def work() -> None:
            y = m.layers[0](x)
            out[0] = m.layers[1](y) if y.sum() < float("inf") else y

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return out[0]

    found = profile(run)
    assert found.tracing.tensors == "real"
    assert found.totals.flops == 2 * LINEAR
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_many_threads_at_once() -> None:
    def run(m: Hands, x: Tensor) -> object:
        def work(_: int) -> Tensor:
            y = x
            for _ in range(20):
                y = m.layers[1](m.layers[0](y)) + x[0]
            return y

        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(work, range(16)))

    found = profile(run)
    assert [a.tensors for a in found.tracing.attempts] == ["fake"]
    assert found.totals.flops == 16 * 20 * 2 * LINEAR
    assert len(found.graph.nodes) == 16 * 20 * 5 + 16 + 2  # getitem, two layers, relu, add
