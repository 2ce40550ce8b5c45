"""A verification as strict JSON: `schema` first, non-finite numbers as the strings "NaN", "Infinity" and "-Infinity".

Differences are after - before; latencies are in seconds, sizes in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import format_target

if TYPE_CHECKING:
    from parityscope.case import Case
    from parityscope.verification.records import Side, Verification

__all__ = ["KIND", "SCHEMA", "document"]

SCHEMA = "parityscope/1"
KIND = "verification"


def document(found: Verification, case: Case, *, version: str, command: str = "") -> dict[str, Any]:
    """Everything that a verification says, as plain data."""
    model, inputs = case.model, case.inputs
    held = {
        "schema": SCHEMA,
        "kind": KIND,
        "tool": {"name": "parityscope", "version": version},
        "command": command,
        "verdict": found.verdict,
        "refuted": found.refuted,
        "because": list(found.because),
        "needed": found.needed,
        "model": {
            "name": case.name,
            "path": str(model.path),
            "sha256": model.sha256,
            "nodes": model.nodes,
            "nbytes": model.nbytes,
        },
        "inputs": {
            "origin": inputs.origin,
            "sha256": inputs.sha256,
            "generated": inputs.generated,
            "samples": list(found.samples),
        },
        "reference": _side(found.reference),
        "before": _side(found.before),
        "after": _side(found.after),
        "quantities": [{**asdict(one), "difference": one.difference} for one in found.quantities],
        "budgets": list(found.budgets),
        "outputs": list(found.outputs),
        "latency": found.latency,
        "regressions": list(found.regressions),
        "skipped": list(found.skipped),
        "seed": found.seed,
        "seconds": found.seconds,
    }
    plain: dict[str, Any] = _plain(held)
    return plain


def _side(side: Side) -> dict[str, Any]:
    return {**asdict(side), "target": format_target(side.target)}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
