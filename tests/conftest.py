"""What many tests share: models traced once a session, profiles saved once and for all, and goldens.

Figures are checked on live traces (`resnet18`, `bert`, `gpt2`, `yolov8n`). Texts and pictures are
checked on `saved` profiles, so that a golden changes when a view changes, and not with the line
numbers and shortcuts of the next release of a library. `pytest --update-goldens` rewrites the goldens;
`opgraph profile resnet18 -o tests/data/resnet18.json` rewrites a saved profile.

Three markers: `slow` takes 0.15 s of processor time or more, or a browser (the fast suite is
`pytest -m "not slow"`), `thorough` takes many seconds to say at length what another test says in short
(left out unless asked for: `nox -s thorough`), `live` traces a model. What is right of the graph and not
live runs without torch (`pytest -p tests.no_torch`, tests/test_without_torch.py).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from tests.apart import Apart, is_apart

import opgraph
from opgraph import Profile

DATA = Path(__file__).parent / "data"
MERMAID = Path(__file__).parent / "foreign/node_modules/mermaid/dist/mermaid.min.js"


os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""What is compiled is kept, or each of the processes that tests start compiles opgraph anew."""

gc.set_threshold(50_000, 20, 1_000)
"""Cyclic garbage is looked for seldom: each look goes through all that libraries and tests hold."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write the goldens anew")


LIVE = {"resnet18", "bert", "gpt2", "yolov8n", "shown"}
"""The fixtures that trace a model."""


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Apart | None:
    return (
        Apart.from_parent(parent, path=module_path)
        if is_apart(module_path, parent.config)
        else None
    )


@pytest.hookimpl(tryfirst=True)  # before some are left out by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first = [item for item in items if isinstance(item.parent, Apart)]
    first.sort(key=lambda item: item.path.stat().st_size, reverse=True)
    rest = [item for item in items if not isinstance(item.parent, Apart)]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)  # each begins with its share
    items[:] = [
        item
        for n in range(workers)
        for item in (
            *first[n::workers],
            *rest[len(rest) * n // workers : len(rest) * (n + 1) // workers],
        )
    ]
    for item in first:  # it has tests of all kinds, and runs those that are asked for
        for kind in ("slow", "thorough"):
            if f"not {kind}" not in config.option.markexpr:
                item.add_marker(kind)
    for item in items:
        if isinstance(item, pytest.Function) and not LIVE.isdisjoint(item.fixturenames):
            item.add_marker("live")
        if isinstance(item, pytest.Function) and "chromium" in item.fixturenames:
            item.add_marker("slow")
        if item.get_closest_marker("thorough") is not None:
            item.add_marker("slow")
        if hasattr(item, "callspec") and "export" in map(str, item.callspec.params.values()):
            item.add_marker("slow")  # which takes torch a second for any model


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """No file of tests finds another one: what a person's own modules keep is looked at for every run, and
    those of all the tests would be as much as no person has."""
    mine = item.getparent(pytest.Module)
    there = _modules_of_tests()
    used = set() if mine is None else _used_by(mine.obj.__name__)
    others = {name: sys.modules.pop(name) for name in there if name not in used}
    try:
        return (yield)
    finally:
        sys.modules.update(others)


def _modules_of_tests() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "tests"]


@cache
def _used_by(name: str) -> set[str]:
    """The modules of tests that one has something of, with itself."""
    used, waiting = {"tests"}, [name]
    while waiting:
        name = waiting.pop()
        if name.partition(".")[0] == "tests" and name not in used and name in sys.modules:
            used.add(name)
            held = vars(sys.modules[name]).values()
            waiting += [v.__name__ for v in held if type(v) is ModuleType]
            waiting += [str(v.__module__) for v in held if type(v) in (FunctionType, type)]
            waiting.append(name.rpartition(".")[0])
    return used


def pytest_configure(config: pytest.Config) -> None:
    os.environ["OPGRAPH_CACHE"] = "0"  # every test traces what it is about
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A job in the background ignores interrupts, and so would all processes that tests interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # one of several workers, which share the cores
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def resnet18() -> Profile:
    return opgraph.profile("resnet18")


@pytest.fixture(scope="session")
def bert() -> Profile:
    return opgraph.profile("bert-base-uncased", seq_len=128)


@pytest.fixture(scope="session")
def gpt2() -> Profile:
    return opgraph.profile("gpt2", seq_len=128)


@pytest.fixture(scope="session")
def yolov8n() -> Profile:
    return opgraph.profile("yolov8n.pt")


@cache
def _load(name: str) -> Profile:
    return opgraph.load(DATA / f"{name}.json")


@pytest.fixture(scope="session")
def saved() -> Callable[[str], Profile]:
    """The profile saved in tests/data under a name."""
    return _load


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(text, "name.txt")` compares a text with goldens/name.txt beside the test."""

    def check(text: str, name: str) -> None:
        path = request.path.parent / "goldens" / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        assert text == expected, f"{name} has changed; see it, then run pytest --update-goldens"

    return check
