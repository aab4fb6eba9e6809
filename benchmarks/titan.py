"""torchtitan's own training steps on one pretended rank, put together as its trainer does, and unchanged.

pip install torchtitan
python -m benchmarks.titan [NAME …]        a row for each way of laying a small model out

Its parallelize function is applied to a model on the meta device; its trainer's own methods shard what a
step is called with; its loss is what is made small. Nothing of torchtitan is changed.
"""

from __future__ import annotations

import importlib
import resource
import sys
from collections import Counter
from typing import Any

WORLD, TOKENS = 8, 512

WAYS: dict[str, dict[str, Any]] = {
    "FSDP 8": {},
    "HSDP 2 x 4": {"data_parallel_replicate_degree": 2},
    "TP 2 x FSDP 4": {"tensor_parallel_degree": 2},
    "TP 2, selective checkpointing": {"tensor_parallel_degree": 2, "checkpointing": "selective"},
    "TP 2, no checkpointing": {"tensor_parallel_degree": 2, "checkpointing": "none"},
    "TP 2, full DTensor": {"tensor_parallel_degree": 2, "spmd_backend": "full_dtensor"},
    "CP 2 x TP 2 x FSDP 2": {"tensor_parallel_degree": 2, "context_parallel_degree": 2},
    "PP 2 x TP 2, 1F1B": {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2,
                          "pipeline_parallel_schedule": "1F1B"},
    "PP 2 x TP 2, interleaved": {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2},
    "DeepSeek-V3, EP 4 x TP 2": {"model": "deepseek_v3", "tensor_parallel_degree": 2,
                                 "expert_parallel_degree": 4},
}  # fmt: skip
"""Ways of laying out, by what torchtitan's own configuration calls them."""


def step(
    model: str = "llama3", checkpointing: str = "full", spmd_backend: str = "spmd_types", **ways: int
) -> Any:  # fmt: skip
    """The profile of a step."""
    import torch
    import torch.distributed as dist
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed import utils as tools
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
    from torchtitan.trainer import Trainer

    import opgraph

    with opgraph.ranks(WORLD):
        registry = importlib.import_module(f"torchtitan.models.{model}.config_registry")
        config = getattr(registry, f"{model}_debugmodel")()
        batch = 8 if "pipeline_parallel_degree" in ways else 2
        for name, value in ways.items():
            setattr(config.parallelism, name, value)
        config.parallelism.spmd_backend = spmd_backend
        config.training.seq_len, config.training.local_batch_size = TOKENS, batch
        kinds = {"full": FullAC.Config(), "selective": SelectiveAC.Config()}
        config.activation_checkpoint = kinds.get(checkpointing)
        config.loss = config.loss.loss_fn if batch == 8 else config.loss
        trainer: Any = object.__new__(Trainer)  # its own set-up reads data sets and fills weights
        trainer.config, trainer.device, trainer.ntokens_seen = config, torch.device("cpu"), 0
        trainer.parallel_dims = dims = ParallelDims.from_config(config.parallelism, WORLD)
        assert dist.get_world_size() == WORLD
        dims.build_mesh()
        tools.set_spmd_backend(spmd_backend)
        spec = config.model_spec
        trainer.model_config = spec.model
        spec.model.update_from_config(config=config)
        with torch.device("meta"):
            built = spec.model.build()
        loss = config.loss.build(compile_config=config.compile)
        given = {
            "parallel_dims": dims, "training": config.training, "parallelism": config.parallelism,
            "compile_config": config.compile, "ac_config": config.activation_checkpoint,
            "dump_folder": "",
        }  # fmt: skip
        if dims.pp_enabled:
            made, trainer.model_parts, *_ = spec.pipelining_fn(
                built, device=trainer.device, model_config=spec.model,
                parallelize_fn=spec.parallelize_fn, loss_fn=loss, **given,
            )  # fmt: skip
        else:
            made = spec.parallelize_fn(built, **given)
            trainer.model_parts = [made]
            if hasattr(loss, "set_lm_head"):
                loss.set_lm_head(made.lm_head)
                made._skip_lm_head = True
        tokens = torch.zeros(batch, TOKENS, dtype=torch.int64)
        places = torch.arange(TOKENS).repeat(batch, 1)
        inputs, labels, more = trainer.post_dataloading_process(
            {"input": tokens, "positions": places}, tokens.clone()
        )
        valid = float(labels.numel())
        with tools.get_spmd_context(parallel_dims=dims)():
            if dims.pp_enabled:
                more |= {"target": labels, "loss_kwargs": {"global_valid_tokens": valid}}
                return opgraph.profile(made, inputs, more, mode="train")
            made_small: Any = lambda out: loss(out, labels, valid)[0]  # noqa: E731
            return opgraph.profile(made, inputs, more, mode="train", loss=made_small)


def main(names: list[str]) -> None:
    print(
        "| way | GFLOPs | weights | peak | nodes | exchanged, in number |\n|---|---|---|---|---|---|"
    )
    for name, options in WAYS.items():
        if names and name not in names:
            continue
        profile = step(**options)
        costed = profile.on("h100-sxm")
        times: Counter[str] = Counter()
        for each in costed.exchanged:
            times[f"{each.group or each.ranks}: {each.kind.value}"] += each.times
        said = ", ".join(f"{n} × {count}" for n, count in sorted(times.items()))
        flops, peak = profile.totals.flops / 1e9, costed.peak_memory / 2**20
        nodes = len(profile.graph.nodes)
        print(f"| {name} | {flops:.2f} | {peak:.1f} MiB | {nodes:,} | {said} |", flush=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
