"""One family of hostile cases a file, whose last line is the family; files that begin with "_" hold more of its rules."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proving.hostile.cases import Family


def every_family() -> list[Family]:
    """All families, by name."""
    modules = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name[0] != "_")
    return [importlib.import_module(f"{__name__}.{name}").FAMILY for name in modules]
