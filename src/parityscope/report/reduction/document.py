"""What a reduction found as strict JSON: `schema` first, non-finite numbers as "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.targets import format_target, with_option
from parityscope.case import load_model
from parityscope.case.graph import computing_nodes
from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.records import Target
    from parityscope.study.reduction import Reduced

SCHEMA = "parityscope-reduction/1"
_SHOWN = 8  # values of a tensor


def reduction_document(found: Reduced, *, command: str = "") -> dict[str, Any]:
    """Everything that a reduction says, as plain data; files are named as they lie in the zip."""
    piece, study = found.piece, found.document
    graph = piece.model.graph()
    return plain_items(
        {
            **document_head(command, schema=SCHEMA),
            "finding": found.pattern,
            "claim": next((one["claim"] for one in study["findings"] if one["code"] == found.pattern.code), ""),
            "nodes": {"before": found.whole, "after": piece.nodes},
            "elements": {"before": found.elements[0], "after": found.elements[1]},
            "runs": found.runs,
            "reference": _side_as_data(piece.reference, study["reference"]),
            "candidate": _side_as_data(piece.candidate, study["candidate"], recorded=piece.answers is not None),
            "environment": study["environment"],
            "model": [_node_as_text(node) for node in computing_nodes(graph)],
            "candidate_model": _candidate_nodes(piece.candidate),
            "inputs": [_tensor_as_data(name, array) for name, array in piece.samples[0].items()],
            "outputs": _outputs_as_data(found, study["outputs"]),
            "samples": len(piece.samples),
            "opsets": dict(piece.model.opsets),
            "attempts": found.attempts,
            "skipped": found.skipped,
            "notes": found.notes,
        }
    )


def _side_as_data(target: Target, told: Mapping[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    runtime = backend_named(target.backend)
    own = bool(target.option("model"))
    named = with_option(target, "model", "candidate.onnx") if own else target
    program = None if recorded or runtime.program is None else runtime.program(target)
    return {
        "target": format_target(named),
        "title": runtime.words or runtime.title,
        "version": told["version"],
        "file": "candidate.onnx" if own else "model.onnx",
        "program": program,
        "tracker": runtime.tracker,
        "simulates": runtime.simulates,
        "recorded": recorded,
    }


def _candidate_nodes(target: Target) -> list[str]:
    """The nodes of the candidate's own file; none where it runs the reference's."""
    own = target.option("model")
    return [_node_as_text(node) for node in computing_nodes(load_model(own).graph())] if own else []


def _node_as_text(node: ir.Node) -> str:
    """A node as ONNX text writes it."""
    given = ", ".join(str(value.name) if value is not None else "" for value in node.inputs)
    made = ", ".join(str(value.name) for value in node.outputs)
    return f"{made} = {node.op_type}({given})"


def _tensor_as_data(name: str, array: Any) -> dict[str, Any]:
    values: Sequence[Any] = array.ravel()[:_SHOWN].tolist()
    return {"name": name, "dtype": array.dtype.name, "shape": array.shape, "values": list(values)}


def _outputs_as_data(found: Reduced, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    measured = {row["name"]: row for row in rows}
    return [
        {
            "name": name,
            "dtype": array.dtype.name,
            "shape": array.shape,
            "expected": array.ravel()[:_SHOWN].tolist(),
            "actual": found.actual[0][name].ravel()[:_SHOWN].tolist() if name in found.actual[0] else [],
            "rel_l2": measured[name]["rel_l2"] if name in measured else None,
            "max_abs": measured[name]["max_abs"] if name in measured else None,
        }
        for name, array in found.expected[0].items()
    ]
