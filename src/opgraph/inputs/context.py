"""The table of input rules, and what a rule can read: the model, its configuration, the sizes asked for,
the numbers behind the names of sizes in its code, and the arguments that other rules have made."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from opgraph.inputs.base import InputRequest
from opgraph.inputs.model_reading import Settings, sizes
from opgraph.record.errors import InputError
from opgraph.record.remarks import Remark
from opgraph.sources.base import Model

# The table of input rules: the name of a parameter of `forward` → the function that makes its value.

Make = Callable[["Context"], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """How to make an argument, and whether only a parameter without a default gets it."""

    make: Make
    needed: bool = False


RULES: dict[str, Rule] = {}


def rule(*names: str, needed: bool = False) -> Callable[[Make], Make]:
    """Enter a function into the table under these parameter names.

    The function returns None where the argument should be left out. With `needed` it is used only
    where the parameter has no default.
    """

    def enter(make: Make) -> Make:
        for name in names:
            if name in RULES:
                raise ValueError(f"there is already a rule for {name}")
            RULES[name] = Rule(make, needed)
        return make

    return enter


SEQUENCE = 128
IMAGE = 224
FRAMES = 8
"""Frames of a clip where the configuration does not say."""
_BIG = 256 * 2**20
_PLENTY = 4000
"""More than any image has pixels a side: sizes above it are counts of pixels."""


@dataclass
class Context:
    """One making of inputs for one model; with `sizes_only` nobody looks at what numbers are in them."""

    model: Model
    request: InputRequest
    signature: inspect.Signature
    sizes_only: bool = False
    made: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    drawn: set[str] = field(default_factory=set)
    _made_now: list[str] = field(default_factory=list)

    @cached_property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(0)

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.model.config)

    @property
    def module(self) -> nn.Module:
        module: nn.Module = self.model.module
        return module

    @property
    def batch(self) -> int:
        return self.request.batch_size or 1

    @cached_property
    def dtype(self) -> torch.dtype:
        """That of floating-point inputs: the one asked for, or that of the model's parameters."""
        if self.request.dtype is not None:
            return named_dtype(self.request.dtype)
        for parameter in self.module.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
        return torch.float32

    def has(self, name: str) -> bool:
        """Whether `forward` takes an argument of that name."""
        return name in self.signature.parameters

    def required(self, name: str) -> bool:
        """Whether `forward` takes it and has no default for it, or None where those are asked for."""
        parameter = self.signature.parameters.get(name)
        without = (inspect.Parameter.empty, *([None] if self.request.optional else []))
        return parameter is not None and any(parameter.default is d for d in without)

    def value(self, name: str) -> Any:
        """An argument of the call, as given or as its own rule makes it; None where there is no rule."""
        if name not in self.made:
            rule = RULES.get(name)
            with self.making(name):
                self.made[name] = rule.make(self) if rule else None
        return self.made[name]

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Within, an argument of that name is made: it is noted where it is of random integers."""
        self._made_now.append(name)
        yield
        self._made_now.pop()

    def beside(self, name: str) -> Any:
        """Another argument of the call; None where `forward` does not take it."""
        return self.value(name) if self.has(name) else None

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of the sizes of an argument, in the model's code or documentation; none if unknown."""
        return sizes(self.module, name) or ()

    def leave_out(self, names: Iterable[str], reason: str) -> None:
        """Do without these arguments, and say why."""
        self.made.update({name: None for name in names if not self.required(name)})
        self.notes.append(Remark("left-out", reason))

    # Sizes

    @cached_property
    def positions(self) -> int:
        """The most text tokens that the configuration has positions for; 0 where it does not say."""
        return self.settings.number(
            "max_position_embeddings", "n_positions", "max_sequence_length", part="text"
        )

    @cached_property
    def sequence(self) -> int:
        """Text tokens: as asked, else 128 or as many as the model has positions for."""
        read = bool(self.settings.own("is_encoder_decoder"))  # and not gone on with
        new = 0 if read else self.request.new_tokens
        return self._within("seq_len", self.request.seq_len, self.positions, SEQUENCE, new)

    @cached_property
    def decoder_sequence(self) -> int:
        """Tokens of the decoder's sequence."""
        asked, new = self.request.decoder_seq_len, self.request.new_tokens
        return self._within("decoder_seq_len", asked, self.written, self.sequence, new)

    @cached_property
    def written(self) -> int:
        """The most tokens that the decoder's configuration has positions for; 0 where it does not say."""
        return self.settings.number(
            "max_target_positions", "max_position_embeddings", part="decoder"
        )

    def _within(self, option: str, asked: int | None, most: int, usual: int, new: int) -> int:
        """A length as asked, else the usual one or as many as there are positions, with those of new
        tokens to come. A table of learned positions has no more than it has: on fake tensors nothing
        else would say so.

        Raises `InputError`.
        """
        if asked is None:
            return min(usual, most - new) if most > new else usual
        if 0 < most < asked + new and self.learned(most):
            more = f" with {new} to come" if new else ""
            raise InputError(
                f"the model has learned {most:,} positions, and {option} is {asked:,}{more}",
                hint=f"at most {most - new:,}",
            )
        return asked

    def learned(self, positions: int) -> bool:
        """Whether positions are looked up in a table (some keep a row or two more, for padding)."""
        tables = (m for m in self.module.modules() if isinstance(m, nn.Embedding))
        return any(
            positions <= table.num_embeddings <= positions + 2
            for table in tables
            if table is not self.embedding
        )

    @cached_property
    def embedding(self) -> nn.Embedding | None:
        """The table of token embeddings, where the model says which it is, or else the first."""
        ask = getattr(self.module, "get_input_embeddings", None)
        try:
            found = ask() if ask is not None else None
        except (NotImplementedError, AttributeError):
            found = None
        if isinstance(found, nn.Embedding):
            return found
        return next((m for m in self.module.modules() if isinstance(m, nn.Embedding)), None)

    @cached_property
    def vocabulary(self) -> int:
        """How many token ids there are."""
        sizes = [self.settings.number("vocab_size", "n_tokens", part="text")]
        if self.embedding is not None:
            sizes.append(self.embedding.num_embeddings)
        return min((s for s in sizes if s > 0), default=2)

    @cached_property
    def hidden(self) -> int:
        """The width of the token embeddings."""
        if self.embedding is not None:
            return int(self.embedding.embedding_dim)
        return self.settings.number("hidden_size", "d_model", part="text", default=1)

    @cached_property
    def channels(self) -> int:
        """Channels of an image."""
        names = ("num_channels", "in_channels", "in_chans", "num_image_channels", "image_channels")
        return self.settings.number(*names, part="vision", default=3)

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image: as asked, else the model's own, else its preprocessing's."""
        if self.request.image_size is not None:
            return self.request.image_size
        own = self.settings.own("image_size", "img_size", part="vision")
        own = own or self.settings.own("image_size", part="backbone")
        usual = None if own else self.model.hints.get("image_size")
        own = own or usual or self.settings.get("image_size")
        high, wide = pair(own or next((s for s in map(_size_of, self.module.modules()) if s), None))
        if usual:
            self.notes.append(Remark("guessed-inputs", f"images of {high}x{wide}, as models of this type "
                                     "usually take: nothing says the size of this one"))  # fmt: skip
        windows = self.settings.own("num_windows", part="backbone")
        if windows:  # of whole patches
            step = windows * self.settings.number("patch_size", part="backbone", default=1)
            return max(1, high // step) * step, max(1, wide // step) * step
        return high, wide

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return (self.channels, *self.image_size)

    # Images as rows of patches: how many there are, and of what size.

    @property
    def frames(self) -> int:
        """Frames of a clip."""
        return self.settings.number("num_frames", "frames_per_clip", part="vision", default=FRAMES)

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch."""
        return pair(
            self.settings.get("patch_size", "spatial_patch_size", part="vision", default=16)
        )

    @property
    def temporal_patch(self) -> int:
        """Frames in a patch."""
        return self.settings.number("temporal_patch_size", part="vision", default=1)

    @property
    def merge(self) -> int:
        """Patches that are merged to one, along each side."""
        names = ("spatial_merge_size", "merge_size", "downsample_factor", "pooling_kernel_size")
        return self.settings.number(*names, part="vision", default=1)

    @property
    def patches(self) -> tuple[int, int]:
        """Rows and columns of patches in an image, in whole groups of those that are merged."""
        (high, wide), (down, right), merged = self.image_size, self.patch, self.merge
        return max(1, high // (down * merged)) * merged, max(1, wide // (right * merged)) * merged

    @property
    def takes_grid(self) -> bool:
        """Whether images come as one row of patches with a grid that says how they lie."""
        return self.has("image_grid_thw") or self.has("grid_thw")

    # From the names that the model's code gives to sizes to numbers.

    def named_size(self, name: str) -> int | None:
        """The number that a name of a size stands for: a number, a known name, a setting of that name, or
        a product of such; None where the model does not say."""
        factors = [self._factor(part.strip()) for part in re.split(r"(?<!\*)\*(?!\*)", name)]
        numbers = [f for f in factors if f]
        return math.prod(numbers) if len(numbers) == len(factors) else None

    def _factor(self, name: str) -> int | None:
        base, _, power = (part.strip() for part in name.partition("**"))
        base = base.removeprefix("config.").removeprefix("self.config.")
        found = int(base) if base.isdigit() else self._known(base)
        return math.prod([self.settings.number(base) if found is None else found] * int(power or 1))

    def _known(self, name: str) -> int | None:
        made = next((make for names, make in _SIZES.items() if name in names.split()), None)
        return None if made is None else made(self)

    def shape(self, argument: str) -> tuple[int, ...] | None:
        """The shape of an argument from the names of its sizes, where all of them are known."""
        found = [self.named_size(name) for name in self.dims(argument)]
        known = [n for n in found if n is not None]
        return tuple(known) if found and len(known) == len(found) else None

    # Tensors

    def floats(self, *shape: int) -> Tensor:
        """Random numbers; without memory when they would be too many."""
        if math.prod(shape) * self.dtype.itemsize > _BIG:
            return torch.empty(shape, dtype=self.dtype, device="meta")
        if self.sizes_only:
            return torch.empty(shape, dtype=self.dtype)
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def ids(self, *shape: int, below: int | None = None) -> Tensor:
        """Random ids inside the vocabulary that mean nothing special (no padding, no end)."""
        self.drawn.update(self._made_now[-1:])
        most = below or self.vocabulary
        special = self._special if below is None else set()
        plain = [i for i in range(min(most, 1000 + len(special))) if i not in special] or [0]
        if self.sizes_only:
            return torch.full(shape, plain[0])
        chosen = torch.randint(len(plain), shape, generator=self.generator)
        return torch.tensor(plain)[chosen]

    @cached_property
    def _special(self) -> set[int]:
        found: set[int] = set()
        for _, value in self.settings.endings("_token_id", "_token_index", "_token_ids"):
            values = value if isinstance(value, list) else [value]
            found.update(v for v in values if isinstance(v, int))
        return found


_SIZES: dict[str, Callable[[Context], int]] = {
    "batch_size bsz": lambda c: c.batch,
    "sequence_length seq_len seq_length": lambda c: c.sequence,
    "target_sequence_length": lambda c: c.decoder_sequence,
    "num_channels channels": lambda c: c.channels,
    "height image_size": lambda c: c.image_size[0],
    "width": lambda c: c.image_size[1],
    "num_frames frames temporal sequence_len": lambda c: c.frames,
    "num_images num_concurrent_media num_videos": lambda _: 1,
    "num_tiles": lambda c: c.settings.number("max_num_tiles", part="vision", default=1),
    "num_patches total_patches": lambda c: math.prod(c.patches) * c.batch,
    "num_image_tokens": lambda c: math.prod(c.patches) // c.merge**2 * c.batch,
    "patch_size": lambda c: c.patch[0],
    "temporal_patch_size": lambda c: c.temporal_patch,
    "spatial_merge_size": lambda c: c.merge,
    "num_codebooks": lambda c: c.settings.number("num_codebooks", "num_channels", part="decoder"),
    "embed_dim hidden_size": lambda c: c.hidden,
}
"""What the names of sizes in models' code stand for."""


def _size_of(module: nn.Module) -> Any:
    """The image size that a module (timm's embeddings of patches) says it is made for."""
    found = getattr(module, "img_size", None)
    return found if isinstance(found, tuple) else None


def named_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name. Raises `InputError`."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"{name} is not a dtype", hint="float32, bfloat16, float16, int64, bool …")
    return found


def learned_positions(model: Model) -> int | None:
    """The most text tokens that a model reads where positions are looked up in a table; None elsewhere."""
    context = _of(model)
    most = context.positions or context.written
    return most if most and context.learned(most) else None


def stated_positions(model: Model) -> int | None:
    """The most text tokens that a model's configuration has positions for; None where it does not say."""
    context = _of(model)
    return context.positions or context.written or None


def _of(model: Model) -> Context:
    return Context(model, InputRequest(), inspect.signature(model.module.forward))


def pair(size: Any) -> tuple[int, int]:
    """Height and width from the ways configurations write them."""
    if isinstance(size, Mapping) or hasattr(size, "shortest_edge"):
        asked = {k: v for k, v in dict(size).items() if isinstance(v, int)}
        if max(asked.values(), default=IMAGE) > _PLENTY:
            return 2 * IMAGE, 2 * IMAGE
        edge = asked.get("shortest_edge") or asked.get("longest_edge") or IMAGE
        return asked.get("height", edge), asked.get("width", edge)
    if isinstance(size, (list, tuple)) and size:
        return int(size[-2] if len(size) > 1 else size[0]), int(size[-1])
    if isinstance(size, int) and size > 0:
        return size, size
    return IMAGE, IMAGE
