"""Which kernel of attention torch chooses, held against the rules as torch's sources state them."""

from __future__ import annotations

import pytest

from opgraph.tracing.target.attention import Attention, attention_kernel

NAMES = ("cuda:7.0", "cuda:7.5", "cuda:8.0", "cuda:8.6", "cuda:9.0", "cuda:10.0", "cuda:12.0")
SHORT = {"f": "flash", "c": "cudnn", "e": "efficient", "m": "math"}


def call(dtype: str = "bfloat16", size: int = 64, **more) -> Attention:
    return Attention(dtype, 128, 128, size, size, size, heads=8, key_heads=8, value_heads=8) if (
        not more
    ) else Attention(
        **{
            "dtype": dtype, "queries": 128, "keys": 128, "head_size": size, "key_size": size,
            "value_size": size, "heads": 8, "key_heads": 8, "value_heads": 8, **more,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        # Volta and Turing have no flash kernel, and take bfloat16 in none but math.
        (call("float16"), "eeffccf"),
        (call("bfloat16"), "mmffccf"),
        (call("float32"), "eeeeeee"),
        (call("float64"), "mmmmmmm"),
        # A mask is nothing for flash, and all the same to cuDNN unless it has a gradient.
        (call("float16", mask=True), "eeeecce"),
        (call("float16", mask=True, mask_gradient=True), "eeeeeee"),
        # Heads: cuDNN up to 256 and in multiples of 8, as is flash; unaligned ones are not efficient.
        (call("float16", 256), "eeffccf"),
        (call("float16", 160), "eeffccf"),
        (call("float16", 320), "eeeeeee"),
        (call("float16", 60), "mmfffff"),
        (call("float32", 62), "eemmmmm"),
        # With gradients the smaller parts of a generation take heads of up to 192 in flash.
        # cuDNN's gradients are for heads of up to 128, of 256, and of 192 with values of 128.
        (call("float16", 160, gradient=True), "eefffff"),
        (call("float16", 224, gradient=True), "eefeffe"),
        (call("float16", 256, gradient=True), "eeffccf"),
        (call("float16", 192, value_size=128, gradient=True), "eeeecce"),
        (call("float16", 256, gradient=True, dropout=0.1), "eefeffe"),
        # cuDNN's dropout is in steps of 1/16.
        (call("float16", dropout=0.1), "eefffff"),
        (call("float16", dropout=0.125), "eeffccf"),
        # Causal with other lengths is nothing for flash; keys of one token are nothing for cuDNN.
        (call("float16", causal=True, queries=1), "eeeecce"),
        (call("float16", keys=1, queries=1), "eefffff"),
        # Groups of heads go through all of them, but only when they are asked for.
        (call("float16", grouped=True, key_heads=2, value_heads=2), "eeffccf"),
        (call("float16", key_heads=2, value_heads=2), "mmmmmmm"),
        (call("float16", grouped=True, key_heads=3, value_heads=3), "mmmmmmm"),
        # Latent attention: heads of 192, values of 128.
        (call("float16", 192, value_size=128), "eeeecce"),
        (call("float16", dimensions=3), "mmmmmmm"),
        (call("float16", dense=False), "mmmmmmm"),
        (call("float16", queries=0), "mmmmmmm"),
    ],
)  # fmt: skip
def test_the_kernel_by_generation(asked, chosen):
    assert [attention_kernel(asked, n) for n in NAMES] == [SHORT[c] for c in chosen]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (call("bfloat16"), "flash"),
        (call("float32"), "efficient"),
        (call("bfloat16", mask=True), "efficient"),
        (call("bfloat16", mask=True, grouped=True, key_heads=2, value_heads=2), "math"),
        (call("bfloat16", 512), "flash"),
    ],
)
def test_amd_runs_what_aotriton_has(asked, chosen):
    assert attention_kernel(asked, "cuda:gfx942") == chosen


@pytest.mark.parametrize(
    ("asked", "cpu", "mps"),
    [
        (call("float32"), "flash", "metal"),
        (call("float32", dropout=0.1), "math", "math"),
        (call("float32", gradient=True), "flash", "math"),
        (call("float32", dense=False), "math", "metal"),
        (call("float32", keys=0), "math", "metal"),
    ],
)
def test_other_devices(asked, cpu, mps):
    assert (attention_kernel(asked, "cpu"), attention_kernel(asked, "mps")) == (cpu, mps)


@pytest.mark.parametrize(
    ("order", "off", "chosen"),
    [
        (("flash", "cudnn"), {"efficient", "math"}, "mmfffff"),
        (("efficient", "flash"), {"cudnn", "math"}, "eeeeeee"),
        (("cudnn", "flash"), {"efficient", "math"}, "mmccccc"),
        (("math", "flash"), {"cudnn", "efficient"}, "mmmmmmm"),
        (("math", "flash"), {"cudnn", "efficient", "math"}, "mmfffff"),
    ],
)
def test_kernels_are_tried_in_the_order_that_was_asked_for(order, off, chosen):
    asked = call("float16", off=frozenset(off), order=order)
    assert [attention_kernel(asked, name) for name in NAMES] == [SHORT[c] for c in chosen]
