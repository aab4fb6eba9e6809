"""The eager tracer: what it counts is what PyTorch counts, and it leaves no trace of its own."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracle import counting
from torch import nn

import opgraph
from opgraph.api.pipeline import profile_model
from opgraph.inputs import Example, InputRequest, make_inputs
from opgraph.results import Profile
from opgraph.sources import resolve
from opgraph.tracing.base import arguments, record
from opgraph.tracing.eager import materialized


class SequenceClassifier(nn.Module):
    """An LSTM over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        output, _ = self.lstm(self.embed(ids))
        return self.head(output[:, -1])


REAL_ONLY = ("fasterrcnn_resnet50_fpn", "yolov8n.pt")


def flops_of_a_real_forward(name: str, request: InputRequest) -> int:
    model = resolve(name)
    args, kwargs = arguments(make_inputs(model, request), None)
    if name not in REAL_ONLY:  # random weights are made faster than initialized ones
        model = replace(model, materialize=None)
    module = materialized(model).eval()
    with torch.no_grad(), counting() as counter:
        module(*args, **kwargs)
    return counter.get_total_flops()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("resnet18", InputRequest()),
        ("resnet50", InputRequest(batch_size=2)),
        ("mobilenet_v2", InputRequest()),
        ("efficientnet_b0", InputRequest()),
        ("swin_t", InputRequest()),
        ("convnext_tiny", InputRequest()),
        ("fasterrcnn_resnet50_fpn", InputRequest(image_size=(320, 320))),
        ("raft_small", InputRequest(input_shape=(1, 3, 128, 128))),
        ("bert-base-uncased", InputRequest(seq_len=128)),
        ("gpt2", InputRequest(seq_len=128)),
        ("yolov8n.pt", InputRequest(image_size=(640, 640))),
        # Whole: encoder and decoder, backbone and transformer, both towers.
        ("t5-small", InputRequest(seq_len=64, decoder_seq_len=16)),
        ("facebook/bart-base", InputRequest(seq_len=64, decoder_seq_len=16)),
        ("google/mt5-small", InputRequest(seq_len=64, decoder_seq_len=16)),
        ("openai/whisper-tiny", InputRequest(decoder_seq_len=16)),
        ("facebook/detr-resnet-50", InputRequest(image_size=(320, 320))),
        ("openai/clip-vit-base-patch32", InputRequest(seq_len=64)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_flops_and_parameters_are_those_of_a_real_forward(name, request_):
    model = resolve(name)
    profile = Profile.of(profile_model(model, make_inputs(model, request_)))
    assert profile.graph.failed is None
    assert profile.totals.flops == flops_of_a_real_forward(name, request_)
    assert profile.totals.parameters == sum(p.numel() for p in model.module.parameters())
    assert profile.totals.coverage == 1.0


@pytest.mark.parametrize(
    ("profile", "gflops", "parameters"),
    [("resnet18", 3.628146688, 11_689_512), ("bert", 22.34843136, 109_482_240),
     ("gpt2", 22.347251712, 124_439_808),
     pytest.param("yolov8n", 8.7439872, 3_157_200, marks=pytest.mark.slow)],
)  # fmt: skip
def test_published_figures(profile, gflops, parameters, request):
    totals = request.getfixturevalue(profile).totals
    assert totals.flops == round(gflops * 1e9)
    assert totals.parameters == parameters


def test_fused_attention_is_counted_where_the_counter_of_torch_is_blind():
    totals = opgraph.profile("vit_b_16").totals
    assert totals.flops == 35_127_656_448
    assert totals.parameters == 86_567_656
    assert totals.coverage == 1.0


def test_fused_recurrent_layers():
    profile = opgraph.profile(SequenceClassifier(), inputs=torch.randint(0, 1000, (4, 20)))
    # 2 x 4h(i + h) a step, layer and direction.
    first, second = 2 * 4 * 128 * (64 + 128), 2 * 4 * 128 * (256 + 128)
    assert profile.totals.flops == 4 * 20 * 2 * (first + second) + 2 * 4 * 256 * 5
    assert profile.totals.coverage == 1.0


def test_resnet18_has_71_nodes(resnet18):
    assert len(resnet18.graph.nodes) == 71
    assert [n.name for n in resnet18.graph.nodes[:6]] == [
        "x", "conv1", "bn1", "relu", "maxpool", "layer1.0.conv1",
    ]  # fmt: skip
    conv = resnet18.graph.nodes[1]
    assert (conv.op, conv.scope, conv.parameters) == ("conv2d", "conv1", ("conv1.weight",))
    assert conv.file == "torchvision/models/resnet.py"


def test_residual_edges_are_there(resnet18):
    graph = resnet18.graph
    add = next(n for n in graph.nodes if n.op == "add")
    sources = {graph.producer[v].name for v in add.inputs}
    assert sources == {"layer1.0.bn2", "maxpool"}


def test_names_are_module_paths(bert):
    names = {n.name for n in bert.graph.nodes}
    assert "encoder.layer.0.attention.self.query" in names
    assert not any("l_self" in n or "modules" in n for n in names)


@pytest.mark.slow
def test_weights_on_meta_fake_or_real_give_the_same_graph():
    real = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    with torch.device("meta"):
        meta = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    x = torch.randn(2, 3, 16, 16)
    graphs = [opgraph.profile(m, inputs=x).graph for m in (real, meta, fake)]
    assert graphs[0] == graphs[1] == graphs[2]


class Stateful(nn.Module):
    """Changes everything that a forward can change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.zeros(1))
        self.cache = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.cache = self.norm(x) + torch.randn(4)
        self.extra = random.random()
        return self.cache


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    model = Stateful().train(training)
    handle = model.register_forward_hook(lambda *_: None)
    model.norm.weight.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    attributes = {k: v for k, v in model.__dict__.items() if not k.startswith("_")}
    parameters = {k: id(p) for k, p in model.named_parameters()}
    torch.manual_seed(0)
    random.seed(0)
    states = torch.get_rng_state(), random.getstate()

    opgraph.profile(model, inputs=torch.randn(3, 4, generator=torch.Generator().manual_seed(1)))

    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert attributes == {k: v for k, v in model.__dict__.items() if not k.startswith("_")}
    assert parameters == {k: id(p) for k, p in model.named_parameters()}
    assert model.training is training
    assert model.norm.training is training
    assert not model.norm.weight.requires_grad
    assert handle.id in model._forward_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()


def test_lazy_modules_stay_lazy():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(2))
    profile = opgraph.profile(model, inputs=torch.randn(2, 7))
    assert profile.totals.flops == 2 * 2 * 7 * 4 + 2 * 2 * 4 * 2
    assert profile.totals.parameters == 7 * 4 + 4 + 4 * 2 + 2
    assert torch.nn.parameter.is_lazy(model[0].weight)


def test_lazy_modules_that_are_frozen_stay_so():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(2))
    model[0].weight.requires_grad = model[0].bias.requires_grad = False
    profile = opgraph.profile(model, inputs=torch.randn(2, 7), mode="train")
    assert profile.totals.trainable_parameters == 4 * 2 + 2


def test_tied_weights_are_one_parameter_with_two_names():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    profile = opgraph.profile(Tied(), inputs=torch.tensor([[1, 2]]))
    assert profile.totals.parameters == 40
    assert profile.graph.parameters[0].tied == ("head.weight",)
    assert [n.parameters for n in profile.graph.nodes if n.parameters] == [("embed.weight",)] * 2


def test_writes_in_place_are_followed():
    class Writes(nn.Module):
        def forward(self, x):
            y = torch.zeros(4, 4) + x
            row = y[0]
            row.mul_(2)
            return y + 1

    profile = opgraph.profile(Writes(), inputs=torch.ones(4, 4))
    graph = profile.graph
    last = [n for n in graph.nodes if n.op == "add"][-1]
    assert "mul" in {graph.producer[v].op for v in last.inputs}


def test_profiling_twice_gives_the_same_graph(resnet18):
    assert opgraph.profile("resnet18").graph == resnet18.graph


class Picker(nn.Module):
    """Takes the tokens that a mask chooses, and puts them back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask] = self.layer(x[mask])
        return x


def test_a_mask_with_values_chooses_from_fake_tensors() -> None:
    mask = torch.tensor([[True, False, True, True]])
    profile = opgraph.profile(Picker(), (torch.randn(1, 4, 16), mask))
    assert profile.tracing.tensors == "fake"
    assert profile.totals.flops == 2 * 3 * 16 * 16


class Remembering(nn.Module):
    """Keeps tensors in containers of its own, one within another."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[torch.Tensor]] = {"seen": []}
        self.latest: deque[torch.Tensor] = deque(maxlen=2)
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tables["seen"].append(self.linear(x))
        self.tables[f"sum of {len(self.latest)}"] = [x + 1]
        self.latest.append(x)
        return torch.stack(self.tables["seen"]).sum(0)


@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo", "export"])
def test_no_stand_in_stays_in_what_a_model_keeps(tracer: str) -> None:
    model, x = Remembering(), torch.ones(1, 2)
    first = model(x)
    kept = model.tables["seen"][0]
    opgraph.profile(model, x, tracer=tracer)
    assert list(model.tables) == ["seen", "sum of 0"]
    assert len(model.tables["seen"]) == 1
    assert model.tables["seen"][0] is kept
    assert len(model.latest) == 1
    assert model.latest[0] is x
    assert torch.equal(model(x), 2 * first)


class StackedExperts(nn.Module):
    """Experts as DBRX stacks them, below one another in one matrix, and as it finds those that are hit."""

    def __init__(self, experts: int, hidden: int, inner: int, chosen: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts * inner, hidden))
        self.down = nn.Parameter(torch.empty(experts * inner, hidden))
        self.sizes, self.chosen = (experts, inner, hidden), chosen

    def forward(self, x):
        weights, chosen = torch.topk(self.router(x).softmax(-1), self.chosen, dim=-1)
        mask = nn.functional.one_hot(chosen, self.sizes[0]).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in mask.sum(dim=(-1, -2)).greater(0).nonzero():
            position, token = torch.where(mask[expert[0]])
            up, down = (w.view(self.sizes)[expert[0]] for w in (self.up, self.down))
            y = torch.relu(x[token] @ up.t()) @ down * weights[token, position, None]
            out.index_add_(0, token, y)
        return out


@pytest.mark.live
def test_experts_that_values_choose_are_run_on_fake_tensors():
    """12 tokens with 2 of 4 experts each, whichever these are: two products of 6 x 8 for each."""
    profile = opgraph.profile(StackedExperts(4, 8, 6, 2), torch.ones(12, 8))
    assert profile.tracing.tensors == "fake"
    assert profile.totals.flops == 2 * 12 * 8 * 4 + 12 * 2 * 2 * (2 * 6 * 8)
    assert profile.totals.active_parameters == 4 * 8 + 2 * 2 * 6 * 8
    assert any("each of its experts equally often" in note for note in profile.model.notes)


class BestAndNextExpert(nn.Module):
    """Two experts for a token, the second by the scores without the first, chosen in 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4, bias=False, dtype=torch.bfloat16)
        self.experts = nn.ModuleList(
            nn.Linear(8, 6, bias=False, dtype=torch.bfloat16) for _ in range(4)
        )

    def forward(self, x):
        self.router = self.router.to(torch.float32)
        scores = self.router(x.float())
        first = nn.functional.one_hot(scores.max(axis=-1).indices, 4)
        second = nn.functional.one_hot(scores.masked_fill(first.bool(), -1e9).argmax(dim=-1), 4)
        out = x.new_full((len(x), 6), fill_value=0)
        for expert in (first + second).sum(0).nonzero()[:, 0]:
            (token,) = torch.where((first + second)[:, expert])
            out.index_add_(0, token, self.experts[expert](x[token]))
        return out


@pytest.mark.live
def test_the_best_experts_are_chosen_in_turn_where_there_is_no_room_for_real_weights():
    """12 tokens with 2 of 4 experts each; torch writes 32 bits into a weight of 16 where it is."""
    with torch.device("meta"):
        model = BestAndNextExpert()
    x = torch.ones(12, 8, dtype=torch.bfloat16)
    for _ in range(
        40
    ):  # what is made comes to the place of the weight that was replaced, in most of them
        profile = opgraph.profile(model, x, memory_limit=1e-9)
    assert profile.tracing.tensors == "fake"
    assert profile.totals.flops == 2 * 12 * 8 * 4 + 12 * 2 * (2 * 8 * 6)
    assert any("each of its experts equally often" in note for note in profile.model.notes)
    assert model.router.weight.dtype == torch.bfloat16


class Cautious(nn.Module):
    """Looks whether its numbers are finite and small, and for the best of each outside of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 6)

    def forward(self, x, mask):
        y = self.layer(x)
        if not torch.isfinite(y).all() or torch.isnan(y).any():
            y = y.exp()
        if y.max() > 10 and (y > 0).any():
            y = y / 2
        best = np.asarray(y.detach()).argmax(-1)
        return y[torch.arange(len(y)), torch.as_tensor(best)], torch.masked_select(y, mask)


def test_what_a_branch_asks_is_answered_where_choices_are_made_up():
    mask = torch.tensor([[True], [False], [True]])
    example = Example((torch.ones(3, 8), mask), {})
    found = record(Cautious(), example, spread=True)
    assert found.error is None
    ops = {n.op for n in found.graph.nodes}
    assert "div" in ops
    assert "exp" not in ops
    assert [found.graph.value[v].shape for v in found.graph.outputs] == [(3,), (12,)]
    assert {note.code for note in found.notes} == {"branch", "routing", "numpy"}
    assert isinstance(record(Cautious(), example).error, RuntimeError)
