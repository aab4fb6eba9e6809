"""A graph with weights, activations or a KV cache in fewer bits, on paper: what such a scheme stores, and
the kernels that it runs.

A weight is quantized where all that reads it are products: of linear layers, of experts, and in int8 with
activations in int8 also of convolutions. Embeddings, norms and biases, routers, and a head (whose result
leaves the model with nothing but element-wise work behind it) stay as they are, as the loaders of
transformers, torchao and vLLM leave them. A kernel reads the weight as it is stored and makes it numbers
again inside the product, which runs in the dtype that the model computes in. Where activations are
quantized, too, a kernel before the product scales each row (what goes into a convolution by one scale), and
the product runs on the units for such numbers, if the device has them; else it runs as with the weights
alone. A compiler scales where the rows are made. A graph goes in, and a graph comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import ceil, prod

from opgraph.analysis.cost.precision import Placing
from opgraph.hardware import Device
from opgraph.record.errors import InputError
from opgraph.record.graph import Graph, Kernel, Node, Parameter, Storage, Value, elements
from opgraph.record.profile import (
    GENERATED,
    CachePart,
    Compiled,
    CompiledKernel,
    KVCache,
    ProfileRecord,
)
from opgraph.record.quantization import ACTIVATIONS, Scheme
from opgraph.record.remarks import Remark, no_effect
from opgraph.record.units import item_size, plural, size

_FLOATS = ("float32", "bfloat16", "float16")
_SCALING = 4
"""FLOPs an element to scale a row: its size, the largest of them, a product, rounding."""
_RESCALING = 2
"""FLOPs an element of a product's result: the scales of its row and of its column."""
_PASSING = frozenset({"view", "elementwise", "softmax", "copy"})
"""Work behind a product that leaves it a head or a router."""

HEAD, ROUTER, TABLE, CONVOLUTION, OTHER, UNEVEN, KEPT = (
    "the head", "routers", "embeddings", "convolutions", "what is not only multiplied",
    "rows that the groups do not divide", "what the publisher kept",
)  # fmt: skip


def in_fewer_bits(
    profile: ProfileRecord, scheme: Scheme | None, cache: str | None, device: Device | None
) -> ProfileRecord:
    """The profile with its weights in a scheme and its cache in a format, as a device runs it; with remarks
    on what stays as it is, and on what the device has no units for.

    Raises `InputError` for a profile that cannot be run so.
    """
    impossible = _impossible(profile)
    if scheme is not None and scheme.published and impossible:
        text = f"published in {scheme}, and not so here: {impossible[0]}"
        info = replace(profile.model.noting(Remark("published-weights", text)), weights=None)
        profile, scheme = replace(profile, model=info), None
    if scheme is None and cache is None:
        return profile
    if impossible:
        raise InputError(impossible[0], hint=impossible[1])
    if cache is not None and profile.compiled is not None:
        raise InputError("TorchInductor's kernels for a cache in fewer bits are not worked out",
                         hint="leave out --run compiled, or --kv-cache")  # fmt: skip
    if cache is not None and profile.cache is None:
        raise InputError("there is no cache here to keep in fewer bits",
                         hint="--kv-cache goes with --mode prefill or --mode decode")  # fmt: skip
    pass_ = _Pass(profile, scheme, cache, device)
    graph = pass_.graph()
    convention = {**profile.convention}
    if scheme is not None and pass_.found:
        convention["weights"] = str(scheme)
        if pass_.low is not None:
            convention["activations"] = pass_.low
    if cache is not None:
        convention["kv_cache"] = cache
    return replace(
        profile,
        graph=graph,
        compiled=profile.compiled and pass_.compiled(profile.compiled),
        formulas=None,  # they are those of the weights before
        cache=pass_.cache(),
        convention=convention,
        model=replace(profile.model.noting(*pass_.notes()), weights=None),
    )


def _impossible(profile: ProfileRecord) -> tuple[str, str] | None:
    """Why nothing of a profile can be in fewer bits, and what to do instead."""
    if profile.mode == "train":
        return ("weights in fewer bits are not trained",
                "--train qlora trains adapters beside weights in 4 bits")  # fmt: skip
    if profile.measured is not None:
        return ("what was measured ran with the weights that it has",
                "name the model, or a profile without a run")  # fmt: skip
    if "autocast" in profile.convention:
        return ("mixed precision converts weights that are kept in 32 bits",
                "give --dtype bfloat16 in the place of --autocast")  # fmt: skip
    return None


@dataclass(frozen=True, slots=True)
class _Product:
    """A kernel that multiplies with a weight: its node, the places of the two operands among its shapes,
    and how many numbers of the weight each sum is over."""

    node: Node
    kernel: Kernel
    weight: int
    other: int
    depth: int


class _Pass:
    """One pass over the nodes, in order: what is stored how, and the kernels that run for it."""

    def __init__(
        self,
        profile: ProfileRecord,
        scheme: Scheme | None,
        cache: str | None,
        device: Device | None,
    ) -> None:
        self._profile, self._graph = profile, profile.graph
        self._scheme, self._device = scheme, device
        self._own = {p.name: p for p in self._graph.parameters}
        self._roots = _roots(self._graph)
        self._products, self._staying = self._choose()
        self._stored = {n: self._bytes(n, ps[0]) for n, ps in self._products.items()}
        self._cached = _Cached(self._graph, cache)
        self._placing = Placing()
        self._known: dict[object, Kernel] = {}
        low = None if scheme is None or scheme.activations is None else scheme.activations
        self.low = low if low and _has_units(device, ACTIVATIONS[low][0]) else None
        self._missing = low if low != self.low else None

    # Which weights are quantized.

    def _choose(self) -> tuple[dict[str, list[_Product]], dict[str, str]]:
        """The products with each weight that is quantized, and why others are not."""
        if self._scheme is None:
            return {}, {}
        found: dict[str, list[_Product]] = {}
        staying: dict[str, str] = {}
        behind: dict[int, str | None] = {}
        for node in self._graph.nodes:
            for value in dict.fromkeys(node.inputs):
                name = self._roots.get(value)
                if name is None or self._own[name].dtype not in _FLOATS or _passes(node):
                    continue
                if len(self._own[name].shape) < 2:
                    continue
                product = _product(node, self._own[name])
                why = self._why_not(node, name, product, behind)
                if product is None or why is not None:
                    staying.setdefault(name, why or OTHER)
                else:
                    found.setdefault(name, []).append(product)
        for name in staying:
            found.pop(name, None)
        heads = [n for n, why in staying.items() if why is HEAD]
        if not found and len(heads) == 1 and len(staying) == 1:  # a layer by itself is no head
            return self._alone(heads[0]), {}
        return found, staying

    def _alone(self, name: str) -> dict[str, list[_Product]]:
        nodes = [n for n in self._graph.nodes if name in map(self._roots.get, n.inputs)]
        made = (_product(n, self._own[name]) for n in nodes if not _passes(n))
        return {name: [p for p in made if p is not None]}

    def _why_not(
        self, node: Node, name: str, product: _Product | None, behind: dict[int, str | None]
    ) -> str | None:
        scheme = self._scheme
        if scheme is None or scheme.keeps(self._own[name].scope) or scheme.keeps(name):
            return KEPT
        if product is None:
            return TABLE if node.op == "embedding" else OTHER
        if "convolution" in product.kernel.category and (scheme.weights, scheme.activations) != (
            "int8", "int8",
        ):  # fmt: skip
            return CONVOLUTION
        if node.id not in behind:
            behind[node.id] = _behind(self._graph, node)
        if behind[node.id] is not None:
            return behind[node.id]
        return None if scheme.divides(product.depth) else UNEVEN

    def _bytes(self, name: str, product: _Product) -> int:
        whole = self._own[name].numel
        if self._scheme is None:
            return 0
        stack = _stack(product, self._own[name])
        rows = whole // product.depth // stack
        item = item_size(self._own[name].dtype)
        return stack * self._scheme.bytes(rows, product.depth, item)

    # The graph with them.

    def graph(self) -> Graph:
        """The graph with what is quantized as it is stored, and the kernels that run then."""
        nodes = tuple(map(self._node, self._graph.nodes))
        return replace(
            self._graph,
            nodes=nodes,
            values=tuple(map(self._value, self._graph.values)),
            parameters=tuple(map(self._parameter, self._graph.parameters)),
            storages=tuple(self._placing.storages(self._graph.storages, self._cached.sizes())),
        )

    def _node(self, node: Node) -> Node:
        kernels: list[Kernel] = []
        products = {
            id(p.kernel): (name, p)
            for name in dict.fromkeys(self._roots.get(v, "") for v in node.inputs)
            for p in self._products.get(name, ())
            if p.node is node
        }
        for kernel in node.kernels:
            if id(kernel) in products:
                self._multiply(node, *products[id(kernel)], kernels)
            else:
                self._placing.keep(self._cached.kernel(node, kernel), kernels)
        return node if kernels == list(node.kernels) else replace(node, kernels=tuple(kernels))

    def _multiply(self, node: Node, name: str, product: _Product, kernels: list[Kernel]) -> None:
        scaling, made = self._quantized(name, product)
        if scaling is not None:
            self._placing.add(scaling, kernels, node.id, scaling.written)
        self._placing.keep(made, kernels)

    def _quantized(self, name: str, product: _Product) -> tuple[Kernel | None, Kernel]:
        """The kernel that scales the rows, where one does, and the one that multiplies them with a weight
        as it is stored."""
        scheme, kernel, low = self._scheme, product.kernel, self.low
        if scheme is None:
            return None, kernel
        stored, before = self._stored[name], self._own[name].bytes
        used, all_ = _used(kernel)
        read = kernel.read - before * used // all_ + stored * used // all_
        op = f"quantized.{kernel.op.rpartition('.')[2].lstrip('_')}_{scheme.weights}"
        flops = scheme.format.flops * (elements(kernel.shapes[product.weight]) * used // all_)
        dtype, scaling = kernel.dtype, None
        if low is not None:
            dtype, each = ACTIVATIONS[low]
            shape = kernel.shapes[product.other]
            numbers = elements(shape)
            taken = ceil(numbers * each)
            if "convolution" in kernel.category:
                taken += 4  # windows overlap: all have one scale, that is known beforehand
            elif low != "fp4":
                along = scheme.group if scheme.rows > 1 else None
                taken += (
                    numbers // product.depth * ceil(product.depth / (along or product.depth)) * 4
                )
            wide = numbers * item_size(kernel.dtype)
            scaling = Kernel(
                f"quantized.scale_{low}", "elementwise", kernel.dtype, other_flops=_SCALING * numbers,
                read=wide, written=taken, shapes=(shape,), out_shapes=(shape,),
            )  # fmt: skip
            scaling = self._shared(scaling)
            read += taken - wide
            op += f"_{low}"
            flops = _RESCALING * sum(map(elements, kernel.out_shapes))
        other = kernel.other_flops + flops
        made = replace(kernel, op=op, dtype=dtype, read=read, other_flops=other)
        return scaling, self._shared(made)

    # What a compiler makes of it.

    def compiled(self, compiled: Compiled) -> Compiled:
        """A compiler's kernels, of which those that multiply with a weight read it as it is stored. Rows
        are scaled for each product: by the generated kernel that makes them, since TorchInductor fuses a
        reduction with what it reads, or all in one of their own."""
        kernels: list[CompiledKernel] = []
        moved: list[int] = []  # where each kernel is now
        scaled: list[Storage] = []
        scaling_at: dict[
            int, tuple[int, int]
        ] = {}  # the kernel that scales a buffer, and its bytes
        last: dict[
            tuple[int, int], int
        ] = {}  # of what a kernel makes, the product that reads it last
        made = {b for k in compiled.kernels for b, _ in k.writes}
        fresh = count(
            1 + max((b for k in compiled.kernels for b, _ in (*k.reads, *k.writes)), default=0)
        )
        for kernel in compiled.kernels:
            each, (name, product) = kernel, self._compiled_product(kernel)
            if product is not None:
                scaling, multiplying = self._quantized(name, product)
                reads = dict(each.reads)
                given = {b: n for b, n in reads.items() if b not in made} or reads
                weight = _closest(given, self._own[name].bytes)
                rest = reads.pop(weight) - self._own[name].bytes
                if scaling is not None and reads:
                    rows = _closest(reads, scaling.read)
                    del reads[rows]
                    low = next(fresh)
                    alone = replace(each, kernel=scaling, reads=((rows, scaling.read),),
                                    writes=((low, scaling.written),))  # fmt: skip
                    at, whole = scaling_at.get(rows, (-1, 0))
                    if whole == scaling.read:
                        kernels[at] = _too(kernels[at], alone)
                    else:
                        at, _ = scaling_at[rows] = len(kernels), scaling.read
                        kernels.append(alone)
                    reads[low] = scaling.written
                    last[rows, at] = len(kernels)
                    scaled.append(Storage(scaling.written, at, len(kernels) + 1))
                reads[weight] = max(0, rest + self._stored[name])
                each = replace(kernel, kernel=multiplying, reads=tuple(reads.items()))
            generated = kernel.kernel.op.startswith(GENERATED)
            scaling_at |= {b: (len(kernels), n * generated) for b, n in kernel.writes}
            moved.append(len(kernels))
            kernels.append(each)
        storages = [
            replace(s, born=moved[s.born], died=s.died and moved[s.died - 1] + 1)
            for s in compiled.storages
        ]
        for (rows, at), product_at in last.items():
            _leave_out(rows, at, product_at + 1, kernels, storages)
        return replace(compiled, kernels=tuple(kernels), storages=(*storages, *scaled))

    def _compiled_product(self, kernel: CompiledKernel) -> tuple[str, _Product | None]:
        """The weight that a compiler's kernel multiplies with, and how, where it is one of those that are
        quantized."""
        for name, products in self._products.items():
            for node in (p.node for p in products if p.node.id in kernel.nodes):
                alone = replace(node, kernels=(kernel.kernel,))
                if (found := _product(alone, self._own[name])) is not None:
                    return name, found
        return "", None

    def _shared(self, kernel: Kernel) -> Kernel:
        return self._known.setdefault(kernel, kernel)

    def _value(self, value: Value) -> Value:
        name = self._roots.get(value.id)
        if name in self._stored and self._scheme is not None:
            share = value.bytes / self._own[name].bytes
            taken = ceil(self._stored[name] * share)
            return replace(value, dtype=self._scheme.format.dtype, bytes=taken)
        return self._cached.value(value)

    def _parameter(self, parameter: Parameter) -> Parameter:
        if parameter.name not in self._stored or self._scheme is None:
            return parameter
        stored = self._stored[parameter.name]
        return replace(parameter, dtype=self._scheme.format.dtype, bytes=stored)

    @property
    def found(self) -> bool:
        """Whether any weight is kept so."""
        return bool(self._products)

    def cache(self) -> KVCache | None:
        """The cache as it is kept."""
        return self._cached.cache(self._profile.cache)

    # What is to be said of it.

    def notes(self) -> Iterator[Remark]:
        scheme = self._scheme
        if scheme is not None and not self._products:
            why = ", ".join(self._left())
            why = f"as they were stay {why}" if why else "no product is with weights that it takes"
            yield no_effect(f"weights {scheme.weights}", why)
        elif scheme is not None:
            yield self._summary(scheme)
            yield from self._units()
        if self._cached.format is not None:
            yield Remark(
                "quantized",
                f"the cache is in {self._cached.format}, on paper: attention makes it numbers again as it "
                "reads it, and computes as before",
            )

    def _summary(self, scheme: Scheme) -> Remark:
        names = self._products
        own = sum(self._own[n].bytes for n in names)
        code, of = (
            ("published-weights", "as published") if scheme.published else ("quantized", "on paper")
        )
        text = (f"{of}, {plural(len(names), 'weight')} in {scheme}: "
                f"{size(sum(self._stored.values()))} in the place of {size(own)}")  # fmt: skip
        rest = ", ".join([*self._left(), "norms and biases"])
        return Remark(code, f"{text}; as they were stay {rest}")

    def _left(self) -> list[str]:
        """What stays as it was, with its bytes, most of them first."""
        left: dict[str, int] = {}
        for name, why in self._staying.items():
            left[why] = left.get(why, 0) + self._own[name].bytes
        return [f"{why} ({size(left[why])})" for why in sorted(left, key=lambda why: -left[why])]

    def _units(self) -> Iterator[Remark]:
        kernels = [p.kernel for ps in self._products.values() for p in ps]
        dtypes = " and ".join(sorted({k.dtype for k in kernels}))
        if self._missing is not None and self._device is not None:
            yield Remark(
                "dequantized",
                f"{self._device.name} has no units for {self._missing}: activations stay as they are, "
                f"weights are dequantized in the product, and it runs in {dtypes}",
            )
        elif self.low is None and "float32" in dtypes:
            yield Remark(
                "dequantized",
                "weights are dequantized in the product, and it runs in float32, as the model "
                "computes: --dtype bfloat16 has it run in 16 bits",
            )


def _closest(sizes: dict[int, int], wanted: int) -> int:
    """Which of some buffers has nearest to so many bytes, the last of those that are alike."""
    return min(reversed(sizes), key=lambda buffer: abs(sizes[buffer] - wanted))


def _too(kernel: CompiledKernel, scaling: CompiledKernel) -> CompiledKernel:
    """A kernel that scales the rows that it has, too."""
    more = scaling.kernel
    done = replace(
        kernel.kernel, other_flops=kernel.kernel.other_flops + more.other_flops,
        written=kernel.kernel.written + more.written,
    )  # fmt: skip
    return replace(kernel, kernel=done, writes=(*kernel.writes, *scaling.writes))


def _leave_out(
    rows: int, at: int, died: int, kernels: list[CompiledKernel], storages: list[Storage]
) -> None:
    """Have a kernel not write the rows that it makes but scaled, where nothing reads them, and their memory
    goes with the last product that did: what stays is a result."""
    maker, after = kernels[at], kernels[at + 1 :]
    again = (i for i, k in enumerate(after, 1) if rows in dict(k.writes))
    reads = {b for k in after[: next(again, None)] for b, _ in k.reads}
    size = dict(maker.writes).get(rows)  # none where they are scaled in a kernel of their own
    for place, each in enumerate(storages):
        if rows not in reads and (each.bytes, each.died) == (size, died) and each.born <= at:
            # What was written into memory that was there leaves it sooner.
            storages[place : place + 1] = [replace(each, died=at + 1)] if each.born < at else []
            done = replace(maker.kernel, written=maker.kernel.written - each.bytes)
            writes = tuple((b, n) for b, n in maker.writes if b != rows)
            kernels[at] = replace(maker, kernel=done, writes=writes)
            return


def multiplies(profile: ProfileRecord, device: Device) -> bool:
    """Whether a device has the units that the products of a profile in fewer bits run on."""
    low = ACTIVATIONS.get(profile.convention.get("activations", ""))
    return low is None or _has_units(device, low[0])


def _has_units(device: Device | None, dtype: str) -> bool:
    return device is None or device.has_units(dtype)


def _roots(graph: Graph) -> dict[int, str]:
    """Values that are parameters, or views of one, with its name."""
    own = {p.name for p in graph.parameters if p.kind == "parameter"}
    found = {v.id: str(v.name) for v in graph.values if v.kind == "parameter" and v.name in own}
    for node in graph.nodes:
        if _passes(node) and node.outputs:
            of = {found[v] for v in node.inputs if v in found}
            if len(of) == 1 and all(v in found for v in node.inputs):
                found.update(dict.fromkeys(node.outputs, of.pop()))
    return found


def _passes(node: Node) -> bool:
    """Whether a node only shows what it reads in another way."""
    return node.kind == "output" or all(k.cost == "zero" or not k.bytes for k in node.kernels)


def _product(node: Node, weight: Parameter) -> _Product | None:
    """The one kernel of a node that multiplies with a weight; None if there is none, or several."""
    products = [k for k in node.kernels if k.flops]
    if len(products) != 1:
        return None
    kernel = products[0]
    if "convolution" in kernel.category and len(kernel.shapes) >= 2 and kernel.out_shapes:
        channels = kernel.out_shapes[0][1]
        fits = kernel.shapes[1] == weight.shape and isinstance(channels, int)
        return _Product(node, kernel, 1, 0, weight.numel // int(channels)) if fits else None
    if kernel.category != "matmul":
        return None
    matrices = [i for i, s in enumerate(kernel.shapes) if len(s) >= 2]
    if kernel.op == "aten.mv" and kernel.shapes[0] == weight.shape:
        return _Product(node, kernel, 0, 1, int(weight.shape[-1]))
    operands = matrices[:2] if "grouped_mm" in kernel.op else matrices[-2:]
    if len(operands) < 2:
        return None
    for place, other in (operands[::-1], operands):
        shape = kernel.shapes[place]
        if sorted(map(str, shape)) == sorted(map(str, weight.shape)) or (
            elements(shape) == weight.numel and _whole(shape)
        ):
            right = place == operands[1]
            turned = kernel.op == "aten.linear"
            depth = shape[-1] if turned or not right else shape[-2]
            return _Product(node, kernel, place, other, int(depth))
    return None


def _stack(product: _Product, weight: Parameter) -> int:
    """How many matrices a weight holds: one, or one for each expert."""
    shape = product.kernel.shapes[product.weight]
    if product.kernel.category != "matmul":
        return 1
    return prod(int(n) for n in shape[:-2]) if len(shape) > 2 and len(weight.shape) > 2 else 1


def _used(kernel: Kernel) -> tuple[int, int]:
    """How many of the matrices of a weight a kernel reads, and how many there are: of experts, those that
    have a row."""
    if "grouped_mm" in kernel.op and len(kernel.shapes) >= 2 and len(kernel.shapes[1]) == 3:
        rows, experts = kernel.shapes[0][0], kernel.shapes[1][0]
        if isinstance(rows, int) and isinstance(experts, int):
            return min(rows, experts), experts
    return 1, 1


def _behind(graph: Graph, node: Node) -> str | None:
    """What a product is by what is behind it: the head, where its result leaves the model with nothing but
    element-wise work done to it, a router, where such a result is what experts are chosen by."""
    ends: set[str | None] = set()
    waiting, seen = list(node.outputs), set(node.outputs)
    outputs = set(graph.outputs)
    while waiting:
        value = waiting.pop()
        users = graph.users.get(value, ())
        calls = [n for n in users if n.kind != "output"]
        if not calls and (value in outputs or users):
            ends.add(HEAD)
        for user in calls:
            if any(k.op == "aten.topk" for k in user.kernels):
                return ROUTER
            theirs = [v for v in user.inputs if graph.value[v].kind == "activation"]
            if len(set(theirs)) > 1 or not all(k.category in _PASSING for k in user.kernels):
                ends.add(None)
                continue
            waiting += [v for v in user.outputs if v not in seen]
            seen.update(user.outputs)
    return HEAD if ends == {HEAD} else None


def _whole(shape: Iterable[object]) -> bool:
    return all(isinstance(n, int) for n in shape)


# The cache.

_CACHES = ("past_key_values", "cache")
"""Arguments with caches, as transformers called them until 5.23, and as it does now."""


class _Cached:
    """What of a graph is a cache, kept in a format: what comes in of it, what is joined to it, and what is
    only moved of that."""

    def __init__(self, graph: Graph, form: str | None) -> None:
        self.format = form
        self._graph = graph
        self._kept: dict[int, float] = {}
        if form is None:
            return
        for value in graph.values:
            if value.kind == "input" and (value.name or "").partition(".")[0] in _CACHES:
                self._keep(value.id)
        leaving = _leaving(graph)
        for node in graph.nodes:
            if node.kind != "call":
                continue
            floats = [v for v in node.inputs if graph.value[v].dtype in _FLOATS]
            moved = all(k.category in ("view", "copy", "indexing") for k in node.kernels)
            if moved and (
                (floats and all(v in self._kept for v in floats))
                or any(v in leaving for v in node.outputs)
                or any(v in self._kept for v in node.inputs[:1])
            ):
                for v in node.outputs:
                    self._keep(v)

    def _keep(self, value: int) -> None:
        found = self._graph.value[value]
        if found.dtype in _FLOATS and len(found.shape) == 4:
            last = found.shape[-1]
            scale = 4 / last if self.format == "int8" and isinstance(last, int) and last else 0.0
            self._kept[value] = (1 + scale) / item_size(found.dtype)

    def value(self, value: Value) -> Value:
        """A value as it is kept."""
        if value.id not in self._kept or self.format is None:
            return value
        dtype = ACTIVATIONS[self.format][0]
        return replace(value, dtype=dtype, bytes=ceil(value.bytes * self._kept[value.id]))

    def kernel(self, node: Node, kernel: Kernel) -> Kernel:
        """A kernel that reads or makes what is kept."""
        if not self._kept or not kernel.bytes:
            return kernel
        left = [self._graph.value[v] for v in node.inputs]
        before, now = 0.0, 0.0
        made = 0
        for shape in kernel.shapes:
            found = next((v for v in left if v.shape == shape), None)
            taken = elements(shape) * item_size(kernel.dtype if found is None else found.dtype)
            share = 1.0
            if found is not None:
                left.remove(found)
                share = self._kept.get(found.id, 1.0)
            before, now = before + taken, now + taken * share
            made += elements(shape) * (share < 1 and kernel.category in ("attention", "matmul"))
        read = ceil(kernel.read * now / before) if before else kernel.read
        shares = [self._kept.get(v, 1.0) for v in node.outputs]
        written = ceil(kernel.written * min(shares, default=1.0))
        if (read, written) == (kernel.read, kernel.written):
            return kernel
        return replace(kernel, read=read, written=written, other_flops=kernel.other_flops + made)

    def sizes(self) -> list[int]:
        """The bytes of the graph's storages, those of the cache as they are kept."""
        sizes = [s.bytes for s in self._graph.storages]
        seen: set[int] = set()
        for value in self._graph.values:
            place = value.storage
            if place is not None and place not in seen:
                seen.add(place)
                sizes[place] = ceil(sizes[place] * self._kept.get(value.id, 1.0))
        return sizes

    def cache(self, cache: KVCache | None) -> KVCache | None:
        """The record of the cache as it is kept; the states of recurrences stay as they are."""
        if cache is None or not self._kept:
            return cache
        share = max(self._kept.values())

        def kept(part: CachePart) -> CachePart:
            each = ceil(part.bytes_per_token * share)
            fixed = part.fixed if part.kind == "state" else ceil(part.fixed * share)
            return replace(part, bytes_per_token=each, fixed=fixed)

        parts = tuple(map(kept, cache.parts))
        whole = sum(p.at(cache.tokens) for p in parts) * cache.sequences
        before = cache.at(cache.tokens, cache.sequences)
        taken = whole if before == cache.bytes else ceil(cache.bytes * share)
        return replace(cache, parts=parts, bytes=taken)


def _leaving(graph: Graph) -> set[int]:
    """Values of four dimensions that leave the model, and what they are views of."""
    found: set[int] = set()
    for v in graph.outputs:
        value = graph.value[v]
        if len(value.shape) == 4:
            while True:
                found.add(value.id)
                if value.alias_of is None:
                    break
                value = graph.value[value.alias_of]
    return found
