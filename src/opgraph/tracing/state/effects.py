"""What a forward does that nobody can take back: files that it writes or removes, connections, other
programs, printed text. It is let happen, as in any call of the model, and remarked on."""

from __future__ import annotations

import io
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from opgraph.record.remarks import Remark
from opgraph.record.turns import is_mine
from opgraph.tracing.state.holding import loaded
from opgraph.tracing.state.others import alone, idles, is_neutral, name_of_thread
from opgraph.tracing.state.packages import is_closed, is_opaque

_TOLD = 3
_LONG = 200


class Effects:
    """Hears what is done outside of the process, from `begin` until `end`."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, None]] = {}
        me = threading.current_thread()
        self._theirs = {id(t): t for t in threading.enumerate() if t is not me}
        self._begun: list[threading.Thread] = []
        self.awaited: set[int] = set()
        self.for_good: set[str] = set()  # modules that did what there is no way back from
        self.apart = False  # what is done is not the forward's
        self._before: list[tuple[Any, str, Any]] = []
        self.open = _descriptors()
        self._ends = _last_end()

    def begin(self, held: Iterable[Any] = (), awaited: Iterable[Any] = ()) -> None:
        """Hear from now on, and what is written to streams that the forward has `held` since before, where
        no place in them tells of it, and put into queues that are `awaited` by threads of before."""
        self.awaited |= set(map(id, awaited))
        if not _INSTALLED:  # there is no way back
            _INSTALLED.append(_audit)
            sys.addaudithook(_audit)
            _left_alone(_audit)
        _LISTENING.append(self)
        for name in _BEGINS:
            if hasattr(threading, name):
                self._replace(threading, name, self._begins(getattr(threading, name)))
        for owner, name, _, heard in _ears():
            self._replace(owner, name, heard)
        for stream, what, name in _streams(held):
            for how in _READS if what is _READ else _WRITES:
                if hasattr(stream, how):
                    self._replace(stream, how, _heard(getattr(stream, how), what, _always(name)))

    def hear(self) -> None:
        """Hear what there is by now, too: a forward has imported it."""
        known = {(id(owner), name) for owner, name, _ in self._before}
        for owner, name, what, of in _present():
            if (id(owner), name) not in known:
                self._replace(owner, name, _heard(getattr(owner, name), what, of))

    def end(self) -> None:
        """Hear no more."""
        if self in _LISTENING:
            _LISTENING.remove(self)
        self._put_back()
        self._before.clear()

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Within, what hears by a name is out of the way: whoever imports keeps what it finds there."""
        heard = {(id(owner), name): vars(owner).get(name) for owner, name, _ in self._before}
        self._put_back()
        try:
            yield
        finally:
            self._before = [(o, n, was) for o, n, was in self._before if vars(o).get(n) is was]
            for owner, name, _ in self._before:  # where an import put none of its own
                _put(owner, name, heard[id(owner), name])

    def _put_back(self) -> None:
        for owner, name, value in reversed(self._before):
            with suppress(
                AttributeError, TypeError, KeyError
            ):  # the others are to be put back, too
                _put(owner, name, value)

    def remarks(self) -> list[Remark]:
        """What was heard, and which threads and descriptors there are by now."""
        for other in self._begun:
            if threading.Thread.is_alive(other) and not idles(other):
                self._said.setdefault("left a thread running:", {})[name_of_thread(other)] = None
        self._begun.clear()  # they may have tensors of the run
        self._theirs.clear()
        by_one = alone()
        for name in _ends_since(self._ends):
            what = "left what is called at the end of"
            self._said.setdefault(what if by_one else f"or another thread {what}", {})[name] = None
        before, now = self.open.items(), _descriptors().items()
        for what, found in (("left open", now - before), ("closed", before - now)):
            for number, _ in sorted(found):
                name = _behind(number) if what == "left open" else f"the descriptor {number}"
                self._said.setdefault(what if by_one else f"or another thread {what}", {})[name] = (
                    None
                )
        return [
            Remark(
                "not-counted" if what is _REPLAYED else "state",
                f"forward {what}{_list(names)}: that cannot be taken back",
            )
            for what, names in self._said.items()
        ]

    def say(self, what: str, name: str) -> None:
        """Something was done; by a thread of before perhaps for the forward, which may have asked it to."""
        if self.apart:
            return
        if what in _FOR_GOOD:
            self.for_good |= _above()
        if self._is_of_another():
            what = "" if what is _REPLAYED else f"or another thread {what}"
        if what and (what is _REPLAYED or _by_the_model()):
            self._said.setdefault(what, {})[name] = None

    def _is_of_another(self) -> bool:
        """Whether this thread was there before, or one that was began it, and does nothing for the run."""
        known: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
        return id(known.get(threading.get_ident())) in self._theirs and not is_mine()

    def _begins(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What threads are begun by, so that it is known who does."""

        def begins(run: Any, *args: Any, **kwargs: Any) -> Any:
            other = run.__self__
            if self._is_of_another():
                self._theirs[id(other)] = other
            else:
                self._begun.append(other)
            return function(run, *args, **kwargs)

        return begins

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, vars(owner).get(name)))
        _put(owner, name, value)


def _heard(
    function: Callable[..., Any], what: str, of: Callable[..., str | None]
) -> Callable[..., Any]:
    """A function that says, when it has done so, what it did to what."""

    def heard(*args: Any, **kwargs: Any) -> Any:
        name: str | None = ""
        with suppress(Exception):  # it is called otherwise than is known here
            name = of(*args, **kwargs)
        result = function(*args, **kwargs)
        _tell(what, name)
        return result

    return heard


def _tell(what: str, name: str | None) -> None:
    if name is not None:
        for each in _LISTENING:
            each.say(what, name)


def _present() -> Iterator[tuple[Any, str, str, Callable[..., str | None]]]:
    """What is heard by a name, as far as it is there: whose attribute it is, and what it does to what."""
    for module, parts, name, what, of in _PATHS:
        owner: Any = loaded(module)
        for part in parts:
            owner = getattr(owner, part, None)
        if getattr(owner, name, None) is not None:
            yield owner, name, what, of


def _ears() -> list[tuple[Any, str, Any, Any]]:
    """The same with what it is itself, None where it inherits that, and what hears it in its place."""
    now = len(sys.modules)
    if _EARS[0] != now or not all(vars(o).get(n) is own for o, n, own, _ in _EARS[1]):
        _EARS[:] = now, [
            (o, n, vars(o).get(n), _heard(getattr(o, n), what, of)) for o, n, what, of in _present()
        ]  # fmt: skip
    return _EARS[1]  # type: ignore[no-any-return]


_EARS: list[Any] = [None, []]
"""All of them, as long as there are as many modules, and nobody has put others there."""
_BEGINS = ("_start_new_thread", "_start_joinable_thread")
"""What `threading` begins threads by, until Python 3.12 and since."""
_LISTENING: list[Effects] = []
_INSTALLED: list[Any] = []


def _left_alone(function: Callable[..., Any]) -> None:
    """Have Dynamo never compile a function that Python calls within code of somebody's that is compiled:
    it would be one function more there, and an error where none may be compiled anew."""
    here = torch._C._dynamo.eval_frame
    skipped = here._FrameExecStrategy(here._FrameAction.SKIP, here._FrameAction.DEFAULT)
    here.set_code_exec_strategy(function.__code__, skipped)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    """What Python tells of, whoever does it and under whatever name: of the whole process, for good."""
    if _LISTENING and event in _EVENTS:
        what, of = _EVENTS[event]
        with suppress(Exception):  # an error here would be one of what is done
            _tell(what, of(*args))


def _last_end() -> int:
    """The number of the last function that is called at the end of an object (`weakref.finalize`)."""
    known = _ENDS[next(reversed(_ENDS))] if _ENDS else None
    return -1 if known is None else int(known.index)


def _ends_since(last: int) -> Iterator[str]:
    """The classes of the objects that have got one since which is not opgraph's, if these or the function
    are one's own."""
    for known in reversed(list(_ENDS.values())):
        if known.index <= last:
            return
        item = known.weakref()
        homes = [getattr(each, "__module__", None) for each in (type(item), known.func)]
        if item is not None and homes[1] != _OWN_ENDS and any(map(_is_own, homes)):
            yield type(item).__qualname__


_ENDS: dict[Any, Any] = weakref.finalize._registry  # type: ignore[attr-defined]
_OWN_ENDS = "opgraph.tracing.state.undoing"
"""Where opgraph has its own, by which what C was told of lives on."""


def _is_own(home: Any) -> bool:
    """Whether the name of a module of Python's is that of one of a person's own."""
    return type(home) is str and not is_closed(home) and home.partition(".")[0] != "opgraph"


def _descriptors() -> dict[int, tuple[int, int]]:
    """The descriptors that are open, and of what each is; none where no system says. They are listed
    where the last ones are not all that there are, of which Linux says the number (since 6.2)."""
    with suppress(OSError):
        if _FOLDER.stat().st_size == len(_LAST) and all(_of(n) == it for n, it in _LAST.items()):
            return dict(_LAST)
    _LAST.clear()
    with suppress(OSError):
        for number in map(int, os.listdir(_OPEN)):  # noqa: PTH208  (it is quicker)
            with suppress(OSError):  # that of the folder itself
                _LAST[number] = _of(number)
    return dict(_LAST)


def _of(number: int) -> tuple[int, int]:
    """Of what a descriptor is."""
    stat = os.fstat(number)
    return stat.st_dev, stat.st_ino


_LAST: dict[int, tuple[int, int]] = {}
"""The descriptors that were open at the last look."""


def _behind(number: int) -> str:
    """What a descriptor is of, as the system calls it."""
    with suppress(OSError):
        return _text(Path(_OPEN, str(number)).readlink())
    return f"the descriptor {number}"


_OPEN = "/proc/self/fd"
_FOLDER = Path(_OPEN)


def _put(owner: Any, name: str, value: Any) -> None:
    """Set what something itself has under a name, whatever its class makes of that: None where it inherits
    it."""
    table = vars(owner)
    if value is None:
        delattr(owner, name) if isinstance(owner, type) else table.pop(name)
    elif isinstance(owner, type):
        setattr(owner, name, value)
    else:
        table[name] = value


def standard() -> list[Any]:
    """The streams that a process prints to. Others do, too, and move them in the file that they may be."""
    return [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]


def _streams(held: Iterable[Any]) -> Iterator[tuple[Any, str, str]]:
    """The streams to be heard themselves, whoever has them and under whatever name: each with what is done
    by writing to it, or by reading from it, and what it is called."""
    seen: set[tuple[int, str]] = set()
    named = zip(standard(), ("stdout", "stderr") * 2, strict=True)
    held = list(held)
    placeless = [(stream, name_of(stream)) for stream in held if _has_no_places(stream)]
    placed = [stream for stream in held if _is_written(stream)]
    found = [
        *((stream, _PRINTED, name) for stream, name in named),
        *((stream, _WROTE, name) for stream, name in placeless),
        *(
            (s, f"{_WROTE} {name_of(s)}, or moved in it", "") for s in placed
        ),  # as where its place tells
        *((stream, _READ, "stdin") for stream in (sys.stdin, sys.__stdin__)),
        *((stream, _READ, name) for stream, name in placeless),
    ]
    for stream, what, name in found:
        for each in (stream, getattr(stream, "buffer", None)):
            key = id(each), "" if what is _READ else _WROTE
            if key not in seen and type(getattr(each, "__dict__", None)) is dict:
                seen.add(key)
                yield each, what, name


def _has_no_places(stream: Any) -> bool:
    with suppress(Exception):  # a class of one's own may answer as it likes
        return not stream.seekable()
    return False


_FILES = (io.TextIOWrapper, io.FileIO, io.BufferedWriter, io.BufferedRandom)


def _is_written(stream: Any) -> bool:
    """Whether something is an open file that may be written to at any place."""
    with suppress(Exception):
        return isinstance(stream, _FILES) and stream.writable() and stream.seekable()
    return False


def name_of(file: Any) -> str:
    """The name of a file, where it has one."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else "a file that was open"


def _always(name: str) -> Callable[..., str]:
    return lambda *_, **__: name


def _by_the_model() -> bool:
    """Whether it is code of the model that had something done, and not torch, nor opgraph itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(
            (*_IMPORTING, *_SHOWING)
        ):  # it keeps what it compiles; what is printed is said
            return False
        acts = name.startswith((*_ACTING, "zmq.", "tornado.")) or frame.f_globals is globals()
        if not acts and not is_neutral(frame):
            return name.partition(".")[0] not in ("torch", "opgraph")
        frame = frame.f_back
    return True  # a thread that runs nothing but a function of Python's


_SHOWING = "ipykernel.", "IPython.", "jupyter_client.", "execnet."
"""Packages that send what is printed to whoever shows it."""
_ACTING = (
    "torch.serialization", "torch.hub", "torch.jit", "torch.export", "torch.package", "torch.profiler",
    "torch.multiprocessing", "torch.distributed.checkpoint", "torch.utils.tensorboard",
)  # fmt: skip
"""The parts of torch that do something in the world outside for whoever calls them."""


def _above() -> set[str]:
    """The module of Python's whose code had something done."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_opaque(name := str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return set() if frame is None else {name}


_IMPORTING = ("importlib._bootstrap", "_frozen_importlib")


def _registered(*args: Any, **__: Any) -> str | None:
    """What was made known, unless it was by an import: what was imported stays imported."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__package__") != "opgraph.tracing.capture":
        if frame.f_code.co_name == "<module>":
            return None
        frame = frame.f_back
    names = [a if isinstance(a, str) else getattr(a, "__qualname__", "") for a in args]
    return _text(next(filter(None, names), ""))


def _variable(name: Any, *_: Any) -> str | None:
    """A variable of the environment that Python's own table of them is not told of."""
    return None if sys._getframe(2).f_globals is vars(os) else os.fsdecode(name)


def _by_itself(what: Any, *_: Any) -> str | None:
    """What the model does to a descriptor, and no function of Python's."""
    return None if is_neutral(sys._getframe(2)) else _text(what)


def _database(path: Any, *_: Any, **__: Any) -> str | None:
    return None if path == ":memory:" else _text(path)


def _opened(file: Any, mode: str | None, flags: int) -> str | None:
    low = mode is None and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return _path(file) if low or (mode and set(mode) & set("wax+")) else None


def _path(path: Any, *_: Any) -> str | None:
    """What is named by its path: descriptors are heard by themselves."""
    return None if isinstance(path, int) else _text(path)


def _path_or_descriptor(path: Any, *_: Any) -> str | None:
    if not isinstance(path, int):
        return _text(path)
    return f"the descriptor {path}" if any(path in each.open for each in _LISTENING) else None


def _to_file(file: Any) -> str | None:
    return _text(file) if isinstance(file, (str, os.PathLike)) else None


def _there(path: Any, *more: Any) -> str | None:
    """What is there, as far as that is known of one within an open folder."""
    return _text(path) if more[-1] != -1 or os.path.lexists(path) else None


def _new(path: Any, *more: Any) -> str | None:
    return _text(path) if more[-1] != -1 or not os.path.lexists(path) else None


def _first(path: Any = "", *_: Any, **__: Any) -> str:
    return _text(path)


def _second(_: Any = None, other: Any = "", *__: Any, **___: Any) -> str:
    return _text(other)


def _called(_: Any, method: Any = "", /, *__: Any, **___: Any) -> str:
    return _text(method)


def _in_pool(pool: Any, *args: Any, **named: Any) -> str | None:
    if type(pool).__name__ == "ThreadPool":
        return None
    function = args[0] if args else named.get("func")
    return _text(getattr(function, "__qualname__", type(function).__qualname__))


def _called_so(process: Any) -> str:
    return _text(process.name)


def _in_second(*args: Any, f: Any = "", where: Any = "", **_: Any) -> str:
    file = args[1] if len(args) > 1 else f or where
    return _text(file) if isinstance(file, (str, os.PathLike)) else "a file"


def _data_set(of: Any, *_: Any, **__: Any) -> str:
    return _text(of.file.filename)


def _last(*args: Any, **__: Any) -> str:
    return _text(args[-1])


def _sent(*_: Any, **__: Any) -> str | None:
    return (
        None if sys._getframe(2).f_code.co_name == "_write_to_self" else ""
    )  # a loop wakes itself


def _awaited(queue: Any, *_: Any, **__: Any) -> str | None:
    """What is put into a queue at which a thread of before waits."""
    return "" if any(id(queue) in each.awaited for each in _LISTENING) else None


def _handed(*_: Any, **__: Any) -> str | None:
    above = sys._getframe(2).f_back
    return None if _is_pools(above) else ""


def _a_descriptor(number: Any, *_: Any) -> str | None:
    """One that was open before: what a forward opens itself is its own."""
    theirs = any(number in each.open for each in _LISTENING)
    return f"the descriptor {number}" if theirs and _by_itself(number) is not None else None


def _a_connection(*_: Any, **__: Any) -> str | None:
    reads = sys._getframe(2)
    wakes = reads.f_code.co_name == "_read_from_self"  # a loop itself
    return None if wakes or _is_pools(reads.f_back) else "a connection"


def _is_pools(frame: FrameType | None) -> bool:
    """Whether a pool wakes itself."""
    return frame is not None and frame.f_globals.get("__name__") == "multiprocessing.pool"


def _crashing(*_: Any, **__: Any) -> str | None:
    """Whether crashes are written anywhere; only that is set again."""
    return "" if sys.modules["faulthandler"].is_enabled() else None


def _nothing(*_: Any, **__: Any) -> str:
    return ""


def _text(thing: Any) -> str:
    named = isinstance(thing, (str, bytes)) or hasattr(thing, "__fspath__")
    text = os.fsdecode(thing) if named else str(thing)
    return text if len(text) <= _LONG else "…" + text[1 - _LONG :]


def _list(names: dict[str, None]) -> str:
    named = [n for n in names if n]
    shown, more = named[:_TOLD], len(named[_TOLD:])
    return f" {', '.join(shown)}{f' and {more} more' if shown and more else ''}" if shown else ""


_WROTE, _REMOVED, _CHANGED = "wrote to", "removed or renamed", "changed"
_PRINTED, _READ = "printed to", "took what was to be read from"
_WRITES = "write", "writelines", "truncate"
_READS = "read", "read1", "readinto", "readline", "readlines"
"""Methods of streams."""
_DROPPED = "dropped what torch.compile had made"
_REPLAYED = "replayed a CUDA graph, whose operators are in no total"
_EVENTS: dict[str, tuple[str, Callable[..., str | None]]] = {
    "open": (_WROTE, _opened),
    "os.mkdir": ("made the folder", _new),
    **dict.fromkeys(("os.remove", "os.rename", "os.rmdir"), (_REMOVED, _there)),
    **dict.fromkeys(("os.truncate", "os.chmod", "os.chown", "os.utime"), (_CHANGED, _path_or_descriptor)),
    **dict.fromkeys(("fcntl.fcntl", "fcntl.flock", "fcntl.lockf", "fcntl.ioctl"),
                    ("changed the descriptor", _first)),
    **dict.fromkeys(("os.setxattr", "os.removexattr"), (_CHANGED, _path)),
    **dict.fromkeys(("os.link", "os.symlink"), ("linked to", _first)),
    **dict.fromkeys(("os.putenv", "os.unsetenv"), ("changed the environment:", _variable)),
    **dict.fromkeys(("os.system", "os.posix_spawn", "os.fork"), ("started", _first)),
    "subprocess.Popen": ("started", _second),
    "os.kill": ("sent a signal to", _first),
    "socket.connect": ("connected to", _second),
    "socket.bind": ("bound a socket to", _second),
    **dict.fromkeys(("socket.sendto", "socket.sendmsg"), ("sent to", _last)),
    "ctypes.dlopen": ("loaded the library", _first),
    "syslog.syslog": ("wrote to the log of the system", _nothing),
    "sqlite3.connect": ("opened the database", _database),
}  # fmt: skip
"""What Python tells audit hooks of, by the names of its documentation."""
_HEARD_IF_THERE: tuple[tuple[str, str, str, Callable[..., str | None]], ...] = (
    ("socket", "socket.send", "sent through a connection", _sent),
    ("socket", "socket.sendall", "sent through a connection", _sent),
    *(("socket", f"socket.{name}", _READ, _a_connection) for name in (
        "recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "accept")),
    *(("ssl", f"SSLSocket.{name}", _READ, _a_connection) for name in ("recv", "recv_into", "read")),
    *(("ssl", f"SSLSocket.{name}", "sent through a connection", _sent) for name in (
        "send", "sendall", "write")),
    *(("socket", f"socket.{name}", "changed a connection", _nothing) for name in (
        "shutdown", "setsockopt")),
    ("os", "killpg", "sent a signal to", _first),
    ("zmq.sugar.socket", "Socket.send", "sent through a connection", _nothing),
    ("zmq.sugar.socket", "Socket.recv", _READ, _always("a connection")),
    ("ray.actor", "ActorHandle._actor_method_call", "called what another process has", _called),
    ("ray.remote_function", "RemoteFunction._remote", "called what another process has", _nothing),
    *(("grpc._channel", f"_{kind}MultiCallable.{name}", "called what another process has", _nothing)
      for kind in ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")
      for name in ("__call__", "with_call", "future")),
    ("torch.export", "register_dataclass", "registered with pytree", _registered),
    *(("multiprocessing.connection", f"_ConnectionBase.{name}", _READ, _a_connection) for name in (
        "recv", "recv_bytes", "recv_bytes_into")),
    *(("os", name, _READ, _a_descriptor) for name in ("read", "readv")),
    ("torch.compiler", "reset", _DROPPED, _nothing),
    ("torch._dynamo", "reset", _DROPPED, _nothing),
    *((module, name, "told Dynamo how to take", _registered)
      for module in ("torch.compiler", "torch._dynamo")
      for name in ("allow_in_graph", "disallow_in_graph")),
    *(("os", name, "changed the descriptor", _by_itself) for name in (
        "lseek", "ftruncate", "set_blocking", "set_inheritable")),
    *(("os", name, "made", _first) for name in ("mkfifo", "mknod")),
    ("torch.serialization", "_open_zipfile_writer", _WROTE, _to_file),
    ("torch.jit._script", "RecursiveScriptModule.save", _WROTE, _in_second),
    ("torch.export", "save", _WROTE, _in_second),
    ("torch.profiler.profiler", "_KinetoProfile.export_chrome_trace", _WROTE, _second),
    ("torchvision.io.image", "write_file", _WROTE, _first),
    ("safetensors.torch", "serialize_file", _WROTE, _second),
    ("safetensors.numpy", "serialize_file", _WROTE, _second),
    ("cv2", "imwrite", _WROTE, _first),
    ("pyarrow.parquet", "write_table", _WROTE, _in_second),
    ("h5py", "Dataset.__setitem__", _WROTE, _data_set),
    ("h5py", "Group.__setitem__", _WROTE, _data_set),
    ("h5py", "Group.create_dataset", _WROTE, _data_set),
    ("h5py", "AttributeManager.__setitem__", _WROTE, _always("what h5py has open")),
    *(("os", name, "wrote to the descriptor", _first) for name in (
        "write", "writev", "pwrite", "pwritev", "sendfile", "posix_fallocate")),
    ("os", "copy_file_range", "wrote to the descriptor", _second),
    *(("multiprocessing.connection", f"_ConnectionBase.{name}", "sent through a connection", _handed)
      for name in ("send", "send_bytes")),
    *(("torch._C._distributed_c10d", f"Store.{name}", "changed a store of torch.distributed", _nothing)
      for name in ("set", "add", "append", "compare_set", "multi_set", "delete_key", "queue_push")),
    ("queue", "Queue.put", "gave what it put into a queue to a thread that waits for it", _awaited),
    *(("multiprocessing.pool", f"Pool.{name}", "called what another process has", _in_pool)
      for name in ("apply_async", "_map_async", "imap", "imap_unordered")),
    ("multiprocessing.process", "BaseProcess.start", "started", _called_so),
    *(("multiprocessing.queues", f"{kind}.put", "sent through a connection", _nothing)
      for kind in ("Queue", "JoinableQueue")),
    ("os", "dup2", "changed the descriptor", _second),
    ("_thread", "start_new_thread", "started a thread", _nothing),
    ("signal", "set_wakeup_fd", "set where signals are written to", _nothing),
    *(("faulthandler", name, "changed what is done in C at the signal", _first) for name in (
        "register", "unregister")),
    *(("faulthandler", name, "changed where a crash is written to", _crashing) for name in (
        "enable", "disable")),
    ("faulthandler", "dump_traceback_later", "started a watchdog", _nothing),
    ("faulthandler", "cancel_dump_traceback_later", "ended a watchdog", _nothing),
    ("ctypes", "memmove", "wrote to memory by ctypes", _nothing),
    ("ctypes", "memset", "wrote to memory by ctypes", _nothing),
    ("abc", "ABCMeta.register", "registered a class with", _registered),
    ("atexit", "register", "wants to be called at the end", _registered),
    ("atexit", "unregister", "wants no more to be called at the end", _registered),
    ("codecs", "register", "registered a codec", _registered),
    ("codecs", "register_error", "registered a codec", _registered),
    ("csv", "register_dialect", "registered a dialect", _registered),
    ("csv", "unregister_dialect", "unregistered the dialect", _first),
    ("copyreg", "pickle", "registered how to pickle", _registered),
    ("os", "register_at_fork", "wants to be called where the process forks", _registered),
    *(("sqlite3", name, "registered with sqlite3", _registered) for name in (
        "register_adapter", "register_converter")),
    *(("pyarrow", f"{name}_extension_type", "registered with Arrow", _registered)
      for name in ("register", "unregister")),
    *(("pyarrow.compute", f"register_{kind}_function", "registered with Arrow", _registered)
      for kind in ("scalar", "vector", "aggregate", "tabular")),
    ("sys", "addaudithook", "added an audit hook", _nothing),
    ("torch.utils._pytree", "register_pytree_node", "registered with pytree", _registered),
    ("torch.serialization", "register_package", "registered how to load", _registered),
    ("torch", "set_num_interop_threads", "set the number of threads to", _first),
    *((module, name, "reset the statistics of a GPU's memory", _nothing)
      for module in ("torch.cuda", "torch.cuda.memory")
      for name in ("reset_peak_memory_stats", "reset_accumulated_memory_stats",
                   "reset_max_memory_allocated", "reset_max_memory_cached")),
    *((module, name, "set what torch does not say, by", _always(name)) for module, name in (
        ("torch._C._functorch", "_set_vmap_fallback_warning_enabled"),
        ("torch._C", "_jit_set_utf8_decoding_ignore"),
        ("torch._C", "_set_print_stack_traces_on_fatal_signal"),
        ("torch._C", "_debug_set_autodiff_subgraph_inlining"),
        ("torch.cuda.tunable", "set_numerical_check_tolerances"),
        ("torch.cuda.tunable", "set_rotating_buffer_size"))),
    ("torch.cuda.graphs", "CUDAGraph.replay", _REPLAYED, _nothing),
    ("torch.distributed", "init_process_group", "set up torch.distributed", _nothing),
    *(("torch.library", name, "defined for torch", _registered) for name in (
        "Library.define", "Library.impl", "define", "impl", "custom_op", "triton_op",
        "register_fake", "register_kernel", "register_autograd", "register_vmap",
        "register_torch_dispatch", "register_autocast")),
)  # fmt: skip
_FOR_GOOD = {what for *_, what, of in _HEARD_IF_THERE if of is _registered} | {
    "set the number of threads to",
    "set up torch.distributed",
}
"""What is done once in a process: code that does it notes among its globals that it has."""
_PATHS = tuple(
    (module, tuple(parts), name, what, of)
    for module, path, what, of in _HEARD_IF_THERE
    for *parts, name in (path.split("."),)
)
