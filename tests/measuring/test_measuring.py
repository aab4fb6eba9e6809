"""Real runs on the CPU: every operator on its node, the model as it was, and what cannot be met refused."""

from __future__ import annotations

import contextlib
import copy
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

import opgraph
from opgraph.analysis.measured.times import curve
from opgraph.api.pipeline import prepared
from opgraph.cli import main
from opgraph.integrations.meter import Meter
from opgraph.measuring.running import together
from opgraph.measuring.steps import step_of
from opgraph.options import Options
from opgraph.record.errors import InputError, TraceError
from opgraph.record.names import canonical
from opgraph.record.run import RunEvent, RunRecord
from opgraph.tracing.state.copies import deep_copy

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """Two equal convolutions, one module called twice, a residual, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x)).relu()
        x = self.norm(self.second(x)) + x
        return self.head(self.drop(x.mean((2, 3))))


IMAGE = torch.randn(4, 8, 64, 64)


@pytest.mark.parametrize(
    ("options", "made"),
    [({"tracer": "export"}, "export captures"), ({"inductor": True}, "TorchInductor makes")],
)
def test_what_is_measured_is_the_model_itself(options: dict[str, Any], made: str) -> None:
    with pytest.raises(InputError, match=f"the model itself, and not what {made}"):
        opgraph.measure(nn.Linear(2, 2), torch.ones(1, 2), **options)


class Memory:
    """Grows with each call."""

    def __init__(self, lock: object = None) -> None:
        self.rows, self.lock = [torch.ones(2)], lock


class Reading(nn.Module):
    """Changes its arguments in place, and takes no more than a call's rows."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.table, self.most = nn.Embedding(3, 2), most

    def forward(self, ids: torch.Tensor, memory: Memory) -> torch.Tensor:
        ids += 1
        memory.rows.append(self.table(ids.clone()).detach())
        if len(memory.rows) > self.most:
            raise ValueError("too many")
        return self.table(ids.clone()) + memory.rows[0]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_each_step_has_the_arguments_that_were_given(mode: str) -> None:
    ids, memory, locked = torch.tensor([0, 1]), Memory(), Memory(threading.Lock())
    opgraph.measure(Reading(2), (ids, memory), mode=mode, device="cpu", steps=3)
    assert (ids.tolist(), len(memory.rows)) == ([0, 1], 1)
    found = opgraph.measure(Reading(99), (ids, locked), mode=mode, device="cpu", steps=3)
    assert [n for n in found.record.notes if "an argument cannot be copied (Memory)" in n]
    assert len(locked.rows) == 1


class Forces(nn.Module):
    """Computes gradients itself."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return -torch.autograd.grad(self.energy(x).square().sum(), x)[0]


def test_a_forward_that_computes_gradients_is_measured() -> None:
    found = opgraph.measure(Forces(), torch.ones(2, 3), device="cpu", steps=2)
    assert any("grad" in node.name for node in found.nodes)
    assert found.seconds > 0


class Scaled(nn.Module):
    """Goes by attributes of a weight, of which one cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        weight: Any = self.layer.weight
        weight.scale, weight.lock = torch.tensor(2.0), threading.Lock()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight: Any = self.layer.weight
        return self.layer(x) * weight.scale.mul_(2)


def test_weights_of_the_copy_have_attributes() -> None:
    model = Scaled()
    assert opgraph.measure(model, torch.ones(1, 2), device="cpu", steps=2).seconds > 0
    assert vars(model.layer.weight)["scale"] == 2


class Drawing(nn.Module):
    """Takes a number from a generator, which nobody can copy."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.numbers = nn.Linear(2, 2), (float(n) for n in range(100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * next(self.numbers)


def test_what_is_left_behind_is_said_where_the_copy_fails() -> None:
    with pytest.raises(TraceError, match="cannot be copied") as raised:
        opgraph.measure(Drawing(), torch.ones(1, 2), device="cpu")
    assert any("took items from an iterator" in note for note in raised.value.__notes__)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.other(torch.relu(self.one(x)))


PRODUCTS = ("linear", "addmm", "mm")


class Complex(nn.Module):
    """One weight of complex numbers, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.spectrum = (
            nn.Linear(32, 32),
            nn.Parameter(torch.randn(17, dtype=torch.cfloat)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(self.linear(x)) * self.spectrum)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (nn.Sequential(*(Residual() for _ in range(3))), {}),
        (nn.Sequential(*(Residual() for _ in range(3))), {"checkpointing": True}),
        (nn.Sequential(*(Residual() for _ in range(3))), {"micro_batches": 3}),
        (Complex(), {"optimizer": "adamw"}),
    ],
)
def test_what_is_measured_is_the_step_that_was_traced(
    model: nn.Module, options: dict[str, Any]
) -> None:
    found = opgraph.measure(
        model, torch.randn(8, 32), device="cpu", mode="train", steps=2, **options
    )
    graph, measured = found.graph, found.named_measurement().by_node
    assert ("recompute" in {n.phase for n in graph.nodes}) == ("checkpointing" in options)
    asked = (n for n in graph.nodes if n.kernels and (n.phase == "optimizer" or n.op in PRODUCTS))
    assert [(n.op, n.phase) for n in asked if n.id not in measured] == []


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_each_operator_is_on_its_node_and_the_model_as_it_was(mode: str) -> None:
    model = Net().train()
    state, numbers = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = opgraph.measure(model, IMAGE, device="cpu", steps=3, mode=mode)
    run, graph = found.record, found.graph
    assert len(run.repeats) == 3
    assert len(run.profiled) >= 1
    assert found.attributed > 0.97
    named = {"conv2d", "batch_norm", "linear", "convolution_backward", "threshold_backward"}
    tops = [run.events[s.event] for s in run.timeline if run.events[s.event].nodes]
    pairs = {
        (canonical(e.name.removeprefix("aten::")), graph.node(i).op) for e in tops for i in e.nodes
    }
    assert {(ran, node) for ran, node in pairs if ran in named or node in named} <= {
        *((name, name) for name in named), ("native_batch_norm_backward", "native_batch_norm_backward"),
        ("addmm", "linear"),
    }  # fmt: skip
    convolutions = [n.id for n in graph.nodes if n.op == "conv2d"]
    assert all(found.named_measurement().by_node[i] > 0 for i in convolutions)
    # Operators and the Python before each are the step, but where these took longer under the profiler.
    assert sum(e.seconds for e in run.events) == pytest.approx(max(run.seconds, run.work), rel=1e-6)
    on_nodes = sum(found.named_measurement().by_node.values())
    assert on_nodes <= sum(e.seconds for e in run.events) * (1 + 1e-12)  # in another order
    assert model.training
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_the_memory_of_a_step_is_the_traced_one_node_by_node() -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    for _ in range(2):  # torch counts on from one measurement to the next
        found = opgraph.measure(model, torch.randn(64, 256), device="cpu", steps=2, mode="train")
        memory, run = found.named_measurement().allocated, found.record
        assert memory is not None
        assert memory.measured == run.peak_memory == pytest.approx(memory.traced, rel=0.001)
        assert memory.before == 0
        graph = found.named_measurement().costed.graph
        there = sum(s.bytes for s in graph.storages if graph.was_there(s))
        places = dict(curve(graph, run))
        assert places[memory.node] == max(places.values()) == memory.measured + there
        assert sum(row.difference for row in memory.alive) == memory.measured - memory.traced
        assert sum(h.bytes for h in run.held if h.nodes) > 0.99 * memory.measured
        held = {
            row.path: row.measured for row in memory.alive if row.measured == row.traced > 10**5
        }
        assert {"optimizer" in path or "backward" in path for path in held} == {True}


class Shy(nn.Linear):
    """Fails where a profiler looks on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.autograd._profiler_enabled():
            raise RuntimeError("not while somebody looks")
        return super().forward(x)


def test_a_step_that_fails_under_the_profiler_leaves_none_on() -> None:
    with pytest.raises(TraceError, match="somebody looks"):
        opgraph.measure(Shy(4, 4), torch.ones(2, 4), steps=2)
    assert not torch.autograd._profiler_enabled()
    with torch.profiler.profile() as profiler, torch.overrides.BaseTorchFunctionMode():
        gc.collect()
        torch.ones(2) + 1
    assert len(profiler.events()) > 1


def test_a_profiler_of_ones_own_stays_on() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with torch.profiler.profile() as profiler:
        with pytest.raises(TraceError, match="one at a time"):
            opgraph.measure(model, x, steps=2)
        with opgraph.recording(model) as run, torch.no_grad():
            for _ in range(3):
                model(x)
        with pytest.raises(TraceError, match="was recorded"):
            _ = run.profile
        model(x)
    (linear,) = (e for e in profiler.key_averages() if e.key == "aten::linear")
    assert linear.count >= 4


def test_how_torch_compiles_is_as_a_loop_says_behind_its_steps() -> None:
    """A block of the loop's own begins within one step that is marked, and ends within another."""
    from torch._dynamo import eval_frame

    model, x = nn.Linear(4, 1), torch.ones(2, 4)
    optimizer = torch.optim.SGD(model.parameters())
    with opgraph.recording(model) as run:
        for number in range(8):
            model(x).sum().backward()
            optimizer.step()
            if number % 2:
                with torch.no_grad(), torch.compiler.set_stance("eager_on_recompile"):
                    model.eval()
                    model(x)
                    model.train()
    assert eval_frame._stance.stance == "default"
    with torch.profiler.profile() as profiler:
        with pytest.raises(TraceError, match="one that is on would end"):
            _ = run.measured
        model(x)
    assert "aten::linear" in {event.key for event in profiler.key_averages()}
    with _Counts() as counts:
        _ = run.measured
    assert counts.number < 100


class _Counts(TorchDispatchMode):
    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))


def test_a_model_that_cannot_be_followed_is_left_as_it_was() -> None:
    class Refuses(nn.Linear):
        def register_forward_hook(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no hooks here")

    enter, model = torch.profiler.record_function.__enter__, Refuses(4, 4)
    named: Any = "resnet18"
    for each in (model, torch.jit.script(nn.Linear(4, 4)), named):
        with pytest.raises(InputError), opgraph.recording(each):
            pass
    assert torch.profiler.record_function.__enter__ is enter
    assert not model._forward_pre_hooks


@contextmanager
def _metered(model: nn.Module) -> Iterator[None]:
    meter = Meter()
    meter.attach([model])
    yield
    meter.detach()


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("wait", [0, 3])
def test_a_profiler_that_starts_by_a_schedule_has_its_steps(outside: bool, wait: int) -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    when = torch.profiler.schedule(wait=wait, warmup=2, active=2, repeat=1)
    with ExitStack() as stack:
        run = None if outside else stack.enter_context(opgraph.recording(model))
        profiler = stack.enter_context(torch.profiler.profile(schedule=when))
        run = run or stack.enter_context(opgraph.recording(model))
        for _ in range(12):
            model(x).sum().backward()
            optimizer.step()
            profiler.step()
    (linear,) = (e for e in profiler.key_averages() if e.key == "aten::linear")
    assert linear.count == 2
    assert not [e for e in profiler.key_averages() if e.key.startswith("opgraph:")]
    assert run.measured.record.profiled


def test_a_copy_of_a_model_that_is_recorded_is_not_followed() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with torch.no_grad(), opgraph.recording(model) as run:
        for _ in range(4):
            model(x)
        average = copy.deepcopy(model)
        for _ in range(20):
            average(x)
    assert run._follower._calls == 4
    average(x)
    assert run._follower._calls == 4


@pytest.mark.parametrize("follow", [opgraph.recording, _metered])
def test_a_model_that_is_followed_is_saved_as_it_is(follow: Any, tmp_path: Path) -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with follow(model):
        for at in range(3):
            model(x).sum().backward()
            torch.save(model, tmp_path / f"{at}.pt")
        best = copy.deepcopy(model)
    torch.save(best, tmp_path / "best.pt")
    for file in tmp_path.iterdir():
        assert b"opgraph" not in file.read_bytes()
        assert torch.equal(torch.load(file, weights_only=False)(x), model(x))


RUNS: dict[str, Callable[..., Any]] = {
    "profile": opgraph.profile,
    "training": partial(opgraph.profile, mode="train"),
    "check": opgraph.check,
    "measure": partial(opgraph.measure, device="cpu", steps=1, mode="train", optimizer="adamw"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", RUNS)
def test_what_opgraph_runs_within_a_loop_that_is_recorded_is_no_part_of_it(
    kind: str, whole: bool
) -> None:
    run, x, target = RUNS[kind], torch.ones(2, 4), attrgetter("target")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = run(model, x)
    on = _get_current_function_mode_stack(), _get_current_dispatch_mode_stack()
    with opgraph.recording(model if whole else model[0]) as recorded:
        for at in range(7):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            if at in (0, 1, 4):  # not measured anyhow, under the profiler, plain
                found = run(model, x)
                if isinstance(found, opgraph.Profile):
                    assert found.model.notes == plain.model.notes
                    assert [*map(target, found.graph.nodes)] == [*map(target, plain.graph.nodes)]
    assert (_get_current_function_mode_stack(), _get_current_dispatch_mode_stack()) == on
    assert not torch.autograd._profiler_enabled()
    assert recorded._follower._calls == 7
    assert recorded.measured.profile.convention["optimizer"] == "sgd"
    assert len(recorded.measured.record.repeats + recorded.measured.record.profiled) == 4
    assert not model[0]._forward_hooks


def test_a_mode_that_is_on_around_a_profile_within_a_step_stays_on() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with opgraph.recording(model):
        for _ in range(4):
            model(x).sum().backward()
            with torch.device("cpu"):
                opgraph.profile(model, x)
                assert [type(m) for m in _get_current_function_mode_stack()] == [DeviceContext]
    assert _get_current_function_mode_stack() == []


def test_where_each_step_has_a_profile_in_it_there_is_nothing_to_say() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with opgraph.recording(model) as run:
        for _ in range(4):
            model(x).sum().backward()
            opgraph.profile(model, x)
    with pytest.raises(TraceError, match="no step without a profile in it was recorded"):
        _ = run.measured


def test_a_loop_within_a_run_of_opgraphs_is_recorded() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    around, within = opgraph.recording(model), opgraph.recording(model)
    with torch.no_grad(), around as one, opgraph.ranks(2), within as other:
        for _ in range(4):
            model(x)
    assert [run._follower._calls for run in (one, other)] == [4, 4]


def test_what_opgraph_runs_is_not_counted_where_utilization_is() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    meter = Meter()
    meter.attach([model])
    model(x).sum().backward()
    for mode in ("infer", "train"):
        opgraph.profile(model, torch.ones(3, 4), mode=mode)
    assert meter._samples == 2
    assert len(meter._known) == 1
    meter.detach()


def test_a_loop_of_ones_own_is_recorded() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with opgraph.recording(model) as run:
        for _ in range(6):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(IMAGE), torch.tensor([0, 1, 2, 3])).backward()
            optimizer.step()
    found = run.measured
    phases = {found.graph.node(i).phase for e in found.record.events for i in e.nodes}
    assert phases == {"forward", "backward", "optimizer"}
    assert found.profile.convention["optimizer"] == "sgd"
    assert found.attributed > 0.85
    assert len(found.record.repeats) + len(found.record.profiled) == 5  # the first warms up
    model.eval()
    with opgraph.recording(model) as run, torch.no_grad():
        model(IMAGE)
    assert run.measured.record.source == "recording"
    assert run.measured.attributed > 0.95
    assert not model._forward_hooks
    with opgraph.recording(model) as run:
        pass
    with pytest.raises(TraceError, match="no call of the model was recorded"):
        _ = run.measured


def test_a_loop_of_training_whose_calls_all_raise_says_why() -> None:
    model = nn.Linear(4, 4)
    with opgraph.recording(model) as run:
        for _ in range(3):
            with contextlib.suppress(RuntimeError):
                model(torch.ones(2, 5))
    with pytest.raises(TraceError, match="each call of the model raised: RuntimeError"):
        _ = run.measured


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_call_that_raises_is_no_step_of_a_loop_that_goes_on(training: bool, first: bool) -> None:
    model, good, bad = nn.Linear(4, 4), torch.ones(2, 4), torch.ones(2, 5)
    with torch.set_grad_enabled(training), opgraph.recording(model) as run:
        for x in ((bad,) if first else ()) + (good, good, bad, good, bad, good, good):
            try:
                raise KeyError("the loop may be within a handler itself")
            except KeyError:
                with contextlib.suppress(RuntimeError):
                    loss = model(x).sum()
                    if training:
                        loss.backward()
    found = run.measured.record
    assert len(found.repeats) + len(found.profiled) == 4  # of five good calls the first warms up


def test_a_loop_whose_calls_all_raise_says_why() -> None:
    model = nn.Linear(4, 4)
    with torch.no_grad(), opgraph.recording(model) as run, contextlib.suppress(RuntimeError):
        model(torch.ones(2, 5))
    with pytest.raises(TraceError, match="Linear takes 4 features, got 2x5"):
        _ = run.measured


class Keeping(nn.Module):
    """Has the result of its last call, a view of it, and a table of both."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x)
        self.of_last = {"row": self.last[0], "all": self.last}
        return self.last.relu()


def _pruned() -> nn.Module:
    return prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.5)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("make", [Keeping, _pruned])
def test_a_model_that_keeps_a_result_is_measured(make: Callable[[], nn.Module], mode: str) -> None:
    model, x = make(), torch.ones(2, 4)
    model(x)
    kept = {name: value for part in model.modules() for name, value in vars(part).items()}
    results = [value for value in kept.values() if isinstance(value, Tensor)]
    found = opgraph.measure(model, x, steps=2, mode=mode)
    assert found.record.repeats
    assert results
    assert all(r.grad_fn is not None for r in results)
    assert all(vars(model)[n] is v for n, v in kept.items() if isinstance(v, Tensor))
    (results[0].sum() * 1).backward()  # its history is there


def test_each_result_that_a_model_keeps_is_copied_for_itself() -> None:
    model = Keeping()
    model.kept = [model.layer(torch.ones(n, 4)) for n in range(1, 30)]
    model.kept[0].source = model.kept[1]
    made = deep_copy(model)
    assert all(map(torch.equal, made.kept, model.kept))
    assert len(set(map(id, made.kept))) == 29
    assert made.kept[0].source is made.kept[1]
    assert not any(result.requires_grad for result in made.kept)


def test_a_copy_of_what_a_model_keeps_is_in_one_storage() -> None:
    model = Keeping()
    model(torch.ones(2, 4))
    made = deep_copy(model)
    assert made.last is made.of_last["all"]
    assert made.of_last["row"].data_ptr() == made.last.data_ptr() != model.last.data_ptr()
    assert torch.equal(made.last, model.last)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_lazy_layers_are_measured_and_stay_lazy(mode: str) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    found = opgraph.measure(model, torch.ones(2, 3), steps=2, mode=mode)
    assert found.record.repeats
    assert all(nn.parameter.is_lazy(p) for p in model.parameters())


class Later(nn.Linear):
    """Writes to what is not its own from its third call on."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 2:
            TOTAL.add_(1)
        return super().forward(x)


TOTAL = torch.zeros(2)


def test_it_is_said_why_a_tensor_stays_that_only_later_steps_write_to() -> None:
    notes = opgraph.measure(
        Later(4, 4), torch.ones(2, 4), device="cpu", steps=2
    ).profile.model.notes
    assert notes == (
        "a tensor was written to by a step that is not listened to, and not by the first, which is: "
        "that cannot be taken back",
    )


def test_a_step_of_training_of_a_scripted_module_is_measured() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 2))
    model[0].bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    found = opgraph.measure(model, torch.ones(3, 4), mode="train", device="cpu", steps=1)
    assert found.totals.flops == opgraph.profile(model, torch.ones(3, 4), mode="train").totals.flops
    assert [w.requires_grad for w in model.parameters()] == [True, False, True, True]
    assert all(torch.equal(before[name], w) for name, w in model.state_dict().items())


def test_a_loop_whose_model_cannot_be_traced_goes_on() -> None:
    model, x = nn.Linear(4, 2), torch.ones(3, 4)

    def call(row: Tensor) -> Tensor:
        found: Tensor = model(row)
        return found

    with opgraph.recording(model) as run:
        found = [torch.func.vmap(call)(x) for _ in range(3)]
    assert torch.equal(found[2], model(x))
    with pytest.raises(InputError, match=r"torch\.func"):
        _ = run.measured


class Alone(nn.Linear):
    """Runs where nothing looks on alone."""

    def forward(self, x: Tensor) -> Tensor:
        found = super().forward(x)
        if torch.utils._python_dispatch._len_torch_dispatch_stack():
            raise ValueError("somebody looks on")
        return found


def test_what_failed_as_it_was_traced_is_no_figure() -> None:
    model, x = Alone(4, 2), torch.ones(3, 4)
    meter = Meter()
    meter.attach([model])
    with opgraph.recording(model) as run:
        for _ in range(3):
            model(x).sum().backward()
    meter.detach()
    assert "flops_per_second" not in meter.take()
    assert "somebody looks on" in meter.note
    with pytest.raises(TraceError, match="somebody looks on"):
        _ = run.measured


def test_it_is_said_where_plain_steps_run_otherwise() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    inner = nn.Sequential(nn.Linear(4, 4))
    inner[0].compile(backend="eager")
    for model, x, said in (
        (encoder, torch.ones(1, 3, 8), "one kernel each"),
        (inner.eval(), torch.ones(2, 4), "what is compiled"),
        (nn.Linear(4, 4), torch.ones(2, 4), ""),
    ):
        with torch.no_grad(), opgraph.recording(model) as run:
            for _ in range(3):
                model(x)
        notes = [n for n in run.measured.record.notes if "plain steps" in n]
        assert len(notes) == bool(said), notes
        assert said in "".join(notes)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_step_of_training_is_measured_where_gradients_are_off(off: Any) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), torch.ones(2, 4)
    with off():
        found = opgraph.measure(model, x, mode="train", device="cpu", steps=1)
        assert torch.is_inference_mode_enabled() == (off is torch.inference_mode)
        assert not torch.is_grad_enabled()
    assert found.seconds > 0
    assert all(w.grad is None for w in model.parameters())


def test_what_does_not_fit_is_refused_with_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(1000, 1000)
    with pytest.raises(InputError, match=r"needs 3.83 MiB, and 1 MiB are allowed"):
        opgraph.measure(model, torch.randn(1, 1000), device="cpu", memory_limit=1 / 1024)
    with pytest.raises(InputError, match="there is no device 'nowhere'"):
        opgraph.measure(model, torch.randn(1, 1000), device="nowhere")
    with pytest.raises(InputError, match="fx captures"):
        opgraph.measure(model, torch.randn(1, 1000), tracer="fx")
    assert main(["measure", "tests/data/resnet18.json"]) == 2
    assert "a saved profile has no weights to run" in capsys.readouterr().err


def test_what_the_profiler_adds_is_taken_out() -> None:
    def run(*seconds: float) -> RunRecord:
        names = ("aten::mm", "aten::t", "python")
        kinds = ("operator", "operator", "python")
        return RunRecord(
            "cpu",
            events=tuple(
                RunEvent(name, each, (1,), kind, "mark", count=2)  # type: ignore[arg-type]
                for name, each, kind in zip(names, seconds, kinds, strict=True)
            ),
        )

    runs = [run(0.5, 0.001, 0.3), run(0.7, 0.001, 0.3), run(0.6, 0.001, 0.5)]
    found = together(runs, [0.79, 0.8, 0.81], [0.9, 0.95, 1.0], cost=0.001)
    product, view, python = found.events
    assert product.seconds == pytest.approx(0.6 - 0.002)
    assert view.seconds == 0.0  # never less than nothing
    assert python.seconds == pytest.approx(0.8 - product.seconds)  # what is left of a plain step
    assert found.seconds == 0.8
    assert found.overhead == pytest.approx(0.15)


def test_a_library_comments_on_no_step(capfd: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    logger = transformers.utils.logging.get_logger("transformers.modeling_utils")
    type(logger).warning_once.cache_clear()  # it comments once in a process
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 16, "n_positions": 8}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    model.loss_type = None  # as that of a model which is named has it
    opgraph.measure(model, torch.ones(1, 4, dtype=torch.int64), device="cpu", steps=1, mode="train")
    assert "loss_type" not in "".join(capfd.readouterr())
    assert not logger.disabled


@pytest.mark.parametrize("name", ["resnet18", "fcn_resnet50", "google/vit-base-patch16-224"])
def test_labels_are_where_the_model_is(name: str) -> None:
    """On a device that has no values, which holds operands of another to be as wrong as a GPU does."""
    options = Options(mode="train")
    built, example = prepared(name, None, None, options)
    step = step_of(built, example, options, torch.device("meta"))
    assert step.ready(None)().is_meta


def test_a_copy_that_does_not_run_as_the_model_does_is_an_error_of_ones_own() -> None:
    class Slotted(nn.Module):
        __slots__ = ("times",)  # which a copy of a module lacks

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.times = nn.Linear(8, 8), 3

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.times

    with pytest.raises(opgraph.TraceError, match="the copy of it that is to be measured failed"):
        opgraph.measure(Slotted(), torch.randn(2, 8), device="cpu", steps=2)


class Once(nn.Module):
    """Runs once alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.left = nn.Linear(4, 4), [1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.left.pop()
        return self.layer(x)


def test_a_later_step_that_fails_says_so() -> None:
    with pytest.raises(opgraph.TraceError, match="to be measured failed: IndexError"):
        opgraph.measure(Once(), torch.ones(1, 4), device="cpu")


@pytest.mark.slow
def test_a_loop_of_training_in_another_thread_is_refused() -> None:
    """Torch's profiler and its modes are of one thread, and the step that runs would end in another."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)), torch.randn(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loop() -> None:
        for _ in range(4):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    with opgraph.recording(model) as run:
        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
    with pytest.raises(TraceError, match="in another thread"):
        _ = run.measured


def _followed(follow: Any, step: Callable[[nn.Module, Tensor], list[Tensor]]) -> Any:
    """What followed a loop of training, of which a step gives its loss and other results: these are as
    where nothing follows it."""

    def loop(around: Any) -> tuple[list[list[Tensor]], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        x, found = torch.ones(3, 4), []
        with around(model) as run:
            for _ in range(12):
                optimizer.zero_grad()
                results = step(model, x)
                results[0].backward()
                optimizer.step()
                found.append([each.detach().clone() for each in results])
        return found, run

    found, run = loop(follow)
    for results, plain in zip(found, loop(nullcontext)[0], strict=True):
        assert all(map(torch.equal, results, plain))
    return run


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("follow", [opgraph.recording, _metered])
@pytest.mark.parametrize(
    "traced",
    [torch.jit.trace, lambda model, x: torch.export.export(model, (x,)).module()],
    ids=["jit", "export"],
)
def test_a_model_that_is_followed_may_be_traced_within_its_loop(follow: Any, traced: Any) -> None:
    def step(model: nn.Module, x: Tensor) -> list[Tensor]:
        loss = model(x).square().sum()
        model.eval()
        other = traced(model, x)(x)
        model.train()
        model(x).sum().backward()  # a step within which nothing is traced
        return [loss, other]

    run = _followed(follow, step)
    if run is not None:
        assert run.measured.record.source == "recording"


@pytest.mark.parametrize("follow", [opgraph.recording, _metered])
def test_a_checkpoint_around_the_whole_model_is_followed(follow: Any) -> None:
    run = _followed(follow, lambda m, x: [checkpoint(m, x, use_reentrant=False).square().sum()])
    if run is not None:
        assert any("computes the model again" in note for note in run.measured.record.notes)


class Takes(nn.Module):
    """Takes what it needs out of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        labels = batch.pop("labels")
        return nn.functional.cross_entropy(self.layer(batch["x"]), labels)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_forward_that_takes_things_out_of_what_it_is_given(mode: str) -> None:
    batch = {"x": torch.ones(8, 4), "labels": torch.zeros(8, dtype=torch.long)}
    loss = {"loss": lambda found: found} if mode == "train" else {}
    measured = opgraph.measure(Takes(), batch, mode=mode, device="cpu", steps=2, **loss)
    assert measured.record.steps
    assert list(batch) == ["x", "labels"]


def test_a_model_whose_hook_changes_what_it_is_given_is_recorded_with_that() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3)), torch.ones(2, 8, 8, 3)
    model.register_forward_pre_hook(lambda _, args: (args[0].permute(0, 3, 1, 2),))
    with torch.no_grad(), opgraph.recording(model) as run:
        for _ in range(4):
            model(x)
    recorded, profiled = run.profile, opgraph.profile(model, x)
    assert [n.target for n in recorded.graph.nodes] == [n.target for n in profiled.graph.nodes]


@torch.compile(backend="eager")
def fused(a: Tensor, b: Tensor) -> Tensor:
    return torch.sin(a + b) * a


class Fusing(nn.Module):
    """Calls a function of its module's that is compiled as it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return fused(self.one(x), self.other(x))


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_is_compiled_as_a_model_is_measured_works_afterwards(mode: str) -> None:
    """Code that Dynamo has compiled goes by globals, which stay as long as it does."""
    model, x = Fusing(), torch.ones(2, 8)
    for _ in range(2):
        opgraph.measure(model, x, device="cpu", steps=2, mode=mode)
        model(x).sum().backward()
        with torch.no_grad():
            model(x)


BY_CLOSURES = """
import gc, torch, opgraph
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    return loss
with opgraph.recording(model) as run:
    for _ in range(6):
        optimizer.step(closure)
assert str(run.measured)
gc.collect()
"""


@pytest.mark.slow
def test_an_optimizer_that_calls_the_model_within_its_step_is_recorded() -> None:
    """Its step outlives a step under the profiler, and would be written to memory that is free. Several
    times: what is damaged is not always met."""
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", BY_CLOSURES], check=False, capture_output=True)
        assert run.returncode == 0, run.stderr
