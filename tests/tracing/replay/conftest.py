"""What the tests of compiled runs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def usual_settings() -> Iterator[None]:
    """Settings of a process of its own: torchao leaves others, which a compilation heeds."""
    from torch._inductor import config

    with config.patch(coordinate_descent_tuning=False):
        yield
