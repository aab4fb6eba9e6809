"""Fake tensors that a forward puts where nobody can look before a run: they are found after it, taken out
of what is there to be filled, and reported by the name of their holder."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache
from multiprocessing.pool import ThreadPool
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.flop_counter import FlopCounterMode

import opgraph
from opgraph.tracing import tracers
from opgraph.tracing.capture.kernels import KernelCapture
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.fake.weights import Weights
from opgraph.tracing.state.guard import Guard
from opgraph.tracing.state.leaks import settle
from opgraph.tracing.target import Substitutes

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
]  # whoever holds one is looked for among all objects

NAME = "opgraph_hidden"


class Keeper:
    """Keeps the last of something."""

    last: Any = None


@pytest.fixture
def hidden() -> Iterator[Any]:
    """A module that no code names, so that it cannot be found from a forward."""
    module: Any = ModuleType(NAME)
    module.cache, module.list, module.queue, module.set = {"old": 1}, [1], deque([1]), {1}
    module.ordered = OrderedDict(old=1)
    module.keeper, module.last = Keeper(), None
    module.weight, module.future = torch.ones(2, requires_grad=True), torch.futures.Future()
    module.table = lru_cache(lambda key: HELD[0])
    module.table.__wrapped__.__module__, module.table.__wrapped__.__qualname__ = NAME, "table"
    sys.modules[NAME] = module
    yield module
    del sys.modules[NAME]


HELD: list[Any] = []


class Hiding(nn.Module):
    """Looks a module up by a name that it makes, and puts there what it computes."""

    def __init__(self, put: str, *, fails: bool = False) -> None:
        super().__init__()
        self.layer, self.put, self.fails = nn.Linear(2, 2), put, fails

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        name = "_".join(("opgraph", "hidden"))  # no constant has it, as it would behind a "+"
        PUT[self.put](importlib.import_module(name), y)
        if self.fails:
            raise ValueError("no")
        return y


def _by_cache(module: Any, y: Tensor) -> None:
    HELD[:] = [y]
    module.table(3)
    HELD.clear()


def _by_gradient(module: Any, y: Tensor) -> None:
    with torch.enable_grad():
        (module.weight * y.detach()).sum().backward()


PUT: dict[str, Callable[[Any, Tensor], Any]] = {
    "dict": lambda m, y: m.cache.update(new=y),
    "tuple": lambda m, y: m.cache.update(new=(y, (y + 1, 2))),
    "key": lambda m, y: m.cache.update({y: "new"}),
    "tuple as a key": lambda m, y: m.cache.update({("new", y): "new"}),
    "ordered": lambda m, y: m.ordered.update(new=y),
    "list": lambda m, y: m.list.append(y),
    "deque": lambda m, y: m.queue.append(y),
    "set": lambda m, y: m.set.add(y),
    "lru_cache": _by_cache,
    "attribute": lambda m, y: setattr(m.keeper, "last", y),
    "global": lambda m, y: setattr(m, "last", y),
    "gradient": _by_gradient,
    "future": lambda m, y: m.future.set_result(y),
}

SAID = {
    "dict": "was left in opgraph_hidden.cache, and taken out again",
    "tuple": "was left in opgraph_hidden.cache, and taken out again",
    "key": "was left in opgraph_hidden.cache, and taken out again",
    "tuple as a key": "was left in opgraph_hidden.cache, and taken out again",
    "ordered": "was left in opgraph_hidden.ordered, and taken out again",
    "list": "was left in opgraph_hidden.list, and taken out again",
    "deque": "was left in opgraph_hidden.queue, and taken out again",
    "set": "was left in opgraph_hidden.set, and taken out again",
    "lru_cache": "was left in the cache of opgraph_hidden.table, and taken out again",
    "attribute": "is left in opgraph_hidden.keeper.last: it has no values to compute with",
    "global": "is left in opgraph_hidden.last: it has no values to compute with",
    "gradient": "was left in the gradient of opgraph_hidden.weight, and taken out again",
    "future": "is left in something that Python does not show: it has no values to compute with",
}


def fakes(module: Any) -> list[Any]:
    held = [
        *module.cache.values(),
        *module.cache,
        *module.ordered.values(),
        *module.list,
        *module.queue,
        *module.set,
        module.keeper.last,
        module.last,
        module.weight.grad,
        module.future.value() if module.future.done() else None,
    ]
    return [t for t in held if isinstance(t, (FakeTensor, tuple))]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("put", PUT)
def test_who_keeps_a_fake_tensor(hidden: Any, put: str, fails: bool) -> None:
    model, x = Hiding(put, fails=fails), torch.randn(1, 2)
    profile = opgraph.profile(model, x, tracer="eager", partial=True)
    notes = [n for n in profile.model.notes if "fake tensor" in n]
    assert notes == [f"a fake tensor of the run {SAID[put]}"]
    assert bool(fakes(hidden)) is ("is left" in SAID[put])
    assert (hidden.cache, hidden.list, list(hidden.queue), hidden.set) == (
        {"old": 1},
        [1],
        [1],
        {1},
    )
    assert hidden.table.cache_info().currsize == 0
    assert hidden.ordered.popitem() == ("old", 1)


def test_what_a_thread_of_before_keeps_is_found() -> None:
    kept = threading.local()

    def mean(x: Tensor) -> Tensor:
        table: dict[int, Tensor] = kept.__dict__.setdefault("means", {})
        return table.setdefault(x.shape[0], x.mean(0))

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.pool = nn.Linear(2, 2), ThreadPool(1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.layer(x)
            return h + self.pool.map(mean, [h])[0]

    model = Pooled()
    with model.pool, torch.no_grad():
        model(torch.ones(2, 2))
        said = opgraph.profile(model, torch.ones(3, 2)).remarks
        assert any("a fake tensor of the run was left in" in each for each in said)
        assert type(model(torch.ones(3, 2))) is Tensor


def test_tensors_that_do_not_say_what_made_them_hide_none(hidden: Any) -> None:
    """Of a view among several that was written to, torch does not say it."""
    views = torch.ones(4, requires_grad=True).mul(1).split(2)
    with torch.no_grad():
        views[0].add_(1)
    with pytest.raises(RuntimeError):
        _ = views[0].is_leaf
    test_who_keeps_a_fake_tensor(hidden, "gradient", fails=False)


@pytest.mark.parametrize(
    ("options", "raised"),
    [
        ({"tracer": "export"}, None),
        ({"tracer": "fx"}, None),
        ({"tracer": "dynamo"}, None),
        ({"tracer": "export"}, ValueError),
        ({"tracer": "export"}, KeyboardInterrupt),
        ({}, KeyboardInterrupt),
    ],
)
def test_none_is_kept_however_a_run_ends(
    hidden: Any, options: dict[str, Any], raised: type[BaseException] | None
) -> None:
    def fails(module: Any, y: Tensor) -> None:
        module.list.append(y)
        if raised is not None:
            raise raised

    PUT["and"] = fails
    with pytest.raises((raised, opgraph.TraceError)) if raised else nullcontext():
        opgraph.profile(Hiding("and"), torch.randn(1, 2), **options)
    assert [type(item) for item in hidden.list] == [int]


def test_nothing_is_said_where_nothing_is_kept() -> None:
    class Cycles(nn.Module):
        """Makes garbage that only the collector frees."""

        def forward(self, x: Tensor) -> Tensor:
            held: list[Any] = [x * 2]
            held.append(held)
            return held[0] + 1

    profile = opgraph.profile(Cycles(), torch.ones(2))
    assert not profile.model.notes


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_hooks_at_several_weights_keep_none(mode: str) -> None:
    """A counter around hooks what a module is given: of a parametrization, weights."""
    model = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    before = sum(type(each) is FakeTensor for each in gc.get_objects())
    with FlopCounterMode(display=False):
        profile = opgraph.profile(model, torch.ones(1, 2), mode=mode)
    assert not [note for note in profile.model.notes if "fake tensor" in note]
    assert sum(type(each) is FakeTensor for each in gc.get_objects()) == before


class Recurrent(nn.Module):
    """Keeps the state of its last call, which another can go on from."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.state = nn.GRUCell(4, 8), torch.zeros(5, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.cell(x, self.state.detach())
        return self.state


@pytest.mark.parametrize("how", [{"mode": "train"}, {"tracer": "export"}, {"tracer": "dynamo"}])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    "make", [Recurrent, lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))]
)
def test_what_only_torch_holds_goes_by_itself(
    make: Callable[[], nn.Module], counted: bool, how: Any
) -> None:
    model, x = make(), torch.ones(5, 4)
    model(x)
    with FlopCounterMode(display=False) if counted else nullcontext():
        profile = opgraph.profile(model, x, **how)
    assert not [note for note in profile.model.notes if "fake tensor" in note]


@pytest.mark.parametrize("anomaly", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: nn.GRU(4, 4), lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())]
)
def test_what_hooks_of_saved_tensors_gave_ends(
    make: Callable[[], nn.Module], *, anomaly: bool
) -> None:
    """A backward that fails, as one that looks for what is no number, has it, and it leads to itself."""
    model, before = make(), sum(type(each) is FakeTensor for each in gc.get_objects())
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with torch.autograd.set_detect_anomaly(anomaly), hooks:
        profile = opgraph.profile(model, torch.ones(2, 3, 4), mode="train", loss="sum")
    assert not [note for note in profile.model.notes if "fake tensor" in note]
    assert sum(type(each) is FakeTensor for each in gc.get_objects()) == before


def test_a_hook_at_several_results_keeps_none() -> None:
    """It has their nodes, and they have it."""

    class Notes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.norms = nn.Linear(4, 4), nn.Linear(4, 4), []
            self.handle: Any = None

        def forward(self, x: Tensor) -> Tensor:
            if self.handle is not None:
                self.handle.remove()
            h = self.one(x)
            y: Tensor = self.two(h.relu())
            if y.requires_grad:
                self.handle = register_multi_grad_hook([h, y], self.norms.append)
            return y

    model, before = Notes(), sum(type(each) is FakeTensor for each in gc.get_objects())
    profile = opgraph.profile(model, torch.ones(2, 4), mode="train")
    assert not [note for note in profile.model.notes if "fake tensor" in note]
    assert sum(type(each) is FakeTensor for each in gc.get_objects()) == before


def test_an_error_keeps_none() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            raise ValueError(f"of {len(y)}")

    profile = opgraph.profile(Fails(), torch.ones(2), partial=True)
    assert not profile.model.notes
    with pytest.raises(opgraph.TraceError) as caught:
        opgraph.profile(Fails(), torch.ones(2))
    cause = caught.value.__cause__
    assert cause is None or "in forward" in "".join(cause.__notes__)


class Unclear(torch.autograd.Function):
    """It cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ValueError("no")


def test_a_backward_that_fails_keeps_none() -> None:
    """Autograd would keep the branch that it came not to."""
    x = torch.ones(2, requires_grad=True)
    kept = weakref.ref(x)
    try:
        (x.sin() + Unclear.apply(x)).sum().backward()
    except ValueError as error:
        settle(error)
    del x
    assert kept() is None


class Asking(nn.Module):
    """Asks for a value of what its weights gave."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if y.sum() > 0 else -y


@pytest.mark.parametrize(
    ("model", "tensors"), [(nn.LSTM(4, 4), "fake"), (Asking(), "real")], ids=["fake", "real"]
)
def test_nothing_of_a_run_waits_for_the_collector(model: nn.Module, tensors: str) -> None:
    """What made a graph goes as it is there, and random weights with it, which may be large."""
    kinds = (Recorder, KernelCapture, Substitutes, Weights, Guard)

    def there() -> list[Any]:
        return [o for o in gc.get_objects() if type(o) in kinds]

    gc.collect()
    gc.disable()
    try:
        before = there()
        assert opgraph.profile(model, torch.ones(2, 4)).tracing.tensors == tensors
        assert all(any(o is old for old in before) for o in there())
    finally:
        gc.enable()


try:
    import of_opgraph_and_not_there  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    MISSING = error


@pytest.mark.parametrize("how", ["cause", "itself", "what was handled"])
def test_an_error_that_was_there_before_is_as_it_was(how: str) -> None:
    """Whichever way the forward's leads to it; what the run itself raised on the way is let go."""

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            held = x * 2
            try:
                raise ValueError(f"of {len(held)}")
            except ValueError:
                if how == "cause":
                    raise RuntimeError("it is needed") from MISSING
                if how == "itself":
                    raise MISSING  # noqa: B904
            try:
                raise MISSING
            except ImportError:
                raise RuntimeError("it is needed")  # noqa: B904

    before = MISSING.__traceback__
    profile = opgraph.profile(Fails(), torch.ones(2), partial=True)
    assert MISSING.__traceback__ is before is not None
    assert (MISSING.__context__, getattr(MISSING, "__notes__", [])) == (None, [])
    assert not [remark for remark in profile.remarks if remark.code == "state"]


def test_an_error_that_leads_to_itself_is_settled() -> None:
    """Its cause was raised again, so that each is there because of the other."""
    first, second = ValueError("first"), RuntimeError("second")
    first.__context__, second.__cause__ = second, first
    settle(first)
    assert first.__traceback__ is None


@pytest.mark.parametrize("options", [{}, {"mode": "train"}])
def test_what_a_model_was_given_goes_with_its_last_name(options: dict[str, str]) -> None:
    """Not only when Python looks for rubbish, which it seldom does: inputs are large."""
    given = torch.ones(2, 4)
    there = weakref.ref(given)
    gc.disable()
    try:
        assert opgraph.profile(nn.Linear(4, 4), given, **options).totals.macs
        del given
        assert there() is None
    finally:
        gc.enable()


class Breaks(nn.Module):
    """Has a graph break between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if not torch.compiler.is_exporting() and not isinstance(x, torch.fx.Proxy):
            torch._dynamo.graph_break()
        return self.second(y)


WAYS: dict[str, dict[str, Any]] = {
    **{name: {"tracer": name} for name in tracers},
    "train": {"mode": "train"},
    "lora": {"mode": "train", "train": "lora"},
    "inductor": {"inductor": True},
    "compiled training": {"inductor": True, "mode": "train"},
    "replicated": {"data_parallel": 2, "mode": "train"},
    "sharded": {"fsdp": 2, "mode": "train"},
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_model_outlives_it_and_its_profile(way: str) -> None:
    """Nor does anything of torch.compile's that was not there before, by name or in its registries."""
    import torch._dynamo

    backends, written = (
        torch._dynamo.eval_frame.cached_backends,
        torch._dynamo.utils.CleanupManager.instance.values,
    )

    def there() -> list[Any]:
        ours = [b for b in backends.values() if "opgraph" in str(getattr(b, "__module__", ""))]
        return [nn.Module.__init__, set(globals()), set(vars(nn.Module)), set(written), ours]

    model, before = Breaks(), there()
    weight = weakref.ref(model.first.weight)
    profile = opgraph.profile(model, torch.ones(2, 4), **WAYS[way])
    assert profile.totals.macs
    assert there() == before
    del model, profile
    gc.collect()
    assert weight() is None
