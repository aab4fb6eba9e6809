"""Mixed precision (autocast) on tensors of the CPU that stand for those of a GPU: by the rules for it, and
where a model asks for it on a GPU."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce, wraps
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor
from torch.library import fallthrough_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

from opgraph.record.remarks import Remark
from opgraph.record.turns import Standing, replaced

ATEN = torch.ops.aten

_LOWER = frozenset(
    "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv "
    "linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell "
    "_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _cudnn_rnn "
    "_scaled_dot_product_flash_attention scaled_dot_product_attention".split()
)
_WIDEST = frozenset(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
)
"""Operators that CUDA's autocast runs in the lower dtype, and in the widest that comes in; the others that
it knows run in float32 (ATen/autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP and AT_FORALL_PROMOTE)."""
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


@contextmanager
def cuda_autocast(lower: torch.dtype) -> Iterator[None]:
    """Within, tensors of the CPU are computed with in mixed precision by the rules for a GPU."""
    with cuda_rules(), torch.autocast("cpu", lower):
        yield


class cuda_rules(Standing):  # noqa: N801  (it is used like a function)
    """Within, what autocast does to tensors of the CPU is by the rules for a GPU. What weights are in the
    lower dtype is `kept`, if it is to be."""

    def __init__(self, kept: dict[int, tuple[Tensor, Tensor]] | None = None) -> None:
        self._kept = kept

    def put(self) -> None:
        self._library = _ruled(self._kept)

    def take(self) -> None:
        self._library._destroy()


def _ruled(kept: dict[int, tuple[Tensor, Tensor]] | None) -> torch.library.Library:
    on_gpu, on_cpu = (
        {
            name.partition("::")[2]
            for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
            if name.startswith("aten::")
        }
        for key in ("AutocastCUDA", "AutocastCPU")
    )
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it overrides what torch has
            for name in on_cpu - on_gpu:
                library.impl(name, fallthrough_kernel, "AutocastCPU")
            for name in on_gpu:
                library.impl(name, _in_dtype(name, kept), "AutocastCPU")
    except BaseException:
        library._destroy()
        raise
    return library


def _in_dtype(name: str, kept: dict[int, tuple[Tensor, Tensor]] | None) -> Callable[..., Any]:
    """What autocast runs for an operator: that with its floating-point inputs in another dtype."""
    plain, _, overload = name.partition(".")
    operator = getattr(getattr(ATEN, plain), overload or "default")
    lowers, widest = plain in _LOWER, plain in _WIDEST

    def run(*args: Any, **kwargs: Any) -> Any:
        lower = torch.get_autocast_dtype("cpu")
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        dtypes = [t.dtype for t in given if t.is_floating_point() and t.dtype != torch.float64]
        dtype = reduce(torch.promote_types, dtypes, lower) if widest else torch.float32
        dtype = lower if lowers else dtype

        def given_as(tensor: Tensor) -> Tensor:
            if tensor.dtype not in dtypes or tensor.dtype == dtype:
                return tensor
            if kept is None or not (lowers and tensor.requires_grad and tensor.is_leaf):
                return tensor.to(dtype)
            if id(tensor) not in kept or kept[id(tensor)][1].dtype != dtype:
                kept[id(tensor)] = tensor, tensor.to(dtype)
            return kept[id(tensor)][1]

        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            args, kwargs = tree_map_only(Tensor, given_as, (args, kwargs))
            return operator(*args, **kwargs)

    return run


NOT_FOLLOWED = (
    "forward enters autocast for {}, which does nothing here: its figures are those of the precision of "
    "weights and inputs"
)
MADE_BEFORE = (
    "autocast for cuda was made before the run, and does nothing, as where it is made with enabled=False "
    "or there is no GPU: figures are those of the precision of weights and inputs"
)
TURNED_OFF = "forward turns autocast off for what is to run as it is: --autocast does not heed that"
_AGAIN = "torch.utils.checkpoint"
"""What enters, when it runs a forward once more, what there was."""


class Followed:
    """Within, autocast for the target is autocast of the tensors that stand for its own, which are on the
    CPU (`device`), or else on a fake GPU; what is for others is remarked on."""

    def __init__(self, target: str, device: str, remark: Callable[[Remark], None]) -> None:
        self._stands = target == "cuda" and device == "cpu"
        self._own = {device, target} if self._stands else {device}
        self._remark = remark
        self._made: list[Any] = []
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._flags = _Flags()
        self._stack = ExitStack()
        self._ruled = False
        self._dtypes: dict[str, torch.dtype] = {}

    def __enter__(self) -> None:
        try:
            self._follow()
        except BaseException:  # an interrupt, say
            self.__exit__()
            raise

    def _follow(self) -> None:
        cls = torch.amp.autocast_mode.autocast
        around = _nesting() and not any(map(torch.is_autocast_enabled, self._own))
        if around and _entered_for("cuda"):
            self._remark(Remark("autocast", MADE_BEFORE))
        self._put(cls, "__init__", self._init)
        self._put(cls, "__enter__", self._enter)
        if not self._stands:
            return
        entered = next(filter(torch.is_autocast_enabled, ("cuda", "cpu")), None)  # around the run
        if torch.is_autocast_enabled("cpu"):
            self._rule()
        self._dtypes = {d: torch.get_autocast_dtype(d) for d in ("cpu", "cuda")}
        for name, wrapped in (
            ("is_autocast_enabled", self._is_enabled), ("set_autocast_enabled", self._set_enabled),
            ("get_autocast_dtype", self._get_dtype), ("set_autocast_dtype", self._set_dtype),
            ("clear_autocast_cache", self._clear),
        ):  # fmt: skip
            self._put(torch, name, wrapped)
        self._stack.enter_context(self._flags)
        if (
            entered is not None
        ):  # so it is for both, and whoever sets what he is told changes nothing
            torch.set_autocast_enabled("cuda", enabled=True)
            torch.set_autocast_dtype("cuda", self._dtypes[entered])

    def __exit__(self, *_: object) -> None:
        try:
            self._stack.close()
        finally:
            self._kept.clear()
            self._made.clear()

    def _put(self, owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
        plain = vars(owner)[name]
        self._stack.enter_context(replaced(owner, name, wrapped(plain)))

    def _init(self, plain: Any) -> Any:
        @wraps(plain)
        def init(context: Any, *args: Any, **named: Any) -> None:
            with (
                replaced(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
                replaced(torch.cuda, "is_bf16_supported", lambda *_, **__: True),
            ):
                plain(context, *args, **named)
            self._made.append(context)

        return init

    def _enter(self, plain: Any) -> Any:
        def enter(context: Any) -> Any:
            if context._enabled and context.device not in self._own:
                self._remark(Remark("autocast", NOT_FOLLOWED.format(context.device)))
            made_here = any(each is context for each in self._made)
            if not context._enabled and sys._getframe(1).f_globals["__name__"] != _AGAIN:
                before = context.device == "cuda" and not made_here
                self._remark(Remark("autocast", MADE_BEFORE if before else TURNED_OFF))
            return plain(context)

        return enter

    def _rule(self) -> None:
        """Let what is computed from now on go by the rules for the target."""
        if not self._ruled:
            self._ruled = True
            self._stack.enter_context(cuda_rules(self._kept))

    # What torch says and is told of autocast for the GPU is that of the CPU, and the other way round.

    def _is_enabled(self, plain: Any) -> Any:
        def is_enabled(device_type: str = "cuda") -> bool:
            return bool(plain("cpu" if device_type == "cuda" else device_type))

        return is_enabled

    def _set_enabled(self, plain: Any) -> Any:
        def set_enabled(*args: Any, **named: Any) -> None:
            args += tuple(named[n] for n in ("device_type", "enabled") if n in named)
            *device, enabled = args
            if device in ([], ["cuda"]):
                self._flags.without = (self._flags.without or _flags()) if enabled else None
                plain("cpu", enabled)
            if enabled and device in ([], ["cuda"], ["cpu"]):
                self._rule()
            plain(*args)

        return set_enabled

    def _get_dtype(self, plain: Any) -> Any:
        def get_dtype(device_type: str) -> torch.dtype:
            if device_type not in self._dtypes:
                return cast(torch.dtype, plain(device_type))
            on = torch.is_autocast_enabled("cpu")
            return cast(torch.dtype, plain("cpu")) if on else self._dtypes[device_type]

        return get_dtype

    def _set_dtype(self, plain: Any) -> Any:
        def set_dtype(device_type: str, dtype: torch.dtype) -> None:
            if device_type in self._dtypes:
                if torch.is_autocast_enabled("cpu"):
                    plain("cpu", dtype)
                else:
                    self._dtypes[device_type] = dtype
            plain(device_type, dtype)

        return set_dtype

    def _clear(self, plain: Any) -> Any:
        def clear() -> None:
            self._kept.clear()
            plain()

        return clear


class _Flags(Standing):
    """Of which devices autocast is on, and in which dtype. What is put aside is that of the GPU's; what is
    set for it meanwhile holds in the run, too."""

    def __init__(self) -> None:
        self.without: list[_Flag] | None = None
        """As they would be where there is no GPU, if they are others."""
        self._then: list[_Flag] = []
        self._run: list[_Flag] = []

    def put(self) -> None:
        now = _flags() if self._run else []
        _put_flags(self._run)
        for each, then in zip(now, self._then, strict=True):
            if each != then:
                device, enabled, dtype = each
                torch.set_autocast_dtype(device, dtype)
                torch.set_autocast_enabled(device, enabled)

    def take(self) -> None:
        self._run = _flags()
        if self.without is not None:
            _put_flags(self.without)
        self._then = _flags()


_Flag = tuple[str, bool, torch.dtype]
_ENABLED, _DTYPE = torch.is_autocast_enabled, torch.get_autocast_dtype
_SET_ENABLED, _SET_DTYPE = torch.set_autocast_enabled, torch.set_autocast_dtype


def _flags() -> list[_Flag]:
    return [(device, _ENABLED(device), _DTYPE(device)) for device in ("cpu", "cuda")]


def _put_flags(flags: list[_Flag]) -> None:
    for device, enabled, dtype in flags:
        _SET_ENABLED(device, enabled)
        _SET_DTYPE(device, dtype)


def in_precision(args: Any, lower: bool = True) -> Any:
    """Arguments of what runs instead of a function of torch, as autocast gives them to it, if it is on: in
    the lower precision, or in float32."""
    if not torch.is_autocast_enabled("cpu"):
        return args
    dtype = torch.get_autocast_dtype("cpu") if lower else torch.float32

    def given(tensor: Tensor) -> Tensor:
        plain = tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(dtype) if plain else tensor

    return tree_map_only(Tensor, given, args)


def _entered_for(device: str) -> bool:
    """Whether a context of autocast for a device is entered: torch says of those around only how many there
    are. Whoever entered one has in hand by what it is left."""
    cls = torch.autocast
    left: Iterator[Any] = (m.__self__ for m in gc.get_objects() if type(m) is MethodType)
    if sys.version_info >= (3, 14):  # there it is the context itself
        left = (each for each in gc.get_objects() if issubclass(type(each), cls))
    return any(issubclass(type(each), cls) and each.device == device for each in left)


def _nesting() -> int:
    """How many contexts of autocast are entered."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())
