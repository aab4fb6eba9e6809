"""What nobody can take back is remarked on, once, and by what it was done to."""

from __future__ import annotations

import _csv
import _thread
import asyncio
import atexit
import codecs
import copyreg
import csv
import ctypes
import faulthandler
import hashlib
import importlib
import io
import logging
import multiprocessing
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import weakref
from abc import ABC
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from multiprocessing.pool import ThreadPool
from os import remove as _remove
from pathlib import Path
from queue import Queue
from types import ModuleType
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
import tqdm
import zmq
from torch import Tensor, nn
from torch import save as _save

import opgraph
from opgraph.tracing.state import effects

pytestmark = pytest.mark.live

X = torch.randn(2, 4)


class Doing(nn.Module):
    """Does something, and runs a layer."""

    def __init__(self, do: Callable[[Path], Any], folder: Path, *, real: bool = False) -> None:
        super().__init__()
        self.layer, self.do, self.folder, self.real = nn.Linear(4, 4), do, folder, real

    def forward(self, x: Tensor) -> Tensor:
        self.do(self.folder)
        y = self.layer(x)
        return y * y.sum().item() if self.real else y


def said(do: Callable[[Path], Any], folder: Path, **how: Any) -> list[str]:
    notes = opgraph.profile(Doing(do, folder, **how), X).model.notes
    assert len(set(notes)) == len(notes)
    return [n.replace(str(folder), "FOLDER") for n in notes]


def _by_open(folder: Path) -> None:
    with open(folder / "a.txt", "a") as file:  # noqa: PTH123
        file.write("x")


def _by_descriptor(folder: Path) -> None:
    os.close(os.open(folder / "a.txt", os.O_WRONLY | os.O_CREAT))


def _reads(folder: Path) -> None:
    (folder / "there.txt").read_text()
    with open(folder / "there.txt"):  # noqa: PTH123
        pass


def _unheard(_: Path) -> None:
    io.StringIO().write("x")
    torch.save(1, io.BytesIO())
    logging.getLogger(__name__).debug("x")


def _connects(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        name = str(folder / "s")
        there.bind(name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
            here.connect(name)
    Path(name).unlink()


def _sends(_: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as there:
        there.bind("inproc://opgraph")
        with context.socket(zmq.PULL) as here:
            here.connect("inproc://opgraph")
            there.send_pyobj(1)


def _writes_again(_: Path) -> None:
    AGAIN.seek(0)
    AGAIN.write("x")
    AGAIN.flush()
    AGAIN.seek(0)


class Abstract(ABC):  # noqa: B024
    """A class that others are registered with."""


FUTURES = [torch.futures.Future() for _ in range(6)]
BUFFER = ctypes.create_string_buffer(2)
OPEN = io.TextIOWrapper(io.BytesIO())
PIPE = os.pipe()
STREAM = open(PIPE[1], "w", buffering=1, closefd=False)  # noqa: SIM115
with tempfile.TemporaryFile() as _file:
    PLACES = os.dup(_file.fileno())
    AGAIN = open(os.dup(_file.fileno()), "w", closefd=False)  # noqa: SIM115
HERE, THERE = multiprocessing.Pipe()
STORE = torch.distributed.HashStore()
SEEDS = np.random.default_rng(0)
RESULTS = [torch.ones(2, requires_grad=True) * 2 for _ in range(2)]
PARTS = [result[:1] for result in RESULTS]


async def _waits() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


WAITS = _waits()
WAITS.send(None)  # of one that never began Python says so where it ends
HASH = hashlib.sha256()
IMAGE = torch.zeros(3, 8, 8, dtype=torch.uint8)
SCRIPTED: Any = torch.jit.script(nn.Linear(2, 2))
ROWS = sqlite3.connect(":memory:")
ROWS.execute("create table t (a int)")


def _goes_back(_: Path) -> None:
    with torch.enable_grad():
        torch.autograd.grad(FREED[next(at for at in range(6) if _is_kept(at))].sum(), WEIGHT)


def _is_kept(at: int) -> bool:
    try:
        return NODES[at]._saved_result is not None
    except RuntimeError:
        return False


WEIGHT = torch.ones(2, requires_grad=True)
FREED = [WEIGHT.exp() for _ in range(6)]
NODES: list[Any] = [result.grad_fn for result in FREED]


def _under_other_names(folder: Path) -> None:
    with suppress(FileNotFoundError):
        _remove(folder / "there.txt")  # noqa: PTH107
    _save(torch.ones(2), folder / "a.pt")


DONE: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "open": (_by_open, ["wrote to FOLDER/a.txt"]),
    "left open": (lambda f: os.open(f / "there.txt", os.O_RDONLY), ["left open FOLDER/there.txt"]),
    "pathlib": (lambda f: (f / "a.txt").write_text("x"), ["wrote to FOLDER/a.txt"]),
    "descriptor": (_by_descriptor, ["wrote to FOLDER/a.txt"]),
    "numpy": (lambda f: np.save(f / "a.npy", np.ones(2)), ["wrote to FOLDER/a.npy"]),
    "torch.save": (lambda f: torch.save(torch.ones(2), f / "a.pt"), ["wrote to FOLDER/a.pt"]),
    "folder": (lambda f: (f / "new").mkdir(exist_ok=True), ["made the folder FOLDER/new"]),
    "removed": (lambda f: (f / "there.txt").unlink(missing_ok=True),
                ["removed or renamed FOLDER/there.txt"]),
    "other names": (_under_other_names,
                    ["removed or renamed FOLDER/there.txt", "wrote to FOLDER/a.pt"]),
    "nothing to remove": (lambda f: (f / "nowhere").unlink(missing_ok=True), []),
    "print": (lambda f: print("hello"),  # noqa: T201
        ["printed to stdout"]),
    "stderr": (lambda f: sys.stderr.write("hello"), ["printed to stderr"]),
    "program": (lambda f: subprocess.run(["true"], check=True), ["started ['true']"]),
    "socket": (_connects, ["bound a socket to FOLDER/s", "connected to FOLDER/s",
                           "removed or renamed FOLDER/s"]),
    "rights": (lambda f: (f / "there.txt").chmod(0o600), ["changed FOLDER/there.txt"]),
    "shell": (lambda f: os.system("true"), ["started true"]),
    "class": (lambda f: Abstract.register(float), ["registered a class with Abstract"]),
    "memory": (lambda f: ctypes.memset(BUFFER, 1, 1), ["wrote to memory by ctypes"]),
    "codec": (lambda f: codecs.register_error("opgraph", str), ["registered a codec opgraph"]),
    "open file": (lambda f: OPEN.write("x"), ["wrote to a file that was open, or moved in it"]),
    "open pipe": (lambda f: STREAM.write("x\n"), ["wrote to a file that was open"]),
    "bytes": (lambda f: sys.stdout.buffer.write(b"x"), ["printed to stdout"]),
    "at a place": (lambda f: os.pwrite(PLACES, b"x", 3), [f"wrote to the descriptor {PLACES}"]),
    "another process": (lambda f: HERE.send(1), ["sent through a connection"]),
    "store": (lambda f: STORE.add("a", 1), ["changed a store of torch.distributed"]),
    "future": (lambda f: next(t for t in FUTURES if not t.done()).set_result(1),
               ["gave a future its result"]),
    "pickle": (lambda f: copyreg.pickle(Doing, str), ["registered how to pickle Doing"]),
    "thread": (lambda f: _thread.start_new_thread(int, ()), ["started a thread"]),
    "environment": (lambda f: os.putenv("OPGRAPH_TESTED", "1"),
                    ["changed the environment: OPGRAPH_TESTED"]),
    "kept descriptor": (lambda f: os.set_inheritable(PIPE[0], True),
                        [f"changed the descriptor {PIPE[0]}"]),
    "database": (lambda f: sqlite3.connect(f / "a.db").close(), ["opened the database FOLDER/a.db"]),
    "database in memory": (lambda f: ROWS.execute("insert into t values (1)"),
                           ["changed what is behind an object (Connection)"]),
    "coroutine": (lambda f: WAITS.send(None), ["took items from an iterator (_waits)"]),
    "seeds": (lambda f: SEEDS.spawn(1), ["spawned generators of random numbers"]),
    "kept gradient": (lambda f: RESULTS[0].retain_grad(), []),
    "kept gradient of a view": (lambda f: PARTS["True" in f.name].retain_grad(),  # one for each
                                ["had autograd retain the gradient of a tensor"]),
    "backward": (_goes_back, ["ran a backward through results that were there before, and freed it"]),
    "watchdog": (lambda f: faulthandler.cancel_dump_traceback_later(), ["ended a watchdog"]),
    "crash": (lambda f: faulthandler.enable(cast("Any", sys.__stderr__)),
              ["changed where a crash is written to"]),
    "hash": (lambda f: HASH.update(b"x"), ["fed a hash"]),
    "called at the end": (lambda f: atexit.unregister(said),
                          ["wants no more to be called at the end said"]),
    "dialect": (lambda f: csv.register_dialect("opgraph"), ["registered a dialect opgraph"]),
    "no dialect": (lambda f: (_csv.register_dialect("other"), csv.unregister_dialect("other")),
                   ["unregistered the dialect other"]),
    "finalizer": (lambda f: weakref.finalize(Abstract, lambda: None),
                  ["left what is called at the end of ABCMeta"]),
    "warnings of vmap": (lambda f: torch._C._functorch._set_vmap_fallback_warning_enabled(True),
                         ["set what torch does not say, by _set_vmap_fallback_warning_enabled"]),
    "image": (lambda f: torchvision.io.write_jpeg(IMAGE, str(f / "a.jpg")),
              ["wrote to FOLDER/a.jpg"]),
    "scripted": (lambda f: SCRIPTED.save(f / "a.pt"), ["wrote to FOLDER/a.pt"]),
    "by torch": (lambda f: torch.jit.save(SCRIPTED, str(f / "a.pt")), ["wrote to FOLDER/a.pt"]),
    "length": (lambda f: os.truncate(PLACES, 1), [f"changed the descriptor {PLACES}"]),
    "again": (_writes_again, ["wrote to a file that was open, or moved in it"]),
    "safetensors": (lambda f: safetensors.torch.save_file({"a": torch.zeros(2)}, f / "a.safetensors"),
                    ["wrote to FOLDER/a.safetensors"]),
    "message": (_sends, ["sent through a connection"]),
    "reading": (_reads, []),
    "nothing": (_unheard, []),
    "temporary": (lambda f: tempfile.gettempdir(), []),
}  # fmt: skip


@pytest.mark.parametrize("what", DONE)
@pytest.mark.parametrize("real", [False, True])
def test_what_a_forward_does(what: str, real: bool, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "there.txt").write_text("x")
    do, done = DONE[what]
    streams = sys.stdout, sys.stderr, open, io.open, os.open, torch.save, socket.socket.connect
    found = said(do, tmp_path, real=real)
    # Tests that run side by side have a thread that may be the one.
    found = [each.replace(" or another thread", "") for each in found]
    assert found == [f"forward {each}: that cannot be taken back" for each in done]
    assert streams == (
        sys.stdout,
        sys.stderr,
        open,
        io.open,
        os.open,
        torch.save,
        socket.socket.connect,
    )


@pytest.mark.parametrize("how", ["function", "library"])
def test_operators_that_are_defined_are_said(how: str, tmp_path: Path) -> None:
    def define(_: Path) -> None:
        name, schema = f"f{uuid4().hex}", "(Tensor x) -> Tensor"
        if how == "function":
            torch.library.define(f"opgraph_tested::{name}", schema)
        else:
            torch.library.Library("opgraph_tested", "FRAGMENT").define(name + schema)

    (note,) = said(define, tmp_path)
    assert note.startswith("forward defined for torch ")


@pytest.mark.parametrize("home", ["pyarrow", "pyarrow.compute"])
def test_what_arrow_is_told_is_said(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow: Any = ModuleType(home)
    name = "register_scalar_function" if "." in home else "unregister_extension_type"
    setattr(arrow, name, str)
    monkeypatch.setitem(sys.modules, home, arrow)
    monkeypatch.setattr(effects, "_EARS", [None, []])  # there may have been as many modules
    (note,) = said(lambda _: getattr(arrow, name)("mine"), tmp_path)
    assert note == "forward registered with Arrow mine: that cannot be taken back"
    assert getattr(arrow, name) is str


def test_what_an_import_registers_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registering.py").write_text(
        "import abc\nclass A(abc.ABC): pass\nA.register(int)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert said(lambda _: importlib.import_module("registering"), tmp_path) == []
    assert isinstance(1, sys.modules["registering"].A)


def test_what_is_imported_keeps_nothing_that_hears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keeping.py").write_text(
        "import sys\nfrom atexit import register\nout = sys.stdout\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert said(lambda _: importlib.import_module("keeping"), tmp_path) == []
    kept = sys.modules["keeping"]
    assert (kept.register, kept.out) == (atexit.register, sys.stdout)


TELLING = """
import importlib
import torch

class Telling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        importlib.import_module("starred")
        return self.layer(x)
"""


@pytest.mark.parametrize("tracer", ["auto", "export", "fx", "dynamo"])
def test_what_is_imported_keeps_nothing_of_a_tracer(
    tracer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream in the place of its own, as a handler of logs would keep one, and no name that the code of
    a model goes by in a run."""
    (tmp_path / "telling.py").write_text(TELLING)
    (tmp_path / "starred.py").write_text("import sys\nfrom telling import *\nerrors = sys.stderr\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("telling", "starred"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    profile = opgraph.profile(importlib.import_module("telling").Telling(), X, tracer=tracer)
    assert profile.graph.failed is None
    kept = vars(sys.modules.pop("starred"))
    assert kept["errors"] is sys.stderr
    assert {name for name in kept if name[:2] != "__"} == {
        "sys", "errors", "importlib", "torch", "Telling"
    }  # fmt: skip


def test_threads_that_are_left_running_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opgraph.tracing.capture.threads._PATIENCE", 0.01)
    going, begun = threading.Event(), threading.Event()
    timers = [threading.Timer(60, print), threading.Timer(60, print)]

    def begins() -> None:  # the second one, and was there before
        going.wait()
        timers[1].start()
        begun.set()

    def start(_: Path) -> None:
        timers[0].name = "the timer"
        timers[0].start()
        going.set()
        begun.wait()

    threading.Thread(target=begins).start()
    try:
        notes = said(start, tmp_path)
    finally:
        for each in timers:
            each.cancel()
    assert notes[0].endswith("what they did from then on is not counted")
    (left,) = (n for n in notes if "running" in n)
    assert left == "forward left a thread running: the timer: that cannot be taken back"


def test_what_a_thread_of_before_may_have_done_for_the_forward_is_said(tmp_path: Path) -> None:
    """Many libraries write in a thread of their own what they are given to write."""
    given: Queue[int] = Queue()

    def writes() -> None:
        given.get()
        (tmp_path / "a.txt").write_text("x")
        given.task_done()

    threading.Thread(target=writes).start()
    notes = said(lambda _: (given.put(1), given.join()), tmp_path)
    assert "forward or another thread wrote to FOLDER/a.txt: that cannot be taken back" in notes


def test_what_a_listener_prints_is_said(tmp_path: Path, capsys: Any) -> None:
    logger, given = logging.Logger("mine"), Queue[Any]()
    logger.addHandler(QueueHandler(given))
    listener = QueueListener(given, logging.StreamHandler(sys.stdout))
    listener.start()
    notes = said(lambda _: (logger.warning("x"), given.join()), tmp_path)
    listener.stop()
    assert "forward or another thread printed to stdout: that cannot be taken back" in notes
    assert capsys.readouterr().out == "x\n"


def test_what_is_printed_is_printed(tmp_path: Path, capsys: Any) -> None:
    said(lambda _: print("hello"), tmp_path)  # noqa: T201
    assert capsys.readouterr().out == "hello\n"


def test_what_failed_attempts_did_is_said_too(tmp_path: Path) -> None:
    model = Doing(lambda f: None, tmp_path, real=True)
    model.calls = 0

    def once(folder: Path) -> None:
        if not (folder / "b.txt").exists():
            (folder / "b.txt").write_text("x")

    model.do = once
    notes = opgraph.profile(model, X).model.notes
    assert notes == (f"forward wrote to {tmp_path}/b.txt: that cannot be taken back",)


@pytest.mark.parametrize("own", [False, True])
def test_a_progress_bar_is_of_whoever_shows_it(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """The first bar of a process starts a monitor, which wants to be called at the end: that is said of a
    model that shows one, and not where torch does, which goes through a graph with a bar."""
    inner = torch.fx.symbolic_trace(nn.Linear(4, 4))

    class Shows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Any:
            for _ in tqdm.tqdm(range(1), disable=True) if own else ():
                pass
            return torch.fx.Interpreter(self.inner).run(x)

    monkeypatch.setattr(tqdm.tqdm, "monitor", None)
    said = [r.text for r in opgraph.profile(Shows(), X).remarks if r.code == "state"]
    assert any("TMonitor" in text for text in said) == own


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_others_hold_is_heard(name: str, tmp_path: Path, capsys: Any) -> None:
    """Most programs that log have told a handler of it long before."""
    logger, stream = logging.Logger("mine"), getattr(sys, name)
    logger.addHandler(logging.StreamHandler(stream))
    kept = dict(vars(stream))
    assert said(lambda _: logger.info("hello"), tmp_path) == [
        f"forward printed to {name}: that cannot be taken back"
    ]
    assert "hello" in getattr(capsys.readouterr(), name[3:])
    assert vars(stream) == kept
    assert not said(lambda _: logger.isEnabledFor(logging.INFO), tmp_path)


def test_a_loop_that_wakes_itself_reads_nothing(tmp_path: Path) -> None:
    async def wait() -> None:
        await asyncio.to_thread(int)

    assert not said(lambda _: asyncio.run(wait()), tmp_path)


def test_a_pool_of_threads_sends_nothing(tmp_path: Path) -> None:
    """It tells itself through a pipe that it has done what it was given."""
    with ThreadPool(1) as pool:
        notes = said(lambda _: pool.map(abs, range(3)), tmp_path)
    assert not any("connection" in note for note in notes)


def _a_pipe() -> Any:
    reading, writing = os.pipe()
    os.write(writing, b"12345678")
    os.close(writing)
    return reading


def _a_socket() -> Any:
    here, there = socket.socketpair()
    there.send(b"12345678")
    there.close()
    return here


def _a_connection() -> Any:
    here, there = multiprocessing.Pipe()
    for number in range(4):
        there.send(number)
    return here


def _a_program() -> Any:
    return subprocess.Popen(["yes"], stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (_a_pipe, lambda pipe: os.read(pipe, 1)),
        (lambda: os.fdopen(_a_pipe(), "rb"), lambda file: file.read(1)),
        (_a_socket, lambda sock: sock.recv(1)),
        (_a_connection, lambda connection: connection.recv()),
        (_a_program, lambda program: program.stdout.readline()),
    ],
)
def test_what_is_read_and_gone_is_said(
    make: Callable[[], Any], read: Callable[[Any], Any], tmp_path: Path
) -> None:
    held = make()
    model = Doing(lambda _: read(model.held), tmp_path)
    model.held = held
    (note,) = opgraph.profile(model, X).model.notes
    assert note.startswith("forward took what was to be read from")
    if isinstance(held, subprocess.Popen):
        held.kill()
        held.communicate()
    elif isinstance(held, int):
        os.close(held)
    else:
        held.close()


@pytest.mark.parametrize("reset", [torch.compiler.reset, torch._dynamo.reset])
def test_what_drops_what_was_compiled_is_said(reset: Any, tmp_path: Path) -> None:
    name, module = reset.__name__, sys.modules[reset.__module__]
    assert said(lambda _: getattr(module, name)(), tmp_path) == [
        "forward dropped what torch.compile had made: that cannot be taken back"
    ]


@pytest.mark.slow
def test_a_pool_that_is_closed_and_replaced_stays_so(tmp_path: Path) -> None:
    def anew(_: Any) -> None:
        model.pool.map(abs, range(3))
        model.pool.close()
        model.pool.join()
        model.pool = ThreadPool(1)

    model: Any = Doing(anew, tmp_path)
    model.pool = ThreadPool(1)
    profile = opgraph.profile(model, X)
    assert any("has another in its place" in r.text for r in profile.remarks)
    model(X)
    model.pool.terminate()


def test_what_is_written_to_a_program_is_said(tmp_path: Path) -> None:
    program = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert program.stdin is not None
    model = Doing(lambda _: program.stdin.write(b"x"), tmp_path)
    notes = opgraph.profile(model, X).model.notes
    program.communicate()
    assert any(note.startswith("forward wrote to ") for note in notes)


def test_a_model_sees_the_stream_that_there_is(tmp_path: Path, capsys: Any) -> None:
    here = sys.stdout
    (note,) = said(lambda f: sys.stdout is here and (f / "here").mkdir(), tmp_path)
    assert note.startswith("forward made the folder FOLDER/here")


def test_what_others_print_to_the_same_file_is_not_by_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output may be a file that is standard error, too, or another process's."""
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stdout", log)
        other, go, done = os.dup(log.fileno()), threading.Event(), threading.Event()

        def prints() -> None:
            go.wait()
            os.write(other, b"hello")
            done.set()

        writer = threading.Thread(target=prints)
        writer.start()
        notes = said(lambda _: (log.flush(), go.set(), done.wait()), tmp_path)
        writer.join()
        os.close(other)
        assert (tmp_path / "log").read_text() == "hello"
        assert not [note for note in notes if "log" in note]


def test_memory_is_traced_as_deep_as_before(tmp_path: Path) -> None:
    tracemalloc.start(7)
    try:
        notes = said(lambda _: tracemalloc.stop(), tmp_path)
        assert tracemalloc.get_traceback_limit() == 7
        assert [note for note in notes if "forgotten what it had noted" in note] == notes != []
    finally:
        tracemalloc.stop()


COMPILED = """
import sys, torch, opgraph
from torch._dynamo.utils import counters
def seen(x):
    y = x + 1
    sys.audit("seen", y)
    return y * 2
again, x = torch.compile(seen, backend="eager"), torch.ones(3)
again(x)
before = dict(counters["frames"])
opgraph.profile(torch.nn.Linear(3, 3), x)
with torch.compiler.set_stance("fail_on_recompile"):
    assert again(x).sum() == 12
assert dict(counters["frames"]) == before
"""


def test_what_hears_is_no_part_of_what_is_compiled() -> None:
    """The hook stays in the process, and Python calls it within functions that Dynamo has compiled."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def _in_another(number: int) -> int:
    return number


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("how", ["map", "apply", "imap", "apply_async"])
def test_what_a_pool_of_processes_is_asked_is_said(how: str, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        args: Any = ([1],) if "map" in how else (((1,)),)

        def do(_: Path) -> None:
            done = getattr(pool, how)(_in_another, *args)
            assert how != "map" or done == [1]

        assert said(do, tmp_path) == [
            "forward called what another process has _in_another: that cannot be taken back"
        ]


def test_a_model_of_a_package_with_the_name_of_one_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
import torch
class Writes(torch.nn.Module):
    def __init__(self, path):
        super().__init__()
        self.layer, self.path = torch.nn.Linear(4, 4), path
    def forward(self, x):
        with open(self.path, "w") as file:
            file.write("x")
        return self.layer(x)
"""
    package = tmp_path / "code"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(text)
    monkeypatch.delitem(sys.modules, "code", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        made: Any = importlib.import_module("code.model")
        notes = opgraph.profile(made.Writes(tmp_path / "a.txt"), X).model.notes
    finally:
        sys.modules.pop("code.model", None)
    assert notes == (f"forward wrote to {tmp_path / 'a.txt'}: that cannot be taken back",)


def test_what_is_called_by_keywords_is_called(tmp_path: Path) -> None:
    """And said, whatever is known of how it is called."""
    program = torch.export.export(nn.Linear(4, 4), (X,))
    do: Any = lambda f: torch.export.save(ep=program, f=f / "a.pt2")  # noqa: E731
    assert said(do, tmp_path) == ["forward wrote to FOLDER/a.pt2: that cannot be taken back"]


def test_a_file_that_is_written_to_elsewhere_is_said_once(tmp_path: Path) -> None:
    with open(tmp_path / "a.txt", "w") as one, open(tmp_path / "b.txt", "w") as other:  # noqa: PTH123
        held = [one, other]
        notes = said(lambda _: [each.write("x") for each in held], tmp_path)
    assert sorted(n.replace(" or another thread", "") for n in notes) == [
        f"forward wrote to FOLDER/{name}.txt, or moved in it: that cannot be taken back"
        for name in "ab"
    ]
