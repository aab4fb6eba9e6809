"""Whether the tracers agree, model by model: FLOPs, parameters and bytes of each, and what is said where
one cannot. Run with names of models, or without for the list below; with --hybrid, the ladder alone.

    python benchmarks/tracers.py resnet18 gpt2
"""

from __future__ import annotations

import argparse

import opgraph
from opgraph.checking import check

MODELS = (
    "resnet18", "mobilenet_v2", "vit_b_16", "bert-base-uncased", "gpt2", "t5-small", "yolov8n.pt",
    "yolo11n.pt", "facebook/detr-resnet-50", "answerdotai/ModernBERT-base", "distilbert-base-uncased",
    "facebook/wav2vec2-base", "openai/whisper-tiny", "openai/clip-vit-base-patch32",
    "meta-llama/Llama-3.2-1B",
)  # fmt: skip


def compare(name: str) -> bool:
    """Print one line a tracer; whether all that got through agree on FLOPs and parameters."""
    found = check(name, peers=False)
    for trial in found.trials:
        if trial.profile is None or trial.error is not None:
            print(f"{name:30} {trial.tracer:7} cannot: {trial.error}"[:180], flush=True)
            continue
        totals, graph = trial.profile.totals, trial.profile.graph
        print(
            f"{name:30} {trial.tracer:7} {trial.seconds:6.1f} s {totals.nodes:5} nodes "
            f"{len(graph.breaks):3} breaks {totals.flops:>18,} FLOPs {totals.parameters:>14,} parameters "
            f"{totals.bytes:>14,} bytes",
            flush=True,
        )
    return found.agree


def climb(name: str) -> bool:
    """Print which rung of the ladder got through; whether one did."""
    found = opgraph.profile(name, tracer="hybrid")
    attempts = ", ".join(
        f"{a.tracer}/{a.tensors}{'' if a.error else ' ✓'}" for a in found.tracing.attempts
    )
    print(f"{name:30} {attempts}", flush=True)
    return found.graph.failed is None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--hybrid", action="store_true")
    args = parser.parse_args()
    wrong = []
    for name in args.models:
        try:
            right = (climb if args.hybrid else compare)(name)
        except opgraph.OpgraphError as error:
            print(f"{name:30} {error}", flush=True)
            right = False
        if not right:
            wrong.append(name)
    print(f"{len(args.models) - len(wrong)} of {len(args.models)} right", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
