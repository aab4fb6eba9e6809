"""A prefill or a decoding step as an inference engine runs it: the cache of keys and values stays in place
and is read where it lies, projections of one input are one product, what stands between products is one
kernel, and what follows from positions alone is not made.

A pass from a graph to a graph, by what the graph shows: a joint of cached values with new ones whose result
the model returns is a cache, whatever the model is called. A node keeps its place and as many kernels as it
had, so that memory over time stays what it was; kernels that an engine does not run do no work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from opgraph.analysis.cost.conventions import as_causal, seen
from opgraph.analysis.fusion.grouping import Grouping, Role, Rule, role_of
from opgraph.analysis.fusion.partition import Subgraph, subgraphs
from opgraph.analysis.timing.workload import SCALING
from opgraph.record.graph import Graph, Kernel, Node, Value
from opgraph.record.remarks import Remark

ASSUMED = Remark(
    "engine",
    "the cache stays in place and is paged, projections of one input are one product, what stands between "
    "products is one kernel, attention is causal, each step is launched at once, and drawing the next "
    "token takes no time",
)
"""The remark on what is taken for granted of every engine."""
_LATENT = Remark(
    "engine",
    "products of cached latents with weights are absorbed into those of queries and of attention's result",
)

_POINTWISE: frozenset[Role] = frozenset(
    {"elementwise", "scale", "reduction", "normalization", "softmax"}
)
_BETWEEN: frozenset[Role] = _POINTWISE | {"movement"}
_SPELLED: frozenset[Role] = frozenset({"elementwise", "scale", "movement", "reduction"})

RULES: tuple[Rule, ...] = (
    Rule("attention", "attention: the scores never leave the chip", seed="attention"),
    Rule("attention", "attention, spelled as two products with a softmax between them",
         seed="softmax", before=_SPELLED, after=_SPELLED, opens="contraction",
         closes="contraction", private=True),
    Rule("contraction", "a product", seed="contraction"),
    Rule("normalization", "a normalization with what is done before and after it",
         seed="normalization", before=_BETWEEN, after=_BETWEEN),
    Rule("normalization", "a normalization with what is done before and after it",
         operators=frozenset({"rsqrt", "sqrt"}), before=_BETWEEN, after=_BETWEEN),
    *(Rule("elementwise", "what stands between products", seed=seed, before=_BETWEEN, after=_BETWEEN)
      for seed in ("softmax", "reduction", "elementwise", "scale", "movement")),
    Rule("single", "no rule takes it in", seed="other"),
    Rule("view", "no work", seed="view"),
    Rule("boundary", "no work", seed="boundary"),
)  # fmt: skip
"""What an engine runs as one kernel, in this order."""

_FLAT = 2
"""Dimensions of a weight that can lie beside another."""

_COPIES = frozenset(
    {"reshape", "contiguous", "clone", "to", "expand", "repeat_interleave", "repeat"}
)
"""Operators by which a cache is brought into the form that a kernel of attention takes."""

_INDICES = frozenset({"int64", "int32", "bool"})
"""What tokens, positions and masks are in; a cache can be kept in fewer bits."""


def assumed(graph: Graph) -> tuple[Remark, ...]:
    """The remarks on what is taken for granted of an engine that runs a graph."""
    one = _Engine(graph)
    latent = any(one.latent(node) is not None for node in graph.nodes)
    return (ASSUMED, _LATENT) if latent else (ASSUMED,)


def engine(graph: Graph) -> Graph:
    """The same graph with the kernels that an engine runs."""
    return _Engine(replace(graph, nodes=tuple(map(as_causal, graph.nodes)))).run()


@dataclass(frozen=True, slots=True)
class _Latent:
    """Attention over what a product makes of cached latents of so many bytes, and what copies between."""

    product: Node
    up: Kernel
    attention: Kernel
    bytes: int
    copies: list[Node]


class _Engine:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.kernels = {n.id: n.kernels for n in graph.nodes}
        self.learned = _from_weights(graph)
        self.cached = _caches(graph)
        self.reach = {v: 1 << i for i, v in enumerate(graph.inputs)}
        """The inputs that a value follows from, as bits."""
        for node in graph.nodes:
            bits = 0
            for v in node.inputs:
                bits |= self.reach.get(v, 0)
            for v in node.outputs:
                self.reach.setdefault(v, bits)

    def run(self) -> Graph:
        self._in_place()
        self._absorbed()
        self._read_in_place()
        self._looked_up()
        self._fuse()
        self._scaled_where_made()
        self._merge()
        self._launch_together()
        graph = self.graph
        gone = {graph.value[v].storage for v in self.cached if self._joined(v) is not None}
        return replace(
            graph,
            nodes=tuple(replace(n, kernels=self.kernels[n.id]) for n in graph.nodes),
            storages=tuple(
                replace(s, bytes=0) if i in gone else s for i, s in enumerate(graph.storages)
            ),
        )

    # The cache

    def _joined(self, cached: int) -> Value | None:
        """What is new in a cache: what its earlier content, an input of the model, is joined with."""
        node = self.graph.producer.get(cached)
        if node is None or node.op != "cat":
            return None
        new = [v for v in node.inputs if self.graph.root(v).kind != "input"]
        return self.graph.value[new[0]] if new and len(new) < len(node.inputs) else None

    def _in_place(self) -> None:
        for cached in self.cached:
            new = self._joined(cached)
            if new is None:
                continue
            node = self.graph.producer[cached]
            self.kernels[node.id] = tuple(
                replace(k, read=new.bytes, written=new.bytes, shapes=(new.shape,),
                        out_shapes=(new.shape,))
                if k.bytes else k
                for k in self.kernels[node.id]
            )  # fmt: skip

    def _read_in_place(self) -> None:
        """Attention reads the cache where it lies, not copies of it for each head."""
        for node in self.graph.nodes:
            if role_of(node) not in ("attention", "contraction"):
                continue
            for number in dict.fromkeys(node.inputs):
                source, way = self._source(number)
                if source is None or not way:
                    continue
                saved = self.graph.value[number].bytes - self.graph.value[source].bytes
                for each in way:
                    self.kernels[each.id] = _idle(self.kernels[each.id])
                if saved > 0:
                    self.kernels[node.id] = _reading_less(self.kernels[node.id], saved)

    def _source(self, number: int) -> tuple[int | None, list[Node]]:
        """The cache that a value is a copy or a view of, and the nodes on the way that copy."""
        way = []
        while number not in self.cached:
            node = self.graph.producer.get(number)
            if node is None or not node.inputs:
                return None, []
            if any(k.bytes for k in node.kernels):
                if node.op not in _COPIES:
                    return None, []
                way.append(node)
            elif role_of(node) != "view":
                return None, []
            number = node.inputs[0]
        return number, way

    def _left(self, queries: int, keys: int) -> float:
        """The share of its pairs that attention computes. Keys that are kept for later tokens were seen by
        these alone (no others could be kept), as far as a window goes; those of an encoder, which do not
        follow from what queries follow from, by all."""
        source, _ = self._source(keys)
        shape = self.graph.value[queries].shape
        if source is None or len(shape) < 2 or self.reach[queries] & ~self.reach[source]:
            return 1.0
        tokens = shape[-2]
        if not isinstance(tokens, int) or tokens != self.graph.value[source].shape[-2]:
            return 1.0
        return seen(0, tokens, self.cached[source]) / tokens**2

    # Latents

    def latent(self, node: Node) -> _Latent | None:
        """What makes keys and values of earlier latents for attention; None for other attention."""
        if role_of(node) != "attention":
            return None
        graph, products, joints, way = self.graph, list[Node](), set[int](), dict[int, Node]()
        pending, met = list(node.inputs[1:]), set[int]()
        while pending:
            number = pending.pop()
            made = graph.producer.get(number)
            if number in self.cached:
                joints.add(number)
            elif made is not None and made.id not in met:
                met.add(made.id)
                weights = [v for v in made.inputs if graph.root(v).kind == "parameter"]
                if role_of(made) == "contraction" and len(weights) == 1:
                    products.append(made)
                elif made.op in _COPIES or role_of(made) in ("view", "movement", "elementwise"):
                    way[made.id] = made
                else:
                    return None
                pending += (v for v in made.inputs if v not in weights)
        if len(products) != 1 or not joints or not all(map(self._joined, joints)):
            return None
        ups = [k for k in products[0].kernels if k.flops]
        ones = [k for k in node.kernels if k.flops and k.category == "attention"]
        if not ups or not ones or not _plain(ups[0], ones[0]):
            return None
        copies = [n for n in way.values() if any(k.bytes for k in n.kernels)]
        return _Latent(
            products[0], ups[0], ones[0], sum(graph.value[v].bytes for v in joints), copies
        )

    def _absorbed(self) -> None:
        """Attention over cached latents themselves: the product that makes keys and values of them becomes
        one of the queries and one of attention's result, of the new tokens alone (DeepSeek-V2, arXiv
        2405.04434, section 2.1.2)."""
        for node in self.graph.nodes:
            if (found := self.latent(node)) is None:
                continue
            product, up, one = found.product, found.up, found.attention
            queries, keys, values = one.shapes[:3]
            many, heads, new, width = map(_int, queries)
            tokens, result, rank = _int(keys[-2]), _int(values[-1]), _int(up.shapes[0][-1])
            pairs = 2 * many * heads * new * tokens * (width + result)
            heads //= max(
                1, round(pairs / one.flops)
            )  # those of one of the devices that share them
            made = _int(up.out_shapes[0][-1]) // heads
            plain, rows = made - result, many * new  # of a key, what is made of the latent
            latent = rank + width - plain
            each = one.written // (many * heads * new * result) * rows * heads  # bytes of a column
            weights = sum(p.bytes for p in self.graph.parameters if p.name in product.parameters)
            sides = [
                replace(up, flops=2 * rows * heads * a * b, read=weights * part // made + each * a,
                        other_flops=up.other_flops * new * part // (tokens * made), written=each * b,
                        shapes=((heads, rows, a), (heads, a, b)), out_shapes=((heads, rows, b),))
                for part, a, b in ((plain, plain, rank), (result, rank, result))
            ]  # fmt: skip
            self.kernels[product.id] = tuple(
                sides[0] if k is up else _times(k, new / tokens) for k in self.kernels[product.id]
            )
            for i, copy in enumerate(found.copies):
                idle = _idle(self.kernels[copy.id])
                self.kernels[copy.id] = idle if i else (sides[1], *idle[1:])
            direct = replace(
                one, flops=one.flops * (latent + rank) // (width + result),
                read=max(0, one.read - each * tokens // new * (width + result))
                + found.bytes + each * (rank - plain),
                written=one.written + each * (rank - result),
                shapes=((many, 1, heads * new, latent), (many, 1, tokens, latent), (many, 1, tokens, rank)),
                out_shapes=((many, 1, heads * new, rank), *one.out_shapes[1:]),
            )  # fmt: skip
            self._put(node, one, direct)

    # Positions

    def _looked_up(self) -> None:
        """What follows from positions alone is not made in a step: the angles of rotary embeddings are in a
        table, and which keys a query sees is worked out by the kernel of attention."""
        for node in self.graph.nodes:
            if node.kind != "input" and node.outputs and self.learned.isdisjoint(node.outputs):
                self.kernels[node.id] = _idle(self.kernels[node.id])
            elif role_of(node) == "attention":
                masks = sum(self.graph.value[v].bytes for v in {*node.inputs} - self.learned)
                left = 1.0 if "(counted)" in node.arguments else self._left(*node.inputs[:2])
                self.kernels[node.id] = tuple(
                    replace(k, flops=int(left * k.flops), other_flops=int(left * k.other_flops))
                    for k in _reading_less(self.kernels[node.id], masks)
                )

    # Fusion

    def _fuse(self) -> None:
        graph = replace(
            self.graph,
            nodes=tuple(replace(n, kernels=self.kernels[n.id]) for n in self.graph.nodes),
        )
        joints = {graph.producer[v].id for v in self.cached if v in graph.producer}
        roles = [
            "other" if n.id in joints
            else "boundary" if n.outputs and self.learned.isdisjoint(n.outputs)
            else role_of(n)
            for n in graph.nodes
        ]  # fmt: skip
        groups = list(Grouping(graph, RULES, roles).groups())
        for part in subgraphs(graph, groups):
            if part.kernels > 1 and part.rule not in ("contraction", "single"):
                self._as_one(graph, part)

    def _as_one(self, graph: Graph, part: Subgraph) -> None:
        nodes = [graph.node(i) for i in part.nodes]
        working = [n for n in nodes if any(k.bytes for k in n.kernels)]
        own = [k for n in working for k in n.kernels if k.bytes]
        products = [k for k in own if k.flops]
        first = next((n for n in working if any(k.flops for k in n.kernels)), None)
        last = (products or own)[-1]
        made = {v for n in nodes for v in n.outputs}
        outside = dict.fromkeys(v for n in working for v in n.inputs if v not in made)
        category = "attention" if part.rule == "attention" else _category(own)
        masks = [v for v in outside if category == "attention" and v not in self.learned]
        some = self._left(*first.inputs[:2]) if first and products[0].category == "matmul" else 1.0
        kernel = Kernel(
            op=f"engine.{category}", category=category, dtype=last.dtype,
            flops=int(some * sum(k.flops for k in own)),
            other_flops=int(some * sum(k.other_flops for k in own)),
            read=max(0, part.fused_read - sum(graph.value[v].bytes for v in masks)),
            written=part.fused_written,
            shapes=products[0].shapes if products else tuple(graph.value[v].shape for v in outside),
            out_shapes=last.out_shapes,
        )  # fmt: skip
        for node in working:
            self.kernels[node.id] = _idle(self.kernels[node.id])
        place = working[-1].id
        self.kernels[place] = (kernel, *self.kernels[place][1:])

    def _merge(self) -> None:
        """Products of one value with several weights of a module are one, with the weights side by side."""
        alike: dict[tuple[int, str], list[Node]] = {}
        for node in self.graph.nodes:
            if (found := self._projected(node)) is not None:
                alike.setdefault((found, node.scope.rpartition(".")[0]), []).append(node)
        for (number, _), nodes in alike.items():
            if len(nodes) < 2:
                continue
            each = [next(k for k in self.kernels[n.id] if k.flops) for n in nodes]
            shared = min(self.graph.value[number].bytes, *(k.read for k in each))
            columns = [k.out_shapes[0][-1] for k in each]
            wide = sum(c for c in columns if isinstance(c, int))
            first = replace(
                each[0],
                flops=sum(k.flops for k in each), other_flops=sum(k.other_flops for k in each),
                read=sum(k.read for k in each) - shared * (len(each) - 1),
                written=sum(k.written for k in each),
                out_shapes=((*each[0].out_shapes[0][:-1], wide),),
            )  # fmt: skip
            for node, kernel in zip(nodes, each, strict=True):
                if node is nodes[0]:
                    self._put(node, kernel, first)
                else:  # nor are rows scaled once more
                    self.kernels[node.id] = _idle(self.kernels[node.id])

    def _scaled_where_made(self) -> None:
        """What is scaled to fewer bits for a product is so by the kernel that made it."""
        before: tuple[Node, Kernel] | None = None
        for node in self.graph.nodes:
            for kernel in self.kernels[node.id]:
                if not kernel.bytes:
                    continue
                made = None if before is None else before[1]
                joins = made is not None and made.op.startswith("engine.") and not made.flops
                if made and before and joins and kernel.op.startswith(SCALING):
                    scaled = replace(
                        made,
                        other_flops=made.other_flops + kernel.other_flops,
                        written=max(0, made.written - kernel.read) + kernel.written,
                    )
                    self._put(before[0], made, scaled)
                    self._put(node, kernel, _nothing(kernel))
                    before = None
                else:
                    before = (node, kernel)

    def _launch_together(self) -> None:
        """The same work on several tensors of a module, one after the other, is one kernel: rotary
        embeddings of queries and keys, new keys and values into the cache."""
        before: tuple[Node, Kernel] | None = None
        for node in self.graph.nodes:
            for kernel in self.kernels[node.id]:
                if not kernel.bytes:
                    continue
                alike = before is not None and (before[0].scope, before[1].op, before[1].dtype) == (
                    node.scope, kernel.op, kernel.dtype
                )  # fmt: skip
                if before is not None and alike and not kernel.flops:
                    both = replace(
                        kernel,
                        other_flops=before[1].other_flops + kernel.other_flops,
                        read=before[1].read + kernel.read,
                        written=before[1].written + kernel.written,
                        shapes=before[1].shapes + kernel.shapes,
                    )
                    self._put(before[0], before[1], _nothing(before[1]))
                    self._put(node, kernel, both)
                    kernel = both  # noqa: PLW2901 - what the next one is joined with
                before = (node, kernel)

    def _put(self, node: Node, old: Kernel, new: Kernel) -> None:
        self.kernels[node.id] = tuple(new if k is old else k for k in self.kernels[node.id])

    def _projected(self, node: Node) -> int | None:
        """The value that a node multiplies by a weight of its own, if that is all that it does."""
        products = [k for k in self.kernels[node.id] if k.flops]
        if len(products) != 1 or products[0].category != "matmul" or not products[0].out_shapes:
            return None
        roots = {v: self.graph.root(v) for v in node.inputs}
        weights = [v for v, root in roots.items() if root.kind == "parameter"]
        rest = [v for v in node.inputs if v not in weights]
        flat = all(len(roots[v].shape) <= _FLAT for v in weights)
        return rest[0] if weights and flat and len(rest) == 1 else None


def _caches(graph: Graph) -> dict[int, int | None]:
    """The values that the model returns as its cache: joints of what it had with what is new, and in a
    prefill of nothing with it; of a joint that is returned in part, the window that the rest makes with
    the next token."""
    found: dict[int, int | None] = {}
    for number in graph.outputs:
        value = whole = graph.value[number]
        while True:
            node = graph.producer.get(whole.id)
            if node is not None and node.op == "cat":
                kept = value.shape[-2] if len(value.shape) > 1 else None
                cut = isinstance(kept, int) and value.shape != whole.shape
                found[whole.id] = kept + 1 if cut and isinstance(kept, int) else None
                break
            if whole.alias_of is None:
                break
            whole = graph.value[whole.alias_of]
    return found


def _from_weights(graph: Graph) -> set[int]:
    """Values that follow from weights (or tables that stand for them) or from inputs that are no integers
    (caches, images)."""
    found = {
        v.id for v in graph.values
        if v.kind == "parameter" or (v.kind == "input" and v.dtype not in _INDICES)
        or (v.kind == "buffer" and len(v.shape) > 1 and v.dtype != "bool")
    }  # fmt: skip
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _plain(product: Kernel, attention: Kernel) -> bool:
    """Whether sizes are known of a product of rows with a weight, and of attention in four dimensions."""
    shapes = (*attention.shapes[:3], *product.shapes[:1], *product.out_shapes[:1])
    return len(shapes) == 5 and all(len(s) == 4 for s in shapes[:3]) and all(
        isinstance(n, int) for s in shapes for n in s
    )  # fmt: skip


def _times(kernel: Kernel, share: float) -> Kernel:
    """A share of a kernel."""
    return replace(
        kernel, flops=int(kernel.flops * share), other_flops=int(kernel.other_flops * share),
        read=int(kernel.read * share), written=int(kernel.written * share),
    )  # fmt: skip


def _int(size: int | str) -> int:
    return size if isinstance(size, int) else 1


def _category(kernels: Sequence[Kernel]) -> str:
    kinds = {k.category for k in kernels}
    order = ("indexing", "softmax", "normalization", "reduction")
    return next((c for c in order if c in kinds), "elementwise")


def _nothing(kernel: Kernel) -> Kernel:
    return Kernel(kernel.op, "view", kernel.dtype, cost="zero")


def _idle(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """As many kernels that do nothing."""
    return tuple(_nothing(k) if k.bytes or k.flops else k for k in kernels)


def _reading_less(kernels: Sequence[Kernel], saved: int) -> tuple[Kernel, ...]:
    """The kernels without reading so many bytes, which the one that reads most does."""
    most = max(kernels, key=lambda k: k.read, default=None)
    return tuple(replace(k, read=max(0, k.read - saved)) if k is most else k for k in kernels)
