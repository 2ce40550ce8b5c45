"""A verification as strict JSON: `schema` first, non-finite numbers as the strings "NaN", "Infinity" and "-Infinity".

Differences are after - before; latencies are in seconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import format_target
from parityscope.checks.generated_inputs import findings_about
from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from parityscope.case import Case
    from parityscope.verification.records import MeasuredSide, Verification

KIND = "verification"


def verification_document(found: Verification, case: Case, *, command: str = "") -> dict[str, Any]:
    """Everything that a verification says, as plain data."""
    model, inputs = case.model, case.inputs
    return plain_items(
        {
            **document_head(command, kind=KIND),
            "verdict": found.verdict,
            "refuted": found.refuted,
            "because": found.because,
            "findings": list(findings_about(inputs)),
            "needed": found.needed,
            "model": {
                "name": case.name,
                "path": str(model.named),
                "sha256": model.sha256,
                "nodes": model.nodes,
                "nbytes": model.nbytes,
            },
            "inputs": {
                "origin": inputs.origin,
                "sha256": inputs.sha256,
                "generated": inputs.generated,
                "samples": found.samples,
            },
            "reference": _side_as_data(found.reference),
            "before": _side_as_data(found.before),
            "after": _side_as_data(found.after),
            "quantities": [{**asdict(one), "difference": one.difference} for one in found.quantities],
            "budgets": found.budgets,
            "outputs": found.outputs,
            "latency": found.latency,
            "regressions": found.regressions,
            "skipped": found.skipped,
            "seed": found.seed,
            "seconds": found.seconds,
        }
    )


def _side_as_data(side: MeasuredSide) -> dict[str, Any]:
    return {**asdict(side), "target": format_target(side.target)}
