"""Rules for what is neither text nor image nor sound: trajectories, time series, regions of images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from opgraph.inputs.context import Context, rule
from opgraph.inputs.model_reading import first_layer
from opgraph.inputs.rules.images import image
from opgraph.record.errors import InputError

REGIONS = 36
"""Regions of an image, as object detectors in front of vision-and-language models give them."""


# Trajectories: states, actions and returns over time


@rule("states")
def states(c: Context) -> Tensor:
    return c.floats(c.batch, c.sequence, c.settings.number("state_dim", default=1))


@rule("actions")
def actions(c: Context) -> Tensor:
    return c.floats(c.batch, c.sequence, c.settings.number("act_dim", "action_dim", default=1))


@rule("rewards", "returns_to_go")
def returns(c: Context) -> Tensor:
    return c.floats(c.batch, c.sequence, 1)


@rule("timesteps")
def timesteps(c: Context) -> Tensor:
    """The steps of a trajectory; one noise level a sample for a diffusion model."""
    if c.has("states"):
        return torch.arange(c.sequence).expand(c.batch, -1)
    return torch.full((c.batch,), 500)


# Time series


def _series(c: Context) -> tuple[int, int]:
    length = c.settings.number("context_length", "seq_len", default=512)
    return length, c.settings.number("num_input_channels", "input_size", default=1)


@rule("past_values")
def past_values(c: Context) -> Tensor | None:
    """Series over time; with the lags that the model looks back on, where it has them."""
    length, channels = _series(c)
    lags = c.settings.get("lags_sequence")
    if lags:
        length += max(lags)
    flat = c.has("past_values_padding") or (lags and channels == 1)
    return c.floats(c.batch, length) if flat else c.floats(c.batch, length, channels)


@rule("past_values_padding", needed=True)
def series_padding(c: Context) -> Tensor:
    return torch.zeros(c.batch, _series(c)[0], dtype=torch.int64)


rule("freq", needed=True)(lambda c: torch.zeros(c.batch, 1, dtype=torch.int64))


@rule("past_time_features")
def past_time_features(c: Context) -> Tensor:
    features = c.settings.number("num_time_features", default=0)
    return c.floats(c.batch, c.value("past_values").shape[1], features)


rule("past_observed_mask", needed=True)(lambda c: torch.ones_like(c.value("past_values")))


@rule("future_time_features")
def future_time_features(c: Context) -> Tensor | None:
    steps = c.settings.number("prediction_length")
    features = c.settings.number("num_time_features", default=0)
    return c.floats(c.batch, steps, features) if steps and c.has("past_time_features") else None


@rule("future_values")
def future_values(c: Context) -> Tensor | None:
    """Only for models whose decoder is fed with them."""
    steps = c.settings.number("prediction_length")
    if not steps or not c.has("past_time_features"):
        return None
    channels = _series(c)[1]
    return c.floats(c.batch, steps) if channels == 1 else c.floats(c.batch, steps, channels)


# Regions of an image


@rule("visual_feats", "visual_embeds")
def regions(c: Context) -> Tensor:
    width = c.settings.number("visual_feat_dim", "visual_embedding_dim", default=2048)
    return c.floats(c.batch, REGIONS, width)


@rule("visual_pos")
def region_boxes(c: Context) -> Tensor:
    return c.floats(c.batch, REGIONS, c.settings.number("visual_pos_dim", default=4))


# Rules for models that name their input nothing in particular (`x`, `input`).

FRAMES = 16


MAIN = ("x", "input", "inputs", "image", "img", "imgs", "X", "src", "tgt", "query", "key", "value")
"""Names that say nothing but that something goes in."""


@rule(*MAIN[:7], needed=True)
def main_tensor(c: Context) -> Tensor:
    """The input that the source knows the size of, or that the model's first layer with weights takes."""
    if "input_size" in c.model.hints:
        return image(c)
    width = c.settings.own("d_model")
    if width is not None and c.has("inputs"):
        return c.floats(c.batch, c.sequence, width)
    return _for_layer(c, first_layer(c.module))


@rule(*MAIN[7:], needed=True)
def sequence(c: Context) -> Tensor:
    """A sequence of vectors for torch's own transformer modules."""
    attention = next((m for m in c.module.modules() if isinstance(m, nn.MultiheadAttention)), None)
    if attention is None:
        return main_tensor(c)
    return _sequence(c, attention.embed_dim, attention.batch_first)


def _sequence(c: Context, width: int, batch_first: bool) -> Tensor:
    first, second = (c.batch, c.sequence) if batch_first else (c.sequence, c.batch)
    return c.floats(first, second, width)


def _for_layer(c: Context, layer: nn.Module | None) -> Tensor:
    """What a layer takes: by its class, or, where it is packed (quantized), by the sizes it tells."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        raise InputError(f"{type(layer).__name__} takes any size: nothing says which",
                         hint="give the inputs")  # fmt: skip
    match layer:
        case nn.Embedding() | nn.EmbeddingBag():
            return c.ids(c.batch, c.sequence, below=layer.num_embeddings)
        case nn.Conv1d():
            return c.floats(c.batch, layer.in_channels, c.sequence)
        case nn.Conv3d():
            return c.floats(c.batch, layer.in_channels, FRAMES, *c.image_size)
        case nn.RNNBase():
            return _sequence(c, layer.input_size, layer.batch_first)
        case nn.MultiheadAttention():
            return _sequence(c, layer.embed_dim, layer.batch_first)
    channels, features = (getattr(layer, name, None) for name in ("in_channels", "in_features"))
    if channels is not None:
        return c.floats(c.batch, channels, *c.image_size)
    return image(c) if features is None else c.floats(c.batch, features)
