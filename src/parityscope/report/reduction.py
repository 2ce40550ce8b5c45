"""A reduced finding -> a document, text for a terminal, a program that shows it, and a report for the runtime's authors.

`reduction_document` makes the strict-JSON mapping that everything else is drawn from. All of it is pure.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.targets import format_target, with_option
from parityscope.case import load_model
from parityscope.case.graph import computing_nodes
from parityscope.report._console import print_heading, print_not_examined, print_paragraph, print_table
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import PLAIN, Forms
from parityscope.report.words import format_figure, format_percent
from parityscope.visible import make_visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir
    from rich.console import Console

    from parityscope.records import Target
    from parityscope.study.reduction import Reduced

_SCHEMA = "parityscope-reduction/1"
_SHOWN = 8  # values of a tensor
_HEAD = '''"""{title}

Run it where it lies: python reproduce.py
Ends with exit code 1 where the candidate is still off, with 0 where it is not any more.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


'''
_KEPT = "return dict(np.load(HERE / {folder!r} / sample))  # {why}"
_MAIN = '''def distance(expected, actual):
    """Relative L2; infinite where one side alone is not finite."""
    expected, actual = (np.asarray(side, np.float64) for side in (expected, actual))
    if not (np.isfinite(expected) == np.isfinite(actual)).all():
        return float("inf")
    both = np.isfinite(expected)
    size = np.linalg.norm(expected[both])
    return float(np.linalg.norm(actual[both] - expected[both]) / (size if size > 0 else 1.0))


worst = 0.0
for path in sorted((HERE / "inputs").glob("*.npz")):
    inputs = dict(np.load(path))
    names = list(np.load(HERE / "expected" / path.name).files)
    expected = reference(str(HERE / {reference!r}), inputs, names, path.name)
    actual = candidate(str(HERE / {candidate!r}), inputs, names, path.name)
    for name in names:
        off = distance(expected[name], actual[name])
        worst = max(worst, off)
        print(f"{{path.name}} {{name}}: relative L2 {{off:.3g}}")
        print("  expected", np.ravel(expected[name])[:8])
        print("  actual  ", np.ravel(actual[name])[:8])
LIMIT = {limit!r}  # a tenth of what was measured when this was made
print("still off" if worst > LIMIT else "not off any more")
sys.exit(1 if worst > LIMIT else 0)
'''
_MOST = 20  # nodes; of more the file tells


def reduction_document(found: Reduced, *, command: str = "") -> dict[str, Any]:
    """Everything that a reduction says, as plain data; files are named as they lie in the zip."""
    piece, study = found.piece, found.document
    graph = piece.model.graph()
    return plain_items(
        {
            **document_head(command, schema=_SCHEMA),
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


def _print_reduction(console: Console, document: Mapping[str, Any]) -> None:
    """Writes `document` to a console."""
    finding, nodes, elements = document["finding"], document["nodes"], document["elements"]
    plural = "" if nodes["after"] == 1 else "s"
    numbers = f"{elements['after']:,} of {elements['before']:,} numbers of inputs and constants"
    print_paragraph(
        console,
        f"{nodes['after']} node{plural} of {nodes['before']} and {numbers} still "
        f"show {finding['code']} at {finding['node'] or 'no single place'}, in {document['runs']} runs",
        "bold",
    )
    print_paragraph(console, document["claim"] or finding["claim"])
    for line in document["model"][:8]:
        print_paragraph(console, f"  {line}")
    for line in document["candidate_model"][:8]:
        print_paragraph(console, f"  candidate: {line}")
    for row in document["outputs"]:
        off, most = format_percent(row["rel_l2"]), format_figure(row["max_abs"])
        print_paragraph(console, f"  {row['name']} differs by {off}, at most {most}")
    print_heading(console, "What was tried")
    rows = [
        (
            one["stage"],
            one["what"],
            str(one["nodes"] or ""),
            one["shows"] if one["shows"] == "the same" else _describe_attempt(one),
        )
        for one in document["attempts"]
    ]
    print_table(console, ("", "", "nodes", "shows"), rows, right=(2,))
    for note in document["notes"]:
        print_paragraph(console, f"note: {note}", "yellow")
    print_not_examined(console, document["skipped"])


def _describe_attempt(attempt: Mapping[str, Any]) -> str:
    return f"{attempt['shows']}: {attempt['told']}" if attempt["told"] else str(attempt["shows"])


def as_program(document: Mapping[str, Any]) -> str:
    """The program, for what `document` says of both sides."""
    finding = document["finding"]
    title = _in_docstring(f"{finding['op_type'] or 'The model'}: {document['claim'] or finding['title']}")
    reference, candidate = document["reference"], document["candidate"]
    parts = [
        _HEAD.format(title=title),
        _function_of_side("reference", reference, "expected"),
        _function_of_side("candidate", candidate, "actual"),
        _MAIN.format(reference=reference["file"], candidate=candidate["file"], limit=_limit_of_program(document)),
    ]
    return "".join(parts)


def _function_of_side(name: str, side: Mapping[str, Any], folder: str) -> str:
    why = f"as {'recorded' if side['recorded'] else 'computed'}: {side['title']} has no program of its own"
    body = side["program"] or _KEPT.format(folder=folder, why=why.replace("\n", " "))
    return f"def {name}(path, inputs, names, sample):\n{textwrap.indent(body, '    ')}\n\n\n"


def _limit_of_program(document: Mapping[str, Any]) -> float:
    sizes = [float(row["rel_l2"]) for row in document["outputs"] if row["rel_l2"] is not None]
    finite = [size for size in sizes if math.isfinite(size)]
    return max(finite, default=0.0) / 10


def _in_docstring(text: str) -> str:
    """Text of a model that ends no docstring and escapes nothing."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())


def as_issue(document: Mapping[str, Any]) -> str:
    """The report, to be read before it is sent."""
    return "\n".join(_issue_lines(document)) + "\n"


def _issue_lines(document: Mapping[str, Any]) -> Iterator[str]:
    finding, reference, candidate = document["finding"], document["reference"], document["candidate"]
    worst = max((row["rel_l2"] for row in document["outputs"] if isinstance(row["rel_l2"], float)), default=None)
    who = "the converted file" if document["candidate_model"] else candidate["title"]
    yield f"# {_escape_in_one_line(finding['op_type'] or 'A model')}: {who} is off by {format_percent(worst)}"
    yield ""
    if candidate["simulates"]:
        yield "> The candidate is a simulation of a format, and no runtime: what is shown here is what the format costs."
        yield ""
    if candidate["file"] != "model.onnx":
        yield "> Both files run in the runtime as they are: `candidate.onnx` differs, so that this is for whoever converted it."
        yield ""
    yield "### Describe the issue"
    yield ""
    yield _escape_in_one_line(document["claim"] or finding["claim"])
    yield ""
    yield f"`{reference['target']}` gives what is expected, `{candidate['target']}` does not:"
    yield ""
    yield "| output | shape | relative L2 | largest difference | expected | actual |"
    yield "| --- | --- | ---: | ---: | --- | --- |"
    for row in document["outputs"]:
        shape = "x".join(map(str, row["shape"])) or "scalar"
        values = " | ".join(_format_values(row[side]) for side in ("expected", "actual"))
        yield (
            f"| {_format_cell(row['name'])} | {row['dtype']} {shape} | {format_figure(row['rel_l2'])} | "
            f"{format_figure(row['max_abs'])} | {values} |"
        )
    yield ""
    yield from _lines_to_reproduce(document)
    yield from _lines_of_environment(document)


def _lines_to_reproduce(document: Mapping[str, Any]) -> Iterator[str]:
    candidate, nodes = document["candidate"], document["nodes"]
    yield "### To reproduce"
    yield ""
    yield "Unpack the zip that comes with this report and run `python reproduce.py`: it needs the runtime and numpy."
    if candidate["program"] is None:
        why = "was recorded and cannot be run again" if candidate["recorded"] else "has no program of its own"
        yield f"The candidate {why}: what it gave lies in `actual/`."
    yield ""
    yield f"The model ({nodes['after']} of {nodes['before']} nodes of the original, with its weights):"
    yield ""
    yield "```text"
    yield from map(_escape_in_one_line, document["model"][:_MOST])
    if document["candidate_model"]:
        yield "candidate.onnx:"
        yield from map(_escape_in_one_line, document["candidate_model"][:_MOST])
    yield "```"
    yield ""
    for one in document["inputs"]:
        shape = "x".join(map(str, one["shape"])) or "scalar"
        yield f"- input {_format_code(one['name'])}, {one['dtype']} {shape}: {_format_values(one['values'])}"
    yield ""


def _lines_of_environment(document: Mapping[str, Any]) -> Iterator[str]:
    yield "### Environment"
    yield ""
    for side in ("reference", "candidate"):
        yield f"- {side}: {document[side]['title']} {document[side]['version']}, `{document[side]['target']}`"
    for name, value in document["environment"].items():
        yield f"- {name}: {_escape_in_one_line(str(value))}"
    yield ""
    yield "### What was tried"
    yield ""
    yield f"{document['runs']} smaller models were examined; each had to show the same cause at the same operator and tensor."
    yield ""
    yield "| stage | what | nodes | shows |"
    yield "| --- | --- | ---: | --- |"
    for one in document["attempts"]:
        told = f"{one['shows']}: {one['told']}" if one["told"] else one["shows"]
        yield f"| {one['stage']} | {_format_cell(one['what'])} | {one['nodes'] or '-'} | {_format_cell(told)} |"
    for one in document["skipped"]:
        yield f"\nNot done: {_escape_in_one_line(one['what'])}: {_escape_in_one_line(one['reason'])}"


def _format_values(values: list[Any]) -> str:
    return " ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values[:4]) or "-"


def _escape_in_one_line(text: str) -> str:
    """Text of a model in one line, which makes no markup."""
    return make_visible(" ".join(text.split())).replace("<", "&lt;").replace("`", "'")


def _format_cell(text: str) -> str:
    return _escape_in_one_line(text).replace("|", "\\|")[:160]


def _format_code(text: str) -> str:
    return f"`{_escape_in_one_line(text)}`"


FORMS = Forms(title="reduce", view=dict, show=_print_reduction, page=PLAIN)
