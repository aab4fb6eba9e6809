"""Tensor parallel over 8 ranks and sharded over 16: a language model's own tools and torch's, on 128 ranks.

python examples/tensor_and_sharded.py
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

import opgraph

DATA, TENSOR = 16, 8


def build() -> LlamaForCausalLM:
    """Columns of the first projections and rows of the last ones are split, then all of it is sharded."""
    mesh = init_device_mesh("cuda", (DATA, TENSOR), mesh_dim_names=("dp", "tp"))
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=4,
                         num_attention_heads=16, num_key_value_heads=8, use_cache=False)  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    columns = (
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
    )
    rows = ("self_attn.o_proj", "mlp.down_proj")
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        plan = {c: ColwiseParallel() for c in columns} | {r: RowwiseParallel() for r in rows}
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"], mp_policy=half)
    return fully_shard(model, mesh=mesh["dp"], mp_policy=half)


if __name__ == "__main__":
    with opgraph.ranks(DATA * TENSOR):
        profile = opgraph.profile(build(), mode="train", batch_size=1, seq_len=4096)
    costed = profile.on("h100-sxm")
    for each in costed.exchanged:
        print(f"{each.phase}: {each.times} x {each.kind} ({each.group}), {each.sent:,} bytes sent")
    taken = costed.prediction.communication
    exposed = f"{taken.exposed * 1e3:.1f} of {taken.seconds * 1e3:.1f} ms of exchange are exposed"
    print(f"a step: {costed.prediction.written}; {exposed}")
