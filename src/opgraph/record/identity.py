"""What tells objects apart that are there at the same time, wherever many of them are told apart."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["identity"]

identity: Callable[[object], int] = object.__hash__
"""As `id`, and not the same number. Python tells audit hooks of each `id`, and where there are any, as
there are from the first trace on, that takes three times as long."""
