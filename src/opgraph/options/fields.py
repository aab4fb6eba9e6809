"""Every option, once: a field with its kind, its default, its help, the stage that heeds it and what it
needs. The arguments of the command line, the signatures of the Python interface, the checks and the table
in docs/options.md are made from these fields: a new option is one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from opgraph.options.kinds import (
    Amount,
    Choice,
    Count,
    Dtype,
    Flag,
    Fragment,
    ImageSize,
    Launched,
    Literal,
    Loss,
    Named,
    ParameterDtype,
    Recorded,
    Several,
    Shape,
    Tensors,
    TensorSpec,
    Text,
    Trained,
    Whole,
)  # fmt: skip
from opgraph.options.option import Option, Stage, option, options_of
from opgraph.record import units
from opgraph.record.errors import InputError, did_you_mean
from opgraph.record.kinds import Bound, Mode, Partition, Run, Tracer
from opgraph.record.layout import SCHEDULES, Layout
from opgraph.record.quantization import ACTIVATIONS, CACHES, FORMATS
from opgraph.record.targets import TARGETS, USUAL

GENERATING = tuple(str(mode) for mode in Mode if mode.generates)
CAPTURES = ("fx", "dynamo", "export", "hybrid")
"""The tracers that capture one forward, in fragments where they must."""
OPTIMIZERS = tuple(
    f"{name}{way}"
    for name in ("sgd", "adam", "adamw")
    for way in ("", "-loop", "-foreach", "-fused")
)
LOSSES = ("auto", "cross-entropy", "sum")
MEMORY_FORMATS = ("contiguous", "channels_last")
DTYPES = ("float32", "bfloat16", "float16", "float64")
"""What the parameters of a model can be."""
MODES = {"reduce-overhead": Run.COMPILED_GRAPHS.value}
"""Modes of `torch.compile` that are ways to run a model here."""
LOWER = ("float16", "bfloat16")
GROUPED = tuple(name for name, form in FORMATS.items() if form.groups)
MULTIPLIED = tuple(name for name, form in FORMATS.items() if form.activations)
"""Formats of weights that take another group size, and those with kernels for activations in fewer bits."""
QUANTIZED = ("weights", "group_size", "activations", "kv_cache")
"""The options that keep weights, activations and the cache in fewer bits."""
PRECISION = ("autocast", *QUANTIZED)
"""The options that say in how many bits a profile computes and is kept."""
CONVENTIONS = {
    "attention": ("full", "causal"),
    "embedding": ("lookup", "matmul"),
}
"""The conventions of counting with their values, opgraph's own first."""
SORTS = (
    "flops",
    "macs",
    "bytes",
    "parameters",
    "time",
    "host",
    "measured",
    "intensity",
    "name",
    "class",
    "params",
    "each",
    "times",
    "share",
    "flops/byte",
    "bound",
)
HEADS = {
    "module": "name", "node": "name", "operator": "name", "× n": "times", "device": "time",
    **{f"% {of}": "share" for of in ("flops", "bytes", "params", "time", "device", "host", "measured")},
}  # fmt: skip
"""Columns that are called otherwise than what rows are sorted by."""
COLORINGS = (
    "bottleneck", "op", "flops", "bytes", "memory", "dtype", "time", "measured", "fusion", "intensity",
)  # fmt: skip
THEMES = ("auto", "light", "dark")
DIRECTIONS = ("down", "right")
MEDIA = ("paper", "column", "slide", "readme", "poster")
KEPT = ("kernels", "modules", "graphs")
"""What a survey can keep of a case beside its figures and times."""
_MOST = 1_000_000
"""More seconds or GiB overflow the counters of the system."""


# One option, one entry: a table that the formatter would make three times as long.
# fmt: off


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `opgraph.profile` takes by keyword: how the model is built, its inputs made, run, traced and
    counted. docs/options.md lists them.

    Values are brought into one form: `dtype=torch.bfloat16` and `"bf16"` become `"bfloat16"`. Raises
    `InputError` for a value that an option cannot have, and for one without effect beside the others.
    """

    head: str | None = option(Text(), Stage.BUILD,
        "head of a transformers model: base, causal-lm, masked-lm, …")
    dtype: str | None = option(ParameterDtype(DTYPES), Stage.BUILD,
        f"of the parameters: {', '.join(DTYPES)}", axis=True, unit="DTYPE", common=True)
    model_args: Mapping[str, Any] = option(Named(Literal()), Stage.BUILD,
        "an argument of the constructor, or a value of a transformers configuration; may be "
        "repeated", default={}, spelled="--model-arg")
    trust: bool = option(Flag(), Stage.BUILD, "let a model file or repository run code of its own",
        default=False)

    batch_size: int | None = option(Whole(), Stage.INPUTS,
        "how many at once", size=True, axis=True, common=True)
    seq_len: int | None = option(Whole(), Stage.INPUTS, "tokens", size=True, axis=True, common=True)
    decoder_seq_len: int | None = option(Whole(), Stage.INPUTS,
        "tokens of the decoder of an encoder-decoder", size=True, axis=True)
    image_size: int | tuple[int, int] | None = option(ImageSize(), Stage.INPUTS,
        "sides of an image in pixels", size=True, axis=True, common=True)
    input_shape: tuple[int, ...] | None = option(Shape(), Stage.INPUTS,
        "shape of the first input, batch included", size=True, common=True)
    input_overrides: Mapping[str, TensorSpec] = option(Named(Tensors()), Stage.INPUTS,
        "any single argument, as in mask=1x77:int64, or a part of one that is a dict or a list, "
        "as in batch.image=1x3x64x64 or boxes.0=4x4; may be repeated", default={}, size=True,
        spelled="--input")

    mode: str = option(Choice(tuple(Mode)), Stage.MODE,
        "; ".join(f"{mode}: {mode.label}" for mode in Mode), default="infer", unit="MODE",
        common=True)
    context_len: int | None = option(Whole(), Stage.MODE,
        "tokens of the prompt (prefill) or in the cache (decode)", needs={"mode": GENERATING},
        size=True, axis=True)
    optimizer: str = option(Choice(OPTIMIZERS), Stage.MODE,
        "what a step of training ends with: sgd, adam, adamw; -loop, -foreach or -fused behind it says "
        "how it goes over the weights",
        unit="NAME", default="adamw", needs={"mode": ("train",)})
    loss: str = option(Loss(LOSSES), Stage.MODE,
        "what is made small: the model's own or cross-entropy with labels made here (auto); cross-entropy "
        "of logits, whose classes are last in three dimensions and else second; or the sum of the outputs; "
        "in Python also a function of what the model returns", default="auto",
        needs={"mode": ("train",)})
    train: str = option(Trained(), Stage.MODE,
        "what is trained: all weights (full), or adapters of low rank beside frozen linear layers (lora), "
        "which may be kept in 4 bits (qlora); with the rank behind it: lora:16", default="full",
        needs={"mode": ("train",)})
    accumulation: bool = option(Flag(), Stage.MODE,
        "the gradients of a step before are there and are added to, as where they are accumulated or set "
        "to zero and not freed", default=False, needs={"mode": ("train",)})
    loss_scaling: bool = option(Flag(), Stage.MODE,
        "the loss is multiplied by a scale and the gradients divided by it, as torch.amp.GradScaler does "
        "where float16 is trained in", default=False, needs={"mode": ("train",)})
    checkpointing: bool = option(Flag(), Stage.MODE,
        "repeated blocks keep their inputs alone, and run again in the backward", default=False,
        needs={"mode": ("train",)})
    checkpointing_policy: str = option(Choice(("full", "selective")), Stage.MODE,
        "what of them runs again: all of it, or what is no product, convolution, attention or collective "
        "(torch's selective checkpointing)", default="full", needs={"checkpointing": ()})

    memory_format: str = option(Choice(MEMORY_FORMATS), Stage.MODE,
        "channels_last: weights and inputs of four dimensions have their channels last, as convolutions on "
        "matrix units want them", default="contiguous", unit="LAYOUT")

    world_size: int | None = option(Whole(), Stage.MODE,
        "ranks of a parallel program, of which one is traced: a file's own code joins them (see "
        "docs/parallel.md)")
    rank: int | None = option(Whole(0), Stage.MODE, "which of them (0)",
        needs=dict.fromkeys(("world_size", "fsdp", "data_parallel", "tensor_parallel", "context_parallel",
                             "pipeline_parallel"), ()))

    tensor_parallel: int | None = option(Whole(), Stage.PARALLEL,
        "ranks that share each operator: columns and rows of linear layers, attention by heads")
    sequence_parallel: bool = option(Flag(), Stage.PARALLEL,
        "between these the tokens are split over the same ranks", default=False,
        needs={"tensor_parallel": ()})
    expert_parallel: int | None = option(Whole(), Stage.PARALLEL,
        "ranks of which each has some of the experts, among those of tensor_parallel and fsdp",
        needs={"fsdp": (), "tensor_parallel": ()})
    context_parallel: int | None = option(Whole(), Stage.PARALLEL,
        "ranks over which the tokens are split throughout, with attention among them by torch's ring; "
        "weights are sharded over these, too")
    pipeline_parallel: int | None = option(Whole(), Stage.PARALLEL, "stages, cut between layers")
    schedule: str = option(Choice(SCHEDULES), Stage.PARALLEL,
        f"in which order a stage takes its micro-batches: {', '.join(SCHEDULES)}", default="1f1b",
        unit="NAME", needs={"pipeline_parallel": ()})
    data_parallel: int | None = option(Whole(), Stage.PARALLEL,
        "copies of all this, each with a batch of its own")
    fsdp: int | None = option(Whole(), Stage.PARALLEL,
        "ranks over which weights, gradients and optimizer state are sharded, by torch's fully_shard on "
        "the repeated blocks and the rest; each has a batch of its own")
    zero: int | None = option(Whole(), Stage.PARALLEL,
        "what fsdp shards: 3 all of it, 2 weights only between steps, 1 gradients only when all "
        "micro-batches are done (3)", needs={"fsdp": (), "context_parallel": ()})
    cpu_offload: bool = option(Flag(), Stage.PARALLEL,
        "what fsdp shards is kept in the host's memory, where the optimizer runs, too (CPUOffloadPolicy)",
        default=False, needs={"fsdp": (), "context_parallel": ()})
    micro_batches: int | None = option(Whole(), Stage.PARALLEL,
        "that a step goes through, one after the other (1)")
    global_batch: int | None = option(Whole(), Stage.PARALLEL,
        "sequences, or images, of a step, all ranks and micro-batches together")

    count: Mapping[str, str] = option(Named(Text(), CONVENTIONS), Stage.COUNTING,
        "FLOPs by another convention: " + ", ".join(f"{n}={v[1]}" for n, v in CONVENTIONS.items()),
        default={}, unit="VALUE")
    fragment: int | str = option(Fragment(), Stage.COUNTING,
        "one fragment of a broken graph: its number, or largest", default="all",
        needs={"tracer": CAPTURES})

    tracer: str = option(Choice(tuple(Tracer)), Stage.TRACING, f"one of {', '.join(Tracer)}",
        default="auto", unit="T")
    target: str | None = option(Choice(TARGETS), Stage.TRACING,
        "whose kernels run: cpu, cuda, mps, or cuda of one generation (cuda:9.0); those of the "
        f"device that is named, else {USUAL}", unit="TARGET")
    fullgraph: bool = option(Flag(), Stage.TRACING, "a graph break is an error", default=False,
        needs={"tracer": ("dynamo", "hybrid"), "inductor": (True,)})
    concrete_args: Mapping[str, Any] = option(Named(Literal()), Stage.TRACING,
        "an argument of forward that fx takes as it is, as in use_cache=False; may be repeated",
        default={}, needs={"tracer": ("fx", "hybrid")})
    warm_up: bool = option(Flag(), Stage.TRACING, "run the model once before tracing it",
        default=False, needs={"mode": ("infer",)})
    memory_limit: float | None = option(Amount(_MOST), Stage.TRACING,
        "memory that a run on real tensors may take, and from 1 GiB on the process with it; half of what "
        "is free if it is not given",
        unit="GiB")
    inductor: bool = option(Flag(), Stage.TRACING,
        "keep the kernels that TorchInductor would run", default=False, hidden=True)
    inductor_autocast: str | None = option(Dtype(LOWER), Stage.TRACING,
        "the mixed precision that TorchInductor compiles for", needs={"inductor": (True,)},
        hidden=True)

    def __post_init__(self) -> None:
        own = options_of(Options)
        for name, each in own.items():
            value = getattr(self, name)
            if value is None and each.default is not None:
                value = each.default
            object.__setattr__(self, name, each.check(value))
        given = {name: getattr(self, name) for name in own}
        told = {n: v for n, v in given.items() if not _is_same(v, own[n].default)}
        check_needs(told, _as_keyword)
        if self.laid_out and self.world_size is not None:
            raise InputError(
                f"{self.laid_out[0]} lays out a model that a program among ranks (world_size) lays out "
                "itself",
                hint="give one of them",
            )
        if (self.laid_out or self.world_size) and (self.tracer in CAPTURES or self.inductor):
            raise InputError(
                f"one rank of many is run and recorded, and not captured by "
                f"{self.tracer if self.tracer in CAPTURES else 'TorchInductor'}",
                hint="leave out the tracer",
            )
        if self.cpu_offload and (self.fsdp or 1) * (self.context_parallel or 1) == 1:
            raise InputError("cpu_offload keeps what is sharded in the host's memory, and one rank shards "
                             "nothing", hint="fsdp=2")  # fmt: skip
        if self.zero is not None and self.zero > 3:
            raise InputError(f"zero is 1, 2 or 3, and not {self.zero}")
        if (self.micro_batches or self.zero) and self.mode != "train":
            raise InputError(
                f"{'micro_batches' if self.micro_batches else 'zero'} has no effect where the mode "
                f"is {self.mode}",
                hint="it goes with mode=train",
            )
        if self.mode != "infer" and self.tracer in CAPTURES:
            raise InputError(
                f"{self.tracer} captures one forward, and not the mode {self.mode}",
                hint="leave out the tracer",
            )
        if self.inductor and (self.tracer not in ("auto", "dynamo") or self.fragment != "all"):
            raise InputError(
                "TorchInductor compiles what Dynamo captures, all of it",
                hint="leave out the tracer and the fragment",
            )

    @property
    def checkpointed(self) -> str | None:
        """How repeated blocks are checkpointed, if they are."""
        return self.checkpointing_policy if self.checkpointing else None

    @property
    def traced_for(self) -> str:
        """The target of a trace; the usual one where none was asked for."""
        return self.target or USUAL

    @property
    def guesses_loss(self) -> bool:
        """Whether the loss is not said; a function that is one is not asked what it equals."""
        return _is_same(self.loss, "auto")

    @property
    def laid_out(self) -> tuple[str, ...]:
        """The options that were given of how it is laid out over ranks."""
        own = options_of(Options)
        given = (n for n in names(Stage.PARALLEL) if getattr(self, n) != own[n].default)
        return tuple(n for n in given if n != "micro_batches")  # one device accumulates gradients, too

    @property
    def shaped(self) -> bool:
        """Whether a batch was asked for, or shapes that may begin with one."""
        named = any(each.shape for each in self.input_overrides.values())
        return bool(self.batch_size or self.input_shape or named)

    @property
    def batch(self) -> int | None:
        """The batch that was asked for (of a micro-batch), by itself or as that of shapes.

        Raises `InputError` where the shapes of single arguments begin with several sizes.
        """
        asked = self.batch_size or (self.input_shape or (None,))[0]
        sizes = {each.shape[0] for each in self.input_overrides.values() if each.shape}
        first = sorted(sizes - {1} or sizes)  # what has one item is for all of them
        if asked is None and len(first) < 2:
            return first[0] if first else None
        if {asked, *first} - {1, asked}:
            said = f"a batch of {asked:,}" if asked else "no batch"
            raise InputError(
                f"{said}, and arguments whose shapes begin with {' and '.join(map(str, first))}",
                hint="the shapes of single arguments (input) begin with the batch",
            )
        return asked

    def of_batch(self, batch: int) -> Options:
        """The same with inputs of another batch: what was asked for in any of these ways, in the same."""
        asked, shape = self.batch, self.input_shape
        named = self.input_overrides
        batched = {
            n: replace(each, shape=(batch, *each.shape[1:]))
            for n, each in named.items()
            if each.shape[:1] == (asked,)
        }
        return replace(
            self,
            batch_size=batch if self.batch_size or not (shape or batched) else None,
            input_shape=shape and (batch, *shape[1:]),
            input_overrides={**named, **batched},
        )

    @property
    def layout(self) -> Layout:
        """Over how many ranks it is laid out, and how.

        Raises `InputError` where the batches do not divide.
        """
        one = Layout(
            tensor=self.tensor_parallel or 1, pipeline=self.pipeline_parallel or 1,
            data=self.data_parallel or 1, micro_batches=self.micro_batches or 1, fsdp=self.fsdp or 1,
            expert=self.expert_parallel or 1, context=self.context_parallel or 1,
            sequence=self.sequence_parallel, zero=self.zero or 3, schedule=cast(Any, self.schedule),
            offload=self.cpu_offload,
        )
        if self.global_batch is None:
            return one
        asked = self.batch
        batch = asked or 1
        if self.micro_batches is None and asked is not None:
            one = replace(one, micro_batches=max(1, self.global_batch // (one.copies * batch)))
        each, left = divmod(self.global_batch, one.copies * one.micro_batches)
        if left or not each or asked not in (None, each):
            raise InputError(
                f"a global batch of {self.global_batch:,} is not {one.copies:,} copies of "
                f"{units.plural(one.micro_batches, 'micro-batch')}"
                + (f" of {batch:,}" if asked else ""),
                hint="global_batch = batch_size x micro_batches x data_parallel x fsdp",
            )
        return one

    @property
    def called(self) -> tuple[Any, ...]:
        """What of the caller's own a run calls beside the model: the loss that is given."""
        return (self.loss,) if callable(self.loss) else ()

    @property
    def sized(self) -> bool:
        """Whether a size of the inputs was asked for."""
        return any(getattr(self, name) for name, each in options_of(Options).items() if each.size)


def several(options: Mapping[str, Any], axes: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """The values of those options that can have several, each once and in its one form."""

    def listed(values: Any) -> Iterable[Any]:
        return values if isinstance(values, Iterable) and not isinstance(values, str) else [values]

    return {
        axis: tuple(dict.fromkeys(OPTIONS[axis].check(v) for v in listed(options[axis])))
        for axis in axes
        if options.get(axis) is not None
    }


def targeted(options: Mapping[str, Any], device: str | None) -> dict[str, Any]:
    """The options with a `device`'s target, where one is named and they say none."""
    target = options.get("target")
    return {**options, "target": device if target is None else target}


def _is_same(value: Any, default: Any) -> bool:
    """Whether an option has its default: objects of somebody's own are not asked what they equal."""
    if issubclass(type(default), str) and not issubclass(type(value), str):
        return False
    return bool(value == default)


def _as_keyword(name: str, value: Any) -> str:
    return name if value is None else f"{name}={value!r}"


class Costing:
    """On what a profile is costed: a device, a precision, subgraphs."""

    hardware: str | None = option(Text(), Stage.COSTING,
        "the time it takes there, its ridge point, and whether it fits (opgraph hardware lists "
        "them); 64xh100-sxm: so many", setting=True, flags=("--device",), unit="DEVICE", common=True)
    network: str | None = option(Text(), Stage.COSTING,
        "what links the nodes: 400Gb/s a device, or a file (.toml); as the device's file says if not "
        "given", needs={"hardware": (), "devices": ()}, unit="SPEED")
    devices_per_node: int | None = option(Whole(), Stage.COSTING,
        "how many devices share a node, as the device's file says if not given",
        needs={"hardware": ()})
    autocast: str | None = option(Dtype(LOWER), Stage.COSTING,
        "as mixed precision would run it, on paper")
    weights: str | None = option(Choice(("none", *FORMATS)), Stage.COSTING,
        "the weights of linear layers and experts in fewer bits, on paper: "
        f"{', '.join(FORMATS)}; none: as they compute, also those that are published in fewer",
        unit="FORMAT")
    group_size: int | None = option(Whole(), Stage.COSTING,
        "numbers of a row that share a scale", needs={"weights": GROUPED, "schemes": ()})
    activations: str | None = option(Choice(tuple(ACTIVATIONS)), Stage.COSTING,
        "what goes into these layers in fewer bits, too: the product then runs on units for them",
        needs={"weights": MULTIPLIED, "schemes": ()}, unit="FORMAT")
    kv_cache: str | None = option(Choice(("none", *CACHES)), Stage.COSTING,
        f"the cache of a prefill or a decoding step in fewer bits: {', '.join(CACHES)}; none: as it "
        "computes", unit="FORMAT")
    run: str | None = option(Launched(tuple(Run), MODES), Stage.COSTING,
        "; ".join(f"{run}: {run.label}" for run in Run), needs={"hardware": ()}, unit="HOW")
    price_per_hour: float | None = option(Amount(1e9), Stage.COSTING,
        "what the device costs an hour: the price of a run there", needs={"hardware": ()})
    memory: bool = option(Flag(), Stage.COSTING,
        "live memory over the run", default=False)
    partition: str | None = option(Choice(tuple(Partition)), Stage.COSTING,
        "what would be fused, by rules or by TorchInductor's scheduler, and what that saves")


class Showing:
    """What of a profile is shown, and how. A view says which of these it heeds."""

    start: int | None = option(Whole(), Stage.NODES, "from this node on")
    end: int | None = option(Whole(), Stage.NODES, "up to this node", unit="M")
    around: int | None = option(Whole(), Stage.NODES, "this node and its neighbours")
    context: int | None = option(Whole(0), Stage.NODES, "how many on each side (10)",
        needs={"around": ()}, unit="K")
    max_nodes: int | None = option(Whole(), Stage.NODES, "the first so many")
    op: str | None = option(Text(), Stage.NODES, "operator: conv2d, 'conv*'", unit="NAME")
    module: str | None = option(Text(), Stage.NODES,
        "module and all below it: encoder.layer.0 (and, in lists, 'layer.*.dense')", unit="PATH")
    bottleneck: str | None = option(Choice(tuple(Bound)), Stage.NODES, "what they are bound by")
    min_flops: float | None = option(Count(1e30), Stage.NODES, "at least so many: 1e9, 1G")
    text: str | None = option(Text(), Stage.NODES, "occurs in name, class, arguments or source")

    depth: int | None = option(Whole(0), Stage.VIEW,
        "levels of modules below the root; as many as fit if not given", setting=True, common=True)
    fold: bool = option(Flag(), Stage.VIEW, "repeated modules one by one", default=True)
    sort: str | None = option(Choice(SORTS, HEADS), Stage.VIEW,
        f"{', '.join(SORTS)}; by execution if not given", unit="KEY", common=True)
    top: int | None = option(Whole(), Stage.VIEW, "only the first N rows")
    show_shapes: bool = option(Flag(), Stage.VIEW, "a column of output shapes", default=False)
    parameters: bool = option(Flag(), Stage.VIEW, "parameters as boxes of their own", default=False)
    color_by: str = option(Choice(COLORINGS), Stage.VIEW, ", ".join(COLORINGS),
        default="bottleneck", unit="WHAT")
    direction: str = option(Choice(DIRECTIONS), Stage.VIEW, "of a picture", default="down")
    medium: str | None = option(Choice(MEDIA), Stage.VIEW,
        "as large and as deep as letters can be read there: paper (7 in wide), column (3.3 in), slide "
        "(16:9), readme (830 px), poster (A0)", spelled="--for")
    caption: str | None = option(Text(), Stage.VIEW, "a sentence under a picture", unit="TEXT")
    header: bool = option(Flag(), Stage.VIEW, "a picture without the name and the totals over it",
        default=True)
    numbers: bool = option(Flag(), Stage.VIEW, "the numbers of nodes on boxes", default=False)
    theme: str = option(Choice(THEMES), Stage.VIEW,
        "of a picture; auto follows the reader's setting, where the format can", default="auto",
        setting=True)
    source_url: str | None = option(Text(), Stage.VIEW,
        "links to source lines, with {path} and {line} in it", unit="URL")
    dpi: float = option(Amount(2400), Stage.VIEW, "dots an inch of a PNG", default=144.0)
    paginate: bool = option(Flag(), Stage.VIEW, "break a PDF into pages", default=False)
    against: str | None = option(Text(), Stage.VIEW,
        "another model or saved profile: show what differs from it; options of its own go with it "
        "in quotes", unit="MODEL")
    by: str = option(Choice(("module", "op", "class", "node")), Stage.VIEW,
        "what a row is, or what is compared", default="module")


class Commanding:
    """What single commands take, and where they write and what they say."""

    fail_if: tuple[str, ...] = option(Several(Text()), Stage.COMMAND,
        "exit with 1 if this holds: 'flops > +2%', 'bytes > +100MiB', 'coverage < 100%'; may be "
        "repeated", default=(), unit="GATE")
    runs: tuple[str, ...] = option(Several(Launched(tuple(Run), MODES)), Stage.COMMAND,
        "how all models run, or given twice or more, ways to run one, to be compared", default=(),
        unit="HOW", spelled="--run")
    schemes: tuple[str, ...] = option(Several(Choice(("none", *FORMATS))), Stage.COMMAND,
        "weights in fewer bits, on paper: of all models, or given twice or more, ways to keep those of "
        "one, to be compared", default=(), unit="FORMAT", spelled="--weights")
    caches: tuple[str, ...] = option(Several(Choice(("none", *CACHES))), Stage.COMMAND,
        "the cache in fewer bits: of all models, or given twice or more, ways to keep that of one, to be "
        "compared", default=(), unit="FORMAT", spelled="--kv-cache")
    symbolic: bool = option(Flag(), Stage.COMMAND,
        "exact formulas in batch B and tokens S (or image side N); a single size given is kept",
        default=False)
    counters: bool = option(Flag(), Stage.COMMAND,
        "the figures of fvcore, torchinfo, ptflops, thop and calflops, which need real weights",
        default=True)
    source: str | None = option(Text(), Stage.COMMAND, "one source: torchvision, hf, timm, …",
        unit="S")
    task: str | None = option(Text(), Stage.COMMAND,
        "what they are for, as the Hugging Face hub calls it, or a part of that: detection")
    max_params: float | None = option(Count(1e30), Stage.COMMAND, "parameters at most: 30M")
    max_flops: float | None = option(Count(1e30), Stage.COMMAND,
        "FLOPs of one call at most, with the inputs listed: 5G")
    page: int | None = option(Whole(), Stage.COMMAND, "the Kth page of fifty names", unit="K")
    examples: bool = option(Flag(), Stage.COMMAND, "commands that are ready to run", default=False)
    models: tuple[str, ...] = option(Several(Text()), Stage.COMMAND,
        "names, patterns ('timm:vit_*') and .txt files of them, with commas; may be repeated", default=(),
        unit="NAMES")
    request_rate: str | None = option(Text(), Stage.COMMAND,
        "requests a second, or several rates: 1,2,4, or inf, where all come at once; rates up to what is "
        "reached if not given", unit="RATE,…")
    input_len: str = option(Text(), Stage.COMMAND,
        "tokens of a prompt, or between which they are: 100-2000 (512)", default="512", unit="N or N-M")
    output_len: str = option(Text(), Stage.COMMAND,
        "tokens that a request asks for, or between which they are (128)", default="128", unit="N or N-M")
    requests: int = option(Whole(), Stage.COMMAND, "how many requests", default=1000)
    workload: str | None = option(Text(), Stage.COMMAND,
        "the requests: a CSV with the columns input and output (tokens) and, if they have a time, arrival "
        "(seconds), or JSON with these keys, a line each", unit="FILE")
    step_tokens: int = option(Whole(), Stage.COMMAND,
        "tokens in a step at most: what is left by sequences that decode goes to prompts", default=8192)
    max_sequences: int = option(Whole(), Stage.COMMAND, "sequences at a time at most", default=256)
    page_tokens: int = option(Whole(), Stage.COMMAND, "tokens in a page of the cache", default=16)
    memory_share: float = option(Amount(1.0), Stage.COMMAND,
        "of the device's memory that weights, a step and the cache take", default=0.9)
    chunked: bool = option(Flag(), Stage.COMMAND,
        "a prompt is read whole, in a step in which none decodes", default=True)
    recorded: str = option(Recorded(), Stage.COMMAND,
        "steps that are launched at once, as graphs: all, those alone in which no prompt is read, or those "
        "of so many tokens at most; else the host launches each kernel", default="all")
    prefix_hits: float | None = option(Amount(1.0), Stage.COMMAND,
        "the share of a prompt that is in the cache already", unit="SHARE")
    draft: str | None = option(Text(), Stage.COMMAND,
        "speculative decoding: the model that drafts", unit="MODEL")
    draft_tokens: int = option(Whole(), Stage.COMMAND, "tokens that it drafts in a step", default=4,
        needs={"draft": ()})
    acceptance: float | None = option(Amount(1.0), Stage.COMMAND,
        "the chance that a drafted token is accepted after those before it", needs={"draft": ()},
        unit="SHARE")
    step_overhead: float | None = option(Amount(1e6), Stage.COMMAND,
        "milliseconds of scheduling beside the device's time of a step", unit="MS")
    disaggregate: str | None = option(Text(), Stage.COMMAND,
        "engines that read prompts, and engines that give out tokens: 1:1", unit="N:M")
    max_first_token: float | None = option(Amount(1e9), Stage.COMMAND,
        "milliseconds to the first token that 99 of 100 requests may wait", unit="MS")
    max_per_token: float | None = option(Amount(1e9), Stage.COMMAND,
        "milliseconds a token after it, likewise", unit="MS")
    seed: int | None = option(Whole(0), Stage.COMMAND, "of arrivals, lengths and drafts (0)")
    devices: str | None = option(Text(), Stage.COMMAND,
        "how many of which device: 1024xh100-sxm", unit="NxDEVICE", flags=("--cluster",))
    explained: bool = option(Flag(), Stage.COMMAND,
        "compare the layout of these options with the best", default=False, spelled="--explain")
    jobs: int | None = option(Whole(), Stage.COMMAND,
        "so many at a time; one for each processor if not given")
    timeout: float = option(Amount(_MOST), Stage.COMMAND, "seconds for one", default=300.0, unit="S")
    keep: tuple[str, ...] = option(Several(Choice(KEPT)), Stage.COMMAND,
        "also its distinct kernels, its modules, or its graph, from which further devices are costed; may "
        "be repeated", default=(), unit="WHAT")
    recost: bool = option(Flag(), Stage.COMMAND,
        "the times of what is there anew, from the graphs that were kept: no model is traced",
        default=False)
    derive: bool = option(Flag(), Stage.COMMAND,
        "trace the smallest and the largest batch, and work out those between, where every figure of a "
        "model is a line in the batch", default=False)
    address: str | None = option(Text(), Stage.COMMAND,
        "of a Ray cluster; this machine alone if not given", unit="HOST:PORT")
    dataset: tuple[str, ...] = option(Several(Text()), Stage.COMMAND,
        "the folder of a survey; may be repeated; the atlas of opgraph if not given", default=(),
        unit="FOLDER")
    clear: bool = option(Flag(), Stage.COMMAND, "remove all profiles that are kept", default=False)
    calibrate: bool = option(Flag(), Stage.COMMAND,
        "measure this machine: products, convolutions, attention, copies and calls", default=False)
    measured: str | None = option(Text(), Stage.COMMAND,
        "fit what the device sustains to kernels that were measured on it (.csv), or to a run that "
        "opgraph measure saved (.json)", flags=("--from",), unit="FILE")
    on: str | None = option(Text(), Stage.COMMAND,
        "where it runs: cpu, cuda, mps, xpu; the accelerator that there is if not given",
        unit="WHERE")
    steps: int | None = option(Whole(), Stage.COMMAND,
        "how often; until the median is steady if not given")
    long: bool = option(Flag(), Stage.OUTPUT,
        "what each node reads and makes, and where it is called, on more lines", default=False)
    interactive: bool = option(Flag(), Stage.OUTPUT, "as a full-screen program", default=False,
        flags=("-i",))
    open: bool = option(Flag(), Stage.OUTPUT, "show it in the browser", default=False)
    json: bool = option(Flag(), Stage.OUTPUT, "as JSON on stdout", default=False)
    markdown: bool = option(Flag(), Stage.OUTPUT, "for a comment on a pull request", default=False)
    format: str | None = option(Text(), Stage.OUTPUT, "on stdout as markdown, csv or json", unit="NAME")
    output: str | None = option(Text(), Stage.OUTPUT, "write to a file, as its suffix says",
        flags=("-o",), unit="FILE")
    verbose: bool = option(Flag(), Stage.SAYING,
        "every attempt, all versions and every disagreement; on stderr, what it took",
        default=False, flags=("-v",))
    quiet: bool = option(Flag(), Stage.SAYING, "no remarks and no progress", default=False,
        flags=("-q",))
    cache: bool = option(Flag(), Stage.SAYING,
        "trace the model again, though its profile is kept", default=True)
    debug: bool = option(Flag(), Stage.SAYING, "show the whole traceback of an error",
        default=False)


# fmt: on

OPTIONS: dict[str, Option] = {
    name: each
    for record in (Options, Costing, Showing, Commanding)
    for name, each in options_of(record).items()
}
"""All options by name, in the order in which help lists them."""


@cache
def names(*stages: Stage) -> tuple[str, ...]:
    """The options that these stages heed."""
    return tuple(n for n, o in OPTIONS.items() if o.stage in stages and not o.hidden)


ON_PAPER = ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batches")
"""The options by which a saved profile, too, is laid out over devices, on paper."""

NAMES = tuple(options_of(Options))
SIZES = tuple(n for n, o in OPTIONS.items() if o.size)
"""The options that say how large the inputs are."""
AXES = tuple(n for n, o in OPTIONS.items() if o.axis)
"""The options that a sweep goes over."""
SERVING = ("request_rate", "input_len", "output_len", "requests", "workload", "step_tokens",
           "max_sequences", "page_tokens", "memory_share", "chunked", "recorded", "prefix_hits", "draft",
           "draft_tokens", "acceptance", "step_overhead", "disaggregate", "seed")  # fmt: skip
"""The options of an engine and of the requests that it serves."""
SETTINGS = tuple(n for n, o in OPTIONS.items() if o.setting)
"""The options that a pyproject.toml can set. Nothing that runs code or writes files: a repository brings
its own."""


def checked(values: Mapping[str, Any], allowed: Collection[str], by: str) -> dict[str, Any]:
    """Values from Python in their one form, if all of them are `allowed`.

    Raises `InputError` for one that `by` does not heed, or that has a value it cannot have.
    """
    for name in values:
        if name not in allowed:
            hint = did_you_mean(name, allowed, 1) or f"it takes {', '.join(allowed)}"
            raise InputError(f"{by} does not take {name}", hint=hint)
    return {name: OPTIONS[name].check(value) for name, value in values.items()}


def check_needs(
    given: Mapping[str, Any],
    spell: Callable[[str, Any], str],
    known: Collection[str] | None = None,
) -> None:
    """Raise `InputError` for an option without effect beside the others: of those `given`, each that needs
    another one must have it. `spell` writes an option with a value as the person does; `known` are the
    options that can be given at all."""
    for name in given:
        needs = {o: f for o, f in OPTIONS[name].needs.items() if known is None or o in known}
        values = {other: given.get(other, OPTIONS[other].default) for other in needs}
        if not needs or any(
            values[o] in fits if fits else values[o] != OPTIONS[o].default
            for o, fits in needs.items()
        ):
            continue
        other, value = next(iter(values.items()))
        apart = f"where the {other} is {value}" if isinstance(value, str) else f"without {other}"
        ways = [spell(o, f) for o, fits in needs.items() if not OPTIONS[o].hidden
                for f in (fits or (None,))]  # fmt: skip
        ways = [w for w in ways if not any(other.startswith(f"{w} ") for other in ways)]
        raise InputError(
            f"{spell(name, None)} has no effect {apart}",
            hint=f"it goes with {' or '.join(ways)}",
        )


# Python signatures that are made from options.


F = TypeVar("F", bound=Callable[..., Any])


def named_options(options: Iterable[str] = NAMES) -> Callable[[F], F]:
    """Let help and completion show options by name where a function takes them as `**options`."""

    def name(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = {p.name for p in own}
        named = [
            inspect.Parameter(
                n, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=o.kind.python
            )
            for n in options
            if n not in taken
            for o in (OPTIONS[n],)
        ]
        function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return function

    return name
