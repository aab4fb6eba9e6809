"""How many requests a second can a device serve before the first token takes too long?

`python examples/serving.py` tries rates until half of the requests wait more than a tenth of a second."""

from __future__ import annotations

import opgraph

LIMIT = 0.1


def main() -> None:
    rates = ",".join(str(2**i) for i in range(3, 9))
    served = opgraph.serve(
        "HuggingFaceTB/SmolLM2-135M", hardware="l4", request_rate=rates, requests=400,
        input_len="64-512", output_len="32-128",
    )  # fmt: skip
    print(served)
    kept = [p for p in served.points if p.first_token and p.first_token.p50 <= LIMIT]
    if kept:
        best = max(kept, key=lambda p: p.requests_per_second)
        print(
            f"\n{best.requests_per_second:.0f} requests a second within {LIMIT} s to the first token"
        )


if __name__ == "__main__":
    main()
