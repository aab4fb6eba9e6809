"""Devices: what a machine can do at most, read from one TOML file each, with the source of every figure.
Analysis holds a graph's kernels against these figures. Nothing here imports torch."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from opgraph.record.errors import InputError, OpgraphError
from opgraph.record.targets import CAPABILITIES
from opgraph.record.units import item_size

FOLDER = Path(__file__).parent / "devices"
ENTRY_POINTS = "opgraph.hardware"
_DTYPES = frozenset({"float64", "tfloat32", "xfloat32", "float32", "bfloat16", "float16", "float8",
                     "float6", "float4", "int32", "int16", "int8", "int4"})  # fmt: skip
NO_LINK = "the file of {} has no link to other devices"
KINDS = ("gpu", "accelerator", "cpu")
_MOST = {"sustained": 1.5, "link.reached": 1.0, "link.multicast": 1.0, "network.reached": 1.0}
"""What a share cannot be above: clocks can be higher than the one of the data sheet, within reason."""
_FIGURES = {
    "matrix": _DTYPES,
    "vector": _DTYPES,
    "memory": frozenset(
        {"bandwidth", "capacity", "context", "cache", "cache_bandwidth", "row_latency"}
    ),
    "execution": frozenset({"units", "clock", "launch_overhead"}),
    "link": frozenset(
        {"bandwidth", "reached", "multicast", "latency", "start", "block_start", "devices"}
    ),
    "network": frozenset({"bandwidth", "reached", "latency", "block_latency"}),
    "power": frozenset({"limit", "idle"}),
    "sustained": frozenset({"matrix", "vector", "elementwise", "bandwidth", "product"}),
    "spread": frozenset({"product", "convolution", "memory"}),
    "host": frozenset({"call", "module", "link", "memory"}),
}
_TEXTS = frozenset({"name", "vendor", "kind", "architecture"})
SUSTAINED = {"matrix": 0.87, "vector": 0.84, "bandwidth": 0.9}
"""Shares of the data sheet's peaks and bandwidth that are sustained, where a device file does not say."""

LINK = {"reached": 0.65, "latency": 0.7e-6, "start": 8.2e-6, "block_start": 21e-6, "devices": 8}
"""The share of a link that collectives reach, seconds of one step of a ring, those in which a collective
starts and by which one in blocks starts later, and how many devices share a link, where a device file does
not say: between what is fitted for the A100 and the H100."""

NETWORK = {"reached": 0.94, "latency": 2.7e-6, "block_latency": 14e-6}
"""The share of a network that collectives reach, and seconds of a step of a ring from node to node, in
words and in blocks, where a file does not say: 46 to 48 GB/s of a card of 400 Gb/s (a maintainer of NCCL,
https://github.com/NVIDIA/nccl-tests/issues/290), and what NCCL takes (src/graph/tuning.cc)."""

_CLUSTER = re.compile(r"(\d{1,7})x(.+)")
_SPEED = re.compile(r"(\d+(?:\.\d+)?) ?(G[bB])/s")

IDLE = 0.12
"""The share of its power limit that an idle device draws, where its file does not say: an H200's 80 of
700 W."""

HOST = {"call": 10e-6, "module": 14e-6, "link": 32e9, "memory": 51.2e9}
"""Seconds that a host needs for a call of an operator and of a module, and bytes/s of the link to it in one
direction and of a device's part of its memory, where a device file does not say: PCIe 4.0 x16, and two
sockets with eight channels of DDR4-3200 between eight devices (a DGX A100)."""

HOST_LINK = 128 / 130 * 256 / (256 + 24)
"""The share of PCIe's bandwidth that copies reach: 128 of 130 bits are data, and packets of 256 bytes have
24 around them (PCI Express Base Specification; Neugebauer et al., "Understanding PCIe performance for end
host networking", SIGCOMM 2018)."""

LANES = 256
"""float32 FLOPs a cycle of a unit with 128 lanes, where a device file does not give the clock."""

_CAPABILITY = "capability"
"""Optional: what torch distinguishes generations by, for those devices that it calls "cuda"."""
_REQUIRED = ("vector.float32", "memory.bandwidth", "memory.capacity", "execution.launch_overhead")


_Read = TypeVar("_Read")


class UnknownDevice(OpgraphError):
    """No device file has the name."""


@dataclass(frozen=True)
class Figure:
    """A number and where it was read; a source that begins with "derived" says that nobody measured it."""

    value: float
    source: str

    @property
    def derived(self) -> bool:
        return self.source.startswith("derived")

    @property
    def assumed(self) -> bool:
        """Whether nobody publishes it."""
        return self.source.startswith(("nominal", "assumed"))


@dataclass(frozen=True)
class Device:
    """One machine. `figures` holds every number under its dotted name in the file ("matrix.float16").

    The matrix section gives dense FLOP/s of the matrix units (tensor cores, AMX, MXU …), the vector
    section those of the other arithmetic units; memory is in bytes and bytes/s; the link is in
    bytes/s, one direction, to the others of a node, and the network to those of other nodes. `missing`
    lists what nobody knows and is assumed.
    """

    id: str
    name: str
    vendor: str
    kind: str
    architecture: str
    aliases: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    capability: str = ""
    missing: tuple[str, ...] = ()

    def figure(self, key: str) -> float | None:
        """A number by its dotted name, or None where the file does not give it."""
        found = self.figures.get(key)
        return None if found is None else found.value

    @property
    def target(self) -> str:
        """What a trace for this device is made for (see `opgraph.record.targets`); "cuda" where nothing is
        known of what torch runs there."""
        if self.kind == "cpu":
            return "cpu"
        if self.vendor == "Apple":
            return "mps"
        known = self.capability in CAPABILITIES
        return f"cuda:{self.capability}" if known else "cuda"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The figures that nobody publishes, each with what was taken for it."""
        assumed = {key: f.source.partition(";")[0] for key, f in self.figures.items() if f.assumed}
        return tuple(f"{key} of {self.name} is {why}" for key, why in assumed.items())

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth, bytes/s."""
        return self.figures["memory.bandwidth"].value

    @property
    def capacity(self) -> float:
        """Memory, bytes."""
        return self.figures["memory.capacity"].value

    @property
    def context(self) -> float:
        """What the driver takes of the memory for a process, bytes; 0 where the file does not give it."""
        return self.figure("memory.context") or 0.0

    @property
    def cache(self) -> float:
        """Last-level cache, bytes; 0 where the file does not give it."""
        return self.figure("memory.cache") or 0.0

    @property
    def cache_bandwidth(self) -> float | None:
        """Bytes/s that the last-level cache gives; None where the file does not say."""
        return self.figure("memory.cache_bandwidth")

    @property
    def row_latency(self) -> float:
        """Seconds that pass before a row of a product's weights comes from a CPU's memory, whose
        prefetchers begin anew with each; 0 where the file does not say."""
        return self.figure("memory.row_latency") or 0.0

    @property
    def units(self) -> int:
        """Multiprocessors or cores; 1 where the file does not give them."""
        return int(self.figure("execution.units") or 1)

    @property
    def launch_overhead(self) -> float:
        """Seconds between the starts of two kernels that have nothing to do."""
        return self.figures["execution.launch_overhead"].value

    @property
    def clock(self) -> float:
        """Cycles a second of the units."""
        return self.figure("execution.clock") or self.vector_peak("float32") / (self.units * LANES)

    @property
    def sustained_matrix(self) -> float:
        """The share of the matrix units' peak that their clock sustains."""
        return self.figure("sustained.matrix") or SUSTAINED["matrix"]

    @property
    def sustained_vector(self) -> float:
        """The share of the other units' peak that their clock sustains."""
        return self.figure("sustained.vector") or SUSTAINED["vector"]

    @property
    def sustained_elementwise(self) -> float:
        """The share of the other units' peak that element-wise functions sustain, which have few products
        to add up."""
        return self.figure("sustained.elementwise") or self.sustained_vector

    @property
    def sustained_bandwidth(self) -> float:
        """Bytes/s of memory that long streams reach."""
        return self.bandwidth * (self.figure("sustained.bandwidth") or SUSTAINED["bandwidth"])

    @property
    def sustained_product(self) -> float | None:
        """The share of the sustained bandwidth at which a product reads operands that come but once; None
        where the file does not say."""
        return self.figure("sustained.product")

    @property
    def host_call(self) -> float:
        """Seconds that the host needs for a call of an operator."""
        return self.figure("host.call") or (
            self.launch_overhead if self.kind == "cpu" else HOST["call"]
        )

    @property
    def host_module(self) -> float:
        """Seconds that the host needs for a call of a module, beside its operators."""
        return self.figure("host.module") or (
            self.launch_overhead if self.kind == "cpu" else HOST["module"]
        )

    @property
    def host_link(self) -> float:
        """Bytes/s that copies between the device and its host reach, one direction."""
        return (self.figure("host.link") or HOST["link"]) * HOST_LINK

    @property
    def host_memory(self) -> float:
        """Bytes/s of the host's memory that long streams reach, a device's part of them."""
        return (self.figure("host.memory") or HOST["memory"]) * SUSTAINED["bandwidth"]

    def has_matrix(self, dtype: str) -> bool:
        """Whether there are matrix units for a dtype."""
        return f"matrix.{family(dtype)}" in self.figures

    def has_units(self, dtype: str) -> bool:
        """Whether products in a dtype run at a rate of their own, on matrix units or others."""
        return self.has_matrix(dtype) or f"vector.{family(dtype)}" in self.figures

    @property
    def link_bandwidth(self) -> float | None:
        """Bytes/s to the other devices, one direction; None where there is no link."""
        return self.figure("link.bandwidth")

    def _of_link(self, key: str) -> float:
        return self.figure(f"link.{key}") or LINK[key]

    def linked(self) -> Device:
        """The device itself; raises `InputError` where its file has no link to other devices."""
        if self.link_bandwidth is None:
            raise InputError(NO_LINK.format(self.name), hint="add [link] to a copy of it")
        return self

    @property
    def link_reached(self) -> float:
        """Bytes/s of the link that collectives reach; 0 where there is none."""
        return (self.link_bandwidth or 0.0) * self._of_link("reached")

    @property
    def link_multicast(self) -> float | None:
        """Bytes/s of the link where its switches add up and copy; None where they do not."""
        share = self.figure("link.multicast")
        return None if share is None else (self.link_bandwidth or 0.0) * share

    @property
    def link_latency(self) -> float:
        """Seconds of one step over the link."""
        return self._of_link("latency")

    @property
    def link_start(self) -> float:
        """Seconds in which a collective starts."""
        return self._of_link("start")

    @property
    def link_block_start(self) -> float:
        """Seconds by which a collective that moves blocks starts later than one of words."""
        return self._of_link("block_start")

    @property
    def node(self) -> int:
        """How many devices share a link: those of a node."""
        return int(self._of_link("devices"))

    @property
    def network_bandwidth(self) -> float | None:
        """Bytes/s of a device to those of other nodes, one direction; None where that is not known."""
        return self.figure("network.bandwidth")

    def of_network(self, key: str) -> float:
        """Another figure of the network: "reached" is a share, latencies are in seconds."""
        return self.figure(f"network.{key}") or NETWORK[key]

    @property
    def network_reached(self) -> float:
        """Bytes/s of the network that collectives reach for each device; 0 where it is not known."""
        return (self.network_bandwidth or 0.0) * self.of_network("reached")

    def over(self, network: str | None = None, node: int | None = None) -> Device:
        """The same in nodes of so many, linked by another network: "400Gb/s" or "50GB/s" a device, in one
        direction, or a file (.toml) with the section `[network]` of a device file.

        Raises `OpgraphError` for anything else.
        """
        figures = dict(self.figures)
        if node is not None:
            figures["link.devices"] = Figure(float(node), "as it was asked for")
        if network is not None:
            figures = {k: v for k, v in figures.items() if not k.startswith("network.")}
            if network.endswith(".toml"):
                figures |= _read(Path(network), _network_of)
            else:
                speed = _SPEED.fullmatch(network.strip())
                if speed is None or not 0 < float(speed[1]) < math.inf:
                    raise OpgraphError(f"no network is called {network!r:.80}",
                                       hint="400Gb/s a device, or a file (.toml)")  # fmt: skip
                rate = float(speed[1]) * 1e9 / (8 if speed[2] == "Gb" else 1)
                figures["network.bandwidth"] = Figure(rate, "as it was asked for")
        return replace(self, figures=figures)

    @property
    def power_limit(self) -> float | None:
        """Watts that it draws at most; None where its file does not say."""
        return self.figure("power.limit")

    @property
    def idle_power(self) -> float:
        """Watts that it draws when nothing runs."""
        return self.figure("power.idle") or IDLE * (self.power_limit or 0.0)

    def multiplies(self, dtype: str) -> str:
        """The dtype in which it multiplies what is to be multiplied in a dtype: float32 as it is where it
        has no units for TensorFloat-32."""
        plain = dtype == "tfloat32" and "matrix.tfloat32" not in self.figures
        return "float32" if plain else dtype

    def matrix_peak(self, dtype: str) -> float:
        """The FLOP/s of contractions in a dtype: of the matrix units if they take it, else of the rest.

        A dtype that neither knows runs at the rate of float32, which it is converted to.
        """
        return self.figure(f"matrix.{family(dtype)}") or self.vector_peak(dtype)

    @property
    def half_peak(self) -> float:
        """The FLOP/s of contractions in 16 bits: TPUs take bfloat16, and some devices only float16."""
        return max(self.matrix_peak("float16"), self.matrix_peak("bfloat16"))

    def vector_peak(self, dtype: str) -> float:
        """The FLOP/s of element-wise work in a dtype; float32's where the file has no other."""
        return self.figure(f"vector.{family(dtype)}") or self.figures["vector.float32"].value

    def ridge_point(self, dtype: str) -> float:
        """FLOPs per byte at which a contraction in this dtype leaves the memory roof."""
        return self.matrix_peak(dtype) / self.bandwidth


@cache
def family(dtype: str) -> str:
    """The name under which device files list a dtype: float8_e4m3fn is float8, uint8 is int8.

    "tfloat32" is float32 data multiplied by the TensorFloat-32 units; "xfloat32" are those of AMD, which
    torch gives nothing to unless a variable of the environment tells hipBLASLt so.
    """
    if dtype.startswith("float8"):
        return "float8"
    if dtype.startswith("float4"):
        return "float4"
    if dtype.startswith(("complex", "q")) and item_size(dtype) >= 4:
        return "float64" if dtype == "complex128" else "float32"
    return dtype.removeprefix("u") if dtype.startswith("uint") else dtype.removeprefix("q")


@cache
def _own() -> Mapping[str, Path]:
    """The device files that come with opgraph, by id."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


@cache
def _read_once(path: Path) -> Device:
    return read(path)


@cache
def files() -> Mapping[str, Path]:
    """The device files by id: those that come with opgraph, and those of entry points with other ids.

    An entry point of the group `opgraph.hardware` gives a folder of TOML files, or a function
    without arguments that returns one.
    """
    from opgraph.record.versions import plug_ins

    found = dict(_own())
    for entry in plug_ins(ENTRY_POINTS):
        folder = entry.load()
        folder = Path(folder() if callable(folder) else folder)
        found = {path.stem: path for path in sorted(folder.glob("*.toml"))} | found
    return found


@cache
def devices() -> tuple[Device, ...]:
    """All known devices, by vendor and name."""
    known = [read(path) for path in files().values()]
    return tuple(sorted(known, key=lambda d: (d.vendor.lower(), d.kind, d.id)))


def device(name: str | os.PathLike[str]) -> Device:
    """The device of that id, name or alias, or the one that a `.toml` file describes.

    Case, spaces and underscores do not matter. Raises `UnknownDevice`, with the nearest names, or
    `OpgraphError` when the file cannot be read.
    """
    text = os.fspath(name)
    if text.endswith(".toml"):
        return read(Path(text))
    wanted = _plain(text)
    if wanted in _own():  # asking what is installed takes longer than reading one
        return _read_once(_own()[wanted])
    if wanted in files():
        return read(files()[wanted])
    names = {_plain(n): d for d in devices() for n in (d.name, *d.aliases, d.id)}
    if wanted in names:
        return names[wanted]
    near = [n for n in names if wanted and wanted in n] or difflib.get_close_matches(
        wanted, names, n=5, cutoff=0.5
    )
    ids = list(dict.fromkeys(names[n].id for n in near))[:5]
    hint = f"did you mean {', '.join(ids)}?" if ids else "opgraph hardware lists them"
    if "," in text:
        hint = "one device at a time; opgraph survey takes several"
    raise UnknownDevice(f"no device is called {text!r:.80}", hint=hint)


def cluster(name: str) -> tuple[int | None, Device]:
    """How many devices, and which: "1024xh100-sxm" are 1,024, "h100-sxm" says no number.

    Raises what `device` does.
    """
    counted = _CLUSTER.fullmatch(name.strip())
    if counted is None or (name.endswith(".toml") and Path(name).exists()):
        number = name.strip().lower().removesuffix("x")
        if number.isdecimal() and not any(number in known.split("-") for known in files()):
            raise UnknownDevice(f"{name}: how many is said, and not of which device",
                                hint=f"{number}xh100-sxm; opgraph hardware lists all")  # fmt: skip
        return None, device(name)
    if not int(counted[1]):
        raise OpgraphError(f"{name}: there is at least one device", hint=f"1x{counted[2]}")
    return int(counted[1]), device(counted[2])


def read(path: Path) -> Device:
    """Read a device file.

    Raises `OpgraphError` with the file's name and what is wrong with it.
    """
    return _read(path, lambda data: parse(data, path.stem))


def _read(path: Path, parsed: Callable[[Mapping[str, Any]], _Read]) -> _Read:
    import tomllib

    try:
        return parsed(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise OpgraphError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise OpgraphError(
            f"{path} is not a device file: {reason}",
            hint="docs/hardware.md shows the form; opgraph hardware --calibrate writes one",
        ) from error


def parse(data: Mapping[str, Any], identifier: str) -> Device:
    """The device that a file's data describes.

    Raises `ValueError` when something is missing, unknown, or not a positive number with a source.
    """
    unknown = set(data) - _TEXTS - {"aliases", "sources", "missing", _CAPABILITY} - set(_FIGURES)
    if unknown:
        raise ValueError(f"unknown entry {min(unknown)!r:.60}")
    texts = {key: data.get(key) for key in _TEXTS}
    for key, text in sorted(texts.items()):
        if not isinstance(text, str) or not text:
            raise ValueError(f"{key!r} is missing or not a text")
    if texts["kind"] not in KINDS:
        raise ValueError(f"'kind' is none of {', '.join(KINDS)}")
    capability = data.get(_CAPABILITY, "")
    if not isinstance(capability, str):
        raise ValueError(f"{_CAPABILITY!r} is not a text")
    aliases = data.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(a, str) for a in aliases):
        raise ValueError("'aliases' is not a list of texts")
    figures = _figures_of(data, _FIGURES)
    if figures.get("power.idle", _NO_POWER).value > figures.get("power.limit", _NO_POWER).value:
        raise ValueError("'power.idle' is above 'power.limit'")
    missing = data.get("missing", [])
    if not isinstance(missing, list) or not set(missing) <= set(_REQUIRED):
        raise ValueError(f"'missing' is not a list of some of {', '.join(_REQUIRED)}")
    for key in _REQUIRED:
        if key not in figures and key not in missing:
            raise ValueError(f"{key!r} is missing (list it as missing where nobody knows)")
    for key in _REQUIRED:
        if key not in figures:
            figures[key] = _assumed(key, figures, cast(str, texts["kind"]))
    return Device(
        id=identifier, aliases=tuple(aliases), capability=capability, figures=figures,
        missing=tuple(missing),
        **cast(dict[str, str], texts),
    )  # fmt: skip


_NO_POWER = Figure(0.0, "")


def _network_of(data: Mapping[str, Any]) -> dict[str, Figure]:
    """The figures of a file that describes a network alone."""
    unknown = set(data) - {"sources", "network"}
    section = data.get("network")
    if unknown or not isinstance(section, dict) or "bandwidth" not in section:
        raise ValueError("a network has [sources] and [network], with its bandwidth")
    return _figures_of(data, ("network",))


def _figures_of(data: Mapping[str, Any], sections: Iterable[str]) -> dict[str, Figure]:
    """The figures of some sections of a file by their dotted names, each with its source."""
    sources = data.get("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(s, str) for s in sources.values()):
        raise ValueError("[sources] is not a table of texts")
    figures: dict[str, Figure] = {}
    for section in sections:
        allowed = _FIGURES[section]
        rows = data.get(section, {})
        if not isinstance(rows, dict):
            raise ValueError(f"[{section}] is not a table")
        for key, row in rows.items():
            if key not in allowed:
                raise ValueError(f"unknown entry {key!r:.60} in [{section}]")
            figure = figures[f"{section}.{key}"] = _figure(f"{section}.{key}", row, sources)
            most = _MOST.get(section, _MOST.get(f"{section}.{key}"))
            if most is not None and figure.value > most:
                raise ValueError(f"'{section}.{key}' is a share, and above {most}")
    return figures


def _assumed(key: str, figures: Mapping[str, Figure], kind: str) -> Figure:
    """A figure that nobody knows, from what others of the kind have: 16 times the arithmetic in matrix
    units as in the others, 20 FLOPs for each byte of memory traffic, and 24 ms to read all memory."""
    if key == "vector.float32":
        known = [f.value for name, f in figures.items() if name.startswith("matrix.")]
        if not known:
            raise ValueError("it gives no FLOP/s at all")
        value = min(known) / 16
    elif key == "memory.bandwidth":
        value = figures["vector.float32"].value / 20
    elif key == "memory.capacity":
        value = figures["memory.bandwidth"].value * 0.024
    else:
        value = 5e-6 if kind == "cpu" else 3e-6
    return Figure(value, "assumed, as the file lists it as missing")


def _figure(key: str, row: Any, sources: Mapping[str, str]) -> Figure:
    if not isinstance(row, list) or len(row) != 2:
        raise ValueError(f'{key!r} is not written as [number, "source"]')
    value, source = row
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{key!r} is not a positive number")
    if source not in sources:
        raise ValueError(f"{key!r} names the source {source!r:.40}, which [sources] does not have")
    return Figure(float(value), sources[source])


def _plain(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())
