"""Every option of every command with every suffix: it changes the answer, or it is refused."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph.cli import main, whole_parser
from opgraph.options import OPTIONS, Stage, names
from opgraph.options import TRACED as STAGES

MODEL = str(DATA / "distilbert-base-uncased.json")
OTHER = str(DATA / "bert-base-uncased.json")

VALUES = {
    "head": "base", "dtype": "float16", "model_args": "a=1", "batch_size": "2", "seq_len": "8",
    "decoder_seq_len": "8", "image_size": "32", "input_shape": "1x8", "input_overrides": "a=1x8",
    "mode": "train", "context_len": "8", "optimizer": "sgd", "loss": "sum", "train": "lora:2",
    "count": "embedding=matmul", "fsdp": "2", "world_size": "2", "rank": "1",
    "fragment": "1", "tracer": "fx", "concrete_args": "a=1", "hardware": "a100-sxm-80gb",
    "autocast": "float16", "partition": "none", "run": "graphs", "price_per_hour": "2.5",
    "tensor_parallel": "2", "pipeline_parallel": "2",
    "data_parallel": "2", "micro_batches": "3", "start": "20", "end": "30", "around": "30",
    "context": "2", "max_nodes": "7", "op": "linear", "module": "transformer.layer.0",
    "bottleneck": "memory", "min_flops": "1e8", "text": "attention", "depth": "1",
    "sort": "flops", "top": "3", "color_by": "op", "direction": "right", "theme": "dark",
    "source_url": "https://example.org/{path}#L{line}", "dpi": "50", "against": OTHER, "by": "op",
    "fail_if": "nodes > 1",
}  # fmt: skip
"""A value of each option that says something else than its default, for this model."""

BESIDE = {
    "rank": ["--world-size", "2"],
    "autocast": ["--color-by", "bytes"],
    "context": ["--around", "30"],
    "micro_batches": ["--pipeline-parallel", "2"],
    "partition": ["--color-by", "fusion"],
    "run": ["--hardware", "a100-sxm-80gb"],
    "price_per_hour": ["--hardware", "a100-sxm-80gb"],
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "suffix"), [(c, s) for c, suffixes in SUFFIXES.items() for s in suffixes]
)
def test_an_option_changes_the_answer_or_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, suffix: str
) -> None:
    file = tmp_path / f"answer{suffix}"
    start = [command, MODEL, *([OTHER] if command == "compare" else [])]
    if suffix.endswith(NEEDING_A_DEVICE):
        start += ["--hardware", "h100-sxm"]
    if suffix == ".png":  # small ones are drawn sooner
        start += ["--dpi", "20", *([] if command == "profile" else ["--module", "transformer"])]
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


CODE = """
from torch import nn

def build(width=16, layers=2):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
"""

TRACED = {
    "dtype": "bfloat16", "model_args": "layers=3", "batch_size": "2", "input_shape": "3x16",
    "input_overrides": "input=5x16", "mode": "train", "optimizer": "sgd", "loss": "sum",
    "train": "lora:2", "context_len": "8", "seq_len": "8", "decoder_seq_len": "8",
    "image_size": "32", "count": "embedding=matmul",
    "fragment": "1", "tracer": "fx", "concrete_args": "input=1", "head": "base",
    "target": "cuda:9.0", "memory_format": "channels_last", "memory_limit": "8",
    "fsdp": "2", "world_size": "2", "rank": "1", "tensor_parallel": "2", "pipeline_parallel": "2",
    "data_parallel": "2", "expert_parallel": "2", "context_parallel": "2", "schedule": "gpipe",
    "zero": "2", "micro_batches": "2", "global_batch": "4", "checkpointing_policy": "selective",
}  # fmt: skip

GATES = {"fullgraph", "memory_limit", "target"}
"""What fails where it does not hold, and else says nothing; and the target, whose name stands with the
totals although no operator of this model has another kernel there than on another such device."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    return "code.py:build"


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("beside", [[], ["--mode", "train"], ["--tracer", "dynamo"]])
def test_an_option_of_tracing_changes_the_profile_or_is_refused_or_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, beside: list[str]
) -> None:
    file = tmp_path / "answer.csv"
    start = ["profile", model, *beside, "-o", str(file)]
    assert main(start) == 0
    plain = file.read_bytes()
    silent = []
    for name in names(*STAGES):
        option = OPTIONS[name]
        capsys.readouterr()
        given = [option.flag, *([TRACED[name]] if name in TRACED else [])]
        status = main([*start, *given])
        said = capsys.readouterr().err
        if status == 2:
            assert said.startswith("error: ")
        elif file.read_bytes() == plain and "changes nothing" not in said:
            silent.append(name)
    assert {*silent} <= GATES | {name for name in silent if OPTIONS[name].flag in beside}


@pytest.mark.live
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ("--seq-len 12", 0, "no-effect seq_len changes nothing: code.py:build takes no tokens"),
        ("--image-size 32", 0, "no-effect image_size changes nothing"),
        ("--count attention=causal", 0, "no-effect count attention=causal changes nothing"),
        ("--optimizer sgd", 2, "error: --optimizer has no effect where the mode is infer"),
        ("--optimizer adamw", 2, "error: --optimizer has no effect where the mode is infer"),
        ("--head base", 2, "has no heads to choose from"),
        ("--trust", 0, "no-effect trust changes nothing: code.py:build brings no code of its own"),
        ("--warm-up", 0, "no-effect warm_up changes nothing: the first run is like the second"),
        (
            "--tracer fx --fragment 1",
            0,
            "no-effect fragment changes nothing: the graph is one piece",
        ),
        (
            "--tracer hybrid --fullgraph",
            0,
            "no-effect fullgraph changes nothing: the graph is that of fx",
        ),
        ("--model-arg nonsense=5", 2, "unexpected keyword argument 'nonsense'"),
        ("--tracer magic", 2, "error: --tracer: 'magic' is not a choice"),
        ("--dtype float33", 2, "error: --dtype: 'float33' is not a choice"),
    ],
)
def test_what_has_no_effect_is_said_or_refused(
    capsys: pytest.CaptureFixture[str], model: str, options: str, status: int, said: str
) -> None:
    assert main(["profile", model, *options.split()]) == status
    captured = capsys.readouterr()
    assert said in " ".join((captured.out + captured.err).split())


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("suffix", [".txt", ".csv", ".json", ".parquet", ".html", ".svg", ".png"])
def test_an_option_of_a_sweep_changes_its_answer_or_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, suffix: str
) -> None:
    file = tmp_path / f"answer{suffix}"
    start = ["sweep", model, "--batch-size", "1,2", "-q"]
    plain = answer(start, file)
    assert plain[0] == 0
    for more in (["--symbolic"], ["--hardware", "h100-sxm"], ["--mode", "train"]):
        status, wrote = answer([*start, *more], file)
        assert (status, wrote) != plain
        assert status == (2 if more == ["--symbolic"] and suffix not in (".txt", ".json") else 0)


@pytest.mark.live
@pytest.mark.parametrize(
    "options",
    ["--count embedding=matmul", "--fragment 1 --tracer dynamo", "--hardware h100-sxm",
     "--checkpointing --mode train", "--depth 2", "--warm-up", "--fullgraph --tracer dynamo"],
)  # fmt: skip
def test_a_program_is_refused_what_only_a_profile_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, options: str
) -> None:
    assert answer(["export", model, *options.split()], tmp_path / "graph.py") == (2, b"")
    assert capsys.readouterr().err.startswith("error: ")


def test_a_setting_is_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pyproject.toml says is for those answers that heed it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool."opgraph"]\ndepth = 1\ntheme = "dark"\n')
    for suffix in (".csv", ".svg", ".txt"):
        assert answer(["profile", MODEL], tmp_path / f"answer{suffix}")[0] == 0
    assert "layer.0" not in (tmp_path / "answer.txt").read_text()


@pytest.mark.parametrize(
    "words",
    ["profile MODEL --json -o a.json", "compare MODEL MODEL --json --markdown",
     "models resnet18 --json --format csv", "explore MODEL --json -o a.csv"],
)  # fmt: skip
def test_one_answer_at_a_time(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main(words.replace("MODEL", MODEL).split()) == 2
    assert "are two answers" in capsys.readouterr().err
