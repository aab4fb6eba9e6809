"""Files that may come from anywhere, looked into before torch opens them: allow-lists for what checkpoints
(pickles) and `torch.export` programs (archives) may hold without being trusted."""

from __future__ import annotations

import ast
import enum
import importlib
import io
import json
import pathlib
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
from torch import nn

from opgraph.record.errors import OpgraphError, SourceError, UntrustedFile, first_line

TRUST = "if you trust where the file comes from, add --trust"

# Zip archives, as torch writes its files, before anything in them is unpacked. torch takes the memory that
# a member says it needs, so what they say together must be in proportion to the file.

_RATIO = 4
_SLACK = 64 * 2**20
"""torch stores its members as they are. What was packed by hand may unpack to so many times the size of the
file, and so many bytes more."""
_MOST_MEMBERS = 1_000_000


def check_size(path: Path) -> None:
    """Raise `SourceError` for an archive that unpacks to far more than it is, or names a member twice (of
    which two readers may take different ones). What is no archive is left to whoever reads it."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        return
    total = sum(m.file_size for m in members)
    if total > _RATIO * path.stat().st_size + _SLACK or len(members) > _MOST_MEMBERS:
        raise SourceError(f"{path} unpacks to {total:,} bytes, far more than it is")
    if len({m.filename for m in members}) < len(members):
        raise SourceError(f"{path} holds two members of one name")


# What a file is that is none of what torch writes, as far as its first bytes say.

SAVED = "torch.save(model, FILE) writes one that holds a module; or name the model's code: model.py:build"
EXPORTED = (
    "torch.export.save(program, FILE) writes one; a module that torch.save writes is named .pt"
)
_AGAIN = "save it again, or download it again"
_OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""What torch wrote before 1.6 begins with: a number of its own, as a pickle."""
_HEADER = re.compile(rb".{8}\{\s*\"", re.DOTALL)
"""What a file of safetensors begins with: the length of a table in JSON, and the table."""


def remedy(path: Path, otherwise: str = SAVED, *, trusted: bool = False) -> str:
    """What to do about a file that torch does not read, `trusted` or not; `otherwise` where it says nothing
    of itself."""
    try:
        with path.open("rb") as file:
            head = file.read(256)
        size = path.stat().st_size
    except OSError:
        return otherwise
    if not size:
        return f"the file is empty: {_AGAIN}"
    if head.startswith(b"version https://git-lfs"):
        return "it stands for a file of Git LFS, which `git lfs pull` brings"
    if head.lstrip().startswith(b"<"):
        return "it is a web page, or XML: the address of the file itself is another"
    if _HEADER.match(head):
        return "it is of safetensors, which has weights and no model: name the model they belong to"
    if head.startswith(_OLD) and not trusted:
        return f"torch wrote files like it before 1.6, which may run code: {TRUST}"
    if head.startswith(_OLD) or (head.startswith(b"PK") and not _is_whole(path)):
        return f"it is damaged, or cut off at its {size:,} bytes: {_AGAIN}"
    return otherwise


def _is_whole(path: Path) -> bool:
    """Whether an archive is there to its end, and what says what is in it is as it was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(("data.pkl", ".json")) and member.file_size < _SLACK:
                    archive.read(member)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        return False
    return True


def reason(error: Exception) -> str:
    """The first sentence of an error: torch's go on with guesses."""
    return _SENTENCES.split(first_line(error))[0]


_SENTENCES = re.compile(r"\. (?=[A-Z])")


# Checkpoints. A `.pt` file is a pickle, and a pickle can call whatever it names, so only the classes that
# Ultralytics and torch checkpoints need are let in, and of model classes only the bare object: their
# constructors, some of which evaluate text, cannot be called from a file.

_MODULES = (
    "torch.nn.",
    "torchvision.models.",
    "torchvision.ops.",
    "ultralytics.nn.modules.",
    "ultralytics.nn.tasks.",
    "timm.models.",
    "timm.layers.",
)
_DATA = (
    "collections.OrderedDict", "collections.defaultdict", "types.SimpleNamespace", "argparse.Namespace",
    "datetime.datetime", "datetime.timedelta", "builtins.set", "builtins.slice", "builtins.complex",
    "numpy.dtype", "numpy.ndarray",
)  # fmt: skip
_RENAMED = {
    "ultralytics.yolo.utils.IterableSimpleNamespace": "ultralytics.utils.IterableSimpleNamespace",
    "ultralytics.nn.modules.block.Silence": "torch.nn.modules.linear.Identity",
    "ultralytics.nn.tasks.YOLOv10DetectionModel": "ultralytics.nn.tasks.DetectionModel",
}
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path", "PurePath")
_INERT = ("ultralytics.utils.loss.", "ultralytics.utils.tal.", "ultralytics.utils.IterableSimpleNamespace",
          "torchvision.transforms.")  # fmt: skip
"""Classes that come along in checkpoints and that a forward does not need: kept as plain records."""


def open_checkpoint(path: Path, *, trust: bool = False) -> Any:
    """What a `.pt` file holds. Raises `UntrustedFile` for a pickle that wants more than the allow-list,
    and `SourceError` for a file that is no checkpoint."""
    if trust:
        from opgraph.sources.code import here

        with here():  # a pickle names the modules of its classes, which may lie where it was saved
            return _load(path, weights_only=False)
    check_size(path)
    try:
        wanted = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception as error:
        if "torchscript" in str(error):
            raise SourceError(
                f"{path} is a TorchScript archive, which has no modules to look into",
                hint="torch.export.save the model instead, or profile its code: model.py:build",
            ) from error
        raise SourceError(
            f"{path} is not a checkpoint: {reason(error)}", hint=remedy(path)
        ) from error
    bare: dict[type, type] = {}
    allowed = [(_allow(name, path, bare), name) for name in wanted]
    import numpy as np

    allowed += [
        (type(np.dtype(kind)), "") for kind in ("f2", "f4", "f8", "i4", "i8", "u1", "b1") if wanted
    ]
    entries = [entry if entry[1] else entry[0] for entry in allowed]
    with torch.serialization.safe_globals(entries):
        content = _load(path, weights_only=True)
    _restore(content, bare)
    return content


def _unsafe_names(data: IO[bytes]) -> list[str]:
    """What a pickled tensor file asks for beyond plain tensors; everything, if it cannot be told."""
    try:
        return list(torch.serialization.get_unsafe_globals_in_checkpoint(data))
    except Exception as error:  # noqa: BLE001 - what cannot be read cannot be allowed
        return [f"something unreadable ({first_line(error)})"]


def _refuse_pickle(path: Path, name: str) -> UntrustedFile:
    return UntrustedFile(f"{path} is a pickle that wants to run {name}", hint=TRUST)


def _load(path: Path, *, weights_only: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=weights_only)
    except UntrustedFile as error:
        raise UntrustedFile(f"{path}: {error}", hint=TRUST) from error
    except Exception as error:
        text = str(error)
        if weights_only and (
            "Unsupported" in text or "allowlist" in text or "unrecognized" in text
        ):
            raise _refuse_pickle(path, "what it should not: " + first_line(error)) from error
        raise SourceError(
            f"{path} cannot be opened: {reason(error)}",
            hint=f"run it in the folder from which {error.name} is imported"
            if isinstance(error, ModuleNotFoundError)
            else remedy(path, trusted=not weights_only),
        ) from error


def _allow(name: str, path: Path, bare: dict[type, type]) -> Any:
    """What stands for this name while the file is read. Raises `UntrustedFile`."""
    module, _, last = name.rpartition(".")
    if module in ("pathlib", "pathlib._local") and last in _PATHS:
        return pathlib.PurePosixPath
    if name == "builtins.getattr":
        return _attribute
    if name in ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"):
        import numpy as np

        return np.float64(0).__reduce__()[0]
    if name in ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"):
        import numpy as np

        return np.zeros(1).__reduce__()[0]
    name = _RENAMED.get(name, name)
    if name in _DATA:
        return _found(name)
    if name.startswith(_INERT):
        found = _found(name)
        return found if isinstance(found, type) and issubclass(found, enum.Enum) else _record(last)
    if name.startswith(_MODULES):
        found = _found(name)
        if isinstance(found, type) and issubclass(found, enum.Enum):
            return found
        if isinstance(found, type) and issubclass(found, nn.Module):
            return bare.setdefault(found, _without_constructor(found))
    raise _refuse_pickle(path, name)


def _found(name: str) -> Any:
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError):
        return None


def _without_constructor(cls: type) -> type:
    """The class as a pickle may have it: its objects can be made and filled, its constructor not called."""

    def refused(_self: Any, *_args: Any, **_kwargs: Any) -> None:
        raise UntrustedFile(f"the file calls the constructor of {cls.__name__}")

    return type(cls.__name__, (cls,), {"__init__": refused, "__module__": cls.__module__})


def _record(name: str) -> type:
    """A class of plain records that take any state."""

    def keep(_self: Any, *_args: Any, **_kwargs: Any) -> None:
        """Arguments of a class that nobody calls are not kept."""

    return type(name, (SimpleNamespace,), {"__init__": keep})


def _attribute(owner: Any, name: str) -> Any:
    """`getattr` as checkpoints use it: another forward of a model class (of fused layers), or a member of
    an enumeration."""
    module = isinstance(owner, nn.Module) or _is(owner, nn.Module)
    if module and isinstance(name, str) and name.startswith("forward"):
        return getattr(owner, name)
    if _is(owner, enum.Enum) and name in owner.__members__:
        return owner[name]
    raise UntrustedFile(f"the file reads {name!r:.60} of {type(owner).__name__}")


def _is(owner: Any, cls: type) -> bool:
    return isinstance(owner, type) and issubclass(owner, cls)


def _restore(content: Any, bare: Mapping[type, type]) -> None:
    """Give the modules in a loaded object their real classes back."""
    real = {stand: cls for cls, stand in bare.items()}
    for root in _modules_in(content):
        for module in root.modules():
            cls = real.get(type(module))
            if cls is not None:
                module.__class__ = cls


def _modules_in(content: Any) -> Iterable[nn.Module]:
    if isinstance(content, nn.Module):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            if isinstance(value, nn.Module):
                yield value


# Programs. torch evaluates some texts of an archive (sizes), writes others into Python source that it
# runs (names), and imports what others mention (specs, targets), so each must have the plain form that
# torch itself writes. Guards are left alone: they are never compiled.

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


def types_in(path: Path) -> list[str]:
    """The names of the types that arguments and results of a program are of, as torch writes them."""
    reader = torch._C.PyTorchFileReader(str(path))
    texts = (reader.get_record(n) for n in reader.get_all_records() if n.endswith(".json"))
    return list(dict.fromkeys(name.decode() for text in texts for name in _TYPE.findall(text)))


_TYPE = re.compile(rb'\\"type\\": \\"([\w.]+)\\"')
"""As it is told within a text in JSON."""


def check_program(path: Path) -> None:
    """Raise `UntrustedFile` for an archive with anything but plain tensors, known operators and arithmetic,
    and `SourceError` for what is no archive."""
    try:
        # The reader that opens it afterwards, so that both see the same members.
        reader = torch._C.PyTorchFileReader(str(path))
        names: list[str] = reader.get_all_records()
        for name in names:
            if name.endswith(_CODE) or any(word in name for word in _OBJECTS):
                raise _refuse_program(path, name.rpartition("/")[2])
            if name.endswith(".json"):
                for text in _doubtful(json.loads(reader.get_record(name)), ""):
                    raise _refuse_program(path, text)
        for name in _pickled(reader, names):
            for text in _unsafe_names(io.BytesIO(reader.get_record(name))):
                raise _refuse_program(path, text)
    except OpgraphError:
        raise
    except Exception as error:
        raise SourceError(
            f"{path} is not an exported program: {reason(error)}", hint=remedy(path, EXPORTED)
        ) from error


def _refuse_program(path: Path, text: str) -> UntrustedFile:
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
