"""Generating text: the arguments of a prefill and of one decoding step, as `generate` of transformers
makes them. What comes before the step that is recorded (filling the cache) runs unrecorded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from opgraph.record.errors import InputError
from opgraph.tracing.capture.kernels import KernelCapture
from opgraph.tracing.capture.kv_cache import cache_in

Call = tuple[tuple[Any, ...], dict[str, Any]]

_HINT = "prefill and decode are for models that keep a cache of what they have read: gpt2, t5-small"


def generates(module: torch.nn.Module) -> bool:
    """Whether a model has what `generate` needs."""
    able = getattr(module, "can_generate", None)
    return bool(callable(able) and able() and hasattr(module, "prepare_inputs_for_generation"))


def encoder_decoder(module: torch.nn.Module) -> bool:
    """Whether a model reads with an encoder and writes with a decoder."""
    return bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))


def no_cache(name: str) -> InputError:
    """The error for a model that does not generate."""
    return InputError(f"{name} does not generate: it keeps no cache", hint=_HINT)


def conventions(module: torch.nn.Module) -> dict[str, str]:
    """What a step of generation counts: logits of the last token where the model can leave out the others,
    as `generate` asks it to; and a cache that grows by being copied, which is the one it makes."""
    able = "logits_to_keep" in inspect.signature(module.forward).parameters
    return {"logits": "last token" if able else "all tokens", "cache": "dynamic"}


def prefill(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], _mode: Any
) -> Call:
    """The call that reads the prompt, fills an empty cache, and gives the logits of the last token."""
    ids, read, rest = _prompt(module, args, kwargs)
    return (), {**_prepared(module, ids, is_first_iteration=True, **rest), **read}


def decode(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    mode: FakeTensorMode | None,
    *,
    name: str = "",
) -> Call:
    """The call for one more token of each sequence, with a cache of those given. Raises `InputError` when
    the model gives no cache back."""
    ids, read, rest = _prompt(module, args, kwargs)
    # Masks over long texts are as large here as in a recorded run, and are kept out of memory likewise.
    with KernelCapture(mode):
        result = module(**_prepared(module, ids, is_first_iteration=True, **rest), **read)
    if cache_in(result) is None:
        raise no_cache(name or type(module).__name__)
    both = encoder_decoder(module)
    update: Any = module._update_model_kwargs_for_generation
    rest = update(result, rest, is_encoder_decoder=both)
    if both:
        rest["encoder_outputs"] = _encoded(result)
    ids = torch.cat([ids, ids[:, -1:]], dim=1)
    return (), _prepared(module, ids, next_sequence_length=1, **rest)


def _prompt(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, dict[str, Any], dict[str, Any]]:
    """The token ids of a call, what its encoder reads, and the other arguments with those that `generate`
    adds."""
    known = inspect.signature(module.forward).parameters
    names = [n for n, p in known.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    both = encoder_decoder(module)
    key = "decoder_input_ids" if both else "input_ids"
    ids = given.pop(key, None)
    if not isinstance(ids, torch.Tensor):
        raise InputError(f"{type(module).__name__} takes no {key} to go on from", hint=_HINT)
    given.pop("labels", None)
    given["use_cache"] = True
    if "logits_to_keep" in known:
        given["logits_to_keep"] = 1
    numbered = getattr(module, "_prepare_position_ids_for_generation", None)
    if (
        not both
        and numbered is not None
        and "position_ids" in known
        and "position_ids" not in given
    ):
        given["position_ids"] = numbered(ids, dict(given))
    mask = given.get("attention_mask")
    if not both and isinstance(mask, torch.Tensor) and mask.dim() == 2 and bool(mask.all()):
        del given["attention_mask"]  # nothing is padded
    source = getattr(module, "main_input_name", "input_ids")
    read = {source: given.pop(source)} if both and source in given else {}
    return ids, read, given


def _prepared(module: torch.nn.Module, ids: torch.Tensor, **given: Any) -> dict[str, Any]:
    """The arguments of forward, as the model itself makes them for `generate`."""
    prepare: Any = module.prepare_inputs_for_generation
    return {**prepare(ids, **given), "return_dict": True}


def _encoded(result: Any) -> Any:
    """What the encoder of a run gave, in the form in which the decoder takes it again."""
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=result.encoder_last_hidden_state)
