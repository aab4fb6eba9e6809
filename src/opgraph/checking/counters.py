"""One function for each other counter: how it is called for a model and the arguments of one call."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor, nn

from opgraph.analysis.check.agreement import Reading
from opgraph.inputs.base import Example
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.record.turns import is_mine, replaced, turn
from opgraph.sources.base import Model
from opgraph.sources.ranks import is_pretended
from opgraph.tracing.base import arguments
from opgraph.tracing.eager import materialized, sized
from opgraph.tracing.parts import parameters_of, tensors_of
from opgraph.tracing.replay.replay import plain_result
from opgraph.tracing.state.copies import deep_copy
from opgraph.tracing.state.guard import COPYING, guarded


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


def _refused() -> Callable[..., Any]:
    """What runs no backward here: a trace of `torch.jit` ends the process where one goes through a
    checkpoint. Other threads run theirs."""
    run: Any = torch.autograd._engine_run_backward

    def heard(*args: Any, **kwargs: Any) -> Any:
        if is_mine():
            raise RuntimeError("forward runs a backward, which torch.jit does not trace")
        return run(*args, **kwargs)

    return heard


def fvcore(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Count:
    """https://github.com/facebookresearch/fvcore: handlers of operators of a `torch.jit` trace."""
    from fvcore.nn import FlopCountAnalysis

    wrapped = _Positional(model, args, kwargs)
    analysis = FlopCountAnalysis(wrapped, wrapped.tensors())
    analysis.unsupported_ops_warnings(enabled=False).uncalled_modules_warnings(enabled=False)
    with replaced(torch.autograd, "_engine_run_backward", _refused()):
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


# Other counters of FLOPs, run on the same model and inputs as we are, so that their figures can be read
# beside ours. Each needs real weights, and is run on a copy, since some leave things behind in the model.

LARGEST = 2 * 2**30
"""Bytes of weights above which no copy is made."""

Counter = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], Count]

PEERS: dict[str, tuple[Literal["MACs", "FLOPs"], Counter]] = {
    "fvcore": ("MACs", fvcore),
    "torchinfo": ("MACs", torchinfo),
    "ptflops": ("MACs", ptflops),
    "thop": ("MACs", thop),
    "calflops": ("FLOPs", calflops),
}
"""The counters by the name of their package, with what they count in."""


def readings(model: Model, example: Example, *, exchanged: bool = False) -> tuple[Reading, ...]:
    """The figures of all counters that are installed. Where ranks exchanged something there are none: each
    counter has its own way to run a model, and what one rank sends meets what the others do next."""
    installed = [name for name in PEERS if find_spec(name) is not None]
    if not installed:
        return ()
    known = (p for p in parameters_of(model.module) if not nn.parameter.is_lazy(p))
    size = sum(p.numel() * p.element_size() for p in known)
    why = "would exchange tensors with other ranks" if exchanged and not is_pretended() else None
    if size > LARGEST:
        why = f"needs the weights in memory ({size / 2**30:.1f} GiB; up to {LARGEST / 2**30:.0f} are tried)"
    if why is not None:
        return tuple(Reading(n, _version(n), PEERS[n][0], error=why) for n in installed)
    try:
        module = sized(materialized(model), example)
    except (InputError, TraceError) as error:
        return tuple(Reading(n, _version(n), PEERS[n][0], error=str(error)) for n in installed)
    return tuple(_reading(name, module, example) for name in installed)


@turn()
def _reading(name: str, module: nn.Module, example: Example) -> Reading:
    unit, counter = PEERS[name]
    with suppress(Exception):  # it says why as it is called
        import_module(name)  # so that what is set as it is imported was there before
    start = time.perf_counter()
    roots = [module, *example.given, torch, nn.functional]  # which some of them patch
    try:
        with guarded(roots, heard=False, called=COPYING) as guard:
            # A counter that traces does not see what is listened to.
            guard.keep_others(tensors_of(module))
            count, apart, spent = _both(counter, module, example)
    except Exception as error:  # noqa: BLE001  (another tool may raise anything)
        return Reading(name, _version(name), unit, error=first_line(error),
                       seconds=time.perf_counter() - start)  # fmt: skip
    return Reading(
        name, _version(name), unit, value=count.value, parameters=count.parameters,
        separated=apart, uncounted=count.uncounted, seconds=spent,
    )  # fmt: skip


def _both(counter: Counter, module: nn.Module, example: Example) -> tuple[Count, int | None, float]:
    """What a counter says of a copy of a module, how many parameters it says that one has whose modules are
    `separated`, where that is to be asked, and how long the first took."""
    start = time.perf_counter()
    args, kwargs = arguments(example, None)
    count = _counted(counter, deep_copy(module), args, kwargs)
    spent = time.perf_counter() - start
    known = sum(p.numel() for p in parameters_of(module))
    asked = count.parameters not in (None, known)
    apart = separated(module) if asked else None
    return count, apart and _counted(counter, apart, *arguments(example, None)).parameters, spent


def _counted(
    counter: Counter, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Count:
    """What a counter says of a module that it may spoil."""
    with (
        torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings(),
        redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        return counter(module.eval(), args, kwargs)


def separated(module: nn.Module) -> nn.Module | None:
    """A copy in which a module without parameters that several own (one activation for all layers) is one
    for each; None where there is no such module."""
    whole = deep_copy(module)
    seen: set[int] = set()
    shared = False
    for owner in list(whole.modules()):
        for name, child in owner._modules.items():
            if (
                id(child) in seen
                and child is not None
                and not any(True for _ in child.parameters())
            ):
                owner._modules[name] = deep_copy(child)
                shared = True
            seen.add(id(child))
    return whole if shared else None


@cache
def _version(name: str) -> str:
    """The version of what a counter is installed as; the files of all packages are looked through, which
    takes seconds, only where that is not the name that it is imported by."""
    try:
        return version(name)
    except PackageNotFoundError:
        return version(found[0]) if (found := packages_distributions().get(name)) else "?"
