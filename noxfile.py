"""What a developer does here, each under a name: `nox --list` says them, `nox -s fast` does one, and plain
`nox` what every change should pass. All run in the environment at hand (`pip install -e '.[dev]'`), since
another one would download torch again; what follows `--` goes to the tool.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["check", "fast"]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ALONE = {"PYTHONPATH": "", "OPGRAPH_CACHE": "0"}
"""What is installed, and nothing of the checkout."""


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
    """All tests but the thorough ones, on two processes, as continuous integration runs them."""
    session.run("pytest", "-n", "2", "--dist", "worksteal", *session.posargs)


@nox.session
def thorough(session: nox.Session) -> None:
    """Those that say at length what others say in short, and more random models: half an hour."""
    env = {"OPGRAPH_EXAMPLES": "100", "OPGRAPH_HOSTILE_FILES": "20"}
    session.run(
        "pytest", "-n", "2", "--dist", "worksteal", "-m", "thorough", *session.posargs, env=env
    )
    more = ("tests/tracing/hard/test_random_models.py", "tests/sources/test_hostile_files.py")
    session.run("pytest", "-n", "0", *more, env=env)


@nox.session
def saved(session: nox.Session) -> None:
    """What stands right of the graph, on saved profiles, where importing torch fails."""
    session.run(
        "pytest", "-n", "0", "-p", "tests.no_torch", *(session.posargs or RIGHT_OF_THE_GRAPH)
    )


RIGHT_OF_THE_GRAPH = ("tests/record", "tests/hardware", "tests/analysis", "tests/views")


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The fast tests at the lowest versions that pyproject.toml allows, and unless some are named the slow
    ones of what hangs on torch most: some 7 GB, and minutes."""
    session.install("--resolution", "lowest-direct", "-e", ".[dev]")
    session.run("pytest", "-n", "2", "--dist", "worksteal", "-m", "not slow", *session.posargs)
    if not session.posargs:
        session.run("pytest", "-n", "0", "-m", "slow", "tests/tracing/state", "tests/tracing/modes")


@nox.session(venv_backend="uv")
def newest(session: nox.Session) -> None:
    """The same at the newest versions there are, and experiment loggers that are not in `dev`."""
    session.install("-e", ".[dev]", "wandb", "mlflow")
    session.run("pytest", "-n", "0", "-m", "not slow", *session.posargs)
    session.run("pytest", "-n", "0", "tests/integrations/test_loggers.py")


@nox.session(venv_backend="uv|venv")
def wheel(session: nox.Session) -> None:
    """The wheel and the sdist, and the wheel installed in an environment without torch: half a minute."""
    session.install(str(_built(session)))
    session.run("python", "tests/installed.py", env=ALONE)


@nox.session(venv_backend="uv|venv", python=PYTHONS)
@nox.parametrize("torch", ("lowest", "newest"))
def installed(session: nox.Session, torch: str) -> None:
    """The wheel with its extra torchvision in fresh environments: minutes, and 6 GB each."""
    found = _built(session)
    bound = ["--resolution", "lowest-direct"] if torch == "lowest" else []
    session.install(*bound, f"opgraph[torchvision] @ {found.as_uri()}")
    session.run("python", "tests/installed.py", "resnet18", env=ALONE)


def _built(session: nox.Session) -> Path:
    """The wheel, made from the sdist, as it is released."""
    folder = Path(session.create_tmp()) / "dist"
    mine = (sys.executable, "-m")  # where nox is, so that the environment of the session is bare
    session.run(*mine, "build", "--outdir", str(folder), external=True, silent=True)
    files = map(str, folder.glob("opgraph-*"))
    session.run(*mine, "twine", "check", "--strict", *files, external=True)
    return max(folder.glob("*.whl"), key=lambda file: file.stat().st_mtime).resolve()


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
def site(session: nox.Session) -> None:
    """The documentation as a site, with the output of every command: three minutes, no warning allowed."""
    session.run(
        "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1", "OPGRAPH_CACHE": "0"}
    )


@nox.session
def viewer(session: nox.Session) -> None:
    """The page: types, circles and tests of its TypeScript, then the bundle that the package ships."""
    with session.chdir("viewer"):
        session.run("npm", "test", external=True)
        session.run("npm", "run", "build", external=True)
        session.run("npm", "run", "check-bundle", external=True)
