"""How weights are kept in fewer bits: the formats with the bytes that each takes, and the scheme of a
model, as a person asks for it or as its publisher's `quantization_config` states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil
from typing import Any, Literal, cast

from opgraph.record.errors import InputError


@dataclass(frozen=True, slots=True)
class Format:
    """Numbers of so many `bits`, of which a `group` along a row shares a scale (None: the whole row).

    A scale and a zero point take `scale` and `zero` bytes, None as many as a number of the model. `nested`
    scales are themselves kept in 8 bits, with a float32 scale for so many of them. `tensor` are the bytes
    that a whole tensor has beside (a scale, tables of values), `flops` what an element takes to be made a
    number again. `activations` are what such weights can be multiplied with on units of fewer bits,
    `groups` says whether another group can be asked for.
    """

    dtype: str
    bits: int
    group: int | None = None
    scale: int | None = 4
    zero: int | None = 0
    nested: int = 0
    tensor: int = 0
    flops: int = 1
    activations: tuple[str, ...] = ()
    groups: bool = False


FORMATS: Mapping[str, Format] = {
    "fp8": Format("float8_e4m3fn", 8, activations=("fp8",)),
    "int8": Format("int8", 8, zero=1, activations=("int8",), groups=True),
    "int4": Format("int4", 4, 128, None, None, flops=2, activations=("int8", "fp8"), groups=True),
    "nvfp4": Format("float4", 4, 16, scale=1, tensor=4, flops=2, activations=("fp4", "fp8")),
    "mxfp4": Format("float4", 4, 32, scale=1, activations=("fp4", "fp8")),
    "nf4": Format("nf4", 4, 64, scale=1, nested=256, tensor=4 + 4 * (16 + 256), flops=2, groups=True),
}  # fmt: skip
"""What weights can be kept in. Their bytes are those of torchao's tensors (fp8, int8, int4, nvfp4, mxfp4)
and of bitsandbytes' (nf4 with double quantization): docs/quantized.md."""

ACTIVATIONS: Mapping[str, tuple[str, float]] = {
    "fp8": ("float8_e4m3fn", 1.0), "int8": ("int8", 1.0), "fp4": ("float4", 0.5 + 1 / 16),
}  # fmt: skip
"""The dtype of activations in fewer bits, and the bytes of an element, scales of blocks included; those of
fp8 and int8 have a float32 scale for each row, or each group of one."""

CACHES = ("fp8", "int8")
"""What a KV cache can be kept in: fp8 with one scale for a tensor, int8 with a float32 scale for each head
of each token."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Weights in a format, with another group than the format's own, or in blocks of so many `rows`; what
    they are multiplied with, and patterns of modules that stay as they are. `published` says that it is the
    publisher's."""

    weights: Literal["fp8", "int8", "int4", "nvfp4", "mxfp4", "nf4"]
    group: int | None = None
    rows: int = 1
    activations: Literal["fp8", "int8", "fp4"] | None = None
    kept: tuple[str, ...] = ()
    published: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.group is not None and self.group < 1):
            raise ValueError("a block has at least one row and one column")

    @property
    def format(self) -> Format:
        return FORMATS[self.weights]

    @property
    def along(self) -> int | None:
        """How many numbers along a row share a scale; None: all of them."""
        return self.group or self.format.group

    def bytes(self, rows: int, columns: int, item: int = 2) -> int:
        """What a matrix takes, scales and zero points included; a number of the model takes `item` bytes.

        In int8 zero points are only kept where activations are not in int8, too: bitsandbytes' layers have
        none.
        """
        form, group = self.format, self.along or columns
        if form.nested:  # blocks go over the rows' ends
            rows, columns = 1, rows * columns
        scales = ceil(rows / self.rows) * ceil(columns / group)
        scale = item if form.scale is None else form.scale
        zero = item if form.zero is None else 0 if self.activations == self.weights else form.zero
        beside = scales * (scale + zero) + form.tensor
        if form.nested:
            beside += ceil(scales / form.nested) * 4
        return ceil(rows * columns * form.bits / 8) + beside

    def divides(self, columns: int) -> bool:
        """Whether rows of so many numbers can be kept so: whole groups, if not in blocks."""
        blocks = self.rows > 1 or self.format.nested
        return bool(blocks) or columns % (self.along or columns) == 0

    def keeps(self, module: str) -> bool:
        """Whether a module, or one around it, stays as it is."""
        parts = module.split(".")
        around = [".".join(parts[: i + 1]) for i in range(len(parts))]
        return any(fnmatchcase(path, pattern) for path in around for pattern in self.kept)

    def __str__(self) -> str:
        shared = (
            f"blocks of {self.rows}x{self.group}" if self.rows > 1 else f"groups of {self.along}"
        )
        return self.weights + (f" in {shared}" if self.along else "")


def kept_in(convention: Mapping[str, str]) -> str:
    """What a profile with such conventions is kept in, in words: "weights in int4, cache in fp8"; nothing
    where all is as it computes."""
    kinds = {"weights": "weights", "activations": "activations", "kv_cache": "cache"}
    return ", ".join(f"{kinds[n]} in {convention[n]}" for n in kinds if n in convention)


def scheme_of(
    weights: str | None, group: int | None, activations: str | None, published: Scheme | None
) -> Scheme | None:
    """The scheme that is asked for, or else the `published` one; None for none.

    Raises `InputError` for what does not go together.
    """
    if weights in (None, "none"):
        for name, value in (("group-size", group), ("activations", activations)):
            if value is not None:
                raise InputError(f"--{name} has no effect without quantized weights",
                                 hint="give --weights, too")  # fmt: skip
        return published if weights is None else None
    form = FORMATS[str(weights)]
    if group is not None and not form.groups:
        own = f"groups of {form.group}" if form.group else "one scale for each row"
        raise InputError(f"{weights} has {own}, and no other group size")
    if activations is not None and activations not in form.activations:
        known = " or ".join(f"--activations {each}" for each in form.activations)
        raise InputError(
            f"no kernel multiplies weights in {weights} with activations in {activations}",
            hint=f"{weights} goes with {known}" if known else "leave out --activations",
        )
    return Scheme(cast("Any", weights), group, 1, cast("Any", activations))


def published_scheme(config: Mapping[str, Any]) -> Scheme | None:
    """The scheme that the `quantization_config` of a published `config.json` states; None where it is of a
    kind that is not known here.

    Source: transformers' `quantizers` and the configurations of the checkpoints that the catalogue has.
    """
    method = config.get("quant_method")
    kept = tuple(str(each) for each in config.get("modules_to_not_convert") or ())
    if method == "fp8":
        rows, group = config.get("weight_block_size") or (1, None)
        dynamic = config.get("activation_scheme") in ("dynamic", "static")
        return Scheme("fp8", group, rows, "fp8" if dynamic else None, kept, published=True)
    if method == "mxfp4":
        return Scheme("mxfp4", kept=kept, published=True)
    if method == "bitsandbytes":
        if config.get("load_in_4bit") and config.get("bnb_4bit_quant_type", "fp4") == "nf4":
            return Scheme("nf4", kept=kept, published=True)
        if config.get("load_in_8bit"):
            return Scheme("int8", activations="int8", kept=kept, published=True)
    return None
