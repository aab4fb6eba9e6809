"""`opgraph hardware [DEVICE]`: the devices known, one of them with the source of every figure, or a file
for the machine at hand."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_options, form_of
from opgraph.cli.output import color, say, show, tell, width
from opgraph.record import units
from opgraph.record.errors import OpgraphError

if TYPE_CHECKING:
    from rich.table import Table

    from opgraph.analysis.timing.fitting import MeasuredKernel
    from opgraph.hardware import Device

EXAMPLES = """examples:
  opgraph hardware
  opgraph hardware h100-sxm
  opgraph hardware --calibrate -o this.toml
  opgraph hardware l4 --measured products.csv -o mine.toml
  opgraph hardware --calibrate --from run.json -o this.toml
  opgraph profile resnet50 --hardware this.toml"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="a name, or a file (.toml)")
    add_options(
        parser,
        "calibrate",
        "measured",
        "json",
        "format",
        "output",
        words={"output": "where to write the measurements"},
    )


def run(args: argparse.Namespace) -> int:
    from opgraph.hardware import device, devices

    if args.calibrate and args.device:
        raise OpgraphError("--calibrate measures this machine", hint=f"leave out {args.device}")
    if args.calibrate:
        return _calibrate(args.output, args.measured)
    if args.measured is not None:
        if not args.device:
            raise OpgraphError("--measured fits a device", hint="name the one that was measured")
        return _fitted(args.device, args.measured, args.output)
    if args.output is not None:
        raise OpgraphError("-o goes with --calibrate or --measured")
    form = form_of(args)
    chosen = (device(args.device),) if args.device else devices()
    if args.device:
        tell(form, lambda: _one(chosen[0]), lambda: _figures(chosen[0]))
    else:
        tell(form, lambda: _list(chosen), lambda: list(map(_row, chosen)))
    return 0


def _calibrate(output: str | None, runs: str | None) -> int:
    """A device file of this machine, by what is measured now; what it sustains by `runs`, where models were
    measured here."""
    import tomllib

    from opgraph.analysis.timing.fitting import measured_of
    from opgraph.record.versions import require_torch

    require_torch()
    from opgraph.hardware.calibrate import calibrate
    from opgraph.hardware.devices import parse

    _writable(output)
    of_runs = None if runs is None else _read(runs)  # before a minute is spent on measuring
    text, rows = calibrate(say)
    here = list(map(measured_of, rows))
    measured = here if of_runs is None else of_runs
    return _write(text, parse(tomllib.loads(text), "this"), measured, "measured", output)


def _fitted(name: str, path: str, output: str | None) -> int:
    """A device file with what the device sustains, by kernels that were measured on it."""
    from pathlib import Path

    from opgraph.hardware import device
    from opgraph.hardware.devices import files

    _writable(output)
    found = device(name)
    text = (Path(name) if name.endswith(".toml") else files()[found.id]).read_text("utf-8")
    text = (
        re.sub(r"\n\[(sustained|spread)\].*?(?=\n\[|\Z)", "", text, flags=re.DOTALL).rstrip() + "\n"
    )
    text = text.replace("[sources]\n", f"[sources]\nfitted = {str(Path(path).name)!r}\n", 1)
    return _write(text, found, _read(path), "fitted", output)


def _read(path: str) -> list[MeasuredKernel]:
    """The kernels of a CSV, or of a run that was saved (.json)."""
    from pathlib import Path

    from opgraph.analysis.costed import CostedRecord
    from opgraph.analysis.measured.times import kernels_of
    from opgraph.analysis.timing.fitting import read_measured
    from opgraph.record.loading import is_saved_profile, load

    saved = is_saved_profile(path)
    return kernels_of(CostedRecord(load(path))) if saved else read_measured(Path(path))


def _writable(output: str | None) -> None:
    from opgraph.record.files import ensure_writable, suffix_of

    if output is not None:
        suffix_of(output, (".toml",), "hardware --calibrate")
        ensure_writable(output)


def _write(
    text: str, base: Device, measured: list[MeasuredKernel], source: str, output: str | None
) -> int:
    """Write a device file, with the figures that are sustained by what was measured, and by how much
    kernels are off that are not fitted to."""
    from opgraph.analysis.timing.fitting import fit_sustained, left_over
    from opgraph.record.files import write_atomically

    matrix = base.kind != "cpu" and base.has_matrix("float16")
    keys = ["bandwidth", "matrix" if matrix else "vector"]
    keys += ["product"] * any(one.cold for one in measured)
    keys += ["elementwise"] * any(one.task.category == "elementwise" for one in measured)
    sections = {
        "sustained": fit_sustained(base, measured, keys),
        "spread": left_over(base, measured, keys),
    }
    for section, figures in sections.items():
        lines = [f'{key} = [{value:.3g}, "{source}"]' for key, value in figures.items() if value]
        text = "\n".join([text.rstrip(), "", f"[{section}]", *lines, ""])
    if output is None:
        show(text)
    else:
        write_atomically(output, text)
        say(f"wrote {output}")
    return 0


def _row(device: Device) -> dict[str, str | float | None]:
    """A device's row in a table, in base units."""
    return {
        "device": device.id,
        "name": device.name,
        "flops_16_bits": device.half_peak,
        "flops_float32": device.matrix_peak("float32"),
        "bandwidth": device.bandwidth,
        "memory": device.capacity,
        "ridge": device.half_peak / device.bandwidth,
    }


def _figures(device: Device) -> list[dict[str, str | float | None]]:
    """Each figure of a device with its source."""
    return [
        {"figure": key, "value": figure.value, "source": figure.source}
        for key, figure in device.figures.items()
    ]


def _list(known: tuple[Device, ...]) -> str:
    from opgraph.views.terminal import draw, fitting

    note = (
        "FLOP/s are dense peaks of products; 16 bits: float16 or bfloat16; ridge: FLOPs/byte there."
    )
    table = fitting([_table(known, without) for without in _LESS], width())
    return draw([table, "", note], width(), color())


_LESS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"Name"}),
    frozenset({"Name", "Memory"}),
)
"""The columns to leave out, as there is less and less room."""


def _table(known: tuple[Device, ...], without: frozenset[str]) -> Table:
    """One row a device; beside names, peaks have their unit."""
    from opgraph.views.terminal import columns

    unit = "" if "Name" in without else "FLOP/s"
    rows = [
        {
            "Device": d.id,
            "Name": d.name,
            "16 bits": units.count(d.half_peak, unit),
            "float32": units.count(d.matrix_peak("float32"), unit),
            "Bandwidth": units.count(d.bandwidth, "B/s"),
            "Memory": units.size(d.capacity),
            "Ridge": f"{d.half_peak / d.bandwidth:.0f}",
        }
        for d in known
    ]
    shown = [header for header in rows[0] if header not in without]
    table = columns(*shown, words=("Device", "Name"))
    table.header_style = "bold"
    for row in rows:
        table.add_row(*(row[header] for header in shown))
    return table


def _one(device: Device) -> str:
    from rich.table import Table

    from opgraph.views.terminal import columns, draw, safe

    sources = list(dict.fromkeys(figure.source for figure in device.figures.values()))
    table = columns("Figure", "", "Source", words=("Figure",))
    table.header_style = "bold"
    for key, figure in device.figures.items():
        table.add_row(key, _written(key, figure.value), str(sources.index(figure.source) + 1))
    notes = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    notes.add_column(justify="right")
    notes.add_column(overflow="fold")
    for number, source in enumerate(sources, start=1):
        notes.add_row(str(number), safe(source, 800))
    head = f"{safe(device.name)}  ({safe(device.architecture)}, {safe(device.vendor)})"
    also = ", ".join(safe(a) for a in device.aliases)
    return draw(
        [head, *([f"also: {also}"] if also else []), "", table, "", notes], width(), color()
    )


_UNITS: tuple[tuple[tuple[str, ...], Callable[[float], str]], ...] = (
    (("sustained", "reached", "multicast"), units.percent),
    (("matrix", "vector"), partial(units.count, unit="FLOP/s")),
    (("power",), partial(units.count, unit="W")),
    (("latency", "block_latency", "start", "block_start"), partial(units.spread, unit="s")),
    (("clock",), partial(units.count, unit="Hz")),
    (("bandwidth", "host.link", "host.memory"), partial(units.count, unit="B/s")),
    (("memory",), units.size),
    (("units", "devices"), lambda number: units.integer(int(number))),
)
"""How figures are written, by their section, their name or both: the first that fits."""


def _written(key: str, value: float) -> str:
    """A figure of a device in its unit."""
    section, _, name = key.partition(".")
    for of, written in _UNITS:
        if not {section, name, key}.isdisjoint(of):
            return written(value)
    return units.seconds(value)
