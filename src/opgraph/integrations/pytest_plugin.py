"""A pytest plugin: the fixture `opgraph_profile` profiles a model, and holds it to what it cost before.

    def test_cost(opgraph_profile):
        p = opgraph_profile("resnet18", batch_size=8)
        assert p.totals.flops < 30e9
        opgraph_profile.check(p, "flops > +2%")   # against opgraph-profiles/… beside the test

`pytest --opgraph-update` writes what it is held to anew. Nothing of opgraph is imported before a test asks.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from opgraph.results import Profile

FOLDER = "opgraph-profiles"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opgraph", "costs of models")
    group.addoption(
        "--opgraph-update",
        action="store_true",
        help="write the profiles that models are held to anew",
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what `--opgraph-update` wrote, by folder."""
    folders = Counter(_short(file.parent) for file in config.stash.get(_WRITTEN, []))
    for folder, count in folders.items():
        what = f"{count} profile{'s' if count > 1 else ''}"
        terminalreporter.write_line(f"opgraph: wrote {what} to {folder}, to be committed")


_WRITTEN: pytest.StashKey[list[Path]] = pytest.StashKey()


class Profiler:
    """Profiles models for one test, and holds them to profiles that are kept beside it."""

    def __init__(self, node: pytest.Item) -> None:
        self._node = node
        self._kept = 0

    def __call__(self, model: Any, *args: Any, **options: Any) -> Profile:
        """What `opgraph.profile` gives."""
        import opgraph

        __tracebackhide__ = True
        found: Profile = _plainly(opgraph.profile, model, *args, **options)
        return found

    def check(self, profile: Profile, *gates: str, hardware: str | None = None) -> None:
        """Fail the test when a gate breaks against the profile that is kept (`"flops > +2%"`), or without
        gates when anything of the graph's costs differs. The first time it is an error to have none."""
        import opgraph

        __tracebackhide__ = True
        _plainly(opgraph.compare, profile, profile, fail_if=gates, hardware=hardware)  # can be read
        self._kept += 1
        more = f"-{self._kept}" if self._kept > 1 else ""
        name = f"{self._node.path.stem}-{_name(self._node.nodeid)}{more}.json"
        file = self._node.path.parent / FOLDER / name
        if self._node.config.getoption("--opgraph-update"):
            file.parent.mkdir(exist_ok=True)
            profile.save(file)
            self._node.config.stash.setdefault(_WRITTEN, []).append(file)
            return
        if not file.exists():
            pytest.fail(
                f"{_short(file)} is not there: pytest --opgraph-update writes it", pytrace=False
            )
        before = _plainly(opgraph.load, file)
        found = _plainly(opgraph.compare, before, profile, fail_if=gates, hardware=hardware)
        totals = found.to_dict()["totals"]
        changed = any(len({str(v) for v in values}) > 1 for values in totals.values())
        if found.broken if gates else changed or any(found.to_dict()["changes"]):
            broken = "".join(f"gate broken: {v.gate.text}\n" for v in found.broken)
            pytest.fail(
                f"the model costs something else than in {_short(file)}\n{broken}\n{found}\n"
                "pytest --opgraph-update takes it as it is now",
                pytrace=False,
            )


def _plainly(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function of opgraph. What it refuses is shown at the line of the test, and none of its own."""
    from opgraph.record.errors import OpgraphError

    __tracebackhide__ = True
    try:
        return function(*args, **options)
    except OpgraphError as error:
        raise error.with_traceback(None)  # noqa: B904


def _name(test: str) -> str:
    """The name of a test as that of a file, which no other test of its file has: its classes, and its
    parameters, of which what no file should be called by is written as in an address (%2F)."""
    names, bracket, parameters = test.partition("::")[2].partition("[")
    return quote(names.replace("::", ".") + bracket + parameters, safe="[]=,+@ ")


def _short(file: Path) -> str:
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


@pytest.fixture
def opgraph_profile(request: pytest.FixtureRequest) -> Profiler:
    """Profile a model (`opgraph_profile(model, **options)`), and `check` it against what it cost before."""
    return Profiler(request.node)
