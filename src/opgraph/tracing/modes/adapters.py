"""A model that is fine-tuned with low-rank adapters: every weight frozen, and beside each linear layer two
small ones that are trained (LoRA, Hu et al. 2021), over a base in 4 bits (QLoRA, Dettmers et al. 2023).

The layers are those of peft and bitsandbytes, as a person would have them: `target_modules="all-linear"`,
adapters in float32, NF4 with double quantization.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from opgraph.record import units
from opgraph.record.errors import InputError, MissingDependency, first_line
from opgraph.sources.base import Model
from opgraph.sources.building import quietly
from opgraph.tracing.parts import buffers_of, parameters_of
from opgraph.tracing.state.copies import adapting, copied
from opgraph.tracing.state.guard import guarded

RANK = 8
"""The rank of adapters for which none is given, which is peft's."""

_BLOCK, _GROUP = 64, 256
"""Weights that share a scale, and scales that share one of their own (QLoRA, section 3)."""


def adapted(model: Model, how: str) -> Model:
    """The model with adapters: `how` is "lora" or "qlora", with the rank behind a colon. The one that is
    given is left as it is: what is adapted is a copy that shares its weights.

    Raises `InputError` where there is nothing to adapt, and `MissingDependency` without peft.
    """
    if model.hints.get("adapters") == how:
        return model
    name, _, rank = how.partition(":")
    module = _sharing(model.module)
    _of_peft()  # what it imports stays
    with adapting(model.module), guarded([model.module]) as guard, guard.listening(guard.is_new):
        layers = _adapt(module, int(rank or RANK), four_bits=name == "qlora")
    remake = model.materialize
    note = (
        f"{'QLoRA' if name == 'qlora' else 'LoRA'} of rank {rank or RANK} on "
        f"{units.plural(layers, 'linear layer')}, as peft has it; all other weights are frozen"
    )

    def made() -> nn.Module:
        again: nn.Module = remake()  # type: ignore[misc]
        _adapt(again, int(rank or RANK), four_bits=False)
        return again

    return replace(
        model,
        module=module,
        info=model.info.noting(note),
        hints={**model.hints, "adapters": how},
        materialize=made if remake is not None and name == "lora" else None,
    )


def _sharing(module: nn.Module) -> nn.Module:
    """A copy of a module with parameters and buffers that lie in the same memory."""
    memo: dict[int, Any] = {id(b): b for b in buffers_of(module)}
    for weight in parameters_of(module):
        memo[id(weight)] = nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
    try:
        return copied(module, memo)
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} cannot be copied to be adapted: {first_line(error)}"
        ) from error


def _adapt(module: nn.Module, rank: int, *, four_bits: bool) -> int:
    """Put adapters beside the linear layers of a module; how many those are. Left out are output
    embeddings, as peft does it, and what torch's own attention computes without calling the layer."""
    modules = dict(module.named_modules())
    head = getattr(module, "get_output_embeddings", lambda: None)()
    layers = {
        path: layer
        for path, layer in modules.items()
        if layer is not head
        and not isinstance(layer, nn.modules.linear.NonDynamicallyQuantizableLinear)
        and (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D")
    }
    if not layers:
        raise InputError(f"{type(module).__name__} has no linear layers to adapt")
    peft = _of_peft()
    layered = peft.tuners.tuners_utils
    if any(isinstance(m, layered.BaseTunerLayer) for m in modules.values()):
        raise InputError("the model has adapters already", hint="--train full trains these alone")
    if four_bits:
        for path, layer in layers.items():
            above, _, name = path.rpartition(".")
            setattr(modules[above], name, _in_four_bits(layer))
        module.is_loaded_in_4bit = True  # peft asks for it
    config = peft.LoraConfig(r=rank, target_modules=list(layers), lora_alpha=rank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft says how weights of Conv1D lie
        try:
            peft.inject_adapter_in_model(config, module, low_cpu_mem_usage=True)
        except Exception as error:  # layers that it does not know, versions that do not go together
            raise InputError(f"peft cannot adapt the model: {first_line(error)}") from error
    layered.cast_adapter_dtype(module, "default")
    return len(layers)


def _of_peft() -> Any:
    """The package that adapts; what it imports says what it could not load for other machines."""
    try:
        with quietly():
            import peft.tuners.tuners_utils
    except ImportError as error:
        raise MissingDependency("peft", "peft") from error
    return peft


def _in_four_bits(layer: nn.Module) -> nn.Module:
    """A linear layer with a weight in 4 bits and double quantization: sizes and bytes, without values."""
    try:
        with quietly():
            from bitsandbytes.functional import QuantState
            from bitsandbytes.nn import Linear4bit, Params4bit
    except ImportError as error:
        raise MissingDependency("bitsandbytes", "peft") from error
    weight: Any = layer.weight
    features = (weight.shape[1], weight.shape[0])
    if type(layer).__name__ == "Conv1D":  # of transformers, whose weights lie the other way round
        features = (features[1], features[0])
    made = Linear4bit(
        *features, bias=False, compute_dtype=weight.dtype, quant_type="nf4", device="meta"
    )
    blocks = ceil(weight.numel() / _BLOCK)

    def empty(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device="meta")

    scales = QuantState(
        empty(ceil(blocks / _GROUP)), code=empty(256), blocksize=_GROUP, dtype=torch.float32
    )
    state = QuantState(
        empty(blocks, dtype=torch.uint8), torch.Size(features[::-1]), empty(16), _BLOCK, "nf4",
        weight.dtype, empty(), scales,
    )  # fmt: skip
    packed = empty(ceil(weight.numel() / 2), 1, dtype=torch.uint8)
    made.weight = Params4bit(packed, quant_state=state, quant_type="nf4", bnb_quantized=True)
    made.bias = layer.bias
    return made
