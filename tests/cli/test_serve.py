"""`opgraph serve`: a small model through an engine, by the command and from Python."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

import opgraph
from opgraph.cli import main
from opgraph.views.schemas import schema

pytestmark = [pytest.mark.slow, pytest.mark.live]

SMALL = ["serve", "gpt2", "--hardware", "a10", "--model-arg", "n_layer=1"]
GPT2 = [*SMALL, "--requests", "40"]


def test_json_is_that_of_the_schema_and_the_same_each_time(capsys):
    more = [
        "--request-rate",
        "50,inf",
        "--input-len",
        "16-200",
        "--output-len",
        "8-40",
        "--seed",
        "3",
    ]
    assert main([*GPT2, *more, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    jsonschema_rs.validate(schema("serve"), first)
    assert [p["rate"] for p in first["points"]] == [50.0, None]
    assert all(p["requests"] == 40 for p in first["points"])
    assert {r["code"] for r in first["remarks"]} == {"engine"}
    again = opgraph.serve(
        "gpt2", hardware="a10", model_args={"n_layer": 1}, requests=40, request_rate="50,inf",
        input_len="16-200", output_len="8-40", seed=3,
    )  # fmt: skip
    assert again.to_dict() == first
    assert len(again.to_pandas()) == 2
    assert "first" in str(again)


def test_engines_of_other_kinds(tmp_path, capsys):
    """A workload from a file, prompts apart from tokens, drafts, shares of prompts in the cache."""
    file = tmp_path / "asked.csv"
    file.write_text(
        "arrival,input,output\n" + "".join(f"{i / 9},{20 + i},{9}\n" for i in range(30))
    )
    curve = tmp_path / "curve.svg"
    assert main([*SMALL, "--workload", str(file), "--disaggregate", "1:2", "-o", str(curve)]) == 0
    assert "all at once" not in curve.read_text()
    plain = ["--request-rate", "inf", "--input-len", "200", "--output-len", "64"]
    found = {}
    for name, more in {
        "plain": [],
        "drafts": ["--draft", "gpt2", "--draft-tokens", "3", "--acceptance", "1"],
        "hits": ["--prefix-hits", "0.9"],
        "whole": ["--no-chunked"],
        "fp8": ["--weights", "fp8"],
    }.items():
        capsys.readouterr()
        assert main([*GPT2, *plain, *more, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        found[name] = said["points"][0]
        texts = [r["text"] for r in said["remarks"]]
        assert "40 requests of 200 tokens in and 64 out come all at once" in texts
        assert any("gpt2 drafts 3 tokens a step" in text for text in texts) is (name == "drafts")
    assert {p["requests"] for p in found.values()} == {40}
    assert found["drafts"]["steps"] < found["plain"]["steps"] / 3
    assert found["hits"]["seconds"] < found["plain"]["seconds"]
    assert found["fp8"]["seconds"] < found["plain"]["seconds"]


def test_steps_that_the_host_launches_are_said(capsys):
    assert main([*SMALL, "--requests", "2", "--request-rate", "inf", "--recorded", "100"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "but steps of more than 100 tokens are launched kernel by kernel, for which the" in said


@pytest.mark.parametrize(
    ("asked", "lengths"),
    [
        ({}, ("359", "89")),
        ({"input_len": "400"}, ("400", "48")),
        ({"output_len": "8"}, ("440", "8")),
    ],
)
def test_usual_lengths_are_within_the_positions_of_a_model(asked, lengths):
    small = {"model_args": {"n_layer": 1, "n_positions": 448}, "requests": 5, "request_rate": "inf"}
    found = opgraph.serve("gpt2", hardware="a10", **small, **asked)
    assert (found.settings["input_len"], found.settings["output_len"]) == lengths
    assert any("it has learned 448 positions" in r.text for r in found.remarks)


def test_what_a_workload_says_is_not_asked_for_beside_it(tmp_path):
    file = tmp_path / "asked.csv"
    file.write_text("input,output,arrival\n20,9,1\n")
    for more in ({"requests": 7}, {"input_len": "4"}, {"output_len": "4"}, {"request_rate": "1"}):
        with pytest.raises(opgraph.InputError, match="workload says") as caught:
            opgraph.serve("gpt2", hardware="a10", workload=str(file), **more)
        assert next(iter(more)).replace("_", "-") in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["serve", "resnet18", "--hardware", "a10"], "does not generate"),
        (
            ["serve", "t5-small", "--hardware", "a10", "--prefix-hits", "0.5"],
            "has an encoder, for which",
        ),
        (
            ["serve", "openai/whisper-tiny", "--hardware", "a10", "--input-len", "600"],
            "has learned 448 positions",
        ),
        (["serve", "gpt2"], "served on what?"),
        ([*GPT2, "--request-rate", "fast"], "is no rate"),
        ([*GPT2, "--input-len", "9-3"], "is no number of tokens"),
        ([*GPT2, "--acceptance", "0.5"], "--acceptance has no effect"),
        ([*GPT2, "--draft", "gpt2"], "hangs on both models"),
        ([*GPT2, "--disaggregate", "2"], "says no engines"),
        ([*SMALL, "--workload", "/nowhere"], "cannot be read"),
        (
            [*GPT2, "--input-len", "1000", "--output-len", "128"],
            "1,024 positions, and a request has 1,128 tokens",
        ),
        ([*GPT2[:3], "jetson-orin-nx", *GPT2[4:], "--disaggregate", "1:1"], "has no link"),
        ([*GPT2, "--mode", "train"], "does not take mode"),
        ([*GPT2, "--memory-share", "0.001"], "leave no room"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_is_one_line(more, says, capsys):
    assert main(more) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "error: " in error


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("input,output\n" + "0" * 140_000 + "5,3\n", "request 1 of"),  # longer than csv takes
        ('{"input": 1e999, "output": 3}', "request 1 of"),
        ('{"input": 4, "output": 3}\n' + "[" * 200_000, "request 2 of"),
        ("input,output\n1" + "0" * 400 + ",3\n", "request 1 of"),
        ("arrival,input,output\n5,10,3\n,10,3\n", "only some requests of"),
        ("arrival,input,output\n,10,3\n5,10,3\n", "only some requests of"),
    ],
    ids=("field", "infinity", "nesting", "size", "late", "early"),
)
def test_files_that_say_no_requests(text, says, tmp_path, capsys):
    file = tmp_path / "asked"
    file.write_text(text)
    assert main([*SMALL, "--workload", str(file)]) == 2
    assert f"error: {says}" in capsys.readouterr().err


def test_arrivals_count_from_the_first(tmp_path, capsys):
    """Seconds since 1970 give the rate and the times of seconds since the first request."""
    found = []
    for start in (0, 1_700_000_000):
        file = tmp_path / f"{start}.csv"
        file.write_text("arrival,input,output\n" + "".join(f"{start + i},20,4\n" for i in range(9)))
        assert main([*SMALL, "--workload", str(file), "--disaggregate", "12:1", "--json"]) == 0
        (point,) = json.loads(capsys.readouterr().out)["points"]
        found.append((point["rate"], round(point["seconds"], 3)))
    assert found[0] == found[1]
    assert found[0][0] == 9 / 8
