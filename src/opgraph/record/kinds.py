"""The closed sets that records and views share: what kind of work a kernel is, what bounds it, in which
phase and in which way a model runs, and how it is traced. A member is a text, as files and commands spell
it; its label stands beside it. What it looks like (colour, mark) is in `views.marks`."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class _Labelled(StrEnum):
    """Members are written as `NAME = value, label`."""

    label: str

    def __new__(cls, value: str, label: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label or value.replace("_", " ")
        return member


class Category(_Labelled):
    """The class of work of a kernel."""

    MATMUL = "matmul", "matrix product"
    CONVOLUTION = "convolution"
    GROUPED_CONVOLUTION = "grouped_convolution"
    DEPTHWISE_CONVOLUTION = "depthwise_convolution"
    ATTENTION = "attention"
    RECURRENT = "recurrent", "recurrent layer"
    LINEAR_ALGEBRA = "linear_algebra"
    FFT = "fft", "Fourier transform"
    NORMALIZATION = "normalization"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    POOLING = "pooling"
    INTERPOLATION = "interpolation"
    SORTING = "sorting"
    ELEMENTWISE = "elementwise", "element-wise"
    INDEXING = "indexing"
    COPY = "copy"
    VIEW = "view"
    COLLECTIVE = "collective", "exchange between ranks"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Category:  # noqa: ARG003 - files of others may know more
        return cls.OTHER


class CollectiveKind(_Labelled):
    """What the ranks of a group do with a buffer together."""

    ALL_REDUCE = "all-reduce", "the sum of all goes to all"
    ALL_GATHER = "all-gather", "the pieces of all go to all"
    REDUCE_SCATTER = "reduce-scatter", "of the sum of all, each gets a piece"
    ALL_TO_ALL = "all-to-all", "each has a piece for each"
    PERMUTE = "permute", "each gives what it has to one other"
    BROADCAST = "broadcast", "what one has goes to all"
    REDUCE = "reduce", "the sum of all goes to one"
    GATHER = "gather", "the pieces of all go to one"
    SCATTER = "scatter", "each gets a piece of what one has"
    SEND = "send", "to one other rank"
    RECEIVE = "receive", "from one other rank"
    BARRIER = "barrier", "all wait for all"
    UPLOAD = "upload", "what a rank has in its host's memory goes to its device"
    DOWNLOAD = "download", "what a rank has on its device goes to its host's memory"


TRANSFERS = (CollectiveKind.UPLOAD, CollectiveKind.DOWNLOAD)
"""What a rank does by itself, over the link between its device and its host."""


class Bound(_Labelled):
    """What a piece of work waits for. On a device: arithmetic, memory or launches, whichever takes longest
    there, and other ranks; without one: its intensity above, about or below the ridge point."""

    COMPUTE = "compute"
    BALANCED = "balanced"
    MEMORY = "memory"
    LAUNCH = "launch", "launches"
    EXPOSED = "exposed", "exposed communication"
    BUBBLE = "bubble", "pipeline bubbles"


KERNEL_BOUNDS = (Bound.COMPUTE, Bound.MEMORY, Bound.LAUNCH)
"""What a kernel can wait for on a device."""

DEVICE_BOUNDS = (*KERNEL_BOUNDS, Bound.EXPOSED, Bound.BUBBLE)
"""The same of a device among others: collectives that nothing runs beside, and stages of a pipeline. The
page knows them by their first letters."""


class Run(_Labelled):
    """How the host launches what a device runs."""

    EAGER = "eager", "one operator after the other, each from Python"
    GRAPHS = "graphs", "recorded once and launched at once, as CUDA graphs are"
    COMPILED = "compiled", "the kernels that TorchInductor schedules for the device"
    COMPILED_GRAPHS = "compiled,graphs", "both"
    ENGINE = "engine", "a prefill or a decoding step as an inference engine runs it"

    @property
    def compiled(self) -> bool:
        """Whether a compiler makes the kernels."""
        return "compiled" in self

    @property
    def recorded(self) -> bool:
        """Whether all launches are recorded, so that the host takes no time for them."""
        return "graphs" in self or self is Run.ENGINE


class FusionRule(_Labelled):
    """What a fused subgraph is made of, by the rule that makes it."""

    ATTENTION = "attention"
    CONTRACTION = "contraction", "matrix product or convolution with epilogue"
    NORMALIZATION = "normalization"
    SOFTMAX = "softmax"
    REDUCTION = "reduction", "reduction with prologue"
    MOVEMENT = "movement", "gathering, joining, copying"
    ELEMENTWISE = "elementwise", "element-wise chain"
    VIEW = "view", "view: no work"
    BOUNDARY = "boundary", "input, output, constant"
    SINGLE = "single", "by itself"

    @classmethod
    def _missing_(cls, value: object) -> FusionRule:  # noqa: ARG003 - compilers name others
        return cls.SINGLE


class Phase(_Labelled):
    """The part of a step in which a node runs; what runs again in the backward is recomputed."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class ChangeKind(_Labelled):
    """What became of a node, from one profile to another."""

    COSTLIER = "costlier"
    CHEAPER = "cheaper"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    SAME = "same"


class Mode(_Labelled):
    """A way of running a model."""

    INFER = "infer", "one forward"
    TRAIN = "train", "a step of training: forward, backward, optimizer"
    PREFILL = "prefill", "a prompt is read into an empty cache"
    DECODE = "decode", "one more token, with a cache of those before"

    @property
    def generates(self) -> bool:
        """Whether a cache of tokens is read or filled."""
        return self in (Mode.PREFILL, Mode.DECODE)


class Tracer(_Labelled):
    """A way of finding the graph."""

    AUTO = "auto", "eager on fake tensors, then on real ones where data decides the path"
    EAGER = "eager", "the forward is run once and recorded"
    FX = "fx", "symbolic tracing"
    DYNAMO = "dynamo", "what torch.compile captures"
    EXPORT = "export", "torch.export"
    HYBRID = "hybrid", "warm-up, then fx, dynamo and eager"


class Partition(_Labelled):
    """A way of putting nodes together to subgraphs."""

    NONE = "none", "every node by itself"
    FUSE = "fuse", "by the rules of opgraph"
    INDUCTOR = "inductor", "as TorchInductor schedules"
