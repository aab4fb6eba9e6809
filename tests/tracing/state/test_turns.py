"""Several threads that profile at once: what is the whole process's is one thread's at a time; and where
the calls of one lie."""

from __future__ import annotations

import _frozen_importlib as importing
import builtins
import copy
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opgraph
from opgraph.record import turns
from opgraph.record.turns import roomy, turn


class Calls(nn.Module):
    """Does something before its layer."""

    def __init__(self, layer: nn.Module, do: Callable[[], Any] = lambda: time.sleep(0.01)) -> None:
        super().__init__()
        self.layer, self.do = layer, do

    def forward(self, x: Tensor) -> Tensor:
        self.do()
        return self.layer(x)


def test_threads_take_turns() -> None:
    """A lazy model learns its sizes within a turn, too, and of one model all see the same weights."""
    x, one = torch.randn(2, 4), Calls(nn.Linear(4, 4))

    def states() -> list[Any]:
        return [builtins.open, os.remove, sys.stdout, importing._find_and_load, gc.isenabled()]

    before = states()
    models = (one, Calls(nn.LazyLinear(4)), one, Calls(nn.LazyLinear(4)))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda m: opgraph.profile(m, x), models))
    assert states() == before
    assert {
        (sum(n.flops for n in p.graph.nodes), sum(len(n.parameters) for n in p.graph.nodes))
        for p in found
    } == {(64, 2)}


class Profiles(nn.Module):
    """Profiles a part of itself before it runs it."""

    def __init__(self, what: Any = None, value: bool = False, **how: Any) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.what, self.value, self.how = what, value, how

    def forward(self, x: Tensor) -> Tensor:
        opgraph.profile(self.what or self.part, None if self.what else x, **self.how)
        return self.part(x * x.sum().item() if self.value else x)


@pytest.mark.live
@pytest.mark.parametrize("tracer", ["auto", "fx", "dynamo", "export"])
@pytest.mark.parametrize("value", [False, True])
def test_a_profile_within_a_forward_is_no_part_of_it(tracer: str, value: bool) -> None:
    model, x = Profiles(value=value, tracer=tracer), torch.ones(2, 4)
    before = copy.deepcopy(model.state_dict())
    found = opgraph.profile(model, x)
    assert found.totals.flops == 2 * 2 * 4 * 4
    assert {n.scope for n in found.graph.nodes if n.op == "linear"} == {"part.0"}
    codes = [r.code for r in found.remarks if r.code not in ("real-tensors", "branch")]
    assert codes == ["not-counted"]
    assert all(map(torch.equal, before.values(), model.state_dict().values()))


def test_a_model_that_is_named_within_a_forward_is_no_part_of_it_either() -> None:
    found = opgraph.profile(Profiles("resnet18"), torch.ones(2, 4))
    assert found.totals.flops == 2 * 2 * 4 * 4
    assert len(found.graph.nodes) == 4


def test_a_profile_within_a_profile_within_a_profile() -> None:
    model = nn.Sequential(
        Calls(nn.Linear(4, 4), lambda: opgraph.profile(Profiles(), torch.ones(2, 4)))
    )
    assert opgraph.profile(model, torch.ones(2, 4)).totals.flops == 2 * 2 * 4 * 4
    step = opgraph.profile(model, torch.ones(2, 4), mode="train")
    assert step.totals.flops == 2 * (2 * 2 * 4 * 4)


@pytest.mark.parametrize(("tracer", "by"), [("eager", "pool"), ("fx", "thread")])
def test_a_forward_that_waits_for_a_profile_is_refused(tracer: str, by: str) -> None:
    def inner() -> Any:
        return opgraph.profile(nn.Linear(4, 4), torch.ones(2, 4))

    def waits() -> None:
        if by == "pool":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(inner).result()
            return
        said: list[Exception] = []

        def caught() -> None:
            try:
                inner()
            except opgraph.InputError as error:
                said.append(error)

        other = threading.Thread(target=caught)
        other.start()
        other.join()
        raise said[0]

    with pytest.raises(opgraph.OpgraphError, match="waits for a thread that profiles, too"):
        opgraph.profile(Calls(nn.Linear(4, 4), waits), torch.ones(2, 4), tracer=tracer)


@pytest.mark.parametrize("between", [Queue, threading.Event])
def test_a_forward_that_waits_for_what_a_profile_gives_is_refused(
    between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_PATIENCE", 0.1)
    done, begin, said = between(), threading.Event(), list[BaseException]()

    def inner() -> None:
        begin.wait()
        try:
            opgraph.profile(nn.Linear(4, 4), torch.ones(2, 4))
        except opgraph.InputError as error:
            said.append(error)
        done.put(1) if between is Queue else done.set()

    def waits() -> None:
        begin.set()
        done.get() if between is Queue else done.wait()

    other = threading.Thread(target=inner)
    other.start()
    opgraph.profile(Calls(nn.Linear(4, 4), waits), torch.ones(2, 4))
    other.join()
    assert "waits for a thread that profiles, too" in str(said[0])


def test_what_another_thread_imports_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import begins within a profile and ends after it."""
    (tmp_path / "opgraph_slow.py").write_text("import opgraph_gate\nopgraph_gate.wait()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    begun, done = threading.Event(), threading.Event()
    gate: Any = type(sys)("opgraph_gate")
    gate.wait = lambda: (begun.set(), done.wait(9))
    monkeypatch.setitem(sys.modules, "opgraph_gate", gate)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        run = threading.Event()
        found = pool.submit(lambda: (run.wait(9), importlib.import_module("opgraph_slow"))[1])
        opgraph.profile(
            Calls(nn.Linear(4, 4), lambda: (run.set(), begun.wait(9))), torch.ones(2, 4)
        )
        done.set()
        assert found.result().__name__ == "opgraph_slow"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_off_does_not_wait_for_a_thread_that_it_has_not() -> None:
    begun, end = threading.Event(), threading.Event()

    def holds() -> None:
        with (
            turn(),
            turns.recorded(lambda: nullcontext(os._exit(2))),
        ):  # what it records is not here
            begun.set()
            end.wait()

    other = threading.Thread(target=holds)
    other.start()
    begun.wait()
    child = os.fork()
    if not child:
        with turn(wait=False) as had:
            os._exit(0 if had else 1)
    end.set()
    other.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="the system counts no faults")
def test_calls_find_room() -> None:
    """At some depth each round of a loop had memory for its calls from the system, and gave it back."""
    from resource import RUSAGE_SELF, getrusage

    def leaf(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
        return (a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d)

    def faults(depth: int) -> int:
        if depth:
            return faults(depth - 1)
        before = getrusage(RUSAGE_SELF).ru_minflt
        for _ in range(200):
            leaf(1, 2, 3, 4)
        return getrusage(RUSAGE_SELF).ru_minflt - before

    def most() -> int:
        return max(map(faults, range(400)))

    assert most() >= 200
    assert roomy(most)() < 20
