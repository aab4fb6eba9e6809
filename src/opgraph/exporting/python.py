"""A traced graph as a Python file that needs torch alone: one line an operator, with the module and the
source line it came from, and the weights under the names that the model's state dict has."""

from __future__ import annotations

import ast
import base64
import keyword
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor

from opgraph.costs.count import dtype_name
from opgraph.exporting import Exported
from opgraph.exporting.captured import Captured, capture
from opgraph.inputs.base import Example
from opgraph.record.errors import TraceError
from opgraph.record.remarks import Remark
from opgraph.sources.base import Model
from opgraph.sources.locations import traced_location
from opgraph.tracing.base import Stage, staged
from opgraph.tracing.eager import materialized
from opgraph.version import __version__

# How the parts of a captured graph are written in Python: names, values, functions, constants.

_LARGEST = 64 * 2**20
"""Bytes of constants above which a file of text is no place for them."""

_TAKEN = frozenset(
    "self torch nn operator device inf nan sys tensor put get share load Model parameter".split()
)


def identifier(text: str) -> str:
    """A name that Python takes, like the text."""
    name = re.sub(r"\W", "_", text)
    return f"_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name


def encoded(tensor: Tensor) -> str:
    """The expression of a constant: its values, or bytes of many.

    Raises `TraceError` when it has no values, or too many.
    """
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        raise TraceError(
            "a constant of the graph has no values", hint="give a model with its weights"
        )
    if tensor.numel() * tensor.element_size() > _LARGEST:
        raise TraceError(
            "a constant of the graph is too large for a Python file", hint="write a .pt2"
        )
    plain = tensor.detach().contiguous()
    if plain.numel() <= 8 and plain.dtype is not torch.bfloat16:
        return f"torch.tensor({plain.tolist()!r}, dtype={plain.dtype})"
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    data = base64.b64encode(zlib.compress(raw, 9)).decode()
    return f"tensor({plain.dtype}, {tuple(plain.shape)!r}, {data!r})"


class Speller:
    """Writes the nodes of a graph; each has a name of its own, or an expression that stands for it."""

    def __init__(self) -> None:
        self.names: dict[fx.Node, str] = {}
        self._values: dict[fx.Node, Any] = {}
        self._taken = set(_TAKEN)

    def fresh(self, base: str) -> str:
        """A name that is not taken yet."""
        name, number = base, 1
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name

    def name(self, node: fx.Node) -> str:
        """The name of a node's result."""
        if node not in self.names:
            self.names[node] = self.fresh(identifier(node.name))
        return self.names[node]

    def stands_for(self, node: fx.Node, value: Any) -> None:
        """A node whose value is known, and written where it is used."""
        self._values[node] = value

    def spell(self, item: Any) -> str:
        """Any argument or result as an expression. Raises `TraceError` for what has none."""
        if isinstance(item, fx.Node):
            return self.spell(self._values[item]) if item in self._values else self.name(item)
        if isinstance(item, (list, tuple)):
            inner = ", ".join(map(self.spell, item))
            if isinstance(item, list):
                return f"[{inner}]"
            return f"({inner},)" if len(item) == 1 else f"({inner})"
        if isinstance(item, Mapping):
            return "{" + ", ".join(f"{k!r}: {self.spell(v)}" for k, v in item.items()) + "}"
        if isinstance(item, slice):
            return f"slice({', '.join(map(self.spell, (item.start, item.stop, item.step)))})"
        if item is Ellipsis:
            return "..."
        if item is None or isinstance(item, (bool, int, float, complex, str, torch.Size)):
            return repr(item)
        if isinstance(item, (torch.dtype, torch.layout, torch.memory_format)):
            return str(item)
        if isinstance(item, torch.device):
            return f"device({str(item)!r})"
        raise TraceError(f"a {type(item).__name__} cannot be written as Python")

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a call."""
        return ", ".join(
            [*map(self.spell, args), *(f"{k}={self.spell(v)}" for k, v in kwargs.items())]
        )

    def method(self, node: fx.Node) -> str:
        """A call of a tensor's method."""
        owner, *rest = node.args
        return f"{self.spell(owner)}.{node.target}({self.arguments(tuple(rest), node.kwargs)})"

    def function(self, node: fx.Node) -> str:
        """A call of a function, found where a plain import finds it."""
        target = node.target
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(node)
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            where = f"torch.ops.{target}"
        else:
            where = _importable(target)
        return f"{where}({self.arguments(node.args, node.kwargs)})"

    def _higher_order(self, node: fx.Node) -> str:
        held = [self._values.get(a) for a in node.args if isinstance(a, fx.Node)]
        inner = next((h for h in held if isinstance(h, nn.Module)), None)
        name = getattr(node.target, "__name__", str(node.target))
        what = f"{name} around {type(inner).__name__}" if inner is not None else name
        raise TraceError(
            f"{what} cannot be written as Python",
            hint="a .pt2 holds it; another --tracer may find a graph without it",
        )


def _importable(function: Any) -> str:
    """The dotted name of a function of torch or of Python's operators."""
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None) or ""
    candidates = [module.replace("_operator", "operator"), "torch", "torch.nn.functional",
                  "torch._C._nn", "torch.functional", "torch.special", "torch._C", "operator"]  # fmt: skip
    for home in candidates:
        if home.split(".")[0] not in ("torch", "operator") or not name.isidentifier():
            continue
        found: Any = {"torch": torch, "operator": __import__("operator")}[home.split(".")[0]]
        for part in home.split(".")[1:]:
            found = getattr(found, part, None)
        if getattr(found, name, None) is function:
            return f"{home}.{name}"
    raise TraceError(f"{module}.{name} cannot be written as Python", hint="use --tracer export")


def to_python(model: Model, example: Example, tracer: str) -> Exported:
    """The file: a class `Model`, and `load(path)` for weights.

    Raises `TraceError` when the graph cannot be captured as one, or not be written down.
    """
    module = model.module
    persistent = set(module.state_dict())
    stance = "default" if tracer == "dynamo" else "force_eager"

    def written(module: nn.Module, *, real: bool) -> tuple[str, list[Remark]]:
        with staged(module, example, real=real, stance=stance, warm_up=real) as stage:
            captured = capture(module, stage, tracer)
            text = "\n".join(_lines(model, captured, stage, persistent, tracer)) + "\n"
        return text, stage.guard.remarks

    try:
        text, left = written(module, real=False)
    except TraceError:
        # A model that makes tables at its first call may do so outside of the graph: after a warm-up on
        # real tensors they are constants with values.
        text, left = written(materialized(model), real=True)
    compile(text, "graph.py", "exec")
    return Exported(text.encode(), (f"{text.count(chr(10)):,} lines, from {tracer}", *left))


def _lines(
    model: Model, captured: Captured, stage: Stage, persistent: set[str], tracer: str
) -> Iterator[str]:
    body = _Body(captured, stage)
    forward = list(body.lines())
    name = _plain(model.info.name)
    yield f'"""{name} as one graph, written by opgraph {__version__} from what {tracer} captured.'
    yield ""
    yield "    model = load('weights.pt')   # the model's state dict; nothing for random weights"
    yield f"    result = model({', '.join(body.arguments)})"
    yield ""
    for name, tensor in body.arguments.items():
        shape = "x".join(map(str, tensor.shape))
        yield f"{name} is {shape or 'a number'} of {dtype_name(tensor.dtype)}; other shapes may not do."
    yield '"""'
    yield from _PREAMBLE.splitlines()
    yield "class Model(nn.Module):"
    yield "    def __init__(self):"
    yield "        super().__init__()"
    yield from (f"        {line}" for line in _weights(stage, persistent, body))
    yield "        self.eval()"
    yield ""
    yield "    @torch.no_grad()"
    yield f"    def forward({', '.join(['self', *body.arguments])}):"
    yield from (f"        {line}" for line in forward)
    yield from _ENDING.splitlines()


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable() and c not in '"\\')


def _weights(stage: Stage, persistent: set[str], body: _Body) -> Iterator[str]:
    """The lines that make the weights: learned ones empty, tables that no state dict holds with their
    values."""
    for path, constructor in body.leaves.items():
        yield f"put(self, {path!r}, {constructor})"
    for parameter in stage.weights.parameters:
        if any(parameter.name.startswith(f"{path}.") for path in body.leaves):
            continue
        names = (parameter.name, *parameter.tied)
        kind = f"{tuple(parameter.shape)!r}, torch.{parameter.dtype}"
        tensor = stage.weights.tensor(parameter.name)
        if parameter.kind == "parameter":
            yield f"share(self, {names!r}, parameter({kind}))"
        elif parameter.name in persistent:
            yield f"share(self, {names!r}, torch.zeros({kind.replace(' torch', ' dtype=torch')}))"
        elif parameter.name in body.used and tensor is not None:
            yield f"put(self, {parameter.name!r}, {encoded(tensor)}, persistent=False)"
    for name, tensor in body.constants.items():
        yield f"put(self, {name!r}, {encoded(tensor)}, persistent=False)"


class _Body:
    """The lines of `forward`, and what they need."""

    def __init__(self, captured: Captured, stage: Stage) -> None:
        self._speller = Speller()
        names = {name: self._speller.fresh(identifier(name)) for name in captured.inputs}
        self._inputs = {id(t): names[name] for name, t in captured.inputs.items()}
        self.arguments = {names[name]: tensor for name, tensor in captured.inputs.items()}
        self.constants: dict[str, Tensor] = {}
        self.leaves: dict[str, str] = {}
        self.used: set[str] = set()
        self._captured = captured
        self._stage = stage

    def lines(self) -> Iterator[str]:
        """The lines in order; values go after their last use."""
        graph = self._captured.graph
        last = _last_uses(graph)
        for node in graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
                continue
            if node.op == "output":
                yield f"return {self._speller.spell(self._captured.result(node.args[0]))}"
                return
            line = self._call(node)
            if line is not None:
                yield line + _remark(node, self._captured.path)
            gone = [self._speller.name(n) for n in last.get(node, ()) if n.op != "placeholder"]
            if gone:
                yield f"del {', '.join(gone)}"

    def _placeholder(self, node: fx.Node) -> None:
        """A placeholder is no line: it is written where it is used."""
        value = self._captured.values[node]
        if not isinstance(value, Tensor):
            self._speller.stands_for(node, value)
        elif id(value) in self._inputs:
            self._speller.names[node] = self._inputs[id(value)]
        elif node.users:
            self._speller.names[node] = f"self.get({self._kept(value)!r})"

    def _kept(self, tensor: Tensor) -> str:
        """The name under which a weight or a constant is kept."""
        weight = self._stage.weights.name_of(tensor)
        if weight is not None:
            self.used.add(weight.name)
            return weight.name
        for name, constant in self.constants.items():
            if constant is tensor:
                return name
        name = f"constant_{len(self.constants)}"
        self.constants[name] = tensor
        return name

    def _call(self, node: fx.Node) -> str | None:
        spell = self._speller
        if node.op == "get_attr":
            value: Any = self._captured.root
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if isinstance(value, nn.Module):
                spell.stands_for(node, value)
                return None
            spell.names[node] = f"self.get({self._kept(value)!r})"
            return None
        name = spell.name(node)
        if node.op == "call_module":
            path = str(node.target)
            self.leaves.setdefault(path, _constructor(self._captured.root.get_submodule(path)))
            return f"{name} = self.get({path!r})({spell.arguments(node.args, node.kwargs)})"
        call = spell.method(node) if node.op == "call_method" else spell.function(node)
        return f"{name} = {call}" if node.users else call


def _constructor(module: nn.Module) -> str:
    """The line that makes a leaf module of torch.nn: what it prints of itself, where that is one. It is
    read as literals and never run as a text, since a model may print what it likes."""
    cls = type(module)
    refusal = TraceError(
        f"{cls.__name__} does not print how it is made", hint="use --tracer export"
    )
    if getattr(nn, cls.__name__, None) is not cls:
        raise refusal
    text = " ".join(str(module).split())
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != cls.__name__:
            raise refusal
        args = [ast.literal_eval(a) for a in call.args]
        kwargs = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        with torch.device("meta"):
            made = cls(*args, **kwargs)
    except (SyntaxError, ValueError, TypeError) as error:
        raise refusal from error
    shapes = {k: v.shape for k, v in module.state_dict().items()}
    if {k: v.shape for k, v in made.state_dict().items()} != shapes:
        raise refusal
    given = [*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())]
    return f"nn.{cls.__name__}({', '.join(given)})"


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    seen: set[fx.Node] = set()
    found: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return {n: [u for u in used if u.op != "get_attr"] for n, used in found.items()}


def _remark(node: fx.Node, path_of: Callable[[str, str], str]) -> str:
    """Where a line comes from: the model's module and source line."""
    stack = list(node.meta.get("nn_module_stack", {}).items())
    path = path_of(stack[-1][0], str(stack[-1][1][0])) if stack else ""
    file, line = traced_location(node.meta.get("stack_trace"))
    parts = [p for p in (path, f"{file}:{line}" if file else "") if p]
    return f"  # {_plain(', '.join(parts))}" if parts else ""


_PREAMBLE = """
import operator
import sys
from base64 import b64decode
from zlib import decompress

import torch
from torch import device, inf, nan, nn

try:
    import torchvision  # its operators, where the graph has any
except ImportError:
    pass


def parameter(shape, dtype):
    data = torch.randn(shape) * 0.02 if dtype.is_floating_point else torch.zeros(shape)
    return nn.Parameter(data.to(dtype), requires_grad=False)


def tensor(dtype, shape, data):
    raw = bytearray(decompress(b64decode(data)))
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


def put(model, name, thing, persistent=True):
    *path, last = name.split(".")
    for part in path:
        if part not in model._modules:
            model.add_module(part, nn.Module())
        model = model._modules[part]
    if isinstance(thing, nn.Module):
        model.add_module(last, thing)
    elif isinstance(thing, nn.Parameter):
        model.register_parameter(last, thing)
    else:
        model.register_buffer(last, thing, persistent=persistent)


def share(model, names, thing):
    for name in names:
        put(model, name, thing)


def get(model, name):
    for part in name.split("."):
        model = getattr(model, part)
    return model


nn.Module.get = get


"""

_ENDING = """

def load(path=None):
    model = Model()
    if path is not None:
        model.load_state_dict(torch.load(path, weights_only=True))
    return model


if __name__ == "__main__":
    print(load(*sys.argv[1:2]))
"""
