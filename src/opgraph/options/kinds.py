"""Kinds of values: from what a person types, or hands over in Python, to the one form that the stages
read, or to what is wrong with it. Both ways end in `check`, so both refuse the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import Any, ClassVar

from opgraph.record.errors import one_of


class Unfit(ValueError):
    """A value that an option cannot have: what is wrong, and what would do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Kind:
    """A type of value. `metavar` stands for one on the command line, `python` is its type as documented,
    and what is `repeated` is given again for each of its items."""

    metavar: ClassVar[str] = "TEXT"
    python: ClassVar[str] = "str"
    repeated: ClassVar[bool] = False

    def parse(self, text: str) -> Any:
        """The value that a person typed (one item, where it is repeated). Raises `Unfit`."""
        return self.check(text)

    def check(self, value: Any) -> Any:
        """The value in its one form. Raises `Unfit`."""
        raise NotImplementedError


class Text(Kind):
    """Any text; paths are texts, too."""

    def check(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if hasattr(value, "__fspath__"):
            return str(value.__fspath__())
        raise Unfit(f"{value!r:.40} is not a text")


class Flag(Kind):
    """Yes or no: on the command line an option without a value, `--no-…` where yes is the default."""

    metavar: ClassVar[str] = ""
    python: ClassVar[str] = "bool"

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Unfit(f"{value!r:.40} is neither true nor false")
        return value


@dataclass(eq=False, repr=False)
class Whole(Kind):
    """A whole number of at least `least`."""

    least: int = 1
    metavar: ClassVar[str] = "N"
    python: ClassVar[str] = "int"

    def parse(self, text: str) -> int:
        try:
            return self.check(int(text))
        except ValueError:
            raise Unfit(
                f"{text or repr(text):.40} is not a whole number of at least {self.least}"
            ) from None

    def check(self, value: Any) -> int:
        try:
            number = self.least - 1 if isinstance(value, bool) else index(value)
        except TypeError:
            number = self.least - 1
        if number < self.least:
            raise Unfit(f"{value!r:.40} is not a whole number of at least {self.least}")
        return number


@dataclass(eq=False, repr=False)
class Amount(Kind):
    """A number above 0, up to `most`: seconds, GiB, FLOPs, dots an inch."""

    most: float
    metavar: ClassVar[str] = "X"
    python: ClassVar[str] = "float"

    def parse(self, text: str) -> float:
        try:
            return self.check(self._number(text))
        except ValueError:
            raise Unfit(
                f"{text or repr(text):.40} is not a number above 0, up to {self.most:,}"
            ) from None

    def check(self, value: Any) -> float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= self.most:  # nor is nan
            raise Unfit(f"{value!r:.40} is not a number above 0, up to {self.most:,}")
        return float(value)

    def _number(self, text: str) -> float:
        return float(text)


class Count(Amount):
    """How many at most or at least, in thousands, millions, … where that is written: 30M, 1.5G, 2e9."""

    metavar: ClassVar[str] = "N"

    def _number(self, text: str) -> float:
        scale = _SCALES.get(text[-1:], 1.0)
        return float(text if scale == 1.0 else text[:-1]) * scale


_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}


@dataclass(eq=False, repr=False)
class Choice(Kind):
    """One of a closed set of words, in capitals or not, or of `also`, which mean the same as one of them.
    An `Enum` whose values they are does, too."""

    values: tuple[str, ...]
    also: Mapping[str, str] | None = None

    def check(self, value: Any) -> str:
        asked = value.value if isinstance(value, Enum) else value
        if isinstance(asked, str) and asked not in self.values:
            word = asked.casefold()
            asked = (self.also or {}).get(word, word if word in self.values else asked)
        if asked in self.values and isinstance(asked, str):
            return str(asked)
        raise Unfit(f"{value!r:.40} is not a choice", one_of(str(asked), self.values))


class Launched(Choice):
    """How a model is run: one of a closed set of words, or a mode of `torch.compile` that means one."""

    def check(self, value: Any) -> str:
        if isinstance(value, str) and value.startswith("max-autotune"):
            raise Unfit(f"the kernels of {value} are picked by measuring them on the device",
                        "compiled, or compiled,graphs: as without it")  # fmt: skip
        return super().check(value)


class Loss(Choice):
    """A loss by its name, or in Python a function of what the model returns."""

    python: ClassVar[str] = "str | Callable"

    def check(self, value: Any) -> Any:
        return value if callable(value) and not isinstance(value, type) else super().check(value)


class Trained(Kind):
    """What of a model is trained: all of it, or adapters, with their rank behind a colon ("lora:16")."""

    metavar: ClassVar[str] = "full|lora[:RANK]|qlora[:RANK]"
    python: ClassVar[str] = "str"

    def check(self, value: Any) -> str:
        word, colon, rank = value.partition(":") if isinstance(value, str) else (value, "", "")
        kind = Choice(("full", "lora", "qlora")).check(word)
        if colon and kind == "full":
            raise Unfit("'full' has no rank", "lora:16")
        return f"{kind}:{Whole().parse(rank)}" if colon else kind


class Recorded(Kind):
    """Which steps of an engine are recorded as graphs: a word, or up to how many tokens."""

    metavar: ClassVar[str] = "all|decode|TOKENS"
    python: ClassVar[str] = "str | int"

    def check(self, value: Any) -> str:
        word = str(value)
        if word in ("all", "decode"):
            return word
        if word.isdigit():
            return str(Whole().parse(word))
        raise Unfit(f"{value!r:.40} is not a choice", "one of all, decode, or a number of tokens")


class Dtype(Choice):
    """A dtype by its name, as torch writes it or in short ("bf16"), or a `torch.dtype`."""

    metavar: ClassVar[str] = "DTYPE"
    python: ClassVar[str] = "str | torch.dtype"

    def check(self, value: Any) -> str:
        # A dtype is known by what it is called: this room does without torch.
        name = str(value).removeprefix("torch.") if type(value).__name__ == "dtype" else value
        bare = name.removeprefix("torch.") if isinstance(name, str) else name
        return Choice(self.values, DTYPE_NAMES).check(bare)


class ParameterDtype(Dtype):
    """A dtype that parameters can be cast to; of those that take quantizing, what does it."""

    def check(self, value: Any) -> str:
        if isinstance(value, str) and _QUANTIZED.match(value):
            raise Unfit(f"{value:.40} parameters are made by quantizing", _QUANTIZE)
        return super().check(value)


DTYPE_NAMES = {
    "fp64": "float64", "double": "float64", "fp32": "float32", "float": "float32",
    "fp16": "float16", "half": "float16", "bf16": "bfloat16",
}  # fmt: skip
"""What dtypes are called beside their names."""


_QUANTIZED = re.compile(r"(u?int|float|fp|nf|mxfp|nvfp|q)[1-8](_|$|e)", re.IGNORECASE)
_QUANTIZE = (
    "--weights keeps them so on paper (fp8, int8, int4, nvfp4, mxfp4, nf4); a module that is really "
    "quantized (model.py:build, or in Python) is counted as it is"
)


class Shape(Kind):
    """Sizes of a tensor: 1x3x224x224, "1,3,224,224", (1, 3, 224, 224)."""

    metavar: ClassVar[str] = "1x3x224x224"
    python: ClassVar[str] = "tuple of int"

    def parse(self, text: str) -> tuple[int, ...]:
        bare = text.strip().strip("()[]").strip().removesuffix(",")
        try:
            return _sizes(map(int, re.split(r"\s*[x×,]\s*|\s+", bare)))
        except ValueError:
            raise self.unfit(text) from None

    def check(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, str):
            return self.parse(value)
        try:
            return _sizes(value)
        except (TypeError, ValueError):
            raise self.unfit(value) from None

    def unfit(self, value: Any) -> Unfit:
        return Unfit(f"{value!r:.40} is not a shape", "write it like 1x3x224x224, (1, 3, 224, 224)")


class ImageSize(Shape):
    """The sides of an image: 224, 480x640, (480, 640). One number is a square."""

    metavar: ClassVar[str] = "N or HxW"
    python: ClassVar[str] = "int | tuple[int, int]"

    def parse(self, text: str) -> Any:
        return self.check(Shape.parse(self, text))

    def check(self, value: Any) -> Any:
        sizes = Shape.check(self, value if isinstance(value, (str, Iterable)) else (value,))
        if len(sizes) > 2:
            raise self.unfit(value)
        return sizes[0] if sizes[0] == sizes[-1] else sizes

    def unfit(self, value: Any) -> Unfit:
        return Unfit(f"{value!r:.40} is not an image size", "write 224, 480x640 or (480, 640)")


def _sizes(values: Iterable[Any]) -> tuple[int, ...]:
    sizes = tuple(Whole().check(v) for v in values)
    if not sizes:
        raise ValueError
    return sizes


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A shape and, where one is given, a dtype name ("int64")."""

    shape: tuple[int, ...]
    dtype: str | None = None


class Tensors(Kind):
    """A tensor by its shape and dtype: 1x77:int64, (1, 77), `TensorSpec((1, 77), "int64")`."""

    metavar: ClassVar[str] = "SHAPE[:DTYPE]"
    python: ClassVar[str] = "tuple of int | TensorSpec"

    def check(self, value: Any) -> TensorSpec:
        sizes, dtype = getattr(value, "shape", value), getattr(value, "dtype", None)
        if isinstance(value, str):
            sizes, _, dtype = value.partition(":")
        try:
            shape = Shape().check(sizes)
        except Unfit:
            raise Unfit(f"{value!r:.40} is not a shape", "write it like 2x77:int64") from None
        name = str(dtype or "").removeprefix("torch.")
        return TensorSpec(shape, DTYPE_NAMES.get(name, name) or None)


class Literal(Kind):
    """A number, true, false, none, a tuple or a quoted text as Python writes them; anything else is a
    text. In Python it is what it is."""

    metavar: ClassVar[str] = "VALUE"
    python: ClassVar[str] = "object"

    def parse(self, text: str) -> Any:
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text

    def check(self, value: Any) -> Any:
        return value


_WORDS = {"true": True, "false": False, "none": None}


@dataclass(eq=False, repr=False)
class Named(Kind):
    """Values by name: NAME=VALUE, again for each; a mapping in Python. With `allowed`, a closed set of
    names, each with the values that it can have."""

    of: Kind
    allowed: Mapping[str, Sequence[str]] | None = None
    python: ClassVar[str] = "dict"
    repeated: ClassVar[bool] = True

    def parse(self, text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Unfit(f"{text!r:.40} is not of the form NAME=VALUE")
        return name, self._one(name, value, self.of.parse)

    def check(self, value: Any) -> dict[str, Any]:
        try:
            given = dict(pairs := list(value.items() if isinstance(value, Mapping) else value))
        except (TypeError, ValueError):
            raise Unfit(f"{value!r:.40} is not a mapping of names to values") from None
        for name in given if len(given) < len(pairs) else ():
            if sum(other == name for other, _ in pairs) > 1:
                raise Unfit(f"{name} was given twice", "it has one value")
        return {name: self._one(name, item, self.of.check) for name, item in given.items()}

    def _one(self, name: str, value: Any, make: Callable[[Any], Any]) -> Any:
        if self.allowed is None:
            try:
                return make(value)
            except Unfit as error:
                hint = error.hint and error.hint.replace("like ", f"like {name}=", 1)
                raise Unfit(str(error), hint) from None
        if name not in self.allowed:
            raise Unfit(f"there is no {name!r:.40}", one_of(name, self.allowed))
        known = tuple(self.allowed[name])
        if value not in known:
            raise Unfit(f"{name} is not {value!r:.40}", f"{name}={' or '.join(known)}")
        return value


@dataclass(eq=False, repr=False)
class Several(Kind):
    """Values of one kind, again for each."""

    of: Kind
    python: ClassVar[str] = "list"
    repeated: ClassVar[bool] = True

    def parse(self, text: str) -> Any:
        return self.of.parse(text)

    def check(self, value: Any) -> tuple[Any, ...]:
        items = [value] if isinstance(value, str) else value
        return tuple(self.of.check(item) for item in items)


class Fragment(Kind):
    """A part of a broken graph: its number, "largest" or "all"."""

    metavar: ClassVar[str] = "K"
    python: ClassVar[str] = "int | str"

    def parse(self, text: str) -> int | str:
        return self.check(int(text) if text.isdecimal() else text)

    def check(self, value: Any) -> int | str:
        if isinstance(value, str):
            value = int(value) if value.isdecimal() else value
        if value in ("largest", "all"):
            return str(value)
        try:
            return Whole().check(value)
        except Unfit:
            raise Unfit(f"{value!r:.40} is no fragment", "its number, largest, or all") from None
