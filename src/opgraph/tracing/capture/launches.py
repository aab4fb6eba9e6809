"""Kernels written in Triton, which a forward launches itself. There is nothing to launch them on in a run:
each is an operator of its own instead, whose cost nobody knows, and which writes nothing."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

from opgraph.record.graph import Graph
from opgraph.record.remarks import Remark
from opgraph.record.turns import replaced
from opgraph.tracing.capture.names import LAUNCHED

NOT_RUN = Remark(
    "branch",
    "kernels written in Triton did not run, and have written nothing: where forward asks for a value after "
    "one, it goes on by what was in memory",
)
"""The remark on a run on real tensors in which there were some."""
_LAUNCHERS = (
    ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime.autotuner", "Autotuner"),
    ("triton.runtime.autotuner", "Heuristics"),
    ("triton.runtime.interpreter", "InterpretedFunction"),
)
"""What launches a kernel: itself, what chooses how before, by runs of its own or by rule, and what runs it
without a device (TRITON_INTERPRET)."""


@contextmanager
def launches() -> Iterator[Callable[[], None]]:
    """Within, kernels that are launched are operators; what it gives looks for Triton again."""
    with ExitStack() as stack:
        known: set[Any] = set()

        def look() -> None:
            for module, name in _LAUNCHERS:
                launcher = getattr(sys.modules.get(module), name, None)
                if launcher is not None and launcher not in known:
                    known.add(launcher)
                    stack.enter_context(replaced(launcher, "run", _as_operator(launcher.run)))

        look()
        yield look


def launched_in(graph: Graph) -> bool:
    """Whether there are such operators."""
    return any(k.op.startswith(f"{LAUNCHED}.") for n in graph.nodes for k in n.kernels)


def _as_operator(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def launched(launcher: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if warmup:
            return
        function = launcher
        while hasattr(function, "fn"):
            function = function.fn
        names = function.__code__.co_varnames  # its parameters come first
        loaded, stored = accesses(function)
        read, updated, out = list[Tensor](), list[Tensor](), list[Tensor]()
        for name, item in (*zip(names, args, strict=False), *kwargs.items()):
            tensor = getattr(item, "base", item) if hasattr(item, "block_shape") else item
            if isinstance(tensor, Tensor):
                kind = read if name not in stored else updated if name in loaded else out
                kind.append(tensor)
        with torch._C._AutoDispatchBelowAutograd():  # autograd is told of no launch
            _operator(re.sub(r"\W", "_", function.__name__))(read, updated, out=out)

    return launched


@cache
def _operator(name: str) -> Any:
    """The operator that stands for the kernels of a name."""
    library = _library()
    library.define(f"{name}(Tensor[] read, Tensor(a!)[] updated, *, Tensor(b!)[] out) -> ()")
    library.impl(name, lambda read, updated, out: None, "CompositeExplicitAutograd")
    return getattr(getattr(torch.ops, LAUNCHED), name).default


@cache
def _library() -> torch.library.Library:
    return torch.library.Library(LAUNCHED, "FRAGMENT")


@cache
def accesses(function: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters of a kernel by which it loads, and those by which it stores, by its text: those that
    lead to the pointers of `tl.load`, `tl.store` and atomic operations. What another kernel gets may be
    either. All of them where there is no text, or it does neither."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    every = frozenset(names), frozenset(names)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return every
    behind = {name: {name} for name in names}

    def leads(node: ast.AST) -> set[str]:
        """The parameters that a pointer comes from."""
        if isinstance(node, ast.Name):
            return behind.get(node.id, set())
        if isinstance(node, ast.Call) and _last(node.func) in _VALUES:
            return set()
        return set().union(*map(leads, ast.iter_child_nodes(node)))

    before: dict[str, frozenset[str]] = {}
    while before != (now := {name: frozenset(found) for name, found in behind.items()}):
        before = now
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
                for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name) and node.value is not None:
                            behind.setdefault(name.id, set()).update(leads(node.value))
    loaded, stored = set[str](), set[str]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = _last(node.func)
        given = [*node.args, *(k.value for k in node.keywords)]
        if called in ("load", "store") or called.startswith("atomic_"):
            of_block = leads(node.func.value) if isinstance(node.func, ast.Attribute) else set()
            found = of_block or leads(given[0])
        elif isinstance(node.func, ast.Name) and called not in _PLAIN:
            found = set().union(*map(leads, given))
        else:
            continue
        loaded |= found if called != "store" else set()
        stored |= found if called != "load" else set()
    return (frozenset(loaded), frozenset(stored)) if loaded or stored else every


def _last(function: ast.expr) -> str:
    """The last name of what is called."""
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


_VALUES = frozenset(
    {"load", "program_id", "num_programs", "arange", "cdiv", "sum", "max", "min", "dot"}
)
"""What gives no pointer, whatever it is given."""
_PLAIN = frozenset({"range", "min", "max", "len", "print", "int", "float", "bool", "tuple", "zip"})
"""Functions that are no kernels."""
