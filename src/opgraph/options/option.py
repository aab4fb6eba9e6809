"""What an option is: a field of a record, with all that help, checks and tables say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from opgraph.options.kinds import Flag, Kind, Named, Unfit
from opgraph.record.errors import InputError


class Stage(Enum):
    """What heeds an option, and the title under which help lists it."""

    BUILD = "model"
    INPUTS = "inputs"
    MODE = "how it runs"
    TRACING = "tracing"
    COUNTING = "what is counted"
    COSTING = "what it costs"
    PARALLEL = "over several devices (traced; a saved profile on paper)"
    NODES = "which nodes (numbers are 1-based and inclusive; all that are given must hold)"
    VIEW = "how it is shown"
    COMMAND = "this command"
    OUTPUT = "output"
    SAYING = "what it says"


TRACED = (
    Stage.BUILD, Stage.INPUTS, Stage.MODE, Stage.PARALLEL, Stage.TRACING, Stage.COUNTING,
)  # fmt: skip
"""The stages between a name and a profile."""
CAPTURED = (Stage.BUILD, Stage.INPUTS, Stage.TRACING)
"""Those of one forward, whole and counted alike: what tracers are compared on."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `needs` are other options of which one must have one of these values (any value but its
    default, where none is listed). A `size` says how large the inputs are; an `axis` can have several
    values in a sweep; a `setting` can stand in pyproject.toml. On the command line it is `spelled` as its
    name is, if nothing else is said, and `flags` are other spellings; `unit` stands for its value. `--help`
    lists those that are `common`, or a command's own; `--help-all` the others, too."""

    name: str
    kind: Kind
    stage: Stage
    help: str
    default: Any = None
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    size: bool = False
    axis: bool = False
    setting: bool = False
    spelled: str | None = None
    flags: tuple[str, ...] = ()
    unit: str | None = None
    hidden: bool = False
    common: bool = False

    @property
    def listed(self) -> bool:
        """Whether plain help lists it."""
        return self.common or self.stage in (Stage.NODES, Stage.COMMAND, Stage.OUTPUT)

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        word = self.name.replace("_", "-")
        if isinstance(self.kind, Flag) and self.default:
            return f"--no-{word}"
        return self.spelled or f"--{word}"

    @property
    def metavar(self) -> str:
        """What stands for a value of it."""
        if isinstance(self.kind, Named):
            return f"NAME={self.unit or self.kind.of.metavar}"
        return self.unit or self.kind.metavar

    def check(self, value: Any, spelled: str | None = None) -> Any:
        """A value from Python in its one form; None is one only where it is the default.

        Raises `InputError` for a value that it cannot have.
        """
        if value is None and self.default is None:
            return None
        return self._made(self.kind.check, value, spelled or self.name)

    def parse(self, text: str) -> Any:
        """A value (or, of a repeated one, an item) from the command line. Raises what `check` does."""
        return self._made(self.kind.parse, text, self.flag)

    def _made(self, make: Callable[[Any], Any], value: Any, spelled: str) -> Any:
        try:
            return make(value)
        except Unfit as error:
            raise InputError(f"{spelled}: {error}", hint=error.hint) from None


def option(
    kind: Kind,
    stage: Stage,
    help: str,  # noqa: A002 - it is the option's
    *,
    default: Any = None,
    **more: Any,
) -> Any:
    """A field that is an option (see `Option`)."""
    metadata = {"kind": kind, "stage": stage, "help": help, **more}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def options_of(record: type) -> dict[str, Option]:
    """The options that the fields of a record are, by name. One that only lists them is a plain class."""
    found = {}
    for each in fields(record) if is_dataclass(record) else vars(record).items():
        name, own = each if isinstance(each, tuple) else (each.name, each)
        if isinstance(own, Field):
            default = own.default if own.default_factory is MISSING else own.default_factory()
            found[name] = Option(name, default=default, **own.metadata)
    return found
