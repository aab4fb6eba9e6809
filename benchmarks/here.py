"""Predicted against measured time on the machine at hand, after `--calibrate`: 12 timm models, and 4
language models that read a prompt and decode at batch 1 and 16.

    taskset -c 0 python benchmarks/here.py             # one thread; prints every row, and the medians

Calibration and measurements take turns, round after round, and of each the least of all rounds counts.
One thread is timed by its processor time, since others may share the machine; what they leave in caches is
still felt, so the load is printed, too.
"""

from __future__ import annotations

import argparse
import os
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import timm
import torch
import transformers

import opgraph
from opgraph.analysis.timing.fitting import fit_sustained, left_over, measured_of, sustaining
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.hardware.calibrate import calibrate
from opgraph.hardware.devices import Figure, parse
from opgraph.record.graph import Graph

VISION = ("resnet18", "resnet50", "mobilenetv3_small_100", "efficientnet_b0", "regnety_004", "densenet121",
          "convnext_atto", "vit_tiny_patch16_224", "deit_small_patch16_224", "mixer_s32_224",
          "edgenext_small", "ghostnet_100")  # fmt: skip
"""Run at batch 1."""

LANGUAGE = {
    "gpt2": transformers.GPT2Config(),
    "pythia-70m": transformers.GPTNeoXConfig(
        hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048,
        vocab_size=50304,
    ),
    "opt-125m": transformers.OPTConfig(),
    "smollm2-135m": transformers.LlamaConfig(
        hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        intermediate_size=1536, vocab_size=49152, tie_word_embeddings=True,
    ),
}  # fmt: skip
PROMPT, CONTEXT = 128, 128
ROUNDS = 3
SECONDS = 0.4
"""How long a case is run again and again in a round."""

clock: Callable[[], float] = time.thread_time


@dataclass
class Case:
    """Something to run, its graph, and the least seconds that it took."""

    kind: str
    name: str
    run: Callable[[], object]
    graph: Graph
    seconds: float = float("inf")

    def measure(self) -> None:
        with torch.inference_mode():
            self.run()
            spent = 0.0
            while spent < SECONDS:
                start = clock()
                self.run()
                taken = clock() - start
                spent += taken
                self.seconds = min(self.seconds, taken)


def vision(name: str) -> Case:
    model = timm.create_model(name).eval()
    image = torch.randn(1, 3, 224, 224)
    return Case(
        "vision", name, lambda: model(image), opgraph.profile(model, (image,), target="cpu").graph
    )


def language(name: str, config: transformers.PretrainedConfig) -> list[Case]:
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    words = config.vocab_size

    ids = torch.randint(0, words, (1, PROMPT))

    def prompt() -> object:
        return model(input_ids=ids, use_cache=True, logits_to_keep=1)  # as generation does

    found = [Case("prefill", f"{name}, {PROMPT} tokens", prompt,
                  opgraph.profile(model, mode="prefill", seq_len=PROMPT, target="cpu").graph)]  # fmt: skip
    for batch in (1, 16):
        with torch.inference_mode():
            held = model(input_ids=torch.randint(0, words, (batch, CONTEXT)), use_cache=True)
        # The argument has the name of the result.
        kept, cache = next((k, v) for k, v in held.items() if isinstance(v, transformers.Cache))
        token = torch.randint(0, words, (batch, 1))

        def decode(
            kept: str = kept, cache: transformers.Cache = cache, token: torch.Tensor = token
        ) -> object:
            logits = model(input_ids=token, **{kept: cache}, use_cache=True).logits
            cache.crop(-1)
            return logits

        graph = opgraph.profile(
            model, mode="decode", batch_size=batch, context_len=CONTEXT, target="cpu"
        ).graph
        found.append(Case(f"decode at batch {batch}", name, decode, graph))
    return found


class Machine:
    """What calibration found, the best of several."""

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.rows: dict[int, float] = {}

    def calibrate(self) -> None:
        text, rows = calibrate(lambda _: None, clock)
        self.devices.append(parse(tomllib.loads(text), "this"))
        self.measured = list(map(measured_of, rows))
        for number, row in enumerate(rows):
            taken = float(row["seconds"])
            self.rows[number] = min(taken, self.rows.get(number, taken))

    @property
    def device(self) -> Device:
        """Rates are the highest and times the least of all rounds."""
        known = [d.figures for d in self.devices]
        best = {
            key: (min if key.startswith("host") or key.endswith(("overhead", "latency")) else max)(
                f[key].value for f in known
            )
            for key in known[0]
        }
        figures = {key: Figure(value, "measured") for key, value in best.items()}
        base = replace(self.devices[0], figures=figures)
        measured = [replace(one, seconds=self.rows[n]) for n, one in enumerate(self.measured)]
        keys = ("bandwidth", "vector", "product", "elementwise")
        left = {f"spread.{k}": Figure(v, "fit") for k, v in left_over(base, measured, keys).items()}
        found = sustaining(base, fit_sustained(base, measured, keys))
        return replace(found, figures={**found.figures, **left})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cases = [vision(name) for name in VISION]
    for name, config in LANGUAGE.items():
        cases += language(name, config)
    machine, loads = Machine(), []
    for _ in range(args.rounds):
        machine.calibrate()
        loads.append(os.getloadavg()[0])
        for case in cases:
            case.measure()
    machine.calibrate()
    found = machine.device
    shown = ", ".join(f"{k} {f.value:.3g}" for k, f in found.figures.items())
    print(f"1 thread, {args.rounds} rounds, load {min(loads):.1f} to {max(loads):.1f}; {shown}")
    kinds: dict[str, list[float]] = {}
    held, widths = 0, []
    for case in cases:
        predicted = predict(case.graph, found)
        low, high = predicted.interval
        ratio = predicted.seconds / case.seconds
        kinds.setdefault(case.kind, []).append(ratio)
        inside = "" if low <= case.seconds <= high else "  outside of its interval"
        held += not inside
        widths.append((high - low) / predicted.seconds)
        print(f"  {case.kind:20s} {case.name:28s} measured {case.seconds * 1e3:8.2f} ms  "
              f"predicted {predicted.seconds * 1e3:8.2f} ms  ratio {ratio:.2f}{inside}")  # fmt: skip
    for kind, ratios in [*kinds.items(), ("all", [r for rs in kinds.values() for r in rs])]:
        error = np.abs(np.array(ratios) - 1)
        text = f"{kind:20s} n {len(ratios):3d}  median error {np.median(error):6.1%}"
        print(f"{text}  mean {error.mean():6.1%}  median ratio {np.median(ratios):.2f}")
    print(f"intervals hold {held} of {len(cases)}, median width {np.median(widths):.0%}")


if __name__ == "__main__":
    main()
