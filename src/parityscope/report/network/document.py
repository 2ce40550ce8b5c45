"""The network view as strict JSON: `schema` first, every node with its fate, findings in the shape that a study's have.

`verdict` is "beyond" when nothing was built, else "within".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from parityscope.records import ROLES
from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from parityscope.backends.tensorrt.network import NetworkView
    from parityscope.records import Finding


def network_document(
    view: NetworkView, findings: Sequence[Finding], *, model: Path, command: str = ""
) -> dict[str, Any]:
    """Everything that the view says, as plain data."""
    return plain_items(
        {
            **document_head(command, kind="network"),
            "verdict": "beyond" if view.problem else "within",
            "model": {"name": model.stem, "path": str(model)},
            "built_by": view.version,
            "problem": view.problem,
            "seconds": view.seconds,
            "plan_nbytes": view.plan_nbytes,
            "inputs": {
                "file": view.file_inputs,
                "network": view.inputs,
                "engine": view.engine_inputs,
            },
            "outputs": view.outputs,
            "network_layers": {
                "total": sum(view.layers.values()),
                "helpers": view.helpers,
                "unmapped": view.unmapped,
                "by_kind": view.layers,
            },
            "types_after_parsing": view.types,
            "engine_layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "nodes": layer.nodes,
                    "types": layer.types,
                    "kernel": layer.tactic,
                    "asked": executed.asked,
                    "stored": executed.stored,
                }
                for layer, executed in zip(view.engine_layers, view.executed.layers, strict=True)
            ],
            "fixed": view.fixed,
            "settled": view.settled is not None,
            "wordless": view.wordless,
            "fates": Counter(node.fate for node in view.nodes),
            "nodes": view.nodes,
            "counts": {role: sum(one.role == role for one in findings) for role in ROLES},
            "findings": findings,
            "skipped": view.skipped,
        }
    )
