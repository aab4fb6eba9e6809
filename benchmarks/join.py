"""How much of the time in traces of others stands on nodes of the graphs of their models, worst first;
fifty assignments drawn at random; what a large trace takes; and which traces of a folder can be read.

    python benchmarks/join.py                       the traces in tests/traces/data, on their graphs
    python benchmarks/join.py --pair P.json T.json  also a saved profile and a trace of its model
    python benchmarks/join.py --graphs FOLDER       the three models of TraceLens, traced with the installed
                                                    transformers, in place of the graphs that are there
    python benchmarks/join.py --sample 50           assignments to check by hand (--seed N, --link L)
    python benchmarks/join.py --size 1              a trace of 1 GB, made by repeating one (--repeat T)
    python benchmarks/join.py --read FOLDER         every trace below it: read or refused, and why
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from opgraph.record.errors import ProfileError
from opgraph.record.graph import Graph
from opgraph.record.loading import load
from opgraph.record.run import DEVICE_KINDS
from opgraph.traces import join, read

DATA = Path(__file__).parents[1] / "tests" / "traces" / "data"


def pairs(given: list[list[str]], *, alone: bool = False) -> Iterator[tuple[str, Graph, Path]]:
    """The name, the graph and the trace of each that is tried: those that are given, `alone` or too."""
    traces = [] if alone else [*DATA.glob("tracelens/*.json.gz"), *DATA.glob("hta/*.json.gz")]
    for trace in sorted(traces):
        name = trace.name.removesuffix(".json.gz")
        yield name, saved(DATA / f"{name.partition('-')[0]}.json.gz"), trace
    for profile, trace in given:
        yield f"{Path(profile).stem}: {Path(trace).name}", saved(Path(profile)), Path(trace)


def traced(folder: Path) -> list[list[str]]:
    """Trace the models that TraceLens' traces are of, by their published configurations, and save them in a
    folder; each with the traces of it."""
    import torch
    import transformers as t

    import opgraph

    tokens = {"vocab_size": 151_936, "max_position_embeddings": 32_768}
    qwen = t.Qwen2Config(hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
                         num_attention_heads=16, num_key_value_heads=16, **tokens)  # fmt: skip
    bert = t.BertConfig(hidden_size=512, num_hidden_layers=4, num_attention_heads=8,
                        intermediate_size=2048)  # fmt: skip

    def text(batch: int, length: int) -> dict[str, torch.Tensor]:
        ones = torch.ones(batch, length, dtype=torch.long)
        return {"input_ids": ones, "attention_mask": ones}

    image = {"pixel_values": torch.zeros(4, 3, 224, 224, dtype=torch.bfloat16)}
    kinds = torch.zeros(1, 141, dtype=torch.long)
    models: dict[str, tuple[type, object, dict[str, object]]] = {
        "bert": (t.BertForMaskedLM, bert, {**text(1, 141), "token_type_ids": kinds}),
        "qwen": (t.Qwen2Model, qwen, {**text(16, 559), "use_cache": False}),
        "vit": (t.ViTModel, t.ViTConfig(), {**image}),
    }
    for name, (build, config, given) in models.items():
        with torch.device("meta"):
            model = build(config).to(torch.bfloat16).eval()
        opgraph.profile(model, kwargs=given).save(str(folder / f"{name}.json"))
    print(f"traced with transformers {t.__version__}, torch {torch.__version__}\n")
    found = sorted(DATA.glob("tracelens/*.json.gz"))
    return [[str(folder / f"{name}.json"), str(f)] for f in found
            if (name := f.name.partition("-")[0]) in models]  # fmt: skip


def saved(path: Path) -> Graph:
    """The graph of a saved profile, gzipped or not."""
    if path.suffix != ".gz":
        return load(path).graph
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        return load(plain).graph


def table(given: list[list[str]], *, alone: bool = False) -> None:
    """One line for each trace: of the kernel time in whole steps, what is aligned by name and shapes, what
    is a copy for a node, what is on a node at all, and the longest that is on none; and what belongs to
    steps there in part."""
    rows = []
    for name, graph, path in pairs(given, alone=alone):
        run = join(graph, read(path))
        whole = [e for e in run.events if e.kind in DEVICE_KINDS]
        total = sum(e.seconds for e in whole)
        links = {
            link: sum(e.seconds for e in whole if e.link == link)
            for link in {e.link for e in whole}
        }
        none = max((e for e in whole if not e.nodes), key=lambda e: e.seconds, default=None)
        part = [e for e in run.partial if e.kind in DEVICE_KINDS]
        rows.append((run.attributed, name, run.device_name, sum(e.count for e in whole), total,
                     links.get("alignment", 0.0) / total, links.get("operand", 0.0) / total,
                     none, part))  # fmt: skip
    print(
        "| trace | device | kernels | ms | name and shapes | copies for a node | on a node "
        "| longest on none | steps in part |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for share, name, device, count, total, aligned, copied, none, part in sorted(
        rows, key=lambda r: r[0]
    ):
        lost = "" if none is None else f"{none.host}, {none.seconds * 1e6:.1f} µs"
        there = sum(e.seconds for e in part)
        on = sum(e.seconds for e in part if e.nodes) / there if there else 0
        cut = (
            f"{sum(e.count for e in part)} kernels, {there * 1e3:.2f} ms, {on:.1%} on a node"
            if part
            else ""
        )
        print(f"| {name} | {device} | {count:,} | {total * 1e3:.3f} | {aligned:.2%} | {copied:.2%} "
              f"| {share:.2%} | {lost} | {cut} |")  # fmt: skip


def sample(count: int, seed: int, link: str | None, given: list[list[str]]) -> None:
    """Kernels drawn at random from a step of each trace: beside what the trace itself says of each (the
    outermost operator around its launch, its shapes, and the module, where it has modules, which the
    alignment does not look at) the node that it was given."""
    found = []
    for name, graph, path in pairs(given):
        (trace,) = read(path)
        run = join(graph, [trace])
        first = {c.external: c for c in trace.calls if c.kind == "operator"}
        outer = sorted(
            (c for c in trace.calls if c.kind != "mark"), key=lambda c: (c.start, -c.end)
        )
        begin = {w.name: w for w in sorted(trace.work, key=lambda w: -w.start)}
        start = min((w.start - piece.start * 1e6 for piece in run.timeline[:1]
                     for w in [begin[run.events[piece.event].name]]), default=0.0)  # fmt: skip
        works = {(w.name, round(w.start - start)): w for w in trace.work}
        for piece in run.timeline:
            event = run.events[piece.event]
            work = works.get((event.name, round(piece.start * 1e6)))
            if work is None or not event.nodes or (link or event.link) != event.link:
                continue
            call = first.get(work.external)
            around = [c for c in outer if call and c.start <= call.start and call.end <= c.end
                      and c.thread == call.thread]  # fmt: skip
            found.append((name, graph, event, around))
    print(
        "| trace | kernel | operator, shapes | module in the trace | node | shapes | module | link |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, graph, event, around in random.Random(seed).sample(found, min(count, len(found))):
        operator = next((c for c in around if c.kind == "operator"), None)
        module = [c.name for c in around if c.kind == "module"]
        nodes = [graph.node(n) for n in event.nodes]
        shown = f"{operator.name} {written(operator.shapes or ())}" if operator else event.host
        print(f"| {name} | `{event.name[:28]}` | {shown} | {'/'.join(module[-2:])} "
              f"| {' '.join(f'{n.id} {n.op}' for n in nodes)} "
              f"| {written([graph.value[v].shape for v in nodes[0].inputs])} | {nodes[0].scope} "
              f"| {event.link} |")  # fmt: skip


def written(shapes: Iterable[tuple[int | str, ...]]) -> str:
    return " ".join("x".join(map(str, s)) for s in shapes)


def repeated(source: Path, target: Path, size: float) -> int:
    """Write a trace of a size in bytes, by repeating one with later times and other numbers; how often."""
    text = source.read_bytes()
    data = json.loads(gzip.decompress(text) if source.suffix == ".gz" else text)
    events = [e for e in data.pop("traceEvents") if "ts" in e]
    data.pop("metadata", None)
    begin = min(e["ts"] for e in events)
    span = max(e["ts"] + e.get("dur", 0) for e in events) - begin + 100
    written = times = 0
    with target.open("w") as out:
        out.write(json.dumps(data)[:-1] + ', "traceEvents": [\n')
        while written < size:
            text = ",\n".join(json.dumps(later(e, times, span)) for e in events)
            written += out.write((",\n" if times else "") + text)
            times += 1
        out.write("\n]}\n")
    return times


def later(event: dict[str, Any], times: int, span: float) -> dict[str, Any]:
    """An event as it is in a later repetition."""
    moved = event | {"ts": event["ts"] + times * span}
    if isinstance(event.get("id"), int):
        moved["id"] = event["id"] + times * 10**6
    if args := event.get("args"):
        numbers = ("External id", "correlation", "Sequence number")
        moved["args"] = args | {
            k: args[k] + times * 10**6 for k in numbers if isinstance(args.get(k), int)
        }
    return moved


def large(size: float, source: Path) -> None:
    """Time and memory of joining a large trace, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        times = repeated(source, path, size * 1e9)
        print(f"{path.stat().st_size / 1e9:.2f} GB, {source.name} repeated {times} times")
        subprocess.run([sys.executable, __file__, "--one", str(path)], check=True)


def one(path: Path) -> None:
    graph = saved(DATA / "qwen.json.gz")
    begun, cpu = time.perf_counter(), time.process_time()
    run = join(graph, read(path))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux
    print(f"{time.perf_counter() - begun:.1f} s ({time.process_time() - cpu:.1f} s of CPU, load "
          f"{os.getloadavg()[0]:.0f}), {used / 1e9:.2f} GB at most; {run.steps} steps, "
          f"{run.attributed:.2%} on nodes")  # fmt: skip


def readable(folder: Path) -> None:
    """Which files of a folder can be read, and for how much of the kernel time its launch is known."""
    print("| trace | device | host events | kernels | ms | launched by a known operator | |")
    print("|---|---|---|---|---|---|---|")
    nothing = saved(DATA / "toy.json.gz")
    found = (p for p in folder.rglob("*") if p.name.endswith((".json", ".json.gz", ".sqlite")))
    for path in sorted(found):
        name = path.relative_to(folder)
        try:
            (trace,) = read(path)
        except ProfileError as error:
            print(f"| {name} | | | | | | {str(error).replace(str(path), 'it')} |")
            continue
        run = join(nothing, [trace])
        work = [e for e in (*run.events, *run.partial) if e.kind in DEVICE_KINDS]
        total = sum(e.seconds for e in work)
        assert abs(total - sum(w.seconds for w in trace.work)) <= 1e-9 * max(1, len(work))
        known = f"{sum(e.seconds for e in work if e.host) / total:.1%}" if total else ""
        counts = f"{len(trace.calls):,} | {len(trace.work):,}"
        print(f"| {name} | {trace.device_name or trace.device} | {counts} "
              f"| {total * 1e3:.3f} | {known} | {'cut off' if trace.cut else ''} |")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--pair", nargs=2, action="append", default=[], metavar=("PROFILE", "TRACE")
    )
    parser.add_argument("--graphs", type=Path, metavar="FOLDER")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--link", help="draw from those found in this way alone")
    parser.add_argument("--size", type=float, metavar="GB")
    parser.add_argument("--repeat", type=Path, default=DATA / "tracelens" / "qwen-h100.json.gz")
    parser.add_argument("--read", type=Path, metavar="FOLDER")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        one(asked.one)
    elif asked.size:
        large(asked.size, asked.repeat)
    elif asked.read:
        readable(asked.read)
    elif asked.sample:
        sample(asked.sample, asked.seed, asked.link, asked.pair)
    elif asked.graphs:
        asked.graphs.mkdir(parents=True, exist_ok=True)
        table(traced(asked.graphs), alone=True)
    else:
        table(asked.pair)


if __name__ == "__main__":
    main()
