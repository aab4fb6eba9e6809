"""The contractions of a model in the formats that simulators of accelerators read: SCALE-Sim, Timeloop,
ZigZag, MAESTRO, and ONNX by shapes alone. The multiply-accumulates of a file are those of the graph."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.layers import Layer, Layers, Loops
from opgraph.analysis.layers import layers as layers_of
from opgraph.record import units
from opgraph.record.errors import MissingDependency
from opgraph.record.files import dumps
from opgraph.record.units import item_size

_SHOWN = 8


def remarks(costed: CostedRecord) -> list[str]:
    """What such a file leaves out, a line each: operators that are no contraction, and contractions whose
    loops are not known."""
    found = layers_of(costed.plain.graph)
    said = [] if found.layers else ["no matrix product or convolution: the file has no layer"]
    if found.others:
        some = ", ".join(f"{op} × {n}" for op, n in found.others[:_SHOWN])
        more = f" and {len(found.others) - _SHOWN} more" if len(found.others) > _SHOWN else ""
        said.append(f"no contractions, and so not in the file: {some}{more}")
    said += [
        f"{op}: {units.count(macs)} MACs in loops that are not known, and so not in the file"
        for op, macs in found.lost
    ]
    if costed.graph is not costed.plain.graph:
        said.append(f"layers are those of the model as it was traced, not {costed.traffic}")
    return said


# SCALE-Sim (https://github.com/scalesim-project/scale-sim-v2): one row a run, in a table of convolutions.
# Its input has no padding and its two strides are one; it has no dilation, images or groups.


def to_scalesim(costed: CostedRecord) -> str:
    """A topology of SCALE-Sim: convolutions with their input as it is read, padding included; matrix
    products as convolutions of 1 x 1; images and groups one row each.

    Where a channel is a group, the name begins with DP, by which SCALE-Sim knows depthwise convolutions.
    What it cannot express (a dilation, two strides) is the product of the unfolded input.
    """
    head = ("Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, "
            "Num Filter, Strides,")  # fmt: skip
    return "\n".join([head, *map(_row, _runs(layers_of(costed.plain.graph), depthwise=True)), ""])


def _runs(found: Layers, *, depthwise: bool) -> Iterator[tuple[str, Loops]]:
    """What runs, one image and one group after the other; all groups of a depthwise convolution at once."""
    for number, layer in enumerate(found.layers):
        nest = layer.loops
        if nest.dilation != (1, 1) or nest.stride[0] != nest.stride[1]:
            nest = nest.unfolded()
        whole = depthwise and nest.channels == 1 and nest.groups > 1 and not nest.is_product
        times = layer.count * nest.images * (1 if whole else nest.groups)
        name = f"{number}_{_plain(layer.name)}"
        if whole:
            yield from ((f"DP{name}", nest) for _ in range(times))
        else:
            one = Loops(1, 1, nest.filters, nest.channels, nest.positions, nest.window, nest.stride)
            yield from ((name, one) for _ in range(times))


def _plain(name: str) -> str:
    """A name of letters, digits and underscores, in small letters."""
    return re.sub(r"[^a-z0-9]+", "_", name.replace("*", "n").lower()).strip("_")


def _row(run: tuple[str, Loops]) -> str:
    name, nest = run
    channels = nest.channels * nest.groups
    sizes = (*nest.read, *nest.window, channels, nest.filters, nest.stride[0])
    return ",".join(map(str, (name, *sizes))) + ","


# MAESTRO (https://github.com/maestro-project/maestro): a network of layers; the mapping is the user's.


def to_maestro(costed: CostedRecord) -> str:
    """A network of MAESTRO, without a dataflow: the input's rows and columns with padding; groups one
    layer each, depthwise convolutions as its DSCONV, images as its N."""
    blocks = []
    runs = chain.from_iterable(_maestro(x) for x in layers_of(costed.plain.graph).layers)
    for number, (name, kind, nest) in enumerate(runs):
        rows, columns = nest.read
        channels = nest.groups if kind == "DSCONV" else nest.channels
        sizes = {"N": nest.images, "K": nest.filters, "C": channels,
                 "R": nest.window[0], "S": nest.window[1], "Y": rows, "X": columns}  # fmt: skip
        dimensions = ", ".join(f"{k}: {v}" for k, v in sizes.items())
        blocks.append(
            f"  Layer l{number}_{name} {{\n    Type: {kind}\n"
            f"    Stride {{ X: {nest.stride[1]}, Y: {nest.stride[0]} }}\n"
            f"    Dimensions {{ {dimensions} }}\n  }}"
        )
    name = _plain(costed.profile.model.name) or "model"
    return "\n".join([f"Network {name} {{", *blocks, "}", ""])


def _maestro(layer: Layer) -> Iterator[tuple[str, str, Loops]]:
    nest = layer.loops if layer.loops.dilation == (1, 1) else layer.loops.unfolded()
    whole = nest.channels == nest.filters == 1 and nest.groups > 1 and not nest.is_product
    one = nest if whole else Loops(nest.images, 1, nest.filters, nest.channels, nest.positions,
                                   nest.window, nest.stride)  # fmt: skip
    times = layer.count * (1 if whole else nest.groups)
    yield from ((_plain(layer.name), "DSCONV" if whole else "CONV", one) for _ in range(times))


# ZigZag (https://github.com/KULeuven-MICAS/zigzag): a list of layers, each an equation over loops. JSON is
# YAML.


def to_zigzag(costed: CostedRecord) -> str:
    """A workload of ZigZag: one layer a run, with images B, groups G, filters K, channels C, positions OY
    and OX, window FY and FX. Operands come from memory: each layer is its own source."""
    lines = []
    for number, layer in enumerate(layers_of(costed.plain.graph).runs):
        lines.append("- " + dumps(_zigzag(number, layer)))
    return "\n".join([*(lines or ["[]"]), ""])


def _zigzag(number: int, layer: Layer) -> dict[str, Any]:
    nest, bits = layer.loops, 8 * item_size(layer.dtype)
    about: dict[str, Any] = {
        "id": number,
        "name": layer.name,
        "operand_precision": {"W": bits, "I": bits, "O": max(bits, 32), "O_final": bits},
        "operand_source": {"W": number, "I": number},
    }
    if nest.is_product:
        rows = nest.images * prod(nest.positions)
        return about | {
            "operator_type": "Gemm",
            "equation": "O[g][d][k]+=I[g][d][c]*W[g][c][k]",
            "dimension_relations": [],
            "loop_dims": ["G", "D", "K", "C"],
            "loop_sizes": [nest.groups, rows, nest.filters, nest.channels],
        }
    (sy, sx), (dy, dx), (py, px) = nest.stride, nest.dilation, nest.padding
    (rows, columns), (ey, ex) = nest.size, nest.padding_after
    return about | {
        "operator_type": "Conv",
        "equation": "O[b][g][k][oy][ox]+=W[g][k][c][fy][fx]*I[b][g][c][iy][ix]",
        "dimension_relations": [f"ix={sx}*ox+{dx}*fx", f"iy={sy}*oy+{dy}*fy"],
        "loop_dims": ["B", "G", "K", "C", "OY", "OX", "FY", "FX"],
        "loop_sizes": [nest.images, nest.groups, nest.filters, nest.channels,
                       *nest.positions, *nest.window],
        "pr_loop_dims": ["IX", "IY"],
        "pr_loop_sizes": [columns, rows],
        "padding": [[px, ex], [py, ey]],
    }  # fmt: skip


# Timeloop (https://timeloop.csail.mit.edu, version 4): one problem a file.


def to_timeloop(costed: CostedRecord) -> bytes:
    """A zip of Timeloop's problems (version 0.4), one a layer, and layers.csv, which says how often each
    runs and how many multiply-accumulates one run has."""
    found, out = layers_of(costed.plain.graph), io.BytesIO()
    width = len(str(len(found.layers) - 1))
    index = ["file,layer,operator,dtype,runs,macs_of_one_run"]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, layer in enumerate(found.layers):
            name = f"{number:0{width}d}_{_plain(layer.name)}.yaml"
            _put(archive, name, "problem: " + dumps(_problem(layer)) + "\n")
            row = (name, _cell(layer.name), layer.op, layer.dtype, layer.count, layer.loops.macs)
            index.append(",".join(map(str, row)))
        _put(archive, "layers.csv", "\n".join([*index, ""]))
    return out.getvalue()


def _put(archive: zipfile.ZipFile, name: str, text: str) -> None:
    """A file of a date that never changes, so that equal models make equal archives."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, text)


def _cell(text: str) -> str:
    return re.sub(r"[^\w.*]", "_", text)


_SIZES = ("N", "G", "M", "C", "P", "Q", "R", "S")


def _problem(layer: Layer) -> dict[str, Any]:
    nest = layer.loops
    factors = {"Hstride": nest.stride[0], "Wstride": nest.stride[1],
               "Hdilation": nest.dilation[0], "Wdilation": nest.dilation[1]}  # fmt: skip
    sizes = (nest.images, nest.groups, nest.filters, nest.channels, *nest.positions, *nest.window)
    rows = [["P", "Hstride"], ["R", "Hdilation"]]
    columns = [["Q", "Wstride"], ["S", "Wdilation"]]
    return {
        "version": 0.4,
        "shape": {
            "name": "convolution",
            "dimensions": list(_SIZES),
            "coefficients": [{"name": name, "default": 1} for name in factors],
            "data_spaces": [
                {"name": "Weights", "projection": _projection("G", "M", "C", "R", "S")},
                {"name": "Inputs", "projection": [*_projection("N", "G", "C"), rows, columns]},
                {"name": "Outputs", "projection": _projection("N", "G", "M", "P", "Q"),
                 "read_write": True},
            ],
        },
        "instance": dict(zip(_SIZES, sizes, strict=True)) | factors,
    }  # fmt: skip


def _projection(*sizes: str) -> list[list[list[str]]]:
    return [[[size]] for size in sizes]


# ONNX by shapes alone: what tools that read ONNX need of a model, without its weights.


def to_onnx_shapes(costed: CostedRecord) -> bytes:
    """An ONNX model of the contractions by themselves, one node a run, each with inputs, weights and result
    of its own, of which only shapes and dtypes are there. Raises `MissingDependency` without onnx."""
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise MissingDependency("onnx", "onnx") from None
    nodes: list[Any] = []
    inputs: list[Any] = []
    outputs: list[Any] = []
    for number, layer in enumerate(layers_of(costed.plain.graph).runs):
        kind = getattr(onnx.TensorProto, _ONNX.get(layer.dtype, "FLOAT"))
        x, w, y, operator, attributes = _onnx(layer.loops)
        names = [f"{part}{number}" for part in "xwy"]
        for name, shape, where in zip(names, (x, w, y), (inputs, inputs, outputs), strict=True):
            where.append(helper.make_tensor_value_info(name, kind, shape))
        label = f"{number}_{_plain(layer.name)}"
        nodes.append(helper.make_node(operator, names[:2], names[2:], name=label, **attributes))
    name = _plain(costed.profile.model.name) or "model"
    graph = helper.make_graph(nodes, name, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return bytes(model.SerializeToString())


_ONNX = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float64": "DOUBLE"}


def _onnx(nest: Loops) -> tuple[Iterable[int], Iterable[int], Iterable[int], str, dict[str, Any]]:
    """Shapes of input, weight and result, the operator and its attributes."""
    if nest.is_product:
        rows = nest.images * prod(nest.positions)
        batch = (nest.groups,) if nest.groups > 1 else ()
        return ((*batch, rows, nest.channels), (*batch, nest.channels, nest.filters),
                (*batch, rows, nest.filters), "MatMul", {})  # fmt: skip
    return (
        (nest.images, nest.groups * nest.channels, *nest.size),
        (nest.groups * nest.filters, nest.channels, *nest.window),
        (nest.images, nest.groups * nest.filters, *nest.positions),
        "Conv",
        {"strides": list(nest.stride), "dilations": list(nest.dilation), "group": nest.groups,
         "pads": [*nest.padding, *nest.padding_after], "kernel_shape": list(nest.window)},
    )  # fmt: skip
