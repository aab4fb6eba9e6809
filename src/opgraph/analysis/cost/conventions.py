"""Conventions of counting in which published figures differ. They are applied to a graph that was counted
as opgraph counts, and kept with the profile, so that the totals can say them.

attention: "full" counts all pairs of positions, as FlopCounterMode and PaLM do (Chowdhery et al. 2022,
appendix B); "causal" those alone that a causal mask leaves, as FlashAttention 2 does (Dao 2023, section
4.1).

embedding: "lookup" counts a look-up in a table as no arithmetic; "matmul" as the product of one-hot rows
with the table, as Chinchilla does (Hoffmann et al. 2022, appendix F).

What else differs needs no choice, since it is always shown apart: MACs beside FLOPs, and the FLOPs of
element-wise and other work beside those of contractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opgraph.options import CONVENTIONS, OPTIONS
from opgraph.record.errors import InputError
from opgraph.record.graph import Kernel, Node, elements
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import no_effect

LOOK_UP = "aten.embedding"
_ATTENTION, _CAUSAL = "scaled_dot_product_attention", "is_causal=True"


def counted(profile: ProfileRecord, asked: Mapping[str, str]) -> ProfileRecord:
    """The profile with its FLOPs counted by other conventions.

    Raises `InputError` for a convention that does not exist, for a profile that was counted otherwise
    already, and for causal attention in a step of training, whose gradients do not say what they are of.
    """
    own = {name: values[0] for name, values in CONVENTIONS.items()}
    changes = {n: v for n, v in OPTIONS["count"].check(asked).items() if v != own[n]}
    if not changes:
        return profile
    before = [n for n in own if profile.convention.get(n, own[n]) != own[n]]
    if before:
        raise InputError(f"this profile was counted with {before[0]}={profile.convention[before[0]]}",
                         hint="profile the model anew")  # fmt: skip
    if "attention" in changes and profile.mode == "train":
        raise InputError("the gradients of attention do not say whether it was causal")
    nodes = tuple(_node(n, changes) for n in profile.graph.nodes)
    notes = tuple(
        no_effect(f"count {name}={value}", "no operator is counted otherwise")
        for name, value in changes.items()
        if all(_node(n, {name: value}) == n for n in profile.graph.nodes)
    )
    return replace(
        profile,
        graph=replace(profile.graph, nodes=nodes),
        formulas=profile.formulas if nodes == profile.graph.nodes else None,
        convention={**profile.convention, **changes},
        model=profile.model.noting(*notes),
    )


def causal_operators(profile: ProfileRecord) -> tuple[int, int]:
    """How many operators of attention say that they are causal, and how many there are."""
    found = [n for n in profile.graph.nodes if n.op == _ATTENTION]
    return sum(_CAUSAL in n.arguments for n in found), len(found)


def is_causal(node: Node) -> bool:
    """Whether a node is causal attention, or its gradient, of which all pairs are counted."""
    return "scaled_dot_product" in node.op and _CAUSAL in node.arguments.split(", ")


def is_masked(node: Node, kernel: Kernel) -> bool:
    """Whether a causal mask leaves out pairs of what a kernel of a node computes: as the kernel was called,
    of which the first alone is causal where attention goes round a ring; or where that is not known, as the
    node was."""
    return is_causal(node) if kernel.causal is None else kernel.causal


def pairs_left(queries: int, keys: int) -> int:
    """The pairs of S x T that a causal mask leaves: query i attends to the keys up to i."""
    both = min(queries, keys)
    return both * (both + 1) // 2 + (queries - both) * keys


def seen(before: int, tokens: int, limit: int | None) -> int:
    """The pairs of new tokens with the keys up to them, of which each sees at most the last `limit`."""
    first, last = before + 1, before + tokens
    if limit is None or last <= limit:
        return (first + last) * tokens // 2
    if first >= limit:
        return limit * tokens
    grows = limit - first + 1
    return (first + limit) * grows // 2 + limit * (tokens - grows)


def as_causal(node: Node) -> Node:
    """A node with the pairs of attention alone that a causal mask leaves, if it has one; it says so."""
    if node.op != _ATTENTION or not is_causal(node):
        return node
    said = node.arguments.replace(_CAUSAL, f"{_CAUSAL} (counted)")
    return replace(node, kernels=_causal(node.kernels), arguments=said)


def _node(node: Node, changes: Mapping[str, str]) -> Node:
    if "attention" in changes:
        node = as_causal(node)
    if "embedding" in changes and node.op == "embedding":
        return replace(node, kernels=tuple(map(_as_product, node.kernels)))
    return node


def _causal(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels with what their masks leave: of attention by products, as it is of the first of them."""
    first = next((k for k in kernels if k.flops), None)

    def left(kernel: Kernel) -> Kernel:
        one = first if kernel.causal is None else kernel
        if one is None or kernel.causal is False or len(one.shapes) < 2:
            return kernel
        if min(map(len, one.shapes[:2])) < 2:
            return kernel
        queries = one.shapes[0][-2]
        keys = one.shapes[1][-2] if one.category == "attention" else one.shapes[1][-1]
        if not isinstance(queries, int) or not isinstance(keys, int) or not queries * keys:
            return kernel
        pairs = pairs_left(queries, keys)
        return replace(kernel, flops=kernel.flops * pairs // (queries * keys), causal=None)

    return tuple(map(left, kernels))


def _as_product(kernel: Kernel) -> Kernel:
    """A look-up as the product of one-hot rows with the table."""
    if kernel.op != LOOK_UP or len(kernel.shapes) != 2:
        return kernel
    table, ids = kernel.shapes
    return replace(kernel, flops=2 * elements(table) * elements(ids))
