"""Fast Fourier transforms."""

from __future__ import annotations

from math import log2, prod

from opgraph.costs.registry import Call, Sizes, formula


def _complex(sizes: Sizes, dims: list[int]) -> float:
    """5 n log2 n for n points along each dimension."""
    return sum(5 * prod(sizes) * log2(sizes[d]) for d in dims if sizes[d] > 1)


@formula("fft", "aten._fft_c2c")
def complex_transform(call: Call) -> int:
    """5 n log2 n for a transform of n points along each dimension.

    Source: Frigo and Johnson, benchFFT (fftw.org/speed/method.html), after the radix-2 algorithm of Cooley
    and Tukey, 1965: n / 2 log2 n butterflies, each a complex product (6) and two complex sums (4).
    """
    return int(_complex(call.inputs[0], call.args[1]))


@formula("fft", "aten._fft_r2c")
def real_transform(call: Call) -> int:
    """2.5 n log2 n for a transform of n real points: half of a complex one.

    Source: Frigo and Johnson, benchFFT (fftw.org/speed/method.html).
    """
    return int(_complex(call.inputs[0], call.args[1]) / 2)


@formula("fft", "aten._fft_c2r")
def real_inverse(call: Call) -> int:
    """2.5 n log2 n for n real results: half of a complex transform.

    Source: Frigo and Johnson, benchFFT (fftw.org/speed/method.html).
    """
    return int(_complex(call.outputs[0], call.args[1]) / 2)
