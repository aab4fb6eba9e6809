"""Dynamo: every fragment, every seam with its reason and line, and nothing left behind."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.analysis.cost.fragments import cut, dominant, fragments, select_fragment
from opgraph.inputs.base import Example
from opgraph.record.profile import Compiled
from opgraph.tracing.base import record
from opgraph.tracing.replay.dynamo import Backend, capture
from opgraph.views import render
from opgraph.views.text.overview import overview, overview_data

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nodes(profile: Profile, unplaced: str = "") -> Counter[tuple[object, ...]]:
    """What must not depend on the tracer; of one operator not where it is."""
    return Counter(
        (n.name, n.op, n.scope, n.parameters, n.kernels,
         *((n.file, n.line) if n.op != unplaced else ()))
        for n in profile.graph.nodes
    )  # fmt: skip


@pytest.mark.slow
def test_resnet18_is_one_fragment_and_the_same_node_by_node(resnet18: Profile) -> None:
    traced = opgraph.profile("resnet18", tracer="dynamo")
    assert nodes(traced) == nodes(resnet18)
    assert {n.fragment for n in traced.graph.nodes if n.kind == "call"} == {1}
    assert traced.graph.breaks == ()


@pytest.mark.slow
def test_three_breaks_make_four_fragments() -> None:
    model = example("graph_breaks").Broken()
    x = torch.randn(8, 16)
    traced = opgraph.profile(model, x, tracer="dynamo")
    # From Python 3.13 on the code that Dynamo makes tests a branch in the line where it resumed.
    branch = "item" if sys.version_info >= (3, 13) else ""
    assert nodes(traced, branch) == nodes(opgraph.profile(model, x), branch)
    assert sorted({n.fragment for n in traced.graph.nodes}) == [0, 1, 2, 3, 4]
    assert [n.op for n in traced.graph.nodes if n.kind == "call" and not n.fragment] == ["item"]
    text = (EXAMPLES / "graph_breaks.py").read_text(encoding="utf-8").splitlines()
    lines = [text[b.line - 1].strip() for b in traced.graph.breaks if b.line is not None]
    assert lines == [
        "sys.getrefcount(x)",
        "if x.sum() > 0:",
        'print("nearly there", file=sys.stderr)',
    ]
    assert [b.fragment for b in traced.graph.breaks] == [1, 2, 3]
    assert all(
        b.file is not None and b.file.endswith("graph_breaks.py") for b in traced.graph.breaks
    )
    reasons = [b.reason for b in traced.graph.breaks]
    assert "sys.getrefcount" in reasons[0]
    assert reasons[1] == "a branch on the value of a tensor"
    assert "print" in reasons[2]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        torch._dynamo.graph_break()
        return x + 1


@pytest.mark.slow
def test_each_run_of_a_broken_layer_is_a_pair_of_fragments() -> None:
    model = nn.Sequential(
        *(Layer() for _ in range(10))
    )  # more than Dynamo's limit of recompilations
    traced = opgraph.profile(model, torch.zeros(2, 4), tracer="dynamo")
    assert nodes(traced) == nodes(opgraph.profile(model, torch.zeros(2, 4)))
    assert [n.scope for n in traced.graph.nodes if n.op == "linear"] == [
        f"{i}.inner" for i in range(10)
    ]
    assert max(n.fragment for n in traced.graph.nodes) == 20
    assert {b.line for b in traced.graph.breaks} >= {Layer.forward.__code__.co_firstlineno + 2}


class Steered(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = x * torch.arange(4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return y @ y.T


def test_what_steers_and_what_comes_from_nowhere_is_told_apart() -> None:
    traced = opgraph.profile(Steered(), torch.zeros(4, 4), tracer="dynamo")
    plain = opgraph.profile(Steered(), torch.zeros(4, 4))
    kinds = Counter((n.kind, n.op) for n in traced.graph.nodes)
    assert kinds["control", "set_grad_enabled"] == 2
    assert kinds["control", "enter_autocast"] == kinds["control", "exit_autocast"] == 1
    assert kinds["constant", "arange"] == 1
    assert nodes(traced) - nodes(plain) == Counter(
        {k: v for k, v in nodes(traced).items() if k[1] in
         ("set_grad_enabled", "enter_autocast", "exit_autocast")}
    )  # fmt: skip
    assert not nodes(plain) - nodes(traced)


@pytest.mark.slow
def test_a_yolo_object_with_all_its_fragments() -> None:
    ultralytics = pytest.importorskip("ultralytics", "8.4.126", reason="other breaks before")
    yolo = ultralytics.YOLO("yolo11n.yaml")
    # Warm, as in a process that serves it: Dynamo follows for minutes how the first call loads and fuses.
    yolo(torch.rand(1, 3, 640, 640), verbose=False)
    found = opgraph.profile(yolo, torch.rand(1, 3, 640, 640), tracer="dynamo")
    largest = dominant(found.graph)
    assert largest is not None
    assert largest.cost.flops == found.totals.flops == opgraph.profile("yolo11n.pt").totals.flops
    assert len(fragments(found.graph)) == len(found.graph.breaks) + 1 > 3
    assert all(b.file and b.line for b in found.graph.breaks)
    assert f"the largest is number {largest.number}" in render("table", found.on())
    again = select_fragment(found.graph, "largest")
    assert sum(n.flops for n in again.nodes) == found.totals.flops


def test_what_only_steers_is_in_the_json_and_in_no_table_or_picture() -> None:
    traced = opgraph.profile(Steered(), torch.zeros(4, 4), tracer="dynamo")
    kinds = [n["kind"] for n in traced.to_dict()["graph"]["nodes"]]
    assert (kinds.count("control"), kinds.count("constant")) == (4, 1)
    assert "constants" in {o["name"] for o in overview_data(traced.on())["operators"]}
    texts = {
        "table": render("table", traced.on()), "explore": overview(traced.on()),
        **{name: render(name, traced.on()) for name in ("svg", "mermaid", "dot", "markdown")},
    }  # fmt: skip
    for name, text in texts.items():
        assert "matmul" in str(text), name
        assert "autocast" not in str(text), name
        assert "grad_enabled" not in str(text), name
        assert "arange" not in str(text), name  # what it costs is in the sums


def test_a_fragment_keeps_nothing_of_the_whole(tmp_path: Path) -> None:
    """The nodes of a part are numbered anew: groups and formulas of the whole would be wrong."""
    whole = opgraph.profile(Layer(), torch.zeros(2, 4), tracer="dynamo")
    part = cut(replace(whole, compiled=Compiled("cpu", None, ())), 1)
    assert (part.compiled, part.formulas, part.cache) == (None, None, None)
    Profile.of(part).save(tmp_path / "part.json")
    assert opgraph.load(tmp_path / "part.json").graph == part.graph


class Tied(nn.Module):
    """One weight as an embedding, through a view and a cast, and as a head, each in its own fragment."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        torch._dynamo.graph_break()
        y = x.bfloat16() @ self.embed.weight.t().bfloat16()
        torch._dynamo.graph_break()
        return self.head(x) + y


@pytest.mark.slow
def test_a_parameter_of_several_fragments_is_one_value_with_all_its_users() -> None:
    ids = torch.ones(1, 4, dtype=torch.long)
    traced = opgraph.profile(Tied(), ids, tracer="dynamo")
    graph = traced.graph
    assert nodes(traced) == nodes(opgraph.profile(Tied(), ids))
    assert traced.totals.parameters == 16 * 8
    assert [(p.name, p.tied) for p in graph.parameters] == [("embed.weight", ("head.weight",))]
    (weight,) = (v for v in graph.values if v.kind == "parameter")
    users = graph.users[weight.id]
    assert [(n.fragment, n.op) for n in users] == [
        (1, "embedding"),
        (2, "transpose"),
        (3, "linear"),
    ]
    assert all(n.parameters == ("embed.weight",) for n in users)
    # The product reads it through the view and the cast.
    (product,) = (n for n in graph.nodes if n.op == "matmul")
    cast = graph.producer[product.inputs[1]]
    assert cast.op == "to"
    assert graph.value[cast.inputs[0]].alias_of == weight.id


@pytest.mark.slow
def test_fullgraph_makes_a_break_an_error() -> None:
    model = nn.Sequential(Layer())
    expected = r"cannot be traced: dynamo .*graph_break\(\)"
    with pytest.raises(opgraph.TraceError, match=expected) as caught:
        opgraph.profile(model, torch.zeros(2, 4), tracer="dynamo", fullgraph=True)
    compiled_so_far = "_torch_dynamo_tracer_output"  # with its tensors
    assert compiled_so_far not in vars(caught.value.__cause__)
    whole = opgraph.profile(nn.Linear(4, 4), torch.zeros(2, 4), tracer="dynamo", fullgraph=True)
    assert whole.graph.failed is None


@pytest.mark.slow
@pytest.mark.parametrize("tracer", ["fx", "dynamo", "export"])
def test_nothing_is_left_behind(tracer: str, state: Callable[[nn.Module], Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    x = torch.zeros(2, 4)
    before = state(model)
    first = opgraph.profile(model, x, tracer=tracer)
    assert state(model) == before
    second = opgraph.profile(model, x, tracer=tracer)
    assert first.graph == second.graph
    assert state(model) == before
    assert sys.gettrace() is None


@pytest.mark.parametrize("tracer", ["auto", "fx", "dynamo", "export"])
@pytest.mark.slow
def test_what_torch_notes_as_it_compiles_has_nothing_of_ours(tracer: str) -> None:
    from torch._dynamo import convert_frame, utils
    from torch._dynamo.eval_frame import dynamo_tls
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.graph_module import _loader
    from torch.utils._stats import simple_call_counter

    def said() -> tuple[object, ...]:
        return (
            (dict(convert_frame.FRAME_COMPILE_COUNTER), convert_frame.FRAME_COUNTER),
            (utils.compile_times("csv"), utils.op_count, utils.curr_frame),
            (list(utils.graph_break_reasons), list(dynamo_tls.traced_frame_infos)),
            (FakeTensorMode.cache_hits, dict(FakeTensorMode.cache_bypasses)),
            dict(simple_call_counter),
            (_loader.next_id, list(_loader.eval_cache)),
            [name for name in linecache.cache if name.startswith("<eval")],
            sum("CheckFunctionManager" in str(f.peek()) for f in weakref.finalize._registry),
        )

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    for again in range(2):
        model, x = nn.Sequential(nn.Linear(4, 4), Layer()), torch.ones(2, 4)
        before = said()
        opgraph.profile(model, x, tracer=tracer)
        assert said() == before, again


def test_dynamos_own_counters_count_nothing_of_ours() -> None:
    torch.compile(nn.Linear(4, 4), backend="eager")(torch.zeros(2, 4))
    before = {name: dict(found) for name, found in torch._dynamo.utils.counters.items()}
    assert before["stats"]["unique_graphs"]
    opgraph.profile(Layer(), torch.zeros(2, 4), tracer="dynamo")
    assert {name: dict(found) for name, found in torch._dynamo.utils.counters.items()} == before


@pytest.mark.slow
def test_what_others_compiled_stays_compiled() -> None:
    compilations = []

    def backend(gm: Any, _inputs: Any) -> Any:
        compilations.append(gm)
        return gm.forward

    @torch.compile(backend=backend)
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    mine(torch.ones(4))
    opgraph.profile(nn.Sequential(Layer()), torch.zeros(2, 4), tracer="dynamo")
    mine(torch.ones(4))
    assert len(compilations) == 1
    mine(torch.ones(5))  # a second size: as if nothing had been between, it becomes dynamic
    mine(torch.ones(6))
    assert len(compilations) == 2


class Broken(nn.Module):
    """Has functions of its own behind a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        torch._dynamo.graph_break()
        return _doubled(y)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("make", [Broken, lambda: nn.Linear(4, 4)])
@torch.no_grad()  # in grad mode Dynamo warns of its own resumed code
def test_what_was_compiled_of_the_model_itself_stays_compiled(make: Callable[[], Any]) -> None:
    model, x = make(), torch.zeros(2, 4)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    doubled = torch.compile(_doubled, backend="eager")
    doubled(x)
    code = _doubled.__code__
    for given in (model, compiled):
        opgraph.profile(given, x, tracer="dynamo")
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(x)
            doubled(x)
    assert _doubled.__code__ is code


@pytest.mark.parametrize("warm_up", [False, True])
@pytest.mark.parametrize("called", [False, True])
def test_a_model_that_is_compiled_in_place_is_captured_as_it_is(
    called: bool, warm_up: bool
) -> None:
    compilations = []

    def backend(gm: Any, _inputs: Any) -> Any:
        compilations.append(gm)
        return gm.forward

    @torch.no_grad()
    def call(model: nn.Module) -> None:
        if called:
            model(torch.zeros(2, 4))

    found = []
    for compiled in (False, True, True):  # the last would meet what is left of the one before
        model = nn.Sequential(Layer(), nn.ReLU()).eval()
        if compiled:
            model.compile(backend=backend)
        call(model)
        before = len(compilations), [*vars(model)]
        found.append(opgraph.profile(model, torch.zeros(2, 4), tracer="dynamo", warm_up=warm_up))
        assert (len(compilations), [*vars(model)]) == before
        call(model)
    plain, *others = ([(n.target, n.scope) for n in profile.graph.nodes] for profile in found)
    assert plain
    assert others == [plain, plain]


@pytest.fixture
def state() -> Callable[[nn.Module], Any]:
    """All that a tracer could leave behind, in the process and in a model."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, get_eval_frame_callback
    from torch.nn.modules import module as hooks

    def look(model: nn.Module) -> Any:
        return (
            torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"),
            torch.compiler.is_compiling(), torch.compiler.is_exporting(),
            torch.get_rng_state().tolist(), get_eval_frame_callback(),
            len(_debug_get_cache_entry_list(nn.Linear.forward.__code__)),
            len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks),
            torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
            torch._dynamo.config.recompile_limit, torch._dynamo.config.automatic_dynamic_shapes,
            [(n, id(p), p.requires_grad) for n, p in model.named_parameters()],
            [(n, id(b), b.tolist()) for n, b in model.named_buffers()],
            [(n, m.training, sorted(m.__dict__), len(m._forward_hooks)) for n, m in model.named_modules()],
        )  # fmt: skip

    return look


def test_what_a_compiler_leaves_of_a_fragment_is_gone_before_the_next() -> None:
    """Python looks for no cycles while a forward is recorded."""

    class Left:
        def __init__(self) -> None:
            self.me = self

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.relu()
            torch._dynamo.graph_break()
            x = x.relu()
            torch._dynamo.graph_break()
            return x.relu()

    left: list[weakref.ref[Left]] = []
    alive: list[int] = []

    def compile_it(*_: object) -> None:
        alive.append(sum(each() is not None for each in left))
        left.append(weakref.ref(Left()))

    broken = capture(fullgraph=False, backend=Backend(compile_it, lambda *_: None))
    found = record(
        Broken(), Example((torch.ones(2),)), capture=broken, tracer="dynamo", stance="default"
    )
    assert found.error is None
    assert alive == [0, 0, 0]


def test_numbers_in_memory_are_known_of_a_cpu_alone() -> None:
    """As torch.compile has it: what asks for one on a GPU breaks the graph. A compiler is given each tensor
    by itself, and knows none."""

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Buffer(torch.tensor(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(x.exp(), (self.left, 0)).relu()

    def breaks(target: str, backend: Backend | None = None) -> int:
        seen = capture(fullgraph=False, backend=backend, target=target)
        found = record(Padded(), Example((torch.ones(1, 8),)), real=True, capture=seen,
                       tracer="dynamo", stance="default")  # fmt: skip
        assert found.error is None
        assert found.graph is not None
        return len(found.graph.breaks)

    assert [breaks("cpu"), breaks("cuda:9.0")] == [0, 1]
    assert breaks("cpu", Backend(lambda *_: None, lambda *_: None)) == 1


def test_a_forward_that_is_no_function_is_captured() -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    model.forward = partial(type(model).forward, model)  # type: ignore[method-assign]
    assert opgraph.profile(model, torch.randn(2, 4), tracer="dynamo").totals.flops == 48
