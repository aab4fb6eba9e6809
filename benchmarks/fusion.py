"""The partition by rules against TorchInductor's own: how far do they put together the same nodes?

    python benchmarks/fusion.py [MODEL ...]

Both are of the graph that Dynamo captures. TorchInductor is asked for the CPU, where contractions and
attention are calls of libraries that take no epilogue. So the rules are held against it twice: as they
are, and with contractions by themselves. docs/fusion.md has the figures.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from agreement import partition_agreement

import opgraph
from opgraph.analysis.compiled import compiled_groups
from opgraph.analysis.fusion.partition import RULES, compiled, fused_subgraphs

BARE = tuple(replace(r, after=frozenset()) if r.seed == "contraction" else r for r in RULES)
"""The rules, without what follows a contraction."""

MODELS = ("bert-base-uncased", "gpt2", "yolov8n.pt", "resnet18")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    print(
        "| model | rules | nodes | subgraphs | TorchInductor's | adjusted Rand "
        "| edges alike | in both | in one only |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in parser.parse_args().models:
        profile = opgraph.profile(name, inductor=True, target="cpu")
        graph = profile.graph
        theirs = compiled(graph, [g for g in compiled_groups(profile.compiled) if g])
        for what, rules in (("as they are", RULES), ("contractions alone", BARE)):
            found = partition_agreement(graph, fused_subgraphs(graph, rules), theirs)
            ours, compiler = found.subgraphs
            print(
                f"| {name} | {what} | {found.nodes} | {ours} | {compiler} | {found.rand:.2f} | "
                f"{found.agreeing:.1%} of {found.edges} | {found.both} | "
                f"{found.first_only} rules, {found.second_only} TorchInductor |",
                flush=True,
            )


if __name__ == "__main__":
    main()
