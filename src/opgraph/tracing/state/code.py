"""What code names, assigns and fills, from its instructions alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from opcode import opmap
from types import CodeType
from typing import Any, NamedTuple

from opgraph.record.identity import identity


def _any_of(*names: str) -> bytes:
    return b"[" + re.escape(bytes(opmap[n] for n in names if n in opmap)) + b"]"


_SETS = _any_of("STORE_ATTR", "DELETE_ATTR")
_SETS_OR_KEEPS = _any_of("STORE_ATTR", "DELETE_ATTR", "COPY")
_ASSIGNS = re.compile(
    b"|".join([
        _any_of("STORE_GLOBAL", "DELETE_GLOBAL"),
        _any_of("LOAD_GLOBAL", "LOAD_DEREF") + _any_of("LOAD_ATTR", "CACHE", "EXTENDED_ARG") + b"*"
        + _SETS_OR_KEEPS,
        _any_of("IMPORT_NAME") + b".*" + _SETS,
    ]),
    re.DOTALL,
)  # fmt: skip
"""Instructions that assign to globals, or to attributes of what is not a local variable."""
_IMPORTS = re.compile(_any_of("IMPORT_NAME"))
_BY_TEXT = frozenset({"modules", "import_module", "__import__"})
"""What code names that finds modules of Python's by strings."""
TELLING = frozenset(
    {"fake_mode", "fake_device", "torch._subclasses", "torch._subclasses.fake_tensor"}
)
"""What code names, or has as a string, that tells fake tensors from real ones."""


def sets_code(code: CodeType) -> bool:
    """Whether some code gives functions other code to run."""
    return ("__code__" in code.co_names and "__code__" in _set_on(code)) or any(
        map(sets_code, _inner(code))
    )


_Path = tuple[str, ...]


class Names(NamedTuple):
    """What some code, and the functions within it, name: all names; what it assigns; what may be the name
    of an attribute that it sets of something, or has set by another function; and texts that may say where
    something is from a module on (`"torch.nn.functional.relu"`). Paths are names one behind the other."""

    all: frozenset[str]
    assigned: frozenset[_Path]
    said: frozenset[str]
    places: frozenset[_Path]


KNOWN = 200_000
"""Of how much code it is known at most what it names."""
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
"""A text that may say where something is: names one behind the other."""
_NAMED: dict[int, tuple[CodeType, Names]] = {}
_LOOKED_FOR: dict[int, tuple[CodeType, frozenset[str]]] = {}
"""What code names, by its id, with the code itself so that the id stays its own."""


def named_in(code: CodeType) -> Names:
    """The names in some code and in the functions within it."""
    known = _NAMED.get(identity(code))
    if known is None:
        if len(_NAMED) > KNOWN:
            _NAMED.clear()
            _LOOKED_FOR.clear()
        found: tuple[set[Any], ...] = (
            set(code.co_names), set(_assigned(code)), set(_set_on(code)), set(),
        )  # fmt: skip
        names, _, said, places = found
        by_text = not names.isdisjoint(_BY_TEXT)
        looks_up = not names.isdisjoint(_LOOKS_UP)
        places.update(tuple(t.split(".")) for t in _texts(code.co_consts) if _PLACE.fullmatch(t))
        for constant in code.co_consts:
            if type(constant) is str and constant.isidentifier():
                said.add(constant)
                if looks_up:
                    names.add(constant)
            if type(constant) is str and (constant in TELLING or by_text):
                names.add(constant)
            if type(constant) is CodeType:
                for own, inner in zip(found, named_in(constant), strict=True):
                    own.update(inner)
        if code.co_varnames[:1] == ("cls",) and code.co_argcount:  # it may make one of its class
            names.add("__class__")
        if _IMPORTS.search(code.co_code[::2]):
            names.add("__package__")
        known = _NAMED[identity(code)] = code, Names(*map(frozenset, found))
    return known[1]


def _texts(constants: Iterable[Any]) -> Iterator[str]:
    """The texts among constants, with those in tuples and sets."""
    for each in constants:
        if type(each) is str:
            yield each
        elif type(each) in (tuple, frozenset):
            yield from _texts(each)


def looked_for(code: CodeType) -> frozenset[str]:
    """Parts of the names by which some code, and the functions within it, look attributes up."""
    known = _LOOKED_FOR.get(identity(code))
    if known is None:
        looks_up = not _LOOKS_UP.keys().isdisjoint(code.co_names)
        own = frozenset(_made(code) if looks_up else ())
        known = _LOOKED_FOR[identity(code)] = code, own.union(*map(looked_for, _inner(code)))
    return known[1]


def _made(code: CodeType) -> Iterator[str]:
    """Parts of the names by which some code looks attributes up, where it has no whole name: the texts that
    it makes one of, or an empty one, which is part of every name."""
    import dis

    steps = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for at, step in enumerate(steps):
        if step.opname not in _LOADS or step.argval not in _LOOKS_UP:
            continue
        depth, last, texts = 0, None, []
        for each in steps[at + 1 :]:  # until its arguments are there, and it is called
            depth += 0 if each.opname == "PUSH_NULL" else dis.stack_effect(each.opcode, each.arg)
            if depth <= 0:
                break
            if depth == _LOOKS_UP[step.argval]:
                last = each.opname
            if each.opname == "LOAD_CONST" and type(each.argval) is str:
                texts += _WORDS.findall(_FIELDS.sub(" ", each.argval))
        if last != "LOAD_CONST":
            yield from texts or [""]


_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD"})
_LOOKS_UP = {"getattr": 2, "getattr_static": 2, "attrgetter": 1, "methodcaller": 1,
             "__getattribute__": 1, "__dict__": 0, "vars": 0, "getmembers": 0}  # fmt: skip
"""What looks attributes up by their names, and which argument that is; 0 where all are shown."""
_FIELDS = re.compile(r"%[-#0 +]*[\d.]*[a-zA-Z]|\{[^}]*\}")
"""Where something else comes into a text."""
_WORDS = re.compile(r"\w+")


def with_parts(table: Mapping[str, Any], parts: Collection[str]) -> set[str]:
    """The names in a table that have one of some parts, but for those of Python's own methods."""
    names = (name for name in table if type(name) is str and name[:2] != "__")
    return {name for name in names if any(part in name for part in parts)}


BY_NAME = frozenset({"setattr", "delattr", "vars"})
FILL = frozenset({"pop", "update", "setdefault", "clear"})
_ADD = frozenset({"append", "add", "insert", "extend", "remove", "discard"})
_FILLS = re.compile(_any_of("STORE_SUBSCR", "DELETE_SUBSCR"))


def fills_any(code: CodeType) -> bool:
    """Whether some code puts something into a container of whatever name, or takes it out."""
    return not (FILL | _ADD).isdisjoint(named_in(code).all) or fills(code)


def fills(code: CodeType) -> bool:
    """Whether some code puts something into a container, or takes it out."""
    return _FILLS.search(code.co_code[::2]) is not None or any(map(fills, _inner(code)))


def sets_by_name(code: CodeType) -> bool:
    """Whether some code sets attributes of what is behind a global or an imported module."""
    import dis

    before = None
    for each in dis.get_instructions(code):
        if each.opname in ("CACHE", "PUSH_NULL", "EXTENDED_ARG", "PRECALL"):
            continue
        found = each.opname.startswith("LOAD_")
        if (
            before in BY_NAME
            and found
            and (each.opname == "LOAD_GLOBAL" or each.argval in sys.modules)
        ):
            return True
        before = each.argval if each.opname == "LOAD_GLOBAL" else None
    return any(map(sets_by_name, _inner(code)))


def _set_on(code: CodeType) -> Iterator[str]:
    """The attributes that some code sets of whatever it has in hand, but for those of `self`."""
    return (name for name, mine in _stores(code) if not mine)


def set_by(code: CodeType) -> set[str]:
    """The attributes that some code, and the functions within it, set of anything."""
    return {name for name, _ in _stores(code)}.union(*map(set_by, _inner(code)))


def _stores(code: CodeType) -> Iterator[tuple[str, bool]]:
    """The attributes that some code sets, and whether of `self`."""
    kinds, numbers = code.co_code[::2], code.co_code[1::2]
    at = kinds.find(_STORE)
    while at >= 0:
        mine = kinds[at - 1] == _LOAD and code.co_varnames[numbers[at - 1] :][:1] == ("self",)
        name = numbers[at] | numbers[at - 1] << 8 if kinds[at - 1] == _EXTENDED else numbers[at]
        yield code.co_names[name], mine
        at = kinds.find(_STORE, at + 1)


_STORE, _LOAD, _EXTENDED = (opmap[n] for n in ("STORE_ATTR", "LOAD_FAST", "EXTENDED_ARG"))


def takes_modules(code: CodeType) -> bool:
    """Whether some code takes the table of Python's modules (`sys.modules`)."""
    import dis

    before = None
    for each in dis.get_instructions(code):
        if each.argval == "modules" and (before == "sys" or each.opname == "LOAD_GLOBAL"):
            return True
        before = before if each.opname in ("CACHE", "EXTENDED_ARG") else each.argval
    return any(map(takes_modules, _inner(code)))


def opens_dictionary(code: CodeType) -> bool:
    """Whether some code takes the dictionary of what is behind a global."""
    import dis

    before = None
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_ATTR" and each.argval == "__dict__" and before == "LOAD_GLOBAL":
            return True
        before = before if each.opname in ("CACHE", "EXTENDED_ARG") else each.opname
    return any(map(opens_dictionary, _inner(code)))


def _inner(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if type(c) is CodeType]


def _assigned(code: CodeType) -> Iterator[tuple[str, ...]]:
    """The globals that some code assigns or deletes, and the attributes of what is behind globals, imported
    modules (`torch.backends.cudnn.benchmark`) or variables of an enclosing function, as names one behind
    the other."""
    if _ASSIGNS.search(code.co_code[::2]) is None:
        return
    import dis

    path: list[str] = []
    kept: list[list[str]] = []  # of what is set by its value before (`a.b.n += 1`)
    before = ""
    for each in dis.get_instructions(code):
        kind, name = each.opname, each.argval
        if kind in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield (name,)
        elif kind in ("STORE_ATTR", "DELETE_ATTR") and path:
            yield (*path, name)
        if kind == "LOAD_ATTR" and path:
            path.append(name)
        elif kind == "COPY":
            kept.append(path)
            path = []
        elif kind == "SWAP" and kept:
            path = kept.pop()
        elif before == "COPY" and kind.startswith("STORE_"):  # a name within an expression (`:=`)
            kept.pop()
        elif kind in ("LOAD_GLOBAL", "LOAD_DEREF") or ("LOAD_FAST" in kind and name in sys.modules):
            path = [name]
        elif kind not in ("CACHE", "EXTENDED_ARG"):
            path = []
        before = kind if kind != "EXTENDED_ARG" else before
