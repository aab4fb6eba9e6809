"""What torch itself counts of a run, to hold opgraph's figures to."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def counting() -> FlopCounterMode:
    """Torch's counter, with a formula for attention on a CPU, which it has from 2.15 on."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={attention: _attention})
