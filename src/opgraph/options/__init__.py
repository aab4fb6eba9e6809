"""Every option, once. Each is a field (see `fields`) with its kind of value (`kinds`), its default, its
help, the stage that heeds it and what it needs; the command line, the signatures of the Python interface,
the checks, what pyproject.toml can set and docs/options.md are made from these."""

from __future__ import annotations

from opgraph.options.fields import (
    AXES,
    CONVENTIONS,
    NAMES,
    ON_PAPER,
    OPTIONS,
    PRECISION,
    QUANTIZED,
    SETTINGS,
    SIZES,
    Commanding,
    Costing,
    Options,
    Showing,
    check_needs,
    checked,
    named_options,
    names,
    targeted,
)  # fmt: skip
from opgraph.options.kinds import TensorSpec
from opgraph.options.option import CAPTURED, TRACED, Option, Stage, option, options_of

__all__ = [
    "AXES", "CAPTURED", "CONVENTIONS", "NAMES", "ON_PAPER", "OPTIONS", "PRECISION",
    "QUANTIZED", "SETTINGS", "SIZES", "TRACED",
    "Commanding", "Costing", "Option", "Options", "Showing", "Stage", "TensorSpec", "check_needs",
    "checked", "named_options", "names", "option", "options_of", "targeted",
]  # fmt: skip
