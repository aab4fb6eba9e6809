"""A model as a `torch.export` program (`.pt2`) and as ONNX. Both hold weights: the model's own, or random
ones where it was built without."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor
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
    """The program, as `torch.export.save` writes it. Raises `TraceError` when export cannot."""
    program, remarks, _ = _program(model, example)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
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
        return program, remarks, plain_arguments(stage.args, stage.kwargs)


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
