"""Values as people type and hand them over, in the one form that the stages read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from opgraph.options import OPTIONS, TensorSpec
from opgraph.record.errors import InputError
from opgraph.record.kinds import Mode, Partition


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("seq_len", "128", 128),
        ("dtype", "bf16", "bfloat16"),
        ("dtype", "torch.float16", "float16"),
        ("input_shape", "1x3x224x224", (1, 3, 224, 224)),
        ("input_shape", "1, 3, 224, 224", (1, 3, 224, 224)),
        ("image_size", "224", 224),
        ("image_size", "480x640", (480, 640)),
        ("fragment", "2", 2),
        ("fragment", "largest", "largest"),
        ("min_flops", "1e9", 1e9),
        ("model_args", "width=64", ("width", 64)),
        ("model_args", "act=gelu", ("act", "gelu")),
        ("model_args", "bias=false", ("bias", False)),
        ("input_overrides", "mask=1x77:int64", ("mask", TensorSpec((1, 77), "int64"))),
        ("count", "attention=causal", ("attention", "causal")),
        ("fail_if", "flops > +2%", "flops > +2%"),
        ("run", "reduce-overhead", "compiled,graphs"),
        ("recorded", "decode", "decode"),
        ("recorded", "512", "512"),
    ],
)
def test_what_is_typed(name: str, text: str, value: object) -> None:
    assert OPTIONS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("dtype", torch.bfloat16, "bfloat16"),
        ("dtype", "half", "float16"),
        ("autocast", torch.float16, "float16"),
        ("image_size", (480, 640), (480, 640)),
        ("image_size", [224, 224], 224),
        ("image_size", 224, 224),
        ("input_shape", torch.Size([1, 3, 8, 8]), (1, 3, 8, 8)),
        ("input_overrides", {"mask": (1, 77)}, {"mask": TensorSpec((1, 77))}),
        ("input_overrides", {"x": torch.zeros(2, 3)}, {"x": TensorSpec((2, 3), "float32")}),
        ("output", Path("a/b.csv"), "a/b.csv"),
        ("fail_if", "flops > 1", ("flops > 1",)),
        ("mode", Mode.TRAIN, "train"),
        ("partition", Partition.NONE, "none"),
        ("head", None, None),
    ],
)
def test_what_is_handed_over_in_python(name: str, given: Any, value: object) -> None:
    assert OPTIONS[name].check(given) == value


@pytest.mark.parametrize(
    ("name", "given", "message", "hint"),
    [
        ("batch_size", 0, "batch_size: 0 is not a whole number of at least 1", ""),
        ("batch_size", True, "batch_size: True is not", ""),
        ("batch_size", 2.0, "batch_size: 2.0 is not", ""),
        ("recorded", "512x", "recorded: '512x' is not a choice", "or a number of tokens"),
        ("dtype", "float33", "dtype: 'float33' is not a choice", "one of float32, "),
        ("mode", "trian", "mode: 'trian' is not a choice", "one of train, "),
        ("mode", None, "mode: None is not a choice", "one of "),
        (
            "run",
            "max-autotune",
            "run: the kernels of max-autotune are picked by measuring",
            "compiled",
        ),
        ("image_size", (1, 2, 3), "image_size: (1, 2, 3) is not an image size", "480x640"),
        ("input_shape", (), "input_shape: () is not a shape", "1x3x224x224"),
        ("input_shape", "1x3xx", "input_shape: '1x3xx' is not a shape", "1x3x224x224"),
        ("count", {"pixels": "all"}, "count: there is no 'pixels'", "one of attention"),
        ("count", {"attention": "typo"}, "count: attention is not 'typo'", "attention=full"),
        ("fragment", 0, "fragment: 0 is no fragment", "largest"),
        ("fold", "no", "fold: 'no' is neither true nor false", ""),
        ("dpi", float("nan"), "dpi: nan is not a number above 0", ""),
        ("model_args", 3, "model_args: 3 is not a mapping", ""),
    ],
)
def test_what_it_cannot_be(name: str, given: Any, message: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        OPTIONS[name].check(given)
    assert str(raised.value).startswith(message)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("seq_len", "abc", "--seq-len: abc is not a whole number of at least 1"),
        ("model_args", "width", "--model-arg: 'width' is not of the form NAME=VALUE"),
        ("input_overrides", "mask=1xbanana", "--input: '1xbanana' is not a shape"),
        ("timeout", "1e9", "--timeout: 1e9 is not a number above 0, up to 1,000,000"),
    ],
)
def test_what_cannot_be_typed(name: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        OPTIONS[name].parse(text)
    assert str(raised.value) == message
