"""Small parallel programs as a person writes them: each builds its meshes and applies torch's own tools.
They run unchanged in processes that do exchange something, and in one process that is one rank of many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

WORLD = 4
BATCH, TOKENS, WIDTH = 2, 8, 48


class Block(nn.Module):
    """Normalization and two products, with what is added to them."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Some blocks and a head whose rows do not divide evenly."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def inputs() -> Tensor:
    return torch.randn(BATCH, TOKENS, WIDTH)


def _mesh(shape: tuple[int, ...], *names: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def _fully(model: Model, mesh: Any, **more: Any) -> Model:
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, mesh=mesh, **more)
    fully_shard(model, mesh=mesh, **more)
    return model


def _tensor(model: Model, mesh: Any) -> Model:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan: Any = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def fsdp() -> nn.Module:
    return _fully(Model(), _mesh((WORLD,), "dp"))


def fsdp_kept() -> nn.Module:
    """Gathered once a step, and in half precision."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return _fully(Model(), _mesh((WORLD,), "dp"), reshard_after_forward=False, mp_policy=half)


def hsdp() -> nn.Module:
    return _fully(Model(), _mesh((2, 2), "replicate", "shard"))


def tensor() -> nn.Module:
    return _tensor(Model(), _mesh((WORLD,), "tp"))


def tensor_fsdp() -> nn.Module:
    mesh = _mesh((2, 2), "dp", "tp")
    return _fully(_tensor(Model(), mesh["tp"]), mesh["dp"])


def titan() -> nn.Module:
    """As torchtitan lays its models out: tokens split between operators that are split, selective
    checkpointing of each block, and each of them sharded, in half precision."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept = {torch.ops.aten.mm.default, torch.ops._c10d_functional.reduce_scatter_tensor.default}

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    mesh, model = _mesh((2, 2), "dp", "tp"), Model()
    tokens, whole = Shard(1), Replicate()
    parallelize_module(model, mesh["tp"], {
        "blocks.0": PrepareModuleInput(
            input_layouts=whole, desired_input_layouts=tokens, use_local_output=True),
        "head": ColwiseParallel(input_layouts=tokens, output_layouts=whole),
    })  # fmt: skip
    plan: Any = {
        "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=tokens),
        "down": RowwiseParallel(output_layouts=tokens),
    }  # fmt: skip
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
    contexts = partial(create_selective_checkpoint_contexts, policy)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = checkpoint_wrapper(block, context_fn=contexts)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return _fully(model, mesh["dp"], mp_policy=half)


def replicated() -> nn.Module:
    return nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.02)


class Routed(nn.Module):
    """Experts, one on each rank, to which as many tokens go from each."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = Block()

    def forward(self, x: Tensor) -> Tensor:
        from torch.distributed._functional_collectives import all_to_all_single_autograd as send

        world = torch.distributed.group.WORLD
        tokens = x.flatten(0, 1)
        there = send(tokens, None, None, world)
        return x + send(self.expert(there), None, None, world).view_as(x)


def experts() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Routed(), Routed())


class Attending(nn.Module):
    """A block whose tokens see those before them."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(seen.transpose(1, 2).flatten(2))


class Context(Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Attending() for _ in range(3))


def long_inputs() -> Tensor:
    return torch.randn(BATCH, 256, WIDTH)


class Ring(torch.autograd.Function):
    """Torch's own ring, over its kernel of attention for a CPU, for which it has no dispatch."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.distributed.tensor.experimental._context_parallel import _attention as ring

        kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        group: Any = torch.distributed.group.WORLD
        out, lse = ring._templated_ring_attention(group, 2, kernel, q, k, v, is_causal=True)[:2]
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        from torch.distributed.tensor.experimental._context_parallel import _attention as ring

        def kernel(is_causal: bool, **named: Any) -> Any:
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                dropout_p=0.0, is_causal=is_causal, **named
            )
            return (*found, None)

        q, k, v, out, lse = ctx.saved_tensors
        return ring._templated_ring_attention_backward(
            torch.distributed.group.WORLD, 2, kernel, gradient, "grad_out", q, k, v, out, lse, True
        )[:3]


def context() -> nn.Module:
    """What `context_parallel` makes of a model, for a CPU; its inputs are the tokens of a rank."""

    def attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        assert is_causal
        return Ring.apply(q, k, v)  # type: ignore[no-any-return, no-untyped-call]

    nn.functional.scaled_dot_product_attention = attend  # type: ignore[assignment]
    return _fully(Context(), _mesh((WORLD,), "dp"))


# Pipelines: each gives a schedule, whose stages are those of this rank.

MICRO = 4


def _stages(count: int, schedule: str) -> list[Any]:
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    group = _mesh((WORLD,), "pp").get_group()
    here = [dist.get_rank() + at for at in range(0, count, WORLD)]
    if schedule == "ZBV":
        here = [dist.get_rank(), count - 1 - dist.get_rank()]
    like = torch.empty(BATCH, TOKENS, WIDTH)
    return [
        PipelineStage(
            nn.Sequential(Block(), Block()), number, count, torch.device("cpu"), group=group,
            input_args=like.clone().requires_grad_(number > 0),
            output_args=like.clone().requires_grad_(),
        )
        for number in here
    ]  # fmt: skip


def distance(out: Tensor, target: Tensor) -> Tensor:
    return (out - target).square().mean()


def unsaid(again: bool = False) -> Any:
    """1F1B whose stages do not say what they hand on; `again` checkpoints their blocks."""
    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    group, rank = _mesh((WORLD,), "pp").get_group(), dist.get_rank()
    blocks = [checkpoint_wrapper(Block()) if again else Block() for _ in range(2)]
    stage = PipelineStage(nn.Sequential(*blocks), rank, WORLD, torch.device("cpu"), group=group)
    return Schedule1F1B(stage, MICRO, loss_fn=distance)


def pipeline() -> Any:
    from torch.distributed.pipelining import Schedule1F1B

    return Schedule1F1B(_stages(WORLD, "1F1B")[0], MICRO, loss_fn=distance)


def filled_and_drained() -> Any:
    from torch.distributed.pipelining import ScheduleGPipe

    return ScheduleGPipe(_stages(WORLD, "GPipe")[0], MICRO, loss_fn=distance)


def interleaved() -> Any:
    from torch.distributed.pipelining import ScheduleInterleaved1F1B

    return ScheduleInterleaved1F1B(_stages(2 * WORLD, "interleaved"), MICRO, loss_fn=distance)


def zero_bubble() -> Any:
    from torch.distributed.pipelining import ScheduleInterleavedZeroBubble

    return ScheduleInterleavedZeroBubble(_stages(2 * WORLD, "zero"), MICRO, loss_fn=distance)


def zero_bubble_v() -> Any:
    from torch.distributed.pipelining import ScheduleZBVZeroBubble

    return ScheduleZBVZeroBubble(_stages(2 * WORLD, "ZBV"), MICRO, loss_fn=distance)


PIPELINES: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (pipeline, filled_and_drained, interleaved, zero_bubble, zero_bubble_v)
}  # fmt: skip


def batch_of_a_step() -> Tensor:
    return torch.randn(BATCH * MICRO, TOKENS, WIDTH)


PROGRAMS: dict[str, Callable[[], nn.Module]] = {
    f.__name__: f for f in (fsdp, fsdp_kept, hsdp, tensor, tensor_fsdp, titan, replicated, experts)
}
