"""What did a device and its host do in a trace, and which node was it for? `read` takes the trace of a
profiler (torch.profiler's JSON, plain, gzipped or cut off; a folder of ranks; what Nsight Systems exports
as sqlite; a snapshot of torch's caching allocator), `join` gives each operator and kernel in it to the
nodes of a graph, and `joined` is both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opgraph.traces.joining import join
from opgraph.traces.reading import read

if TYPE_CHECKING:
    from os import PathLike

    from opgraph.record.profile import ProfileRecord
    from opgraph.record.run import RunRecord

__all__ = ["join", "joined", "read"]


def joined(profile: ProfileRecord, path: str | PathLike[str]) -> RunRecord:
    """Read a trace and give what is in it to the nodes of a profile's graph.

    Raises `ProfileError` for a file that is no trace, or is broken.
    """
    return join(profile.graph, read(path))
