"""What lint found as strict JSON: `schema` first, non-finite numbers as "NaN", "Infinity" and "-Infinity".

`findings` have the shape that a study's have. `verdict` is "beyond" with a cause, "incomplete" without one if a constant
could not be read, else "within".
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from parityscope.records import ROLES
from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from parityscope.linting import Lint


def lint_document(found: Lint, *, command: str = "") -> dict[str, Any]:
    """Everything that lint says, as plain data."""
    sheet = found.sheet
    return plain_items(
        {
            **document_head(command, kind="lint"),
            "verdict": "beyond" if found.broken else "incomplete" if found.skipped else "within",
            "model": {
                "name": sheet.path.stem,
                "path": str(sheet.path),
                "nbytes": sheet.nbytes,
                "nodes": len(sheet.places),
                "constants": len(sheet.constants),
                "opsets": {domain or "ai.onnx": int(opset) for domain, opset in sheet.model.opset_imports.items()},
                "ir_version": int(sheet.model.ir_version or 0),
                "producer": " ".join(
                    part for part in (sheet.model.producer_name, sheet.model.producer_version) if part
                ),
                "computes_in": sorted(sheet.typed),
            },
            "formats": [each.name for each in sheet.formats],
            "counts": {role: sum(one.role == role for one in found.findings) for role in ROLES},
            # Details are read-only mappings, which asdict cannot copy.
            "findings": [asdict(replace(one, details=dict(one.details))) for one in found.findings],
            "skipped": found.skipped,
        }
    )
