"""The costs section of a model card: Markdown under YAML metadata, as hubs read it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.version import __version__
from opgraph.views.headline import way, whole_of
from opgraph.views.tables import markdown_cell, markdown_table
from opgraph.views.text.summary import inputs_of

__all__ = ["card"]

_SPOTS = 5
"""Modules that are named."""


def card(costed: CostedRecord) -> str:
    """The section, with the predicted time where the profile is on a device."""
    profile, t = costed.profile, costed.totals
    inputs = inputs_of(costed.graph)
    timed = [(c.device, c.prediction) for c in (costed,) if c.device and c.prediction]
    about: dict[str, object] = {
        "opgraph_version": __version__,
        "mode": profile.mode,
        "inputs": inputs,
        "parameters": t.parameters,
        "weight_bytes": t.weight_bytes,
        "flops": t.flops,
        "macs": t.macs,
        "bytes": t.bytes,
        "peak_memory_bytes": costed.peak_memory,
        "coverage": round(t.coverage, 4),
        "predicted_seconds": {device.id: float(f"{p.seconds:.4g}") for device, p in timed},
    }
    rows = [
        ("Parameters", f"{units.count(t.parameters)} ({units.size(t.weight_bytes)})"),
        ("FLOPs", f"{units.flops(t.flops)}, 2 a MAC, in matrix products and convolutions"),
        ("Bytes moved", f"{units.size(t.bytes)}, {costed.traffic}"),
        ("Peak memory", f"{units.size(costed.peak_memory)}, weights included"),
        ("Known costs", f"{units.percent(t.coverage)} of {units.plural(t.kernels, 'kernel')}"),
        *(
            (f"Time on {device.name}", f"{p.written}, predicted{way(costed.run)}")
            for device, p in timed
        ),
    ]
    lines = ["---", *_yaml({"opgraph": about}), "---", "", "## Computational cost", ""]
    lines += [
        f"One run ({profile.mode}) on {markdown_cell(', '.join(inputs) or 'no tensors')}.",
        "",
    ]
    lines += [*markdown_table(("", ""), rows), ""]
    spots = costed.tree.hot_spots(_SPOTS)
    heads = ("costliest modules", f"share of {whole_of(costed)}")
    lines += markdown_table(heads, ((s.label, units.percent(s.share)) for s in spots), numbers=(1,))
    lines += ["", *(f"- {markdown_cell(r)} (`{r.code}`)" for r in costed.remarks)]
    lines += [
        *([""] if costed.remarks else []),
        f"Counted by [opgraph](https://github.com/opgraph/opgraph) {__version__}.",
    ]
    return "\n".join(lines) + "\n"


def _yaml(data: Mapping[str, object], indent: str = "") -> list[str]:
    """Mappings as YAML; what they hold is written as JSON, which YAML reads."""
    lines = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{key}:", *_yaml(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}")
    return lines
