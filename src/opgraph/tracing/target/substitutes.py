"""The table of substitutions: torch functions, and what a target runs for them.

Each takes the arguments of the function and gives its result. What was chosen is noted, and what
other targets choose there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from math import sqrt
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn import functional
from torch.nn.attention import SDPBackend

from opgraph.costs.count import dtype_name
from opgraph.costs.formulas.contractions import cudnn_reserve
from opgraph.record.remarks import Remark
from opgraph.record.targets import AS_ON_A_CPU, TARGETS, Substitution, Target, chosen_for
from opgraph.record.turns import replaced
from opgraph.sources.ranks import local
from opgraph.tracing.fake.tensors import REAL_LIMIT
from opgraph.tracing.target.attention import MOST, Attention, AttentionKernel, attention_kernel
from opgraph.tracing.target.autocast import Followed, in_precision

_ATEN = torch.ops.aten
_EACH = tuple(t for t in TARGETS if t != "cuda")
_ATTENTION = torch._C._nn.scaled_dot_product_attention
"""The function itself, whatever a program has put in its place (as torch's `context_parallel` does)."""
_STAND_INS = (FakeTensor, FunctionalTensor)
"""Tensors that compute nothing: those of a trace, and those that a compiler captures with."""


SPREAD = Remark(
    "routing",
    "taken to choose each of its experts equally often (or of what else it scores): which it does is in "
    "the data",
)
"""The remark on a run in which the best of some scores were taken to be each equally often."""


WHICH_BRANCH = Remark(
    "branch",
    "numbers by which the forward chooses its way are taken to be finite, greater than what they are "
    "compared with, and as it asks of all or any of them",
)
"""The remark on a run in which Python asked for the answer of such a comparison."""


MATCHED = Remark(
    "routing",
    "taken to score all alike that it matches outside of torch (boxes with the truth, for instance): "
    "which are chosen is in the data",
)
"""The remark on a run in which values were handed to NumPy."""


AGAIN = (
    "attention's backward has 5 products with {}, which keeps no scores and computes them again, and 4 "
    "with {}"
)
"""The remark on FLOPs that a target has and a CPU has not, or the other way round."""


BEYOND = Remark(
    "target",
    f"flash attention is chosen for more than {MOST:,} sequences or heads, which CUDA cannot launch: "
    "torch would fail there",
)
"""Its grid has these in y and z, which are at most so many (CUDA C++ Programming Guide, table of technical
specifications); torch's rules of choice do not ask."""


FLEXIBLE = Remark(
    "target",
    "flex_attention is counted, and takes the time, of all pairs, also of those its mask leaves out",
)
"""What torch's own formula for it does, too."""


METAL_LSTM = Remark(
    "target",
    "on mps an LSTM is one kernel (_lstm_mps), whose sizes torch does not say: a CPU's are here",
)


RESERVE = Remark(
    "target",
    "what cuDNN keeps of a recurrent layer for its backward is taken from what it kept in 2017 (5 states "
    "of an LSTM at each step, 6 of a GRU)",
)


class Substitutes:
    """What a target runs instead of torch functions, and which of it was run. On real tensors, which are
    on the CPU, that is what a CPU can run, too; of the rest it is noted that it runs as there."""

    def __init__(
        self,
        target: str = "cpu",
        *,
        real: bool = False,
        spread: bool = False,
        placed: bool = False,
    ) -> None:
        self.target = target
        self.device = target.partition(":")[0]
        self._real = real
        self._noted: Counter[tuple[str, str, tuple[tuple[str, str], ...]]] = Counter()
        self.remarks: list[Remark] = []
        self._spread = spread
        self.placed = placed
        self._best = 0

    def table(self) -> dict[Any, Callable[..., Any]]:
        """What runs, by the function that it stands for: made for who asks, since it leads to this."""
        inner: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": self._attention}
        own: dict[Any, Callable[..., Any]] = {
            functional.ctc_loss: _ctc_loss(functional.ctc_loss),
            torch.ctc_loss: _ctc_loss(torch.ctc_loss),
        }
        if self.device == "cuda":
            inner["dropout"] = self._dropout
            own |= {
                functional.dropout: self._dropout,
                torch.dropout: self._plain_dropout,
                torch.lstm: self._recurrent(2, torch.lstm),
                torch.gru: self._recurrent(3, torch.gru),
                torch.rnn_tanh: self._recurrent(1, torch.rnn_tanh),
                torch.rnn_relu: self._recurrent(0, torch.rnn_relu),
                torch.lstm_cell: self._cell(torch.lstm_cell, _ATEN._thnn_fused_lstm_cell),
                torch.gru_cell: self._cell(torch.gru_cell, _ATEN._thnn_fused_gru_cell),
            }
        elif self.device == "mps":
            own |= {torch.lstm: self._lstm_of_metal}
        if self.device in ("cuda", "mps"):
            own |= {functional.rms_norm: self._rms_norm, torch.rms_norm: self._rms_norm}
        attends = functional.multi_head_attention_forward
        own |= {
            _ATTENTION: self._attention,
            _ATEN.scaled_dot_product_attention.default: self._attention,
            attends: _rewired(attends, inner),
        }
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:
            own[flex.flex_attention_hop] = self._flexible
        if self._spread:
            topk, argmax, most = self._topk, self._argmax, self._max
            own |= {
                torch.topk: topk, Tensor.topk: topk, torch.zeros_like: _counted,
                torch.argmax: argmax, Tensor.argmax: argmax, torch.max: most, Tensor.max: most,
                Tensor.new_full: _filled, Tensor.numpy: self._alike, Tensor.__array__: self._alike,
                **{f: partial(self._answered, f, answer) for f, answer in _ANSWERS.items()},
            }  # fmt: skip
        return own

    @property
    def foreach(self) -> bool:
        """Whether an optimizer updates all weights at once where nothing else is asked for (torch.optim,
        `_default_to_fused_or_foreach`)."""
        return self.device == "cuda"

    def note(self, op: str, chosen: str, choices: Mapping[str, str]) -> None:
        """Keep what was chosen, and what others would."""
        self._noted[op, chosen, tuple(choices.items())] += 1

    def note_foreach(self, optimizer: str) -> None:
        """Keep that an optimizer updates all weights at once."""
        self.note(optimizer, "foreach", _ON_CUDA["foreach"])

    def _chosen(self, choices: Mapping[str, str]) -> str | None:
        """What runs, of what each target would choose."""
        return chosen_for(choices, "cpu" if self._real else self.target)

    def _as_on_a_cpu(self, op: str, kernel: str) -> None:
        """Keep that real tensors leave no choice, where there is another kernel for it."""
        self.note(op, AS_ON_A_CPU, _ON_CUDA[kernel])

    def _remark(self, text: Remark) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def found(self) -> Target:
        """The target, with all that was substituted."""
        noted = self._noted.items()
        return Target(
            self.target, tuple(Substitution(op, c, dict(each), n) for (op, c, each), n in noted)
        )

    def autocast(self, weights: Iterable[Tensor]) -> AbstractContextManager[None]:
        """Within, autocast for the target is that of the tensors that stand for its own."""
        devices = {t.fake_device if type(t) is FakeTensor else t.device for t in weights}
        device = "cuda" if any(device.type == "cuda" for device in devices) else "cpu"
        return Followed(self.device, device, self._remark)

    # Each of these has the arguments of the function it stands for.

    def unrefused(self) -> AbstractContextManager[Any]:
        """Within, `flex_attention` is not refused for having no backward on a CPU, where none is meant."""
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is None or self._real or self.device == "cpu":
            return nullcontext()
        return replaced(flex, "_validate_device", lambda *_: None)

    def _flexible(self, *args: Any, **named: Any) -> Any:
        self._remark(FLEXIBLE)
        return torch.ops.higher_order.flex_attention(*args, **named)

    def _jagged(self, kernel: str | None, query: Tensor, *args: Any, **named: Any) -> Any:
        """By a kernel that is named; torch would ask the driver which one goes, and there may be none."""
        from torch.nested._internal import sdpa

        chosen = getattr(SDPBackend, _BACKENDS[kernel or "math"])
        with replaced(sdpa, "_select_sdp_backend", lambda *_: chosen):
            return _ATTENTION(query, *args, **named)

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        query, key, value, attn_mask = in_precision((query, key, value, attn_mask))
        given = (query, key, value)
        if query.layout is torch.jagged:
            return self._attention_of_lengths(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
            )
        here = local(query), local(key), local(value)
        as_it_is = partial(
            _ATTENTION, query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )  # fmt: skip
        if not self._real and not all(type(t) in _STAND_INS for t in here):
            return as_it_is()
        call = _described(*here, attn_mask, dropout_p, is_causal, enable_gqa)
        choices = {t: attention_kernel(call, t) for t in _EACH}
        kernel = self._chosen(choices)
        self.note("scaled_dot_product_attention", kernel or "", choices)
        if self._real or self.device == "cpu":
            return as_it_is()
        if kernel == "flash" and max(call.batch, call.heads) > MOST:
            self._remark(BEYOND)
        if call.gradient and (kernel == "math") != (choices["cpu"] == "math"):
            two = ("a CPU", kernel) if kernel == "math" else (kernel, "a CPU")
            self._remark(Remark("target", AGAIN.format(*two)))
        if kernel == "math":
            return _ATEN._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal,
                scale=scale, enable_gqa=enable_gqa,
            )[0]  # fmt: skip
        if kernel == "metal":  # it keeps all scores, and frees them with the call
            return _ATEN._scaled_dot_product_attention_math_for_mps(
                query, key, value, attn_mask, dropout_p, is_causal, None,
                scale=scale, enable_gqa=enable_gqa,
            )[0]  # fmt: skip
        size = query.shape[-1]
        if scale is None:
            scale = 1 / sqrt(size)
        mask = None if attn_mask is None else _additive(attn_mask, query)
        if kernel == "flash":
            # Heads are padded to a multiple of 8 (`pad_last_dim`).
            padded = [functional.pad(t, (0, -size % 8)) if size % 8 else t for t in given]
            out = _ATEN._scaled_dot_product_flash_attention(
                *padded, dropout_p, is_causal, scale=scale
            )[0]
            return out[..., :size] if size % 8 else out
        if kernel == "efficient" and mask is not None and not _aligned(mask):
            count = mask.shape[-1]
            mask = functional.pad(mask, (0, _ALIGNED - count % _ALIGNED))[..., :count]
        if mask is not None:
            mask = mask.expand(*query.shape[:3], key.shape[2])
        if kernel == "cudnn":
            return _ATEN._scaled_dot_product_cudnn_attention(
                *given, mask, call.gradient, dropout_p, is_causal, scale=scale
            )[0]
        return _ATEN._scaled_dot_product_efficient_attention(
            *given, mask, call.gradient, dropout_p, is_causal, scale=scale
        )[0]

    def _attention_of_lengths(
        self, query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool,
        scale: float | None, grouped: bool,
    ) -> Any:  # fmt: skip
        """Of jagged tensors, whose sequences lie one after another: the same kernels in another order, of
        which cuDNN's is the last (torch/nested/_internal/sdpa.py)."""
        call = _described(query, key, value, mask, dropout, causal, grouped)
        call = replace(
            call, queries=query._get_max_seqlen(), keys=key._get_max_seqlen(), dense=True,
            off=call.off | {"cudnn"},
        )  # fmt: skip
        choices = {t: attention_kernel(call, t) if t.startswith("cuda") else "math" for t in _EACH}
        kernel = self._chosen(choices)
        self.note("scaled_dot_product_attention", kernel or "", choices)
        named = {"scale": scale, "enable_gqa": grouped}
        return self._jagged(kernel, query, key, value, mask, dropout, causal, **named)

    def _dropout(
        self,
        input: Tensor,  # noqa: A002
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Any:
        if inplace or not training or not 0 < p < 1 or not input.numel():
            return functional.dropout(input, p, training, inplace)
        self.note("dropout", "native_dropout", _ON_CUDA["native_dropout"])
        return torch.native_dropout(input, p, train=training)[0]

    def _plain_dropout(self, input: Tensor, p: float, train: bool) -> Any:  # noqa: A002
        return self._dropout(input, p, train)

    def _rms_norm(
        self, input: Tensor, normalized_shape: Any, weight: Tensor | None = None,  # noqa: A002
        eps: float | None = None,
    ) -> Any:  # fmt: skip
        input, weight = in_precision((input, weight), lower=False)  # noqa: A001
        given = (input,) if weight is None else (input, weight)
        followed = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        fused = weight is None or weight.dtype == input.dtype
        if self.device == "mps" and followed:
            fused = False  # it has no kernel for the backward
        if fused and self._real:
            self._as_on_a_cpu("rms_norm", "_fused_rms_norm")
        if not fused or type(input) is not FakeTensor:
            return functional.rms_norm(input, normalized_shape, weight, eps)
        self.note("rms_norm", "_fused_rms_norm", _ON_CUDA["_fused_rms_norm"])
        return _RMSNorm.apply(input, list(normalized_shape), weight, eps)

    def _topk(self, input: Tensor, k: int, dim: int = -1, *rest: Any, **more: Any) -> Any:  # noqa: A002
        """The best of some scores: each of them equally often, in turn. Which they are is in the values,
        and how much is done with all of them together is not."""
        best = torch.topk(input, k, dim, *rest, **more)
        if type(best.indices) is not FakeTensor or dim not in (-1, input.dim() - 1):
            return best
        self._remark(SPREAD)
        with torch._C._DisableTorchDispatch():
            count, size = best.indices.numel(), input.shape[-1] if input.dim() else 1
            turns = torch.arange(count)
            if 0 < count < size:  # from all over, with the end of all
                turns = (turns % k + 1) * (size // k) - 1 - turns // k
            indices = turns.view(best.indices.shape) % size
        return torch.return_types.topk((best.values, indices))

    def _argmax(
        self,
        input: Tensor,  # noqa: A002
        dim: int | None = None,
        keepdim: bool = False,
    ) -> Tensor:
        """The same for the best one."""
        best = torch.argmax(input, dim, keepdim)
        return self._in_turn(best, input) if dim in (-1, input.dim() - 1) else best

    def _max(self, input: Tensor, *args: Any, **named: Any) -> Any:  # noqa: A002
        """And for the greatest along a dimension, of which there is the place, too."""
        most = torch.max(input, *args, **named)
        if isinstance(most, Tensor):
            return most
        return torch.return_types.max((most.values, self._in_turn(most.indices, input)))

    def _in_turn(self, best: Tensor, scores: Tensor) -> Tensor:
        """Places of the best: the next call begins with the next, as for a second choice it must."""
        if type(best) is not FakeTensor:
            return best
        self._remark(SPREAD)
        with torch._C._DisableTorchDispatch():
            turns = torch.arange(self._best, self._best + best.numel()).view(best.shape)
            self._best += 1
            return turns % max(1, scores.numel() // max(1, best.numel()))

    def _answered(self, function: Any, answer: bool, *args: Any, **named: Any) -> Tensor:
        """Whether numbers are finite (which is known of each, where that is no mask too large to be looked
        at), or what Python asks of one."""
        out: Tensor = function(*args, **named)
        one = out.dim() == 0 or function in _FINITE
        if type(out) is not FakeTensor or not one or out.numel() > REAL_LIMIT:
            return out
        self._remark(WHICH_BRANCH)
        with torch._C._DisableTorchDispatch():
            known = torch.full(out.shape, answer)
        known.stands_for = out  # whose memory it takes
        return known

    def _alike(self, tensor: Tensor, *args: Any, **named: Any) -> Any:
        """Values that NumPy gets: all the same."""
        if type(tensor) is not FakeTensor:
            return tensor.__array__(*args) if args else tensor.numpy(**named)
        self._remark(MATCHED)
        with torch._C._DisableTorchDispatch():
            return torch.zeros(tensor.shape, dtype=tensor.dtype).numpy()

    def _lstm_of_metal(self, *args: Any) -> Any:
        self._remark(METAL_LSTM)
        return torch.lstm(*args)

    def _recurrent(self, mode: int, function: Any) -> Callable[..., Any]:
        """A recurrent layer of cuDNN (`mode` is its number of the kind), all layers and directions at once,
        over [steps, batch, i] or over the packed positions of sequences of several lengths."""

        def run(*args: Any, **named: Any) -> Any:
            args += tuple(named.pop(n) for n in _RECURRENT[len(args) :] if n in named)
            if named:  # packed ones, by name
                return function(*args, **named)
            x, *rest = args = in_precision(args)
            together = isinstance(rest[1], (list, tuple)) and not isinstance(rest[2], (list, tuple))
            steps = [] if together else rest.pop(0).tolist()
            hx, weights, biases, layers, dropout, train, both, *first = rest
            if self._real:
                self._as_on_a_cpu(function.__name__, "_cudnn_rnn")
            if self._real or not any(type(t) in _STAND_INS for t in (x, *weights)):
                return function(*args)
            state, cell = hx if mode == 2 else (hx, None)
            width = state.shape[-1]
            hidden = width if cell is None else cell.shape[-1]
            projected = 0 if hidden == width else width
            each = 2 + 2 * bool(biases) + bool(projected)
            _know_cudnn_backward()
            self.note(function.__name__, "_cudnn_rnn", _ON_CUDA["_cudnn_rnn"])
            flat = x.new_empty(0)  # on a GPU the weights lie in one piece, and are read once
            out, h, c, *_ = _ATEN._cudnn_rnn.default(
                x, weights, each, flat, state, cell, mode, hidden, projected, layers, *(first or [False]),
                dropout, train, both, steps, None,
            )  # fmt: skip
            if train:
                positions = x.shape[:-1].numel()
                kept = cudnn_reserve(mode, positions, hidden, layers, 1 + bool(both), x.itemsize)
                self._remark(RESERVE)
                _keep(x.new_empty(kept, dtype=torch.uint8), out)
            return (out, h, c) if mode == 2 else (out, h)

        return run

    def _cell(self, function: Any, fused: Any) -> Callable[..., Any]:
        """One step of a recurrent layer: its two products, and one kernel for all that comes of them."""

        def run(
            x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor,
            b_ih: Tensor | None = None, b_hh: Tensor | None = None,
        ) -> Any:  # fmt: skip
            x, hx, w_ih, w_hh, b_ih, b_hh = in_precision((x, hx, w_ih, w_hh, b_ih, b_hh))
            name, (state, *cell) = fused.__name__, hx if isinstance(hx, (list, tuple)) else (hx,)
            if self._real:
                self._as_on_a_cpu(function.__name__, name)
            if self._real or not any(type(t) in _STAND_INS for t in (x, state, w_ih, w_hh)):
                return function(x, hx, w_ih, w_hh, b_ih, b_hh)
            self.note(function.__name__, name, _ON_CUDA[name])
            products = torch.matmul(x, w_ih.t()), torch.matmul(state, w_hh.t())
            made = fused(*products, *(cell or [state]), b_ih, b_hh)
            return made[:2] if cell else made[0]

        return run


_FINITE = {
    getattr(of, name): name == "isfinite"
    for name in ("isfinite", "isinf", "isnan")
    for of in (torch, Tensor)
}
_ANSWERS = _FINITE | {
    getattr(of, name): name.strip("_")[0] in "ga"
    for name in (
        "all", "any", "gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal",
        "__gt__", "__ge__", "__lt__", "__le__",
    )
    for of in (torch, Tensor)
    if hasattr(of, name)
}  # fmt: skip
"""What is answered where Python asks whether a number that nobody knows is finite, or greater than another,
or whether all or any of them are as they are asked about."""


def _counted(like: Tensor, **named: Any) -> Tensor:
    """Zeros like a tensor: flags and counts have values where it has none, since choices have."""
    wanted = named.get("dtype")
    if type(like) is FakeTensor and wanted is not None and not wanted.is_floating_point:
        return torch.zeros(like.shape, dtype=wanted)
    return torch.zeros_like(like, **named)


def _filled(like: Tensor, size: Any, fill_value: Any, **named: Any) -> Tensor:
    """A new tensor of one number has that number, whatever it was made like."""
    return torch.full(size, fill_value, **{"dtype": like.dtype, "device": like.device, **named})


def _keep(tensor: Tensor, result: Tensor) -> None:
    """Let a tensor live until the gradient of a result has been computed."""
    if result.grad_fn is not None:
        kept = [tensor]
        result.grad_fn.register_hook(lambda *_: kept.clear())


_RECURRENT = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train",
              "bidirectional", "batch_first")  # fmt: skip
"""The arguments of torch's recurrent layers."""


@cache
def _know_cudnn_backward() -> torch.library.Library:
    """Tell torch what the gradients of cuDNN's recurrent layers look like, which it only knows on a GPU."""
    library = torch.library.Library("aten", "IMPL")

    def shapes(
        x: Tensor, weights: Any, _each: int, _flat: Any, hx: Tensor, cx: Any, *_: Any
    ) -> Any:
        made = [torch.empty_like(w) for w in weights]
        cell = x.new_empty(0) if cx is None else torch.empty_like(cx)
        return torch.empty_like(x), torch.empty_like(hx), cell, made

    library.impl("_cudnn_rnn_backward", shapes, "Meta")
    return library


_ON_CUDA = {
    kernel: {
        t: kernel
        if t.startswith("cuda") or (t == "mps" and kernel == "_fused_rms_norm")
        else AS_ON_A_CPU
        for t in _EACH
    }
    for kernel in (
        "native_dropout", "_fused_rms_norm", "foreach", "_cudnn_rnn", "_thnn_fused_lstm_cell",
        "_thnn_fused_gru_cell",
    )
}  # fmt: skip
"""What every device runs that torch calls "cuda", and the others do not."""


def _rewired(function: Any, names: Mapping[str, Any]) -> Any:
    """A Python function of torch's that calls others than those it names: what it calls itself is not
    heard, since only outermost calls are."""
    made = FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    return made


_BACKENDS = {
    "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH",
    "cudnn": "CUDNN_ATTENTION",
}  # fmt: skip

_ENABLED: Mapping[AttentionKernel, Callable[[], bool]] = {
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
}
"""What says whether a kernel may be taken (`sdpa_kernel`)."""


def _order() -> tuple[AttentionKernel, ...]:
    """In which order kernels are to be tried; none where nobody has said so, and a device has its own."""
    asked = torch._C._get_sdp_priority_order()
    if asked in _USUAL:
        return ()
    named: dict[int, Any] = {int(getattr(SDPBackend, b)): k for k, b in _BACKENDS.items()}
    return tuple(named[number] for number in asked if number in named)


_USUAL = ([1, 2, 0, 3, 4], [3, 1, 2, 0], [3, 1, 2, 0, 4])
"""The orders that torch itself sets: at first, and on devices where cuDNN's kernel comes first."""


def _described(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool,
    grouped: bool,
) -> Attention:  # fmt: skip
    four = query.dim() == key.dim() == value.dim() == 4
    gradient = torch.is_grad_enabled()
    return Attention(
        dtype=dtype_name(query.dtype),
        queries=query.shape[-2], keys=key.shape[-2], head_size=query.shape[-1],
        key_size=key.shape[-1], value_size=value.shape[-1],
        batch=query.shape[0],
        heads=query.shape[1] if four else 1,
        key_heads=key.shape[1] if four else 1,
        value_heads=value.shape[1] if four else 1,
        dimensions=4 if four else query.dim() if query.dim() != 4 else 0,
        mask=mask is not None,
        mask_gradient=gradient and mask is not None and mask.requires_grad,
        dropout=dropout, causal=causal, grouped=grouped,
        gradient=gradient and any(t.requires_grad for t in (query, key, value)),
        dense=all(t.stride(-1) == 1 or t.shape[-1] == 1 for t in (query, key, value))
        and (mask is None or mask.stride(-1) == 1),
        off=frozenset(kernel for kernel, enabled in _ENABLED.items() if not enabled()),
        order=_order(),
    )  # fmt: skip


def _additive(mask: Tensor, query: Tensor) -> Tensor:
    """A mask of booleans as one that is added (`convert_boolean_attn_mask`)."""
    if mask.dtype != torch.bool:
        return mask
    kept, left_out = (torch.full((), x, dtype=query.dtype, device=query.device)
                      for x in (0.0, -torch.inf))  # fmt: skip
    return torch.where(mask, kept, left_out)


_ALIGNED = 8


def _aligned(mask: Tensor) -> bool:
    """Whether the rows of a mask begin where the efficient kernel can read them: at multiples of 8 numbers
    (attention.cpp, `preprocess_mask`). Others are padded before they are expanded."""
    *strides, last = mask.stride()
    return last == 1 and not any(stride % _ALIGNED for stride in strides)


def _ctc_loss(function: Any) -> Callable[..., Any]:
    """The loss with lengths as numbers where they are known, as torch takes those of plain tensors
    (aten/src/ATen/native/LossCTC.cpp): they say how large its results are."""

    def run(logarithms: Tensor, targets: Tensor, *args: Any, **named: Any) -> Any:
        args += tuple(named.pop(n) for n in ("input_lengths", "target_lengths")[len(args) :])
        steps, letters, *rest = args
        if type(steps) is type(letters) is Tensor:
            steps, letters = steps.reshape(-1).tolist(), letters.reshape(-1).tolist()
        return function(logarithms, targets, steps, letters, *rest, **named)

    return run


class _RMSNorm(torch.autograd.Function):
    """The kernels of RMS normalization, which on a CPU come apart before they are heard."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: list[int], weight: Tensor | None, eps: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            out, rms = _ATEN._fused_rms_norm.default(x, shape, weight, eps)
        ctx.save_for_backward(x, rms, weight)
        ctx.shape = shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, rms, weight = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], weight is not None and ctx.needs_input_grad[2]]
        with torch._C._AutoDispatchBelowAutograd():
            dx, dw = _ATEN._fused_rms_norm_backward.default(
                grads[0], x, ctx.shape, rms, weight, wanted
            )
        return dx, None, dw, None
