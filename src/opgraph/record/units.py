"""Every number that a person reads is formatted here."""

from __future__ import annotations

_DECIMAL = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_ITEM_SIZES = {
    "float64": 8, "double": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16,
    "float32": 4, "tfloat32": 4, "int32": 4, "uint32": 4, "complex32": 4, "qint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
}  # fmt: skip


def count(number: float, unit: str = "") -> str:
    """A count with a decimal prefix: 109.48M, 22.35 GFLOPs.

    Without a unit, thousands and millions stand right behind the number (109.48M, and B for 10**9 as
    the field writes parameters).
    """
    prefix, scaled = _scale(number)
    if not unit:
        return f"{scaled}{prefix.upper()}"
    return f"{scaled} {prefix}{unit}"


def _scale(number: float) -> tuple[str, str]:
    for factor, prefix in _DECIMAL:
        if abs(number) >= factor * 0.99995:
            return prefix, significant(number / factor)
    return "", significant(number)


def significant(number: float) -> str:
    """Two decimals below a thousand, none of whole numbers: 1.82, 12."""
    if number == int(number) and abs(number) < 1e15:
        return str(int(number))
    if 0 < abs(number) < 0.01:
        return f"{number:.1e}"
    return f"{number:.2f}"


def flops(number: float) -> str:
    """FLOPs: 3.63 GFLOPs."""
    return count(number, "FLOPs")


def macs(number: float) -> str:
    """Multiply-accumulates: 1.81 GMACs."""
    return count(number, "MACs")


def size(number: float) -> str:
    """Bytes in binary units: 417.65 MiB."""
    for factor, unit in _BINARY:
        if abs(number) >= factor * 0.99995:
            return f"{significant(number / factor)} {unit}"
    return f"{significant(number)} B"


def integer(number: int) -> str:
    """All digits, grouped: 109,482,240."""
    return f"{number:,}"


def percent(share: float) -> str:
    """A share of one: 12.3 %."""
    return f"{share * 100:.1f} %" if share < 0.9995 or share > 1.0005 else "100 %"


def seconds(number: float) -> str:
    """A duration: 1.30 s, 12.4 ms, 85 µs. Sums of the same parts in another order read the same."""
    number = _steady(number)
    if number >= 0.9995:
        return f"{number:.2f} s"
    if number >= 0.0009995:
        return f"{number * 1e3:.1f} ms"
    return f"{number * 1e6:.0f} µs"


def _steady(number: float) -> float:
    """The number without digits that depend on summing order."""
    return float(f"{number:.9g}")


def between(number: float, low: float, high: float) -> str:
    """A duration and its interval in one unit: 1.4 ms (1.3–1.6)."""
    text = seconds(number)
    figure, unit = text.split()
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit]
    digits = len(figure.partition(".")[2])
    first, last = (f"{_steady(n) * scale:.{digits}f}" for n in (low, high))
    return f"{text} ({first}–{last})"


def spread(number: float, unit: str, interval: tuple[float, float] | None = None) -> str:
    """An amount of a unit in three digits, and the interval that it is in: 1.40 kJ (0.92–2.10). There are
    no thousands of seconds."""
    small = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))
    large = () if unit == "s" else _DECIMAL
    factor, prefix = next((s for s in (*large, *small) if number >= s[0] * 0.9995), small[-1])
    scaled = number / factor
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    first, *rest = (f"{_steady(n) / factor:.{digits}f}" for n in (number, *(interval or ())))
    return f"{first} {prefix}{unit}" + (f" ({'–'.join(rest)})" if rest else "")


def intensity(value: float | None) -> str:
    """Arithmetic intensity in FLOPs per byte; a dash where nothing is moved."""
    return "—" if value is None else f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


def shape(dims: tuple[int | str, ...]) -> str:
    """1x3x224x224; a scalar is "scalar"."""
    return "x".join(str(d) for d in dims) or "scalar"


PACKED = frozenset({"int4", "float4", "nf4"})
"""Dtypes of which a byte holds two elements."""


def element_size(dtype: str) -> float:
    """Bytes of one element, half a byte where a byte holds two."""
    return 0.5 if dtype in PACKED else item_size(dtype)


def item_size(dtype: str) -> int:
    """Bytes of one element of a dtype, by its name without "torch."; names not listed take one byte."""
    return _ITEM_SIZES.get(dtype, 1)


def plural(number: int, noun: str) -> str:
    """1 node, 2 nodes, 15,909 kernels, 4 micro-batches, 3 boxes."""
    ending = "es" if noun.endswith(("ch", "x")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"
