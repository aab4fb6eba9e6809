"""A model as a `torch.export` program (`.pt2`), as ONNX and as StableHLO. The first two hold weights: the
model's own, or random ones where it was built without; in StableHLO weights are arguments."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves

from opgraph.exporting import Exported
from opgraph.inputs.base import Example
from opgraph.record.errors import MissingDependency, RenderError, TraceError, first_line
from opgraph.sources.base import Model
from opgraph.tracing.base import staged
from opgraph.tracing.eager import materialized
from opgraph.tracing.replay.export import exported
from opgraph.tracing.replay.replay import plain_arguments
from opgraph.tracing.state.guard import guarded

_CLOSE = 1e-3
"""How far an element of ONNX Runtime's result may be from torch's, relative to the largest of them."""


def to_pt2(model: Model, example: Example, _tracer: str) -> Exported:
    """The program, as `torch.export.save` writes it. Raises `TraceError` when export cannot, or when that
    does not write what is in it, as weights that are sparse."""
    program, remarks, _ = _program(model, example)
    buffer = io.BytesIO()
    try:
        torch.export.save(program, buffer)
    except Exception as error:
        raise TraceError(f"torch.export does not write it: {first_line(error)}") from error
    return Exported(buffer.getvalue(), remarks)


def to_onnx(model: Model, example: Example, _tracer: str) -> Exported:
    """The model in ONNX, checked by `onnx.checker` and, where ONNX Runtime is installed, run by it against
    torch.

    Raises `MissingDependency`, `TraceError`, or `RenderError` when the result is not right.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch.onnx wants it)
    except ImportError as error:
        raise MissingDependency(error.name or "onnx", "onnx") from error
    program, remarks, tensors = _program(model, example)
    with guarded(
        [model.module], heard=False
    ):  # it runs what operators of one's own say of fake tensors
        try:
            made = torch.onnx.export(program, dynamo=True, verbose=False)
        except Exception as error:
            raise TraceError(f"torch.onnx does not get through: {first_line(error)}") from error
    proto = made.model_proto
    if proto.ByteSize() >= 2**31:
        raise RenderError(
            "an ONNX file holds up to 2 GiB, and this model has more", hint="write a .pt2"
        )
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    with guarded([model.module]), torch.no_grad():  # the program's weights are the model's
        expected = [t for t in tree_leaves(program.module()(*tensors[0], **tensors[1])) if _is(t)]
    return Exported(
        content, (*remarks, "onnx.checker accepts it", _run(content, tensors, expected))
    )


def to_stablehlo(model: Model, example: Example, _tracer: str) -> Exported:
    """The model as StableHLO, by torch-mlir, whose verifier has accepted it. What a state dict has is an
    argument of its function, before the model's own: weights take no memory, and a file has none.

    Raises `MissingDependency`, or `TraceError` for what export or torch-mlir does not get through.
    """
    try:
        from torch_mlir.compiler_utils import TorchMlirCompilerError
        from torch_mlir.extras.fx_decomp_util import get_decomposition_table
        from torch_mlir.fx import stateless_fx_import
    except ImportError as error:
        raise MissingDependency("torch-mlir", "stablehlo") from error
    with staged(model.module, example) as stage:
        try:
            with stage.guard.listening():
                program = exported(model.module, stage.args, stage.kwargs)
            # torch-mlir takes apart all interpolation but this, and has StableHLO of none.
            nearest = get_decompositions([torch.ops.aten.upsample_nearest2d])
            program = program.run_decompositions({**get_decomposition_table(), **nearest})
        except Exception as error:
            raise TraceError(f"export does not get through: {first_line(error)}") from error
        module, names = _with_constants(program)
        _close(module.graph)
        with _unsaid() as said:
            try:
                made = str(stateless_fx_import(module, output_type="stablehlo"))
            except (TorchMlirCompilerError, NotImplementedError, RuntimeError, ValueError) as error:
                found = _ILLEGAL.search(said())
                why = f"it makes no StableHLO of {found[1]}" if found else first_line(error)
                raise TraceError(f"torch-mlir does not get through: {why}") from error
    head = "".join(f"// %arg{i}: {_SAFE.sub('?', name)}\n" for i, name in enumerate(names))
    own = sum(s.kind is InputKind.USER_INPUT for s in program.graph_signature.input_specs)
    weights = (
        f"{len(names) - own} weights are arguments, named at its head" if len(names) > own else ""
    )
    said_of = (*filter(None, (weights,)), *stage.guard.remarks)
    return Exported(f"{head}{made}".encode(), said_of)


def _with_constants(
    program: torch.export.ExportedProgram,
) -> tuple[torch.fx.GraphModule, list[str]]:
    """The graph of a program, with what no state dict has as constants of its own, and the names of the
    arguments that are left."""
    module, names = program.graph_module, []
    nodes = module.graph.find_nodes(op="placeholder")
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        value = None if spec.target is None else program.constants.get(spec.target)
        if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
            names.append(str(spec.target or node.name))
            continue
        module.register_buffer(node.name, value)
        for user in list(node.users):  # torch-mlir reads each but once
            with module.graph.inserting_before(user):
                constant = module.graph.get_attr(node.name)
            constant.meta = node.meta
            user.replace_input_with(node, constant)
        module.graph.erase_node(node)
    module.recompile()
    return module, names


def _close(graph: torch.fx.Graph) -> None:
    """Give both ends of every slice that is written to: torch-mlir would count to the largest number that
    there is for one that is open."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.slice_scatter.default):
        names = ("self", "src", "dim", "start", "end", "step")
        given = {"dim": 0, **dict(zip(names, node.args, strict=False)), **node.kwargs}
        into, dim = given["self"].meta["val"], given["dim"]
        ends = slice(given.get("start"), given.get("end"), given.get("step")).indices(
            into.shape[dim]
        )
        node.args, node.kwargs = (given["self"], given["src"], dim, *ends), {}


_ILLEGAL = re.compile(r"failed to legalize operation '([\w.]+)'")
_SAFE = re.compile(r"[^\x20-\x7e]")


@contextmanager
def _unsaid() -> Iterator[Callable[[], str]]:
    """What libraries of C++ would say on stderr, kept from there for who asks."""
    sys.stderr.flush()
    before = os.dup(2)
    with TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)


def _program(
    model: Model, example: Example
) -> tuple[torch.export.ExportedProgram, tuple[str, ...], tuple[tuple[Any, ...], dict[str, Any]]]:
    module = materialized(model)
    remarks = (
        () if module is model.module else ("its weights are random: the model was built without",)
    )
    with staged(module, example, real=True, warm_up=True) as stage:
        try:
            with stage.guard.listening():
                program = exported(module, stage.args, stage.kwargs)
        except Exception as error:
            raise TraceError(f"export does not get through: {first_line(error)}") from error
        tensors = plain_arguments(stage.args, stage.kwargs)
    return program, (*remarks, *stage.guard.remarks), tensors


def _is(item: Any) -> bool:
    return isinstance(item, Tensor)


def _run(
    content: bytes, tensors: tuple[tuple[Any, ...], dict[str, Any]], expected: list[Tensor]
) -> str:
    """Run the model in ONNX Runtime and compare with torch's results.

    Raises `RenderError` when they differ.
    """
    try:
        import onnxruntime
    except ImportError:
        return "it was not run: ONNX Runtime is not installed"
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = [t for t in tree_leaves(tensors) if _is(t)]
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), given, strict=True)}
    worst = 0.0
    for mine, other in zip(session.run(None, feeds), expected, strict=True):
        theirs = other.double()
        scale = max(1.0, float(theirs.abs().max())) if theirs.numel() else 1.0
        if theirs.numel():
            worst = max(
                worst, float((torch.from_numpy(mine).double() - theirs).abs().max()) / scale
            )
    if worst > _CLOSE:
        raise RenderError(
            f"ONNX Runtime's result is off torch's by {worst:.2g} of the largest element"
        )
    return f"ONNX Runtime's result is torch's, within {worst:.1g}"
