"""What TorchInductor would run: the kernels of its own scheduler for the target, for each fragment that
Dynamo captures. The compiler is stopped once it has scheduled, so no code is generated, and neither a
compiler of C++ nor a GPU is needed.

For "cuda" the captured graph is lowered on fake tensors that say they are there, while the few functions
that would ask a driver answer for a device of that generation (`on_cuda`).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from math import prod
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.hub import tqdm
from torch.nn import functional
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from opgraph.costs.count import cost, describe, dtype_name
from opgraph.hardware import devices
from opgraph.inputs.base import Example
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.record.graph import Graph, Kernel, Node, Storage
from opgraph.record.profile import GENERATED, Access, Compiled, CompiledKernel, Phase
from opgraph.record.targets import ASSUMED
from opgraph.record.turns import variables
from opgraph.sources.base import Model
from opgraph.tracing.base import Outcome, Prepare, TraceOptions
from opgraph.tracing.replay.dynamo import Around, Backend, trace
from opgraph.tracing.replay.joint import (
    Kept,
    Strides,
    dynamo_names,
    is_again,
    lower_both,
)
from opgraph.tracing.state.signals import at_work
from opgraph.tracing.target import Substitutes
from opgraph.tracing.target.autocast import cuda_autocast

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
Layout = Literal["contiguous", "channels-last"]

AGAIN = "again "
"""Before the name of a node that a backward computes again."""

_THREADS = {"7.5": 1024, "8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536}
"""Resident threads of a multiprocessor by compute capability; 2,048 of the others (CUDA C++ Programming
Guide, table of technical specifications)."""


def trace_compiled(
    model: Model, example: Example, options: TraceOptions, autocast: str | None = None,
    prepare: Prepare | None = None, around: Around | None = None,
) -> tuple[list[Outcome], Compiled]:  # fmt: skip
    """Dynamo's trace of a model, and the kernels that TorchInductor makes of it for the target, in mixed
    precision where one is given. `around` is what is run with the forward in its midst (see `trace`).

    Raises `InputError` for a target that it is not asked for here, `TraceError` when it cannot compile a
    fragment.
    """
    for starts_processes in ("torch.cuda._utils", "torch._inductor.compile_fx"):
        import_module(starts_processes)  # of its own, which are none of the model's

    compiler = Compiler(options.target, autocast)
    backend = Backend(compiler.compile, compiler.ran)
    outcomes = trace(model, example, options, backend, prepare, around)
    if compiler.failed:
        reason = first_line(compiler.failed[0])
        raise TraceError(
            f"TorchInductor cannot compile {model.info.name}: {reason}"
        ) from compiler.failed[0]
    graph = outcomes[-1].graph
    return outcomes, Compiled(options.target, autocast, ()) if graph is None else compiler.compiled(
        graph
    )


@dataclass(slots=True)
class Scheduled:
    """A kernel of one fragment: what it does, the nodes of Dynamo's graph that it computes, and the
    buffers that it reads and writes, by name and in bytes."""

    kernel: Kernel
    sources: tuple[str, ...]
    reads: dict[str, int]
    writes: dict[str, int]
    layout: Layout = "contiguous"


@dataclass
class Fragment:
    """The kernels of a fragment that was compiled. `same` says of a buffer in the memory of which other one
    it is, `sizes` how many bytes are allocated for the others, `results` which buffer each result is, and
    `strides` how that lies; of one that is trained, `backward` is that of its gradients, and `kept` what
    passes to it."""

    kernels: list[Scheduled] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    results: Sequence[tuple[str, str]] = ()
    strides: Strides = ()
    backward: Fragment | None = None
    kept: Kept = Kept()  # noqa: RUF009  (it is frozen)

    def whole(self, name: str) -> str:
        """The buffer in the memory of which one is, or itself."""
        while name in self.same:
            name = self.same[name]
        return name

    def returned(self, results: int | None = None) -> set[str]:
        """The buffers of the first results, or of all."""
        return {self.whole(buffer) for _, buffer in self.results[:results]}


class Compiler:
    """TorchInductor for one target, as the backend of one trace: what was compiled, and what of that was
    run, in order."""

    def __init__(self, target: str, autocast: str | None = None) -> None:
        device = target.partition(":")[0]
        if device not in ("cpu", "cuda"):
            raise InputError(f"TorchInductor's kernels are not worked out for {target}",
                             hint="they are for cuda and for cpu")  # fmt: skip
        if device == "cpu" and autocast is not None:
            raise InputError("TorchInductor's mixed precision is that of cuda",
                             hint="name a GPU, or leave out --autocast")  # fmt: skip
        self.target, self.autocast = target, autocast
        self.machine = properties(target) if device == "cuda" else None
        self.failed: list[BaseException] = []
        self._ran: list[tuple[int, Fragment, Mapping[str, int], Mapping[str, int]]] = []

    def compile(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Fragment:
        """The kernels of a captured graph; none where the compiler fails, which is kept."""
        try:
            with at_work():
                return schedule(gm, inputs, self.machine, self.autocast, self.target)
        except Exception as error:  # noqa: BLE001  (a compiler may raise anything)
            self.failed.append(error)
            return Fragment()

    def ran(
        self, number: int, fragment: Fragment, made: Mapping[str, int], again: Mapping[str, int]
    ) -> None:
        """Note that a fragment was run: `made` says at which position each of its nodes was recorded, and
        `again` will say the same of those that its backward runs again."""
        if number == 1:  # of a run before, nothing counts
            self._ran.clear()
        self._ran.append((number, fragment, dict(made), again))

    def compiled(self, graph: Graph) -> Compiled:
        """What was run at the nodes of the graph: the fragments in their order, and then the gradients of
        each, from the last on."""
        gradients: dict[int, list[Node]] = {}
        for node in graph.nodes:
            if node.phase == "backward" and node.forward is not None:
                gradients.setdefault(node.forward, []).append(node)
        buffers: dict[tuple[int, str, str], int] = {}
        kernels: list[CompiledKernel] = []
        for number, fragment, made, _ in self._ran:
            nodes = {name: [graph.node(at + 1)] for name, at in made.items()}
            kernels += _at_nodes(number, fragment, "forward", nodes, buffers)
        kept, again = [], []
        for number, fragment, made, run_again in reversed(self._ran):
            if fragment.backward is None:
                continue
            nodes = {name: gradients.get(at + 1, []) for name, at in made.items()}
            second = {AGAIN + n: [graph.node(at + 1)] for n, at in run_again.items()}
            nodes = {**nodes, **{AGAIN + name: of for name, of in nodes.items()}, **second}
            for name, buffer in fragment.results:
                same = number, "forward", fragment.whole(buffer)
                buffers[number, "backward", name] = buffers.setdefault(same, len(buffers))
            kernels += _at_nodes(number, fragment.backward, "backward", nodes, buffers)
            kept += [
                (next((made[n] + 1 for n in reversed(names) if n in made), 0), size)
                for names, size in fragment.kept.tensors
            ]
            again += [made[name] + 1 for name in fragment.kept.again if name in made]
        return Compiled(
            self.target, self.autocast, tuple(kernels), tuple(sorted(kept)), tuple(sorted(again)),
            tuple(self._storages(kernels, buffers)),
        )  # fmt: skip

    def _storages(
        self, kernels: Sequence[CompiledKernel], buffers: Mapping[tuple[int, str, str], int]
    ) -> Iterator[Storage]:
        """The memory that is allocated for the buffers: from the first kernel that knows one to the last,
        or for longer where it is of a result."""
        born: dict[int, int] = {}
        died: dict[int, int] = {}
        for at, kernel in enumerate(kernels):
            for buffer, _ in (*kernel.reads, *kernel.writes):
                born.setdefault(buffer, at)
                died[buffer] = at + 1
        for number, fragment, *_ in self._ran:
            parts = {
                "forward": (fragment, fragment.kept.results),
                "backward": (fragment.backward, None),
            }
            for phase, (part, results) in parts.items():
                if part is None:
                    continue
                returned = part.returned(results)
                for name, size in part.sizes.items():
                    each = buffers.get((number, phase, name), -1)
                    if each in born:
                        yield Storage(size, born[each], None if name in returned else died[each])


def _at_nodes(
    number: int, fragment: Fragment, phase: Phase, at: Mapping[str, Sequence[Node]],
    buffers: dict[tuple[int, str, str], int],
) -> Iterator[CompiledKernel]:  # fmt: skip
    """The kernels of a fragment with the nodes that each name is of, and its buffers numbered."""

    def accesses(found: Mapping[str, int]) -> tuple[Access, ...]:
        names = {name: (number, phase, fragment.whole(name)) for name in found}
        return tuple(
            (buffers.setdefault(names[name], len(buffers)), size) for name, size in found.items()
        )

    calls: set[int] = set()  # nodes whose call of a library has a kernel
    of = [[n for s in k.sources for n in at.get(s, ())] for k in fragment.kernels]
    made = {n.id for k, nodes in zip(fragment.kernels, of, strict=True) if not k.kernel.flops
            for n in nodes if not n.flops}  # fmt: skip
    found = []
    for each, nodes in zip(fragment.kernels, of, strict=True):
        around = [n for n in nodes if not n.flops and (not each.kernel.flops or n.id not in made)]
        own = _called(each.kernel, nodes, calls) if each.kernel.flops else []
        found.append([*own, *around] or nodes)
    left = [n for nodes in at.values() for n in nodes if n.flops and n.id not in calls]
    for each, nodes in zip(fragment.kernels, found, strict=True):
        more: list[Node] = []
        if each.kernel.flops and not any(n.flops for n in nodes):  # as one with what comes after it
            more = _called(each.kernel, left, calls)
        ids = tuple(sorted({n.id for n in (*nodes, *more)}))
        reads, writes = accesses(each.reads), accesses(each.writes)
        yield CompiledKernel(each.kernel, ids, reads, writes, number, each.layout, phase)


def _called(kernel: Kernel, nodes: Sequence[Node], calls: set[int]) -> list[Node]:
    """Of some nodes the next that makes the same call of a library as a kernel; all that make any where
    there is none."""
    for same in (lambda k: (k.op, k.shapes) == (kernel.op, kernel.shapes),
                 lambda k: k.flops == kernel.flops):  # fmt: skip
        for node in nodes:
            if node.id not in calls and any(map(same, node.kernels)):
                calls.add(node.id)
                return [node]
    return [n for n in nodes if n.flops][:1]


def schedule(
    gm: fx.GraphModule, inputs: Sequence[Any], machine: Any = None, autocast: str | None = None,
    target: str = "cpu",
) -> Fragment:  # fmt: skip
    """The kernels of a captured graph: the scheduler's for a GPU with these properties, or for the CPU.
    Where gradients are asked for, those of its backward, too. What torch writes to disk, and sets in the
    environment, goes with it."""
    lower = None if autocast is None else getattr(torch, autocast)
    with TemporaryDirectory() as folder, variables(TORCHINDUCTOR_CACHE_DIR=folder):
        if torch.is_grad_enabled() and any(getattr(i, "requires_grad", False) for i in inputs):
            trained = _schedule_both(gm, inputs, machine, lower, target)
            if trained is not None:
                return trained
        return _schedule_forward(gm, inputs, machine, lower, target)


def _schedule_forward(
    gm: fx.GraphModule, inputs: Sequence[Any], machine: Any, lower: torch.dtype | None, target: str
) -> Fragment:
    """The kernels of a captured graph, without gradients."""
    from torch._inductor.compile_fx import compile_fx

    found = Fragment()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(tqdm, "monitor_interval", 0, create=True))
        stack.enter_context(_disable_current_modes())
        stack.enter_context(_stopping(found))
        stack.enter_context(torch.no_grad())
        stack.enter_context(suppress(_Scheduled))
        if machine is not None:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            gm, inputs = moved(gm, inputs, mode, _table(target, lower))
            stack.enter_context(on_cuda(machine))
            stack.enter_context(tracing(TracingContext(mode)))
            stack.enter_context(nullcontext() if lower is None else torch.autocast("cuda", lower))
        else:
            gm = _copied(gm)
        compile_fx(gm, list(inputs))
    return found


def _schedule_both(
    gm: fx.GraphModule, inputs: Sequence[Any], machine: Any, lower: torch.dtype | None, target: str
) -> Fragment | None:
    """The kernels of a captured graph and of its backward; None where no result needs a gradient."""
    found, back = Fragment(), Fragment()

    def lowered(run: Callable[[], Any], phase: Phase) -> Strides:
        part = found if phase == "forward" else back
        with suppress(_Scheduled), _stopping(part):
            run()
        return part.strides

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(tqdm, "monitor_interval", 0, create=True))
        stack.enter_context(_disable_current_modes())
        stack.enter_context(_stopping(Fragment()))
        stack.enter_context(suppress(_Scheduled))
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        stack.enter_context(tracing(TracingContext(mode)))
        gm, inputs = moved(gm, inputs, mode, _table(target, lower), CPU)
        stack.enter_context(nullcontext() if lower is None else cuda_autocast(lower))
        on_gpu = machine is not None
        kept = lower_both(
            gm, inputs, mode, _taker(mode, CUDA) if on_gpu else None,
            partial(on_cuda, machine) if on_gpu else nullcontext, lowered,
        )  # fmt: skip
        return replace(found, backward=back, kept=kept)
    return None


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    """A graph of its own, with all within it, over the same weights: what is compiled is rewritten, and the
    one that was captured is yet to be run."""
    made = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    made.meta.update(gm.meta)  # what a checkpoint keeps
    for name, part in list(made.named_children()):
        if isinstance(part, fx.GraphModule):
            setattr(made, name, _copied(part))
    return made


class _Scheduled(BaseException):
    """The scheduler is done: nothing that follows is needed."""


@contextmanager
def _stopping(found: Fragment) -> Iterator[None]:
    """Within, the scheduler notes its kernels and ends the compilation."""
    from torch._functorch import config as functorch
    from torch._inductor import config, scheduler
    from torch._inductor.codegen.simd import SIMDScheduling
    from torch._inductor.virtualized import V

    def noted(self: Any) -> None:
        _note(self, V.graph.graph, found)
        _allocate(self, found)
        found.strides = [_stride(each) for each in V.graph.graph_outputs]
        names = V.graph.graph.output_node().args[0]
        found.results = [
            (getattr(node, "name", ""), _name(each))
            for node, each in zip(names, V.graph.graph_outputs, strict=True)
        ]
        raise _Scheduled

    with (
        mock.patch.object(scheduler.Scheduler, "codegen", noted),
        config.patch(fx_graph_cache=False, force_disable_caches=True, compile_threads=1),
        functorch.patch(enable_autograd_cache=False),
    ):
        try:
            yield
        finally:  # it remembers 32 nodes, each of which holds the whole of its graph
            SIMDScheduling.candidate_tilings.cache_clear()


# What the scheduler has, as kernels.


def _note(scheduler: Any, graph: fx.Graph, found: Fragment) -> None:
    from torch._inductor.ir import MultiOutput
    from torch._inductor.scheduler import NopKernelSchedulerNode

    kernels = []
    several: dict[str, dict[str, int]] = {}  # the results of a call that has more than one
    for node in scheduler.nodes:
        made = [b.get_name() for b in node.get_outputs()]
        read = [d.name for d in node.read_writes.reads]
        if isinstance(node, NopKernelSchedulerNode):  # a concatenation: its parts are made in place
            found.same.update((name, made[0]) for name in read)
        elif isinstance(node.node, MultiOutput):
            several.setdefault(read[0], {}).update((name, _bytes(node.node)) for name in made)
        else:
            kernels.append(node)
    for kernel, names in zip(kernels, _sources(kernels, graph), strict=True):
        reads, writes = _accessed(kernel, writes=False), _accessed(kernel, writes=True)
        if reads or writes:
            done = _described(kernel, reads, writes)
            writes = several.get(kernel.get_outputs()[0].get_name(), writes)
            found.kernels.append(Scheduled(done, names, reads, writes, _layout(kernel)))


def _allocate(scheduler: Any, found: Fragment) -> None:
    """Note what is allocated, as the wrapper would that TorchInductor does not come to write: nothing for
    what is in the memory of another buffer, be it by its kind or because the last that reads one loop by
    loop makes another of its size."""
    from torch._inductor import ir
    from torch._inductor.codegen.common import KernelArgs
    from torch._inductor.virtualized import V

    taken: dict[str, str] = dict(scheduler.mutation_real_name)
    for kernel in scheduler.nodes:
        active = SimpleNamespace(args=KernelArgs(), inplace_update_buffers={})
        with V.set_kernel_handler(active):
            for part in kernel.get_nodes():
                part.decide_inplace_update()
        taken |= active.inplace_update_buffers
        V.graph.wrapper_code.freed.update(active.inplace_update_buffers.values())
        scheduler.completed_operations.update(kernel.get_operation_names())
    for name, buffer in scheduler.name_to_buf.items():
        for other in (taken.get(name), *buffer.node.get_inputs_that_alias_output()):
            if other is not None and found.whole(other) != name:
                found.same.setdefault(name, other)
        layout = buffer.node.layout
        if name not in taken and isinstance(layout, ir.Layout) and not isinstance(
            layout, (ir.NonOwningLayout, ir.NoneLayout, ir.MutationLayoutSHOULDREMOVE)
        ):  # fmt: skip
            found.sizes[name] = _bytes(buffer.node)


def _bytes(buffer: Any) -> int:
    from torch._inductor.virtualized import V

    elements: Any = V.graph.get_allocation_storage_size(buffer)
    return int(elements) * int(buffer.get_dtype().itemsize)


def _accessed(kernel: Any, *, writes: bool) -> dict[str, int]:
    """The bytes that a kernel reads or writes, by buffer. The scheduler's own count takes a fused kernel to
    touch the whole of each: here it is what its loops go over, each place once."""
    found: dict[str, int] = kernel.get_read_write_buffer_accesses(
        include_reads=not writes, include_writes=writes
    )
    if kernel.is_extern():
        return found
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.virtualized import V

    places: dict[str, set[Any]] = {}
    for place in kernel.read_writes.writes if writes else kernel.read_writes.reads:
        if isinstance(place, MemoryDep):
            places.setdefault(place.name, set()).add(place.normalize())
    for name, each in places.items():
        if name in found:
            size = V.graph.get_dtype(name).itemsize * sum(map(_elements, each))
            found[name] = min(found[name], size)
    return found


def _elements(place: Any) -> int:
    """How many elements loops go over at a place of theirs, at most: each for each step of the loops that
    it hangs on, and on all where data say which it is."""
    used, any_of_them = place.index.free_symbols, place.is_indirect()
    sizes = zip(place.var_names, place.size, strict=True)
    return prod(int(size) for loop, size in sizes if any_of_them or loop in used)


def _described(kernel: Any, reads: Mapping[str, int], writes: Mapping[str, int]) -> Kernel:
    """A call of a library by the formula of its operator, what was generated by its loops."""
    read, written = sum(reads.values()), sum(writes.values())
    origin: Any = None if kernel.node is None else kernel.node.get_origin_node()
    origin = origin or getattr(kernel.node, "fx_node", None)  # a call of several results
    namespace = getattr(getattr(origin, "target", None), "namespace", "prims")
    if not kernel.is_extern() or namespace == "prims":  # prims: the compiler's own, as seeds
        outputs = [b.node for b in kernel.get_outputs() if b.node.maybe_get_dtype() is not None]
        dtype = dtype_name(outputs[0].get_dtype()) if outputs else ""
        return Kernel(
            f"{GENERATED}{_named(kernel)}", "elementwise", dtype, read=read, written=written
        )
    args, kwargs, out = fx.map_arg(
        (origin.args, origin.kwargs, origin), lambda n: n.meta.get("val")
    )
    counted = cost(describe(origin.target), tuple(args), dict(kwargs), out)
    return replace(counted, read=read, written=written or counted.written)


def _named(kernel: Any) -> str:
    """The name that TorchInductor gives to what it generates, but for its number in the file and whether a
    reduction holds its row at once ("per" for "red")."""
    from torch._inductor.utils import get_fused_kernel_name

    if kernel.is_extern():
        return "copy"
    nodes = kernel.get_nodes()
    kind = "red" if any(n.is_reduction() for n in nodes) else "poi"
    return f"{kind}_{get_fused_kernel_name(nodes, 'original_aten')}"


def _layout(kernel: Any) -> Layout:
    """The layout of what a library's convolution reads."""
    if not kernel.is_extern():
        return "contiguous"
    inputs = getattr(kernel.node, "inputs", None) or [None]
    with suppress(AttributeError, NotImplementedError, TypeError, IndexError):
        size, stride = inputs[0].get_size(), inputs[0].get_stride()
        if len(size) > 2 and stride[1] == 1 and size[1] != 1:
            return "channels-last"
    return "contiguous"


def _sources(kernels: Sequence[Any], graph: fx.Graph) -> list[tuple[str, ...]]:
    """The nodes of Dynamo's graph that each kernel computes.

    A buffer knows the node of the lowered graph that it holds; what has no buffer of its own is computed
    inside of the kernels that use it. A node of Dynamo's belongs to the kernels that hold a part of it, or
    else to those inside of which all of it is computed: views behind a product are not their user's.
    """
    nodes = {n.name: n for n in graph.nodes}
    held: list[set[str]] = []
    for kernel in kernels:
        origins = (p.node and p.node.get_origin_node() for p in kernel.get_nodes())
        held.append({o.name for o in origins if o is not None and o.name in nodes})
    anywhere = set().union(*held)
    inside = [_inside([nodes[n] for n in own], anywhere) for own in held]
    by_holding = [{s for n in own for s in _names(nodes[n])} for own in held]
    whole = set().union(*by_holding)
    found = []
    for kernel, own, inner in zip(kernels, by_holding, inside, strict=True):
        names = own | {s for n in inner for s in _names(n) if s not in whole}
        if not names:  # a first pass of a reduction, a copy into another layout
            parts = [o for p in kernel.get_nodes() if p.node is not None for o in p.node.origins]
            last = max((n for n in parts if n.name in nodes), key=list(nodes.values()).index,
                       default=None)  # fmt: skip
            names = set() if last is None else set(_names(last))
        found.append(tuple(sorted(names)))
    return found


def _names(node: fx.Node) -> Iterator[str]:
    """The names of Dynamo's nodes that one of the lowered graph is of, of what a backward computes again as
    such."""
    from torch._inductor.virtualized import V

    again = V.graph.is_backward and is_again(node)
    return (AGAIN * again + name for name in dynamo_names(node))


def _inside(roots: Iterable[fx.Node], held: set[str]) -> set[fx.Node]:
    """The nodes that are computed on the way to some others, from what is held in a buffer."""
    found: set[fx.Node] = set()
    waiting = [a for root in roots for a in root.all_input_nodes]
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node.name not in held and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _stride(result: Any) -> tuple[int, ...] | None:
    """How a result of a lowered graph lies; None for what is no tensor."""
    with suppress(AttributeError, NotImplementedError):
        return tuple(map(int, result.get_layout().stride))
    return None


def _name(result: Any) -> str:
    """The buffer of a result of a lowered graph; none of what is no tensor."""
    with suppress(AttributeError, NotImplementedError):
        return str(result.get_name())
    return ""


# A GPU that is not there.


def properties(target: str) -> SimpleNamespace:
    """What a driver would say of the largest known device of a generation. AMD's are taken to be NVIDIA's
    of capability 9.0 in all but their number of units."""
    generation = target.partition(":")[2] or ASSUMED
    largest = max((d for d in devices() if d.capability == generation), key=lambda d: d.units)
    numbers = generation if generation[0].isdigit() else "9.0"
    major, minor = map(int, numbers.split("."))
    return SimpleNamespace(
        name=largest.name, major=major, minor=minor, multi_processor_count=largest.units,
        total_memory=int(largest.capacity), L2_cache_size=int(largest.cache), warp_size=32,
        regs_per_multiprocessor=65536, max_threads_per_block=1024, gcnArchName="",
        max_threads_per_multi_processor=_THREADS.get(numbers, 2048), is_integrated=False,
        shared_memory_per_block=49152, shared_memory_per_block_optin=101376, device=largest,
    )  # fmt: skip


def patches(machine: Any) -> list[tuple[Any, str, Any]]:
    """What must answer for a GPU while TorchInductor lowers and schedules for it: where a name is, the
    name, and what stands there instead."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import scheduler, select_algorithm, utils
    from torch._inductor.codecache import CacheBase
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.graph import GraphLowering
    from torch._inductor.runtime.hints import DeviceProperties

    def answer(value: Any) -> Callable[..., Any]:
        return lambda *_args, **_kwargs: value

    def on_cpu(init: Callable[..., Any]) -> Callable[..., Any]:
        """Patterns are the same on whatever device their examples are, or none where nothing goes in."""
        return lambda *args: init(*(CPU for _ in args))  # once for each way that it is called

    has = {
        "is_available": True, "current_device": 0, "device_count": 1, "get_device_properties": machine,
        "get_device_capability": (machine.major, machine.minor), "_lazy_init": None,
        "get_rng_state": torch.zeros(16, dtype=torch.uint8), "set_rng_state": None,
        "synchronize": None, "set_device": None, "_exchange_device": 0, "_maybe_exchange_device": 0,
        "is_bf16_supported": machine.major >= 8,
    }  # fmt: skip
    interface = {
        "is_available": True, "current_device": 0, "device_count": 1, "get_device_properties": machine,
        "get_compute_capability": machine.major * 10 + machine.minor, "set_device": None,
        "exchange_device": 0, "maybe_exchange_device": 0, "raise_if_triton_unavailable": None,
        "is_bf16_supported": machine.major >= 8, "synchronize": None,
    }  # fmt: skip
    created = DeviceProperties(
        "cuda", 0, machine.multi_processor_count, interface["get_compute_capability"], machine.major,
        machine.regs_per_multiprocessor, machine.max_threads_per_multi_processor,
        machine.max_threads_per_block, machine.warp_size,
    )  # fmt: skip
    rates = {
        "get_gpu_dram_gbps": answer(machine.device.bandwidth / 1e9),
        "get_device_tflops": lambda dtype: machine.device.matrix_peak(dtype_name(dtype)) / 1e12,
    }
    folder = joint_graph.UniformValueConstantFolder
    return [
        *((torch.cuda, name, answer(value)) for name, value in has.items()),
        *((CudaInterface, n, staticmethod(answer(value))) for n, value in interface.items()),
        (CudaInterface.Worker, "get_device_properties", staticmethod(answer(machine))),
        (CudaInterface.Worker, "current_device", staticmethod(answer(0))),
        (DeviceProperties, "create", staticmethod(answer(created))),
        (
            GraphLowering,
            "constant_name",
            lambda _graph, name, _device: name,
        ),  # it would be copied there
        # What measured choices are kept by on disk, and who keeps them: nothing is measured.
        (CacheBase, "get_system", staticmethod(answer({}))),
        (
            select_algorithm,
            "get_algorithm_selector_cache",
            cache(select_algorithm.AlgorithmSelectorCache),
        ),
        *((part, "lazy_init", on_cpu(part.lazy_init)) for part in (joint_graph, post_grad)),
        *(
            (part, name, rate)
            for part in (scheduler, utils)
            for name, rate in rates.items()
            if name in vars(part)
        ),
        (folder, "_deduce_value", _folded_on_cpu(folder._deduce_value)),
        # A tensor whose value is known would be sent to the GPU to work out what comes of it.
        *((part, "CONSTANT_NUMEL_LIMIT", -1) for part in (proxy_tensor, fake_tensor)),
    ]


@contextmanager
def on_cuda(machine: Any) -> Iterator[None]:
    """Within, TorchInductor finds a GPU with these properties. Whatever is raised, nothing of that stays,
    nor what was remembered meanwhile."""
    from torch._inductor import config

    with ExitStack() as stack:
        stack.callback(_forget)
        for owner, name, stand_in in patches(machine):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        stack.enter_context(config.patch(shape_padding=False))  # padding is decided by measuring
        _forget()
        yield


def _forget() -> None:
    """Clear what torch remembers of the devices that there are."""
    import torch._inductor.utils
    import torch.utils._triton

    for module in (torch.utils._triton, torch._inductor.utils):
        for function in vars(module).values():
            if getattr(function, "__module__", None) == module.__name__:
                getattr(function, "cache_clear", lambda: None)()


def _folded_on_cpu(deduce: Callable[..., Any]) -> Callable[..., Any]:
    """Constants are worked out on real tensors, of which only the values count."""

    def folded(folder: Any, node: fx.Node) -> Any:
        args, kwargs = node.args, node.kwargs
        node.args, node.kwargs = _on(CPU, args), _on(CPU, kwargs)
        try:
            return deduce(folder, node)
        finally:
            node.args, node.kwargs = args, kwargs

    return folded


def _on(device: torch.device, arguments: Any) -> Any:
    """Arguments of a node with this device in the place of another."""
    if isinstance(arguments, torch.device):
        return device
    if isinstance(arguments, (list, tuple)):
        return type(arguments)(_on(device, a) for a in arguments)
    if isinstance(arguments, Mapping):
        return {name: _on(device, a) for name, a in arguments.items()}
    return arguments


def moved(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode,
    table: Mapping[Any, Callable[..., Any]], device: torch.device = CUDA,
) -> tuple[fx.GraphModule, list[Any]]:  # fmt: skip
    """A copy of a captured graph, and its inputs, on fake tensors of a device, with the functions of the
    `table` in the place of others."""
    stand_in = _taker(mode, device)
    root = _copied(gm)
    for part in root.modules():
        for own in (part._parameters, part._buffers):
            own.update({name: stand_in(tensor) for name, tensor in own.items()})
        for name, item in list(vars(part).items()):
            if isinstance(item, torch.Tensor):
                setattr(part, name, stand_in(item))
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                node.meta.pop("example_value", None)
                node.args, node.kwargs = _on(device, node.args), _on(device, node.kwargs)
                if node.op == "call_function":
                    if node.target in _device_constructors():  # where all the others are
                        node.kwargs = {**node.kwargs, "device": device}
                    node.target = table.get(node.target, node.target)
    return root, [stand_in(item) for item in inputs]


def _taker(mode: FakeTensorMode, device: torch.device) -> Callable[[Any], Any]:
    """What takes tensors, and whatever names a device, to a device; the same tensor always to the same."""
    known: dict[int, tuple[Any, FakeTensor]] = {}

    def take(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return _on(device, item)
        if id(item) not in known:
            meta = torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")
            made = FakeTensor(mode, meta, device)
            known[id(item)] = item, made.requires_grad_(item.requires_grad and device == CPU)
        return known[id(item)][1]

    return take


_LOWERED = (functional.rms_norm, torch.rms_norm, functional.dropout, torch.dropout)
"""What the compiler takes apart itself, whatever kernel an eager run has for it."""


def _table(target: str, lower: torch.dtype | None = None) -> dict[Any, Callable[..., Any]]:
    """What is lowered instead of the functions that a captured graph calls, in mixed precision with a
    `lower` dtype."""

    def here(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """A tensor of data that Python has: made on the CPU, and copied to where it is wanted."""
        return lambda *args, device=None, **kwargs: make(*args, **kwargs).to(device)

    table = {f: run for f, run in Substitutes(target).table().items() if f not in _LOWERED}
    for attend in _ATTEND if lower is not None else ():  # whose kernel is chosen by the dtype
        table[attend] = _in(lower, table.get(attend, attend))
    table |= {make: here(make) for make in (torch.tensor, torch.as_tensor)}
    table |= {take: _placed(take) for take in (operator.getitem, operator.setitem)}
    return {**table, functional.grid_sample: _grid_sample}


_ATTEND = (
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)


def _in(lower: torch.dtype | None, run: Callable[..., Any]) -> Callable[..., Any]:
    """A function as autocast runs it: what comes in in float32 is converted before."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(lower) if tensor.dtype == torch.float32 else tensor

    def converted(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
        return run(*args, **kwargs)

    return converted


def _placed(take: Callable[..., Any]) -> Callable[..., Any]:
    """Indexing by a list, of which torch makes a tensor beside the one that is indexed, for real."""

    def taken(item: Any, at: Any, *value: Any) -> Any:
        def there(place: Any) -> Any:
            if not isinstance(place, list) or not all(isinstance(i, (int, bool)) for i in place):
                return place
            return torch.tensor(list(place)).to(item.device)

        if isinstance(item, torch.Tensor):
            at = tuple(map(there, at)) if isinstance(at, tuple) else there(at)
        return take(item, at, *value)

    return taken


def _grid_sample(
    input: torch.Tensor,  # noqa: A002  (its name in torch)
    grid: torch.Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> torch.Tensor:  # fmt: skip
    """The sampler that a compiler takes apart: cuDNN's one is one kernel as well, of which torch cannot
    tell without running it what comes out."""
    sample = torch.grid_sampler_2d if input.dim() == 4 else torch.grid_sampler_3d
    kinds = ("bilinear", "nearest", "bicubic").index(mode)
    borders = ("zeros", "border", "reflection").index(padding_mode)
    return sample(input, grid, kinds, borders, bool(align_corners))
