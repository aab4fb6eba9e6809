"""What a trace for a GPU runs instead of the CPU's kernels, forward and backward."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import opgraph
from opgraph.analysis.cost.training import training
from opgraph.hardware import device as named_device
from opgraph.record.errors import InputError
from opgraph.record.targets import AS_ON_A_CPU
from opgraph.record.verify import verify
from opgraph.views.page.data import page_data


def kernels(profile, *phases: str) -> Counter[str]:
    wanted = phases or ("forward", "backward")
    found = Counter()
    for kernel in (k for n in profile.graph.nodes if n.phase in wanted for k in n.kernels):
        found[kernel.op.removeprefix("aten.")] += kernel.launches
    return found


class Layer(nn.Module):
    """What a transformer layer calls, by itself or by torch's own module."""

    def __init__(self, own: bool, dropout: float = 0.1) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, dropout=dropout, batch_first=True)
        self.project, self.norm, self.drop = nn.Linear(32, 96), nn.RMSNorm(32), nn.Dropout(dropout)
        self.own = own

    def forward(self, x):
        if self.own:
            return self.norm(self.drop(self.attention(x, x, x, need_weights=False)[0]))
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        p = self.drop.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
        return self.norm(self.drop(y.transpose(1, 2).flatten(-2)))


@pytest.mark.parametrize("own", [False, True])
def test_a_layer_in_training_runs_fused_kernels(own):
    x = torch.randn(2, 16, 32, dtype=torch.bfloat16)
    model = Layer(own).to(torch.bfloat16)
    profile = opgraph.profile(model, x, mode="train", target="cuda", loss="sum")
    ran = kernels(profile)
    for op in ("_scaled_dot_product_flash_attention", "native_dropout", "_fused_rms_norm"):
        assert (ran[op], ran[f"{op}_backward"]) == (1, 1)
    assert not ran["bernoulli_"]
    assert profile.totals.coverage == 1.0
    chosen = {s.op: (s.chosen, s.count) for s in profile.target.substitutions}
    assert chosen == {
        "scaled_dot_product_attention": ("flash", 1), "dropout": ("native_dropout", 1),
        "rms_norm": ("_fused_rms_norm", 1), "adamw": ("foreach", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "dtype", "mask", "op"),
    [
        ("cuda", torch.float32, False, "_scaled_dot_product_efficient_attention"),
        ("cuda", torch.float16, False, "_scaled_dot_product_flash_attention"),
        ("cuda:7.5", torch.float16, False, "_scaled_dot_product_efficient_attention"),
        ("cuda:9.0", torch.float16, True, "_scaled_dot_product_cudnn_attention"),
        ("cuda:8.0", torch.float16, True, "_scaled_dot_product_efficient_attention"),
        ("cpu", torch.float16, False, "_scaled_dot_product_flash_attention_for_cpu"),
    ],
)
@pytest.mark.parametrize("tokens", [16, 17])
def test_attention_runs_the_kernel_of_the_target(target, dtype, mask, op, tokens):
    class Attends(nn.Module):
        def forward(self, q):
            kept = torch.ones(tokens, tokens, dtype=torch.bool).tril() if mask else None
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=kept)

    q = torch.randn(2, 4, tokens, 24, dtype=dtype)
    profile = opgraph.profile(Attends(), q, target=target)
    assert kernels(profile)[op] == 1
    assert profile.totals.flops == 2 * 2 * 2 * 4 * tokens * tokens * 24
    assert tuple(profile.graph.values[-1].shape) == (2, 4, tokens, 24)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(8, 16, 2, bidirectional=True), nn.GRU(8, 16), nn.RNN(8, 16, bias=False),
        nn.LSTM(8, 16, proj_size=4),
    ],
)  # fmt: skip
def test_recurrent_layers_are_one_kernel_of_cudnn(layer):
    """Each product of the forward, from the input and from the state, twice more in the backward."""
    profile = opgraph.profile(layer, torch.randn(5, 3, 8), mode="train", target="cuda", loss="sum")
    ran = kernels(profile)
    assert (ran["_cudnn_rnn"], ran["_cudnn_rnn_backward"]) == (1, 1)
    matrices = sum(w.numel() for n, w in layer.named_parameters() if "weight" in n)
    assert profile.totals.flops == 3 * 2 * 5 * 3 * matrices
    assert profile.totals.coverage == 1.0
    assert training(profile.graph).gradients == sum(4 * w.numel() for w in layer.parameters())
    real = layer(torch.randn(5, 3, 8))[0]
    outputs = opgraph.profile(layer, torch.randn(5, 3, 8), target="cuda").graph
    assert outputs.value[outputs.outputs[0]].shape == tuple(real.shape)


class Lengths(nn.Module):
    """Sequences of several lengths, packed."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(8, 8), layer

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.first(x), lengths, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0])[0]


@pytest.mark.parametrize("layer", [nn.LSTM(8, 16, 2), nn.GRU(8, 16)])
def test_sequences_of_several_lengths_are_one_kernel_too(layer):
    """9 positions of 3 sequences; the output is as long as the longest."""
    given = torch.randn(6, 3, 8), torch.tensor([2, 6, 1])
    profile = opgraph.profile(Lengths(layer), given, mode="train", target="cuda", loss="sum")
    ran = kernels(profile)
    assert (ran["_cudnn_rnn"], ran["_cudnn_rnn_backward"]) == (1, 1)
    assert {a.tensors for a in profile.tracing.attempts} == {"fake"}
    matrices = sum(w.numel() for n, w in layer.named_parameters() if "weight" in n)
    assert profile.totals.flops == 2 * 2 * 18 * 64 + 3 * 2 * 9 * matrices
    outputs = opgraph.profile(Lengths(layer), given, target="cuda").graph
    assert outputs.value[outputs.outputs[0]].shape == (6, 3, 16)


@pytest.mark.parametrize(
    ("cell", "op", "backward"),
    [
        (nn.LSTMCell(8, 16), "_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl"),
        (nn.GRUCell(8, 16), "_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward"),
    ],
)
def test_a_step_of_a_recurrent_layer_is_two_products_and_a_kernel(cell, op, backward):
    """Three steps; the input has no gradient, and the state of the first step neither."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", "Meta"):
        pytest.skip(f"torch {torch.__version__} does not run it without data")

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x):
            state = None
            for step in x:
                state = self.cell(step, state)
            return state

    x, inner, outer = torch.randn(3, 2, 8), cell.weight_hh.numel(), cell.weight_ih.numel()
    profile = opgraph.profile(Steps(), x, mode="train", target="cuda", loss="sum")
    ran = kernels(profile)
    assert (ran[op], ran[backward], ran["addmm"]) == (3, 3, 0)
    assert profile.totals.flops == 2 * 2 * (3 * 2 * (inner + outer) + 2 * inner)
    assert profile.totals.coverage == 1.0
    plain = opgraph.profile(Steps(), x, mode="train", target="cpu", loss="sum")
    assert plain.totals.flops == profile.totals.flops


@pytest.mark.parametrize("target", ["cuda:8.0", "cuda:9.0"])
def test_a_mask_that_is_one_number_a_row_leaves_no_fused_kernel(target):
    """They read rows whose numbers lie side by side, and such a mask is not written out for them."""

    class Attends(nn.Module):
        def forward(self, q, mask):
            wide = mask.expand(2, 1, 16, 16)
            spread = functional.scaled_dot_product_attention(q, q, q, attn_mask=wide)
            return functional.scaled_dot_product_attention(
                spread, q, q, attn_mask=wide.contiguous()
            )

    q = torch.randn(2, 4, 16, 64, dtype=torch.float16)
    graph = opgraph.profile(Attends(), (q, torch.ones(1, 1, 16, 1) > 0), target=target).graph
    ran = [
        {k.op.removeprefix("aten.") for k in node.kernels}
        for node in graph.nodes
        if node.op == "scaled_dot_product_attention"
    ]
    assert not any(op.startswith("_scaled_dot_product") for op in ran[0])
    assert any(op.startswith("_scaled_dot_product") for op in ran[1])


@pytest.mark.parametrize("keys", [48, 50])
def test_a_mask_is_padded_before_it_is_spread_over_the_heads(keys):
    """The efficient kernel reads rows that begin at multiples of 8 numbers: one copy for all heads."""

    class Attends(nn.Module):
        def forward(self, q, k, mask):
            return functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)

    q, k = torch.randn(2, 4, 10, 8), torch.randn(2, 4, keys, 8)
    graph = opgraph.profile(Attends(), (q, k, torch.randn(2, 1, 10, keys)), target="cuda").graph
    copies = [s.bytes for s in graph.storages if s.bytes == 4 * 2 * 10 * 56]
    assert len(copies) == (keys == 50)
    most = 4 * 2 * 4 * 10 * (8 + 1)  # the result, and a number for each of its rows at most
    assert sum(s.bytes for s in graph.storages if s.born and s.died) <= 4 * 2 * 10 * 56 + most


def test_what_cudnn_keeps_of_a_layer_is_there_until_its_backward():
    """Three layers of 16 over 5 steps of 3 sequences: 4 gates and the cell of each, and two outputs."""
    graph = opgraph.profile(
        nn.LSTM(8, 16, 3), torch.randn(5, 3, 8), mode="train", target="cuda", loss="sum"
    ).graph
    kept = 5 * 3 * 16 * 4 * (3 * 5 + 2)
    (reserve,) = (s for s in graph.storages if s.bytes == kept)
    kernels = [(k.op, n.phase) for n in graph.nodes for k in n.kernels]
    assert kernels[reserve.born] == ("aten.new_empty", "forward")
    assert kernels[reserve.died - 1] == ("aten._cudnn_rnn_backward", "backward")


def test_a_recurrent_layer_takes_its_arguments_by_name():
    class Named(nn.GRU):
        def forward(self, x):
            return torch.gru(
                input=x, hx=torch.zeros(1, 2, 4), params=self._flat_weights, has_biases=True,
                num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False,
            )  # fmt: skip

    profile = opgraph.profile(Named(4, 4), torch.zeros(3, 2, 4), target="cuda")
    assert profile.totals.flops == 2 * 3 * 2 * 2 * 12 * 4
    assert kernels(profile)["_cudnn_rnn"] == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_all_weights_are_updated_at_once(optimizer):
    """The same work as of each weight by itself, in as many kernels as the largest group of them has."""
    model, x = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))), torch.zeros(2, 8)
    one, all_ = (
        opgraph.profile(model, x, mode="train", optimizer=optimizer, target=t, loss="sum")
        for t in ("cpu", "cuda")
    )
    each, together = (sum(kernels(p, "optimizer").values()) for p in (one, all_))
    assert together * 2 < each
    assert all_.totals.coverage == 1.0
    state = [training(p.graph).optimizer_state for p in (one, all_)]
    assert state[0] == state[1]
    work = [
        sum(n.other_flops for n in p.graph.nodes if n.phase == "optimizer") for p in (one, all_)
    ]
    assert work[1] == pytest.approx(work[0], rel=0.2)


def test_what_was_chosen_is_saved_with_what_others_choose(tmp_path):
    x = torch.randn(2, 16, 32, dtype=torch.float16)
    profile = opgraph.profile(Layer(own=True).half(), x, target="cuda:9.0")
    profile.save(tmp_path / "layer.json")
    again = opgraph.load(tmp_path / "layer.json")
    assert again == profile
    (attention,) = (s for s in again.target.substitutions if "attention" in s.op)
    assert attention.chosen == "cudnn"
    assert attention.choices["cuda:7.5"] == "efficient"
    assert attention.choices["cuda:8.0"] == "flash"
    t4, a100, h100 = (again.on(name) for name in ("t4", "a100-sxm4-80gb", "h100-sxm"))
    assert kernels(t4)["_scaled_dot_product_efficient_attention"] == 1
    assert kernels(a100)["_scaled_dot_product_flash_attention"] == 1
    assert kernels(h100)["_scaled_dot_product_cudnn_attention"] == 1
    assert not any("traced for" in note for c in (t4, a100, h100) for note in c.profile.model.notes)


class Decides(nn.Module):
    """Its path hangs on values, so it runs on real tensors."""

    def __init__(self):
        super().__init__()
        self.layer, self.steps = Layer(own=False), nn.GRU(32, 32)

    def forward(self, x):
        y = self.layer(x)
        return self.steps(y if y.sum() > 0 else -y)[0]


@pytest.mark.slow
def test_real_tensors_run_what_a_cpu_can_of_a_target():
    """Dropout and the optimizer as on a GPU; attention with dropout, normalization and recurrent layers as
    on a CPU, which is noted, so that a device says what it would run."""
    x = torch.randn(2, 16, 32)
    profile = opgraph.profile(Decides(), x, mode="train", loss="sum", target="cuda")
    assert profile.tracing.attempts[-1].tensors == "real"
    assert profile.target.name == "cuda"
    chosen = {s.op: s.chosen for s in profile.target.substitutions}
    assert chosen == {
        "scaled_dot_product_attention": "math", "dropout": "native_dropout", "rms_norm": AS_ON_A_CPU,
        "gru": AS_ON_A_CPU, "adamw": "foreach",
    }  # fmt: skip
    ran = kernels(profile)
    assert (ran["native_dropout"], ran["native_dropout_backward"]) == (1, 1)
    assert kernels(profile, "optimizer")["_foreach_addcdiv_"]
    assert "rms_norm as on a CPU" in str(profile)
    (note,) = (n for n in profile.on("h100-sxm").remarks if "traced for" in n)
    assert "scaled_dot_product_attention (math here, efficient there)" in note
    assert "gru (as on a CPU here, _cudnn_rnn there)" in note
    assert not {"dropout", "optimizer"} & set(note.split())


@pytest.mark.slow
def test_what_cannot_be_chosen_anew_is_said():
    x = torch.randn(2, 16, 32)
    profile = opgraph.profile(Layer(own=False), x, mode="train", loss="sum", target="cpu")
    note = profile.on("h100-sxm").remarks[-1]
    assert note.code == "target"
    assert note.startswith("traced for cpu, costed on NVIDIA H100")
    assert "dropout" in note
    assert "the optimizer" in note
    # What runs otherwise there may take a third of its time or three times it; the rest is as it was.
    for_cpu = profile.on("h100-sxm").prediction
    assert for_cpu is not None
    own = opgraph.profile(Layer(own=False), x, mode="train", loss="sum", target="cuda:9.0")
    for_device = own.on("h100-sxm").prediction
    assert for_device is not None
    (low, high), (least, most) = for_device.ratios, for_cpu.ratios
    assert low / 3 < least < low < high < most < high * 3
    plain = opgraph.profile(nn.Linear(4, 4), torch.ones(1, 4), target="cpu").on("h100-sxm")
    assert not any("traced for" in note for note in plain.profile.model.notes)


class Strided(nn.Module):
    """Attention on heads that lie so that no fused kernel takes them."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, q):
        if not self.dropout:
            q = q.transpose(-1, -2).contiguous().transpose(-1, -2)
        return functional.scaled_dot_product_attention(q, q, q, dropout_p=self.dropout)


@pytest.mark.parametrize(("target", "on"), [("cuda:8.9", "l4"), ("cpu", "xeon-8480")])
def test_attention_that_keeps_its_scores_takes_the_time_of_its_kernels(target, on):
    """Scores of 64 MiB are written by one kernel and read by the next; fused attention has none."""
    machine, scores = named_device(on), 4 * 16 * 1024**2
    profile = opgraph.profile(Strided(), torch.zeros(4, 4, 1024, 16), target=target)
    costed = profile.on(on)
    node = next(n for n in costed.nodes if n.op == "scaled_dot_product_attention")
    assert sum(k.bytes for k in node.kernels) > 4 * scores
    assert costed.prediction is not None
    assert costed.prediction.by_node[node.id] > 4 * scores / machine.bandwidth
    assert not any(r.code == "target" for r in costed.remarks)


def test_what_a_device_runs_as_one_kernel_is_one_there_and_on_the_page():
    """A CPU has no fused attention with dropout; a GPU has."""
    profile = opgraph.profile(Strided(dropout=0.1), torch.zeros(4, 4, 512, 16), target="cpu")
    place = next(i for i, n in enumerate(profile.nodes) if n.op == "scaled_dot_product_attention")
    assert len([k for k in profile.nodes[place].kernels if k.bytes]) > 2
    devices = {d["id"]: d for d in page_data(profile.on())["devices"]}
    for on, one in (("l4", True), ("xeon-8480", False)):
        costed = profile.on(on)
        assert (len([k for k in costed.nodes[place].kernels if k.bytes]) == 1) is one
        assert any(r.code == "target" for r in costed.remarks) is one
        assert devices[on]["seconds"] == pytest.approx(costed.seconds)
        assert costed.fit is not None
        assert devices[on]["memory"][0] == costed.fit.needed
        verify(costed.graph)
    whole = 4 * 4 * 512 * 16 * 4
    assert profile.on("l4").memory.peak <= 4 * whole  # its input, its result, and copies of these
    assert profile.on("xeon-8480").memory.peak == profile.on().memory.peak > 4 * 4 * 512**2 * 4


class Attends(nn.Module):
    def forward(self, q):
        return functional.scaled_dot_product_attention(q, q, q)


@pytest.mark.parametrize(
    ("target", "size", "op"),
    [
        ("cpu", 64, "_scaled_dot_product_cudnn_attention"),
        ("cuda:8.0", 64, "_scaled_dot_product_cudnn_attention"),
        ("cpu", 9, "_scaled_dot_product_flash_attention_for_cpu"),
        ("mps", 64, "_scaled_dot_product_attention_math_for_mps"),
    ],
)
def test_fused_attention_stands_for_fused_of_any_device(target, size, op):
    """An H100 has none for float64; Metal's keeps the scores, and is no such kernel."""
    dtype = torch.float16 if size > 9 else torch.float64
    q = torch.randn(2, 4, 16, size, dtype=dtype)
    there = opgraph.profile(Attends(), q, target=target).on("h100-sxm")
    assert kernels(there)[op] == 1
    said = [note for note in there.remarks if "traced for" in note]
    assert bool(said) is (op[-4:] in ("_cpu", "_mps"))
    own = opgraph.profile(Attends(), q, target="cuda:9.0").on("h100-sxm")
    wider = [c.prediction.ratios[1] / c.prediction.ratios[0] for c in (there, own)]
    assert (wider[0] > wider[1]) is bool(said)


@pytest.mark.parametrize("target", ["cpu", "mps"])
@pytest.mark.parametrize("device", ["a100-sxm4-80gb", "mi300x"])
def test_the_interval_of_another_target_has_the_time_of_the_own(target, device):
    """The optimizer of each weight by itself launches a kernel for each; a GPU's one for all."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))
    there, own = (
        opgraph.profile(model, torch.zeros(2, 8), mode="train", loss="sum", target=given).on(device)
        for given in (target, named_device(device).target)
    )
    low, high = there.prediction.interval
    assert low < own.prediction.seconds < high
    assert own.prediction.seconds < there.prediction.seconds / 2
    assert any(f"traced for {target}" in note and "the optimizer" in note for note in there.remarks)


@pytest.mark.slow
def test_the_usual_target_is_cuda_and_the_flops_are_those_of_a_cpu():
    """Where a device is named it is that one's. Fused attention computes its scores once more in the
    backward, 2 products of 2 * 4 * 16 * 16 * 8, which is remarked; nothing else differs."""
    x = torch.randn(2, 16, 32)
    steps = [
        opgraph.profile(Layer(own=False), x, mode="train", loss="sum", **given)
        for given in ({}, {"target": "cpu"})
    ]
    usual, cpu = (p.totals.flops for p in steps)
    assert [p.target.name for p in steps] == ["cuda", "cpu"]
    assert usual - cpu == 2 * 2 * 4 * 16 * 16 * 8
    assert [any("5 products" in n for n in p.model.notes) for p in steps] == [True, False]
    plain = [opgraph.profile(Layer(own=True), x, **g) for g in ({}, {"target": "cpu"})]
    assert plain[0].totals.flops == plain[1].totals.flops
    named = opgraph.compare(nn.Linear(4, 4), nn.Linear(4, 2), hardware="h100-sxm")
    assert {c.profile.target.name for c in named.models} == {"cuda:9.0"}
    assert {
        t.profile.target.name
        for t in opgraph.check(nn.Linear(4, 4), tracers=("auto", "fx"), counters=False).trials
    } == {"cpu"}


def test_only_known_targets():
    with pytest.raises(InputError, match="'tpu' is not a choice"):
        opgraph.profile(nn.Linear(4, 4), torch.ones(1, 4), target="tpu")


def test_metal_runs_its_own_kernels_where_no_gradients_are():
    """Attention that keeps its scores [2, 4, 16, 16] while it runs, and fused RMS normalization; with
    gradients products and softmax, and the parts of the normalization. LSTMs are remarked."""

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.RMSNorm(24)

        def forward(self, q):
            q = self.norm(q)
            return functional.scaled_dot_product_attention(q, q, q)

    q = torch.randn(2, 4, 16, 24)
    profile = opgraph.profile(Attends(), q, target="mps")
    ran = kernels(profile)
    assert (ran["_scaled_dot_product_attention_math_for_mps"], ran["_fused_rms_norm"]) == (1, 1)
    assert profile.totals.flops == 2 * 2 * 2 * 4 * 16 * 16 * 24
    assert profile.totals.coverage == 1.0
    assert 4 * 2 * 4 * 16 * 16 in [s.bytes for s in profile.graph.storages]
    trained = kernels(opgraph.profile(Attends(), q, target="mps", mode="train", loss="sum"))
    assert not trained["_scaled_dot_product_attention_math_for_mps"] + trained["_fused_rms_norm"]
    assert trained["bmm"] + trained["_softmax"]
    notes = opgraph.profile(nn.LSTM(8, 4), torch.randn(5, 3, 8), target="mps").model.notes
    assert any("_lstm_mps" in note for note in notes)


def test_flash_attention_beyond_a_grid_is_remarked():
    class Attends(nn.Module):
        def forward(self, q):
            return functional.scaled_dot_product_attention(q, q, q)

    for batch, said in ((65_535, False), (65_536, True)):
        q = torch.empty(batch, 1, 2, 8, dtype=torch.float16, device="meta")
        notes = opgraph.profile(Attends(), q, target="cuda").model.notes
        assert any("CUDA cannot launch" in note for note in notes) is said


class Flexible(nn.Module):
    """Attention by a mask of a person's own, whose kernel has a backward on a GPU alone."""

    def forward(self, x):
        mask = create_block_mask(lambda _b, _h, q, k: q >= k, 2, None, 256, 256, device="cpu")
        return flex_attention(x, x, x, block_mask=mask)


@pytest.mark.slow
@pytest.mark.live
def test_flexible_attention_is_trained_on_a_gpu() -> None:
    model = nn.Sequential(nn.Linear(16, 16), Flexible())
    x = torch.zeros(2, 4, 256, 16)
    profile = opgraph.profile(model, x, mode="train", loss="sum", target="cuda")
    product = 2 * 2 * 4 * 256 * 256 * 16
    flops = {n.op: n.flops for n in profile.graph.nodes if "flex" in n.op}
    assert flops == {"flex_attention": 2 * product, "flex_attention_backward": 5 * product}
    with pytest.raises(opgraph.TraceError, match="does not support backward on CPU"):
        opgraph.profile(model, x, mode="train", loss="sum", target="cpu")


@pytest.mark.parametrize(
    ("asked", "kernel"),
    [
        ("FLASH_ATTENTION CUDNN_ATTENTION", "aten._scaled_dot_product_flash_attention"),
        ("EFFICIENT_ATTENTION FLASH_ATTENTION", "aten._scaled_dot_product_efficient_attention"),
        ("MATH FLASH_ATTENTION", "aten.bmm"),
    ],
)
def test_attention_is_by_the_kernel_that_is_asked_for_first(asked, kernel):
    class Asks(nn.Module):
        def forward(self, x):
            order = [getattr(SDPBackend, name) for name in asked.split()]
            with sdpa_kernel(order, set_priority=True):
                return functional.scaled_dot_product_attention(x, x, x)

    x = torch.zeros(2, 1, 16, 64, dtype=torch.bfloat16)
    found = opgraph.profile(Asks(), x, target="cuda:9.0")
    assert kernel in {k.op for n in found.graph.nodes for k in n.kernels}
