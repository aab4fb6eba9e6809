"""Python's collector of cyclic garbage, kept from looking through what lives on anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, no cyclic garbage is looked for. Importing, building, recording and reading make objects
    by the hundred thousand and drop few; looking through them all again and again takes a fifth of the
    time. Memory is freed as ever when the last reference goes. What is left counts as old afterwards, and
    is looked through with all else that is old."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # to the oldest generation
            gc.enable()
