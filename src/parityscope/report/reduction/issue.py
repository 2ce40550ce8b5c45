"""The text of a report for the runtime's tracker, in GitHub's Markdown: `issue.md` of the zip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.words import format_figure, format_percent
from parityscope.visible import make_visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST = 20  # nodes; of more the file tells


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
