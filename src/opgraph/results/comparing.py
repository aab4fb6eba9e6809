"""`Comparison`, `Sweep` and `CheckedTracers`: several models, one at many sizes, or one by several
tracers, as a person holds them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opgraph.analysis.check.agreement import Agreement
from opgraph.analysis.compare import comparison
from opgraph.analysis.compare.comparison import ComparisonRecord
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.parallel.composing import Planned
from opgraph.analysis.scaling.sweep import SweepRecord
from opgraph.analysis.serving import curve
from opgraph.analysis.serving.curve import ServingRecord
from opgraph.record import units
from opgraph.record.files import write_atomically
from opgraph.views import Result, render, view_for


class _Face:
    """What comparisons and sweeps show alike."""

    _result: Result
    if TYPE_CHECKING:

        def records(self) -> list[dict[str, Any]]: ...

    @property
    def _asked(self) -> frozenset[str]:
        """The options that what is shown was costed with, as far as a view may not show them."""
        return frozenset()

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a file as its suffix says, whole or not at all.

        Raises `RenderError` for a suffix that nothing writes, or an option that is not heeded.
        """
        view = view_for(path, result=self._result)
        write_atomically(path, view.load()(self, **view.check(options, self._asked)))

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row a point of a sweep, or a rate of a model served."""
        from opgraph.views.tables import frame

        return frame(self.records())

    def __str__(self) -> str:
        return str(render(self._result, self))

    def _repr_html_(self) -> str:
        from html import escape

        # Said here, for what is around it may have letters of many widths, and break lines.
        style = "font-family:monospace;line-height:1.25;white-space:pre;overflow-x:auto"
        return f'<pre style="{style}">{escape(str(self))}</pre>'


class Comparison(_Face, ComparisonRecord):
    """Some models, compared with the first of them (see `ComparisonRecord`)."""

    _result = "comparison"

    @property
    def _asked(self) -> frozenset[str]:
        """The options that some of the models were costed with."""
        return frozenset[str]().union(*(model.asked for model in self.models))

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the totals, one row a model."""
        from opgraph.views.tables import frame

        rows = [
            {"model": label, **{q.name: q.of(model) for q in self.quantities}}
            for label, model in zip(self.labels, self.models, strict=True)
        ]
        return frame(rows, "model")

    def __repr__(self) -> str:
        broken = f", {units.plural(len(self.broken), 'broken gate')}" if self.broken else ""
        return f"<Comparison of {', '.join(self.labels)}{broken}>"


class Sweep(_Face, SweepRecord):
    """A model at many sizes (see `SweepRecord`)."""

    _result = "sweep"

    @property
    def _asked(self) -> frozenset[str]:
        """What was asked of it: formulas, a device."""
        asked = {"symbolic": self.profile, "hardware": self.device}
        return frozenset(name for name, found in asked.items() if found is not None)

    def __repr__(self) -> str:
        return f"<Sweep of {self.model}: {units.plural(len(self.points), 'point')}>"


class Serving(_Face, ServingRecord):
    """A model served by an engine, at some rates (see `ServingRecord`)."""

    _result = "serving"

    @property
    def _asked(self) -> frozenset[str]:
        """It is of a device."""
        return frozenset({"hardware"})

    def __repr__(self) -> str:
        return f"<Serving of {self.model}: {units.plural(len(self.points), 'rate')}>"


class Plan(_Face, Planned):
    """The best layouts of a step of training over some devices (see `Planned`)."""

    _result = "plan"

    def __repr__(self) -> str:
        return f"<Plan of {self.model}: {units.plural(len(self.best), 'layout')}>"


class ServingPlan(_Face, curve.ServingPlan):
    """The best engines over some devices (see `opgraph.analysis.serving.curve.ServingPlan`)."""

    _result = "plan"

    def __repr__(self) -> str:
        return f"<ServingPlan of {self.model}: {units.plural(len(self.best), 'layout')}>"


class CheckedTracers(Agreement):
    """Tracers side by side on one model (see `Agreement`)."""

    def __repr__(self) -> str:
        verdict = "agree" if self.agree else "do not agree"
        return f"<{units.plural(len(self.trials), 'tracer')} of {self.model} {verdict}>"

    def __str__(self) -> str:
        from opgraph.views.text.check import check_text

        return check_text(self)


def compared(
    models: Sequence[CostedRecord],
    labels: Sequence[str] | None = None,
    fail_if: str | Sequence[str] = (),
) -> Comparison:
    """Compare models with the first of them (see `analysis.compare`)."""
    found = comparison.compared(models, labels, fail_if)
    return Comparison(found.models, found.labels, found.verdicts)
