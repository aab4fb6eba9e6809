"""The formulas, one file for each kind of work. Every file here is imported for what it registers, so a
new file needs no entry anywhere else."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
