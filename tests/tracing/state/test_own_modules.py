"""What a person's own modules keep is as before, by whatever way the code that changes it is found."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import importlib.util
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing.pool import ThreadPool
from operator import methodcaller
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn

import opgraph

X = torch.ones(2, 8)
needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
NOTES = """
import collections
CALLS, TABLE, NUMBER, QUEUE = [], {}, 0, collections.deque()
class Kept:
    calls = []
    def __init__(self):
        self.seen = {}
KEPT = Kept()
def counted(function):
    calls = []
    def wrapper(*args):
        calls.append(len(calls))
        return function(*args)
    wrapper.calls = calls
    return wrapper
class Terms:
    @counted
    def first(self): ...
    @staticmethod
    @counted
    def second(): ...
TERMS, LOSSES = [Terms()], {"third": counted(lambda: None)}
def warn_once():
    warn_once.said = True
def memo(key, known={}):
    known[key] = key
def note(*_):
    global NUMBER
    NUMBER += 1
    CALLS.append(NUMBER)
    TABLE[f"call {NUMBER}"] = NUMBER
    QUEUE.append(NUMBER)
    Kept.calls.append(NUMBER)
    KEPT.seen[NUMBER] = [NUMBER]
    TERMS[0].first(), Terms.second(), LOSSES["third"](), warn_once(), memo(NUMBER)
def state():
    calls = [list(f.calls) for f in (Terms.first, Terms.second, LOSSES["third"])]
    return [NUMBER, list(CALLS), dict(TABLE), list(QUEUE), list(Kept.calls), dict(KEPT.seen), calls,
            dict(vars(warn_once)), dict(memo.__defaults__[0])]
"""


LATE = """
import logging, os, sys, warnings
from . import kept
kept.note()
os.environ["OPGRAPH_TESTED_LATE"] = "by the import"
sys.path.append("late")
logging.getLogger("opgraph_tested.late").setLevel("ERROR")
warnings.filterwarnings("ignore", "said late")
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package of a person's own with a module in it, which nothing here names."""
    package = tmp_path / "noting_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kept.py").write_text(NOTES)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("noting_package.kept")
    for name in [name for name in sys.modules if name.startswith("noting_package")]:
        del sys.modules[name]


class Written:
    """Stands in for a file."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.note = note

    def write(self, _: str) -> None:
        self.note()


class Set:
    """Notes what is set."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.__dict__["_note"] = note

    @property
    def mode(self) -> int:
        return 1

    @mode.setter
    def mode(self, _: int) -> None:
        self.__dict__["_note"]()

    @property
    def rank(self) -> int:
        self.__dict__["_note"]()
        return 0


class Config(NamedTuple):
    path: str = "noting_package.kept"


def _by_a_text_of_a_class(_: Any) -> Callable[[], Any]:
    return lambda: vars(importlib.import_module(Config().path))["note"]()  # noqa: PLW0108  (found as it is called)


def _by_a_file(notes: Any) -> Callable[[], Any]:
    file: Any = Written(notes.note)
    return lambda: print("text", file=file)


def _by_what_a_library_calls(notes: Any) -> Callable[[], Any]:
    file: Any = Written(notes.note)
    return lambda: json.dump([1], file)


def _by_a_setter(notes: Any) -> Callable[[], Any]:
    return partial(setattr, Set(notes.note), "mode", 1)


def _as_it_is_asked_for(notes: Any) -> Callable[[], Any]:
    return partial(hasattr, Set(notes.note), "rank")


def _by_a_method_that_is_held(notes: Any) -> Callable[[], Any]:
    call = methodcaller("note")
    return lambda: call(notes)


WAYS = [_by_a_text_of_a_class, _by_a_file, _by_what_a_library_calls, _by_a_setter, _as_it_is_asked_for,
        _by_a_method_that_is_held]  # fmt: skip


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_module_of_ones_own_keeps(
    way: Callable[[Any], Callable[[], Any]], values: bool, notes: Any
) -> None:
    use = way(notes)
    before = notes.state()
    for options in ({}, {"mode": "train"}):
        profile = opgraph.profile(Using(use, values), X, **options)  # type: ignore[arg-type]
        assert notes.state() == before
        assert not [remark for remark in profile.remarks if remark.code == "state"]
    use()
    assert notes.state() != before


def test_a_function_in_the_place_of_one_of_a_library(
    notes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the forward names leads to it."""
    plain = nn.functional.relu

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        notes.note()
        return plain(*args, **kwargs)

    monkeypatch.setattr(nn.functional, "relu", counted)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model(X)
    before = notes.state()
    opgraph.profile(model, X)
    assert notes.state() == before


def test_what_another_thread_keeps_meanwhile_stays(notes: Any) -> None:
    """It runs in code of a person's own: what is not within reach of the forward is its own."""
    done, going = threading.Event(), threading.Event()

    def run() -> None:
        while not done.is_set():
            notes.note()
            going.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        going.wait()
        opgraph.profile(nn.Linear(8, 8), X)
    finally:
        done.set()
        thread.join()
    assert [*range(1, notes.NUMBER + 1)] == notes.CALLS


def _by_a_timer(call: Callable[[], Any]) -> Callable[[], Any]:
    timer = threading.Timer(0.1, call)
    timer.start()
    return timer.join


def _by_a_pool(call: Callable[[], Any]) -> Callable[[], Any]:
    pool = ThreadPoolExecutor(1)
    pool.submit(lambda: (time.sleep(0.1), call()))
    return pool.shutdown


def _by_the_callback_of_a_pool(call: Callable[[], Any]) -> Callable[[], Any]:
    pool = ThreadPool(1)
    pool.apply_async(time.sleep, (0.1,), callback=lambda _: call())
    return pool.terminate


def _by_a_loop(call: Callable[[], Any]) -> Callable[[], Any]:
    loop = asyncio.new_event_loop()
    loop.call_later(0.1, call)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def end() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    return end


def _by_a_library(call: Callable[[], Any]) -> Callable[[], Any]:
    """As watchers of files and schedulers do."""
    space = {"__name__": "beating", "call": call}
    text = "import time\ndef beat():\n    time.sleep(0.1)\n    call()"
    exec(compile(text, "/site-packages/beating.py", "exec"), space)  # noqa: S102
    thread = threading.Thread(target=space["beat"])
    thread.start()
    return thread.join


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="clocks of threads")
def test_a_thread_that_only_waits_changes_nothing(notes: Any) -> None:
    done = threading.Event()
    threads = [threading.Timer(60, print), threading.Thread(target=done.wait)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    try:
        before = notes.state()
        profile = opgraph.profile(Using(_by_a_setter(notes)), X)
    finally:
        done.set()
        threads[0].cancel()  # type: ignore[attr-defined]
        for thread in threads:
            thread.join()
    assert notes.state() == before
    assert not [remark for remark in profile.remarks if remark.code == "state"]


@pytest.mark.parametrize(
    "way", [_by_a_timer, _by_a_pool, _by_the_callback_of_a_pool, _by_a_loop, _by_a_library]
)
def test_what_was_asked_for_before_and_comes_meanwhile_stays(
    way: Callable[[Callable[[], Any]], Callable[[], Any]], notes: Any
) -> None:
    """Of a thread that waits it cannot be seen whose code it will call."""
    came = threading.Event()
    end = way(lambda: (notes.note(), came.set()))
    try:
        opgraph.profile(Using(lambda: came.wait(60)), X)
    finally:
        end()
    assert notes.CALLS == [1]


def test_a_module_of_a_class_of_its_own(notes: Any) -> None:
    """As lazy ones are, of which each attribute is looked up by code."""

    class Module(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(notes, name)

    module: Any = Module("lazy_notes")
    sys.modules["lazy_notes"] = module
    try:
        module.note()
        before = notes.state()
        opgraph.profile(Using(lambda: module.note()), X)  # noqa: PLW0108  (found as it is called)
        assert notes.state() == before
    finally:
        del sys.modules["lazy_notes"]


def test_a_module_with_the_name_of_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "warp.py").write_text(NOTES)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("warp")
    try:
        before = module.state()
        opgraph.profile(Using(module.note), X)
        opgraph.profile(Using(_by_a_setter(module)), X)
        assert module.state() == before
    finally:
        del sys.modules["warp"]


def test_a_module_that_is_left_of_one_whose_import_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a file of its own looks for its folders in what it is part of."""
    (tmp_path / "left_over" / "parts").mkdir(parents=True)
    (tmp_path / "left_over" / "__init__.py").write_text("from . import parts\nraise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path)
    with suppress(ImportError):
        importlib.import_module("left_over")
    try:
        assert "left_over.parts" in sys.modules
        assert opgraph.profile(nn.Linear(8, 8), X).totals.flops
    finally:
        del sys.modules["left_over.parts"]


def test_what_ones_own_does_for_good_is_noted_for_good(notes: Any, tmp_path: Path) -> None:
    """What registers does so once, and goes by a global, though nothing is known of it before."""
    text = """
import torch
from torch.utils import _pytree
class Box: ...
DONE = False
def once():
    global DONE
    if not DONE:
        _pytree.register_pytree_node(Box, lambda _: ([], None), lambda *_: Box())
        DONE = True
class Mine(torch.distributions.Normal): ...
@torch.distributions.register_kl(Mine, Mine)
def _(one, other):
    once()
    return torch.zeros(())
"""
    (tmp_path / "noting_package" / "registers.py").write_text(text)
    module = importlib.import_module("noting_package.registers")
    mine = module.Mine(0.0, 1.0)
    model = Using(lambda: torch.distributions.kl_divergence(mine, mine))
    profile = opgraph.profile(model, X)
    assert any("registered with pytree" in remark.text for remark in profile.remarks)
    assert module.DONE
    model(X)


def test_an_operator_that_is_defined_where_it_is_first_needed() -> None:
    @functools.lru_cache(None)
    def thrice() -> Any:
        @torch.library.custom_op("opgraph_tested::thrice", mutates_args=())
        def thrice(x: Tensor) -> Tensor:
            return x * 3

        thrice.register_fake(torch.empty_like)
        return thrice

    class Needs(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return thrice()(super().forward(x)).sum().item()

    model = Needs(8, 8)
    opgraph.profile(model, X)
    assert isinstance(model(X), float)


WITHOUT = """
import gc, threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import get_autocast_dtype, is_autocast_enabled
from torch.utils import swap_tensors
TAKEN = [is_autocast_enabled, get_autocast_dtype, swap_tensors, threading.Thread.start,
         ThreadPoolExecutor.submit, torch.autocast.__init__, torch.autocast.__enter__,
         torch.autocast.__exit__,
         torch.utils.hooks.RemovableHandle.__init__, torch.UntypedStorage.__getitem__]
with torch.autocast("cpu", torch.bfloat16):
    NARROW = torch.softmax(torch.ones(2, 2, dtype=torch.bfloat16), 1)
CALLS = []
PLAIN = ThreadPoolExecutor.submit
def submit(pool, call, *args, **kwargs):
    CALLS.append(call)
    return PLAIN(pool, call, *args, **kwargs)
ThreadPoolExecutor.submit = submit
COLLECTED = gc.isenabled()
gc.disable()
torch.compiler.set_stance("force_eager")
torch.set_autocast_dtype("cuda", torch.bfloat16)
torch.set_autocast_enabled("cuda", True)
"""


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(
    ("mode", "tracer"), [("infer", "auto"), ("train", "auto"), ("infer", "fx")]
)
def test_an_import_finds_all_as_it_is_without_a_run(
    mode: str, tracer: str, within: bool, notes: Any, tmp_path: Path
) -> None:
    """What it takes by name is no function of the run's, what it sets and puts somewhere stays; and the run
    goes on in what it has set."""
    import torch._dynamo

    (tmp_path / "noting_package" / "without.py").write_text(WITHOUT)
    owners = ((threading.Thread, "start"), (ThreadPoolExecutor, "submit"))
    there = [vars(owner)[name] for owner, name in owners]

    class Imports(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cuda", torch.float16) if within else nullcontext():
                importlib.import_module("noting_package.without")
            return super().forward(x)

    plain = [
        torch.is_autocast_enabled, torch.get_autocast_dtype, torch.utils.swap_tensors, *there,
        torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__,
        torch.utils.hooks.RemovableHandle.__init__, torch.UntypedStorage.__getitem__,
    ]  # fmt: skip
    try:
        profile = opgraph.profile(Imports(8, 8), X, mode=mode, target="cuda", tracer=tracer)
        module = sys.modules["noting_package.without"]
        assert plain == module.TAKEN
        assert module.NARROW.dtype == torch.bfloat16
        assert module.COLLECTED
        assert not gc.isenabled()
        assert torch._dynamo.eval_frame._stance.stance == "force_eager"
        assert torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")
        assert ThreadPoolExecutor.submit is module.submit
        assert threading.Thread.start is there[0]
        dtypes = {kernel.dtype for node in profile.graph.nodes for kernel in node.kernels}
        assert within or tracer == "fx" or "bfloat16" in dtypes  # it follows contexts alone
    finally:
        gc.enable()
        torch.compiler.set_stance("default")
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)
        for (owner, name), value in zip(owners, there, strict=True):
            setattr(owner, name, value)


CALLS = """
import torch
from torch import nn
CALL = nn.Module.__call__
TABLE = torch.arange(8.0) * 0.5
POOLED = nn.AvgPool1d(2)(torch.arange(16.0).view(1, 16))
"""


@pytest.mark.parametrize("tracer", ["auto", "fx", "dynamo", "export"])
def test_an_import_finds_no_tracing_of_torch(tracer: str, notes: Any, tmp_path: Path) -> None:
    (tmp_path / "noting_package" / "calls.py").write_text(CALLS)

    class Imports(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            from noting_package.calls import POOLED, TABLE  # type: ignore[import-not-found]

            result: Tensor = super().forward(x) * TABLE + POOLED
            return result

    model, call, modes = Imports(8, 8), nn.Module.__call__, _modes()
    assert opgraph.profile(model, X, tracer=tracer).totals.flops
    module = sys.modules["noting_package.calls"]
    assert module.CALL is call
    assert type(module.TABLE) is type(module.POOLED) is Tensor
    assert _modes() == modes
    assert type(model(X)) is Tensor


def _modes() -> tuple[int, int]:
    operators = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return len(operators), len(torch.overrides._get_current_function_mode_stack())


UNSEEN = slice([])
"""Has a list where nobody looks, which nobody brings back."""


def test_a_lock_is_kept_while_something_is_imported(notes: Any, tmp_path: Path) -> None:
    (tmp_path / "noting_package" / "late.py").write_text("")
    lock, held, order = threading.RLock(), threading.Event(), UNSEEN.stop

    def wait() -> None:
        held.wait()
        with lock:
            UNSEEN.stop.append("thread")

    def use() -> None:
        with lock:
            held.set()
            time.sleep(0.1)
            importlib.import_module("noting_package.late")
            UNSEEN.stop.append("forward")

    order.clear()
    thread = threading.Thread(target=wait)
    thread.start()
    opgraph.profile(Using(use), X)
    held.set()
    thread.join()
    assert order == ["forward", "thread"]


def test_a_module_that_is_found_at_the_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import runs as if there were no trace, and of the environment what it sets stays."""
    (tmp_path / "found_later.py").write_text(
        "import os, torch\nONES = torch.ones(2)\nos.environ['OPGRAPH_TESTED_B'] = '2'\n"
    )
    names = [f"OPGRAPH_TESTED_{name}" for name in "ABCD"]
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in names[:3]:
        monkeypatch.setenv(name, "1")

    def use() -> None:
        try:
            importlib.import_module("found_later")
        except ImportError:
            del os.environ[names[0]]
            os.environ[names[3]] = "1"
            sys.path.insert(0, str(tmp_path))
            importlib.import_module("found_later")

    try:
        opgraph.profile(Using(use), X)
        assert type(sys.modules["found_later"].ONES) is Tensor
        assert [os.environ.get(name) for name in names] == ["1", "2", "1", None]
        assert str(tmp_path) not in sys.path
    finally:
        sys.modules.pop("found_later", None)


def test_what_ends_where_the_forward_looks_for_rubbish(notes: Any) -> None:
    """It is somebody else's, and of the time before."""

    class Node:
        def __init__(self) -> None:
            self.me = self
            weakref.finalize(self, notes.note)

    node = Node()
    for _ in range(3):
        gc.collect()  # it is old
    del node
    opgraph.profile(Using(lambda: gc.collect()), X)  # noqa: PLW0108  (found in the text)
    assert notes.CALLS == [1]


def test_a_big_array_of_ones_own_is_not_copied(notes: Any) -> None:
    """No forward reaches it."""
    notes.big = torch.ones(1 << 20).numpy()
    profile = opgraph.profile(nn.Linear(8, 8), X, memory_limit=0.001)
    assert not [remark for remark in profile.remarks if remark.code == "state"]


def test_what_ends_meanwhile_is_not_held_again(notes: Any) -> None:
    """A weak table, where what is in it goes as the forward runs, or as Python looks for rubbish."""
    held = weakref.WeakValueDictionary({1: Written(notes.note), 2: (kept := Written(notes.note))})
    notes.weakly, both = held, [Written(notes.note)]
    notes.weakly[3] = both[0]

    class Drops(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            both.clear()
            return super().forward(x)

    opgraph.profile(Drops(8, 8), X)
    assert held[2] is kept
    assert all(reference() is not None for reference in held.valuerefs())


class Signalling(nn.Linear):
    """Counts its calls, and sends as many signals as it is told."""

    def __init__(self, signals: int = 1) -> None:
        super().__init__(8, 8)
        self.signals, self.calls, self.stops, self.told = signals, 0, False, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.told.append(self.calls)
        for _ in range(self.signals):
            signal.raise_signal(signal.SIGUSR1)
        return super().forward(x)


@contextmanager
def _handling(handler: Callable[[], Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@needs_signals
@pytest.mark.parametrize("values", [False, True])
def test_what_a_handler_of_a_signal_changes_stays(values: bool, notes: Any, tmp_path: Path) -> None:
    """It is no part of the forward, and may have come from elsewhere."""
    (tmp_path / "noting_package" / "late.py").write_text("from . import kept\nkept.note()\n")
    model = Signalling(2)

    def handler() -> None:
        model.stops = True
        model.told.insert(0, 0)
        notes.note()
        importlib.import_module("noting_package.late")

    with _handling(handler):
        opgraph.profile(nn.Sequential(model, Using(notes.note, values)), X)
    runs = 2 if values else 1
    assert (model.calls, model.stops, model.told) == (0, True, [0, 0] * runs)
    assert [*range(1, notes.NUMBER + 1)] == notes.CALLS == sorted(notes.KEPT.seen)
    assert 2 * runs + 1 == notes.NUMBER  # each signal, and the import


@needs_signals
@pytest.mark.parametrize("options", [{}, {"mode": "train"}])
def test_what_a_handler_of_a_signal_finds(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that saves the model, as where a cluster is about to end it."""
    model = Signalling()
    norms, file = [], tmp_path / "saved.pt"

    def handler() -> None:
        torch.save(model.state_dict(), file)
        norms.append(model.weight.norm().item())
        print("saved")  # noqa: T201

    with _handling(handler):
        profile = opgraph.profile(model, X, **options)
    assert norms == [model.weight.norm().item()]
    saved = torch.load(file)
    assert torch.equal(saved["weight"], model.weight)
    assert not any("wrote" in each.text or "printed" in each.text for each in profile.remarks)
    assert type(model.weight) is nn.Parameter


@needs_signals
def test_signals_of_a_timer(notes: Any) -> None:
    """What is found is not looked at for each of very many: a remark."""
    model = Signalling(40)
    with _handling(notes.note):
        profile = opgraph.profile(model, X)
    assert (model.calls, model.told) == (0, [])
    assert 0 < notes.NUMBER < 40
    assert any("came so often" in remark.text for remark in profile.remarks)


def test_a_module_of_ones_own_that_is_imported_meanwhile(notes: Any, tmp_path: Path) -> None:
    """What the import changes stays, settings of the process, too, and what the forward does goes back."""
    (tmp_path / "noting_package" / "late.py").write_text(LATE)
    logger = logging.getLogger("opgraph_tested.late")

    def use() -> None:
        os.environ["OPGRAPH_TESTED_FORWARD"] = "by the forward"
        importlib.import_module("noting_package.late")
        os.environ["OPGRAPH_TESTED_LATE"] = "by the forward"
        setattr(Set(notes.note), "mode", 1)  # noqa: B010  (no code names what it runs)

    def state() -> Any:
        filters = [each for each in warnings.filters if "said late" in str(each)]
        return os.environ.get("OPGRAPH_TESTED_LATE"), "late" in sys.path, logger.level, len(filters)

    assert state() == (None, False, 0, 0)
    try:
        with warnings.catch_warnings():
            opgraph.profile(Using(use), X)
            assert state() == ("by the import", True, 40, 1)
            assert notes.CALLS == [1]
            assert "OPGRAPH_TESTED_FORWARD" not in os.environ
    finally:
        logger.setLevel(0)
        del os.environ["OPGRAPH_TESTED_LATE"]
        sys.path.remove("late")


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_big_table_does_not_hide_the_others(size: int, notes: Any) -> None:
    notes.words = [str(number) for number in range(size)]
    notes.note()
    before = notes.state()
    opgraph.profile(Using(_by_a_setter(notes)), X)
    assert notes.state() == before


PLUGIN = """
import torch
LAYER, SEEN = torch.nn.BatchNorm1d(8), []
def run(x):
    SEEN.append(1)
    return LAYER(x)
"""


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("values", [False, True])
def test_a_module_that_a_forward_loads_by_its_path(
    mode: str, values: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays, and what the forward does in it does not."""
    (tmp_path / "plugin.py").write_text(PLUGIN)
    monkeypatch.delitem(sys.modules, "opgraph_tested_plugin", raising=False)

    class Plugged(Using):
        def forward(self, x: Tensor) -> Tensor:
            plugin = sys.modules.get("opgraph_tested_plugin")
            if plugin is None:
                spec = importlib.util.spec_from_file_location(
                    "opgraph_tested_plugin", tmp_path / "plugin.py"
                )
                assert spec is not None
                assert spec.loader is not None
                plugin = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(plugin)
            made: Tensor = plugin.run(super().forward(x))  # type: ignore[attr-defined]
            return made

    opgraph.profile(Plugged(int, values), X, mode=mode)
    plugin: Any = sys.modules["opgraph_tested_plugin"]
    assert plugin.SEEN == []
    assert plugin.LAYER.weight.grad is None
    assert plugin.LAYER.num_batches_tracked == 0
    assert torch.equal(plugin.LAYER.running_mean, torch.zeros(8))


REGISTERING = """
import importlib
FOUND = {}
def register(function):
    assert function.__name__ not in FOUND
    FOUND[function.__name__] = function
    return function
def find(kind):
    if kind not in FOUND:
        importlib.import_module("registering_package." + kind)
    return FOUND[kind]
"""
FANCY = """
from . import register
STATS, SEEN = {"calls": 0}, []
class Cache:
    hits, table = 0, {}
@register
def fancy(x):
    STATS["calls"] += 1
    SEEN.append(x.shape)
    Cache.hits += 1
    Cache.table[len(SEEN)] = 1
    return x
"""


@pytest.fixture
def registering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package with a registry, and a module that fills it when it is first asked for."""
    package = tmp_path / "registering_package"
    package.mkdir()
    (package / "__init__.py").write_text(REGISTERING)
    (package / "fancy.py").write_text(FANCY)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("registering_package")
    for name in [name for name in sys.modules if name.startswith("registering_package")]:
        del sys.modules[name]


def test_what_a_module_keeps_that_is_imported_by_a_name_which_code_makes(registering: Any) -> None:
    for _ in range(2):
        opgraph.profile(Using(lambda: registering.find("fancy")(X)), X)
        late = sys.modules["registering_package.fancy"]
        kept: Any = late
        assert (kept.STATS, kept.SEEN, kept.Cache.hits, kept.Cache.table) == (
            {"calls": 0},
            [],
            0,
            {},
        )


SLOW = """
import time
TABLE = {}
time.sleep(0.5)
TABLE["a"] = 1
def f():
    return TABLE["a"]
"""


def test_a_module_that_another_thread_makes_meanwhile(
    registering: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it as another one is there is a part of it alone."""
    (tmp_path / "registering_package" / "slow.py").write_text(SLOW)
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        assert importlib.import_module("registering_package.slow").f() == 1

    def quick() -> None:
        begun.wait()
        time.sleep(0.2)
        registering.find("fancy")(X)

    def use() -> None:
        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(slow), pool.submit(quick)]:
                each.result()

    opgraph.profile(Using(use), X)
    use()


def test_settings_of_a_module_that_a_forward_is_the_first_to_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tracemalloc", raising=False)

    def use() -> None:
        import tracemalloc

        if tracemalloc.is_tracing():
            tracemalloc.stop()
        else:
            tracemalloc.start()

    tracing = [importlib.import_module("_tracemalloc").is_tracing() for _ in range(2)]
    for at in range(2):
        opgraph.profile(Using(use), X)
        tracing[at] = sys.modules["tracemalloc"].is_tracing()
    assert tracing == [False, False]


def _made(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def _among_all(_: Any, name: str, path: Path) -> Any:
    """As most plugins are loaded; it may be found as it is made, or afterwards."""
    if name not in sys.modules:
        plugin = _made(name, path)
        plugin.__spec__.loader.exec_module(plugin)
        sys.modules[name] = plugin
    return sys.modules[name]


def _in_a_table(_: Any, name: str, path: Path) -> Any:
    if name not in PLUGINS:
        PLUGINS[name] = plugin = _made(name, path)
        plugin.__spec__.loader.exec_module(plugin)
    return PLUGINS[name]


def _in_an_attribute(model: Any, name: str, path: Path) -> Any:
    if model.plugin is None:
        model.plugin = plugin = _made(name, path)
        plugin.__spec__.loader.exec_module(plugin)
        model.made_with_it = plugin.fancy
    return model.plugin


PLUGINS: dict[str, Any] = {}


@pytest.mark.parametrize("load", [_among_all, _in_a_table, _in_an_attribute])
def test_what_a_module_registers_that_is_loaded_by_its_path(
    load: Callable[..., Any], registering: Any
) -> None:
    """It is found at the next call, or registered then: only once, and with what was made of it."""
    PLUGINS.clear()

    class Plugged(Using):
        plugin: Any = None

        def forward(self, x: Tensor) -> Tensor:
            load(
                self, "registering_package.fancy", Path(registering.__file__).with_name("fancy.py")
            )
            registering.FOUND["fancy"](x)
            if load is _in_an_attribute:
                self.made_with_it(x)
            return super().forward(x)

    model = Plugged(int)
    opgraph.profile(model, X)
    opgraph.profile(model, X, mode="train")
    model(X)
    model(X)


def test_a_part_that_is_imported_late_and_what_was_made_with_it(registering: Any) -> None:
    """Either is there at the next call, or neither."""

    class Lazy(Using):
        library: Any = None

        def forward(self, x: Tensor) -> Tensor:
            if self.library is None:
                self.library = importlib.import_module("registering_package.fancy")
                self.made_with_it = self.library.fancy
            return super().forward(self.made_with_it(x))

    for values in (False, True):
        model = Lazy(int, values)
        opgraph.profile(model, X)
        assert model.library is None
        model(X)


SETTING = """
import contextvars, logging, torch._dynamo
torch._dynamo.config.recompile_limit = 63
VARIABLE = contextvars.ContextVar("opgraph_tested")
VARIABLE.set("by the import")
logging.captureWarnings(True)
logging.getLogger("opgraph_tested.fresh").setLevel("ERROR")
"""


def test_what_an_import_sets_in_variables_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of Dynamo's settings are such; so is what shows warnings, and a logger that nobody else has."""
    (tmp_path / "opgraph_tested_setting.py").write_text(SETTING)
    monkeypatch.syspath_prepend(tmp_path)
    config: Any = importlib.import_module("torch._dynamo").config
    before = config.recompile_limit
    try:
        opgraph.profile(Using(lambda: importlib.import_module("opgraph_tested_setting")), X)
        setting: Any = sys.modules["opgraph_tested_setting"]
        assert config.recompile_limit == 63
        assert setting.VARIABLE.get(None) == "by the import"
        assert warnings.showwarning is logging._showwarning  # type: ignore[attr-defined]
        assert logging.getLogger("opgraph_tested.fresh").level == logging.ERROR
    finally:
        config.recompile_limit = before
        logging.captureWarnings(False)
        sys.modules.pop("opgraph_tested_setting", None)


CHAINED = """
import signal
BEFORE = signal.getsignal(signal.SIGUSR1)
def handle(*args):
    BEFORE(*args)
AS_SET = signal.signal(signal.SIGUSR1, handle)
"""


@needs_signals
def test_an_import_that_handles_a_signal_beside_who_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opgraph_tested_chained.py").write_text(CHAINED)
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []

    def mine(number: int, _: Any) -> None:
        seen.append(number)

    def use() -> None:
        importlib.import_module("opgraph_tested_chained")
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        opgraph.profile(Using(use), X)
        chained: Any = sys.modules["opgraph_tested_chained"]
        assert chained.BEFORE is chained.AS_SET is mine
        assert signal.getsignal(signal.SIGUSR1) is chained.handle
        assert seen == [signal.SIGUSR1]
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)
        sys.modules.pop("opgraph_tested_chained", None)


@needs_signals
def test_a_handler_that_a_forward_puts_back_waits_still() -> None:
    """An interrupt that comes then is not raised while all is brought back."""

    def use() -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert before is signal.default_int_handler
        assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is before

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert opgraph.profile(Using(use), X).model.notes == ()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
