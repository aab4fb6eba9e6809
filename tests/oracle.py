"""What torch itself counts of a run, to hold opgraph's figures to."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


def counting() -> FlopCounterMode:
    """Torch's counter, with formulas for attention on a CPU, which it has from 2.15 on."""
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    mapping = {forward: _attention, backward: _backward}
    return FlopCounterMode(display=False, custom_mapping=mapping)
