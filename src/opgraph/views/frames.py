"""The graph in the hands of other Python libraries: a pandas DataFrame, a networkx graph."""

from __future__ import annotations

from typing import Any

from opgraph import units
from opgraph.document import Profile
from opgraph.errors import MissingDependency
from opgraph.views.records import records


def to_pandas(profile: Profile) -> Any:
    """A `pandas.DataFrame` with one row a node, indexed by the node's number, with the columns of the
    CSV view. Raises `MissingDependency` without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependency("pandas", "data") from None
    return pd.DataFrame(records(profile)).set_index("id")


def to_networkx(profile: Profile) -> Any:
    """A `networkx.MultiDiGraph` with the numbers of nodes as its nodes and one edge for each tensor that
    a node reads from another; nodes carry the columns of the CSV view, edges `value`, `shape`, `dtype`
    and `bytes`. Raises `MissingDependency` without networkx."""
    try:
        import networkx as nx
    except ImportError:
        raise MissingDependency("networkx", "data") from None
    graph = nx.MultiDiGraph(name=profile.model.name)
    for record in records(profile):
        graph.add_node(
            record["id"], **{k: v for k, v in record.items() if k != "id" and v is not None}
        )
    producer = profile.graph.producer
    for node in profile.nodes:
        for number in node.inputs:
            if number in producer:
                value = profile.graph.value[number]
                graph.add_edge(producer[number].id, node.id, value=number, bytes=value.bytes,
                               shape=units.shape(value.shape), dtype=value.dtype)  # fmt: skip
    return graph
