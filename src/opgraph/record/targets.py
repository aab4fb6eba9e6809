"""For which device's kernels a trace is made, what was put in the place of the CPU's for it, and what other
targets would run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CAPABILITIES = (
    "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0", "gfx90a", "gfx942",
)  # fmt: skip
"""Generations of devices that torch calls "cuda": NVIDIA's compute capabilities, AMD's instruction sets."""

ASSUMED = "8.0"
"""The generation that is assumed of "cuda" alone: the oldest on which all fused attention kernels run."""

USUAL = "cuda"
"""What a trace is made for where neither a target nor a device is named."""

TARGETS = ("cpu", "cuda", "mps", *(f"cuda:{each}" for each in CAPABILITIES))
"""What a trace can be made for, as options spell it."""


AS_ON_A_CPU = "as on a CPU"
"""What is chosen where there is no other kernel, or where none can be run."""


@dataclass(frozen=True)
class Substitution:
    """A call at which a target runs another kernel than the CPU would, and how often it stands: the
    operator, what was chosen, and what each of `TARGETS` chooses there."""

    op: str
    chosen: str
    choices: dict[str, str]
    count: int = 1


@dataclass(frozen=True)
class Target:
    """The target of a trace, as in `TARGETS`, and what was substituted for it."""

    name: str = "cpu"
    substitutions: tuple[Substitution, ...] = field(default=())

    @property
    def device(self) -> str:
        """What torch calls such a device: "cpu", "cuda" or "mps"."""
        return self.name.partition(":")[0]

    @property
    def label(self) -> str:
        """The target with what is assumed of it."""
        return f"cuda (capability {ASSUMED} assumed)" if self.name == "cuda" else self.name


def chosen_for(choices: Mapping[str, str], target: str) -> str | None:
    """What a target chooses; None where that is not known."""
    return choices.get(f"cuda:{ASSUMED}" if target == "cuda" else target)
