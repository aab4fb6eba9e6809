"""`Profile`: a traced model, as a person holds it. What it shows without a device is what it costs on the
generic ridge; `on` puts it on a machine."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import cached_property, partial
from typing import Any

import msgspec

from opgraph.analysis.cost.totals import Totals
from opgraph.analysis.costed import ASKED, terms
from opgraph.analysis.memory import MemoryTimeline
from opgraph.hardware import Device
from opgraph.options import named_options
from opgraph.record import loading, units
from opgraph.record.profile import ProfileRecord
from opgraph.results.costed import DRAWN, PAGED, Costed, Shown


class Profile(Shown, ProfileRecord):
    """A traced model: its graph, where it came from, how it was traced.

    It is a `ProfileRecord` with a face. `p.on("h100-sxm")` costs it on a device; what is asked of the
    profile itself is answered on the generic ridge of 10 FLOPs/byte.
    """

    @classmethod
    def of(cls, record: ProfileRecord) -> Profile:
        """The same record with a face."""
        return cls(**{f.name: getattr(record, f.name) for f in fields(record)})

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """The profile that `to_dict` made.

        Raises `ProfileError` when the data is not a profile, is of a newer schema, or is broken.
        """
        return cls.of(loading.profile_from(partial(msgspec.convert, data)))

    @named_options(ASKED)
    def on(self, hardware: str | Device | None = None, **options: Any) -> Costed:
        """The profile on a device, or on the generic ridge.

        A device is a name, a file, or a `Device`. The options are those of costing on the command line:
        `autocast="float16"`, `partition="none"`, `count={"attention": "causal"}`, `tensor_parallel=8`
        (docs/options.md). Raises `UnknownDevice` and `InputError`.
        """
        return Costed(*terms(self, hardware, **options))

    @cached_property
    def costed(self) -> Costed:
        """The profile on the generic ridge."""
        return Costed(self)

    @property
    def totals(self) -> Totals:
        """FLOPs, MACs, bytes, parameters, memory, coverage of the whole graph."""
        return self.costed.totals

    @property
    def memory(self) -> MemoryTimeline:
        """Live memory over the run, without weights."""
        return self.costed.memory

    @named_options(DRAWN)
    def draw(
        self, path: str | os.PathLike[str], *, hardware: str | Device | None = None, **options: Any
    ) -> None:
        """Write a picture of the graph (see `Costed.draw`)."""
        self.on(hardware).draw(path, **options)

    @named_options(PAGED)
    def view(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        hardware: str | Device | None = None,
        against: ProfileRecord | Costed | None = None,
        **options: Any,
    ) -> None:
        """Write the interactive page (see `Costed.view`)."""
        other = Profile.of(against).on(hardware) if isinstance(against, ProfileRecord) else against
        self.on(hardware).view(path, against=other, **options)

    def save(
        self, path: str | os.PathLike[str], *, hardware: str | Device | None = None, **options: Any
    ) -> None:
        """Write a file as its suffix says (see `Costed.save`); `load` reads .json."""
        self.on(hardware).save(path, **options)

    def __repr__(self) -> str:
        t = self.totals
        return (
            f"<Profile {self.model.name}: {units.plural(t.nodes, 'node')}, {units.flops(t.flops)}, "
            f"{units.count(t.parameters)} parameters>"
        )


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile that `Profile.save` wrote.

    Raises `ProfileError` when the file cannot be read, is not a profile, or is broken.
    """
    return Profile.of(loading.load(path))
