"""Tracers side by side: what agrees is silent, what differs is named by operator and module."""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.check.agreement import Agreement, Reading, disagreements, reasons
from opgraph.analysis.cost.totals import totals
from opgraph.api.pipeline import prepared, profile_model
from opgraph.checking import check
from opgraph.cli import main
from opgraph.tracing.state.memory import free_bytes
from opgraph.views.text.check import check_text


class Choosy(nn.Module):
    """Runs other code while it is compiled, as the masks of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.exp() if torch.compiler.is_compiling() else x


@pytest.fixture(scope="module")
def choosy() -> Agreement:
    return check(Choosy(), torch.ones(2, 8), counters=False)


@pytest.mark.slow
def test_counters_count_lazy_layers() -> None:
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(4))
    checked = check(lazy, torch.ones(2, 3, 8, 8))
    assert {r.parameters for r in checked.readings if r.error is None} == {700}
    assert all(nn.parameter.is_lazy(p) for p in lazy.parameters())


class Loud(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.stderr.write("heard\n")
        return super().forward(x)


@pytest.mark.slow
def test_remarks_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = check(Loud(4, 4), torch.ones(2, 4), counters=False)
    (remark,) = checked.remarks
    assert str(checked).endswith(f"Remarks\n{remark.code}  {remark}\n")
    model = tmp_path / "loud.py"
    model.write_text(
        "import sys, torch\nclass Loud(torch.nn.Linear):\n    def forward(self, x):\n"
        "        print('heard', file=sys.stderr)\n        return super().forward(x)\n"
        "def made():\n    return Loud(4, 4)\n"
    )
    for form, of_stderr in (("text", False), ("json", True)):
        capsys.readouterr()
        asked = ["check", f"{model}:made", "--input-shape", "2x4", "--no-counters"]
        assert main([*asked, *(["--json"] * of_stderr)]) == 0
        said = capsys.readouterr()
        assert ("cannot be taken back" in said.err) == of_stderr, form
        assert "cannot be taken back" in said.out, form


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 75, 76, 100])
def test_no_figure_of_a_tracer_is_cut(choosy: Agreement, width: int) -> None:
    """What has no room is left out whole, and said."""
    table = check_text(choosy, width=width).partition("\n\n")[0]
    assert "…" not in table
    assert ("Tensors" in table, "Left out" in table) == (width >= 76, width < 76)


@pytest.mark.slow
def test_what_really_differs_is_named(choosy: Agreement) -> None:
    assert [t.tracer for t in choosy.trials] == ["eager", "fx", "dynamo", "export"]
    assert choosy.agree
    found = {t.tracer: choosy.disagreements(t) for t in choosy.trials}
    assert found["eager"] == found["fx"] == ()
    (other,) = found["dynamo"]
    assert (other.scope, other.op, other.places, other.spelling) == ("", "exp", 1, False)
    assert (other.nodes, other.other_flops) == ((0, 1), (0, 16))
    assert other.bytes == (0, 128)


def test_what_a_model_does_when_it_is_told_that_it_is_compiled_is_explained(
    choosy: Agreement,
) -> None:
    trials = {t.tracer: t for t in choosy.trials}
    assert [t for t in trials if choosy.matches(trials[t])] == ["eager", "fx"]
    assert all(choosy.told(trials[t]) for t in ("dynamo", "export"))
    assert "asks whether it is being compiled" in check_text(choosy)
    wrong = replace(trials["dynamo"], told=trials["eager"].profile)
    assert not replace(choosy, trials=(trials["eager"], wrong)).agree


def test_a_profile_says_itself_what_its_model_asked(choosy: Agreement) -> None:
    notes = {t.tracer: t.profile.model.notes for t in choosy.trials if t.profile}
    assert notes["eager"] == notes["fx"] == ()
    (compiled,), (exported,) = notes["dynamo"], notes["export"]
    assert compiled.startswith(
        "the model asks whether it is being compiled, and then has 15 % more"
    )
    assert compiled.endswith(" bytes of traffic than a plain run")
    assert "is being exported" in exported
    assert opgraph.profile(nn.Linear(2, 2), torch.ones(1, 2), tracer="hybrid").model.notes == ()


def test_a_plain_run_raises_no_flags_and_leaves_none_behind() -> None:
    read, write = os.pipe()  # what a run puts into a list or a queue is taken out again

    class Listening(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            os.write(write, bytes((torch.compiler.is_compiling(), torch.compiler.is_exporting())))
            return x + 1

    model, example = prepared(Listening(), torch.ones(2))
    for flags in ("none", "compiling", "exporting"):
        profile_model(model, example, compile_flags=flags)
        assert not torch.compiler.is_compiling()
        assert not torch.compiler.is_exporting()
    os.close(write)
    with os.fdopen(read, "rb") as heard:
        assert heard.read() == bytes((False, False, True, False, True, True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "inputs"),
    [
        ("BertModel", "BertConfig", ("input_ids", "attention_mask")),
        ("LlamaModel", "LlamaConfig", ("input_ids", "attention_mask")),
        ("T5Model", "T5Config", ("input_ids", "attention_mask", "decoder_input_ids")),
    ],
)
def test_tracers_agree_to_the_digit_on_the_same_program(
    name: str, config: str, inputs: tuple[str, ...]
) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "d_model": 32,
             "intermediate_size": 64, "num_layers": 2, "num_heads": 2, "d_ff": 64, "d_kv": 16}  # fmt: skip
    model = getattr(transformers, name)(getattr(transformers, config)(**sizes))
    found = check(
        model, kwargs={i: torch.ones(1, 8, dtype=torch.long) for i in inputs}, counters=False
    )
    whole = {t.tracer: t for t in found.trials if t.whole}
    assert whole.keys() >= {"eager", "dynamo", "export"}
    assert not any(map(found.matches, (whole["dynamo"], whole["export"])))  # the mask is built
    assert found.agree
    for trial in whole.values():
        assert trial.profile is not None
        truth = trial.told or whole["eager"].profile
        assert truth is not None
        mine, theirs = totals(trial.profile.graph), totals(truth.graph)
        assert (mine.flops, mine.other_flops, mine.bytes, mine.parameters) == (
            theirs.flops, theirs.other_flops, theirs.bytes, theirs.parameters,
        )  # fmt: skip


@pytest.mark.slow
def test_a_graph_agrees_with_itself(bert: opgraph.Profile) -> None:
    assert disagreements(bert.graph, bert.graph) == ()


@pytest.mark.slow
def test_the_same_cost_in_other_operators_is_spelling() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.ones(1, 4, 8)
    one = opgraph.profile(attention, (x, x, x)).graph
    two = opgraph.profile(attention, (x, x, x), tracer="export").graph
    found = disagreements(one, two)
    assert found
    assert all(d.spelling for d in found)


def test_a_tracer_that_cannot_says_why() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    found = check(Branch(), torch.ones(2), tracers=("auto", "fx"), counters=False)
    assert found.trials[0].error is None
    assert found.trials[1].profile is None
    assert "branches on a tensor" in (found.trials[1].error or "")


def reading(value: int, unit: str = "FLOPs", parameters: int | None = None) -> Reading:
    return Reading("a counter", "1", unit, value=value, parameters=parameters)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_figure_is_explained_where_the_amounts_fit(bert: opgraph.Profile) -> None:
    flops = bert.totals.flops
    attention = sum(
        k.flops for n in bert.graph.nodes for k in n.kernels if k.category == "attention"
    )
    assert reasons(reading(flops), bert.graph) == ()
    assert reasons(reading(flops // 2, "MACs"), bert.graph) == ("counts a MAC as one",)
    assert reasons(reading(flops - attention), bert.graph) == ("skips attention (2.7 %)",)
    assert reasons(reading(flops // 3), bert.graph) == ("66.7 % less, not explained",)


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2Model(transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2))


def swin() -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer([4, 4], 24, [1, 1], [2, 2], [4, 4])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(9, 16), nn.LSTM(16, 16), nn.Linear(16, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(x))[0])


class Layer(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.conv, self.activation = nn.Conv2d(4, 4, 1), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.conv(x))


def sharing() -> nn.Module:
    """One activation in all layers, the last of which lies deeper than the others."""
    one = nn.SiLU()
    pairs = (nn.Sequential(Layer(one), Layer(one)) for _ in range(2))
    return nn.Sequential(*pairs, nn.Sequential(nn.Sequential(Layer(one))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "x", "reason"),
    [
        (
            sharing,
            torch.ones(1, 4, 2, 2),
            "counts parameters again around a module that several share",
        ),
        (gpt2, torch.ones(1, 8, dtype=torch.long), "takes Conv1D for a convolution"),
        (swin, torch.zeros(1, 3, 32, 32), "skips ShiftedWindowAttention"),
        (Recurrent, torch.ones(6, 2, dtype=torch.long), "counts a Linear once a sample"),
    ],
)
def test_a_counter_that_looks_at_modules_alone_is_explained(
    make: Callable[[], nn.Module], x: torch.Tensor, reason: str
) -> None:
    pytest.importorskip("torchinfo")
    found = check(make(), x, tracers=("auto",))
    (mine,) = (r for r in found.readings if r.tool == "torchinfo")
    clauses = "; ".join(found.reasons(mine))
    assert reason in clauses
    assert "not explained" not in clauses


def test_a_count_of_parameters_is_explained() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    graph = opgraph.profile(model, torch.ones(1, 4)).graph
    flops = 2 * 2 * 16
    assert reasons(reading(flops, parameters=24), graph) == ()
    assert reasons(reading(flops, parameters=40), graph) == ("counts tied weights more than once",)
    assert reasons(reading(flops, parameters=20), graph) == (
        "leaves out parameters that are not trained",
    )


@pytest.mark.slow
def test_a_list_of_indices_is_no_disagreement() -> None:
    """Export writes the list into its program as a constant, and copies it."""

    class Last(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, [-1], :]

    found = check(Last(), torch.ones(1, 3, 4), tracers=("auto", "export"), counters=False)
    assert found.agree
    assert [d.spelling for d in found.disagreements(found.trials[1])] == [True]


@pytest.mark.slow
def test_what_torch_prints_of_a_failed_export_is_kept_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x[: int(x.abs().max().item())]

    found = check(Branch(), torch.randn(2, 8), tracers=("auto", "export"), counters=False)
    assert "data-dependent" in (found.trials[1].error or "")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_command_shows_all_tracers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "resnet18", "--no-counters", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agree"] is True
    assert [t["totals"]["nodes"] for t in found["tracers"]] == [71, 71, 71, 71]
    assert {t["totals"]["flops"] for t in found["tracers"]} == {3628146688}
    assert all(t["disagreements"] == [] for t in found["tracers"])


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["fvcore", "torchinfo", "ptflops", "thop", "calflops"])
def test_other_counters_leave_the_model_alone(tool: str) -> None:
    pytest.importorskip(tool)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 8))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = check(model, torch.ones(1, 3, 8, 8), tracers=("auto",))
    (mine,) = (r for r in found.readings if r.tool == tool)
    assert mine.error is None
    first = found.trials[0].profile
    assert first is not None
    assert mine.flops == pytest.approx(totals(first.graph).flops, rel=0.1)
    assert model.state_dict().keys() == before.keys()
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


class Counted(nn.Module):
    """Counts its calls, where it can be seen and where not, and may raise in the last of them."""

    CALLS: ClassVar[list[int]] = []

    def __init__(self, most: float) -> None:
        super().__init__()
        self.layer, self.most = nn.Linear(8, 8), most

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.CALLS.append(1)
        y = torch.nn.functional.gelu(self.layer(x)) @ self.layer.weight
        if any("-packages/calflops" in f.filename for f in traceback.extract_stack()):
            assert self.most > 1, "it is enough"
        return y


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 9], ids=["fails", "counts"])
def test_other_counters_leave_torch_alone(most: int) -> None:
    """calflops has functions of its own in the place of torch's, and leaves them where a forward raises."""
    pytest.importorskip("calflops")
    check(nn.Linear(8, 8), torch.ones(2, 8), tracers=("auto",))  # what is imported stays
    spaces = torch, torch.nn.functional, torch.Tensor, nn.Module, nn.Linear
    before = [dict(vars(space)) for space in spaces]
    found = check(Counted(most), torch.ones(2, 8), tracers=("auto",))
    assert any(reading.error is not None for reading in found.readings) == (most == 1)
    assert not Counted.CALLS
    for space, held in zip(spaces, before, strict=True):
        assert {n: v for n, v in vars(space).items() if v is not held.get(n)} == {}
        assert held.keys() == vars(space).keys()


def test_what_a_counter_has_the_model_write_is_as_it_was() -> None:
    table = torch.zeros(3)

    class Writing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            table.add_(1)
            return super().forward(x)

    found = opgraph.check(Writing(4, 4), torch.ones(2, 4), tracers=("auto",))
    assert [reading for reading in found.readings if reading.error is None]
    assert not table.any()


def test_a_counter_for_which_too_much_would_have_to_be_copied_has_no_figure() -> None:
    model = nn.Linear(4, 4)
    model.table = [torch.empty(int(free_bytes() * 0.7), dtype=torch.uint8)]
    (first, *_) = found = opgraph.check(model, torch.ones(2, 4), tracers=("auto",)).readings
    assert all(reading.value is None for reading in found)
    assert first.error is not None
    assert "copies of them, to bring them back from, may take" in first.error


def test_what_a_counter_leaves_suspended_ends_before_all_is_brought_back() -> None:
    class Suspended(nn.Linear):
        depth = 0

        def parts(self) -> Iterator[int]:
            self.depth += 1
            try:
                with torch.autocast("cpu", torch.bfloat16):
                    yield 1
            finally:
                self.depth -= 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.parts()

            def again(depth: int) -> int:  # is in a cell of its own
                return next(parts) if depth == 0 else again(depth - 1)

            return super().forward(x) * again(1)

    model = Suspended(4, 4)
    found = opgraph.check(model, torch.ones(2, 4), tracers=("auto",)).readings
    assert [reading for reading in found if reading.error is None]
    gc.collect()
    nested = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    assert (model.depth, nested) == (0, 1)
