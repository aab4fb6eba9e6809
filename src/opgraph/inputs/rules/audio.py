"""Rules for sound: waveforms, and spectrograms in the layout that the model wants."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opgraph.inputs.context import Context, rule
from opgraph.inputs.model_reading import applied_to, first_layer, first_taking, reached_by, swaps
from opgraph.inputs.rules.text import encoder_needs

SECONDS = 9.6
"""A length that the strides of codecs divide, at the usual rates."""
RATE = 16_000
FRAMES = 1_000
_MELS = 80


@rule("input_values", "audio_values", "waveform")
def waveform(c: Context) -> Tensor | None:
    """Some seconds of sound; a spectrogram where the model's configuration counts mel bins and frames."""
    if c.beside("input_features") is not None and not c.required("input_values"):
        return None
    if c.has("input_values_cutoffs"):
        return None  # sound in the middle of coded text, which needs more than itself
    bins = c.settings.own("num_mel_bins", part="audio")
    frames = c.settings.own("max_length", part="audio")
    if bins is not None and isinstance(frames, int) and frames > bins:
        return c.floats(c.batch, frames, bins)
    rate = c.settings.number("sampling_rate", "sample_rate", part="audio", default=RATE)
    channels = (
        [c.settings.number("audio_channels", part="audio", default=1)] if _has_channel(c) else []
    )
    return c.floats(c.batch, *channels, int(SECONDS * rate))


def _has_channel(c: Context) -> bool:
    """Whether a waveform has an axis for its channels: as the model's code or documentation says, or
    the convolution wants that takes it as it comes."""
    known = c.dims("input_values")
    return len(known) == 3 or (
        not known and isinstance(reached_by(c.module, "input_values"), nn.Conv1d)
    )


@rule("input_features", "audio_input_features", "audio_mel")
def spectrogram(c: Context) -> Tensor | None:
    """Mel bins over time; which of the two comes first follows from how the model's code takes the argument
    apart, or else from the layer that takes it."""
    if _text_instead(c):
        return None
    bins = c.settings.number(
        "num_mel_bins", "mel_bins", "num_mels", "n_mels", "num_mel_channels", "input_feat_size",
        "input_feat_per_channel", "feature_projection_input_dim", part="audio",
    )  # fmt: skip
    bins = bins or c.model.hints.get("feature_size", 0)
    bins = bins or c.settings.number(
        "feature_size", "input_size", "input_dim", part="audio", default=_MELS
    )
    layer = first_taking(c.module, bins) or first_layer(c.module)
    positions = c.settings.number("max_source_positions", part="audio")
    names = c.dims("input_features")
    bins_first = len(names) == 3 and ("mel" in names[1] or "bins" in names[1])
    if bins_first or (isinstance(layer, nn.Conv1d) and not _time_first(c)):
        return c.floats(c.batch, bins, 2 * positions if positions > 0 else FRAMES)
    taken = applied_to(c.module, "input_features")
    if isinstance(taken, nn.Linear):
        bins = taken.in_features
    if c.settings.own("spec_size", part="audio"):
        return c.floats(c.batch, 1, FRAMES + 1, bins)
    return c.floats(c.batch, FRAMES, bins)


def _text_instead(c: Context) -> bool:
    """Whether an encoder-decoder takes either text or sound, and not both."""
    either = c.has("input_ids") and c.has("input_features") and c.has("decoder_input_ids")
    return either and not (c.required("input_ids") or c.required("input_features"))


def _time_first(c: Context) -> bool:
    """Whether the model's code takes spectrograms as (batch, time, bins)."""
    names = c.dims("input_features")
    timely = ("length", "frames", "time", "seq")
    return (len(names) == 3 and any(t in names[1] for t in timely)) or swaps(
        c.module, "input_features"
    )


@rule("input_features_mask", "feature_attention_mask")
def frame_mask(c: Context) -> Tensor | None:
    """All frames are sound."""
    features = c.value("input_features")
    if features is None:
        return None
    count = next((n for n in features.shape[1:] if n in (FRAMES, FRAMES + 1)), features.shape[-1])
    return torch.ones(c.batch, count, dtype=torch.int64)


@rule("padding_mask")
def sample_mask(c: Context) -> Tensor | None:
    """All samples are sound; for models that cannot do without."""
    sound = c.beside("input_values")
    needed = c.required("padding_mask") or encoder_needs(c, "padding_mask")
    return (
        None
        if sound is None or not needed
        else torch.ones(c.batch, sound.shape[-1], dtype=torch.bool)
    )


# No frame is padding.
rule("audio_mel_mask")(lambda c: torch.zeros(c.value("audio_mel").shape[:2], dtype=torch.bool))
