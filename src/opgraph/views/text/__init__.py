"""Text for terminals and Markdown: tables, lists of nodes, summaries."""

import random

_drawn = random.getstate()
import rich.style  # noqa: E402, F401  (as it is imported, it draws one of Python's random numbers)

random.setstate(_drawn)
