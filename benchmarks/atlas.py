"""Make the atlas that comes with opgraph from datasets of surveys, its page, and docs/atlas.md with
questions to it and their answers.

    python benchmarks/atlas.py --models zoo.txt
    opgraph survey --models zoo.txt --mode infer --keep graphs -o infer
    opgraph survey --models zoo.txt --mode train --target cuda --keep graphs -o train
    opgraph survey --models zoo.txt --mode infer --batch-size 8,32,128 --derive --keep graphs -o sizes
    opgraph survey --recost --hardware h100-sxm,l4,… -o infer        (without torch)
    python benchmarks/atlas.py infer [train sizes …]      added to what the atlas has, or in its place
    python benchmarks/atlas.py --anew infer train sizes …      of these alone
    python benchmarks/atlas.py --models rest.txt --mode train [--batch-size 8]     names without such a case
    python benchmarks/atlas.py                  only the pages, from the atlas that is there

Each survey goes on where it was when it is asked again, and times are made anew when predictions change.
`--models FILE` writes the list of all names, the sources one after the other, each in an order that is
random and always the same: a survey that is cut short is a sample.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

from opgraph.cli import main as opgraph
from opgraph.sources.registry import listed
from opgraph.surveying.sql import BUILT_IN, Atlas, write_latencies

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "atlas.md"
ORDER = ("torchvision", "hf", "timm", "ultralytics", "diffusers", "hf-type")


QUESTIONS = {
    "Which detectors are quickest on an H100?": """
select name, parameters, flops, latency_h100_sxm from models
where task = 'object-detection' order by latency_h100_sxm, name limit 5""",
    "What does a batch gain over one item, in items a second, on which device?": """
with runs as (select device, spec, coalesce(batch_size, 1) as batch, throughput
  from times join cases using (id) where mode = 'infer' and fits)
select device, round(median(more.throughput / one.throughput) filter (where more.batch = 8), 1) as of_8,
  round(median(more.throughput / one.throughput) filter (where more.batch = 32), 1) as of_32,
  round(median(more.throughput / one.throughput) filter (where more.batch = 128), 1) as of_128,
  count(distinct spec) as models
from runs as more join runs as one using (device, spec) where one.batch = 1 and more.batch > 1
group by device order by of_128, device""",
    "Which model of each task is the largest?": """
select task, arg_max(name, (parameters, name)) as name, max(parameters) as parameters from models
where task <> '' group by task order by parameters desc, task limit 8""",
    "What do models wait for, on which device?": """
select device, round(100 * avg(compute_bound)) as compute_percent,
  round(100 * avg(memory_bound)) as memory_percent, round(100 * avg(launch_bound)) as launch_percent
from times join cases using (id) where mode = 'infer' and batch_size is null
group by device order by device""",
    "Which families of five models or more wait for memory most of their time, on which device?": """
with shares as (select device, family, avg(memory_bound) as share
  from times join cases using (id) where mode = 'infer' and batch_size is null and family <> ''
  group by device, family having count(*) >= 5)
select device, string_agg(family, ', ' order by share desc, family) as families
from shares where share > 0.5 group by device order by count(*), device""",
    "How far do FLOPs mislead about time? Their rank correlation by device, and by family": """
with ranked as (select device, percent_rank() over (partition by device order by flops) as by_flops,
    percent_rank() over (partition by device order by latency) as by_time
  from times join cases using (id) where mode = 'infer' and batch_size is null)
select device, round(corr(by_flops, by_time), 3) as rank_correlation, count(*) as models
from ranked group by device order by rank_correlation, device""",
    "… and on a T4 by family, the worst first": """
with ranked as (select family, percent_rank() over (partition by family order by flops) as by_flops,
    percent_rank() over (partition by family order by latency) as by_time
  from times join cases using (id)
  where device = 't4' and mode = 'infer' and batch_size is null and family <> '')
select family, round(corr(by_flops, by_time), 3) as rank_correlation, count(*) as models
from ranked group by family having count(*) >= 6 order by rank_correlation, family limit 6""",
    "Which models change rank most from an A100 to a Jetson AGX Orin?": """
with ranked as (select spec, rank() over (order by latency_a100_sxm4_80gb) as on_a100,
    rank() over (order by latency_jetson_agx_orin) as on_orin from models)
select spec, on_a100, on_orin, on_orin - on_a100 as places from ranked
order by abs(places) desc, spec limit 6""",
    "What would not fit on a T4?": """
select name, parameters, peak_memory, memory_share from times join cases using (id)
where device = 't4' and not fits and mode = 'infer' and batch_size is null
order by memory_share, name limit 5""",
    "Which names have no result, and why?": """
select source, stage, count(*) as names, min(spec) as for_example from cases
where not ok and mode = 'infer' and batch_size is null
group by source, stage order by names desc, source, stage limit 8""",
}


def answered(*sql: str) -> str:
    """What `opgraph atlas` prints, at 100 columns."""
    out = io.StringIO()
    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(out):
        status = opgraph(["atlas", *sql])
    assert status == 0, sql
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")


def page(found: Atlas) -> str:
    """docs/atlas.md."""
    modes = found.sql(
        "select mode, batch_size, count(*) as n, count(*) filter (where not ok) as bad, "
        "count(distinct spec) as specs, sum(cpu) / 3600 as hours, avg(cpu) as each "
        "from cases group by all order by mode, batch_size nulls first"
    ).records()
    named = len({f.spec for f in listed() if f.source in ORDER})
    size = sum(f.stat().st_size for f in BUILT_IN.iterdir())
    ((derived, wrong),) = found.sql(
        "select count(*) filter (where tracer = 'derived'), "
        "count(*) filter (where len(list_filter(failures, lambda f: f like 'derived%')) > 0) from cases"
    ).rows
    cases = [
        "| what runs | size | names | without a result | core-hours | seconds a case |",
        "|---|---|---:|---:|---:|---:|",
        *(
            f"| {'inference' if row['mode'] == 'infer' else 'a step of training'} | "
            + (f"a batch of {row['batch_size']}" if row["batch_size"] else "as usual")
            + f" | {row['specs']:,} | {row['bad']:,} "
            f"({100 * float(row['bad'] or 0) / float(row['n'] or 1):.1f} %) | {row['hours']:.2f} | "
            f"{row['each']:.2f} |"
            for row in modes
        ),
    ]
    parts = [
        "# The atlas\n",
        f"The atlas that comes with opgraph takes {size / 1e6:.1f} MB. Of {named:,} names it holds, each "
        f"on {len(found.devices)} devices:\n",
        "\n".join(cases) + "\n",
        "Made by `python benchmarks/atlas.py` from datasets of [`opgraph survey`](survey.md); the same "
        "commands go on with what is not there. Of other batches and of training the smallest graphs came "
        f"first. Of all cases {derived:,} were [worked out from others]"
        f"(survey.md#many-batches-from-two); of one in 16 such, which are traced all the same, "
        f"{wrong or 'none'} came out otherwise.\n",
        "[The page](every_model.html) has every model to search and sort, a plot of any two figures with "
        "the Pareto front, and the command that makes a model's own page. It is one file and needs no "
        "network; `opgraph atlas -o atlas.html` writes it.\n",
        "Times are predicted ([how well](prediction-accuracy.md)), in eager mode, for the usual sizes of "
        "each model if a question says nothing else: at a batch of one most models wait for the host, "
        "which is the same beside all GPUs, so devices differ little. What is in it:\n",
        "<!-- not run for the site: benchmarks/atlas.py ran it -->\n\n    opgraph atlas\n",
        f"```text\n{answered()}\n```\n",
        "## Ten questions\n",
        "The same in Python is `opgraph.atlas().sql(\"…\").to_pandas()`; `opgraph.atlas().to_pandas()` has "
        "all models.\n",
    ]  # fmt: skip
    for question, sql in QUESTIONS.items():
        query = sql.strip()
        parts += [
            f"**{question}**\n",
            f"```sql\n{query}\n```\n",
            f"```text\n{answered(query)}\n```\n",
        ]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("datasets", nargs="*", type=Path)
    parser.add_argument("--anew", action="store_true", help="of the datasets alone")
    parser.add_argument("--models", type=Path, metavar="FILE", help="only write the list of names")
    parser.add_argument("--mode", help="of those, the names that have no case of this mode yet")
    parser.add_argument("--batch-size", type=int, help="and of this batch, not the usual one")
    args = parser.parse_args()
    if args.models is not None:
        size = "is null" if args.batch_size is None else f"= {args.batch_size}"
        asked = f"select spec from cases where mode = '{args.mode}' and batch_size {size}"
        there = {row[0] for row in Atlas().sql(asked).rows} if args.mode else set()
        names = [
            f.spec
            for source in ORDER
            for f in sorted(listed((), source), key=lambda f: sha256(f.name.encode()).digest())
            if f.spec not in there
        ]
        args.models.write_text("\n".join(names) + "\n", encoding="utf-8")
        return 0
    if args.datasets:
        with tempfile.TemporaryDirectory() as place:
            Atlas(*([] if args.anew else [BUILT_IN]), *args.datasets).save(Path(place) / "atlas")
            shutil.rmtree(BUILT_IN)
            shutil.copytree(Path(place) / "atlas", BUILT_IN)
    found = Atlas()
    write_latencies(found)
    found.save(DOCS / "every_model.html")
    PAGE.write_text(page(found), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
