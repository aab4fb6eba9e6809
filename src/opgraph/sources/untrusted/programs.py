"""What a `torch.export` archive may hold without being trusted. torch evaluates some of its texts (sizes),
writes others into Python source that it runs (names), and imports what others mention (specs, targets), so
each must have the plain form that torch itself writes. Guards are left alone: they are never compiled."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from opgraph.record.errors import OpgraphError, SourceError, UntrustedFile
from opgraph.sources.building import first_line
from opgraph.sources.untrusted.pickles import TRUST, unsafe_names

_CODE = (".so", ".o", ".a", ".cpp", ".py", ".cubin", ".ptx")
_OBJECTS = ("custom_obj", "opaque_obj")
_NAME = re.compile(r"[\w.+\-]*")
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims?|torchvision|quantized|quantized_decomposed|torchao)\.\w+(\.\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|map_impl|scan|associative_scan|invoke_subgraph|wrap\w*"
    r"|flex_attention|out_dtype|auto_functionalized\w*|hints_wrapper)"
    r"|_?operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|truediv|mod|pow|and_|or_|lshift|rshift"
    r"|getitem)"
    r"|math\.\w+|torch\.sym_\w+"
)
_HELD = re.compile(r"torch\.ops\.aten\.(from_file|save|_print)\b")
"""Operators that read or write files, or print."""
_FREE = frozenset({"as_string", "as_strings"})
"""Constants, which torch writes with quotes around them."""
_UNREAD = frozenset({"metadata", "guards_code"})
_MOST_EXPRESSION = 20_000
_MOST_POWER = 64


def vouch(path: Path) -> None:
    """Raise `UntrustedFile` for an archive with anything but plain tensors, known operators and arithmetic,
    and `SourceError` for what is no archive."""
    import torch

    try:
        # The reader that opens it afterwards, so that both see the same members.
        reader = torch._C.PyTorchFileReader(str(path))
        names: list[str] = reader.get_all_records()
        for name in names:
            if name.endswith(_CODE) or any(word in name for word in _OBJECTS):
                raise _refusal(path, name.rpartition("/")[2])
            if name.endswith(".json"):
                for text in _doubtful(json.loads(reader.get_record(name)), ""):
                    raise _refusal(path, text)
        for name in _pickled(reader, names):
            for text in unsafe_names(io.BytesIO(reader.get_record(name))):
                raise _refusal(path, text)
    except OpgraphError:
        raise
    except Exception as error:
        raise SourceError(f"{path} is not an exported program: {first_line(error)}") from error


def _refusal(path: Path, text: str) -> UntrustedFile:
    return UntrustedFile(
        f"{path} holds {text[:60]!r}, which is more than a graph and tensors", hint=TRUST
    )


def _pickled(reader: Any, names: list[str]) -> Iterator[str]:
    """The members that torch would unpickle: sample inputs, and payloads marked so."""
    yield from (n for n in names if n.endswith(".pt"))
    for name in names:
        if name.endswith("_config.json"):
            config = json.loads(reader.get_record(name)).get("config", {})
            folder = name.rpartition("/")[0]
            for payload in config.values():
                if payload.get("use_pickle"):
                    wanted = f"{folder}/{payload['path_name']}".partition("/")[2]
                    yield next(n for n in names if n == wanted or n.endswith(f"/{wanted}"))


def _doubtful(item: Any, key: str) -> Iterator[str]:
    """The texts in a program's data that are more than they should be; `key` is where `item` stands."""
    stack = [(item, key)]
    while stack:
        item, key = stack.pop()
        if isinstance(item, Mapping):
            # Ranges of sizes stand under expressions.
            yield from (n for n in item if not (_NAME.fullmatch(n) or _arithmetic(n)))
            stack += ((value, name) for name, value in item.items() if name not in _UNREAD)
        elif isinstance(item, list):
            stack += ((value, key) for value in item)
        elif isinstance(item, str) and not _plain(item, key):
            yield item


def _plain(text: str, key: str) -> bool:
    if key in _FREE:
        return True
    if key == "expr_str":
        return _arithmetic(text)
    if key in ("in_spec", "out_spec"):
        return _imports_nothing(text)
    if key != "fqn" and text.startswith(("torch.", "operator.", "_operator.", "math.")):
        return bool(_TARGET.fullmatch(text)) and not _HELD.match(text)
    return bool(_NAME.fullmatch(text))


@cache
def _functions() -> frozenset[str]:
    """What sizes are written with: sympy's own and torch's."""
    from torch.utils._sympy import functions

    own = (n for n, f in vars(functions).items() if isinstance(f, type))
    return frozenset({
        "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Eq", "Ne", "Lt", "Le",
        "Gt", "Ge", "And", "Or", "Not", "Equality", "Unequality", "StrictLessThan", "LessThan",
        "StrictGreaterThan", "GreaterThan", "floor", "ceiling", "Abs", *own,
    })  # fmt: skip


_SYNTAX = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def _arithmetic(text: str) -> bool:
    """Whether an expression is arithmetic of symbols, numbers and known functions, without large powers."""
    if len(text) > _MOST_EXPRESSION or "__" in text:
        return False
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _SYNTAX) and _tame(node) for node in nodes)


def _tame(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in _functions()
        return known and (ast.unparse(node.func) != "Pow" or _small(node.args[1:]))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _small([node.right])
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, (ast.LShift, ast.MatMult))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.isidentifier()
    return True


def _small(exponents: list[ast.expr]) -> bool:
    """Whether these are one exponent, written as a number, whose power cannot take for ever."""
    numbers = [n.value for e in exponents for n in ast.walk(e) if isinstance(n, ast.Constant)]
    return len(numbers) == 1 and isinstance(numbers[0], int) and numbers[0] <= _MOST_POWER


def _imports_nothing(spec: str) -> bool:
    """Whether the spec of a tree of arguments mentions only containers: enumerations and the defaults of
    dictionaries name what is then imported. Contexts are JSON in JSON."""
    stack: list[Any] = [json.loads(spec)]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if "__enum__" in item or item.get("default_factory_module", "builtins") != "builtins":
                return False
            stack += item.values()
            if isinstance(item.get("context"), str):
                stack.append(json.loads(item["context"]))
        elif isinstance(item, list):
            stack += item
    return True
