"""Reading traces of torch.profiler: Chrome's JSON by pieces, so that a file of a gigabyte takes little
memory. A piece ends where its text is a whole list of events, which the parser itself decides."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from opgraph.record.errors import ProfileError
from opgraph.traces.events import (
    COMMUNICATION,
    Allocation,
    Call,
    Launch,
    Shapes,
    Trace,
    Work,
    WorkKind,
    kind_of,
    tensors,
)

_PIECE = 8 * 2**20
_PACKED = 2**20
_HEAD = 64 * 2**20
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_AT = re.compile(r"\(byte (\d+)\)")
_RANK = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_PICKLE = b"\x80"
_DEVICES = {"cuda": "cuda", "hip": "cuda", "roc": "cuda", "xpu": "xpu", "mtia": "mtia"}
_WORK: dict[str, WorkKind] = {
    "kernel": "kernel", "concurrent_kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy",
    "gpu_memset": "set", "memset": "set", "mtia_ccp_events": "kernel", "privateuse1_kernel": "kernel",
}  # fmt: skip
"""Categories of events that are work of a device, in all versions of the format."""


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: int | str | float | None = None
    args: msgspec.Raw = msgspec.Raw()


class _Args(msgspec.Struct, gc=False):
    external: int | None = msgspec.field(default=None, name="External id")
    external_old: int | None = msgspec.field(default=None, name="external id")
    correlation: int | None = None
    stream: int | str | None = None
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    dims_old: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input dims")
    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    device_type: int | None = msgspec.field(default=None, name="Device Type")
    bytes: int = msgspec.field(default=0, name="Bytes")
    address: int | str = msgspec.field(default=0, name="Addr")
    device: int | str | None = None


class _Exchange(msgspec.Struct, gc=False):
    """What torch says of a collective's kernel."""

    kind: str = msgspec.field(default="", name="Collective name")
    elements: int = msgspec.field(default=0, name="In msg nelems")
    dtype: str = ""
    group: str | int = msgspec.field(default="", name="Process Group Name")


_decode_events = msgspec.json.Decoder(list[_Event], strict=False).decode
_decode_args = msgspec.json.Decoder(_Args, strict=False).decode
_decode_exchange = msgspec.json.Decoder(_Exchange, strict=False).decode
_decode_head = msgspec.json.Decoder(dict[str, Any]).decode


def read(path: str | PathLike[str]) -> list[Trace]:
    """Read the traces in a file, or in all files of a folder: one for each rank, in their order.

    Raises `ProfileError` where a file is no trace, or is broken. One that is cut off is read up to there.
    """
    place = Path(path)
    try:
        if not place.is_dir():
            return _read_file(place, 0)
        files = sorted(
            p for p in place.iterdir() if p.name.endswith((".json", ".json.gz", ".sqlite"))
        )
        if not files:
            raise ProfileError(
                f"{place} has no trace: no file ends with .json, .json.gz or .sqlite"
            )
        found = sorted(
            (t for i, p in enumerate(files) for t in _read_file(p, i)), key=lambda t: t.rank
        )
    except OSError as error:
        raise ProfileError(f"cannot read {place}: {error.strerror or error}") from error
    ranks = [t.rank for t in found]
    if len(set(ranks)) < len(ranks):
        raise ProfileError(f"{place} has two traces of one rank: {sorted(ranks)}")
    return found


def _read_file(path: Path, position: int) -> list[Trace]:
    with path.open("rb") as file:
        start = file.read(len(_SQLITE))
        file.seek(0)
        if start == _SQLITE:
            from opgraph.traces.nsight import read_sqlite

            found = read_sqlite(path)
            if len(found) == 1:
                found[0].rank = _rank(path, position)
            return found
        if start.startswith(_PICKLE):
            from opgraph.traces.allocations import read_snapshot

            return read_snapshot(path)
        trace = Trace(rank=_rank(path, position))
        try:
            _fill(trace, _unpacked(file, trace) if start.startswith(_GZIP) else _plain(file), path)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
            raise ProfileError(f"{path} is not a trace, or is broken: {error}") from error
    trace.device = trace.device if trace.work else "cpu"
    return [trace]


def _rank(path: Path, position: int) -> int:
    """The rank that a file's name says, else its position among the others."""
    named = _RANK.search(path.name)
    return int(named[1]) if named and len(named[1]) < 9 else position


def _fill(trace: Trace, pieces: Iterator[bytes], path: Path) -> None:
    rows = _Rows(trace)
    buffer = b""
    for piece in pieces:  # what stands before the events
        buffer += piece
        if (found := _EVENTS.search(buffer)) or buffer.lstrip()[:1] == b"[":
            break
        if len(buffer) > _HEAD:
            raise ProfileError(
                f"{path} is not a trace: no traceEvents in its first {_HEAD >> 20} MiB"
            )
    else:
        raise ProfileError(f"{path} is not a trace: it has no traceEvents")
    if found:
        rows.properties(_decode_head(buffer[: found.end()] + b"]}"))
        buffer = buffer[found.end() :]
    else:
        buffer = buffer[buffer.index(b"[") + 1 :]
    for piece in pieces:
        buffer = rows.take(buffer + piece)
    tail = rows.finish(buffer)
    trace.cut = trace.cut or tail is None
    if not (trace.calls or trace.work or trace.memory or trace.host_memory):
        raise ProfileError(
            f"{path} is not a trace, or is broken: no event in it is whole and of an operator or kernel"
        )
    if tail is not None and found:
        rows.properties(_decode_head(b'{"":0' + tail if tail.lstrip()[:1] == b"," else b"{" + tail))


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _unpacked(file: BinaryIO, trace: Trace) -> Iterator[bytes]:
    """What a gzipped file holds, by pieces; what can no longer be unpacked ends it."""
    unpack, begun, rest = zlib.decompressobj(wbits=31), False, b""
    while packed := rest or file.read(_PACKED):
        try:
            yield unpack.decompress(packed, _PIECE)
        except zlib.error:
            trace.cut = True
            return
        begun, rest = not unpack.eof, unpack.unconsumed_tail
        if unpack.eof:  # another part may follow
            rest = unpack.unused_data.lstrip(b"\0")
            unpack = zlib.decompressobj(wbits=31)
    trace.cut = begun


class _Rows:
    """Events as they are turned into rows."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.names: dict[str, str] = {}
        self.communicating: dict[str, bool] = {}
        self.shapes: dict[bytes, Shapes | None] = {}
        self.wait = 0

    def take(self, text: bytes) -> bytes:
        """Rows of all whole events at the beginning of a text; what is left of it."""
        if len(text) < self.wait:
            return text
        if len(text) > _HEAD:
            raise msgspec.DecodeError(f"no event ends within {_HEAD >> 20} MiB")
        near = max(0, len(text) - 2**18)
        ends = [
            m.start() + 1 for m in _BETWEEN.finditer(text, near if near > len(text) // 2 else 0)
        ]
        for end in dict.fromkeys((*ends[-8:][::-1], *ends[:1])):
            if self._decoded(text[:end]):
                self.wait = 0
                return text[end:].lstrip().removeprefix(b",")
        self.wait = 2 * len(text)  # nothing whole yet: look again at twice the length
        return text

    def _decoded(self, text: bytes) -> bool:
        try:
            events = _decode_events(b"[" + text + b"]")
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return False
        self.add(events)
        return True

    def finish(self, text: bytes) -> bytes | None:
        """Rows of the last events; what follows the list of them, or None where that is cut off."""
        stop = len(text)
        try:
            self.add(_decode_events(b"[" + text))
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            found = _AT.search(str(error))
            stop = int(found[1]) - 2 if found else stop  # after the bracket, counted from 1
            if "trailing" in str(error):
                self.add(_decode_events(b"[" + text[:stop]))
                return text[stop:]
        else:
            return b""
        ends = [m.start() + 1 for m in re.finditer(rb"\}", text[max(0, stop - 2**20) : stop])][::-1]
        for end in ends[:256]:
            if self._decoded(text[: max(0, stop - 2**20) + end]):
                break
        return None

    def properties(self, head: dict[str, Any]) -> None:
        """What stands beside the events: the device, the rank, versions."""
        devices = head.get("deviceProperties")
        if isinstance(devices, list) and devices and isinstance(devices[0], dict):
            self.trace.device_name = str(devices[0].get("name", ""))[:200]
        if isinstance(head.get("host_name"), str):
            self.trace.host = head["host_name"]
        distributed = head.get("distributedInfo")
        rank = distributed.get("rank") if isinstance(distributed, dict) else None
        if isinstance(rank, int) and 0 <= rank < 2**31:
            self.trace.rank = rank
        for key in ("cuda_runtime_version", "cuda_driver_version", "hip_runtime_version",
                    "hip_driver_version", "cupti_version", "roctracer_version"):  # fmt: skip
            if isinstance(head.get(key), int | float):
                self.trace.versions[key] = str(head[key])

    def add(self, events: list[_Event]) -> None:
        """Turn events into rows."""
        trace, names = self.trace, self.names
        for event in events:
            if event.ph != "X":
                if event.name == "[memory]" and event.ph == "i":
                    args = _decode_args(event.args)
                    if args.allocated is not None and args.device_type is not None:
                        held = trace.memory if args.device_type else trace.host_memory
                        held.append(
                            Allocation(
                                event.ts, args.bytes, args.address, args.allocated,
                                _thread(event.tid),
                            )
                        )  # fmt: skip
                continue
            category = event.cat.lower()
            kind = _WORK.get(category)
            name = names.setdefault(event.name, event.name)
            if kind is not None:
                args = _decode_args(event.args) if event.args else _Args()
                if kind == "kernel" and self._communicates(name):
                    kind = "communication"
                stream = args.stream if args.stream is not None else event.tid
                trace.work.append(Work(
                    name, event.ts, max(event.dur, 0.0) * 1e-6, _whole(stream), kind,
                    args.correlation, _external(args),
                    _exchange(event.args) if kind == "communication" and event.args else "",
                ))  # fmt: skip
                if category.startswith("mtia"):
                    trace.device = "mtia"
            elif category in ("cpu_op", "operator", "user_annotation"):
                args = _decode_args(event.args) if event.args else _Args()
                dims = bytes(args.dims or args.dims_old)
                trace.calls.append(Call(
                    name, event.ts, event.ts + max(event.dur, 0.0), _thread(event.tid),
                    "mark" if category == "user_annotation" else kind_of(name),
                    self._shapes(dims) if dims else None, _external(args), args.sequence,
                ))  # fmt: skip
            elif category == "python_function":
                if name.startswith("nn.Module: "):
                    trace.calls.append(Call(name[11:], event.ts, event.ts + max(event.dur, 0.0),
                                            _thread(event.tid), "module"))  # fmt: skip
            elif category.endswith(("_runtime", "_driver")) or category == "runtime":
                args = _decode_args(event.args) if event.args else _Args()
                trace.device = _DEVICES.get(category.partition("_")[0], trace.device)
                if trace.device == "cpu":
                    trace.device = "cuda"
                if args.correlation is not None:
                    trace.launches[args.correlation] = Launch(
                        event.ts, event.ts + max(event.dur, 0.0), _thread(event.tid),
                        _external(args), name,
                    )  # fmt: skip

    def _communicates(self, name: str) -> bool:
        if name not in self.communicating:
            self.communicating[name] = COMMUNICATION.search(name) is not None
        return self.communicating[name]

    def _shapes(self, raw: bytes) -> Shapes | None:
        if raw not in self.shapes:
            self.shapes[raw] = tuple(tensors(msgspec.json.decode(raw)))
        return self.shapes[raw]


def _exchange(args: msgspec.Raw) -> str:
    found = _decode_exchange(args)
    return (
        f"{found.kind} {found.elements:,} {found.dtype} in group {found.group}"
        if found.kind
        else ""
    )


def _external(args: _Args) -> int | None:
    return args.external if args.external is not None else args.external_old


def _thread(thread: float | str | None) -> int | str:
    return thread if isinstance(thread, int | str) else str(thread)


def _whole(stream: float | str | None) -> int:
    try:
        return int(stream or 0)
    except (ValueError, OverflowError):
        return 0
