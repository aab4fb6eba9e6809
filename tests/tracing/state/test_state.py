"""Whatever a forward can reach is as before after a profile, to the bit: on fake tensors and on real ones,
whether it gets through or not."""

from __future__ import annotations

import asyncio
import builtins
import colorsys  # noqa: F401  (another is put in its place)
import copy
import cProfile
import csv
import ctypes
import decimal
import faulthandler
import gc
import hashlib
import importlib
import io
import locale
import logging
import logging.config
import mimetypes
import multiprocessing
import multiprocessing.util
import os
import pkgutil
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
import weakref
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from enum import Enum
from functools import lru_cache, partial
from mmap import mmap
from multiprocessing import Event as SharedEvent
from multiprocessing import Value
from multiprocessing.pool import ThreadPool
from multiprocessing.sharedctypes import Synchronized
from operator import attrgetter, methodcaller
from pathlib import Path
from queue import Queue, SimpleQueue
from string import Template
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode, get_ignored_functions
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import checkpoint as checkpointing
from torch.utils import dlpack
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import DefaultDeviceType, checkpoint
from torch.utils.flop_counter import FlopCounterMode
from torchvision import get_image_backend, set_image_backend

import opgraph
from opgraph.record.errors import TraceError
from opgraph.tracing.state import guard as guarding
from opgraph.tracing.state.guard import guarded
from opgraph.tracing.state.others import alone, of_ones_own
from opgraph.tracing.state.randoms import drawn, drawn_by_python

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))

RUNS = ("fake", "real", "failed", "failed on real")
"""On fake tensors; on real ones, since a value is asked for; and with an error at the end of each."""


class Changing(nn.Module):
    """Changes something, and then runs a layer."""

    def __init__(self, change: Any, run: str = "real") -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.change, self.run = change, run

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.change(self)
        y = self.layer(x)
        if "real" in self.run:
            y = y * y.sum().item()
        if "failed" in self.run:
            raise RuntimeError("this is wrong")
        return y


def profiled(model: nn.Module, *inputs: Any, **options: Any) -> Any:
    """The profile of a model, of what there is of it where the forward raises."""
    return opgraph.profile(model, inputs or (X,), partial=True, **options)


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


class Looks(NamedTuple):
    """All that can be seen of a tensor."""

    address: int
    content: bytes
    sizes: Any
    version: int
    needs_grad: bool
    grad: Any
    own: Any

    @classmethod
    def of(cls, tensor: Tensor) -> Looks:
        grad = None if tensor.grad is None else (id(tensor.grad), bits(tensor.grad))
        sizes = tensor.shape, tensor.stride(), tensor.dtype, tensor.storage_offset()
        return cls(tensor.data_ptr(), bits(tensor), sizes, tensor._version,
                   tensor.requires_grad, grad, dict(vars(tensor)))  # fmt: skip


# Parameters, when a run on fake tensors gives way to one on real tensors.


def _no_grad_write(self):
    self.layer.weight.mul_(2)


def _data_write(self):
    self.layer.weight.data.mul_(2)


def _data_swapped(self):
    self.layer.weight.data = self.layer.weight.data * 2


def _grad_set(self):
    self.layer.weight.grad = torch.ones(8, 8)


def _slice_written(self):
    self.layer.weight[0, 2:4] = 7.0


def _out(self):
    torch.add(self.layer.bias, 1, out=self.layer.bias)


def _by_dlpack(self):
    dlpack.from_dlpack(dlpack.to_dlpack(self.layer.weight[1])).fill_(7)


def _by_set(self):
    torch.empty(0).set_(self.layer.bias.detach()).fill_(7)


def _initialized(self):
    nn.init.normal_(self.layer.weight)


def _by_numpy(self):
    self.layer.weight.detach().numpy()[0] = 3.0


def _by_array(self):
    np.asarray(self.layer.weight.detach())[...] = 3.0


def _by_storage(self):
    self.layer.weight.untyped_storage().fill_(1)


def _by_apply(self):
    self.layer.weight.detach().apply_(lambda x: x + 1)


def _by_map(self):
    self.layer.weight.detach().map_(torch.zeros(8, 8), lambda x, y: x + 1)


def _resized(self):
    self.layer.weight.data.resize_(2, 2)


def _emptied(self):
    self.layer.weight.untyped_storage().resize_(0)


def _set(self):
    self.layer.weight.data.set_(torch.ones(8, 8))


def _transposed(self):
    self.layer.weight.data.t_()


def _frozen(self):
    self.layer.weight.requires_grad_(False)


def _named(self):
    self.layer.weight.seen = True


def _hooked(self):
    self.layer.weight.register_hook(lambda grad: grad)


def _foreach(self):
    torch._foreach_mul_([*self.layer.parameters()], 2.0)


def _replaced(self):
    self.layer.weight = nn.Parameter(self.layer.weight * 2)


def _deleted(self):
    del self.layer.bias
    self.layer.bias = None


def _swapped(self):
    torch.utils.swap_tensors(self.layer.bias, nn.Parameter(torch.ones(8)))


def _loaded(self):
    self.layer.load_state_dict({k: v + 1 for k, v in self.layer.state_dict().items()})


def _vector(self):
    nn.utils.vector_to_parameters(torch.ones(72), self.layer.parameters())


def _clamped_by_view(self):
    self.layer.weight.view(-1)[:3].clamp_(0, 0)


PARAMETERS = (
    _no_grad_write, _data_write, _data_swapped, _grad_set, _slice_written, _out, _initialized, _by_numpy,
    _by_dlpack, _by_set, _by_array, _by_storage, _by_apply, _by_map, _resized, _emptied, _set, _transposed,
    _frozen, _named, _hooked, _foreach, _replaced, _deleted, _swapped, _loaded, _vector, _clamped_by_view,
)  # fmt: skip


@pytest.mark.live
@pytest.mark.parametrize("run", ["fake", "real", "failed on real"])
@pytest.mark.parametrize("change", PARAMETERS, ids=lambda f: f.__name__.strip("_"))
def test_parameters(change: Any, run: str) -> None:
    model = Changing(change, run)
    weights = dict(model.named_parameters())
    before = {name: Looks.of(p) for name, p in weights.items()}
    profiled(model)
    assert dict(model.named_parameters()).keys() == weights.keys()
    assert all(p is weights[name] for name, p in model.named_parameters())
    assert {name: Looks.of(p) for name, p in weights.items()} == before
    assert type(model.layer.bias) is nn.Parameter


def test_a_set_is_gone_through_in_the_order_it_was() -> None:
    """Which hangs on how large it has been."""

    def changes(self: Any) -> None:
        self.seen.add(99)
        self.seen.discard(4995)

    model = Changing(changes)
    model.seen = set(range(5000))
    model.seen.difference_update(range(4990))
    model.seen |= {2**13 + 4992, 3 * 2**13 + 4992}
    before = list(model.seen)
    profiled(model)
    assert list(model.seen) == before


@pytest.mark.parametrize("values", [False, True], ids=["fake", "real"])
def test_a_view_that_a_step_of_training_writes_to(values: bool) -> None:
    """Which makes it, and what it is a view of, results of the weights."""

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("table", torch.zeros(2, 4))
            self.row = self.table[0]  # type: ignore[index]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x)
            self.row.copy_(out.mean(0))
            return out + self.row * (float(out.detach().sum()) if values else 1)

    model = Keeps()
    kept = [model.row, model.table]
    before = list(map(Looks.of, kept))  # type: ignore[arg-type]
    for _ in range(2):
        profile = opgraph.profile(model, torch.ones(2, 4), mode="train", loss="sum")
        assert not [remark for remark in profile.remarks if remark.code == "state"]
        assert list(map(Looks.of, kept)) == before  # type: ignore[arg-type]
        assert model.row._base is model.table
    model(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("tracer", ["auto", "export", "dynamo"])
def test_a_tensor_that_was_let_be_one_of_the_runs(tracer: str) -> None:
    """As FSDP lets its flat weights be: those of the run have no memory."""
    if tracer == "export" and torch.__version__ < "2.15":
        pytest.skip("torch's export keeps its own graph there, which a remark says")

    class Lets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.kept = [torch.ones(4, 4), nn.Parameter(torch.ones(4, 4))]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for kept in self.kept:
                kept.data = self.layer.weight.detach()
            return self.layer(x)  # type: ignore[no-any-return]

    model = Lets()
    before = list(map(Looks.of, model.kept))
    profile = opgraph.profile(model, torch.ones(2, 4), tracer=tracer)
    assert not [remark for remark in profile.remarks if remark.code == "state"]
    assert list(map(Looks.of, model.kept)) == before


class Carrying(nn.Module):
    """Its weight carries what can be changed, as a quantized one does."""

    def __init__(self, values: bool) -> None:
        super().__init__()
        self.layer, self.values = nn.Linear(8, 8), values
        weight: Any = self.layer.weight
        weight.log, weight.state, weight.scales = [], Plain(), torch.ones(8)

    def forward(self, x: Tensor) -> Tensor:
        weight: Any = self.layer.weight
        weight.log.append(1)
        weight.state.step()
        with torch.no_grad():
            weight.scales.mul_(2)
        y = self.layer(x)
        return y * y.sum().item() if self.values else y


@pytest.mark.parametrize("options", [{}, {"values": True}, {"mode": "train"}, {"tracer": "dynamo"}])
def test_what_a_parameter_carries(options: dict[str, Any]) -> None:
    model = Carrying(options.get("values", False))
    carried = vars(model.layer.weight)
    before = _seen(carried)
    profiled(model, **{k: v for k, v in options.items() if k != "values"})
    assert same(_seen(carried), before)


def test_a_parameter_that_wraps_tensors_and_what_it_carries() -> None:
    wraps = TwoTensor(torch.ones(8, 8), torch.ones(8, 8))
    wraps.log = []
    model = Changing(lambda self: self.layer.weight.log.append(1), "fake")
    model.layer.weight = nn.Parameter(wraps)
    kept = model.layer.weight.log = []
    profiled(model)
    assert kept == []
    assert model.layer.weight.a.tolist() == torch.ones(8, 8).tolist()


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_gradient_that_a_result_retained(mode: str, run: str) -> None:
    model = Changing(lambda self: setattr(self.result, "grad", None), run)
    result = torch.ones(2, requires_grad=True) * 2
    result.retain_grad()
    result.sum().backward()
    model.result, grad = result, result.grad
    profiled(model, mode=mode)
    assert result.grad is grad
    assert result.grad.tolist() == [1, 1]


@pytest.mark.parametrize("run", ["fake", "real"])
def test_a_sparse_parameter(run: str) -> None:
    """For which nothing stands in."""

    def changes(self: Any) -> None:
        self.sparse.data, self.sparse.own = torch.eye(2).to_sparse(), 1

    model = Changing(changes, run)
    model.sparse = nn.Parameter(torch.eye(3).to_sparse(), requires_grad=False)
    before = _seen(model.sparse)
    profiled(model)
    assert same(_seen(model.sparse), before)


@pytest.mark.parametrize("run", ["fake", "real"])
def test_tensors_without_values(run: str) -> None:
    def changes(self: Any) -> None:
        self.kept["one"].unsqueeze_(0)
        self.kept["two"].data = torch.ones(7, device="meta")
        self.kept["three"].resize_(100)

    def looks() -> Any:
        sizes = [(t.shape, t.stride(), t.untyped_storage().nbytes()) for t in kept.values()]
        return sizes, [t.untyped_storage()._cdata for t in kept.values()]

    model = Changing(changes, run)
    kept = {name: torch.ones(2, 4, device="meta") for name in ("one", "two", "three")}
    model.kept, before = kept, looks()
    assert not [each for each in profiled(model).remarks if each.code == "state"]
    assert looks() == before


def test_a_gradient_that_was_there_is_there_again() -> None:
    model = Changing(lambda self: self.layer.weight.grad.add_(1))
    model.layer(X).sum().backward()
    before = Looks.of(model.layer.weight)
    profiled(model)
    assert Looks.of(model.layer.weight) == before


@pytest.mark.parametrize("run", ["fake", "real", "failed on real"])
@pytest.mark.parametrize("of", ["weight", "kept"])
def test_a_tensor_that_had_hooks_has_those_alone(of: str, run: str) -> None:
    def hooked(self: Any) -> None:
        tensor = self.kept if of == "kept" else self.layer.weight
        tensor.register_hook(_twice)
        tensor.register_post_accumulate_grad_hook(print)

    model = Changing(hooked, run)
    model.kept = torch.ones(8, requires_grad=True)
    tensor: Any = model.kept if of == "kept" else model.layer.weight
    tensor.register_hook(_plus)
    tensor.register_post_accumulate_grad_hook(repr)
    profiled(model)
    assert [*tensor._backward_hooks.values()] == [_plus]
    assert [*tensor._post_accumulate_grad_hooks.values()] == [repr]


class Switched:
    """How timm has settings: an object of a class sets a global as it is made and left."""

    def __init__(self, value: bool) -> None:
        global SWITCH
        self.before, SWITCH = SWITCH, value


SWITCH = False


def test_what_a_class_of_a_library_sets_as_an_object_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library: Any = ModuleType("switched")
    library.__file__ = "/site-packages/switched.py"
    library.SWITCH = False
    code = Switched.__init__.__code__
    made = type(Switched.__init__)(code, vars(library))
    library.Switched = type("Switched", (), {"__init__": made, "__module__": "switched"})
    monkeypatch.setitem(sys.modules, "switched", library)
    monkeypatch.setitem(globals(), "switched", library)
    profiled(Changing(lambda _: switched.Switched(True)))  # type: ignore[name-defined] # noqa: F821
    assert library.SWITCH is False


ALONE = """
import os, tempfile, torch
import opgraph
before = dict(os.environ)
opgraph.profile(torch.nn.ReLU(), torch.ones(2))
assert dict(os.environ) == before, os.environ.keys() - before.keys()
assert tempfile.tempdir is None
"""


@pytest.mark.slow
def test_the_first_profile_leaves_the_environment_as_it_was() -> None:
    """It imports torch's compiler, which notes there where its files are."""
    subprocess.run([sys.executable, "-c", ALONE], check=True)


def test_a_backward_through_a_forward_before_the_profile_still_works() -> None:
    model = Changing(_no_grad_write)
    result = model.layer(X.clone().requires_grad_()).sum()
    profiled(model)
    result.backward()
    assert model.layer.weight.grad is not None


class Remembering(nn.Module):
    """Has its last result, with all that made it, and looks at values if it `reads`."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.layer, self.last, self.reads = nn.Linear(8, 8), torch.ones(4, 8), reads

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x).tanh() * self.last
        return self.last * self.last.sum().item() if self.reads else self.last


@pytest.mark.parametrize("reads", [False, True])
def test_a_backward_after_a_step_that_went_through_results_from_before_it(*, reads: bool) -> None:
    plain = Remembering(reads=reads)
    model = copy.deepcopy(plain)
    for each in (plain, model):
        each(X)
        if each is model:
            profile = opgraph.profile(model, X, mode="train", loss=torch.mean)
            assert any("ends at results" in remark.text for remark in profile.remarks)
        each(X).sum().backward()
    assert torch.equal(model.layer.weight.grad, plain.layer.weight.grad)


def test_a_step_without_results_from_before_frees_what_it_saves() -> None:
    model = Remembering(reads=False)
    with torch.no_grad():
        model(X)
    remarks = opgraph.profile(model, X, mode="train", loss=torch.mean).remarks
    assert not any("results that were there before" in remark.text for remark in remarks)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_weights_that_a_context_keeps_are_computed_by_each_run(mode: str) -> None:
    def made(*, before: bool) -> opgraph.Profile:
        model = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        with nn.utils.parametrize.cached():
            result = model(X) if before else X
            kept = model.weight if before else None
            profile = opgraph.profile(model, X, mode=mode)
            if before:
                assert model.weight is kept
                result.sum().backward()
                assert all(p.grad is not None for p in model.parameters())
        return profile

    first, second = made(before=False), made(before=True)
    assert second.totals == first.totals
    assert second.remarks == first.remarks


def test_a_checkpoint_before_the_profile_is_not_run_for_it() -> None:
    runs = []
    x = checkpoint(
        lambda x: runs.append(1) or x.sin(), X.clone().requires_grad_(), use_reentrant=False
    )
    opgraph.profile(nn.ReLU(), x)
    assert runs == [1]


def test_a_function_of_a_library_may_lead_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(functional.tanhshrink), "__wrapped__", functional.tanhshrink)
    monkeypatch.setitem(globals(), "shrunk", functional.tanhshrink)
    model = Changing(lambda self: shrunk(X))  # type: ignore[name-defined] # noqa: F821
    assert opgraph.profile(model, X).graph.failed is None


class Drawn:
    """An object whose dictionary is made when somebody asks for it."""

    __slots__ = ()

    @property
    def __dict__(self) -> dict[str, int]:  # type: ignore[override]
        return {"count": 1}


def test_what_answers_as_before_is_no_change() -> None:
    model = nn.ReLU()
    model.drawn, model.rows = Drawn(), sqlite3.connect(":memory:")
    model.rows.close()
    assert not opgraph.profile(model, X).model.notes


@pytest.mark.slow  # the import of pandas
def test_what_an_extension_computes_is_not_asked_for() -> None:
    from pandas import Index

    model = nn.ReLU()
    model.index = Index(np.arange(8)[::-1])
    opgraph.profile(model, X)
    assert not model.index._engine.is_mapping_populated


class Variational(nn.Module):
    """A mean that is set from the prior at the first call, as Gaussian processes do."""

    def __init__(self) -> None:
        super().__init__()
        self.variational_mean = nn.Parameter(torch.randn(8))
        self.register_buffer("initialized", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        prior = x.mean(0)
        if not self.initialized.item():
            self.variational_mean.data.copy_(prior)
            self.variational_mean.data.add_(torch.randn_like(prior), alpha=1e-3)
            self.initialized.fill_(1)
        return x * self.variational_mean if prior.sum().item() else x


def test_a_variational_mean_is_kept() -> None:
    model = Variational()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    states = torch.get_rng_state()
    profiled(model)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(states, torch.get_rng_state())


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.BatchNorm1d(8, momentum=None),
                                   nn.utils.spectral_norm(nn.Linear(8, 8))])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_statistics_of_layers_that_train_in_forward(layer: nn.Module, run: str) -> None:
    def change(self: Any) -> None:
        self.other.train()
        self.other(X)

    model = Changing(change, run)
    model.other = layer
    before = {k: (Looks.of(v), v) for k, v in model.state_dict(keep_vars=True).items()}
    profiled(model)
    assert {
        k: (Looks.of(v), v) for k, v in model.state_dict(keep_vars=True).items()
    }.keys() == before.keys()
    assert all(Looks.of(v) == look for look, v in before.values())


# Tensors that are neither parameter nor buffer, wherever they are kept.

GLOBAL = torch.zeros(3)
GLOBALS = [torch.zeros(3), {"one": torch.zeros(3)}]
HELD = SimpleNamespace(cache=torch.zeros(3), list=[], count=0)
COUNT = 0
NUMBERS: list[int] = []
MEMORY: dict[Any, Any] = {}
CONTEXT: ContextVar[Any] = ContextVar("CONTEXT")
CONTEXT.set([1])


class Plain:
    """An object that is no module."""

    shared: Any = torch.zeros(3)
    seen = 0
    by_name: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.cache = torch.zeros(3)
        self.states: dict[str, Any] = {"list": [torch.zeros(3)]}
        self.count = 0

    def step(self) -> None:
        self.cache += 1
        self.states["list"][0].add_(1)
        self.states["list"].append(torch.ones(3))
        self.count += 1
        type(self).seen += 1
        Plain.shared += 1
        self.by_name[str(self.count)] = self.cache


class Slotted:
    """One whose attributes are in slots."""

    __slots__ = ("cache", "count", "later")

    def __init__(self) -> None:
        self.cache, self.count = torch.zeros(3), 0

    def step(self) -> None:
        self.cache.add_(1)
        self.count += 1
        self.later = self.cache + 1


class Tuple(NamedTuple):
    cache: Tensor
    own: list[int]


class Words(dict):
    """A dictionary with a mind of its own."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.lower())

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.lower(), value)


def _global_counter() -> None:
    global COUNT
    COUNT += 1
    GLOBAL.add_(1)
    GLOBALS[0].mul_(3)
    GLOBALS[1]["one"] = GLOBALS[1]["one"] + 1
    GLOBALS.append(COUNT)
    NUMBERS.append(COUNT)
    HELD.cache.add_(1)
    HELD.list.append(torch.ones(2))
    HELD.count += 1


def _default(x: Tensor, seen: list[int] = []) -> None:  # noqa: B006  (that is what is tested)
    seen.append(1)


@lru_cache
def _table(length: int) -> Tensor:
    return torch.arange(length)


def snapshot() -> Any:
    """All of it, copied."""
    return copy.deepcopy((
        COUNT, GLOBAL, GLOBALS, vars(HELD), NUMBERS, MEMORY, Plain.shared, Plain.seen, Plain.by_name,
        _default.__defaults__, vars(_default), _table.cache_info().currsize, CONTEXT.get(),
    ))  # fmt: skip


def same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor):
        return type(one) is type(two) and bits(one) == bits(two) and one.shape == two.shape
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray):
        return one.tobytes() == two.tobytes()
    return bool(one == two)


def _closure() -> Any:
    cache, count = torch.zeros(3), 0

    def change(self: Any) -> None:
        nonlocal count, cache
        count += 1
        cache.add_(1)
        cache = cache * 2

    change.look = lambda: (count, cache)
    return change


def _attribute(make: Any, change: Any) -> Any:
    """A module with one attribute, which `change` changes."""

    def held(self: Any) -> None:
        change(self.held)

    held.make = make
    return held


class Other(Plain):
    """What one becomes."""


class Structure(ctypes.Structure):
    """What C knows of."""

    _fields_ = (("fields", ctypes.c_double * 3),)


class Working(threading.Thread):
    """A thread that keeps something of its own."""

    count = 1

    def __init__(self) -> None:
        super().__init__()
        self.args: list[int] = []


class Measured(np.ndarray):
    """An array with something beside it."""

    of: ClassVar[Any] = [0]

    def tobytes(self, *args: Any) -> Any:
        raise NotImplementedError("units have no bytes")


def _taken() -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock


WEAKLY = Plain()


def _arrays() -> Any:
    """One that may not be written to, the memory of a tensor, one with names, and how a text is written."""
    read_only = np.zeros(4)
    read_only.setflags(write=False)
    return [
        read_only,
        torch.zeros(2).numpy(),
        np.zeros(2, [("a", "i4")]),
        io.TextIOWrapper(io.BytesIO()),
    ]


def _changed_arrays(held: Any) -> None:
    held[0].setflags(write=True)
    held[0][1] = held[1][1] = 1
    held[2].dtype.names = ("b",)
    held[3].reconfigure(errors="ignore")


class Kind(Enum):
    """Members that can be changed."""

    ONE: ClassVar[Any] = [1]


class Renamed:
    """A class that says to be Python's own."""


Renamed.__module__ = "collections"


def _container_changes(held: Any) -> None:
    if isinstance(held, (list, deque)):
        held[0].add_(1)
        held.append(torch.ones(1))
    else:
        held["a"].add_(1)
        held["b"] = 1
        held.pop("a")


class Odd(Tensor):
    """A class of one's own."""


class Frozen(frozenset[Any]):
    """Another one."""


SPARSE: dict[str, Callable[[], Tensor]] = {
    "coo": lambda: torch.eye(4).to_sparse(),
    "coo, not put together": lambda: torch.sparse_coo_tensor(
        [[0, 0], [1, 1]], [1.0, 2.0], (4, 4), check_invariants=False
    ),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
}


def _values(held: Tensor) -> Tensor:
    return held._values() if held.is_sparse else held.values()


HOLDERS: dict[str, tuple[Any, Any]] = {
    "tensor": (lambda: torch.zeros(3), lambda held: held.add_(1)),
    "signs": (lambda: torch.zeros(3) + 1, lambda held: torch._C._set_neg(held, not held.is_neg())),
    "class of a tensor": (lambda: torch.zeros(3), lambda held: setattr(held, "__class__", Odd)),
    "storage": (lambda: torch.zeros(3).untyped_storage(), lambda held: held.__setitem__(0, 1)),
    "error": (lambda: ValueError(1), lambda held: (setattr(held, "args", (2,)), held.add_note("a"))),
    "random numbers of the system": (random.SystemRandom, lambda held: held.random()),
    "view": (lambda: torch.zeros(3)[1:], lambda held: held.mul_(0).add_(2)),
    "sparse": (lambda: torch.eye(3).to_sparse(), lambda held: held.mul_(2)),
    **{f"{name}, {how}": (make, change) for name, make in SPARSE.items() for how, change in (
        ("by its values", lambda held: (_values(held).mul_(2), held.mul_(2))),
        ("and by its values", lambda held: (held.mul_(2), _values(held).mul_(2))),
        ("emptied", lambda held: (_values(held).mul_(2), held.zero_())),
        ("exchanged", lambda held: setattr(held, "data", held * 3)))},
    "another sparse one": (lambda: torch.eye(3).to_sparse(),
                           lambda held: setattr(held, "data", torch.eye(2).to_sparse())),
    "list": (lambda: [torch.zeros(3)], _container_changes),
    "deque": (lambda: deque([torch.zeros(3)], maxlen=1), _container_changes),
    "dict": (lambda: {"a": torch.zeros(3)}, _container_changes),
    "ordered": (lambda: OrderedDict(a=torch.zeros(3)), _container_changes),
    "default": (lambda: defaultdict(list, a=torch.zeros(3)), _container_changes),
    "subclass": (lambda: Words(a=torch.zeros(3)), _container_changes),
    "counter": (lambda: Counter("aab"), lambda held: held.update("ab")),
    "set": (lambda: {1, 2}, lambda held: held.add(3)),
    "order": (lambda: {"a": 1, "b": 2}, lambda held: held.update(a=held.pop("a"))),
    "plain": (Plain, Plain.step),
    "slots": (Slotted, Slotted.step),
    "nested": (lambda: {"one": [Plain(), (Slotted(),)]}, lambda held: held["one"][1][0].step()),
    "tuple": (lambda: Tuple(torch.zeros(3), [1]), lambda held: (held.cache.add_(1), held.own.append(2))),
    "partial": (lambda: partial(Plain.step, Plain()), lambda held: held()),
    "method": (lambda: Plain().step, lambda held: held()),
    "namespace": (lambda: SimpleNamespace(n=0), lambda held: setattr(held, "n", held.n + 1)),
    "array": (lambda: np.zeros(4), lambda held: held.__iadd__(1)),
    "module": (lambda: [nn.Linear(2, 2)], lambda held: held[0].weight.mul_(2)),
    "meta": (lambda: torch.zeros(3), lambda held: setattr(held, "mark", 1)),
    "keys": (lambda: {Plain(): 1}, lambda held: next(iter(held)).step()),
    "own frozen set": (lambda: Frozen([Plain()]), lambda held: next(iter(held)).step()),
    "weak": (lambda: weakref.ref(WEAKLY), lambda held: held().step()),
    "weak values": (lambda: weakref.WeakValueDictionary(a=WEAKLY), lambda held: held["a"].step()),
    "weak keys": (lambda: weakref.WeakKeyDictionary({WEAKLY: 1}), lambda held: next(held.keys()).step()),
    "built-in method": (lambda: [1].append, lambda held: held(2)),
    "class": (Plain, lambda held: setattr(held, "__class__", Other)),
    "dictionary": (Plain, lambda held: setattr(held, "__dict__", {"count": 2})),
    "thread": (Working, lambda held: (held.args.append(1), setattr(held, "count", 2))),
    "polynomial": (lambda: np.poly1d([1.0, 2.0]), lambda held: held.__setitem__(0, 3.0)),
    "attribute of an array": (lambda: np.ones(2).view(Measured), lambda held: held.of.append(1)),
    "memory of an array of another class": (
        lambda: np.ones(2).view(Measured).copy(),
        lambda held: held.__setitem__(0, 5),
    ),
    "text": (lambda: io.StringIO("a"), lambda held: held.write("text")),
    "bytes": (lambda: bytearray(2), lambda held: held.append(1)),
    "element of XML": (lambda: ET.XML("<a><b/></a>"),
                       lambda held: (held.set("k", "v"), held.remove(held[0]))),
    "numbers": (lambda: array("i", [1]), lambda held: held.append(1)),
    "lock": (threading.Lock, lambda held: held.acquire(blocking=False)),
    "taken lock": (_taken, lambda held: held.locked() and held.release()),
    "own lock": (threading.RLock, lambda held: held.acquire()),
    "semaphore": (lambda: threading.Semaphore(9), lambda held: held.acquire()),
    "event": (threading.Event, lambda held: held.set()),
    "queue": (SimpleQueue, lambda held: held.put(1)),
    "event of asyncio": (asyncio.Event, lambda held: held.set()),
    "queue of asyncio": (asyncio.Queue, lambda held: held.put_nowait(1)),
    "number of C": (lambda: ctypes.c_int(1), lambda held: setattr(held, "value", 2)),
    "structure of C": (Structure, lambda held: held.fields.__setitem__(1, 2)),
    "smaller text of C": (
        lambda: ctypes.create_string_buffer(b"abcd" * 999),
        lambda held: ctypes.resize(held, 3996 + 9) or ctypes.resize(held, 3997),
    ),
    "larger text of C": (lambda: ctypes.create_string_buffer(4), lambda held: ctypes.resize(held, 64)),
    "map": (lambda: mmap(-1, 64), lambda held: held.write(b"x")),
    "place in a map": (lambda: mmap(-1, 64), lambda held: held.read(4)),
    "buffer": (lambda: memoryview(bytearray(2)), lambda held: held.__setitem__(0, 1)),
    "proxy": (lambda: weakref.proxy(WEAKLY), lambda held: held.step()),
    "file": (lambda: io.BufferedReader(io.BytesIO(b"a\nb")), lambda held: held.readline()),
    "logger": (lambda: logging.getLogger("opgraph.held"), lambda held: held.setLevel(7)),
    "shape of an array": (lambda: np.zeros(4), lambda held: setattr(held, "shape", (2, 2))),
    "array of objects": (lambda: np.array([1, "a"], dtype=object), lambda held: held.__setitem__(0, 2)),
    "resized array": (lambda: np.ones((2, 2)), lambda held: held.resize(8, refcheck=False)),
    "array behind a view": (lambda: np.arange(9)[2:4], lambda held: held.base.__setitem__(7, 9)),
    "tensor behind an array": (torch.zeros(4)[:2].numpy, lambda held: held.base.unsqueeze_(0)),
    "frozen array": (lambda: np.zeros(4), lambda held: held.setflags(write=False)),
    "arrays and text": (_arrays, _changed_arrays),
    "weak set": (weakref.WeakSet, lambda held: held.add(WEAKLY)),
    "enumeration": (lambda: Kind.ONE, lambda held: (held.value.append(1), setattr(held, "own", 1))),
    "read-only view": (lambda: MappingProxyType({"a": [1]}), lambda held: held["a"].append(2)),
    "view of values": ({"a": [1]}.values, lambda held: next(iter(held)).append(2)),
    "shared number": (lambda: Value("i", 1), lambda held: setattr(held, "value", 2)),
    "shared event": (SharedEvent, lambda held: held.set()),
    "decimal context": (lambda: decimal.Context(prec=5), lambda held: setattr(held, "prec", 9)),
    "template": (lambda: Template("a"), lambda held: setattr(held, "template", "b")),
    "handler": (logging.NullHandler, lambda held: held.setLevel(7)),
    "module of Python": (lambda: ModuleType("kept"), lambda held: setattr(held, "own", 1)),
    "class of Python": (Counter, lambda held: setattr(type(held), "own", 1)),
    "name of a class": (Renamed, lambda held: setattr(type(held), "__name__", "other")),
    "function of torch": (lambda: functional.relu6, lambda held: setattr(held, "calls", 1)),
    "class of tensors": (lambda: nn.Parameter(torch.ones(2)), lambda held: setattr(type(held), "own", 1)),
}  # fmt: skip


def _seen(held: Any) -> Any:
    """A copy of all that a holder holds."""
    if isinstance(held, torch.UntypedStorage):
        return held.tolist()
    if isinstance(held, Working):
        return held.args[:], held.count
    if isinstance(held, np.poly1d):
        return held.c.tolist()
    if isinstance(held, Measured):
        return held.of[:], held.tolist()
    if isinstance(held, ValueError):
        return held.args, getattr(held, "__notes__", None)
    if isinstance(held, (Counter, Renamed, nn.Parameter)):
        return (
            type(held).__name__,
            vars(type(held)).get("own"),
            bits(torch.as_tensor(len(vars(held)))),
        )
    if isinstance(held, (weakref.WeakSet, Kind)):
        return list(held.value if isinstance(held, Kind) else held), len(vars(held))
    if isinstance(held, (MappingProxyType, type({}.values()))):
        return copy.deepcopy(list(held.values() if isinstance(held, MappingProxyType) else held))
    if isinstance(held, (decimal.Context, Synchronized)):
        return str(held)
    if isinstance(held, ET.Element):
        return ET.tostring(held)
    if hasattr(held, "is_set"):
        return held.is_set()
    if isinstance(held, logging.Handler):
        return held.level
    if isinstance(held, set):
        return set(held)
    if isinstance(held, weakref.ref):
        return _seen(held())
    if isinstance(held, weakref.ProxyType):
        return _seen(held.__repr__.__self__)
    if hasattr(held, "acquire"):
        return getattr(held, "_value", None), repr(held).partition(" at ")[0]
    if isinstance(held, SimpleQueue):
        return held.qsize()
    if isinstance(held, (ctypes._SimpleCData, ctypes.Structure, memoryview)):
        return bytes(held)
    if isinstance(held, mmap):
        return held[:], held.tell()
    if isinstance(held, io.TextIOWrapper):
        return held.errors
    if isinstance(held, io.BufferedReader):
        return held.tell()
    if isinstance(held, logging.Logger):
        return held.level, held.filters[:]
    if isinstance(held, io.StringIO):
        return held.getvalue(), held.tell()
    if isinstance(held, (bytearray, array)):
        return bytes(held)
    if isinstance(held, Plain):
        return type(held).__name__, _seen(vars(held))
    if isinstance(held, Tensor):
        plain: Any = held.detach().clone().to_dense()
        if held.layout is not torch.strided:
            plain = plain, held.is_sparse and held.is_coalesced(), _values(held).tolist()
        return plain, dict(vars(held)), held._version, type(held).__name__, held.is_neg()
    if isinstance(held, partial):
        return _seen(held.args)
    if hasattr(held, "__self__"):
        return _seen(held.__self__)
    if isinstance(held, nn.Module):
        return copy.deepcopy(held.state_dict())
    if isinstance(held, np.ndarray):
        behind = () if held.base is None else held.base.tolist()
        return held.tolist(), held.shape, held.flags.writeable, held.dtype.names, behind
    if isinstance(held, dict):
        return {k: (_seen(k), _seen(v)) for k, v in held.items()}
    if isinstance(held, (list, tuple, deque, frozenset)):
        return [_seen(v) for v in held]
    if isinstance(held, Slotted):
        return [(n, _seen(getattr(held, n))) for n in held.__slots__ if hasattr(held, n)]
    return {k: _seen(v) for k, v in vars(held).items()} if hasattr(held, "__dict__") else held


@pytest.mark.filterwarnings("ignore:Sparse (CSR|BSR|CSC|BSC) tensor support is in beta")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kind", HOLDERS)
def test_what_an_attribute_holds(kind: str, run: str) -> None:
    make, change = HOLDERS[kind]
    model = Changing(lambda self: change(self.held), run)
    model.held = make()
    held, before = model.held, _seen(model.held)
    globals_before = snapshot()
    notes = profiled(model).model.notes
    assert model.held is held
    if any("or another thread did" in note for note in notes):  # as a worker of pytest has
        assert not alone()
        return
    assert same(_seen(held), before)
    assert same(snapshot(), globals_before)


class Settings:
    """Has its attributes in a dictionary of another kind."""

    __registry__: ClassVar[list[Any]] = []
    __counter__ = SimpleNamespace(n=0)

    def __init__(self) -> None:
        self.__dict__ = OrderedDict(n=1)


class Scripted(nn.Module):
    """A module that torch's own interpreter runs, with one within, and a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.BatchNorm1d(8), 1

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return self.norm(x) * self.calls


def test_what_scripted_modules_keep() -> None:
    held = torch.jit.script(Scripted())
    assert not opgraph.profile(nn.Sequential(held, nn.Linear(8, 8)), X).model.notes
    assert (held.calls, held.training, held.norm.training) == (1, True, True)
    assert int(held.norm.num_batches_tracked) == 0


def test_what_is_kept_beside_that_by_which_a_thing_is_known() -> None:
    held = [partial(int), OrderedDict(a=1), Settings(), io.StringIO()]
    held[1].n = 1
    factory = defaultdict(list)

    def change(self: Any) -> None:
        self.factory.default_factory = None
        type(self.held[2]).__registry__.append(1)
        type(self.held[2]).__counter__.n += 1
        for each in self.held:
            each.n = getattr(each, "n", 0) + 1

    model = Changing(change, "fake")
    model.held, model.factory = held, factory
    profiled(model)
    assert [getattr(each, "n", None) for each in held] == [None, 1, 1, None]
    assert (factory.default_factory, Settings.__registry__) == (list, [])
    assert Settings.__counter__.n == 0


class Everything(Changing):
    """Changes what is outside of the module tree."""

    def forward(self, x: Tensor) -> Tensor:
        _global_counter()
        _default(x)
        _table(3)
        _default.seen = x
        Plain.by_name["x"] = x
        Plain.shared = x
        MEMORY[id(self)] = x
        CONTEXT.get().append(2)
        CONTEXT.set(x)
        return super().forward(x)


@pytest.mark.parametrize("run", RUNS)
def test_globals_classes_defaults_and_caches(run: str) -> None:
    before = snapshot()
    profiled(Everything(lambda self: None, run))
    assert same(snapshot(), before)


@pytest.mark.parametrize("run", RUNS)
def test_closures(run: str) -> None:
    change = _closure()
    cache = change.look()[1]
    profiled(Changing(change, run))
    count, kept = change.look()
    assert count == 0
    assert kept is cache
    assert torch.equal(kept, torch.zeros(3))


@pytest.mark.parametrize("run", RUNS)
def test_what_a_module_is_made_of(run: str) -> None:
    def change(self: Any) -> None:
        self.count = getattr(self, "count", 0) + 1
        self.register_buffer("late", torch.ones(2), persistent=False)
        self.add_module("new", nn.Linear(1, 1))
        self.register_forward_hook(lambda *_: None)
        self.layer.register_full_backward_hook(lambda *_: None)
        self.layer.train()
        nn.modules.module.register_module_forward_hook(lambda *_: None)
        type(self).calls = getattr(type(self), "calls", 0) + 1

    model = Changing(change, run)
    before = [{k: copy.copy(v) for k, v in vars(m).items()} for m in model.modules()]
    profiled(model)
    assert [vars(m) for m in model.modules()] == before
    assert not nn.modules.module._global_forward_hooks
    assert not hasattr(Changing, "calls")


class Keeping(nn.Module):
    """A cache of keys in an object that is none of the tree's."""

    def __init__(self, cache: Any) -> None:
        super().__init__()
        self.layer, self.cache = nn.Linear(8, 8), cache

    def forward(self, x: Tensor) -> Tensor:
        self.cache.list.append(self.layer(x))
        return torch.cat(self.cache.list)


@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo", "export"])
def test_a_cache_outside_of_the_tree_does_not_grow(tracer: str) -> None:
    model = Keeping(SimpleNamespace(list=[]))
    expected = model.layer(X)
    opgraph.profile(model, X, tracer=tracer)
    result = model(X)
    assert type(result) is Tensor
    assert torch.equal(result, expected)


def test_arguments_that_are_objects() -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor, cache: Any) -> Tensor:
            cache.cache.add_(1)
            cache.list.append(x)
            cache.count += 1
            return x + cache.cache.sum()

    cache = SimpleNamespace(cache=torch.zeros(3), list=[], count=0)
    profiled(Reads(), X, cache)
    assert (cache.list, cache.count) == ([], 0)
    assert torch.equal(cache.cache, torch.zeros(3))


# The process.


class Drawing(nn.Module):
    """Draws from every generator there is, and leaves the process otherwise than it was."""

    def __init__(self) -> None:
        super().__init__()
        self.torchs = torch.Generator().manual_seed(1)
        self.pythons = random.Random(1)
        self.numpys = np.random.default_rng(1)
        self.legacy = np.random.RandomState(1)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.rand(8, generator=self.torchs) + torch.rand(8)
        number = self.pythons.random() + random.random()
        number += self.numpys.random() + self.legacy.rand() + np.random.rand()
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        np.seterr(all="ignore")
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        torch.set_float32_matmul_precision("medium")
        torch.autograd.set_detect_anomaly(True)
        torch.set_autocast_enabled("cpu", True)
        torch.set_grad_enabled(True)
        torch.set_printoptions(precision=2)
        torch.backends.cuda.enable_flash_sdp(False)
        os.environ["OPGRAPH_TESTED"] = "1"
        os.chdir("/")
        sys.path.append("/nowhere")
        sys.setrecursionlimit(5000)
        sys.setswitchinterval(0.01)
        gc.set_threshold(1234)
        gc.freeze()
        threading.current_thread().name = "another"
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
        torch.set_flush_denormal(True)
        os.umask(0o011)
        os.nice(1)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (99, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        signal.setitimer(signal.ITIMER_REAL, 1000)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()
        decimal.getcontext().prec = 3
        decimal.setcontext(decimal.Context(prec=5))
        asyncio.set_event_loop(LOOP)
        socket.setdefaulttimeout(3)
        sys.set_int_max_str_digits(9999)
        threading.setprofile(print)
        torch.serialization.add_safe_globals([Plain])
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        torch._C._set_fwd_grad_enabled(False)
        torch.jit.set_fusion_strategy([("STATIC", 1)])
        torch._C._jit_set_profiling_executor(False)
        torch._C._jit_set_profiling_mode(False)
        return x * number + noise


TWO = 2.0
LOOP = asyncio.SelectorEventLoop()
LOOP.close()


INTERPRETER: tuple[tuple[Callable[[Any], Any], Any], ...] = (
    (torch.jit.set_fusion_strategy, []), (torch._C._jit_set_profiling_executor, True),
    (torch._C._jit_set_profiling_mode, True),
)  # fmt: skip


def process() -> Any:
    umask = os.umask(0o022)
    os.umask(umask)
    interpreter = []
    for put, other in INTERPRETER:  # nothing else says it
        interpreter.append(put(other))
        put(interpreter[-1])
    return (
        umask, interpreter, os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE),
        signal.getitimer(signal.ITIMER_REAL), signal.pthread_sigmask(signal.SIG_BLOCK, []), time.tzname,
        decimal.getcontext(), decimal.getcontext().prec, asyncio.get_event_loop_policy()._local._loop,
        socket.getdefaulttimeout(), sys.get_int_max_str_digits(), threading.getprofile(),
        set(torch.serialization.get_safe_globals()), sys.getdlopenflags(), torch._C._is_fwd_grad_enabled(),
        torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()), np.geterr(),
        torch.get_default_dtype(), torch.get_default_device(), torch.get_deterministic_debug_mode(),
        torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision(), torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.backends.cuda.flash_sdp_enabled(),
        dict(os.environ), Path.cwd(), list(sys.path), sys.getrecursionlimit(), str(torch.ones(1) / 3),
        torch.overrides._get_current_function_mode_stack(), sys.getswitchinterval(), gc.get_threshold(),
        signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGINT), locale.setlocale(locale.LC_ALL),
        sys.float_info.min / TWO, gc.get_freeze_count() > 0, threading.current_thread().name,
    )  # fmt: skip


def test_random_numbers_and_settings_of_the_process() -> None:
    model = Drawing()
    opgraph.profile(nn.Linear(8, 8), (X,))  # imports, which set variables of the environment
    asyncio.set_event_loop(None)  # makes the policy
    before = process()
    states = model.torchs.get_state(), model.pythons.getstate(), model.numpys.bit_generator.state
    profiled(model)
    assert process() == before
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        profiled(model)
        assert not torch.is_anomaly_check_nan_enabled()
    assert torch.equal(model.torchs.get_state(), states[0])
    assert (model.pythons.getstate(), model.numpys.bit_generator.state) == states[1:]
    assert model.legacy.rand() == np.random.RandomState(1).rand()


@pytest.mark.parametrize("own", [False, True])
def test_another_generator_of_numpys_functions(own: bool) -> None:
    """Since it has another state, nothing was said of it, and no model could be profiled."""
    numpys = np.random.get_bit_generator()
    if own:
        np.random.set_bit_generator(np.random.PCG64(1))
    try:
        np.random.randn()  # the second of two numbers is kept
        before = np.random.get_bit_generator(), str(np.random.get_state(legacy=False))
        found = profiled(Changing(lambda _: np.random.set_bit_generator(np.random.SFC64(1))))
        assert (np.random.get_bit_generator(), str(np.random.get_state(legacy=False))) == before
        again = profiled(Changing(lambda _: np.random.rand()))
        assert str(np.random.get_state(legacy=False)) == before[1]
        for each in (found, again):
            assert {r.code for r in each.remarks} & {"branch", "state"} == {"branch"}
    finally:
        np.random.set_bit_generator(numpys)


@pytest.mark.parametrize("draw", [
    np.random.rand,
    np.random.randn,  # of two numbers, the second is kept beside what all others are made of
    partial(np.random.binomial, 9, 0.4),
    partial(np.random.set_state, np.random.RandomState(3).get_state()),
    random.random,
    random.gauss,
    partial(random.setstate, random.Random(3).getstate()),
])  # fmt: skip
def test_what_generators_said_is_said_again_only_as_long_as_nothing_is_drawn(draw: Any) -> None:
    for _ in range(3):
        kind, numbers, *more = np.random.get_state()
        assert drawn(np)[1:] == (kind, numbers.tobytes(), *more) == drawn(np)[1:]
        assert drawn_by_python() == random.getstate() == drawn_by_python()
        draw()


def _where_operators_go() -> None:
    for key in (torch._C.DispatchKey.Functionalize, torch._C.DispatchKey.ADInplaceOrView):
        torch._C._dispatch_tls_set_dispatch_key_included(key, True)
    torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.Negative, True)
    torch._C._functorch.set_single_level_autograd_function_allowed(True)
    torch._C._functorch._set_vmap_fallback_enabled(False)


@pytest.mark.parametrize("run", RUNS)
def test_where_operators_go(run: str) -> None:
    def said() -> tuple[object, ...]:
        transforms = torch._C._functorch
        return (
            torch._C._dispatch_tls_local_include_set().raw_repr(),
            torch._C._dispatch_tls_local_exclude_set().raw_repr(),
            transforms.get_single_level_autograd_function_allowed(),
            transforms._is_vmap_fallback_enabled(),
        )

    before = said()
    profiled(Changing(lambda _: _where_operators_go(), run))
    assert said() == before


SWITCHES = {
    "_jit_set_autocast_mode": "",  # what sets it says what it was
    "_jit_set_symbolic_shapes_test_mode": "",
    "_jit_texpr_set_fallback_allowed": "_jit_texpr_fallback_allowed",
    "_set_warn_on_accumulate_grad_stream_mismatch": "_warn_on_accumulate_grad_stream_mismatch",
    "_debug_only_display_vmap_fallback_warnings": "_debug_only_are_vmap_fallback_warnings_enabled",
    "_debug_set_fusion_group_inlining": "_debug_get_fusion_group_inlining",
    "_cuda_record_untuned_enable": "_cuda_record_untuned_is_enabled",
    "_set_check_sparse_tensor_invariants": "_check_sparse_tensor_invariants",
    "_lazy._set_symbolic_shape_mode": "_lazy._get_symbolic_shape_mode",
}


def _is_on(put: Callable[[bool], Any], says: str) -> Any:
    if says:
        return attrgetter(says)(torch._C)()
    put(before := put(True))
    return before


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_of_the_core(name: str) -> None:
    try:
        put, before = attrgetter(name)(torch._C), None
    except AttributeError:
        pytest.skip("not in this torch")
    before = _is_on(put, SWITCHES[name])
    try:
        profiled(Changing(lambda _: put(not before)))
        assert _is_on(put, SWITCHES[name]) is before
    finally:
        put(before)


@pytest.mark.parametrize("run", RUNS)
def test_containers_of_torchs_interpreter(run: str) -> None:
    def change(_: Any) -> None:
        table["a"], table["c"] = 3, 4
        del table["b"]
        items.append(torch.zeros(1))

    kept = torch.ones(2)
    table, items = torch._C.ScriptDict({"a": 1, "b": 2}), torch._C.ScriptList([kept])
    model = Changing(change, run)
    model.table, model.items = table, items
    profiled(model)
    assert list(table.items()) == [("a", 1), ("b", 2)]
    assert len(items) == 1
    assert items[0] is kept


@pytest.mark.parametrize("run", RUNS)
def test_records_of_numpy(run: str) -> None:
    def change(_: Any) -> None:
        row["a"], row["b"] = 9, (8, 7)
        own["a"], own["b"] = 9, (8, 7)

    rows = np.zeros(3, dtype=[("a", "i4"), ("b", "f4", (2,))])
    row, own = rows[1], rows[2].copy()
    model = Changing(change, run)
    model.row, model.own = row, own
    profiled(model)
    assert not any(rows.tobytes() + own.tobytes())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it hears of what runs by another way")
def test_a_profiler_of_pythons_that_a_forward_ends() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        profile = profiled(Changing(lambda _: profiler.disable()))
        assert sys.getprofile() is profiler
        assert not [r for r in profile.remarks if r.code == "state"]
    finally:
        profiler.disable()


def test_what_multiprocessing_logs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_logger", None), ("_log_to_stderr", False)):
        monkeypatch.setattr(multiprocessing.util, name, value)
    monkeypatch.delitem(logging.root.manager.loggerDict, "multiprocessing", raising=False)
    profiled(Changing(lambda _: multiprocessing.log_to_stderr()))
    assert multiprocessing.util._logger is None
    assert multiprocessing.util._log_to_stderr is False
    assert "multiprocessing" not in logging.root.manager.loggerDict


def test_threads_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")

    def change(_: Any) -> None:
        cv2.setNumThreads(before[0] + 1)
        cv2.setUseOptimized(not before[1])

    before = cv2.getNumThreads(), cv2.useOptimized()
    profiled(Changing(change))
    assert (cv2.getNumThreads(), cv2.useOptimized()) == before


def test_pages_of_numpy() -> None:
    core = np._core.multiarray
    before = core._get_madvise_hugepage()
    profiled(Changing(lambda _: core._set_madvise_hugepage(not before)))
    assert core._get_madvise_hugepage() == before


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="came with Python 3.12")
@pytest.mark.parametrize("own", [False, True])
def test_who_monitors_what_python_runs(own: bool) -> None:
    of = sys.monitoring

    def said() -> list[tuple[str | None, int]]:
        return [(of.get_tool(n), of.get_events(n) if of.get_tool(n) else 0) for n in range(6)]

    def change(_: Any) -> None:
        if own:
            of.set_events(4, of.events.NO_EVENTS)
        else:
            of.use_tool_id(4, "the model's")
            of.set_events(4, of.events.LINE)

    if own:
        of.use_tool_id(4, "a person's")
        of.set_events(4, of.events.CALL)
    try:
        before = said()
        profiled(Changing(change))
        assert said() == before
    finally:
        if own:
            of.free_tool_id(4)


@pytest.mark.parametrize("run", RUNS)
def test_lists_that_a_class_of_torch_has(run: str) -> None:
    def change(_: Any) -> None:
        nn.Bilinear.__constants__.append("x")
        nn.Bilinear.__annotations__["x"] = int

    profiled(Changing(change, run))
    assert "x" not in nn.Bilinear.__constants__
    assert "x" not in nn.Bilinear.__annotations__


CALLS: list[Any] = []


def _calls(self: Any, x: Tensor) -> Tensor:
    CALLS.append(1)
    return functional.linear(x, self.weight, self.bias)


def _marks(self: Tensor) -> Tensor:
    CALLS.append(2)
    return self


def _noted(x: Tensor) -> Tensor:
    CALLS.append(3)
    return x


PUT: dict[str, tuple[Any, str, Callable[[], Any], Any]] = {
    "method": (nn.Linear, "forward", lambda: _calls, lambda _: None),
    "decorated method": (nn.Linear, "forward", lambda: torch.no_grad()(_calls), lambda _: None),
    "function of tensors": (Tensor, "marks", lambda: _marks, lambda _: X.marks()),
    "operator of tensors": (Tensor, "__lshift__", lambda: lambda x, _: _marks(x), lambda _: X << 1),
    "object": (nn.Module, "counts", Plain, lambda self: self.counts.step()),
    "set": (nn.Module, "names", set, lambda self: self.names.add("a")),
    "list of objects": (nn.Module, "all", lambda: [Plain()], lambda self: self.all[0].step()),
    "name in all code": (builtins, "STATE_OF_ALL", lambda: {"n": 0},
                         lambda _: STATE_OF_ALL.update(n=1)),  # type: ignore[name-defined]  # noqa: F821
    "function in all code": (builtins, "noted", lambda: _noted,
                             lambda _: noted(X)),  # type: ignore[name-defined]  # noqa: F821
}  # fmt: skip
"""What somebody puts into classes of torch's or among Python's own names, where, and who uses it."""


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("what", PUT)
def test_what_somebody_put_into_a_library(
    what: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, name, make, change = PUT[what]
    CALLS.clear()
    held = make()
    before = _seen(held)
    monkeypatch.setattr(holder, name, held, raising=False)
    profiled(Changing(change, run))
    assert same(_seen(held), before)
    assert CALLS == []
    Changing(change)(X)
    assert CALLS or not same(_seen(held), before)  # it does keep something


def test_the_first_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.events, "_event_loop_policy", None)

    async def nothing() -> None:
        pass

    profiled(Changing(lambda _: asyncio.run(nothing())))
    assert asyncio.events._event_loop_policy is None  # type: ignore[attr-defined]


class Dispatching(nn.Module):
    """Calls methods by names that are not there as a whole, as models do that have kinds of inputs."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.kind, self.names = how, "image", ["forward_image"]

    def forward(self, x: Tensor) -> Tensor:
        return DISPATCHED[self.how](self, x)

    def forward_image(self, x: Tensor) -> Tensor:
        functional.relu6 = functional.relu
        functional.hardtanh.of_opgraph = 1
        Counter.__name__ = "other"
        return x + 1


DISPATCHED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "whole": lambda self, x: getattr(self, "forward_image")(x),  # noqa: B009
    "in a text": lambda self, x: getattr(self, f"forward_{self.kind}")(x),
    "added": lambda self, x: getattr(self, "forward_" + self.kind)(x),
    "into fields": lambda self, x: getattr(self, "forward_%s" % self.kind)(x),  # noqa: UP031
    "kept": lambda self, x: getattr(self, self.names[0])(x),
    "of a list": lambda self, x: next(getattr(self, name)(x) for name in self.names),
    "by operator": lambda self, x: methodcaller(f"forward_{self.kind}", x)(self),
    "in a class": lambda self, x: type(self).__dict__[self.names[0]](self, x),
    "in globals": lambda self, x: globals()["_dispatched_" + self.kind](self, x),
    "in a module": lambda self, x: getattr(THIS, "_dispatched_" + self.kind)(self, x),
}


def _dispatched_image(self: Dispatching, x: Tensor) -> Tensor:
    return self.forward_image(x)


@pytest.mark.parametrize("how", DISPATCHED)
@pytest.mark.slow
def test_what_code_does_that_is_found_by_a_name_that_is_made(how: str) -> None:
    before = functional.relu6
    try:
        profiled(Dispatching(how))
        now = functional.relu6, Counter.__name__, vars(functional.hardtanh)
        assert now == (before, "Counter", {})
    finally:
        functional.relu6, Counter.__name__ = before, "Counter"
        vars(functional.hardtanh).clear()


VALUELESS: ContextVar[int] = ContextVar("VALUELESS")
WITH_DEFAULT: ContextVar[int] = ContextVar("WITH_DEFAULT", default=0)


def _context_set(_: Any) -> None:
    VALUELESS.set(VALUELESS.get(0) + 1)
    WITH_DEFAULT.set(WITH_DEFAULT.get() + 1)
    NUMBER.set(7)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("tracer", ["auto", "export"])
def test_context_variables_have_no_value_again(tracer: str, run: str) -> None:
    before = dict(copy_context())
    with suppress(TraceError):
        notes = profiled(Changing(_context_set, run), tracer=tracer).model.notes
        assert not [note for note in notes if "taken back" in note]
    assert dict(copy_context()) == before


class Checkpointed(Changing):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(checkpoint(self.layer, x, use_reentrant=False))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_torch_notes_of_a_checkpoint(
    mode: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which device there is, and at a function that Dynamo is not to look into it."""
    noted = vars(checkpointing._run_fn_with_dynamo_disabled.__wrapped__)
    monkeypatch.delitem(noted, "__dynamo_disable", raising=False)
    monkeypatch.setattr(DefaultDeviceType, "_default_device_type", None)
    profiled(Checkpointed(lambda _: None, run), mode=mode)
    assert (noted, DefaultDeviceType._default_device_type) == ({}, None)


def _logged(_: Any) -> None:
    torch._logging.set_logs(dynamo=logging.DEBUG, graph_breaks=True)


@pytest.mark.parametrize("run", RUNS)
def test_what_torch_is_to_log(run: str) -> None:
    def says() -> Any:
        log = logging.getLogger("torch._dynamo")
        state = torch._logging._internal.log_state
        levels = dict(state.log_qname_to_level), set(state.artifact_names)
        return levels, log.level, [(each, dict(vars(each))) for each in log.handlers]

    before = says()
    profiled(Changing(_logged, run))
    assert says() == before


class Metaclass(type):
    """One that counts."""

    count = 0


class Counted(metaclass=Metaclass):
    """Its metaclass counts."""


class Base:
    """A class to be derived from."""


class Derived(Counted):
    """Another, whose base is changed."""


NUMBER: ContextVar[int] = ContextVar("NUMBER", default=1)
KEPT_CONTEXT = copy_context()
KEPT_CONTEXT.run(NUMBER.set, 1)
HISTORY = (torch.ones(2, requires_grad=True) * 2).sin()


def _patches(module: Any) -> None:
    module.silu = torch.tanh


class Assigning(nn.Module):
    """Assigns to what torch and Python have, and enters contexts that it never leaves."""

    def forward(self, x: Tensor) -> Tensor:
        global_hook(lambda *_: None)
        torch.nn.functional.relu = torch.nn.functional.gelu
        torch.Tensor.own = 1
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.opt_einsum.strategy = "greedy"
        torch.backends.cudnn.benchmark_limit = 3
        torch.set_warn_always(True)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch.distributions.Distribution.set_default_validate_args(False)
        torch.autograd.forward_ad.enter_dual_level()
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
        torch.autograd.graph.saved_tensors_hooks(_plus, _plus).__enter__()
        torch.set_autocast_enabled("mps", True)
        sys.excepthook = print
        np.seterrcall(print)
        type(Counted).count += 1
        Derived.__bases__ = (Other,)
        Derived.__name__ = _twice.__qualname__ = Counter.__name__ = nn.Linear.__name__ = "other"
        setattr(Tensor, "__add__", Tensor.__mul__)  # noqa: B010
        sys.modules[__name__].TWO = 3.0
        _plus.__globals__["COUNT"] = 3
        sys.modules["colorsys"].ONE_THIRD = 3
        logging.addLevelName(33, "ODD")
        torch._C._functorch._vmap_increment_nesting(2, "error")
        torch.hub.set_dir("/nowhere")
        torch.relu = torch.tanh
        nn.Linear.forward = torch.tanh
        sys.modules["nowhere"], sys.modules["colorsys"] = (
            ModuleType("nowhere"),
            ModuleType("colorsys"),
        )
        sys.meta_path.append(None)
        logging.getLogger("opgraph.tested").setLevel(7)
        logging.getLogger("opgraph.new.of.it").setLevel(7)
        logging.disable(7)
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
        _plus.__code__ = _twice.__code__
        mimetypes.add_type("opgraph/odd", ".odd")
        sys.modules["torch.nn.functional"].selu = torch.tanh
        another = torch.nn.functional
        another.gelu, another.of_opgraph = torch.tanh, 1
        _patches(torch.nn.functional)
        patch.object(torch.nn.functional, "elu", torch.tanh).start()
        torch.nn.functional.__dict__["celu"] = torch.tanh
        KEPT_CONTEXT.run(NUMBER.set, 2)
        HISTORY.grad_fn.next_functions[0][0].metadata["of opgraph"] = 1
        torch.backends.fp32_precision = "tf32"
        torch._C._set_sdp_priority_order([2, 1, 0, 3, 4])
        torch._C._jit_set_texpr_fuser_enabled(not torch._C._jit_texpr_fuser_enabled())
        torch._C._autograd._saved_tensors_hooks_disable("not here")
        torch.set_autocast_enabled("hpu", True)
        torch.serialization.set_crc32_options(not torch.serialization.get_crc32_options())
        torch.distributions.register_kl(Plain, Plain)(_twice)
        csv.field_size_limit(7)
        DefaultDeviceType.set_device_type("meta")
        get_ignored_functions().add(print)
        set_image_backend("accimage")
        __builtins__["of_opgraph"] = 1
        self.entered = torch.inference_mode()
        self.entered.__enter__()
        return x + 1


LATE = """
import logging, os, sys, torch, warnings
sys.modules["tests.tracing.state.test_state"].SET_BY_AN_IMPORT = 1
FLAG, TABLE, WEIGHT, NUMBERS = 1, {}, torch.ones(2), iter([1, 2])
def is_plain(x): return type(x) is torch.Tensor
def set_flag():
    global FLAG
    FLAG += 1
    logging.getLogger("torch._dynamo").level, globals()["OWN"] = 7, 1
    os.open, sys.stdout, warnings.filters = print, None, []
"""


def _by_attributes() -> Any:
    import late_a as late  # type: ignore[import-not-found]

    late.FLAG, late.NEW = 2, 3
    return late


def _by_names() -> Any:
    from late_b import NUMBERS, TABLE, WEIGHT, set_flag  # type: ignore[import-not-found]

    set_flag()
    WEIGHT.add_(1)
    TABLE["a"], _ = 1, next(NUMBERS)
    return sys.modules["late_b"]


def _by_a_name_that_is_made() -> Any:
    late = importlib.import_module("late_" + "c")
    late.FLAG = 2
    return late


def test_a_module_that_is_there_is_not_looked_at_as_one_that_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dynamo asks for thousands by name."""
    heard: list[str] = []

    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            importlib.import_module("torch.nn.functional")
            importlib.import_module("tabnanny")
            return x @ x.T

    monkeypatch.delitem(sys.modules, "tabnanny", raising=False)
    monkeypatch.setattr(guarding.Guard, "_imported", lambda _, names, *__: heard.extend(names))
    opgraph.profile(Asking(), torch.randn(2, 2))
    assert heard == ["tabnanny"]


@pytest.mark.parametrize("change", [_by_attributes, _by_names, _by_a_name_that_is_made])
def test_modules_that_a_forward_is_the_first_to_import(
    change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay, as their import left them, and what is computed in it is not the model's."""

    class Importing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if change().is_plain(x) else x @ x.T

    for name in "abc":
        (tmp_path / f"late_{name}.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    logger = logging.getLogger("torch._dynamo")  # which says nothing during a run

    def others() -> Any:
        return os.open, sys.stdout, warnings.filters, logger.level, logger.disabled

    before = others()
    profile = profiled(Importing())
    assert others() == before
    assert {node.op for node in profile.graph.nodes} == {"input", "add", "output"}
    assert not profile.model.notes
    late: Any = next(m for name, m in sys.modules.items() if name in ("late_a", "late_b", "late_c"))
    del sys.modules[late.__name__]
    assert (late.FLAG, late.TABLE, late.WEIGHT.tolist()) == (1, {}, [1, 1])
    assert next(late.NUMBERS) == 1
    assert not vars(late).keys() & {"NEW", "OWN", "type"}
    assert globals().pop("SET_BY_AN_IMPORT") == 1


def test_what_asks_whether_torch_traces_and_is_imported_first_by_a_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds that torch does, which is not so afterwards."""

    class Importing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            traces: Any = importlib.import_module("late_d").traces
            return x + 1 if traces() else x @ x.T

    text = "import torch\ndef traces():\n    return torch._guards.TracingContext.try_get() is not None\n"
    (tmp_path / "late_d.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_d", raising=False)
    profile = opgraph.profile(Importing(), torch.randn(2, 2), tracer="export")
    assert {node.op for node in profile.graph.nodes} == {"input", "add", "output"}
    assert torch._guards.TracingContext.try_get() is None
    assert not [
        r for r in profile.remarks if "is left in" in r.text
    ]  # torch 2.14 leaves one of its own


def _new_globals(_: Any) -> None:
    own = THIS
    own.NEW_GLOBAL = 1
    setattr(own, "ANOTHER_" + "GLOBAL", 2)


THIS = sys.modules[__name__]


def test_globals_of_ones_own_by_names_that_no_code_has() -> None:
    by_one, before = not of_ones_own(), dict(vars(THIS))
    notes = profiled(Changing(_new_globals)).model.notes
    assert any("or another thread did" in note for note in notes) != by_one
    for name in set() if by_one else vars(THIS).keys() - before.keys():
        delattr(THIS, name)
    assert vars(THIS) == before


REBOUND: Any = None


def _rebound(_: Any) -> None:
    REBOUND.of_opgraph = 2


def test_a_global_that_is_another_module_by_the_next_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (csv, mimetypes):
        monkeypatch.setattr(module, "of_opgraph", 1, raising=False)
    for module in (csv, mimetypes):
        monkeypatch.setitem(globals(), "REBOUND", module)
        profiled(Changing(_rebound, "fake"))
        assert module.of_opgraph == 1


def global_hook(hook: Any) -> None:
    nn.modules.module.register_module_full_backward_hook(hook)


def _plus(x: Any) -> Any:
    return x


def _twice(x: Any) -> Any:
    return x + x


def assigned() -> Any:
    torch.autocast_increment_nesting()
    return (
        nn.modules.module._global_is_full_backward_hook, torch.nn.functional.relu,
        vars(torch.Tensor).get("own"), torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.opt_einsum.strategy, torch.backends.cudnn.benchmark_limit,
        torch.is_warn_always_enabled(), torch.__future__.get_overwrite_module_params_on_conversion(),
        torch.distributions.Distribution._validate_args,
        torch.autograd.forward_ad._current_level, torch.autocast_decrement_nesting(),
        torch._C._autograd._top_saved_tensors_default_hooks(False), torch.is_autocast_enabled("mps"),
        sys.excepthook, np.geterrcall(), Metaclass.count, _plus.__code__, torch.is_inference_mode_enabled(),
        Derived.__bases__, Derived.__name__, _twice.__qualname__, torch.hub.get_dir(), torch.relu,
        nn.Linear.forward, "nowhere" in sys.modules, sys.modules.get("colorsys"), list(sys.meta_path),
        logging.getLogger("opgraph.tested").level, logging.root.manager.disable, Counter.__name__,
        nn.Linear.__name__, Tensor.__add__, TWO, COUNT, sys.modules["colorsys"].ONE_THIRD,
        logging.getLevelName(33), sorted(logging.root.manager.loggerDict),
        torch._C._functorch.maybe_current_level(), dict(mimetypes.types_map), dict(functional.__dict__),
        KEPT_CONTEXT[NUMBER], dict(HISTORY.grad_fn.next_functions[0][0].metadata),
        torch.backends.fp32_precision, torch._C._get_sdp_priority_order(),
        torch._C._jit_texpr_fuser_enabled(),
        torch._C._autograd._saved_tensors_hooks_is_enabled(), torch.is_autocast_enabled("hpu"),
        torch.serialization.get_crc32_options(), len(torch.distributions.kl._KL_REGISTRY),
        csv.field_size_limit(), DefaultDeviceType.get_device_type(), print in get_ignored_functions(),
        get_image_backend(), "of_opgraph" in __builtins__, logging.getLogger("opgraph").disabled,
    )  # fmt: skip


@pytest.mark.slow
def test_what_is_assigned_to_torch_and_contexts_that_are_not_left() -> None:
    profiled(Assigning())  # what it imports stays imported, with its loggers
    before = assigned()
    model = Assigning()
    profiled(model)
    assert assigned() == before
    torch.func.jvp(torch.sin, (X,), (X,))  # it has levels of its own
    weight = torch.ones(2, requires_grad=True)
    (weight * 2).sum().backward()  # operators still run, and autograd follows them
    assert torch.equal(weight.grad, torch.full((2,), 2.0))


@pytest.mark.parametrize("part", ["cuda.matmul", "cudnn.conv", "mkldnn.rnn"])
def test_precision_that_was_set_by_part(part: str) -> None:
    """Torch then refuses to say what its older switches are."""
    holder: Any = torch.backends
    for name in part.split("."):
        holder = getattr(holder, name)
    before = holder.fp32_precision
    holder.fp32_precision = "tf32" if "cu" in part else "bf16"
    now = holder.fp32_precision
    try:
        assert profiled(nn.Linear(8, 8)).totals.flops == 2 * 4 * 8 * 8
        assert holder.fp32_precision == now
    finally:
        holder.fp32_precision = before


def test_a_precision_that_holds_for_the_parts_is_not_set_for_each() -> None:
    """Torch says of each part what was set for all of them."""
    everything, part = torch.backends, torch.backends.cuda.matmul
    assert (everything.fp32_precision, part.fp32_precision) == ("none", "none")
    everything.fp32_precision = "tf32"
    try:
        profiled(Changing(lambda _: setattr(part, "fp32_precision", "ieee")))
        assert (everything.fp32_precision, part.fp32_precision) == ("tf32", "tf32")
    finally:
        everything.fp32_precision = "none"
    assert part.fp32_precision == "none"


@pytest.mark.parametrize("switch", ["cudnn.allow_tf32", "cuda.matmul.allow_tf32"])
def test_older_switches_of_precision(switch: str) -> None:
    """Which set the newer ones, and are not told while these disagree."""
    *path, name = switch.split(".")
    holder: Any = torch.backends
    for each in path:
        holder = getattr(holder, each)
    before = getattr(holder, name)
    try:
        profile = profiled(Changing(lambda _: setattr(holder, name, not before)))
        assert getattr(holder, name) is before
        assert not any("as it was" in remark for remark in profile.remarks)
    finally:
        setattr(holder, name, before)


def test_making_random_weights_draws_nothing_of_the_users() -> None:
    with torch.device("meta"):
        model = Changing(lambda self: None)
    state = torch.get_rng_state()
    assert profiled(model).tracing.tensors == "real"
    assert torch.equal(state, torch.get_rng_state())


def test_a_lazy_model_learns_its_sizes_without_a_trace() -> None:
    model = nn.Sequential(nn.LazyLinear(4), Changing(lambda self: _global_counter()))
    model[1].layer = nn.LazyLinear(8)
    before, state = snapshot(), torch.get_rng_state()
    profiled(model)
    assert same(snapshot(), before)
    assert torch.equal(state, torch.get_rng_state())
    assert nn.parameter.is_lazy(model[0].weight)


def test_of_lazy_layers_that_are_as_they_were_nothing_is_said() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    assert opgraph.profile(model, X).remarks == ()
    assert all(map(nn.parameter.is_lazy, model.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["export", "dynamo", "fx", "pt2", "onnx", "stablehlo"])
def test_files_made_of_a_model_leave_it_as_it_was(form: str) -> None:
    from opgraph.api.pipeline import prepared
    from opgraph.exporting import programs
    from opgraph.exporting.python import to_python

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            HEARD.append("forward")
            functional.relu6 = torch.rand
            self.steps += random.random()
            with torch.no_grad():
                self.layer.bias.mul_(2)
            return torch.ops.opgraph_tests.doubled(self.layer(x) + self.steps)

    if form in ("onnx", "stablehlo"):
        pytest.importorskip("onnxscript" if form == "onnx" else "torch_mlir")
    model, relu6 = Counting(), functional.relu6
    before = {name: Looks.of(t) for name, t in model.state_dict(keep_vars=True).items()}
    built, example = prepared(model, X)
    HEARD.clear()
    states = torch.get_rng_state(), random.getstate()
    with suppress(TraceError):  # not all of them can write this one down
        write = getattr(programs, f"to_{form}", None)
        write(built, example, "") if write else to_python(built, example, form)
    assert {n: Looks.of(t) for n, t in model.state_dict(keep_vars=True).items()} == before
    assert (HEARD, functional.relu6) == ([], relu6)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


@pytest.mark.parametrize("loss", ["through", "by a value"])
def test_a_step_of_training(loss: str) -> None:
    model = Changing(_no_grad_write, "real" if loss == "by a value" else "fake").eval()
    before = {name: Looks.of(p) for name, p in model.named_parameters()}
    profiled(model, mode="train")
    assert {name: Looks.of(p) for name, p in model.named_parameters()} == before
    assert not model.training


HEARD: list[str] = []
"""What was called, by whom."""


@torch.library.custom_op("opgraph_tests::doubled", mutates_args=())
def _doubled(x: Tensor) -> Tensor:
    HEARD.append("kernel")
    return x * 2


@_doubled.register_fake
def _(x: Tensor) -> Tensor:
    HEARD.append("shapes")
    return torch.empty_like(x)


def _of_doubled(ctx: Any, grad: Tensor) -> Tensor:
    HEARD.append("gradient")
    return grad * 2


_doubled.register_autograd(
    _of_doubled, setup_context=lambda ctx, inputs, output: HEARD.append("saved")
)


class Halved(torch.autograd.Function):
    """What says itself how it is differentiated."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        HEARD.append("context")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        HEARD.append("backward")
        return grad / 2


class OfOnesOwn(nn.Module):
    """Calls operators that somebody made: `function` is one of autograd's or one of torch's library."""

    def __init__(self, function: str, run: str) -> None:
        super().__init__()
        self.layer, self.function, self.run = nn.Linear(8, 8), function, run

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y = Halved.apply(y) if self.function == "Halved" else torch.ops.opgraph_tests.doubled(y)
        return y * y.sum().item() if self.run == "real" else y


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("function", ["Halved", "doubled"])
def test_what_operators_of_ones_own_keep(function: str, run: str) -> None:
    model = OfOnesOwn(function, run)
    HEARD.clear()
    profiled(model)
    profiled(model, mode="train")
    assert HEARD == []
    model(X).sum().backward()
    assert HEARD  # they do keep something


class CountsLayers(TorchFunctionMode):
    def __init__(self) -> None:
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is functional.linear
        return func(*args, **(kwargs or {}))


class Listens(TorchFunctionMode):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


class ListensToOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_modes_around_a_profile_keep_nothing_that_opgraph_itself_does(mode: str, run: str) -> None:
    model = Changing(_no_grad_write, run)
    with Listens() as functions, ListensToOperators() as operators:
        torch.ones(1)
        profiled(model, mode=mode)
        torch.zeros(1)
    assert functions.calls == [torch.ones, torch.zeros]
    assert operators.calls == [torch.ops.aten.ones.default, torch.ops.aten.zeros.default]


class AddsUp(TorchDispatchMode):
    """Counts in a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.large = torch.zeros(1), torch.zeros(99)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is torch.ops.aten.addmm.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_tensors_of_a_mode_around_a_profile(mode: str, run: str) -> None:
    model = Changing(lambda self: None, run)
    with AddsUp() as counter:
        functional.linear(X, X, torch.ones(X.shape[0]))
        profiled(model, mode=mode)
        assert counter.calls.item() == 1


def test_tensors_of_a_mode_that_are_too_large_are_said() -> None:
    with AddsUp() as counter:
        counter.large = torch.zeros(2**20)
        profile = profiled(Changing(lambda self: None), memory_limit=2**-10)
    assert any("that a mode around has was not guarded" in note for note in profile.model.notes)


class Told(Tensor):
    """Counts what is done to it, in a tensor."""

    calls = torch.zeros(1)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            cls.calls.add_(1)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("run", RUNS)
def test_a_class_of_tensors_that_counts(run: str) -> None:
    """Not even what opgraph itself asks of one is counted."""
    model = Changing(lambda self: self.told * 2, run)
    model.told = torch.ones(4).as_subclass(Told)
    before = Told.calls.item()
    profiled(model)
    assert Told.calls.item() == before


class Ranged(Tensor):
    """A table that is read as its plain tensor, and notes what was read of it."""

    reads = torch.zeros(1)

    @staticmethod
    def __new__(cls, plain: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, plain.shape, dtype=plain.dtype)

    def __init__(self, plain: Tensor) -> None:
        self.plain, self.seen = plain, torch.zeros(4000)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def plain(item: Any) -> Any:
            return item.plain if isinstance(item, cls) else item

        cls.reads.add_(1)
        for each in args:
            if isinstance(each, cls):
                each.seen.add_(each.plain.abs().max())
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("made", [False, True])
def test_what_a_class_of_tensors_writes_as_it_computes(made: bool, run: str, mode: str) -> None:
    def used(self: Any) -> Any:
        table = Ranged(torch.full((8, 8), 3.0)) if made else self.tables[0]
        return torch.ones(1, 8) @ table

    model = Changing(used, run)
    model.tables = [Ranged(torch.full((8, 8), 3.0))]
    before = Ranged.reads.item()
    profiled(model, mode=mode)
    assert Ranged.reads.item() == before
    assert not model.tables[0].seen.any()


def test_what_is_written_to_a_tensor_that_does_not_say_what_it_is_made_of() -> None:
    model = Changing(lambda self: self.table.mul_(2))
    model.table = Ranged(torch.full((8, 8), 3.0))
    profiled(model)
    assert torch.equal(model.table.plain, torch.full((8, 8), 3.0))


class Numbered(Tensor):
    """Counts what is done to it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Numbered.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_class_of_weights_and_inputs_that_counts(mode: str) -> None:
    model, x = nn.Linear(8, 4), X.as_subclass(Numbered)
    model.weight = nn.Parameter(model.weight.detach().as_subclass(Numbered))
    before = Numbered.calls
    opgraph.profile(model, x, mode=mode)
    assert Numbered.calls == before


class Handing(nn.Module):
    """Has another thread, which was there before, write to a tensor."""

    def __init__(self, submit: Any, real: bool) -> None:
        super().__init__()
        self.layer, self.submit, self.real = nn.Linear(8, 8), submit, real
        self.kept, self.count = torch.zeros(2), [0]

    def work(self) -> None:
        self.kept[0] += 1
        self.count[0] += 1

    async def waits(self) -> None:
        self.work()

    def forward(self, x: Tensor) -> Tensor:
        self.submit(self)
        y = self.layer(x)
        return y * y.sum().item() if self.real else y


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("kind", ["pool", "loop"])
def test_what_a_thread_of_before_writes_to_a_tensor_is_said(kind: str, real: bool) -> None:
    """It waits for work in Python's own code: no mode hears it."""
    loop, pool = asyncio.new_event_loop(), ThreadPool(1)
    runs = threading.Thread(target=loop.run_forever)
    runs.start()
    submit = {
        "pool": lambda model: pool.apply(model.work),
        "loop": lambda model: asyncio.run_coroutine_threadsafe(model.waits(), loop).result(),
    }[kind]
    try:
        model = Handing(submit, real)
        notes = profiled(model).model.notes
        said = [note for note in notes if "where no mode hears it" in note]
        assert len(said) == 1
        assert model.kept[0] > 0
        assert (model.kept._version, model.count) == (0, [0])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runs.join()
        loop.close()
        pool.close()
        pool.join()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.slow
def test_what_is_on_around_a_profile(run: str) -> None:
    """Counters of FLOPs and modes, hooks of saved tensors and of optimizers, weights that are cached."""
    model, kept, steps = Changing(lambda self: None, run), [], []
    nn.utils.parametrizations.weight_norm(model.layer)
    with (
        CountsLayers() as mode,
        FlopCounterMode(display=False) as counter,
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(1) or t, lambda t: t),
        nn.utils.parametrize.cached(),
        register_optimizer_step_pre_hook(lambda *_: steps.append(1)),
    ):
        functional.linear(X, X)
        flops = counter.get_total_flops()
        profiled(model)
        profiled(model, mode="train")
        assert (mode.calls, counter.get_total_flops()) == (1, flops)
        assert (kept, steps, nn.utils.parametrize._cache) == ([], [], {})


@pytest.mark.parametrize("run", ["fake", "real"])
def test_tensors_that_hooks_of_all_optimizers_write_to(run: str) -> None:
    """One step finds out what the optimizer keeps, before the model is run."""
    model, steps = Changing(id, run), torch.zeros(())

    def count(*_: Any) -> None:
        steps.add_(1)

    with register_optimizer_step_pre_hook(count), register_optimizer_step_post_hook(count):
        notes = profiled(model, mode="train").model.notes
        assert opgraph.measure(model, X, mode="train").remarks is not None
    assert (steps.item(), steps._version) == (0, 0)
    assert not [note for note in notes if "where no mode hears it" in note]


class Criterion(nn.Module):
    """A loss with a weight, a buffer and a counter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.calls = nn.Parameter(torch.ones(8)), 0
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, result: Tensor) -> Tensor:
        self.calls += 1
        self.mean += 1
        return (result * self.weight).sum()


@pytest.mark.parametrize("run", ["fake", "real"])
def test_the_loss_that_is_given(run: str) -> None:
    loss = Criterion()
    before = {name: Looks.of(t) for name, t in loss.state_dict(keep_vars=True).items()}
    profiled(Changing(id, run), mode="train", loss=loss)
    assert {name: Looks.of(t) for name, t in loss.state_dict(keep_vars=True).items()} == before
    assert loss.calls == 0


class NoDictionary:
    """An object that does not say what it holds, and is not asked."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


class Stubborn(list):
    """A list that cannot be gone through."""

    def __iter__(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("make", "remarks"),
    [(NoDictionary, 0), (lambda: Stubborn([1]), 0), (lambda: torch.eye(3).to_mkldnn(), 0),
     (lambda: torch.ones(3, dtype=torch.complex64).conj(), 0),
     (lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)]), 0),
     (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), 0)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_objects_that_are_not_what_they_seem(make: Any, remarks: int) -> None:
    model = Changing(lambda self: None)
    held = model.held = make()
    notes = profiled(model).model.notes
    assert model.held is held
    assert len(notes) == remarks
    assert all("could be looked at before: that was not guarded" in note for note in notes)


class Late(Exception):
    """What a person's own handler of a signal raises."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
@pytest.mark.parametrize(
    "place",
    ["state.guard.Reach.of", "state.guard.Effects.begin", "base.set_eval", "base.stand_in",
     "base.build", "state.guard.write_back", "state.guard.Effects.end"],
)  # fmt: skip
@pytest.mark.slow
def test_an_interrupt_outside_of_forward_waits_until_all_is_put_back(
    place: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any) -> None:
        raise Late

    model = Changing(_no_grad_write, "real")
    weight, before, modes = model.layer.weight, model.layer.weight.clone(), model.training
    place = f"opgraph.tracing.{place}"
    plain = pkgutil.resolve_name(place)
    interrupts = iter([None])

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        if next(interrupts, 1) is None:
            signal.raise_signal(number)
        return made

    monkeypatch.setattr(place, interrupted)
    alarm = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else Late):
            profiled(model)
        assert signal.getsignal(signal.SIGALRM) is late
    finally:
        signal.signal(signal.SIGALRM, alarm)
    assert model.layer.weight is weight
    assert torch.equal(weight, before)
    assert model.training is modes
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not hasattr(faulthandler, "register"), reason="Windows has none of it")
def test_what_is_done_in_c_at_a_signal_is_done_afterwards(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR1, print)
    with (tmp_path / "trace").open("w+") as file:
        faulthandler.register(signal.SIGUSR1, file)
        try:
            profiled(nn.Linear(8, 8))
            signal.raise_signal(signal.SIGUSR1)
        finally:
            faulthandler.unregister(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, before)
        file.seek(0)
        assert "most recent call first" in file.read()


def test_an_interrupt_of_what_runs_unheard_behind_what_was_heard() -> None:
    with guarded([], heard=False) as guard:
        with guard.listening(guard.is_new):
            torch.ones(1).add_(1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_forward_leaves_all_as_it_was() -> None:
    def interrupt(self: Any) -> None:
        _no_grad_write(self)
        self.layer.later = 1
        raise KeyboardInterrupt

    model = Changing(interrupt, "fake")
    weight, before, settings = model.layer.weight, model.layer.weight.clone(), process()
    with pytest.raises(KeyboardInterrupt):
        profiled(model)
    assert model.layer.weight is weight
    assert torch.equal(weight, before)
    assert process() == settings
    assert not hasattr(model.layer, "later")


def test_a_model_of_more_than_can_be_looked_at_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30)))
    weights = list(model.parameters())
    monkeypatch.setattr("opgraph.tracing.state.reach.MOST", 20)
    notes = opgraph.profile(model, torch.ones(2, 4)).model.notes
    assert any(n.startswith("not all that the forward can reach") for n in notes)
    assert all(a is b for a, b in zip(model.parameters(), weights, strict=True))
    assert all(m.training for m in model.modules())


class Unequal(threading.Thread):
    """A thread that is not to be compared, and has no name."""

    __hash__ = threading.Thread.__hash__

    def __eq__(self, other: object) -> bool:
        raise SystemExit

    @property  # type: ignore[override]
    def name(self) -> str:
        raise RuntimeError

    @name.setter
    def name(self, name: str) -> None:
        pass


def _thread_left(self):
    Unequal(target=self.waits.wait).start()


def _listed_otherwise(_):
    os.listdir = lambda _=".": ["a"]


def _no_contexts(_):
    torch.no_grad = None


def _no_calls_left(_):
    for depth in range(5, sys.getrecursionlimit()):
        with suppress(RecursionError):
            sys.setrecursionlimit(depth)
            break


@pytest.mark.parametrize("break_", [_thread_left, _listed_otherwise, _no_contexts, _no_calls_left])
def test_what_a_forward_breaks_that_is_needed_to_bring_all_back(
    break_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opgraph.tracing.capture.threads._PATIENCE", 0.01)
    model = Changing(break_, "fake")
    model.waits, weight = threading.Event(), model.layer.weight
    before = os.listdir, torch.no_grad, sys.getrecursionlimit(), signal.getsignal(signal.SIGINT)
    try:
        with suppress(TraceError):
            profiled(model)
    finally:
        model.waits.set()
    after = os.listdir, torch.no_grad, sys.getrecursionlimit(), signal.getsignal(signal.SIGINT)
    assert after == before
    assert (model.layer.weight is weight, type(weight), model.training) == (
        True, nn.Parameter, True)  # fmt: skip


class Served(nn.Module):
    """Hands work to a thread that it keeps, and has a lock that another one gives back meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.work, self.done, self.plain = (
            nn.Linear(8, 8),
            Queue(),
            Queue(),
            SimpleQueue(),
        )
        self.lock, self.held, self.go = threading.Lock(), threading.Event(), threading.Event()
        threading.Thread(
            target=self.serve, args=(self.work, self.done, self.plain), daemon=True
        ).start()
        self.holder = threading.Thread(target=self.hold, args=(self.lock, self.held, self.go))
        self.holder.start()
        self.held.wait()

    @staticmethod
    def serve(work: Any, done: Any, plain: Any) -> None:
        while (item := work.get()) is not None:
            plain.put(item)
            done.put(item)

    @staticmethod
    def hold(lock: Any, held: Any, go: Any) -> None:
        with lock:
            held.set()
            go.wait()

    def forward(self, x: Tensor) -> Tensor:
        self.go.set()
        self.holder.join()
        self.work.put(1)
        self.done.get(timeout=3)
        return self.layer(x)


class Watched(nn.Module):
    """Is called, while a thread does something else."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.calls, self.looks, self.change = nn.Linear(8, 8), 0, 0, change
        self.changed, self.go = threading.Event(), threading.Event()

    def look(self) -> None:
        self.go.wait()
        self.change(self)
        self.changed.set()
        self.go.clear()
        self.go.wait()

    def forward(self, x: Tensor) -> Tensor:
        self.go.set()
        self.changed.wait()
        return self.layer(x)


def _looked(model: Any) -> None:
    model.looks += 1


def _set_variable(_: Any) -> None:
    os.environ["OPGRAPH_TESTS"] = "by a thread"


@pytest.mark.parametrize("change", [_looked, lambda _: random.random(), _set_variable])
def test_that_another_thread_changed_something_meanwhile_is_remarked_on(change: Any) -> None:
    model = Watched(change)
    before = random.getstate(), dict(os.environ)
    other = threading.Thread(target=model.look, name="looking")
    other.start()
    try:
        notes = opgraph.profile(model, X).model.notes
    finally:
        model.go.set()
        other.join()
    assert any(n.startswith("another thread (looking) ran meanwhile") for n in notes)
    assert (model.looks, random.getstate(), dict(os.environ)) == (0, *before)


def test_what_threads_share_is_theirs_too() -> None:
    model = Served()
    said = {n.partition(",")[0] for n in opgraph.profile(model, X).model.notes}
    given = {n for n in said if "gave what it put into a queue to a thread that waits" in n}
    assert given
    assert {n for n in said - given if not n.startswith("another thread (")} == {
        "forward used what threads share (Queue)", "forward used what threads share (Event)",
        "forward used what threads share (SimpleQueue)", "forward took a lock or gave it back",
    }  # fmt: skip
    assert not model.lock.locked()
    assert model(X).shape == X.shape  # the one that waits for work still does
    assert [model.plain.get_nowait(), model.plain.get_nowait()] == [1, 1]
    model.work.put(None)


def test_a_seed_that_waits_for_a_gpu_waits_for_it_still() -> None:
    class Seeds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.manual_seed(7)
            return x + torch.rand(2)

    if torch.cuda.is_initialized():
        pytest.skip("a GPU is in use here")
    torch.manual_seed(42)
    waiting = vars(torch.cuda._lazy_seed_tracker)
    before = {name: list(v) if isinstance(v, list) else v for name, v in waiting.items()}
    opgraph.profile(Seeds(), torch.zeros(2))
    opgraph.profile("resnet18")
    assert waiting["manual_seed_all_cb"] is before["manual_seed_all_cb"]
    assert waiting["call_order"] == before["call_order"]
    assert waiting["manual_seed_all_cb"] is not None


class Feeding(nn.Module):
    """Does what cannot be taken back, and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.fed = hashlib.sha1(b"x")

    def forward(self, x: Tensor) -> Tensor:
        self.fed.update(b"more")
        raise RuntimeError("no more")


@pytest.mark.parametrize("tracer", ["fx", "export"])
def test_an_error_without_a_graph_says_what_is_not_as_it_was(tracer: str) -> None:
    with pytest.raises(TraceError, match="cannot be traced") as raised:
        opgraph.profile(Feeding(), torch.ones(1), tracer=tracer)
    notes = [n for n in raised.value.__notes__ if not n.startswith("hint: ")]
    assert len(notes) == 1
    assert "fed a hash" in notes[0]


def _set_tuning() -> None:
    tunable = torch.cuda.tunable
    tunable.enable(not tunable.is_enabled())
    tunable.tuning_enable(not tunable.tuning_is_enabled())
    tunable.set_filename("mine.csv")
    tunable.set_max_tuning_iterations(7)
    setattr(torch.backends.cudnn, "benchmark_limit", 3)  # noqa: B010  (by a text)


@pytest.mark.skipif(not hasattr(torch._C, "_cuda_tunableop_enable"), reason="a build without CUDA")
def test_what_torch_tunes_on_a_gpu_is_as_before() -> None:
    class Tunes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            _set_tuning()
            return x + 1

    def now() -> Any:
        tunable = torch.cuda.tunable
        return (
            tunable.is_enabled(), tunable.tuning_is_enabled(), tunable.get_filename(),
            tunable.get_max_tuning_iterations(), torch.backends.cudnn.benchmark_limit,
        )  # fmt: skip

    before = now()
    assert not opgraph.profile(Tunes(), X).remarks
    assert now() == before
