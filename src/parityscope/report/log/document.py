"""What a log, or a pair of logs, says as strict JSON: `schema` first, findings in the shape that a study's have.

`verdict` is "beyond" with a cause, "incomplete" without one if the log is cut or a pair could not be compared layer by layer,
else "within".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.records import ROLES
from parityscope.report._plain import document_head, plain_items, to_plain_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.logs import EngineLayer, Log, LogPair, NodePair
    from parityscope.records import Finding, Skip


def log_document(
    log: Log, findings: Sequence[Finding], *, command: str = "", pair: LogPair | None = None
) -> dict[str, Any]:
    """Everything that is said about one log, or about two with `pair`; `findings` are then those of both."""
    skipped = (*log.skipped, *(pair.candidate.skipped + pair.skipped if pair else ()))
    held: dict[str, Any] = {
        **document_head(command, kind="log"),
        "verdict": _verdict_of_findings(findings, skipped),
        "counts": {role: sum(one.role == role for one in findings) for role in ROLES},
        "findings": findings,
        "reference": _log_as_data(log),
        "candidate": _log_as_data(pair.candidate) if pair else None,
        "comparison": _pair_as_data(pair) if pair else None,
        "skipped": skipped,
    }
    return plain_items(held)


def _verdict_of_findings(findings: Sequence[Finding], skipped: Sequence[Skip]) -> str:
    if any(finding.role == "cause" for finding in findings):
        return "beyond"
    cut = any(skip.asked or skip.what.startswith("the end of") for skip in skipped)
    return "incomplete" if cut else "within"


def _log_as_data(log: Log) -> Mapping[str, Any]:
    return {
        "path": str(log.path),
        "name": log.path.name,
        "nbytes": log.nbytes,
        "lines": log.lines,
        "severities": log.severities,
        "tool": log.tool,
        "command": log.command,
        "outcome": log.outcome,
        "builds": log.builds,
        "runs": log.runs,
        "failed_runs": log.failed_runs,
        "versions": log.versions,
        "facts": log.facts,
        "tf32": log.tf32,
        "precision": log.precision,
        "inputs": _tensors_of_mode(log, "input"),
        "outputs": _tensors_of_mode(log, "output"),
        "weights": log.weights,
        "explained": [
            {
                "name": noted.meaning.name,
                "effect": noted.meaning.effect,
                "means": noted.meaning.means,
                "why": noted.meaning.why,
                "count": noted.count,
                "line": noted.line,
                "text": noted.text,
                "names": noted.facts,
                "names_left_out": noted.facts_left_out,
                "source": noted.meaning.source,
            }
            for noted in log.noted
        ],
        "unexplained": log.unexplained,
        "layers": [_layer_as_data(layer, log) for layer in log.layers],
        "layer_counts": [{"step": step, "layers": count} for step, count in log.layer_counts],
        "fusions": log.fusions,
        "removed": log.removed,
        "reformats": log.reformats,
        "regions": [{"name": name, "nodes": nodes} for name, nodes in log.foreign.items()],
        "tactics": log.tactics,
        "refused": log.refused,
        "timings": log.timings,
    }


def _tensors_of_mode(log: Log, mode: str) -> list[Any]:
    tensors = log.tensors or log.parsed
    return [to_plain_data(tensor) for tensor in tensors if tensor.mode == mode]


def _layer_as_data(layer: EngineLayer, log: Log) -> Mapping[str, Any]:
    return {
        "name": layer.name,
        "kind": layer.kind,
        "nodes": layer.nodes,
        "told": layer.told,
        "types": layer.types,
        "tactic": layer.tactic,
        "milliseconds": log.layer_times.get(layer.name),
        "inputs": layer.inputs,
        "outputs": layer.outputs,
    }


def _pair_as_data(pair: LogPair) -> Mapping[str, Any]:
    changed = [node for node in pair.nodes if node.retyped or node.regrouped or node.rekerneled]
    return {
        "nodes": len(pair.nodes),
        "retyped": sum(node.retyped for node in pair.nodes),
        "regrouped": sum(node.regrouped for node in pair.nodes),
        "rekerneled": sum(node.rekerneled for node in pair.nodes),
        "differences": pair.differences,
        "changed": [_node_as_data(node) for node in changed],
        "only_reference": pair.only_reference,
        "only_candidate": pair.only_candidate,
    }


def _node_as_data(node: NodePair) -> Mapping[str, Any]:
    return {
        "node": node.node,
        "retyped": node.retyped,
        "regrouped": node.regrouped,
        "rekerneled": node.rekerneled,
        "reference": {"layer": node.reference.name, "types": node.reference.types, "tactic": node.reference.tactic},
        "candidate": {"layer": node.candidate.name, "types": node.candidate.types, "tactic": node.candidate.tactic},
    }
