"""What a module consists of, by what `nn.Module` itself keeps: no code of its class is asked, which may
note that it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from opgraph.record.identity import identity
from opgraph.tracing.state.holding import table_of


def named_parts(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A module and all within it, each once, by their paths, in the order of `named_modules`."""
    seen: set[int] = set()
    ahead: list[tuple[str, Any]] = [("", module)]
    while ahead:
        path, part = ahead.pop()
        if part is None or identity(part) in seen:
            continue
        seen.add(identity(part))
        yield path, part
        children = _kept(part, "_modules")
        ahead += [(f"{path}.{name}" if path else name, child) for name, child in children][::-1]


def parts_of(module: nn.Module) -> list[nn.Module]:
    """A module and all within it, each once."""
    return [part for _, part in named_parts(module)]


def parameters_of(module: nn.Module) -> list[Tensor]:
    """All parameters of a module, each once."""
    return _tensors(module, "_parameters")


def tensors_of(module: nn.Module) -> list[Tensor]:
    """All parameters of a module, and then all buffers, each once."""
    return [*parameters_of(module), *buffers_of(module)]


def buffers_of(module: nn.Module) -> list[Tensor]:
    """All buffers of a module, each once."""
    return _tensors(module, "_buffers")


def _tensors(module: nn.Module, kind: str) -> list[Tensor]:
    found = (t for part in parts_of(module) for _, t in _kept(part, kind) if t is not None)
    return list({identity(t): t for t in found}.values())


def _kept(module: nn.Module, kind: str) -> list[tuple[str, Any]]:
    held = table_of(module) or {}
    if _TRACED in held:  # by `torch.jit.trace`, which shows what another has
        return _kept(held[_TRACED], kind)
    table = held.get(kind)
    return [] if table is None else list(table.items())


_TRACED = "_actual_script_module"
