"""What a person does with opgraph installed from its wheel, outside of the checkout: without torch
`python tests/installed.py`, and `python tests/installed.py MODEL …` where these can be traced, too. A plain
script: nothing but opgraph has to be installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

DATA = Path(__file__).parent / "data"
RESNET, OTHER = DATA / "resnet18.json", DATA / "resnet50.json"


def opgraph(*arguments: object, status: int = 0) -> str:
    """What a command prints; its exit status is as it should be."""
    words = [str(a) for a in arguments]
    done = subprocess.run([Path(sys.executable).with_name("opgraph"), *words],
                          capture_output=True, encoding="utf-8", check=False)  # fmt: skip
    text = done.stdout + done.stderr
    assert done.returncode == status, (words, done.returncode, text)
    sys.stdout.write(" ".join(["opgraph", *words]) + "\n")
    return text


def saved_profiles() -> None:
    """All that needs no torch, on a saved profile."""
    assert "3.63 GFLOPs" in opgraph("profile", RESNET)
    assert "predicted" in opgraph("profile", RESNET, "--hardware", "h100-sxm").lower()
    assert "conv2d" in opgraph("explore", RESNET, "--start", 1, "--end", 5)
    assert "resnet50" in opgraph("compare", RESNET, OTHER)
    opgraph("compare", RESNET, OTHER, "--fail-if", "flops > +2%", status=1)
    for file in ("a.svg", "a.dot", "a.mermaid"):
        opgraph("draw", RESNET, "-o", file)
        assert Path(file).stat().st_size > 1000
    opgraph("view", RESNET, "-o", "a.html")
    assert "<script" in Path("a.html").read_text(encoding="utf-8")
    totals = json.loads(opgraph("profile", RESNET, "--json"))["totals"]
    assert totals["flops"] == 3628146688, totals
    assert "h100-sxm" in opgraph("hardware")
    names = {m["name"] for m in json.loads(opgraph("models", "--json"))}
    assert {"resnet18", "bert-base-uncased", "yolov8n"} <= names, len(names)


def no_torch() -> None:
    """Tracing says in one line what to install; nothing that is imported needs torch."""
    Path("model.py").write_text("build = None\n", encoding="utf-8")
    for name, extra in {"profile resnet18": "torchvision", "profile bert-base-uncased": "transformers",
                        "profile yolov8n.pt": "yolo", "profile model.py:build": "torch",
                        "measure resnet18": "torchvision", "serve gpt2 --hardware l4": "transformers",
                        "plan gpt2 --devices 8xl4 --global-batch 8": "transformers"}.items():  # fmt: skip
        said = opgraph(*name.split(), status=2).splitlines()
        assert len(said) == 2, said
        assert said[1] == f"hint: pip install 'opgraph[{extra}]' brings it", said
    import opgraph as package

    for name in ("profile", "trace", "plan", "serve", "measure", "ranks"):
        hint = None
        try:
            getattr(package, name)("gpt2")
        except package.MissingDependency as error:
            hint = error.hint
        assert "pip install 'opgraph[" in str(hint), (name, hint)


def main() -> None:
    import opgraph as package

    assert "site-packages" in str(package.__file__), package.__file__
    with tempfile.TemporaryDirectory() as folder:
        import os

        os.chdir(folder)
        saved_profiles()
        for name in sys.argv[1:]:
            assert "FLOPs" in opgraph("profile", name)
        if find_spec("torch") is None:
            no_torch()
        os.chdir(DATA)


if __name__ == "__main__":
    main()
