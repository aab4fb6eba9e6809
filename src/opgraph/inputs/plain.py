"""Rules for models that name their input nothing in particular (`x`, `input`)."""

from __future__ import annotations

from torch import Tensor, nn

from opgraph.inputs.context import Context
from opgraph.inputs.images import image
from opgraph.inputs.reading import first_layer
from opgraph.inputs.table import rule

FRAMES = 16


@rule("x", "input", "inputs", "image", "img", "imgs", "X", needed=True)
def main_tensor(c: Context) -> Tensor:
    """The input that the source knows the size of, or that the model's first layer with weights takes."""
    if "input_size" in c.model.hints:
        return image(c)
    width = c.settings.own("d_model")
    if width is not None and c.has("inputs"):
        return c.floats(c.batch, c.sequence, width)
    return _for_layer(c, first_layer(c.module))


@rule("src", "tgt", "query", "key", "value", needed=True)
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
