"""JSON as opgraph writes it: UTF-8 that people can read, in which control characters and those that reorder
or hide text are escaped, since it may well end up on a terminal. Nothing here imports torch."""

from __future__ import annotations

import json
import re
from typing import Any

_HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Characters of the categories Cc, Cf, Cs, Zl and Zp beyond ASCII; json escapes those of ASCII itself."""


def dumps(
    data: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None
) -> str:
    """The data as JSON text. Raises `ValueError` for NaN and infinities, which JSON has not."""
    text = json.dumps(
        data, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators
    )
    return text if text.isascii() and "\x7f" not in text else _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
