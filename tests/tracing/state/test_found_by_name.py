"""What a forward finds by a text, or below a class, and no code names: what that changes is as before."""

from __future__ import annotations

import importlib
import pkgutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn

import opgraph
from opgraph.tracing.state.reach import Reach

X = torch.ones(2, 8)
SOURCE = """
import sys

NOTED = []
CALLS = 0


class Base:
    pass


class Counts(Base):
    made = 0

    def __call__(self):
        type(self).made += 1
        NOTED.append("called")


class Sized(Base):
    def __class_getitem__(cls, size):
        NOTED.append(size)
        return cls


def count():
    global CALLS
    CALLS += 1


def __getattr__(name):
    if name != "later":
        raise AttributeError(name)
    NOTED.append(name)
    return len


def by_globals(name):
    globals()[name]()()


def in_itself(name):
    getattr(sys.modules[__name__], name)()()


def below():
    for cls in Base.__subclasses__():
        if cls.__name__ == "Counts":
            cls()()
"""


@pytest.fixture(name="module", params=[False, True], ids=["alone", "within a package"])
def _module(  # under the name that code has, the whole of the runner would be found by it
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    at = tmp_path / "found_here" if request.param else tmp_path
    at.mkdir(exist_ok=True)
    (at / "__init__.py").touch()
    (at / "found_by_name.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    name = "found_here.found_by_name" if request.param else "found_by_name"
    yield importlib.import_module(name)
    for each in (name, "found_here"):
        sys.modules.pop(each, None)


class Config:
    def __init__(self, **given: str) -> None:
        vars(self).update(given)


def _called(made: Any) -> Any:
    return made() if callable(made) else made


def _imported(config: Any) -> Any:
    module = importlib.import_module(config.module, getattr(config, "package", None))
    return _called(getattr(module, config.name)())


def _with_a_colon(config: Any) -> Any:
    return pkgutil.resolve_name(config.path)()


def _in_modules(config: Any) -> Any:
    return _called(getattr(sys.modules[config.module], config.name)())


def uses(what: str, module: Any) -> Callable[[], Any]:
    """How a forward comes to what it calls; what that is stands in an object alone."""
    name = module.__name__
    if what == "imported":
        config = Config(module=name, name="Counts")
        return lambda: _imported(config)
    if what == "a function":
        config = Config(module=name, name="count")
        return lambda: _imported(config)
    if what == "of a package":
        package, _, within = name.rpartition(".")
        config = Config(package=package, module="." * bool(package) + within, name="Counts")
        return lambda: _imported(config)
    if what == "resolved":
        config = Config(path=f"{name}:Counts")
        return lambda: _called(pkgutil.resolve_name(config.path)())
    if what == "in modules":
        config = Config(module=name, name="Counts")
        return lambda: _in_modules(config)
    return {
        "by globals": lambda: module.by_globals("Counts"),
        "in itself": lambda: module.in_itself("Counts"),
        "below": lambda: module.below(),  # noqa: PLW0108  (found as it is called)
        "of a size": lambda: module.Sized[3],
        "not there": lambda: module.later,
    }[what]


@pytest.mark.parametrize("values", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize(
    "what",
    ["imported", "a function", "of a package", "resolved", "in modules", "by globals", "in itself", "below",
     "of a size", "not there"],
)  # fmt: skip
def test_what_no_code_names(what: str, values: bool, module: Any) -> None:
    model = Using(uses(what, module), values)

    def state() -> Any:
        return list(module.NOTED), module.CALLS, module.Counts.made

    before = state()
    opgraph.profile(model, X)
    assert state() == before
    model(X)
    assert state() != before  # it does change something


def test_what_runs_the_tests_is_no_part_of_a_forward(request: pytest.FixtureRequest) -> None:
    """Another thread is told meanwhile which tests are next; that would be set back, and all tests with
    what they keep would be looked at."""
    hook = next(each for each in sys.meta_path if type(each).__module__.startswith("_pytest"))
    assert vars(hook)["config"] is request.config
    found = Reach.of([sys.meta_path, request])
    assert not {id(vars(request.config)), id(vars(request))} & {
        id(table) for table, _ in found._tables
    }


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
def test_a_signal_that_comes_meanwhile_has_been_heard() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        opgraph.profile(Using(lambda: signal.raise_signal(signal.SIGUSR1)), X)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard


class Package:
    """Texts that are no module's."""

    def __init__(self) -> None:
        self.path = "no.module/at all"
        self.words = ["", ".", "::", "torch.nn", "a" * 10_000, ".".join("ab" * 40_000)]


def test_texts_that_name_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Package()
    monkeypatch.setitem(globals(), 1, "no name")  # type: ignore[arg-type]

    def use() -> Tensor:
        importlib.import_module("json")
        return torch.ones(len(held.words))

    profile = opgraph.profile(Using(use), X)
    assert not profile.remarks
    assert held.words[0] == ""


OF_FAKES = """
from torch._subclasses.fake_tensor import FakeTensor


def is_fake(x):
    return isinstance(x, FakeTensor)
"""


class Modes(nn.Module):
    """Imports by a text, and has one that is the name of a file and means something else."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.layer, self.mode, self.made = nn.Linear(8, 8), mode, "json"

    def forward(self, x: Tensor) -> Tensor:
        importlib.import_module(self.made)
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["training_here", "fakes", "eager", "cache", "profile"])
def test_a_text_that_is_a_files_name_does_not_make_a_run_real(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "training_here.py").write_text(OF_FAKES)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("training_here")
    assert not opgraph.profile(Modes(mode), X).remarks
    del sys.modules["training_here"]


def tells(x: Any) -> bool:
    return hasattr(x, "fake_mode")


class Prints(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() > 2:
            for module in self.modules():
                sys.stderr.write(type(module).__name__)
        return super().forward(x)


def test_modules_of_a_model_are_not_those_of_python() -> None:
    assert not opgraph.profile(Prints(8, 8), X).remarks


def test_a_transformer_runs_on_fake_tensors() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=64,
    )  # fmt: skip
    profile = opgraph.profile(
        transformers.LlamaForCausalLM(config), torch.ones(1, 4, dtype=torch.long)
    )
    assert not profile.remarks


class Looks(nn.Module):
    """Finds its block by a text that it has in a table."""

    table: ClassVar[dict[str, str]] = {"block": "torch.nn:Linear"}

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = pkgutil.resolve_name(self.table["block"])(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.layer, pkgutil.resolve_name(self.table["block"]))
        return self.layer(x)  # type: ignore[no-any-return]


def test_a_librarys_class_is_found_by_a_text() -> None:
    assert opgraph.profile(Looks(), X).totals.flops == 2 * 2 * 8 * 8


class Masked(nn.Module):
    """Has a table of masks by which weight they are of, as pruning does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.masks = {id(self.layer.weight): torch.ones(8, 8)}

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.layer.weight
        mask = self.masks.get(id(weight))
        return nn.functional.linear(x, weight if mask is None else weight * mask, self.layer.bias)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_table_by_ids_of_weights_knows_them(mode: str) -> None:
    profile = opgraph.profile(Masked(), X, mode=mode)
    kernels = [
        k.op for node in profile.graph.nodes for k in node.kernels if node.phase == "forward"
    ]
    assert "aten.mul" in kernels
