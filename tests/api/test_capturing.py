"""What torch captures of a profiled model is at hand in Python, and gone with the model."""

from __future__ import annotations

import copy
import gc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx, nn

import opgraph
from opgraph import InputError, Profile

pytestmark = [pytest.mark.slow, pytest.mark.live]


class Broken(nn.Module):
    """Two fragments, with a print between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x.relu())


def test_captures_compute_what_the_model_computes() -> None:
    model, x = Broken(), torch.randn(3, 4)
    names = {name: id(p) for name, p in model.named_parameters()}
    captured = opgraph.profile(model, x).captured
    assert "captured" in dir(Profile)
    expected = model(x)
    assert torch.allclose(captured.export.module()(x), expected)
    graphs = captured.dynamo
    assert len(graphs) == 2
    assert captured.dynamo is graphs  # captured once
    ops = [n.target for g in graphs for n in g.graph.nodes if n.op == "call_function"]
    assert [getattr(op, "__name__", op) for op in ops].count("linear") == 2
    assert names == {name: id(p) for name, p in model.named_parameters()}
    assert model.training
    assert "forward" not in vars(model)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    traced = opgraph.profile(plain, x).captured.fx
    assert torch.equal(traced(x), plain(x))


def test_without_weights_it_has_none() -> None:
    """A model by name is built again, and its program takes no memory."""
    program = opgraph.profile("resnet18").captured.export
    weights = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"]
    assert all(isinstance(w, torch._subclasses.FakeTensor) for w in weights)


class Counting(nn.Module):
    """It has an array, a buffer, and a tensor of an array's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen = np.zeros(3)
        self.register_buffer("steps", torch.zeros(3))
        self.same = torch.from_numpy(self.seen)


class InPlace(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.linear(x)


class AtAPlace(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[0] = x.shape[0]
        return self.linear(x) + float(self.seen[0])


class ByMemory(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.numpy()[0] += 1
        self.steps[1] = self.steps.data_ptr() % 7
        self.same.add_(1)
        y = self.linear(x)
        torch._dynamo.graph_break()
        y.detach().numpy()[0, 0] = 3
        return y.relu() + 1


def operators(graphs: list[fx.GraphModule]) -> list[list[str]]:
    return [[getattr(n.target, "__name__", n.target) for n in g.graph.nodes] for g in graphs]


def fragments_of(model: nn.Module, x: torch.Tensor) -> list[fx.GraphModule]:
    """What torch itself hands to a compiler as the model runs."""
    found = []

    def keep(gm: fx.GraphModule, _: list[torch.Tensor]) -> object:
        def run(*values: torch.Tensor) -> object:
            found.append(gm)
            return gm.forward(*values)

        return run

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=keep)(x)
    return found


@pytest.mark.parametrize("kind", [InPlace, AtAPlace, ByMemory])
def test_what_writes_to_memory_is_captured_as_by_torch_itself_and_nothing_is_written(
    kind: type[Counting],
) -> None:
    """Dynamo sees nothing of what listens to the forward: no break of a graph is opgraph's."""
    pytest.importorskip("torch", "2.15", reason="Dynamo asks modes for what NumPy computes before")
    model, x = kind().eval(), torch.ones(2, 4)
    linear = model.linear.weight.tolist()
    graphs = opgraph.profile(model, x).captured.dynamo
    assert (model.seen.tolist(), model.same.tolist(), model.steps.tolist()) == ([0.0] * 3,) * 3
    assert model.linear.weight.tolist() == linear
    assert model.same.data_ptr() == model.seen.ctypes.data
    assert operators(graphs) == operators(fragments_of(model, x))


def test_what_is_left_behind_is_warned_of(tmp_path: Path) -> None:
    class Noting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (tmp_path / "note").touch()
            return super().forward(x)

    model = Noting(4, 4)
    captured = opgraph.profile(model, torch.randn(1, 4)).captured
    with pytest.warns(UserWarning, match="note") as caught:
        _ = captured.export
    assert caught[0].filename == __file__


def test_it_is_refused_where_there_is_no_model() -> None:
    profile = opgraph.profile(nn.Linear(4, 4), torch.randn(1, 4))
    gc.collect()
    for one in (profile, Profile.from_dict(profile.to_dict()), copy.deepcopy(profile)):
        with pytest.raises(InputError, match="not at hand"):
            _ = one.captured.export
    model = nn.Linear(4, 4)
    trained = opgraph.profile(model, torch.randn(2, 4), mode="train", loss="sum")
    with pytest.raises(InputError, match="one forward is captured"):
        _ = trained.captured.dynamo
