"""Measuring the machine at hand: matrix products of one row to thousands, convolutions, attention, copies,
and calls that have nothing to do. Runs on CUDA where there is a GPU, else on the CPU."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

_PRODUCTS = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192)}
_COPIES = {"cpu": (2**22, 2**24, 2**26, 2**27), "cuda": (2**24, 2**26, 2**28, 2**29)}
_DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "float16", "bfloat16")}
_SECONDS = 0.15
"""How long each measurement is repeated; the best counts, since other work can only slow one down."""


_ROWS = (512, 4096)
"""Elements of a short and of a long row of weights."""

_COLD = 2**28
"""Bytes that no cache holds."""

_CAPTURED = 512
"""Runs that are captured together on a GPU, at most: so many small weights are more than a cache holds."""

Row = dict[str, str | int | float]
"""A measured kernel, with the columns that `analysis.timing.fitting` says."""

Best = Callable[[Callable[[], object]], float]
"""The seconds of the shortest of several runs of something."""


def calibrate(
    say: Callable[[str], object], clock: Callable[[], float] = time.perf_counter
) -> tuple[str, list[Row]]:
    """Measure, and return the device file and the kernels from which it can be fitted what is sustained.
    `say` is told what is being measured; seconds are those of a `clock`, which may be the processor time of
    one thread where others share the machine. Random numbers and precision are as before afterwards."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng([torch.cuda.current_device()] if kind == "cuda" else []):
        return _calibrated(kind, say, clock)


def _calibrated(
    kind: str, say: Callable[[str], object], clock: Callable[[], float]
) -> tuple[str, list[Row]]:
    best = partial(_best, kind, clock)
    peaks, products = dict[str, float](), dict[str, dict[int, float]]()
    for dtype in (*_DTYPES[kind], *["tfloat32"] * _has_tfloat32(kind)):
        found = products[dtype] = dict(_products(kind, dtype, best))
        size, peaks[dtype] = max(found.items(), key=lambda i: i[1])
        say(f"{dtype} product of {size} x {size}: {peaks[dtype] / 1e9:.0f} GFLOP/s")
    cache = _cache(kind)
    copies = {size: _copy(kind, size, best) for size in _COPIES[kind]}
    copied = copied_at(kind, copies, cache)
    bandwidth = copies[copied]
    drawn = _copy(kind, cache // 8, best) if kind == "cpu" and cache else 0.0
    say(f"copy of {copied >> 20} MiB: {bandwidth / 1e9:.1f} GB/s")
    late = _row_latency(best) if kind == "cpu" else 0.0
    say(f"a row of weights comes after {late * 1e9:.0f} ns")
    overhead = _overhead(kind, best)
    say(f"an operator with nothing to do: {overhead * 1e6:.1f} µs")
    dtype = "float32" if kind == "cpu" else "float16"
    rows = list(_kernels(kind, dtype, best))
    say(f"{len(rows)} products of 1, 16 and 128 rows, convolutions, attention and copies")
    rows += large_products(kind, dtype, products[dtype])
    host = _host(kind, clock)
    say(f"a call of an operator {host[0] * 1e6:.1f} µs, of a module {host[1] * 1e6:.1f} µs")
    memory = {"bandwidth": bandwidth, "cache": cache, "cache_bandwidth": max(drawn, bandwidth),
              "row_latency": late}  # fmt: skip
    return _file(kind, peaks, memory, overhead, host), rows


def copied_at(kind: str, copies: Mapping[int, float], cache: int) -> int:
    """The size of the copy whose bytes a second are those of the memory: on a GPU the quickest of those
    that its cache does not hold, on a CPU the largest, of which its caches hold least."""
    beyond = {size: rate for size, rate in copies.items() if size > cache}
    return (
        max(copies) if kind == "cpu" or not beyond else max(beyond, key=lambda size: beyond[size])
    )


def large_products(kind: str, dtype: str, found: Mapping[int, float]) -> list[Row]:
    """The square products by which a GPU's matrix units are known, by size and FLOP/s: small kernels keep
    few of the units at work, and alone would tell of none what it sustains. A CPU's few are kept by
    products of 128 rows."""
    return [
        {"op": "product", "dtype": dtype, "m": n, "n": n, "k": n, "seconds": 2 * n**3 / rate}
        for n, rate in found.items()
        if kind == "cuda"
    ]


def _kernels(kind: str, dtype: str, best: Best) -> Iterator[Row]:
    """Kernels as models have them, and their seconds."""
    made = partial(torch.randn, device=kind)
    precise = getattr(torch, dtype)
    for n, k in ((768, 768), (3072, 768), (1024, 4096), (4096, 4096)):
        weights = list(_many(partial(made, n, k), precise))
        for m in (1, 16, 128):
            a = made(m, k).to(precise)
            seconds = best(_next(partial(torch.nn.functional.linear, a), weights))
            yield {"op": "product", "dtype": dtype, "m": m, "n": n, "k": k, "cold": 1,
                   "seconds": seconds}  # fmt: skip
    for channels, size, window in ((64, 56, 3), (256, 14, 3), (256, 56, 1), (512, 28, 1)):
        x = made(1, channels, size, size).to(precise)
        weights = list(_many(partial(made, channels, channels, window, window), precise))
        seconds = best(_next(partial(torch.conv2d, x, padding=window // 2), weights))
        yield {"op": "convolution", "dtype": dtype, "m": size * size, "n": channels,
               "k": channels * window**2, "window": window**2, "cold": 1, "seconds": seconds}  # fmt: skip
    for tokens in (128, 512):
        q, k_, v = (made(1, 12, tokens, 64).to(precise) for _ in range(3))
        attend = torch.nn.functional.scaled_dot_product_attention
        yield {"op": "attention", "dtype": dtype, "batch": 12, "m": tokens, "n": tokens, "k": 64,
               "seconds": best(partial(attend, q, k_, v))}  # fmt: skip
    for elements in (2**16, 2**20):
        x = made(elements).to(precise)
        yield {"op": "gelu", "dtype": dtype, "m": elements,
               "seconds": best(partial(torch.nn.functional.gelu, x))}  # fmt: skip
    for elements in (2**18, 2**22, 2**25):
        x = made(elements).to(precise)
        yield {"op": "copy", "dtype": dtype, "m": elements,
               "seconds": best(partial(torch.empty_like(x).copy_, x))}  # fmt: skip


def _many(made: Callable[[], torch.Tensor], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Weights that no cache holds together."""
    size = 0
    while size < _COLD:
        weight = made().to(dtype)
        size += weight.nbytes
        yield weight


def _next(
    run: Callable[[torch.Tensor], object], weights: list[torch.Tensor]
) -> Callable[[], object]:
    """To run with one weight after the other, as a model does: none is in a cache when its turn comes."""
    turns = itertools.cycle(weights)
    return lambda: run(next(turns))


class _Block(torch.nn.Module):
    """Calls as a model has them, with nothing to do: 15 of operators and 7 of modules."""

    CALLS, MODULES = 15, 7

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.qkv, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(found.transpose(1, 2).reshape(1, 1, 8))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def _host(kind: str, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of a call of an operator, and of a module beside its operator; on a GPU those that the host
    needs, without waiting for it."""
    x, block = torch.ones(1, 1, 8, device=kind), _Block().to(kind)
    layer, call = block.out, torch.nn.functional.linear

    def seconds(run: Callable[[], object]) -> float:
        best = float("inf")
        with torch.inference_mode():
            for _ in range(20):
                start = clock()
                for _ in range(100):
                    run()
                best = min(best, (clock() - start) / 100)
        return best

    alone = seconds(lambda: call(x, layer.weight, layer.bias))
    module = max(seconds(lambda: layer(x)) - alone, 1e-7)
    return max(seconds(lambda: block(x)) - _Block.MODULES * module, 1e-6) / _Block.CALLS, module


def _products(kind: str, dtype: str, best: Best) -> Iterator[tuple[int, float]]:
    """Sizes and FLOP/s, up to a size of which one product alone fills the time: processors without
    instructions for a dtype are a hundred times slower in it, and no faster with larger ones."""
    precise = dtype.replace("tfloat", "float")
    with _precision("tf32" if dtype == "tfloat32" else "ieee"):
        for n in _PRODUCTS[kind]:
            a, b = (torch.randn(n, n, device=kind).to(getattr(torch, precise)) for _ in range(2))
            out = torch.empty_like(a)
            seconds = best(partial(torch.mm, a, b, out=out))
            yield n, 2 * n**3 / seconds
            if seconds > _SECONDS:
                return


@contextmanager
def _precision(of: str) -> Iterator[None]:
    """Within, a GPU multiplies float32 with this precision."""
    products = torch.backends.cuda.matmul
    before, products.fp32_precision = products.fp32_precision, of
    try:
        yield
    finally:
        products.fp32_precision = (
            "none"  # then it says what is set for all, which may be what it was
        )
        if products.fp32_precision != before:
            products.fp32_precision = before


def _has_tfloat32(kind: str) -> bool:
    """Whether there are matrix units that multiply float32 with fewer bits."""
    ours = kind == "cuda" and torch.version.hip is None
    return ours and torch.cuda.get_device_capability() >= (8, 0)


def _copy(kind: str, size: int, best: Best) -> float:
    """Bytes read and written a second."""
    source = torch.ones(size // 4, device=kind)
    target = torch.empty_like(source)
    return 2 * size / best(lambda: target.copy_(source))


def _row_latency(best: Best) -> float:
    """Seconds by which a row of weights comes later than what lies behind it: short rows against long ones
    of as many bytes, which no cache holds."""
    rows, seconds = [], []
    for k in _ROWS:
        rows.append(_COLD // (4 * k))
        weight, x = torch.ones(rows[-1], k), torch.ones(1, k)
        seconds.append(best(partial(torch.nn.functional.linear, x, weight)))
    return max(0.0, (seconds[0] - seconds[1]) / (rows[0] - rows[1]))


def _overhead(kind: str, best: Best) -> float:
    """Seconds an operator of one element takes, many in a row."""
    x = torch.ones(1, device=kind)

    def many() -> None:
        for _ in range(1000):
            x.add_(1)

    return best(many) / 1000


def _best(kind: str, clock: Callable[[], float], run: Callable[[], object]) -> float:
    """The shortest of several runs, in seconds."""
    if kind == "cuda":
        return _best_on_device(run)

    def once() -> float:
        start = clock()
        run()
        return clock() - start

    once()
    best, end = once(), clock() + _SECONDS
    while clock() < end:
        best = min(best, once())
    return best


def _best_on_device(run: Callable[[], object]) -> float:
    """The seconds of a run on a GPU, by its own clock, the shortest of several. Most kernels are done
    before the host has launched the next one: so many are captured in a graph, which is launched once."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(work: Callable[[], object]) -> float:
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # libraries set themselves up before a capture
        run()
        once = timed(run)
    torch.cuda.current_stream().wait_stream(aside)
    runs = min(max(int(_SECONDS / 4 / once), 1), _CAPTURED)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            run()
    timed(graph.replay)
    best, stop = timed(graph.replay), time.perf_counter() + _SECONDS
    while time.perf_counter() < stop:
        best = min(best, timed(graph.replay))
    return best / runs


def _file(
    kind: str,
    peaks: dict[str, float],
    memory: dict[str, float],
    overhead: float,
    host: tuple[float, float],
) -> str:
    rates = "\n".join(f'{dtype} = [{rate:.4g}, "measured"]' for dtype, rate in peaks.items())
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name, units = properties.name, properties.multi_processor_count
        memory["capacity"], kind = properties.total_memory, "gpu"
        del memory["cache_bandwidth"]  # what a GPU's units draw from it follows from their number
        rates = f'[matrix]\n{rates}\n\n[vector]\nfloat32 = [{peaks["float32"]:.4g}, "measured"]'
    else:
        name, units = platform.processor() or platform.machine() or "CPU", torch.get_num_threads()
        memory["capacity"], rates = _memory(), f"[vector]\n{rates}"
    held = "\n".join(f'{key} = [{value:.4g}, "measured"]' for key, value in memory.items() if value)
    return f"""name = "{_quoted(name)} (measured)"
vendor = "this machine"
kind = "{kind}"
architecture = "{_quoted(platform.machine() or "unknown")}"

[sources]
measured = "opgraph hardware --calibrate, torch {torch.__version__}, the best of its runs"

{rates}

[memory]
{held}

[execution]
units = [{units}, "measured"]
launch_overhead = [{overhead:.3g}, "measured"]

[host]
call = [{host[0]:.3g}, "measured"]
module = [{host[1]:.3g}, "measured"]
"""


def _cache(kind: str) -> int:
    """Bytes of the last-level cache; 0 where the machine does not say."""
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    found = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text("ascii").strip()
        found.append(int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1:], 0))
    return max(found)


def _memory() -> int:
    """The machine's memory in bytes."""
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _quoted(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")
