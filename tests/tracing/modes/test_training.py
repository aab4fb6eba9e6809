"""A step of training: what it computes and keeps is what others say, and stands where it belongs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp, log
from types import SimpleNamespace

import pytest
import torch
from benchmarks.training import CASES, LETTERS, Spoken
from tests.tracing.ranks.programs import Model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

import opgraph
from opgraph.analysis.cost.totals import module_tree
from opgraph.analysis.cost.training import training
from opgraph.analysis.memory import memory
from opgraph.analysis.timing.prediction import device_costs
from opgraph.analysis.timing.workload import Work, workload
from opgraph.analysis.tree import build_tree
from opgraph.hardware import device
from opgraph.record.errors import InputError, OpgraphError, TraceError
from opgraph.record.profile import Compiled
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.fake.cache import SWITCH
from opgraph.tracing.modes.loss import loss_of


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=() if case.quick else pytest.mark.slow)
        for cases in CASES.values()
        for case in cases
    ],
)
def test_a_figure_is_what_others_say(case):
    rows = list(case.rows())
    assert rows
    assert [str(row) for row in rows if not row.holds] == []


def test_a_ctc_loss_needs_no_real_tensors():
    profile = opgraph.profile(Spoken(), LETTERS, mode="train")
    assert [a.tensors for a in profile.tracing.attempts] == ["fake"]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


@pytest.mark.parametrize(("optimizer", "moments"), [("sgd", 1), ("adam", 2), ("adamw", 2)])
def test_phases_and_memory_by_hand(optimizer, moments):
    """Forward 2 * 3 * (8 * 16 + 16 * 4) FLOPs; backward the same for the weights, and the second layer's
    once more for its input. The optimizer keeps one or two numbers for each of 192 weights."""
    module = Two()
    profile = opgraph.profile(module, (torch.zeros(3, 8),), mode="train", optimizer=optimizer)
    found = training(profile.graph)
    assert found.phases["forward"].flops == 2 * 3 * 192
    assert found.phases["backward"].flops == 2 * 3 * 192 + 2 * 3 * 64
    assert (found.weights, found.gradients) == (768, 768)
    assert moments * 768 <= found.optimizer_state <= moments * 768 + 16
    assert profile.mode == "train"
    assert all(p.grad is None for p in module.parameters())


def test_what_the_optimizer_keeps_is_there_from_the_beginning():
    """A first step is like no other: two moments of each weight are alive while the forward runs."""
    found = memory(
        opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", optimizer="adam").graph
    )
    assert found.live[0] >= 2 * 768 + 3 * 8 * 4
    step = opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", optimizer="sgd-loop").graph
    written = [k.op for n in step.nodes if n.phase == "optimizer" for k in n.kernels]
    assert written == ["aten.mul_", "aten.add_", "aten.add_"] * 2


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_weights_that_a_forward_unfreezes_are_updated(before, reads):
    class Unfreezes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.one.requires_grad_(False)
            self.two.bias.requires_grad_(before)

        def forward(self, x):
            self.one.requires_grad_(True)
            y = self.two(self.one(x))
            return y * y.sum().item() if reads else y

    model = Unfreezes()
    model.two.weight.requires_grad_(True)
    profile = opgraph.profile(model, torch.ones(2, 4), mode="train", loss=torch.mean)
    stepped = {p for n in profile.graph.nodes if n.phase == "optimizer" for p in n.parameters}
    assert {"one.weight", "one.bias", "two.weight"} <= stepped
    assert ("two.bias" in stepped) is before
    assert not model.one.weight.requires_grad


def test_frozen_weights_are_not_trained():
    """Without the gradients of the first layer, backward is half of a product; what is never used gets no
    gradient, whether it is frozen or not."""
    module = Two()
    module.one.weight.requires_grad = False
    module.spare = nn.Linear(100, 100)
    found = training(opgraph.profile(module, (torch.zeros(3, 8),), mode="train").graph)
    assert found.phases["backward"].flops == 2 * 3 * 64
    assert found.gradients == 4 * 64
    assert 2 * 4 * 64 <= found.optimizer_state <= 2 * 4 * 64 + 16
    assert not module.one.weight.requires_grad
    module.requires_grad_(False)
    with pytest.raises(InputError, match="all of its weights are frozen"):
        opgraph.profile(module, (torch.zeros(3, 8),), mode="train")
    with pytest.raises(InputError, match="it has no weights"):
        opgraph.profile(nn.Flatten(), (torch.zeros(3, 8),), mode="train")


def test_complex_weights_are_trained():
    """Gradients take as much as the weights, and Adam keeps twice that."""

    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(8, 6, dtype=torch.complex64))

        def forward(self, x):
            return (x @ self.weight).abs()

    x = torch.zeros(3, 8, dtype=torch.complex64)
    profile = opgraph.profile(Complex(), (x,), mode="train", loss="sum")
    found = training(profile.graph)
    assert found.gradients == 8 * 8 * 6
    assert 2 * 8 * 8 * 6 <= found.optimizer_state <= 2 * 8 * 8 * 6 + 16


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda y: y, "one number in a tensor, and gave 3x4"),
        (lambda _: 3.0, "one number in a tensor, and gave float"),
        (lambda y: y.detach().sum(), "does not depend on the weights"),
    ],
)
def test_a_loss_that_cannot_be_differentiated_is_refused(loss, said):
    with pytest.raises(InputError, match=said):
        opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", loss=loss)


def test_a_step_on_real_tensors_is_that_on_fake_ones():
    """Where values decide, weights are real, and copies of them are trained, which are none of its work."""

    class Asks(Two):
        def forward(self, x):
            return super().forward(x if x.sum() > 9 else x + 1)

    class Adds(Two):
        def forward(self, x):
            x.sum()
            return super().forward(x + 1)

    real, fakes = (
        opgraph.profile(cls(), (torch.zeros(3, 8),), mode="train", target="cpu").graph
        for cls in (Asks, Adds)
    )
    asked = ("gt", "bool", "item")
    ran, same = ([n.name for n in g.nodes if n.op not in asked] for g in (real, fakes))
    assert ran == same
    assert abs(memory(real).peak - memory(fakes).peak) <= 5


def test_saved_profiles_keep_the_phases(tmp_path):
    profile = opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train")
    profile.save(tmp_path / "two.json")
    assert opgraph.load(tmp_path / "two.json") == profile


def test_unknown_modes_and_optimizers():
    with pytest.raises(OpgraphError, match="'dream' is not a choice"):
        opgraph.profile(Two(), (torch.zeros(3, 8),), mode="dream")
    with pytest.raises(OpgraphError, match="'luck' is not a choice"):
        opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", optimizer="luck")


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell])
def test_the_second_profile_is_the_first_again(cls):
    """Torch's fake backward gives one gradient for both biases, and two when it remembers the call. That
    of a GPU's kernel for a step of an LSTM is one (`_thnn_fused_lstm_cell_backward`), and copied."""
    FakeTensorMode.cache_clear()
    model, x = cls(8, 4), torch.randn(3, 8) if "Cell" in cls.__name__ else torch.randn(5, 3, 8)
    first, second, third = (opgraph.profile(model, x, mode="train").graph for _ in range(3))
    assert first == second == third
    copies = [n for n in first.nodes if n.op == "copy" and n.phase == "backward"]
    assert len(copies) == (cls is nn.LSTMCell)


def test_every_part_of_a_step_stands_under_its_module():
    """Forward, backward and optimizer of `one`: by its path, and each gradient with the node it is of."""
    profile = opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", optimizer="adamw-loop")
    graph = profile.graph
    flops = {(n.phase, n.scope): n.flops for n in graph.nodes if n.flops and n.phase == "forward"}
    assert flops == {("forward", "one"): 2 * 3 * 128, ("forward", "two"): 2 * 3 * 64}
    products = [n for n in graph.nodes if n.phase == "backward" and n.op == "mm"]
    assert [n.name for n in products] == ["two.mm", "two.mm_1", "one.mm"]
    assert [graph.node(n.forward).name for n in products] == ["two", "two", "one"]
    assert {n.scope for n in graph.nodes if n.phase == "optimizer"} == {"one", "two"}
    tree = build_tree(graph)
    titles = {tree.title(item) for item in tree.items}
    assert {"backward of one", "backward of two", "optimizer of one", "one"} <= titles
    assert sum(m.own.flops for m in module_tree(graph).walk()) == profile.totals.flops


@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_a_kernel_of_all_weights_is_divided_over_their_modules(way):
    """Weights of 128 and of 64 numbers: two thirds of each kernel and one. There are as many kernels as an
    optimizer of torch runs that has both weights, and a part takes its share of the whole's time."""

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran[func.__name__.partition(".")[0]] += 1
            return func(*args, **(kwargs or {}))

    ran, model = Counter(), Two()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    step = torch.optim.AdamW(model.parameters(), foreach=way == "foreach", fused=way == "fused")
    step.step()
    with Calls():
        step.step()
    options = {"mode": "train", "loss": "sum", "target": "cuda", "optimizer": f"adamw-{way}"}
    profile = opgraph.profile(Two(), (torch.zeros(3, 8),), **options)
    one, two = nodes = [n for n in profile.graph.nodes if n.phase == "optimizer"]
    assert [(n.name, n.op, n.scope) for n in nodes] == [
        ("one.adamw", "adamw", "one"),
        ("two.adamw", "adamw", "two"),
    ]
    shapes = [profile.graph.value[n.outputs[0]].shape for n in nodes]
    assert shapes == [(16, 8), (4, 16)]  # the updated weights come first
    launched = Counter()
    for node in nodes:
        for kernel in node.kernels:
            launched[kernel.op.partition(".")[2]] += kernel.launches
    many = [op for op in ran if op.startswith(("_foreach", "_fused"))]
    assert many
    assert {op: launched[op] for op in many} == {op: ran[op] for op in many}
    parts = [(a, b) for a, b in zip(one.kernels, two.kernels, strict=True) if a.bytes > 100]
    for a, b in parts:  # a fused kernel reads the numbers of both steps, too
        assert (a.bytes, a.share) == (
            pytest.approx(2 * b.bytes, abs=12),
            pytest.approx(2 / 3, abs=1e-3),
        )
        assert (a.share + b.share, a.launches, b.launches) == (pytest.approx(1), 1, 0)
    larger = next(w for w in workload(profile.graph) if 0.6 < w.task.share < 0.7)
    smaller = next(w for w in workload(profile.graph) if 0.3 < w.task.share < 0.4)
    sizes = tuple(a + b for a, b in zip(larger.task.sizes, smaller.task.sizes, strict=True))
    both = {
        n: getattr(larger.task, n) + getattr(smaller.task, n) for n in ("written", "other_flops")
    }
    whole = Work(0, replace(larger.task, share=1.0, sizes=sizes, **both), larger.distances)
    parts = device_costs([larger, smaller, whole], device("a100-sxm-80gb"))
    # The number of steps, which a fused kernel reads for each weight, is no work of its own.
    assert parts[0].seconds + parts[1].seconds == pytest.approx(parts[2].seconds, rel=1e-3)
    # Beside a compiled run, each kernel is launched once, though it has a part in both modules.
    running = [k for n in profile.graph.nodes for k in n.kernels if k.bytes]
    compiled = replace(profile, compiled=Compiled(profile.target.name, None, ()))
    gain = compiled.on("a100-sxm-80gb", run="compiled").speed_up
    assert gain.launches[0] == sum(k.launches for k in running)


PHASES = ("forward", "backward")


class Squashed(nn.Module):
    """One that makes another when it is called, which is no part of any loss."""

    def forward(self, x):
        return nn.Softmax(-1)(x)


class Judged(Two):
    """A model that computes its own loss, by a module that is made there, and returns what it is told."""

    def __init__(self, gives: str) -> None:
        super().__init__()
        self.gives = gives
        self.loss = Squashed()  # that name is taken

    def forward(self, x, labels):
        self.loss(x)
        scores = super().forward(x) * 2
        loss = nn.BCEWithLogitsLoss()(scores, labels.float()) * 3
        return {
            "both": {"loss": loss, "logits": scores},
            "loss": {"loss": loss},
            "pair": (scores, loss),
            "number": loss,
        }[self.gives]


@pytest.mark.parametrize("gives", ["both", "loss", "pair", "number"])
def test_the_loss_stands_by_itself_whoever_computes_it(gives):
    """Of what the model runs, what only the loss reads; where nothing else is returned, what comes after
    the last module."""
    given = {"x": torch.zeros(3, 8), "labels": torch.zeros(3, 4, dtype=torch.int64)}
    profile = opgraph.profile(Judged(gives), inputs=given, mode="train", loss_scaling=True)
    graph = profile.graph
    assert [(s.path, s.cls) for s in graph.scopes if s.is_loss] == [
        ("loss_1", "Loss (the model's own)")
    ]
    scopes = {}
    for node in graph.nodes:
        if node.kind == "call" and node.phase != "optimizer":
            scopes.setdefault((node.phase, node.scope), []).append(node.op)
    model = ["mul"] if gives in ("both", "pair") else []
    assert scopes.get(("forward", ""), []) == ["relu", *model]
    assert scopes["forward", "loss_1.BCEWithLogitsLoss"] == ["binary_cross_entropy_with_logits"]
    # The scores doubled, the labels as numbers, what is three times the loss, and that by its scale.
    doubled = [] if model else ["mul"]
    assert scopes["forward", "loss_1"] == [*doubled, "to", "mul", "mul"]
    assert scopes["backward", "loss_1"][0] == "ones_like"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tokens"), [("resnet18", None), ("gpt2", 16)])
@pytest.mark.parametrize("way", ["loop", "foreach"])
def test_no_flops_of_a_step_belong_to_the_root(name, tokens, way):
    """Nor is the loss there, or its gradient: what is left are reshapes."""
    profile = opgraph.profile(
        name,
        mode="train",
        seq_len=tokens,
        image_size=64 if tokens is None else None,
        optimizer=f"adamw-{way}",
    )
    graph = profile.graph
    assert build_tree(graph).cost(build_tree(graph).root) == profile.totals.cost
    assert sum(n.flops for n in graph.nodes if not n.scope) == 0
    moving = [n for n in graph.nodes if not n.scope and any(k.bytes for k in n.kernels)]
    assert moving == []
    found = {p: [n for n in graph.nodes if (n.phase, n.scope) == (p, "loss")] for p in PHASES}
    assert found["forward"][-1].op == "cross_entropy"
    assert [n.op for n in found["backward"] if n.kernels and n.kernels[0].bytes] == [
        "ones_like", "nll_loss_backward", "log_softmax_backward_data",
    ]  # fmt: skip
    convolution = next((n for n in graph.nodes if n.name == "layer1.0.conv1"), None)
    if convolution is not None:
        gradient = next(n for n in graph.nodes if n.forward == convolution.id and n.flops)
        assert (gradient.op, gradient.scope) == ("convolution_backward", "layer1.0.conv1")
    owners = {p.scope for p in graph.parameters if p.kind == "parameter"}
    assert {n.scope for n in graph.nodes if n.phase == "optimizer"} == owners
    if way == "foreach":
        assert len(owners) == sum(n.phase == "optimizer" for n in graph.nodes)


def test_labels_that_are_none_of_a_loss():
    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.which, self.layer = nn.Embedding(10, 8), nn.Linear(16, 4)

        def forward(self, z, labels):
            return self.layer(torch.cat([z, self.which(labels)], 1))

    given = (torch.ones(2, 8), torch.tensor([1, 2]))
    with pytest.raises(TraceError, match='returns no loss; loss="sum"'):
        opgraph.profile(Generator(), given, mode="train")
    assert (
        opgraph.profile(Generator(), given, mode="train", loss="sum").totals.flops == 6 * 2 * 16 * 4
    )


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("lenient", [False, True])
def test_within_a_mode_of_fake_tensors_of_ones_own(inside, lenient):
    def made():
        return nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 4)
        )

    model = made()
    with FakeTensorMode(allow_non_fake_inputs=lenient) as mode:
        model = made() if inside else model
        given = torch.zeros(6, 8)
        assert opgraph.profile(model, given).totals.flops == 2304
        profile = opgraph.profile(model, given, mode="train")
        assert _get_current_dispatch_mode() is mode
    assert (
        profile.totals.flops
        == opgraph.profile(made(), torch.zeros(6, 8), mode="train").totals.flops
    )


def test_a_loss_of_frozen_weights_alone():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.unused = nn.Linear(4, 3).requires_grad_(False), nn.Linear(4, 3)

        def forward(self, x, labels):
            return {"loss": self.layer(x).sum(), "logits": x}

    with pytest.raises(TraceError, match="depends on no weight that is trained"):
        opgraph.profile(Frozen(), (torch.ones(2, 4), torch.ones(2)), mode="train")


def test_a_model_of_ones_own_that_makes_a_criterion_is_trained():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def init_criterion(self):
            return nn.CrossEntropyLoss()

        def forward(self, x):
            return self.layer(x)

    model = Own()
    profile = opgraph.profile(model, torch.ones(2, 4), mode="train")
    assert "backward" in {n.phase for n in profile.graph.nodes}
    assert not hasattr(model, "args")


@pytest.mark.parametrize("blocks", [2, 3])
def test_what_is_computed_again_stands_in_its_block(blocks):
    model = nn.ModuleDict({"layers": nn.ModuleList(Residual() for _ in range(blocks))})
    model.forward = lambda x: [x := layer(x) for layer in model["layers"]][-1]
    graph = opgraph.profile(model, (torch.zeros(3, 8),), mode="train", checkpointing=True).graph
    again = [n.scope for n in graph.nodes if n.phase == "recompute" and n.op == "mul"]
    assert again == [f"layers.{i}" for i in reversed(range(blocks))]


@pytest.mark.slow
def test_selective_checkpointing_runs_no_product_again() -> None:
    whole, some, none = (
        opgraph.profile(
            Model(), torch.zeros(64, 64, 48), mode="train", loss="sum", target="cpu", **how
        )
        for how in (
            {"checkpointing": True},
            {"checkpointing": True, "checkpointing_policy": "selective"},
            {},
        )
    )
    assert some.totals.flops == none.totals.flops < whole.totals.flops
    assert some.totals.other_flops > none.totals.other_flops
    assert whole.on().peak_memory < some.on().peak_memory


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x):
        return self.inner(x * 2)


@pytest.mark.parametrize(
    ("output", "loss", "kernels"),
    [
        (lambda x: x, "auto", ["aten._log_softmax", "aten.nll_loss_forward"]),
        (lambda x: {"out": x[..., None, None]}, "auto", ["aten._log_softmax", "aten.nll_loss2d_forward"]),
        (lambda x: x.view(3, 2, 2), "auto", ["aten.sum"]),
        (lambda x: x, "sum", ["aten.sum"]),
        (lambda x: x.pow(2).mean(), "auto", ["aten.pow", "aten.mean"]),
        (lambda x: x, lambda x: x.pow(2).mean(), ["aten.pow", "aten.mean"]),
    ],
)  # fmt: skip
def test_the_loss_is_what_a_model_of_such_outputs_is_trained_on(output, loss, kernels):
    """Logits [batch, classes] and maps of classes meet labels; other outputs are summed."""

    class Shaped(Two):
        def forward(self, x):  # as a model of such a head has it
            return output(super().forward(x))

    model = Shaped()
    graph = opgraph.profile(model, (torch.zeros(3, 8),), mode="train", loss=loss).graph
    ran = [
        k.op for n in graph.nodes if (n.phase, n.scope) == ("forward", "loss") for k in n.kernels
    ]
    assert [op for op in ran if op != "aten.detach"] == kernels


@pytest.mark.parametrize(("shape", "labels"), [((2, 3, 8), (6,)), ((2, 8, 3, 5, 4), (2, 3, 5, 4))])
def test_cross_entropy_is_asked_for_of_any_scores(shape, labels):
    """Classes are the last of three dimensions, as language models have them, and else the second."""
    model = torch.nn.BatchNorm3d(8) if len(shape) == 5 else Two()
    profile = opgraph.profile(model, torch.zeros(shape), mode="train", loss="cross-entropy")
    (node,) = [n for n in profile.graph.nodes if n.op == "cross_entropy" and n.phase == "forward"]
    assert profile.graph.value[node.inputs[1]].shape == labels
    assert "classes are last in three dimensions" in profile.convention["loss"]


_TINY = {
    "seq_len": 8,
    "model_args": {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("resnet18", {"image_size": 64}, "cross-entropy of its logits"),
        ("fcn_resnet50", {"image_size": 32}, "cross-entropy of its logits"),
        ("gpt2", {"seq_len": 8}, "own loss, with labels made here"),
        ("bert-base-uncased", {"seq_len": 8}, "own loss, with labels made here"),
        ("t5-small", {"seq_len": 8}, "own loss, with labels made here"),
        ("hf-type:bert", {"head": "multiple-choice", **_TINY}, "own loss, with labels made here"),
        ("hf-type:bert", {"head": "next-sentence-prediction", **_TINY}, "labels made here"),
        ("hf-type:bert", {"head": "pre-training", **_TINY}, "with labels, next_sentence_label made here"),
        ("hf-type:segformer", {"head": "semantic-segmentation"}, "own loss, with labels made here"),
        ("hf-type:clip", {"seq_len": 8}, "the model's own loss"),
        ("retinanet_resnet50_fpn", {"image_size": 64}, "own losses, with targets made here"),
        *((name, {"image_size": 64}, "own criterion")
          for name in ("yolov8n", "yolov8n-pose", "yolov8n-obb", "yolov8n-cls", "yolo26n-seg")),
        ("hf-type:vit", {"head": "base"}, "the sum of what the model returns"),
    ],
)  # fmt: skip
def test_training_by_name_finds_the_loss_and_says_which(name, options, says):
    profile = opgraph.profile(name, mode="train", **options)
    assert profile.graph.failed is None
    assert says in profile.model.notes[-1]
    assert says in profile.convention["loss"]
    assert any(n.phase == "optimizer" for n in profile.graph.nodes)


_ULTRALYTICS = "8.4.126"
"""From this version on its criteria ask for few values; those of before are run on real tensors."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n", "yolov8n-obb"])
def test_boxes_are_chosen_without_values_where_the_truth_about_them_is_made_here(name):
    """The ten best anchors of each image, wherever they are."""
    pytest.importorskip("ultralytics", _ULTRALYTICS)
    given = {"mode": "train", "image_size": 64, "batch_size": 4}
    fake = opgraph.profile(name, **given)
    assert fake.tracing.tensors == "fake"
    assert "own criterion" in fake.convention["loss"]
    assert any("of what else it scores" in note for note in fake.model.notes)
    many = opgraph.profile(name, **{**given, "batch_size": 256})
    assert many.totals.flops == 64 * fake.totals.flops


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SenseTime/deformable-detr", "yolo26n-pose"])
def test_boxes_are_matched_without_values(name):
    """A criterion asks whether boxes or errors are finite, and matches boxes with the truth outside of
    torch."""
    if name.startswith("yolo"):
        pytest.importorskip("ultralytics", _ULTRALYTICS)
    found = opgraph.profile(name, mode="train", image_size=64)
    assert found.tracing.tensors == "fake"
    assert "the model's own" in found.convention["loss"]
    assert {"branch", "routing"} <= {note.code for note in found.remarks}


@pytest.mark.parametrize(
    ("result", "name", "by_hand"),
    [
        # Nothing is said of both pixels: log 2, and a half where the two halves overlap nothing.
        ({"pred_masks": torch.zeros(2, 3, 1, 2)}, "dice", log(2) + 1 - 1 / (1 + 1)),
        (
            {"pred_masks": torch.zeros(1, 1, 2), "iou_scores": torch.ones(1)},
            "dice",
            log(2) + 0.5 + 1,
        ),
        # All logarithms are 1 too large, which is half forgiven.
        ({"predicted_depth": torch.full((1, 2, 2), exp(1))}, "scale-invariant", 0.5),
        ([torch.ones(1, 2, 3, 3) for _ in range(3)], "sequence L1", 0.8**2 + 0.8 + 1),
        ([torch.ones(1, 2, 3, 3), torch.ones(1, 2, 5, 5)], "sum", 18 + 50),
    ],
)
def test_losses_that_results_are_held_to(result, name, by_hand):
    given = {k: v.requires_grad_() for k, v in result.items()} if isinstance(result, dict) else None
    made = [t.requires_grad_() for t in result] if given is None else SimpleNamespace(**given)
    found = loss_of(made)
    assert found.name == name
    assert found.of(made).item() == pytest.approx(by_hand)


@pytest.mark.slow
def test_a_batch_norm_of_one_value_a_channel_gets_a_batch_of_two():
    profile = opgraph.profile("timm:mobilenetv4_conv_small", mode="train", image_size=64)
    assert profile.graph.failed is None
    assert profile.graph.value[profile.graph.inputs[0]].shape[0] == 2
    assert any(note.startswith("a batch of 2") for note in profile.model.notes)
    with pytest.raises(opgraph.InputError, match="more than 1 value per channel"):
        opgraph.profile("timm:mobilenetv4_conv_small", mode="train", image_size=64, batch_size=1)


def test_labels_cost_what_their_logits_do_by_hand():
    """Logits [3, 4] in float32: log-softmax and its gradient are alive beside the logits, 48 bytes each."""
    summed, labelled = (
        opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", loss=loss, optimizer="sgd")
        for loss in ("sum", "auto")
    )
    kept = [training(p.graph).saved_activations for p in (summed, labelled)]
    # Kept beside what the sum keeps: logarithms [3, 4] and the weight of all targets. The logits are
    # kept in neither; labels are known from the next kernel on.
    assert kept[1] - kept[0] == 48 + 4


def test_a_step_on_real_tensors_leaves_the_weights_alone():
    """Where values decide, weights are real: the step is one of copies."""

    class Decides(Two):
        def forward(self, x):
            y = super().forward(x)
            return y * 2 if y.sum() > 0 else y

    model = Decides()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    profile = opgraph.profile(model, (torch.ones(3, 8),), mode="train")
    assert profile.tracing.tensors == "real"
    assert training(profile.graph).gradients == 768
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())


def test_gradients_of_a_step_before_are_added_to():
    """They are alive from the beginning, each is added to once, and nothing else of the step changes."""
    model, x = Two(), (torch.zeros(3, 8),)
    plain, kept = (
        opgraph.profile(model, x, mode="train", loss="sum", accumulation=each)
        for each in (False, True)
    )
    gradients = training(plain.graph).gradients
    assert training(kept.graph).gradients == gradients == 768
    assert memory(kept.graph).live[0] - memory(plain.graph).live[0] == gradients
    assert training(kept.graph).optimizer_state == training(plain.graph).optimizer_state
    assert training(kept.graph).saved_activations == training(plain.graph).saved_activations
    added = [n for n in kept.graph.nodes if n.phase == "backward" and n.op == "add"]
    assert [n.scope for n in added] == ["two", "one"]
    assert kept.totals.flops == plain.totals.flops
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("optimizer", ["adamw-loop", "adamw-foreach"])
def test_scaled_gradients_are_read_and_written_once_more(optimizer: str) -> None:
    """In one kernel, divided over the modules whose gradients they are; 192 weights are 768 bytes."""
    plain, scaled = (
        opgraph.profile(Two(), (torch.zeros(3, 8),), mode="train", loss="sum", optimizer=optimizer,
                        loss_scaling=each)
        for each in (False, True)
    )  # fmt: skip
    parts = [n for n in scaled.graph.nodes if n.op == "unscale"]
    assert {n.scope for n in parts} >= {"one", "two"}
    assert sum(k.launches for n in parts for k in n.kernels if "_amp_" in k.op) == 1
    assert sum(k.bytes for n in parts for k in n.kernels if "_amp_" in k.op) // 768 == 2
    assert scaled.totals.flops == plain.totals.flops
    assert scaled.totals.coverage == 1
    assert memory(scaled.graph).peak - memory(plain.graph).peak <= 64  # a few numbers


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw-foreach", "adamw-fused", "sgd-foreach"])
def test_the_step_of_modules_that_look_alike_is_run_once(monkeypatch, optimizer):
    """Written down again for the others: the same kernels, nodes and memory as where each of them runs."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)), nn.Linear(16, 3))
    options = {"mode": "train", "target": "cuda", "optimizer": optimizer}
    ran, plain = [], Recorder.as_one

    def as_one(self, path, op, given, run):
        plain(self, path, op, given, lambda: (ran.append(1), run())[1])

    monkeypatch.setattr(Recorder, "as_one", as_one)
    once = opgraph.profile(model, (torch.zeros(2, 16),), **options).graph
    assert len(ran) == 2
    monkeypatch.setenv(SWITCH, "0")
    each = opgraph.profile(model, (torch.zeros(2, 16),), **options).graph
    assert len(ran) == 2 + 5
    assert once.nodes == each.nodes
    assert once == each


class Normed(nn.Sequential):
    """One whose statistics stay, as fine-tuned detectors have them."""

    def __init__(self, *, stays: bool):
        super().__init__(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Dropout()))
        self.stays = stays

    def train(self, mode=True):
        super().train(mode)
        self[1].train(mode and not self.stays)
        return self


def test_what_is_left_in_eval_mode_stays_so():
    found = opgraph.profile(Normed(stays=True).train(), torch.ones(2, 4), mode="train")
    (norm,) = [n for n in found.graph.nodes if n.op == "batch_norm"]
    assert "training=True" not in norm.arguments
    assert not any("dropout" in n.op and n.kernels for n in found.graph.nodes)
    assert [r.text for r in found.remarks if r.code == "modes"] == [
        "in eval mode as they were given, the rest in training mode: 1"
    ]


@pytest.mark.parametrize("model", [Normed(stays=False).train(), Normed(stays=True).eval()])
def test_all_of_a_model_is_trained_where_nobody_says_otherwise(model):
    before = [m.training for m in model.modules()]
    found = opgraph.profile(model, torch.ones(2, 4), mode="train")
    (norm,) = [n for n in found.graph.nodes if n.op == "batch_norm"]
    assert "training=True" in norm.arguments
    assert not [r for r in found.remarks if r.code == "modes"]
    assert [m.training for m in model.modules()] == before


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_forward_that_does_not_say_what_it_takes_is_trained() -> None:
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()), torch.randn(3, 8)
    traced = opgraph.profile(torch.jit.trace(model, (x,)), x, mode="train")
    assert traced.totals.cost.flops == opgraph.profile(model, x, mode="train").totals.cost.flops


class Edges(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x, edges):
        source, target = edges
        x = self.layer(x)
        return torch.zeros_like(x).index_add(0, target, x[source])


def test_a_graph_network_has_no_batch_and_is_trained():
    """Nodes are 10 and edges two by 40: no size of these is that of a batch."""
    shapes = {"x": "10x16", "edges": "2x40:int64"}
    found = opgraph.profile(Edges(), input_overrides=shapes, mode="train", loss="sum")
    assert found.totals.flops == 2 * 2 * 10 * 16 * 8


class Asked(nn.Module):
    """Asks for a value of its weights where it `reads`, so that it runs on real tensors."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.reads, self.one = reads, nn.Linear(8, 16, bias=False)

    def forward(self, x):
        if self.reads:
            float(self.one.weight.detach().sum())
        assert x.requires_grad
        return self.one(x)


@pytest.mark.parametrize("reads", [False, True])
def test_an_input_that_requires_a_gradient_gets_one(reads: bool) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    profile = opgraph.profile(Asked(reads), x, mode="train")
    assert profile.tracing.tensors == ("real" if reads else "fake")
    assert profile.totals.flops == 3 * 2 * 4 * 8 * 16
    assert x.grad is None


class Weight(nn.Parameter):
    pass


@pytest.mark.parametrize("reads", [False, True])
def test_weights_of_a_step_have_their_class_and_attributes(reads: bool) -> None:
    class Noted(Two):
        def forward(self, x):
            weight = self.one.weight
            if reads:
                float(weight.detach().sum())
            weight.calls += 1
            assert type(weight) is Weight
            return super().forward(x)

    model = Noted()
    model.one.weight = Weight(torch.randn(16, 8))
    model.one.weight.calls = 1
    profile = opgraph.profile(model, torch.randn(4, 8), mode="train")
    assert profile.tracing.tensors == ("real" if reads else "fake")
    assert model.one.weight.calls == 1


class Detects(nn.Module):
    """Returns its losses by name, as torchvision's detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.classes, self.boxes = nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(
        self, x: torch.Tensor, targets: list[dict[str, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        labels = torch.cat([target["labels"] for target in targets])
        boxes = torch.cat([target["boxes"] for target in targets])
        return {
            "loss_classes": nn.functional.cross_entropy(self.classes(x), labels),
            "loss_boxes": nn.functional.l1_loss(self.boxes(x), boxes),
        }


def test_losses_that_a_model_returns_by_name_are_added_up() -> None:
    targets = [{"labels": torch.ones(1, dtype=torch.int64), "boxes": torch.zeros(1, 4)}]
    profile = opgraph.profile(Detects(), (torch.ones(1, 8), targets), mode="train")
    forward = 2 * 8 * (3 + 4)
    assert profile.totals.flops == 2 * forward  # and as much for the weights' gradients
    assert any("with the targets that were given" in r.text for r in profile.remarks)
