"""What the members of closed sets look like, once for the table, the pictures, the roofline, the page and
the full-screen program: a label, a colour for light and for dark, a sign that says the same without colour,
and a terminal's style. The first colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which
colour-blind readers tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from opgraph.record.kinds import Bound, Category, ChangeKind, FusionRule, Phase


class Tone(NamedTuple):
    """A colour on light and on dark ground, and the nearest that a terminal has a name for."""

    light: str
    dark: str
    style: str


TONES: Mapping[str, Tone] = {
    "vermilion": Tone("#d55e00", "#ff9d4d", "dark_orange"),
    "blue": Tone("#0072b2", "#5cb6f2", "dodger_blue2"),
    "green": Tone("#009e73", "#35c79a", "green"),
    "purple": Tone("#8e44ad", "#c792ea", "medium_purple1"),
    "amber": Tone("#e69f00", "#ffc44d", "gold3"),
    "pink": Tone("#cc79a7", "#e79fc6", "pink3"),
    "olive": Tone("#7a7a00", "#c9c94a", "yellow4"),
    "brown": Tone("#a0522d", "#d99a73", "light_salmon3"),
    "indigo": Tone("#4b5fc4", "#98a7ff", "slate_blue1"),
    "crimson": Tone("#b03060", "#ff8fb5", "deep_pink3"),
    "teal": Tone("#2f8f8f", "#7fd0d0", "dark_cyan"),
    "slate": Tone("#7f8793", "#9aa3b1", "grey58"),
    "grey": Tone("#b4b8c0", "#5a6270", "dim"),
}

SERIES = ("vermilion", "blue", "green", "purple", "amber", "pink", "olive", "brown")
"""The order of tones for what is no closed set (dtypes)."""


class Mark(NamedTuple):
    """A colour by its name in `TONES` (or a step of a scale), the sign that stands for the same, and what
    both mean."""

    tone: str
    sign: str
    meaning: str

    @property
    def style(self) -> str:
        """The style in a terminal."""
        return TONES[self.tone].style

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, for the page."""
        tone = TONES[self.tone]
        return {"label": self.meaning, "light": tone.light, "dark": tone.dark, "sign": self.sign}


K = TypeVar("K", Bound, Category, Phase, FusionRule, ChangeKind)


def _marks(*rows: tuple[K, str, str]) -> Mapping[K, Mark]:
    return {kind: Mark(tone, sign, kind.label) for kind, tone, sign in rows}


BOUNDS: Mapping[Bound, Mark] = _marks(
    (Bound.COMPUTE, "vermilion", "▲"),
    (Bound.BALANCED, "green", "◆"),
    (Bound.MEMORY, "blue", "●"),
    (Bound.LAUNCH, "purple", "■"),
    (Bound.EXPOSED, "crimson", "▼"),
    (Bound.BUBBLE, "slate", "○"),
)

CATEGORIES: Mapping[Category, Mark] = _marks(
    (Category.MATMUL, "blue", "M"),
    (Category.CONVOLUTION, "vermilion", "C"),
    (Category.GROUPED_CONVOLUTION, "vermilion", "G"),
    (Category.DEPTHWISE_CONVOLUTION, "vermilion", "D"),
    (Category.ATTENTION, "purple", "A"),
    (Category.RECURRENT, "crimson", "R"),
    (Category.LINEAR_ALGEBRA, "blue", "L"),
    (Category.FFT, "teal", "F"),
    (Category.NORMALIZATION, "green", "N"),
    (Category.SOFTMAX, "pink", "S"),
    (Category.REDUCTION, "olive", "Σ"),
    (Category.POOLING, "brown", "P"),
    (Category.INTERPOLATION, "teal", "↕"),
    (Category.SORTING, "brown", "↓"),
    (Category.ELEMENTWISE, "amber", "+"),
    (Category.INDEXING, "indigo", "I"),
    (Category.COPY, "slate", "="),
    (Category.VIEW, "grey", "·"),
    (Category.COLLECTIVE, "crimson", "E"),
    (Category.OTHER, "grey", "?"),
)

PHASES: Mapping[Phase, Mark] = _marks(
    (Phase.FORWARD, "blue", "→"),
    (Phase.RECOMPUTE, "amber", "↻"),
    (Phase.BACKWARD, "vermilion", "←"),
    (Phase.OPTIMIZER, "green", "↑"),
)

RULES: Mapping[FusionRule, Mark] = _marks(
    (FusionRule.ATTENTION, "purple", "A"),
    (FusionRule.CONTRACTION, "vermilion", "C"),
    (FusionRule.NORMALIZATION, "green", "N"),
    (FusionRule.SOFTMAX, "pink", "S"),
    (FusionRule.REDUCTION, "olive", "Σ"),
    (FusionRule.MOVEMENT, "blue", "M"),
    (FusionRule.ELEMENTWISE, "amber", "+"),
    (FusionRule.VIEW, "grey", "V"),
    (FusionRule.BOUNDARY, "grey", "B"),
    (FusionRule.SINGLE, "slate", "O"),
)

CHANGES: Mapping[ChangeKind, Mark] = _marks(
    (ChangeKind.COSTLIER, "vermilion", "▲"),
    (ChangeKind.CHEAPER, "blue", "▼"),
    (ChangeKind.ADDED, "green", "+"),
    (ChangeKind.REMOVED, "crimson", "−"),
    (ChangeKind.CHANGED, "purple", "≠"),
    (ChangeKind.SAME, "grey", "="),
)

NO_WORK = Mark("grey", "·", "no work")
UNKNOWN = Mark("pink", "?", "unknown cost")


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour (by the contrast of WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.057 else "#10151c"
