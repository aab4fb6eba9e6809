"""Model files: `.pt` and `.pth` checkpoints that hold a whole module, and `.pt2` exported programs."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import OpgraphError, SourceError, beside, first_line
from opgraph.sources.base import BuildOptions, Model, without_arguments

if TYPE_CHECKING:
    from torch import nn


# Saved `torch.export` programs: `.pt2` archives, looked into before torch opens them.


def open_program(path: Path, *, trust: bool = False) -> Model:
    """The program in a `.pt2` file as a module, with the example inputs it was exported with.

    Raises `UntrustedFile` when the archive could run code, and `SourceError` when it is no program.
    """
    import torch

    from opgraph.sources.building import undisturbed
    from opgraph.sources.untrusted import (
        EXPORTED,
        check_program,
        check_size,
        reason,
        remedy,
        types_in,
    )

    if not trust:
        check_size(path)
        check_program(path)
    try:
        with undisturbed():
            _meet(types_in(path), path)
            program: Any = torch.export.load(str(path))
            module = _unfolded(program)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(
            f"{path} is not an exported program: {reason(error)}", hint=remedy(path, EXPORTED)
        ) from error
    from opgraph.record.profile import ModelInfo

    info = ModelInfo(path.name, "file", "torch.export.ExportedProgram", (f"from the file {path}",))
    hints = {"example": program.example_inputs} if program.example_inputs is not None else {}
    return Model(module, info, None, hints)


def _unfolded(program: Any) -> nn.Module:
    """A program as a module with the modules inside that it was exported from, each of a class by the name
    of its own; with none where it does not say them plainly, for their names become code."""
    from torch.export.unflatten import InterpreterModule, UnflattenedModule, unflatten
    from torch.fx import GraphModule

    # The guards are Python source, and say nothing of what the program costs.
    flat: nn.Module = program.module(check_guards=False)
    stacks = [node.meta.get("nn_module_stack") or {} for node in program.graph.nodes]
    texts = (text for stack in stacks for key, pair in stack.items() for text in (key, *pair))
    if not all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in texts):
        return flat
    try:
        module = unflatten(program)
    except Exception:  # noqa: BLE001  (whatever torch cannot unfold)
        return flat
    names = list(inspect.signature(flat.forward).parameters)
    positional = len(program.call_spec.in_spec.children()[0].children())

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        first = [given.pop(name) for name in names[:positional]]
        return UnflattenedModule.forward(self, *first, **given)

    forward.__signature__ = inspect.signature(type(flat).forward)  # type: ignore[attr-defined]
    for inner in module.modules():
        if isinstance(inner, (InterpreterModule, UnflattenedModule)):
            for node in inner.graph.find_nodes(op="call_module"):
                if (
                    node.name == "self"
                ):  # a module by that name, whose result the code calls so, too
                    node._rename("of_self")
            name = (inner.type_name() or "").rpartition(".")[2] or type(inner).__name__
            made = {"forward": forward} if inner is module else {}
            inner.__class__ = type(name, (type(inner),), {**made, "__module__": __name__})
            inner.__dict__["graph_module"] = GraphModule(inner, inner.graph)
    return module


_PLAIN = re.compile(r"[\w.@<>]*")


def _meet(types: Iterable[str], path: Path) -> None:
    """Let libraries of models tell torch of the types that a program's arguments and results are of, as
    they do when they are imported. Raises `SourceError` for a type that nobody tells of."""
    from torch.utils import _pytree

    known = _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    for name in types:
        module = name.rpartition(".")[0]
        if name not in known and module.partition(".")[0] in _TELLING:
            with suppress(ImportError):
                importlib.import_module(module)
        if name not in known:
            raise SourceError(
                f"{path} takes or gives {name}, which torch does not know here",
                hint=f"in Python, import what registers it, then opgraph.profile({path.name!r})",
            )


_TELLING = ("transformers", "diffusers")
"""Libraries whose models give types of their own, of which they tell torch."""

_SMALL = 2**20
_LARGEST_IMAGE = 2**16

FILES = (".pt", ".pth", ".ckpt", ".pt2")
CONFIG = "config.json"
"""What a folder of a published model has."""


class FileSource:
    """A file that is there."""

    name = "file"

    def claims(self, spec: str) -> bool:
        return spec.endswith(FILES) and Path(spec).is_file()

    def names(self) -> Mapping[str, str]:
        return {}

    def build(self, spec: str, options: BuildOptions) -> Model:
        path = Path(spec)
        if not path.is_file():
            raise SourceError(f"there is no file {spec}", hint=beside(spec))
        program = path.suffix == ".pt2"
        without_arguments(options, f"what {path.name} holds", dtype=not program)
        if program:
            return open_program(path, trust=options.trust)
        return _checkpoint(path, options)


def _checkpoint(path: Path, options: BuildOptions) -> Model:
    from opgraph.sources.building import dtype_of, undisturbed
    from opgraph.sources.untrusted import open_checkpoint

    dtype = dtype_of(options.dtype or "float32")
    try:
        with undisturbed():
            module = _module(open_checkpoint(path, trust=options.trust), path)
            _check_memory(module)
            # Checkpoints are often stored in half precision and run in single.
            module = module.eval().to(dtype)
    except OpgraphError:
        raise
    except Exception as error:  # a module from a file can have anything in it
        raise SourceError(
            f"{path} holds a module that is broken: {first_line(error)}",
            hint="another version of its library may have saved it: name the model's code, model.py:build",
        ) from error
    cls = type(module)
    from opgraph.record.profile import ModelInfo

    info = ModelInfo(
        path.name, "file", f"{cls.__module__}.{cls.__qualname__}", (f"from the file {path}",)
    )
    return Model(module, info, getattr(module, "config", None), _hints(module))


def _check_memory(module: nn.Module) -> None:
    """Raise `ValueError` for a tensor that says it is larger than its memory, which a copy would be."""
    for tensor in (*module.parameters(), *module.buffers()):
        strided = tensor.device.type == "cpu" and str(tensor.layout) == "torch.strided"
        if strided and tensor.nbytes > tensor.untyped_storage().nbytes() + _SMALL:
            raise ValueError(f"a tensor of {tuple(tensor.shape)} has the memory of a smaller one")


def _module(content: Any, path: Path) -> nn.Module:
    """The module in a checkpoint: the averaged one where there are two, as Ultralytics itself prefers."""
    from torch import Tensor, nn

    if isinstance(content, nn.Module):
        return content
    if isinstance(content, Mapping):
        for key in ("ema", "model", "net", "module"):
            if isinstance(content.get(key), nn.Module):
                found: nn.Module = content[key]
                return found
        weights = content
        for key in ("state_dict", "model_state_dict", "model", "params"):
            if isinstance(content.get(key), Mapping):
                weights = content[key]
        tensors = [k for k, v in weights.items() if isinstance(v, Tensor)]
        if tensors:
            raise SourceError(
                f"{path} holds a state_dict ({len(tensors)} tensors, {tensors[0]} first), "
                "which has weights but no model",
                hint="name the model they belong to: its cost does not depend on the weights",
            )
    from opgraph.sources.untrusted import SAVED

    raise SourceError(f"{path} holds no module, but {type(content).__name__}", hint=SAVED)


def _hints(module: nn.Module) -> dict[str, Any]:
    """The image size a checkpoint was trained at, where it says so."""
    arguments: Any = getattr(module, "args", None)
    known = arguments if isinstance(arguments, Mapping) else getattr(arguments, "__dict__", {})
    yaml: Any = getattr(module, "yaml", None)
    size, channels = known.get("imgsz"), yaml.get("channels") if isinstance(yaml, Mapping) else None
    sizes = (channels or 3, *(size if isinstance(size, (list, tuple)) else (size, size)))
    if len(sizes) != 3 or not all(type(s) is int and 0 < s < _LARGEST_IMAGE for s in sizes):
        return {}
    return {"input_size": sizes}
