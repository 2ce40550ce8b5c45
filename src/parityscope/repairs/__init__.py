"""Finding -> Patch: one repair per file, applied to a copy of the model.

A repair is a value of plain functions. `apply` edits a fresh graph in place for one finding and says what it did; it
gives None when it cannot be applied there, and then nothing was changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.plugins import discover

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.records import Finding

__all__ = ["Repair", "repairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A change of the model that keeps its function: what it is called in findings, and what may go wrong with it."""

    name: str
    title: str
    risk: str
    apply: Callable[[ir.Model, Finding], str | None]


def repairs() -> dict[str, Repair]:
    """Every repair there is, by name."""
    return {found.name: found for found, _ in discover("parityscope.repairs", "REPAIR", Repair).values()}
