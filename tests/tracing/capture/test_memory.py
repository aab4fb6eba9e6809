"""The memory that is followed while a model is recorded."""

from __future__ import annotations

import torch

from opgraph.tracing.capture.kernels import MemoryLog, storage_key


def test_what_comes_to_the_place_of_a_weight_is_an_activation() -> None:
    log = MemoryLog([])
    for _ in range(1000):
        weight = torch.empty(64)
        key = storage_key(weight)
        log.ignore(weight)
        assert log.see(weight, 0) is None
        del weight  # as where a forward puts another in its place
        other = torch.empty(64)
        if storage_key(other) == key:
            assert log.see(other, 0) is not None
            assert log.live == 256
            return
    raise AssertionError("no memory was given out again")
