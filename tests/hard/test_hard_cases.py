"""Models that are hard to trace, each by name: they are recorded, and their contractions counted."""

from __future__ import annotations

import dataclasses
import time
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import opgraph

X = torch.randn(4, 8)


class Function(nn.Module):
    """A forward that is one function of a linear layer and the inputs."""

    def __init__(self, function, *modules) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.parts = nn.ModuleList(modules)
        self.function = function

    def forward(self, *inputs):
        return self.function(self, *inputs)


def counted(model, *inputs) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(*inputs)
    return counter.get_total_flops()


def profiled(model, *inputs, **kwargs):
    profile = opgraph.profile(model, inputs=inputs, kwargs=kwargs or None)
    assert profile.graph.failed is None, profile.graph.failed
    return profile


def agrees(model, *inputs):
    profile = profiled(model, *inputs)
    assert profile.totals.flops == counted(model, *inputs)
    return profile


def test_dynamic_cache_output():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=100)
    model = transformers.GPT2LMHeadModel(config)
    profile = agrees(model, torch.ones(1, 5, dtype=torch.long))
    # The logits, and a key and a value for each layer.
    assert len(profile.graph.outputs) == 1 + 2 * 2


@dataclasses.dataclass
class Result:
    first: torch.Tensor
    others: list[torch.Tensor]
    name: str = "result"


class Pair(NamedTuple):
    a: torch.Tensor
    b: None


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda y: Result(y, [y + 1, y + 2]), 3),
        (lambda y: {"a": y, "b": {"c": y * 2}}, 2),
        (lambda y: Pair(y, None), 1),
        (lambda y: (y, [y.sum(), 3, None]), 2),
        (lambda y: None, 0),
        (lambda y: int(y.shape[0]), 0),
    ],
)
def test_outputs_of_any_kind(make, count):
    profile = profiled(Function(lambda self, x: make(self.linear(x))), X)
    assert len(profile.graph.outputs) == count


def test_custom_autograd_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            return x @ w * 2

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    agrees(Function(lambda self, x: Twice.apply(x, self.linear.weight)), X)


def test_custom_operator_with_a_fake_implementation():
    @torch.library.custom_op("opgraph_hard::with_fake", mutates_args=())
    def with_fake(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    with_fake.register_fake(torch.empty_like)
    profile = profiled(Function(lambda self, x: with_fake(self.linear(x))), X)
    assert profile.totals.unknown == (("opgraph_hard.with_fake", 1),)


def test_custom_operator_without_a_fake_implementation_runs_for_real():
    @torch.library.custom_op("opgraph_hard::without_fake", mutates_args=())
    def without_fake(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    profile = profiled(Function(lambda self, x: without_fake(self.linear(x))), X)
    assert profile.tracing.tensors == "real"
    assert profile.totals.flops == 2 * 4 * 8 * 8


def test_script_module():
    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(x))

    agrees(torch.jit.script(Scripted()), X)
    agrees(nn.Sequential(torch.jit.script(Scripted()), nn.Linear(8, 2)), X)
    agrees(torch.jit.trace(Scripted(), X), X)


def test_compiled_parts():
    inner = torch.compile(nn.Linear(8, 8))

    @torch.compile
    def gate(x):
        return x * torch.sigmoid(x)

    profile = profiled(Function(lambda self, x: gate(self.parts[0](x)), inner), X)
    assert profile.totals.flops == 2 * 4 * 8 * 8
    assert profiled(torch.compile(nn.Linear(8, 8)), X).totals.flops == 2 * 4 * 8 * 8


def test_data_parallel():
    assert profiled(nn.DataParallel(nn.Linear(8, 8)), X).totals.flops == 2 * 4 * 8 * 8


def test_hooks_that_change_values():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    model[0].register_forward_hook(lambda module, args, output: output.relu())
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    profile = agrees(model, X)
    assert [n.op for n in profile.nodes] == ["input", "linear", "relu", "add", "linear", "output"]


@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention(batch_first):
    model = nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x = torch.randn(3, 5, 16)
    b, s = (3, 5) if batch_first else (5, 3)
    projections = 2 * b * s * 16 * 16 * 4
    attention = 2 * 2 * b * s * s * 16
    assert profiled(model, x, x, x).totals.flops == projections + attention


def test_transformer_encoder_with_a_mask():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    x = torch.randn(2, 5, 16)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    tokens = 2 * 5
    layer_flops = 2 * tokens * 16 * 16 * 4 + 2 * 2 * tokens * 5 * 16 + 2 * 2 * tokens * 16 * 32
    assert profiled(model, x, src_key_padding_mask=mask).totals.flops == 2 * layer_flops


def test_packed_sequences():
    lstm = nn.LSTM(8, 16, batch_first=True)

    def run(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3], batch_first=True)
        output, _ = self.parts[0](packed)
        return nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0]

    profile = profiled(Function(run, lstm), torch.randn(2, 5, 8))
    assert profile.totals.flops == 8 * 2 * 4 * 16 * (8 + 16)


@pytest.mark.parametrize(
    "parametrize",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_parametrizations(parametrize):
    profile = profiled(parametrize(nn.Linear(8, 8)), X)
    assert any(n.op == "linear" for n in profile.nodes)
    assert profile.totals.flops >= 2 * 4 * 8 * 8


def test_a_module_called_many_times():
    def run(self, x):
        for _ in range(5):
            x = self.linear(x)
        return x

    profile = agrees(Function(run), X)
    assert profile.totals.parameters == 72
    assert profile.graph.scope["linear"].calls == 5
    names = [n.name for n in profile.nodes if n.op == "linear"]
    assert len(set(names)) == 5


def test_a_module_that_is_never_called():
    profile = agrees(Function(lambda self, x: self.linear(x), nn.Linear(8, 100)), X)
    assert profile.graph.scope["parts.0"].calls == 0
    assert profile.totals.parameters == 72 + 900


def test_direct_calls_of_forward():
    profile = agrees(Function(lambda self, x: self.parts[0].forward(x), nn.Linear(8, 3)), X)
    assert profile.nodes[1].parameters == ("parts.0.weight", "parts.0.bias")


def test_an_activation_as_attribute():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = F.relu

        def forward(self, x):
            return self.activation(x)

    assert [n.op for n in profiled(Model(), X).nodes] == ["input", "relu", "output"]


@pytest.mark.filterwarnings("ignore")
def test_dynamic_quantization():
    quantize = pytest.importorskip("torch.ao.quantization")
    model = quantize.quantize_dynamic(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU()), {nn.Linear}, dtype=torch.qint8
    )
    assert profiled(model, X).totals.flops == 2 * 4 * 8 * 8


def test_nested_tensors():
    def run(self, x):
        nested = torch.nested.nested_tensor([x[:2], x[:3]], layout=torch.jagged)
        return self.linear(nested)

    profile = profiled(Function(run), X)
    assert profile.totals.flops == 2 * 5 * 8 * 8


def test_sparse_tensors():
    profile = profiled(Function(lambda self, x: torch.sparse.mm(x.relu().to_sparse(), x.t())), X)
    # How many products there are is in the data: that is unknown, and not zero.
    assert "sparse_mm" in {n.op for n in profile.nodes}
    assert "aten._sparse_addmm" in dict(profile.totals.unknown)


def test_fft():
    profile = profiled(Function(lambda self, x: torch.fft.irfft(torch.fft.rfft(x)).real), X)
    assert profile.totals.coverage == 1


def test_complex_numbers():
    agrees(Function(lambda self, x: (torch.complex(x, x) @ torch.complex(x, x).mT).abs()), X)


def test_flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 8)
    profile = profiled(Function(lambda self, q: flex_attention(q, q, q)), q)
    assert profile.totals.flops == 2 * 2 * 2 * 16 * 16 * 8


def test_checkpoint():
    agrees(Function(lambda self, x: checkpoint(self.linear, x, use_reentrant=False)), X)
    agrees(Function(lambda self, x: checkpoint(self.linear, x, use_reentrant=True)), X)


def test_vmap():
    profile = profiled(Function(lambda self, x: torch.vmap(self.linear)(x)), X)
    assert profile.totals.flops == 2 * 4 * 8 * 8


def test_grad_inside():
    def run(self, x):
        return torch.func.grad(lambda t: self.linear(t).sum())(x)

    profile = profiled(Function(run), X)
    assert profile.totals.flops >= 2 * 4 * 8 * 8


def test_gradients_by_autograd_inside():
    def run(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.linear(x).sum(), x)[0]

    assert profiled(Function(run), X).totals.flops >= 2 * 4 * 8 * 8


def test_inference_mode_inside():
    def run(self, x):
        with torch.inference_mode():
            return self.linear(x).relu()

    agrees(Function(run), X)
    agrees(Function(torch.inference_mode()(lambda self, x: self.linear(x).softmax(-1))), X)


def test_autocast():
    def run(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

    profile = agrees(Function(run), X)
    linear = next(n for n in profile.nodes if n.op == "linear")
    assert any(k.dtype == "bfloat16" and k.flops for k in linear.kernels)


def test_tensors_made_inside():
    agrees(Function(lambda self, x: self.linear(x) @ torch.eye(8, device=x.device)), X)
    agrees(Function(lambda self, x: self.linear(x) + torch.tensor([1.0] * 8)), X)


def test_batch_norm_in_train_mode_at_batch_1():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).train()
    profiled(model, torch.randn(1, 8))
    assert model.training
    assert model[1].num_batches_tracked == 0


def test_a_forward_that_prints_and_sleeps(capsys):
    def run(self, x):
        print("hello")  # noqa: T201
        time.sleep(0.01)
        return self.linear(x)

    profiled(Function(run), X)


def test_a_forward_that_reads_a_file(tmp_path):
    path = tmp_path / "scale.txt"
    path.write_text("2")
    profiled(Function(lambda self, x: self.linear(x) * int(path.read_text())), X)


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), RecursionError("deep"), OSError()]
)
def test_a_forward_that_raises(error):
    def run(self, x):
        self.linear(x)
        raise error

    failed = opgraph.profile(Function(run), inputs=X).graph.failed
    assert failed is not None
    assert failed.error.startswith(type(error).__name__)


def test_a_forward_that_recurses_forever():
    def run(self, x):
        return self.function(self, self.linear(x))

    failed = opgraph.profile(Function(run), inputs=X).graph.failed
    assert failed.error.startswith("RecursionError")


def test_weights_in_a_list():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.randn(8, 8))
            self.all = [self.a]

        def forward(self, x):
            return x @ self.all[0]

    profile = agrees(Model(), X)
    assert profile.nodes[1].parameters == ("a",)


def test_a_weight_used_through_views():
    profile = agrees(Function(lambda self, x: x @ self.linear.weight.t()[:, :4].contiguous()), X)
    assert any("linear.weight" in n.parameters for n in profile.nodes)


def test_named_and_keyword_only_arguments():
    class Model(nn.Module):
        def forward(self, x, *, scale, flag=True):
            return x * scale if flag else x

    profile = opgraph.profile(Model(), inputs=X, kwargs={"scale": torch.ones(1), "flag": True})
    assert [v.name for v in profile.graph.values if v.kind == "input"] == ["x", "scale"]


def test_nested_inputs():
    def run(self, items):
        return self.linear(items["a"]) + items["b"][0]

    profile = profiled(Function(run), {"a": X, "b": [X]})
    assert len([n for n in profile.nodes if n.kind == "input"]) in (1, 2)


def test_cond_counts_the_dearer_branch():
    def run(self, x):
        return torch.cond(x.sum() > 0, lambda t: t @ t.t(), lambda t: (t @ t.t()) * 2, (x,))

    profile = opgraph.profile(Function(run), inputs=X)
    assert profile.totals.flops == 2 * 4 * 4 * 8


def test_a_module_made_in_forward():
    profile = agrees(Function(lambda self, x: nn.Softmax(dim=-1)(self.linear(x))), X)
    assert any(s.cls == "Softmax" for s in profile.graph.scopes)


def test_two_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    from torch._dynamo import eval_frame

    sizes = (3, 7, 5, 2)
    models = [nn.Sequential(*[nn.Linear(8, 8) for _ in range(n)]) for n in sizes]
    with ThreadPoolExecutor(4) as pool:
        profiles = list(pool.map(lambda m: opgraph.profile(m, inputs=X), models))
    assert [p.totals.flops for p in profiles] == [n * 2 * 4 * 8 * 8 for n in sizes]
    assert eval_frame._stance.stance == "default"
