"""The outcome of a repair as strict JSON: `schema` first, non-finite numbers as "NaN", "Infinity" and "-Infinity".

Errors are in units of the budget (above 1 misses it), modelled times in seconds, shares in [0, 1].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.checks.generated_inputs import findings_about
from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.repairs.search import RepairOutcome, RepairTask

SCHEMA = "parityscope-repair/1"


def repair_document(
    outcome: RepairOutcome, task: RepairTask, *, command: str = "", output: Path | None = None
) -> dict[str, Any]:
    """Everything that a repair says, as plain data. `output` is the file that was written, None for none."""
    model, inputs = task.model, task.inputs
    return plain_items(
        {
            **document_head(command, schema=SCHEMA),
            "verdict": outcome.verdict,
            "statement": outcome.statement,
            "model": {"name": model.named.stem, "path": str(model.named), "sha256": model.sha256, "nodes": model.nodes},
            "inputs": {"origin": inputs.origin, "samples": len(inputs), "generated": inputs.generated},
            "output": "" if output is None else str(output),
            "low": outcome.low,
            "typed": outcome.typed,
            "margin": outcome.margin,
            "all_low": None if math.isnan(outcome.all_low) else outcome.all_low,
            "budgets": task.policy.budgets,
            "findings": list(findings_about(inputs)),
            "deciding_nodes": outcome.nodes,
            "flags": outcome.flags,
            "edits": outcome.edits,
            "kept": outcome.kept,
            "chosen": outcome.chosen,
            "front": outcome.front,
            "trail": outcome.trail,
            "certificate": outcome.certificate,
            "search_samples": outcome.search_samples,
            "held_out": outcome.held_out,
            "evaluations": outcome.evaluations,
            "sensing": outcome.sensing,
            "casts": outcome.casts_written,
            "blocks": outcome.blocks,
            "skipped": outcome.skipped,
            "seconds": outcome.seconds,
        }
    )
