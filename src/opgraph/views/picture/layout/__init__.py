"""A layered layout for boxes in boxes. Each open box is laid out by itself, the innermost first: ranks,
order within ranks, coordinates, tracks for the lines between ranks, and columns where it would get too
tall. As every open box is a small graph, time grows with the size of the picture and not with its square.

Everything here is in abstract coordinates: `u` runs across the flow and `v` along it, so that top to
bottom and left to right are the same layout.
"""

from opgraph.views.picture.layout.cells import Spacing
from opgraph.views.picture.layout.compound import Geometry, Rect, arrange

__all__ = ["Geometry", "Rect", "Spacing", "arrange"]
