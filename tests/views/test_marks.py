"""Every member of a closed set has one look, which tells it apart with and without colour."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pytest
from rich.style import Style

from opgraph.record.kinds import Bound, Category, ChangeKind, FusionRule, Phase
from opgraph.views.marks import (
    BOUNDS,
    CATEGORIES,
    CHANGES,
    PHASES,
    RULES,
    SERIES,
    TONES,
    Mark,
    ink_on,
)
from opgraph.views.picture.fonts import files, font
from opgraph.views.picture.scene import THEMES

SETS = [
    (Bound, BOUNDS),
    (Category, CATEGORIES),
    (Phase, PHASES),
    (FusionRule, RULES),
    (ChangeKind, CHANGES),
]


@pytest.mark.parametrize(("members", "marks"), SETS)
def test_every_member_has_a_mark_of_its_own(
    members: type[StrEnum], marks: Mapping[StrEnum, Mark]
) -> None:
    assert list(marks) == list(members)
    signs = [mark.sign for mark in marks.values()]
    assert len(set(signs)) == len(signs)
    assert all(len(sign) == 1 and sign in font(bold=True).advances for sign in signs)
    assert all(mark.meaning and mark.tone in TONES for mark in marks.values())


def test_bounds_differ_in_colour_too() -> None:
    assert len({mark.tone for mark in BOUNDS.values()}) == len(Bound)


@pytest.mark.parametrize("name", TONES)
def test_tones_are_known_to_terminals_and_signs_on_them_can_be_read(name: str) -> None:
    Style.parse(TONES[name].style)
    for theme, colour in (("light", TONES[name].light), ("dark", TONES[name].dark)):
        assert THEMES[theme][name] == colour
        assert THEMES[theme][f"{name}-ink"] == ink_on(colour)
        assert contrast(colour, ink_on(colour)) >= 4.5


def test_series_are_tones() -> None:
    assert set(SERIES) <= set(TONES)


def test_what_others_call_a_rule_or_a_category_has_a_mark_too() -> None:
    assert FusionRule("scale") is FusionRule.SINGLE
    assert Category("quantum") is Category.OTHER


def contrast(a: str, b: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("bold", [False, True])
def test_the_table_of_advances_is_that_of_the_font_files(bold: bool) -> None:
    face = pytest.importorskip("reportlab.pdfbase.ttfonts").TTFontFace(files()[bold])
    found = font(bold=bold)
    assert all(
        abs(face.charWidths[ord(c)] - a * 1000 / found.em) < 1 for c, a in found.advances.items()
    )
