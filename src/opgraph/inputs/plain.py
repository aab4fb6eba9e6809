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
    layer = first_layer(c.module)
    match layer:
        case nn.Embedding() | nn.EmbeddingBag():
            return c.ids(c.batch, c.sequence, below=layer.num_embeddings)
        case nn.Conv1d():
            return c.floats(c.batch, layer.in_channels, c.sequence)
        case nn.Conv2d():
            return c.floats(c.batch, layer.in_channels, *c.image_size)
        case nn.Conv3d():
            return c.floats(c.batch, layer.in_channels, FRAMES, *c.image_size)
        case nn.Linear():
            return c.floats(c.batch, layer.in_features)
        case nn.RNNBase():
            first, second = (c.batch, c.sequence) if layer.batch_first else (c.sequence, c.batch)
            return c.floats(first, second, layer.input_size)
        case nn.MultiheadAttention():
            return c.floats(c.batch, c.sequence, layer.embed_dim)
    return image(c)
