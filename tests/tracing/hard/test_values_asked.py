"""Forwards that ask fake tensors for what they have not got: for values, and catch the error themselves;
for what only a run on real tensors can do."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.flop_counter import FlopCounterMode

import opgraph

ERRORS = (Exception,)
"""What a model catches that does not care."""
Forward = Callable[["Layers", Tensor], object]


class Layers(nn.Module):
    """Two linear layers, and a forward of one's own."""

    def __init__(self, run: Forward) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.run = run

    def forward(self, x: Tensor) -> object:
        return self.run(self, x)


def answered(ask: Callable[[Tensor], int], otherwise: int = 1) -> Forward:
    """The second layer runs as often as `ask` says of what the first one gives; that it cannot be asked is
    caught."""

    def run(m: Layers, x: Tensor) -> Tensor:
        x = m.first(x)
        try:
            times = ask(x)
        except ERRORS:
            times = otherwise
        for _ in range(times):
            x = m.second(x)
        return x

    return run


tries = answered(lambda x: int(x.argmax()) * 0 + 2, otherwise=7)


def suppresses(m: Layers, x: Tensor) -> Tensor:
    x, times = m.first(x), 1
    with contextlib.suppress(*ERRORS):
        times = 3 if x.sum().item() < float("inf") else 2
    for _ in range(times):
        x = m.second(x)
    return x


def asks_the_input(m: Layers, x: Tensor) -> Tensor:
    try:
        times = 2 + bool(x.sum() > 0)
    except ERRORS:
        times = 1
    for _ in range(times):
        x = m.second(x)
    return x


def number_at(address: int) -> float:
    return ctypes.c_float.from_address(address).value


CAUGHT = {
    "tries": tries,
    "suppresses": suppresses,
    "asks_the_input": asks_the_input,
    "asks_numpy": answered(lambda x: np.asarray(x.detach()).size),
    "reads_a_scripted_value": answered(lambda x: 3 if scripted(x) else 2),
    "reads_a_storage": answered(
        lambda x: 2 + bool(x.untyped_storage().tolist()) + (x.storage()[0] > -1e9)
    ),
    "pickles": answered(lambda x: 2 + bool(pickle.dumps(copy.copy(x)))),
    "reads_by_address": answered(lambda x: 2 + (number_at(x.data_ptr()) < float("inf"))),
}


def reads_what_it_wrote(m: Layers, x: Tensor) -> Tensor:
    x, table = m.first(x), torch.zeros(3)
    table[1] = x.abs().sum() + 1
    table += 0
    for _ in table.nonzero():
        x = m.second(x)
    return x


def reads_it_elsewhere(m: Layers, x: Tensor) -> Tensor:
    x, table = m.first(x), torch.zeros(3)
    table[1] = x.abs().sum() + 1
    return m.second(x) if max(table.tolist()) > 0 and table.numpy().any() else x


@torch.jit.script
def scripted(x: Tensor) -> bool:
    return bool((x.abs() < 1e9).all().item())


def flops_for_real(model: nn.Module, x: Tensor) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(x)
    return counter.get_total_flops()


@pytest.mark.live
@pytest.mark.parametrize("run", CAUGHT.values(), ids=CAUGHT)
def test_an_error_for_want_of_values_that_the_model_catches_leads_to_values(run: Forward) -> None:
    model, x = Layers(run).eval(), torch.ones(2, 4)
    profile = opgraph.profile(model, x)
    first, last = profile.tracing.attempts[0], profile.tracing.attempts[-1]
    assert first.tensors == "fake"
    assert first.error is not None
    assert first.error.startswith(("the model caught ", "forward has a tensor pickled"))
    assert last.tensors == ("fake weights" if run is asks_the_input else "real")
    assert last.error is None
    assert profile.totals.flops == flops_for_real(model, x)
    assert not profile.model.notes


@pytest.mark.live
def test_where_no_real_run_is_made_a_remark_says_what_the_model_caught() -> None:
    profile = opgraph.profile(Layers(tries).eval(), torch.ones(2, 4), tracer="eager")
    assert profile.tracing.attempts[-1].tensors == "fake"
    (note,) = profile.model.notes
    assert note.startswith("went on without a value, perhaps not as with real data: ")
    assert "DataDependentOutputException" in note


@pytest.mark.live
def test_an_error_that_real_tensors_raise_too_says_nothing_of_values() -> None:
    def careful(m: Layers, x: Tensor) -> Tensor:
        try:
            return x @ torch.ones(7)
        except RuntimeError:
            return m.first(x)

    profile = opgraph.profile(Layers(careful), torch.ones(2, 4))
    assert [a.tensors for a in profile.tracing.attempts] == ["fake"]
    assert not profile.model.notes


def saves(m: Layers, x: Tensor) -> Tensor:
    torch.save(m.first(x), io.BytesIO())
    return m.second(x)


def jvp(m: Layers, x: Tensor) -> object:
    return torch.func.jvp(m.first, (x,), (x,))


def hessian(m: Layers, x: Tensor) -> object:
    return torch.func.hessian(lambda a: m.first(a).square().sum())(x)


@pytest.mark.live
@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (saves, 2 * 2 * 2 * 4 * 4),
        (jvp, 3 * 2 * 2 * 4 * 4),  # the product, and that of the tangent by torch in two
        (hessian, None),
    ],
)
def test_what_fails_on_fake_tensors_is_tried_on_real_ones(run: Forward, flops: int | None) -> None:
    profile = opgraph.profile(Layers(run).eval(), torch.ones(2, 4))
    fake, *_, last = profile.tracing.attempts
    assert fake.tensors == "fake"
    assert fake.error is not None
    assert (last.tensors, last.error) == ("real", None)
    assert profile.graph.failed is None
    if flops is not None:
        assert profile.totals.flops == flops


@pytest.mark.live
def test_a_size_that_does_not_fit_is_not_tried_again() -> None:
    with pytest.raises(opgraph.TraceError) as raised:
        opgraph.profile(nn.Linear(4, 4), torch.ones(2, 5))
    assert [a.tensors for a in raised.value.profile.tracing.attempts] == ["fake"]


@pytest.mark.live
def test_weights_that_do_not_fit_are_not_made_for_a_value() -> None:
    """Hundreds of GiB of weights: the graph of the fake run stays, with the reason beside it."""
    with torch.device("meta"):
        model = Layers(hessian)
        model.second = nn.Linear(400_000, 400_000)
    x = torch.ones(2, 4)
    model.run = lambda m, x: (int_or_none(m.first(x)), m.first(x))[1]
    profile = opgraph.profile(model.eval(), x)
    assert profile.tracing.attempts[-1].tensors == "fake weights"
    assert profile.totals.flops == 2 * 2 * 2 * 4 * 4
    (note,) = profile.model.notes
    assert "; on real tensors: weights of 596.05 GiB are more than the " in note


def int_or_none(x: Tensor) -> int | None:
    with contextlib.suppress(*ERRORS):
        return int(x.sum())
    return None


@pytest.mark.live
@pytest.mark.parametrize("frozen", [True, False])
def test_whether_a_weight_is_trained_is_answered(frozen: bool) -> None:
    def asks(m: Layers, x: Tensor) -> Tensor:
        x = m.first(x)
        return m.second(x) if any(p.requires_grad for p in m.parameters()) else x

    model = Layers(asks).eval().requires_grad_(not frozen)
    assert opgraph.profile(model, torch.ones(2, 4)).totals.flops == (2 - frozen) * 2 * 2 * 4 * 4


@pytest.mark.live
def test_a_backward_within_forward_reaches_the_weights() -> None:
    def steps(m: Layers, x: Tensor) -> Tensor:
        with torch.enable_grad():
            m.second(m.first(x)).sum().backward()
        return m.second(x)

    profile = opgraph.profile(Layers(steps).eval(), torch.ones(2, 4))
    # Three forwards; the gradients of both weights, and of what is between the layers.
    assert profile.totals.flops == 6 * 2 * 2 * 4 * 4


# What can be seen of a fake tensor without asking for a value.


class Scale(nn.Parameter):
    """A weight with a class of its own."""


def by_type(m: Layers, x: Tensor) -> Tensor:
    x = {Tensor: m.first, nn.Parameter: nn.Identity()}[type(x)](x)
    return m.second(x) if type(m.first.weight) is nn.Parameter else x


def by_class_of_its_own(m: Layers, x: Tensor) -> Tensor:
    found = isinstance(m.scale, Scale) and type(m.scale) is Scale and m.scale.marked
    return m.second(m.first(x)) if found else x


def types_as_ever(m: Layers, x: Tensor) -> Tensor:
    class Meta(type):
        pass

    made = Meta("Made", (), {"a": 1})
    assert isinstance(made, type)
    assert type(made) is Meta
    assert type(type("Two", (), {})) is type(int) is type
    assert issubclass(Meta, type)
    assert {type: 1}[type] == 1
    assert type(None)() is None
    return m.second(m.first(x))


def by_repr(m: Layers, x: Tensor) -> Tensor:
    x = m.first(x)
    return x if "Fake" in repr(x) else m.second(x)


def by_format(m: Layers, x: Tensor) -> Tensor:
    x = m.first(x)
    return x if "Fake" in f"it is {x}" else m.second(x)


def by_attribute(m: Layers, x: Tensor) -> Tensor:
    x = m.first(x)
    return x if hasattr(x, "fake_mode") else m.second(x)


def by_class_of_torch(m: Layers, x: Tensor) -> Tensor:
    x = m.first(x)
    return x if isinstance(x, FakeTensor) else m.second(x)


@pytest.mark.live
@pytest.mark.parametrize(
    ("run", "tensors"),
    [
        (by_type, "fake"),
        (by_class_of_its_own, "fake"),
        (types_as_ever, "fake"),
        (by_repr, "real"),
        (by_format, "real"),
        (by_attribute, "real"),
        (by_class_of_torch, "real"),
    ],
)
def test_a_branch_on_what_a_tensor_is_goes_the_way_it_does_for_real(
    run: Forward, tensors: str
) -> None:
    model, x = Layers(run).eval(), torch.ones(2, 4)
    model.scale = Scale(torch.ones(3))
    model.scale.marked = True
    profile = opgraph.profile(model, x)
    assert profile.tracing.tensors == tensors
    assert profile.totals.flops == flops_for_real(model, x) == 2 * 2 * 2 * 4 * 4
    assert not profile.model.notes
    assert "type" not in globals()


def looked_up(table: Tensor, places: Tensor, how: str) -> object:
    return {
        "embedding": lambda: F.embedding(places, table),
        "bag": lambda: F.embedding_bag(places[None], table),
        "index": lambda: table[:, places],
        "index_select": lambda: table.index_select(0, places),
        "gather": lambda: table.gather(1, places[:, None]),
    }[how]()


@pytest.mark.live
@pytest.mark.parametrize("how", ["embedding", "bag", "index", "index_select", "gather"])
def test_a_place_that_is_not_there_fails_as_it_does_for_real(how: str) -> None:
    model = Layers(lambda m, x: looked_up(m.first.weight, x, how))
    for _ in range(2):  # known or not
        assert opgraph.profile(model, torch.tensor([0, 3])).graph.failed is None
        with pytest.raises(opgraph.TraceError, match=r"out of (bounds|range)|valid range"):
            opgraph.profile(model, torch.tensor([0, 4]))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.tensor([0, 4]))


def test_an_error_that_is_caught_before_what_is_recorded_counts() -> None:
    """What a warm-up keeps of a branch that fake tensors took decides what is recorded."""

    def keeps(m: Layers, x: Tensor) -> Tensor:
        if not hasattr(m, "times"):
            try:
                m.times = int(m.first(x).abs().sum() > -1) + 1
            except ERRORS:
                m.times = 7
        for _ in range(m.times):
            x = m.second(x)
        return x

    x = torch.randn(3, 4)
    profile = opgraph.profile(Layers(keeps), x, warm_up=True)
    assert profile.totals.flops == 2 * (2 * 3 * 4 * 4)
    asked = opgraph.profile(Layers(keeps), x, warm_up=True, tracer="eager").model.notes
    assert any(note.startswith("went on without a value") for note in asked)


def reads_an_array(share: Callable[[Tensor], Any], *, of_numpy: bool = False) -> Forward:
    """What was handed out as an array before a fake tensor was written to the same memory."""

    def run(m: Layers, x: Tensor) -> Tensor:
        x, zeros = m.first(x), np.zeros(3, np.float32)
        table = torch.from_numpy(zeros) if of_numpy else torch.zeros(3)
        shared = zeros if of_numpy else share(table)
        table[1] = x.abs().sum() + 1
        return m.second(x) if shared.any() else x

    return run


def reads_an_array_from_before(m: Layers, x: Tensor) -> Tensor:
    x = m.first(x)
    torch.from_numpy(ZEROS)[1] = x.abs().sum() + 1
    return m.second(x) if ZEROS.any() else x


ZEROS = np.zeros(3, np.float32)


def reads_a_part_of_an_array(m: Layers, x: Tensor) -> Tensor:
    x, m.kept = m.first(x), [np.zeros(8, np.float32)]
    torch.as_tensor(m.kept[0][5:])[1] = x.abs().sum() + 1
    return m.second(x) if m.kept[0].any() else x


def reads_bytes(m: Layers, x: Tensor) -> Tensor:
    x, kept = m.first(x), bytearray(8)
    torch.frombuffer(kept, dtype=torch.float32)[1] = x.abs().sum() + 1
    return m.second(x) if any(kept) else x


READS = {
    "what_it_wrote": reads_what_it_wrote,
    "it_elsewhere": reads_it_elsewhere,
    "an_array": reads_an_array(Tensor.numpy),
    "an_array_by_numpy": reads_an_array(np.asarray),
    "an_array_by_dlpack": reads_an_array(np.from_dlpack),
    "an_array_of_its_own": reads_an_array(np.asarray, of_numpy=True),
    "an_array_from_before": reads_an_array_from_before,
    "a_part_of_an_array": reads_a_part_of_an_array,
    "bytes": reads_bytes,
}


@pytest.mark.parametrize("reads", READS.values(), ids=READS)
def test_a_real_table_that_fakes_were_written_to_has_no_values(
    reads: Callable[..., Tensor],
) -> None:
    model, x = Layers(reads), torch.randn(2, 4)
    profile = opgraph.profile(model, x)
    assert profile.tracing.tensors == "real"
    assert not ZEROS.any()
    assert profile.totals.flops == flops_for_real(model, x) == 2 * (2 * 2 * 4 * 4)
    ZEROS[:] = 0


@pytest.mark.parametrize("values", [False, True])
def test_tensors_are_exchanged_though_the_run_refers_to_them(values: bool) -> None:
    """torch refuses to where there are weak references, and a model may catch that."""

    def run(m: Layers, x: Tensor) -> Tensor:
        x, one, other = m.first(x), torch.zeros(2, 4), torch.ones(2, 4) + 1
        try:
            torch.utils.swap_tensors(one, other)
        except ERRORS:
            return x
        torch.__future__.set_swap_module_params_on_conversion(True)
        m.second.double()
        y = m.second((x * one).double())
        return y if not values or other.sum() * x.sum().item() == 0 else x

    model, x = Layers(run).eval(), torch.randn(2, 4)
    found = opgraph.profile(model, x)
    assert found.totals.flops == 2 * (2 * 2 * 4 * 4)
    assert (found.tracing.tensors == "real") == values
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def by_scipy(array: Any) -> Any:
    return scipy.fft.fft(array).real.astype(np.float32)


BROUGHT_BACK: dict[str, Callable[[Tensor], Tensor]] = {
    "from_numpy": lambda x: torch.from_numpy(by_scipy(x.numpy())),
    "as_tensor": lambda x: torch.as_tensor(by_scipy(np.asarray(x))),
    "tensor": lambda x: torch.tensor(by_scipy(x)),
    "constructor": lambda x: torch.Tensor(by_scipy(np.from_dlpack(x))),
    "function of NumPy": np.sin,  # a tensor, since it was given one
}
ONLY_ASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "branch": lambda x: x if x.numpy().max() < float("inf") else -x,
    "number": lambda x: x * float(x.numpy().max()),
    "numbers": lambda x: x + torch.tensor([x.numpy().max()] * 4),
    "array from before": lambda x: x + (x.numpy().max() + torch.from_numpy(ZEROS)[0]),
    "array of nothing": lambda x: x + torch.from_numpy(np.arange(4, dtype=np.float32)),
}


@pytest.mark.parametrize("compute", BROUGHT_BACK.values(), ids=BROUGHT_BACK)
def test_a_remark_says_that_values_came_back_from_numpy(
    compute: Callable[[Tensor], Tensor],
) -> None:
    model, x = Layers(lambda m, x: m.second(compute(m.first(x).detach()))), torch.randn(2, 4)
    found = opgraph.profile(model, x)
    assert [r.code for r in found.remarks if r.code != "real-tensors"] == ["numpy"], found.remarks
    assert found.totals.flops == 2 * (2 * 2 * 4 * 4)


@pytest.mark.parametrize("ask", ONLY_ASKED.values(), ids=ONLY_ASKED)
def test_no_remark_where_numpy_is_only_asked(ask: Callable[[Tensor], Tensor]) -> None:
    model, x = Layers(lambda m, x: m.second(ask(m.first(x).detach()))), torch.randn(2, 4)
    assert {r.code for r in opgraph.profile(model, x).remarks} <= {"real-tensors"}


def drops_by_torch(m: Layers, x: Tensor) -> Tensor:
    """As wav2vec2 leaves out layers in training."""
    return x if torch.rand([]) < 0.5 else m.first(x)


def chooses_rows(m: Layers, x: Tensor) -> Tensor:
    return m.first(x[torch.empty(len(x)).bernoulli_(0.5) > 0])


def drops_by_list(m: Layers, x: Tensor) -> Tensor:
    return x if torch.randperm(4).tolist()[0] else m.first(x)


def drops_by_python(m: Layers, x: Tensor) -> Tensor:
    return x if random.random() < 0.5 else m.first(x)


def drops_by_numpy(m: Layers, x: Tensor) -> Tensor:
    return x if np.random.uniform() < 0.5 else m.first(x)


@pytest.mark.parametrize(
    "forward", [drops_by_torch, chooses_rows, drops_by_list, drops_by_python, drops_by_numpy]
)
@pytest.mark.parametrize("asks", [False, True])
def test_figures_that_hang_on_random_numbers_are_said_to(forward, asks):
    def run(m: Layers, x: Tensor) -> Tensor:
        out = forward(m, x)
        return out if not asks or out.sum() > -1e9 else m.second(out)

    drawn = opgraph.profile(Layers(run), torch.randn(8, 4))
    assert (drawn.tracing.tensors == "fake") != asks
    assert [r.code for r in drawn.remarks if "one draw" in r.text] == ["branch"]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_random_numbers_that_only_go_into_results_are_no_remark(mode):
    def run(m: Layers, x: Tensor) -> Tensor:
        noise = F.dropout(m.first(x), 0.5) + torch.randn(4) * (torch.rand(8, 1) < 0.5)
        return m.second(noise[torch.rand(8).argsort()[:4]])

    found = opgraph.profile(Layers(run), torch.randn(8, 4), mode=mode)
    assert not [r for r in found.remarks if "one draw" in r.text]
