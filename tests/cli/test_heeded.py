"""Every option of every command with every suffix: it changes the answer, or it is refused."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph.cli import main, whole_parser
from opgraph.options import OPTIONS, Stage

MODEL = str(DATA / "distilbert-base-uncased.json")
OTHER = str(DATA / "bert-base-uncased.json")

VALUES = {
    "head": "base", "dtype": "float16", "model_args": "a=1", "batch_size": "2", "seq_len": "8",
    "decoder_seq_len": "8", "image_size": "32", "input_shape": "1x8", "input_overrides": "a=1x8",
    "mode": "train", "context_len": "8", "optimizer": "sgd", "count": "embedding=matmul",
    "fragment": "1", "tracer": "fx", "concrete_args": "a=1", "hardware": "a100-sxm-80gb",
    "autocast": "float16", "partition": "none", "tensor_parallel": "2", "pipeline_parallel": "2",
    "data_parallel": "2", "micro_batches": "3", "start": "20", "end": "30", "around": "30",
    "context": "2", "max_nodes": "7", "op": "linear", "module": "transformer.layer.0",
    "bottleneck": "memory", "min_flops": "1e8", "text": "attention", "depth": "1",
    "sort": "flops", "top": "3", "color_by": "op", "direction": "right", "theme": "dark",
    "source_url": "https://example.org/{path}#L{line}", "dpi": "50", "against": OTHER, "by": "op",
    "fail_if": "nodes > 1",
}  # fmt: skip
"""A value of each option that says something else than its default, for this model."""

BESIDE = {
    "autocast": ["--color-by", "bytes"],
    "context": ["--around", "30"],
    "micro_batches": ["--pipeline-parallel", "2"],
    "partition": ["--color-by", "fusion"],
}
"""What an option is seen beside, where that is heeded."""

SUFFIXES = {
    "profile": [".txt", ".json", ".md", ".csv", ".parquet", ".html", ".graphml", ".svg", ".png",
                ".pdf", ".dot", ".mmd", ".roofline.svg", ".trace.json", ".overlay.json"],
    "export": [".txt", ".json", ".md", ".csv", ".parquet", ".html", ".graphml", ".svg", ".png",
               ".pdf", ".dot", ".mmd", ".roofline.svg", ".roofline.png", ".trace.json",
               ".overlay.json", ".model-explorer.json", ".onnx", ".py"],
    "draw": [".svg", ".png", ".pdf", ".dot", ".mmd", ".roofline.svg"],
    "explore": [".txt", ".md", ".csv", ".json"],
    "view": [".html"],
    "compare": [".txt", ".md", ".json"],
}  # fmt: skip
SLOW = (".png", ".pdf", ".parquet", ".svg")
NEEDING_A_DEVICE = ("roofline.svg", "roofline.png", ".trace.json")
NEEDING_THE_MODEL = (".onnx", ".py")


@cache
def options(command: str) -> tuple[str, ...]:
    """The options of a command, but for where its answer goes and what it says meanwhile."""
    commands = next(a for a in whole_parser()._actions if isinstance(a, argparse._SubParsersAction))
    found = (OPTIONS[a.dest] for a in commands.choices[command]._actions if a.dest in OPTIONS)
    return tuple(o.name for o in found if o.stage not in (Stage.OUTPUT, Stage.SAYING))


def answer(arguments: list[str], file: Path) -> tuple[int, bytes]:
    """The exit status of a command that writes a file, and what it wrote."""
    file.unlink(missing_ok=True)
    try:
        status = main([*arguments, "-o", str(file), "-q"])
    except SystemExit as left:
        status = int(str(left.code))
    return status, file.read_bytes() if file.exists() else b""


@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        pytest.param(c, s, marks=pytest.mark.slow if s.endswith(SLOW) else ())
        for c, suffixes in SUFFIXES.items()
        for s in suffixes
    ],
)
def test_an_option_changes_the_answer_or_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, suffix: str
) -> None:
    file = tmp_path / f"answer{suffix}"
    start = [command, MODEL, *([OTHER] if command == "compare" else [])]
    if suffix.endswith(NEEDING_A_DEVICE):
        start += ["--hardware", "h100-sxm"]
    if command != "profile" and suffix == ".png":  # small ones are drawn sooner
        start += ["--module", "transformer"]
    plain = {(): answer(start, file)}
    assert plain[()][0] in (0, 2 if suffix in NEEDING_THE_MODEL else 0)
    silent = []
    for name in options(command):
        option = OPTIONS[name]
        beside = tuple(BESIDE.get(name, ()))
        if beside not in plain:
            plain[beside] = answer([*start, *beside], file)
        if plain[beside][0] == 2:
            beside = ()
        given = [option.flag, *([VALUES[name]] if name in VALUES else [])]
        capsys.readouterr()
        status, wrote = answer([*start, *beside, *given], file)
        if status == 2:
            lines = capsys.readouterr().err.splitlines()
            assert lines[0].startswith("error: "), (name, lines)
            continue
        if (status, wrote) == plain[beside]:
            silent.append(name)
    assert not silent
