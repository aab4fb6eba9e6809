"""What a developer does here, each under a name: `nox --list` says them, `nox -s fast` does one, and plain
`nox` what every change should pass. All run in the environment at hand (`pip install -e '.[dev]'`), since
another one would download torch again; what follows `--` goes to the tool.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["check", "fast"]


@nox.session
def check(session: nox.Session) -> None:
    """Style, types and the direction of imports: half a minute, no test is run."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports", "--no-logo")


@nox.session
def fast(session: nox.Session) -> None:
    """The tests that take little: every room of the house in under a minute of processor time."""
    session.run("pytest", "-n", "0", "-m", "not slow", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """All tests, on two processes, as continuous integration runs them."""
    session.run("pytest", "-n", "2", "--dist", "worksteal", *session.posargs)


@nox.session
def saved(session: nox.Session) -> None:
    """What stands right of the graph, on saved profiles, where importing torch fails."""
    session.run(
        "pytest", "-n", "0", "-p", "tests.no_torch", *(session.posargs or RIGHT_OF_THE_GRAPH)
    )


RIGHT_OF_THE_GRAPH = ("tests/record", "tests/hardware", "tests/analysis", "tests/views")


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The fast tests at the lowest versions that pyproject.toml allows: some 6 GB, and minutes."""
    session.install("--resolution", "lowest-direct", "-e", ".[torchvision]",
                    "pytest>=8.4", "pytest-xdist>=3.6", "hypothesis>=6.130")  # fmt: skip
    session.run("pytest", "-n", "0", "-m", "not slow", *(session.posargs or LOWEST))


LOWEST = ("tests/record", "tests/analysis", "tests/costs", "tests/tracing")


@nox.session
def bench(session: nox.Session) -> None:
    """How fast opgraph is and in how much memory; `-- NAME …` runs benchmarks/NAME.py instead."""
    name, *rest = session.posargs or ["speed"]
    session.run("python", f"benchmarks/{name}.py", *rest)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation: every link, path and name in it exists, and its tables say what the code says."""
    session.run("pytest", "-n", "0", "tests/test_docs.py", "tests/costs/test_documentation.py",
                "tests/options/test_fields.py")  # fmt: skip


@nox.session
def viewer(session: nox.Session) -> None:
    """The page: types, circles and tests of its TypeScript, then the bundle that the package ships."""
    with session.chdir("viewer"):
        session.run("npm", "test", external=True)
        session.run("npm", "run", "build", external=True)
        session.run("npm", "run", "check-bundle", external=True)
