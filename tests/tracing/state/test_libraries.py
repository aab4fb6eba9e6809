"""What libraries keep for the whole process, in their classes and modules, is as before after a profile
whose forward changed it."""

from __future__ import annotations

import ctypes
import decimal
import gc
import importlib
import importlib.util
import json
import logging
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import _patch, patch

import accelerate
import networkx as nx
import numpy as np
import pytest
import sympy
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from dateutil import tz
from duckdb.experimental.spark.sql.types import DataTypeSingleton, DateType
from tests.tracing.state.using import Using
from torch import Tensor, distributions, nn
from tqdm import tqdm
from transformers import AttentionInterface

import opgraph

OPENS = """
import io
import torch
from PIL import Image
import opgraph
GIF = b"GIF89a" + bytes([1, 0, 1, 0, 128, 0, 0]) + bytes(6) + b",\\0\\0\\0\\0\\1\\0\\1\\0\\0\\2\\2D\\1\\0;"
class Opens(torch.nn.Module):
    def forward(self, x):
        return x * Image.open(io.BytesIO(GIF)).size[0] * (x.sum().item() if REAL else 1)
assert not Image.OPEN
for REAL in (False, True):
    profile = opgraph.profile(Opens(), torch.ones(2))
    assert profile.graph.nodes and not [r for r in profile.remarks if r.code == "state"]
    assert {"GIF", "PNG"} <= Image.OPEN.keys() == Image.MIME.keys()
    assert Image._initialized == 0
    assert Opens()(torch.ones(2)).shape == (2,)
    Image._initialized = 0
"""


@pytest.mark.slow
def test_what_modules_fill_in_a_library_as_a_forward_is_the_first_to_import_them() -> None:
    """Pillow imports what reads the usual formats at the first `open`: it stays imported, and known."""
    subprocess.run([sys.executable, "-c", OPENS], check=True)


UNNAMED = """
import logging, torch, opgraph
from torch import nn
class M(nn.Module):
    def forward(self, x):
        return x + 1
before = set(logging.root.manager.loggerDict)
opgraph.profile(M(), torch.ones(2))
made = set(logging.root.manager.loggerDict) - before
assert not {n for n in made if not n.startswith(("torch", "opgraph", "concurrent", "asyncio"))}, made
"""


@pytest.mark.slow
def test_no_logger_is_made_for_a_library_that_is_not_imported() -> None:
    """`logging.config` would disable it, and the library find it so."""
    subprocess.run([sys.executable, "-c", UNNAMED], check=True)


X = torch.ones(2, 8)


def _accelerated() -> None:
    accelerate.Accelerator(cpu=True)


def _set_of_accelerate() -> None:
    GradientState()._set_sync_gradients(False)


def _named() -> None:
    sympy.Dummy("a")


def _registered() -> None:
    AttentionInterface.register("mine", _named)


def _a_type() -> None:
    DateType()


def _a_zone() -> None:
    tz.tzoffset("there", 1234)


OF_ACCELERATE = [cls._shared_state for cls in (PartialState, AcceleratorState, GradientState)]
OF_ZONES = [vars(tz.tzoffset)[f"_TzOffsetFactory__{n}"] for n in ("instances", "strong_cache")]


@pytest.mark.parametrize(
    ("use", "kept"),
    [
        (_accelerated, OF_ACCELERATE),
        (_set_of_accelerate, OF_ACCELERATE),
        (_named, [vars(sympy.Dummy)]),
        (_registered, [AttentionInterface._global_mapping]),
        (_a_type, [DataTypeSingleton._instances]),
        (_a_zone, OF_ZONES),
    ],
    ids=["deeper within", "shared", "a number", "of a class above", "of its class", "weakly"],
)
def test_what_a_class_keeps_for_all_its_objects(use: Callable[[], Any], kept: list[Any]) -> None:
    at_first = [dict(each) for each in kept]
    for each in kept if kept is OF_ACCELERATE else ():  # other tests may have used it
        each.clear()
    before = [dict(each) for each in kept]
    options: dict[str, Any]
    for options in ({}, {"mode": "train"}):
        for values in (False, True):
            profile = opgraph.profile(Using(use, values), torch.ones(4, 8), **options)
            assert [dict(each) for each in kept] == before
            assert not [remark for remark in profile.remarks if remark.code == "state"]
    use()
    assert [dict(each) for each in kept] != before  # or nothing was to be seen
    for each, was in zip(kept, at_first, strict=True):
        if isinstance(each, MutableMapping):
            each.clear()
            each.update(was)


class Lazy(OrderedDict[str, Any]):
    """Looks its entries up as it is asked, as the mappings of the automatic classes of transformers do: one
    that is not to be had is an error for all."""

    def keys(self) -> Any:
        raise ValueError("Could not find it")

    values = items = __iter__ = __len__ = __setitem__ = keys


def _looked_up() -> None:
    OrderedDict.__setitem__(lazily.Registry.known, "new", 1)  # type: ignore[name-defined] # noqa: F821


def test_a_mapping_of_a_library_that_answers_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = ModuleType("lazily")
    library.__file__ = "/site-packages/lazily.py"
    known = Lazy()
    OrderedDict.__setitem__(known, "old", 0)
    library.Registry = type("Registry", (), {"__module__": "lazily", "known": known})
    library.Registry.itself = library.Registry
    monkeypatch.setitem(sys.modules, "lazily", library)
    monkeypatch.setitem(globals(), "lazily", library)
    for values in (False, True):
        profile = opgraph.profile(Using(_looked_up, values), torch.ones(4, 8))
        assert not [remark for remark in profile.remarks if remark.code == "state"]
        assert list(OrderedDict.items(known)) == [("old", 0)]


def test_a_library_forgets_no_thread_that_goes_on() -> None:
    """It would start another at each profile."""

    def running() -> int:
        return sum(isinstance(each, type(tqdm.monitor)) for each in threading.enumerate())

    model = Using(_a_bar, values=False)
    opgraph.profile(model, torch.ones(4, 8))
    assert tqdm.monitor is not None
    before = running()
    opgraph.profile(model, torch.ones(4, 8))
    assert running() == before


def _a_bar() -> None:
    with tqdm(total=1) as bar:
        bar.update()


@nx._dispatchable  # type: ignore[untyped-decorator]
def _nodes(graph: Any) -> Any:
    return graph.number_of_nodes()


def _a_path() -> int:
    return int(_nodes(nx.from_numpy_array(torch.ones(3, 3).numpy())))


@pytest.mark.parametrize("options", [{}, {"mode": "train"}], ids=["infer", "train"])
@pytest.mark.parametrize("values", [False, True])
def test_functions_that_a_library_compiles_as_they_are_called(
    values: bool, options: dict[str, Any]
) -> None:
    """It gives them other code, whose names it puts into its module."""
    model = Using(_a_path, values)
    for _ in range(2):
        profile = opgraph.profile(model, torch.ones(4, 8), **options)
        assert not [remark for remark in profile.remarks if remark.code == "state"]
    assert _a_path() == 3
    assert nx.empty_graph(4).number_of_nodes() == 4


class Asked:
    """Stands for what is made when it is asked for anything."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Behind:
    """Something in C, as Python has it, and what that was told of."""

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p(1)
        self.told: list[Any] = []


@pytest.mark.slow
def test_what_c_may_have_been_told_of_lives_as_long_as_what_was_told() -> None:
    def alive() -> list[Any]:
        gc.collect()
        return [type(each) for each in gc.get_objects() if type(each) in (Behind, Numbered)]

    def use() -> None:
        held[0].told.extend((Behind(), Numbered()))

    held = [Behind()]

    model = Using(use, values=False)
    opgraph.profile(model, torch.ones(4, 8))
    assert held[0].told == []
    assert alive() == [Behind, Behind]
    held.clear()
    assert not alive()


class Says:
    """Says to be a dictionary, and nothing of where it is from."""

    __class__ = dict  # type: ignore[assignment]
    __module__ = None  # type: ignore[assignment]


def test_what_fails_when_it_is_asked_is_not_asked_for_its_attributes() -> None:
    model = Using(lambda: None, values=False)
    model.lazy, model.says = Asked(), Says()
    profile = opgraph.profile(model, torch.ones(4, 8))
    assert not [remark for remark in profile.remarks if remark.code == "state"]


class Numbered:
    """How many libraries number their objects."""

    numbers = count()

    def __init__(self) -> None:
        self.number = next(Numbered.numbers)


def _numbered() -> int:
    return numbered.Numbered().number  # type: ignore[name-defined,no-any-return] # noqa: F821


def test_numbers_that_a_class_of_a_library_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = ModuleType("numbered")
    library.__file__ = "/site-packages/numbered.py"
    made = type(_numbered)(Numbered.__init__.__code__, vars(library))
    members = {"__init__": made, "__module__": "numbered", "numbers": count()}
    library.Numbered = type("Numbered", (), members)
    monkeypatch.setitem(sys.modules, "numbered", library)
    monkeypatch.setitem(globals(), "numbered", library)
    assert _numbered() == 0
    opgraph.profile(Using(_numbered, values=True), torch.ones(4, 8))
    assert _numbered() == 1


class Maps:
    """What a library shows at its top, of a class from a module within."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def register(self, name: str) -> None:
        assert name not in self.names
        self.names.append(name)


def test_an_object_that_a_package_shows_of_a_module_within(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `matplotlib.colormaps`: nobody names its class."""
    library: Any = ModuleType("mapping")
    library.__file__ = "/site-packages/mapping/__init__.py"
    members = {name: vars(Maps)[name] for name in ("__init__", "register")}
    library.maps = type("Maps", (), {**members, "__module__": "mapping.within"})()
    monkeypatch.setitem(sys.modules, "mapping", library)
    monkeypatch.setitem(globals(), "mapping", library)
    register = lambda: mapping.maps.register("mine")  # type: ignore[name-defined] # noqa: E731, F821
    opgraph.profile(Using(register, values=True), torch.ones(4, 8))
    assert library.maps.names == []


@pytest.mark.parametrize("kind", ["ConvexHull", "Delaunay"])
def test_what_is_one_with_its_part_in_c_goes_on_as_a_whole(kind: str) -> None:
    """Qhull reads the points that it was given where they are, which a list in C alone keeps alive."""
    spatial = pytest.importorskip("scipy.spatial")
    first, more, last = np.random.default_rng(0).random((3, 40, 2)) * [[[1]], [[9]], [[30]]]
    hull = getattr(spatial, kind)(first, incremental=True)

    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.hull, self.calls = nn.Linear(4, 4), hull, 0

        def forward(self, x: Tensor) -> Any:
            self.calls += 1
            self.hull.add_points(more)
            return self.layer(x)

    model = Grows()
    notes = opgraph.profile(model, (torch.randn(2, 4),)).model.notes
    assert any(f"one with what it keeps in C ({kind})" in note for note in notes)
    assert model.calls == 0
    gc.collect()
    others = [np.full_like(more, 1e6) for _ in range(50)]
    hull.add_points(last)
    points = np.concatenate((first, more, last))
    assert np.array_equal(hull.points, points)
    assert len(others) == 50
    once = getattr(spatial, kind)(points)
    assert {frozenset(s) for s in hull.simplices} == {frozenset(s) for s in once.simplices}


def test_what_another_was_given_that_stays_for_it_is_not_said_of_forward() -> None:
    """What opgraph lets live as long as a model is no function that forward has called at its end."""
    spatial = pytest.importorskip("scipy.spatial")

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.tree = nn.Linear(4, 4), spatial.KDTree(np.zeros((2, 4)))

        def forward(self, x: Tensor) -> Any:
            self.tree = spatial.KDTree(x.detach().numpy())
            return self.layer(x)

    model = Looks()
    tree = model.tree
    assert not opgraph.profile(model, (torch.randn(2, 4),)).model.notes
    assert model.tree is tree


class Asking:
    """Stands in the place of a module, and of an object of settings, and counts how often it is asked."""

    asked: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        Asking.asked.append(name)
        raise AttributeError(name)


def _not_now() -> None:
    if Asking.asked:
        put_off.VALUE = put_off.VALUE + 1  # type: ignore[name-defined] # noqa: F821
        asking.value = asking.within.value = sys.modules  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize("home", ["", "site-packages"], ids=["one's own", "of a package"])
@pytest.mark.parametrize("is_held", [False, True])
def test_a_module_that_is_put_off_is_not_loaded_as_it_is_looked_at(
    home: str, is_held: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("torch._dynamo")  # asks all that there are for their files
    (folder := tmp_path / home).mkdir(exist_ok=True)
    (folder / "put_off.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(folder)
    found = importlib.util.find_spec("put_off")
    assert found is not None
    assert found.loader is not None
    found.loader = importlib.util.LazyLoader(found.loader)
    module = importlib.util.module_from_spec(found)
    for name, value in (("put_off", module), ("asking", Asking())):
        monkeypatch.setitem(sys.modules, name, value)
        monkeypatch.setitem(globals(), name, value)
    found.loader.exec_module(module)
    Asking.asked.clear()
    model = Using(_not_now, values=False)
    if is_held:
        model.held = [module]  # else torch itself asks what it is
        model.of_it = type("OfIt", (), {"__module__": "put_off"})()
    profile = opgraph.profile(model, torch.ones(4, 8))
    assert not [remark for remark in profile.remarks if remark.code == "state"]
    assert "VALUE" not in object.__getattribute__(module, "__dict__")
    assert not Asking.asked
    assert module.VALUE == 1


NOTES = """
import logging
log = logging.getLogger("opgraph_tested.below")
def is_on():
    return log.isEnabledFor(10)
"""


@pytest.mark.parametrize("values", [False, True])
def test_what_a_logger_of_a_library_noted_of_one_above_it(
    values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, library = logging.getLogger("opgraph_tested"), ModuleType("noting")
    library.__file__ = "site-packages/noting.py"
    exec(NOTES, vars(library))  # noqa: S102
    monkeypatch.setitem(sys.modules, "noting", library)
    monkeypatch.setattr(above, "level", logging.WARNING)
    assert not library.is_on()
    opgraph.profile(Using(lambda: (above.setLevel(10), library.is_on()), values), torch.ones(2, 8))
    assert not library.is_on()


@pytest.mark.parametrize("at", range(5))
def test_a_profiler_that_forward_goes_on_with(at: int) -> None:
    """It goes on in C as well: an object that is a step behind would start there what runs already."""
    known = torch.profiler
    profiler = known.profile(
        activities=[known.ProfilerActivity.CPU],
        schedule=known.schedule(wait=1, warmup=1, active=2, repeat=1),
    )

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.profiler, self.calls = nn.Linear(4, 4), profiler, 0

        def forward(self, x: Tensor) -> Any:
            self.calls += 1
            self.profiler.step()
            return self.layer(x)

    model, x = Steps(), torch.randn(2, 4)
    with profiler:
        for _ in range(at):
            model(x)
        step, action = profiler.step_num, profiler.current_action
        notes = opgraph.profile(model, (x,)).model.notes
        assert model.calls == at
        moved = profiler.current_action is not action
        assert profiler.step_num == step + moved
        assert any("one with what it keeps in C (profile)" in note for note in notes) is moved
        for _ in range(6):
            model(x)
    assert not torch._C._autograd._profiler_enabled()


REGISTERS = """
class Registry:
    def __init__(self):
        self.names = {}
    def register(self, name, of):
        if name in self.names:
            raise ValueError(name)
        self.names[name] = of
REGISTRY = Registry()
class Counter:
    def __init__(self, name, registry=REGISTRY):
        registry.register(name, self)
class Gauge:
    def __init__(self, name, *, kept=REGISTRY):
        kept.register(name, self)
def note(name, *, names=[]):
    names.append(name)
    assert names == [name]
del REGISTRY
"""


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("by", ["Counter", "Gauge", "note"])
def test_where_a_function_of_a_library_registers_unless_it_is_told(
    by: str, values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call registers under the same name, which may be done once."""
    library: Any = ModuleType("registering")
    library.__file__ = "/site-packages/registering.py"
    exec(REGISTERS, vars(library))  # noqa: S102
    monkeypatch.setitem(sys.modules, "registering", library)
    register = {
        "Counter": lambda: registering.Counter("calls"),  # type: ignore[name-defined] # noqa: F821
        "Gauge": lambda: registering.Gauge("calls"),  # type: ignore[name-defined] # noqa: F821
        "note": lambda: registering.note("calls"),  # type: ignore[name-defined] # noqa: F821
    }[by]
    monkeypatch.setitem(globals(), "registering", library)
    opgraph.profile(Using(register, values), torch.ones(2, 8))
    register()


GIVES = """
import functools, itertools, random, threading, weakref
from contextvars import ContextVar
import numpy as np
class Kept:
    def __init__(self):
        self.number, self.names, self.deeper = 0, [], {"a": {"b": []}}
    def note(self):
        self.number += 1
        self.names.append("name")
        self.deeper["a"]["b"].append(1)
    def says(self):
        return self.number, list(self.names), list(self.deeper["a"]["b"])
STACK, TABLE, PAIR = [Kept()], {"a": Kept()}, (Kept(), 1)
def of_stack():
    return STACK[-1]
def of_table():
    return TABLE["a"]
def of_pair():
    return PAIR[0]
CONTEXT, LOCAL, WEAKLY = ContextVar("CONTEXT"), threading.local(), weakref.WeakKeyDictionary()
CONTEXT.set(Kept())
LOCAL.kept = Kept()
WEAKLY[Kept] = Kept()
def of_context():
    return CONTEXT.get()
def of_thread():
    return LOCAL.kept
def held_weakly():
    return WEAKLY[Kept]
NUMBERS, DRAWS, SEEDED, ROW = itertools.count(), random.Random(0), np.random.default_rng(0), np.zeros(2)
uniform = random.Random(1).uniform
LATER = None
def later():
    global LATER
    LATER = LATER or Kept()
    return LATER
class Slotted:
    __slots__ = ("number", "names")
    def __init__(self):
        self.number, self.names = 0, []
    def note(self):
        self.number += 1
        self.names.append("name")
    def says(self):
        return self.number, list(self.names), []
SLOTTED, NEXT = {"a": [Slotted()]}, itertools.count().__next__
def with_slots():
    return SLOTTED["a"][0]
def drawn_next():
    return NEXT()
CALLS = {}
def counted(function):
    @functools.wraps(function)
    def counts(*args):
        CALLS[function.__name__] = CALLS.get(function.__name__, 0) + 1
        return function(*args)
    return counts
def numbered():
    return next(NUMBERS)
def drawn():
    return DRAWS.random()
def drawn_within(low, high):
    return uniform(low, high)
def seeded():
    return SEEDED.random()
def row():
    return ROW
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library whose functions give what it keeps."""
    library: Any = ModuleType("giving")
    library.__file__ = "/site-packages/giving.py"
    monkeypatch.setitem(sys.modules, "giving", library)
    exec(GIVES, vars(library))  # noqa: S102
    monkeypatch.setitem(globals(), "giving", library)
    return library


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(
    "by",
    ["of_stack", "of_table", "of_pair", "of_context", "of_thread", "held_weakly", "with_slots"],
)
def test_what_a_function_of_a_library_gives_out_of_what_it_keeps(
    by: str, values: bool, library: Any
) -> None:
    note = {
        "of_stack": lambda: giving.of_stack().note(),  # type: ignore[name-defined] # noqa: F821
        "of_table": lambda: giving.of_table().note(),  # type: ignore[name-defined] # noqa: F821
        "of_pair": lambda: giving.of_pair().note(),  # type: ignore[name-defined] # noqa: F821
        "of_context": lambda: giving.of_context().note(),  # type: ignore[name-defined] # noqa: F821
        "of_thread": lambda: giving.of_thread().note(),  # type: ignore[name-defined] # noqa: F821
        "held_weakly": lambda: giving.held_weakly().note(),  # type: ignore[name-defined] # noqa: F821
        "with_slots": lambda: giving.with_slots().note(),  # type: ignore[name-defined] # noqa: F821
    }[by]
    opgraph.profile(Using(note, values), torch.ones(2, 8))
    assert getattr(library, by)().says() == (0, [], [])
    note()
    opgraph.profile(Using(note, values), torch.ones(2, 8), mode="train")
    assert getattr(library, by)().says() == (1, ["name"], [1] * (by != "with_slots"))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("held", ["itself", "within", "of a part", "in a list"])
def test_a_function_of_a_library_that_the_model_holds(
    held: str, values: bool, library: Any
) -> None:
    """Nothing says its name but the model."""

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.of = {
                "itself": library.drawn_within,
                "within": library.drawn,
                "of a part": partial(library.drawn_within, 0, 1),
                "in a list": [library.of_stack, library.with_slots],
            }[held]

        def forward(self, x: Tensor) -> Tensor:
            if held == "in a list":
                for each in self.of:
                    each().note()
            else:
                self.of(*(0, 1) * (held == "itself"))
            y = self.layer(x)
            return y * y.sum().item() if values else y

    def state() -> Any:
        drawn = library.uniform.__self__.getstate(), library.DRAWS.getstate()
        return drawn, library.STACK[0].says(), library.with_slots().says()

    before = state()
    opgraph.profile(Holds(), torch.ones(2, 8))
    assert state() == before


@pytest.mark.parametrize("values", [False, True])
def test_what_is_patched_by_a_text_between_hooks(values: bool, library: Any) -> None:
    """A run on fake tensors that fails between the two leaves the patch on."""

    def begins(module: nn.Module, _: Any) -> None:
        patches = patch("giving.Kept.note", print), patch("torch.nn.functional.relu", torch.tanh)
        module.patches = patches  # type: ignore[assignment]
        for each in patches:
            each.start()

    def ends(module: nn.Module, *_: Any) -> None:
        for each in module.patches:  # type: ignore[union-attr]
            each.stop()

    model = Using(lambda: None, values)
    model.register_forward_pre_hook(begins)
    note, relu = library.Kept.note, nn.functional.relu
    opgraph.profile(model, torch.ones(2, 8))
    assert library.Kept.note is note
    assert nn.functional.relu is relu
    assert not _patch._active_patches  # type: ignore[attr-defined]
    model.register_forward_hook(ends)
    opgraph.profile(model, torch.ones(2, 8))
    assert library.Kept.note is note
    assert nn.functional.relu is relu
    assert not _patch._active_patches  # type: ignore[attr-defined]


def _patch_in_thread(action: Callable[[], Any]) -> Callable[[], None]:
    def acts() -> None:
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()

    return acts


@pytest.mark.parametrize("of", ["attribute", "dictionary"])
def test_a_patch_that_stays_can_be_stopped(of: str, library: Any) -> None:
    """What a forward patches is named by no text of it."""
    library.TIMES, library.SIZES = 1, {"a": 1}
    name = library.__name__

    def made() -> Any:
        return patch(f"{name}.TIMES", 2) if of == "attribute" else patch.dict(f"{name}.SIZES", a=2)

    opgraph.profile(Using(lambda: made().start(), False), X)
    patch.stopall()
    assert (library.TIMES, library.SIZES) == (1, {"a": 1})
    p = made()
    p.start()
    opgraph.profile(Using(p.stop, False), X)
    patch.stopall()
    assert (library.TIMES, library.SIZES) == (1, {"a": 1})


def test_what_a_thread_imports_stays_where_a_text_says_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "whole"
    package.mkdir()
    for name in ("__init__", "part"):
        (package / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    whole = importlib.import_module("whole")
    by_name = "whole.part"
    bring = partial(importlib.import_module, by_name)

    def use() -> None:
        logging.getLogger("whole.part").debug("")
        _patch_in_thread(bring)()

    opgraph.profile(Using(use, False), X)
    assert whole.part is sys.modules["whole.part"]
    monkeypatch.delitem(sys.modules, "whole.part")
    monkeypatch.delitem(sys.modules, "whole")


def test_what_imports_do_while_a_model_is_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph says how a model may be split: its forward runs while there is a copy."""
    (tmp_path / "registry_of_all.py").write_text("ALL, COUNT = {}, 0")
    text = "import registry_of_all as all\nall.ALL['more'] = 1\nall.COUNT += 1"
    (tmp_path / "more_of_all.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    known = importlib.import_module("registry_of_all")

    class Brings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.all = nn.Linear(8, 8), nn.Linear(8, 8), known.ALL

        def forward(self, x: Tensor) -> Tensor:
            importlib.import_module("more_of_all")
            return self.b(self.a(x))  # type: ignore[no-any-return]

    opgraph.profile(Brings(), X, tensor_parallel=2)
    assert (known.ALL, known.COUNT) == ({"more": 1}, 1)
    for name in ("registry_of_all", "more_of_all"):
        monkeypatch.delitem(sys.modules, name)


def test_what_an_import_registers_in_slots(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more_of_slots.py").write_text("import giving\ngiving.with_slots().note()")
    monkeypatch.syspath_prepend(tmp_path)

    def use() -> None:
        importlib.import_module("more_of_slots")
        giving.with_slots()  # type: ignore[name-defined] # noqa: F821

    opgraph.profile(Using(use, False), X)
    assert library.with_slots().says() == (1, ["name"], [])
    monkeypatch.delitem(sys.modules, "more_of_slots")


def test_a_function_of_a_library_that_is_held_and_never_called() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = nn.Linear(8, 8)
    model.made = pydantic.create_model  # type: ignore[assignment]
    assert not opgraph.profile(model, X).model.notes


def test_what_a_function_of_a_library_makes_at_first_and_gives_later(library: Any) -> None:
    model = Using(lambda: giving.later().note(), False)  # type: ignore[name-defined] # noqa: F821
    opgraph.profile(model, torch.ones(2, 8))
    assert library.LATER is None
    library.later().note()
    opgraph.profile(model, torch.ones(2, 8))
    assert library.LATER.says() == (1, ["name"], [1])


def _add(row: Any) -> None:
    row += 1


@pytest.mark.parametrize("values", [False, True])
def test_numbers_that_functions_of_a_library_draw_and_give(values: bool, library: Any) -> None:
    def state() -> Any:
        within = library.uniform.__self__.getstate()
        of = library.SEEDED.bit_generator.state
        numbers = repr(library.NUMBERS), repr(library.NEXT.__self__)
        return numbers, library.DRAWS.getstate(), within, of, library.ROW.tolist()

    before = state()
    for use in (
        lambda: [giving.numbered()],  # type: ignore[name-defined] # noqa: F821
        lambda: [giving.drawn_next()],  # type: ignore[name-defined] # noqa: F821
        lambda: [giving.drawn()],  # type: ignore[name-defined] # noqa: F821
        lambda: giving.drawn_within(0, 1),  # type: ignore[name-defined] # noqa: F821
        lambda: [giving.seeded()],  # type: ignore[name-defined] # noqa: F821
        lambda: _add(giving.row()),  # type: ignore[name-defined] # noqa: F821
    ):
        opgraph.profile(Using(use, values), torch.ones(2, 8))
        assert state() == before


def test_what_a_library_keeps_of_functions_that_it_wraps(library: Any) -> None:
    wrapped = library.counted(lambda: None)
    opgraph.profile(Using(wrapped, False), torch.ones(2, 8))
    assert library.CALLS == {}


@pytest.mark.parametrize("values", [False, True])
def test_files_in_memory(values: bool) -> None:
    """What writes to one finds where it is by a text."""
    fsspec = pytest.importorskip("fsspec")
    store = importlib.import_module("fsspec.implementations.memory").MemoryFileSystem.store

    def write(name: str, how: str, text: bytes) -> None:
        with fsspec.open(f"memory://opgraph_tested/{name}", how) as file:
            file.write(text)

    def use() -> None:
        write("last.pt", "wb", b"forward")
        write("new.pt", "wb", b"forward")

    try:
        write("last.pt", "wb", b"before")
        found = opgraph.profile(Using(use, values), X)
        files = {name: file.getvalue() for name, file in store.items() if "opgraph_tested" in name}
        assert files == {"/opgraph_tested/last.pt": b"before"}
        assert not [remark for remark in found.remarks if remark.code == "state"]
        added = opgraph.profile(Using(lambda: write("last.pt", "ab", b"!"), values), X)
        assert any("opgraph_tested/last.pt" in r for r in added.remarks if r.code == "state")
    finally:
        for name in [name for name in store if "opgraph_tested" in name]:
            del store[name]


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("first", [{}, None])
def test_what_is_kept_at_a_class_of_torchs_and_replaced_between(
    first: Any, values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is in a class is known, and not what was there once."""
    cls: Any = torch.autograd.Function
    monkeypatch.setattr(cls, "counted", first, raising=False)

    def use() -> None:
        if torch.autograd.Function.counted is not None:  # type: ignore[attr-defined]
            torch.autograd.Function.counted["calls"] = 1  # type: ignore[attr-defined]

    for _ in range(4):
        opgraph.profile(Using(use, values), X)
        assert not cls.counted
        cls.counted = {}


def test_threads_of_arrow() -> None:
    arrow = pytest.importorskip("pyarrow")
    before = arrow.cpu_count(), arrow.io_thread_count()
    opgraph.profile(Using(lambda: (arrow.set_cpu_count(2), arrow.set_io_thread_count(3))), X)
    assert (arrow.cpu_count(), arrow.io_thread_count()) == before


def _registers() -> None:
    distributions.biject_to._registry.clear()


def _registers_by_a_name() -> None:
    from torch.distributions import transform_to

    transform_to._registry.clear()


def _shows_otherwise() -> None:
    np.ma.masked_print_option.set_display("n/a")


def _writes_with_indents() -> None:
    encoder = json._default_encoder  # type: ignore[attr-defined]
    encoder.indent = 2


def _computes_with_few_digits() -> None:
    context = decimal.DefaultContext
    context.prec = 11
    context.clear_traps()


def _notes_that_it_was_inexact() -> None:
    decimal.BasicContext.divide(decimal.Decimal(1), decimal.Decimal(3))


def _prints_polynomials_otherwise() -> None:
    np.polynomial.set_default_printstyle("ascii")


def _of_packages() -> Any:
    context = decimal.Context()
    return (
        len(distributions.biject_to._registry), len(distributions.transform_to._registry),
        np.ma.masked_print_option.display(), json._default_encoder.indent,  # type: ignore[attr-defined]
        context.prec, str(context.traps), str(decimal.BasicContext.flags),
        str(np.polynomial.Polynomial([1, 2])),
    )  # fmt: skip


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(
    "use",
    [
        _registers, _registers_by_a_name, _shows_otherwise, _writes_with_indents, _computes_with_few_digits,
        _notes_that_it_was_inexact, _prints_polynomials_otherwise,
    ],
)  # fmt: skip
def test_objects_that_a_module_shows_of_a_class_below_it(
    use: Callable[[], None], values: bool
) -> None:
    before = _of_packages()
    profile = opgraph.profile(Using(use, values), torch.ones(2, 8))
    assert _of_packages() == before
    assert not [r for r in profile.remarks if r.code == "state"]
