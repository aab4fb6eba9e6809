"""In how many bits is a model best kept on a device? Weights, what a decoding step needs of the memory, and
its time, on paper: `python examples/quantized.py [MODEL] [DEVICE …]`."""

from __future__ import annotations

import sys

import opgraph
from opgraph.record.units import seconds, size

SCHEMES = (
    {"weights": "none"},
    {"weights": "int8"},
    {"weights": "int4"},
    {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"},
    {"weights": "nvfp4", "activations": "fp4"},
)


def main(model: str = "Qwen/Qwen2.5-0.5B", *devices: str) -> None:
    step = opgraph.profile(model, mode="decode", context_len=4096, batch_size=8, dtype="bfloat16")
    for device in devices or ("a100-sxm4-80gb", "h100-sxm", "b200"):
        print(device)
        for scheme in SCHEMES:
            costed = step.on(device, run="engine", **scheme)
            taken = seconds(costed.prediction.seconds)
            print(f"  {size(costed.totals.weight_bytes):>11} {size(costed.fit.needed):>11} {taken:>9}",
                  ", ".join(f"{name} {value}" for name, value in scheme.items()))  # fmt: skip
            for remark in costed.remarks:
                if remark.code == "dequantized":
                    print(f"  {'':33} {remark.text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
