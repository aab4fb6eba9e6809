"""What experiment loggers take, by their own plain interfaces: a dictionary of figures, a figure, a page.
docs/ci.md has the lines for TensorBoard, W&B and MLflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opgraph.analysis.costed import CostedRecord, terms
from opgraph.analysis.quantities import quantities
from opgraph.record import units
from opgraph.record.errors import MissingDependency
from opgraph.record.profile import ProfileRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure", "scalars", "to_tensorboard"]

_BARS = 10
"""Modules in the figure."""


def _costed(profile: ProfileRecord | CostedRecord) -> CostedRecord:
    return profile if isinstance(profile, CostedRecord) else CostedRecord(*terms(profile))


def scalars(profile: ProfileRecord | CostedRecord, prefix: str = "opgraph/") -> dict[str, float]:
    """The totals in base units, by name; on a device the predicted time, too."""
    costed = _costed(profile)
    found = {f"{prefix}{q.name}": q.of(costed) for q in quantities(costed.device)}
    return {name: float(value) for name, value in found.items() if value is not None}


def figure(profile: ProfileRecord | CostedRecord) -> Figure:
    """The costliest modules as bars, by time on a device, else by FLOPs. Raises `MissingDependency`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency("matplotlib", "plot") from None

    costed = _costed(profile)
    spots = costed.tree.hot_spots(_BARS)[::-1]
    drawn = Figure(figsize=(8, 0.4 * len(spots) + 1), layout="constrained")
    axes = drawn.add_subplot()
    bars = axes.barh(range(len(spots)), [s.share for s in spots], color="#4c78a8")
    axes.set_yticks(range(len(spots)), [s.label for s in spots], parse_math=False)
    axes.bar_label(bars, [units.percent(s.share) for s in spots], padding=3)
    axes.set_xlim(0, 1.15 * max((s.share for s in spots), default=1))
    axes.set_xticks([])
    of = "time" if costed.device is not None else "FLOPs"
    axes.set_title(f"{costed.profile.model.name}: share of the {of}", parse_math=False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    return drawn


def to_tensorboard(
    writer: Any, profile: ProfileRecord | CostedRecord, step: int | None = None
) -> None:
    """Log the figures, the report and the bars with a `SummaryWriter`."""
    from opgraph.views.text.markdown import to_markdown

    costed = _costed(profile)
    for name, value in scalars(costed).items():
        writer.add_scalar(name, value, step)
    writer.add_text("opgraph/report", to_markdown(costed), step)
    writer.add_figure("opgraph/costliest", figure(costed), step)
