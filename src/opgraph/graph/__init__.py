"""The IR: plain data, its verifier and its JSON form. Nothing here imports torch."""

from opgraph.graph.ir import (
    Dim,
    Graph,
    GraphBreak,
    Kernel,
    Node,
    Parameter,
    Scope,
    Shape,
    Storage,
    Value,
)
from opgraph.graph.verify import InvariantError, verify

__all__ = [
    "Dim",
    "Graph",
    "GraphBreak",
    "InvariantError",
    "Kernel",
    "Node",
    "Parameter",
    "Scope",
    "Shape",
    "Storage",
    "Value",
    "verify",
]
