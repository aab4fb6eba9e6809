"""Applying fusion rules to a graph: which nodes go together.

A subgraph grows from a seed, backwards and forwards, over nodes that are still free. It stays convex:
nothing outside of it depends on one of its nodes and is needed by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from opgraph.record.graph import Graph, Node

# What part a node plays in fusion, by its operator and by the kernels it ran.

Role = Literal[
    "boundary", "contraction", "attention", "normalization", "scale", "softmax", "reduction",
    "elementwise", "movement", "view", "other",
]  # fmt: skip
"""Boundary is an input, an output or a constant; scale is a normalization whose statistics are given,
which is element-wise work; movement is copying, gathering and joining."""

_OF_CATEGORY: dict[str, Role] = {
    "matmul": "contraction",
    "convolution": "contraction",
    "depthwise_convolution": "contraction",
    "grouped_convolution": "contraction",
    "attention": "attention",
    "normalization": "normalization",
    "softmax": "softmax",
    "reduction": "reduction",
    "pooling": "reduction",
    "elementwise": "elementwise",
    "copy": "movement",
    "indexing": "movement",
    "interpolation": "movement",
}
_OF_OPERATOR: dict[str, Role] = {
    "scaled_dot_product_attention": "attention",
    "multi_head_attention_forward": "attention",
    "rms_norm": "normalization",
    "softmax": "softmax",
    "to": "elementwise",
    "clone": "elementwise",
    "contiguous": "elementwise",
    "reshape": "elementwise",
    "masked_fill": "elementwise",
    "where": "elementwise",
    "copy": "elementwise",
}
RANK: tuple[Role, ...] = (
    "attention", "other", "contraction", "softmax", "normalization", "reduction", "movement",
    "elementwise", "view",
)  # fmt: skip
"""Of a node with several kernels, the first of these that occurs is its role."""


def roles_of(graph: Graph) -> tuple[Role, ...]:
    """The roles of all nodes, in order."""
    return tuple(map(role_of, graph.nodes))


def role_of(node: Node) -> Role:
    """The role of a node."""
    if node.kind != "call":
        return "boundary"
    working = [k for k in node.kernels if k.cost != "zero" and (k.bytes or k.flops)]
    if not working:
        return "view"
    if node.op in _OF_OPERATOR:
        return _OF_OPERATOR[node.op]
    if node.op == "batch_norm" and not any(_has_statistics(k.out_shapes) for k in working):
        return "scale"
    roles = {_OF_CATEGORY.get(k.category, "other") for k in working}
    return next(r for r in RANK if r in roles)


def _has_statistics(out_shapes: tuple[tuple[int | str, ...], ...]) -> bool:
    """A batch norm in training gives the mean and the variance of the batch; otherwise they are empty."""
    return len(out_shapes) > 1 and bool(out_shapes[1]) and out_shapes[1] != (0,)


_REACH = 400
"""Nodes between the first and the last of a subgraph, at most: further apart is not worth holding."""

_PATIENCE = 16
"""Nodes that are tried in vain behind a private result before it is given up."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Subgraphs start from a node of the role `seed` (or of the operators `operators`), and take in what
    leads to it of the roles `before` and what follows of the roles `after`.

    `opens` and `closes` are roles of which one node must stand at the beginning and the end. `needs` is
    a role that must occur. `private` results are only taken in where nothing outside needs them.
    """

    name: str
    reason: str
    seed: Role | None = None
    operators: frozenset[str] = frozenset()
    before: frozenset[Role] = frozenset()
    after: frozenset[Role] = frozenset()
    opens: Role | None = None
    closes: Role | None = None
    needs: Role | None = None
    private: bool = False


class Grouping:
    """Applies rules, in order, to the nodes that are still free; `roles` are the nodes' roles."""

    def __init__(self, graph: Graph, rules: Sequence[Rule], roles: Sequence[Role]) -> None:
        self._graph, self._rules, self._roles = graph, rules, roles
        self._before = {n.id: self._made(n) for n in graph.nodes}
        self._after = {n.id: self._used(n) for n in graph.nodes}
        self._behind = {i: frozenset(p.id for p in found) for i, found in self._before.items()}
        self._taken: set[int] = set()
        self._results = frozenset(graph.outputs)

    def groups(self) -> Iterator[tuple[Rule, tuple[Node, ...]]]:
        """Every node in exactly one group, with the rule that made it."""
        for rule in self._rules:
            for node in self._graph.nodes:
                if node.id in self._taken or not self._starts(rule, node):
                    continue
                members = self._grow(rule, node)
                if members is not None:
                    self._taken |= members
                    yield rule, tuple(self._graph.node(i) for i in sorted(members))

    def _starts(self, rule: Rule, node: Node) -> bool:
        if rule.operators:
            return node.op in rule.operators and self._role(node) not in ("boundary", "view")
        return self._role(node) == rule.seed

    def _grow(self, rule: Rule, seed: Node) -> set[int] | None:
        """The nodes of a subgraph around a seed; None where what the rule asks for is not there."""
        members = {seed.id}
        if rule.opens is not None and not self._ends(rule, rule.opens, self._sources, members):
            return None
        if rule.closes is not None and not self._ends(rule, rule.closes, self._users, members):
            return None
        if rule.opens is None and rule.closes is None:
            if rule.private:
                members = self._epilogue(rule, members)
            else:
                while self._spread(rule, members, seed):
                    pass
        if rule.needs is not None and not any(self._roles[i - 1] == rule.needs for i in members):
            return None
        return self._with_views(members)

    def _spread(self, rule: Rule, members: set[int], seed: Node) -> bool:
        """Take in all neighbours that the rule allows; whether there were any."""
        before = len(members)
        for step, roles in ((self._sources, rule.before), (self._users, rule.after)):
            pending = sorted(members)
            while pending:
                for node in step(self._graph.node(pending.pop(0))):
                    passes = self._role(node) in roles or (
                        self._role(node) == "view" and bool(roles)
                    )
                    if passes and self._free(node, members) and self._convex(members | {node.id}):
                        members.add(node.id)
                        pending.append(node.id)
        self._drop_loose_views(members, seed)
        return len(members) > before

    def _ends(
        self,
        rule: Rule,
        role: Role,
        step: Callable[[Node], Iterable[Node]],
        members: set[int],
    ) -> bool:
        """Walk from the subgraph over what the rule allows to one node of a role, over results that
        nothing else needs."""
        path: set[int] = set()
        pending = sorted(members)
        allowed = rule.before if role == rule.opens and step == self._sources else rule.after
        while pending:
            for node in step(self._graph.node(pending.pop(0))):
                if not self._free(node, members | path):
                    continue
                found = self._role(node) == role
                if not (found or self._role(node) in allowed or self._role(node) == "view"):
                    continue
                grown = members | path | {node.id}
                if not self._convex(grown) or len(self._exits(grown)) > 1:
                    continue
                path.add(node.id)
                if found:
                    members |= path
                    return True
                pending.append(node.id)
        return False

    def _epilogue(self, rule: Rule, members: set[int]) -> set[int]:
        """Take in what follows as long as only the last result is needed outside: a node may join that
        needs its neighbours to come along (x * sigmoid(x))."""
        best = grown = set(members)
        patience = _PATIENCE
        while patience:
            candidates = {
                user.id
                for i in grown
                for user in self._users(self._graph.node(i))
                if self._free(user, grown)
                and (self._role(user) in rule.after or self._role(user) == "view")
            }
            node = next((i for i in sorted(candidates) if self._convex(grown | {i})), None)
            if node is None:
                break
            grown = grown | {node}
            patience -= 1
            if len(self._exits(grown)) == 1 and self._role(self._graph.node(node)) != "view":
                best, patience = grown, _PATIENCE
        return best

    def _exits(self, members: set[int]) -> set[int]:
        """Members whose results are needed outside; a view counts as what it shows."""
        return {
            self._shown(self._graph.node(i), members)
            for i in members
            for v in self._graph.node(i).outputs
            if v in self._results or any(u.id not in members for u in self._graph.users.get(v, ()))
        }

    def _shown(self, node: Node, members: set[int]) -> int:
        while self._role(node) == "view":
            source = next((s for s in self._sources(node) if s.id in members), None)
            if source is None:
                break
            node = source
        return node.id

    def _with_views(self, members: set[int]) -> set[int]:
        """Fold in the views of what the members make, and views of weights that only they read."""
        members = set(members)
        pending = sorted(members)
        while pending:
            node = self._graph.node(pending.pop())
            if self._role(node) == "boundary":
                continue
            views = [*self._users(node)]
            views += [s for s in self._sources(node) if self._only_for(s, members)]
            for view in views:
                if (
                    self._role(view) == "view"
                    and self._free(view, members)
                    and self._convex(members | {view.id})
                ):
                    members.add(view.id)
                    pending.append(view.id)
        return members

    def _drop_loose_views(self, members: set[int], seed: Node) -> None:
        """Views that lead to the subgraph belong to what made their data, which is not in it."""
        for i in sorted(members - {seed.id}):
            node = self._graph.node(i)
            if self._role(node) == "view" and not any(s.id in members for s in self._sources(node)):
                members.discard(i)

    def _only_for(self, view: Node, members: set[int]) -> bool:
        """Whether a view of an input or a weight is read by members only."""
        sources = (self._graph.producer.get(v) for v in view.inputs)
        bare = all(p is None or self._role(p) == "boundary" for p in sources)
        return bare and all(u.id in members for u in self._users(view))

    def _role(self, node: Node) -> Role:
        return self._roles[node.id - 1]

    def _free(self, node: Node, members: set[int]) -> bool:
        return node.id not in members and node.id not in self._taken

    def _made(self, node: Node) -> tuple[Node, ...]:
        found = (self._graph.producer.get(v) for v in node.inputs)
        return tuple({p.id: p for p in found if p is not None}.values())

    def _used(self, node: Node) -> tuple[Node, ...]:
        return tuple({u.id: u for v in node.outputs for u in self._graph.users.get(v, ())}.values())

    def _sources(self, node: Node) -> tuple[Node, ...]:
        return self._before[node.id]

    def _users(self, node: Node) -> tuple[Node, ...]:
        return self._after[node.id]

    def _convex(self, members: set[int]) -> bool:
        first, last = min(members), max(members)
        if last - first > _REACH:
            return False
        if last - first < len(members):
            return True  # nothing stands between them
        behind: set[int] = set()
        for i in range(first, last + 1):
            sources = self._behind[i]
            if i in members:
                if not behind.isdisjoint(sources):
                    return False
            elif not (members.isdisjoint(sources) and behind.isdisjoint(sources)):
                behind.add(i)
        return True
