"""A pipeline of 4 stages in the order of 1F1B: what each of two ranks keeps, and how long they wait.

python examples/pipelined.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import opgraph

STAGES, MICRO_BATCHES, TOKENS, WIDTH = 4, 8, 2048, 4096


def distance(out: Tensor, target: Tensor) -> Tensor:
    """What is made small."""
    return (out - target).square().mean()


def build() -> Schedule1F1B:
    """The stage of this rank: what stages hand on has to be said, for nothing is sent here."""
    mesh = init_device_mesh("cuda", (STAGES,), mesh_dim_names=("pp",))
    rank = mesh.get_local_rank()
    with torch.device("meta"):
        blocks = [nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)]
        handed = torch.empty(1, TOKENS, WIDTH, requires_grad=True)
        given = handed if rank else handed.detach()
    stage = PipelineStage(
        nn.Sequential(*blocks), rank, STAGES, torch.device("cuda"), group=mesh.get_group(),
        input_args=given, output_args=handed,
    )  # fmt: skip
    return Schedule1F1B(stage, MICRO_BATCHES, loss_fn=distance)


if __name__ == "__main__":
    batch = torch.empty(MICRO_BATCHES, TOKENS, WIDTH, device="meta")
    for rank in (0, STAGES - 1):
        with opgraph.ranks(STAGES, rank):
            profile = opgraph.profile(build(), batch, {"target": batch}, mode="train")
        costed = profile.on("h100-sxm")
        bubble = costed.prediction.communication.bubble
        print(f"rank {rank}: {costed.peak_memory / 2**30:.2f} GiB at the peak, "
              f"{bubble / costed.prediction.seconds:.0%} of the step is waiting")  # fmt: skip
