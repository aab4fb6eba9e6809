"""One function for each other counter: how it is called for a model and the arguments of one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from opgraph.tracing.boundary import plain_result


@dataclass(frozen=True, slots=True)
class Count:
    """What a counter says: its figure, its count of parameters, and what it says it did not count."""

    value: int
    parameters: int | None = None
    uncounted: tuple[str, ...] = ()


class _Positional(nn.Module):
    """A model as a function of its tensors alone, with plain results, for counters that know no
    keywords."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self._given = (args, dict(kwargs))

    def tensors(self) -> tuple[Tensor, ...]:
        """The arguments of one call."""
        args, kwargs = self._given
        return tuple(t for t in (*args, *kwargs.values()) if isinstance(t, Tensor))

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        args, kwargs = self._given
        whole = [next(given) if isinstance(a, Tensor) else a for a in args]
        named = {k: next(given) if isinstance(a, Tensor) else a for k, a in kwargs.items()}
        result = plain_result(self.model(*whole, **named))
        return tuple(result.values()) if isinstance(result, dict) else result


def fvcore(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Count:
    """https://github.com/facebookresearch/fvcore: handlers of operators of a `torch.jit` trace."""
    from fvcore.nn import FlopCountAnalysis

    wrapped = _Positional(model, args, kwargs)
    analysis = FlopCountAnalysis(wrapped, wrapped.tensors())
    analysis.unsupported_ops_warnings(enabled=False).uncalled_modules_warnings(enabled=False)
    value = int(analysis.total())
    heavy = ("attention", "mm", "matmul", "conv", "linear", "lstm", "gru", "rnn", "einsum")
    missed = sorted(o for o in analysis.unsupported_ops() if any(h in o for h in heavy))
    return Count(value, sum(p.numel() for p in model.parameters()), tuple(missed))


def torchinfo(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Count:
    """https://github.com/TylerYep/torchinfo: parameters of leaf modules times output sizes."""
    from torchinfo import summary

    if args:
        found = summary(model, input_data=list(args), verbose=0, **kwargs)
    else:
        found = summary(model, input_data=dict(kwargs), verbose=0)
    return Count(int(found.total_mult_adds), int(found.total_params))


def ptflops(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Count:
    """https://github.com/sovrasov/flops-counter.pytorch: hooks on modules, and patched functions."""
    from ptflops import get_model_complexity_info

    wrapped = _Positional(model, args, kwargs)
    tensors = wrapped.tensors()

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = wrapped

        def forward(self, **given: Any) -> Any:
            return self.inner(*(given[f"x{i}"] for i in range(len(tensors))))

    value, parameters = get_model_complexity_info(
        Named(), (1,), as_strings=False, print_per_layer_stat=False, verbose=False,
        input_constructor=lambda _: {f"x{i}": t for i, t in enumerate(tensors)},
    )  # fmt: skip
    if value is None:
        raise RuntimeError("it gives no figure")
    return Count(int(value), int(parameters))


def thop(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Count:
    """https://github.com/ultralytics/thop: hooks on leaf modules of known classes."""
    from thop import profile

    wrapped = _Positional(model, args, kwargs)
    value, parameters = profile(wrapped, inputs=wrapped.tensors(), verbose=False)
    return Count(int(value), int(parameters))


def calflops(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Count:
    """https://github.com/MrYxJ/calculate-flops.pytorch: patched functions of torch."""
    from calflops import calculate_flops

    value, _, parameters = calculate_flops(
        model, args=list(args), kwargs=dict(kwargs), print_results=False, output_as_string=False
    )
    return Count(int(value), int(parameters))
