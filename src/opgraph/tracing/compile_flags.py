"""What a model hears that asks whether it is being compiled or exported. Libraries ask, and then run other
code: under Dynamo and export they build masks that a plain run finds to be of no use. A plain run that is
told the same runs the same program, and so can be measured against them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Told = Literal["nothing", "compiling", "exporting"]
"""Export says that it is doing both."""

TELLS: dict[str, Told] = {"dynamo": "compiling", "export": "exporting"}
"""What tracers tell a model, by their names; the others tell it nothing."""


@contextmanager
def telling(told: Told) -> Iterator[None]:
    """Within, `torch.compiler.is_compiling` and `is_exporting` answer as they do for these tracers."""
    before = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    if told != "nothing":
        torch.compiler._is_compiling_flag = True
        torch.compiler._is_exporting_flag = told == "exporting"
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = before
