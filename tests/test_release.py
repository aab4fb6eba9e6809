"""What is released says one version, and a release without its changes is refused."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
_spec = spec_from_file_location("release_notes", ROOT / ".ci" / "release_notes.py")
assert _spec is not None
assert _spec.loader is not None
release_notes = module_from_spec(_spec)
_spec.loader.exec_module(release_notes)


def test_the_version_is_the_same_wherever_it_is_stated() -> None:
    assert len(set(release_notes.versions().values())) == 1


TRACING = ("torch", "torchvision", "transformers", "timm", "yolo", "diffusers")


def test_the_bounds_of_the_recipe_are_those_of_the_package() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = told["project"], told["project"]["optional-dependencies"]
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    needed = recipe["requirements"]
    python = f"python {project['requires-python']}"
    assert needed["host"] == [python, "pip", *map(_conda, told["build-system"]["requires"])]
    assert needed["run"] == [python, *map(_conda, project["dependencies"])]
    others = {_conda(n) for name in TRACING for n in extras[name] if "opgraph[" not in n}
    assert sorted(needed["run_constraints"]) == sorted(others)
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {at}" for name, at in project["scripts"].items()
    ]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]


def _conda(requirement: str) -> str:
    """A requirement as conda writes it, which calls torch pytorch."""
    name, bound, version = requirement.partition(">=")
    return f"{'pytorch' if name == 'torch' else name} {bound}{version}"


@pytest.mark.parametrize("file", [*ROOT.glob(".github/workflows/*.yml"), ROOT / "action/action.yml"],
                         ids=lambda file: file.name)  # fmt: skip
def test_actions_are_pinned_to_a_commit(file: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", file.read_text(encoding="utf-8"))
    assert used
    for action, version in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", version)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for file in release_notes.STATED:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_the_notes_are_the_section_of_the_version(release: Path) -> None:
    changes = "# Changelog\n\n## Unreleased\n\n## 0.1.0 – 2026-11-22\n\n- First.\n"
    (release / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    assert release_notes.notes("v0.1.0", release) == "- First.\n"


@pytest.mark.parametrize(
    ("changes", "tag", "says"),
    [
        ("## 0.1.0\n\n- First.\n", "v0.2.0", "states 0.1.0"),
        ("## Unreleased\n\n- More.\n\n## 0.1.0\n\n- First.\n", "v0.1.0", "under Unreleased"),
        ("## 0.1.01\n\n- First.\n", "v0.1.0", "nothing about 0.1.0"),
    ],
)
def test_a_release_that_disagrees_is_refused(
    changes: str, tag: str, says: str, release: Path
) -> None:
    (release / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        release_notes.notes(tag, release)
