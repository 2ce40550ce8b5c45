"""What logs say -> text | json | html: the page of `parityscope log`. All of it is pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.records import ROLES
from parityscope.report._console import print_head, print_heading, print_paragraph, print_rows_left, print_table
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items, to_plain_data
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import print_listed, print_skipped, view_listed
from parityscope.report.words import clean, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from parityscope.logs import EngineLayer, Log, LogPair, NodePair
    from parityscope.records import Finding, Skip

_VERDICTS = {
    "beyond": ("\N{MULTIPLICATION X}", "numbers were changed, or nothing was built"),
    "within": ("\N{CHECK MARK}", "nothing in the log changes numbers by itself"),
    "incomplete": ("?", "the log does not say enough"),
}
_EFFECTS = ("harmful", "may harm", "harmless")
_MOST_ROWS = 20  # rows of a table (chosen); the JSON holds them all
_STYLES = {"harmful": "red", "may harm": "yellow", "harmless": "green"}


def log_document(
    log: Log, findings: Sequence[Finding], *, command: str = "", pair: LogPair | None = None
) -> dict[str, Any]:
    """Everything that is said about one log, or about two with `pair`; `findings` are then those of both.

    `verdict` is "beyond" with a cause, "incomplete" without one if the log is cut or a pair could not be compared layer by
    layer, else "within".
    """
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


def _view_logs(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a page or a terminal shows of a document about logs."""
    symbol, label = _VERDICTS[document["verdict"]]
    listed = view_listed(document)
    logs = [one for one in (document["reference"], document["candidate"]) if one]
    causes = listed["causes"]
    return {
        **listed,
        "verdict": document["verdict"],
        "symbol": symbol,
        "label": label,
        "headline": causes[0]["claim"].partition("; ")[0] if causes else "No cause in the log.",
        "logs": [_view_log(one) for one in logs],
        "counts": {role: format_count(number) for role, number in document["counts"].items()},
        "comparison": _view_comparison(document["comparison"]) if document["comparison"] else None,
    }


def _view_log(log: Mapping[str, Any]) -> dict[str, Any]:
    explained = sorted(log["explained"], key=lambda one: (_EFFECTS.index(one["effect"]), one["line"]))
    return {
        "name": clean(log["name"]),
        "about": f"{format_bytes(log['nbytes'])}, "
        + (f"{format_count(log['lines'])} lines of {clean(log['tool'])}" if log["lines"] else clean(log["tool"]))
        + (f", {clean(log['outcome'])}" if log["outcome"] != "unknown" else ""),
        "facts": [(clean(key), clean(value)) for key, value in _log_facts(log)],
        "explained": [
            {
                "effect": one["effect"],
                "means": clean(one["means"]),
                "why": clean(one["why"]),
                "count": format_count(one["count"]),
                "line": format_count(one["line"]),
                "text": clean(one["text"]),
            }
            for one in explained
        ],
        "unexplained": [
            {"line": format_count(one["line"] if "line" in one else one["number"]), "text": clean(one["text"])}
            for one in log["unexplained"]
        ],
        "layers": _first_rows(
            log["layers"],
            lambda layer: [
                clean(layer["name"]),
                clean(layer["kind"]),
                clean("/".join(layer["types"])),
                clean(", ".join(layer["nodes"])),
            ],
        ),
        "layers_more": max(0, len(log["layers"]) - _MOST_ROWS),
    }


def _log_facts(log: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = log["layer_counts"]
    several = log["builds"] > 1
    told = [
        ("builds", f"{format_count(log['builds'])}; layers, inputs and outputs are the last one's" if several else ""),
        (
            "runs",
            f"{format_count(log['runs'])}, {format_count(log['failed_runs'])} of them failed"
            if log["runs"] > 1
            else "",
        ),
        *log["versions"].items(),
        *log["facts"].items(),
        ("TF32", log["tf32"] or "not told"),
        ("types that layers write", log["precision"]),
        ("inputs, in this order", _describe_tensors(log["inputs"])),
        ("outputs, in this order", _describe_tensors(log["outputs"])),
        (
            "network layers",
            f"{format_count(counts[0]['layers'])}, then {format_count(counts[-1]['layers'])}" if counts else "",
        ),
        ("engine layers", format_count(len(log["layers"])) if log["layers"] else ""),
        ("fusions told", format_count(len(log["fusions"])) if log["fusions"] else ""),
        ("regions of another compiler", format_count(len(log["regions"])) if log["regions"] else ""),
        ("reformats", format_count(log["reformats"]) if log["layers"] else ""),
        *((f"{one['what']}", f"{one['milliseconds']:g} ms") for one in log["timings"] if "median" in one["what"]),
    ]
    return [(key, value) for key, value in told if value]


def _describe_tensors(tensors: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['name']} {one['dtype']}[{one['dimensions']}]".replace(" []", "") for one in tensors)


def _view_comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "summary": f"{format_count(comparison['nodes'])} nodes in both engines: "
        f"{format_count(comparison['retyped'])} write another type, "
        f"{format_count(comparison['regrouped'])} are fused with other nodes, "
        f"{format_count(comparison['rekerneled'])} have another kernel",
        "differences": [
            [clean(one["what"]), clean(one["reference"]) or "-", clean(one["candidate"]) or "-"]
            for one in comparison["differences"]
        ],
        "changed": _first_rows(comparison["changed"], _row_of_changed_node),
        "changed_more": max(0, len(comparison["changed"]) - _MOST_ROWS),
        "only": [
            (side, format_count(len(comparison[key])), clean(", ".join(comparison[key][:_MOST_ROWS])))
            for side, key in (("the first", "only_reference"), ("the second", "only_candidate"))
            if comparison[key]
        ],
    }


def _row_of_changed_node(node: Mapping[str, Any]) -> list[str]:
    sides = [node["reference"], node["candidate"]]
    types = ["/".join(side["types"]) or "not told" for side in sides]
    return [
        clean(node["node"]),
        clean(types[0] if types[0] == types[1] else f"{types[0]} -> {types[1]}"),
        clean(sides[0]["layer"]),
        clean("the same" if sides[0]["layer"] == sides[1]["layer"] else sides[1]["layer"]),
    ]


def _first_rows(items: Sequence[Mapping[str, Any]], row: Any) -> list[list[str]]:
    return [row(item) for item in items[:_MOST_ROWS]]


def _print_logs(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what logs say."""
    print_head(console, model, [f"{log['name']}: {log['about']}" for log in model["logs"]])
    print_listed(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    print_listed(console, "Contributing", model["contributing"])
    print_listed(console, "Information", model["information"])
    if model["comparison"]:
        _print_comparison(console, model["comparison"])
    for log in model["logs"]:
        _print_log(console, log)
    print_skipped(console, "What the log does not say", model["skipped"])


def _print_comparison(console: Console, comparison: Mapping[str, Any]) -> None:
    print_heading(console, "What differs")
    print_paragraph(console, comparison["summary"])
    print_table(console, ("", "first", "second"), comparison["differences"], apart=True)
    if comparison["changed"]:
        print_table(console, ("node", "type", "layer in the first", "in the second"), comparison["changed"], apart=True)
        print_rows_left(console, comparison["changed_more"], " in the JSON")
    for side, number, names in comparison["only"]:
        print_paragraph(console, f"only in {side}: {number} nodes: {names}")


def _print_log(console: Console, log: Mapping[str, Any]) -> None:
    print_heading(console, f"What {log['name']} says")
    print_table(console, ("", ""), log["facts"])
    for line in log["explained"]:
        console.print()
        print_paragraph(console, f"line {line['line']}, {line['count']} times: {line['text']}", "dim")
        print_paragraph(console, f"{line['effect']}: {line['means']}; {line['why']}", _STYLES[line["effect"]], indent=1)
    if log["unexplained"]:
        print_heading(console, "Warnings and errors that nothing is known about")
    for line in log["unexplained"]:
        print_paragraph(console, f"line {line['line']}: {line['text']}")


FORMS = Forms(title="log", view=_view_logs, show=_print_logs, page=Page(template=TEMPLATES / "log.html.j2"))
