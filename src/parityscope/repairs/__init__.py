"""Finding -> Patch: one repair per file, applied to a copy of the model; or one piece of advice, written as text.

A repair is a value of plain functions. `apply` edits a fresh graph in place for one finding and says what it did; it
gives None when it cannot be applied there, and then nothing was changed. A repair that changes the model's function
says so in `consent`, and does nothing unless `finding.details["consents"]` names it.

Advice is for what does not lie in the model: the order of bindings, preprocessing, settings of a runtime. `write` gives
the code or the command line for one finding, None when the finding does not say enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.records import Finding

_UNDO = "keep the original file; the repair only ever writes a copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A change of the model: what it is called in findings, what may go wrong with it, what it costs at run time.

    `exact` says that in FP32 the outputs stay the same bit for bit where nothing is subnormal. `consent` is what the
    reader must agree to because the function changes; "" where it stays the same.
    """

    name: str
    title: str
    risk: str
    apply: Callable[[ir.Model, Finding], str | None]
    cost: str = "none"
    undo: str = _UNDO
    exact: bool = False
    consent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Code or a command line that repairs what is outside of the model."""

    name: str
    title: str
    risk: str
    write: Callable[[Finding], str | None]
    cost: str = "none"
    undo: str = "take the written lines out again"


def known_repairs() -> dict[str, Repair]:
    """Every repair there is, by name."""
    return {found.name: found for found, _ in discover_plugins("parityscope.repairs", "REPAIR", Repair).values()}


def known_advice() -> dict[str, Advice]:
    """Every piece of advice there is, by name."""
    return {found.name: found for found, _ in discover_plugins("parityscope.repairs", "ADVICE", Advice).values()}
