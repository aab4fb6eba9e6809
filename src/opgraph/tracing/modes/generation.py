"""Generating text: the arguments of a prefill and of one decoding step, as `generate` of transformers
makes them. What comes before the step that is recorded (filling the cache) runs unrecorded."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from opgraph.record.errors import InputError
from opgraph.record.profile import CachePart, KVCache
from opgraph.tracing.capture.kernels import KernelCapture

# Caches of generating models, measured on the cache objects of a run: which layers keep what, and how it
# grows. Only real cache objects of transformers count; shapes alone never make a cache.

_TOKENS = ("keys", "values", "indexer_keys")
"""What layers of attention keep for each token: [batch, …, tokens, size]."""

_STATES = ("conv_states", "recurrent_states")
"""What layers of recurrence and convolution keep, whatever the length."""


def cache_in(result: Any) -> Any:
    """The cache object among what a model returns; None if there is none."""
    library = sys.modules.get("transformers.cache_utils")
    if library is None:
        return None
    items = result.values() if isinstance(result, Mapping) else result
    if not isinstance(result, (Mapping, tuple, list)):
        return None
    return next((item for item in items if isinstance(item, library.Cache)), None)


def measured(cache: Any) -> KVCache | None:
    """The sizes of a cache; None where it holds nothing."""
    kinds: Counter[CachePart] = Counter()
    total = tokens = sequences = 0
    for layer, cross in _layers(cache):
        held = [
            t for name in _TOKENS if (t := getattr(layer, name, None)) is not None and t.numel()
        ]
        states = [t for name in _STATES for t in _values(getattr(layer, name, None))]
        if not held and not states:
            continue
        sequences = int((held or states)[0].shape[0])
        sizes = [_bytes(t) for t in held]
        total += sum(sizes) + sum(map(_bytes, states))
        if held:
            length = int(held[0].shape[-2])
            each = sum(sizes) // (sequences * length)
            if cross:
                kinds[CachePart("cross", 1, fixed=each * length)] += 1
            elif getattr(layer, "is_sliding", False):
                kinds[CachePart("window", 1, each, limit=_limit(layer))] += 1
            else:
                kinds[CachePart("growing", 1, each)] += 1
            if not cross:
                tokens = max(tokens, int(layer.get_seq_length()))
        if states:
            kinds[CachePart("state", 1, fixed=sum(map(_bytes, states)) // sequences)] += 1
    parts = tuple(
        CachePart(p.kind, count, p.bytes_per_token, p.limit, p.fixed) for p, count in kinds.items()
    )
    return KVCache(sequences, tokens, total, parts) if parts else None


def _layers(cache: Any) -> Iterator[tuple[Any, bool]]:
    """The layers of a cache, and whether they are of attention to an encoder's output."""
    if hasattr(cache, "cross_attention_cache"):
        yield from ((layer, False) for layer in cache.self_attention_cache.layers)
        yield from ((layer, True) for layer in cache.cross_attention_cache.layers)
    else:
        yield from ((layer, False) for layer in cache.layers)


def _limit(layer: Any) -> int:
    """The most tokens that a layer with a window keeps between steps: a growing one drops the token that
    the next step pushes out of the window at once, one of fixed size when it is overwritten."""
    window = int(layer.get_max_length())
    return window if hasattr(layer, "max_cache_len") else window - 1


def _values(states: Any) -> list[Tensor]:
    found = states.values() if isinstance(states, dict) else [states]
    return [t for t in found if isinstance(t, Tensor)]


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


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
    with KernelCapture(mode, lambda *_: None):
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
    place = getattr(module, "_prepare_position_ids_for_generation", None)
    if not both and place is not None and "position_ids" in known and "position_ids" not in given:
        given["position_ids"] = place(ids, dict(given))
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
