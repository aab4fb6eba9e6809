"""Values that a person types (`--model-arg k=v`), as Python values."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

_WORDS = {"true": True, "false": False, "none": None}


def parse_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, true/false/none, tuples and quoted texts become what they say; the rest stays as it
    is, as does what is not a text."""
    return {name: _value(text) for name, text in arguments.items()}


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
