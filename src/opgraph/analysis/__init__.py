"""Everything that computes on a graph without torch: sums, module tree, bottlenecks."""

from opgraph.analysis.bottleneck import GENERIC_RIDGE, bottlenecks, classify
from opgraph.analysis.modules import ModuleCost, by_module, fold, module_tree
from opgraph.analysis.operators import OperatorCost, by_op
from opgraph.analysis.totals import Cost, Totals, cost_of, totals

__all__ = [
    "GENERIC_RIDGE",
    "Cost",
    "ModuleCost",
    "OperatorCost",
    "Totals",
    "bottlenecks",
    "by_module",
    "by_op",
    "classify",
    "cost_of",
    "fold",
    "module_tree",
    "totals",
]
