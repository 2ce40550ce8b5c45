"""What was read and not compared (a file, a log, a network): its findings by role, and what was skipped, for every form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import command_line, print_heading, print_paragraph
from parityscope.report._findings import view_findings
from parityscope.report.offered import view_repairs
from parityscope.report.words import clean, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console


def view_listed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that such documents share: findings, each with what to do about it alone, what was skipped, and the command."""
    found = []
    for finding in document["findings"]:
        alone = {"findings": [finding]}
        found.append({**view_findings(alone)[0], "repairs": view_repairs(alone)})
    return {
        "findings": found,
        "causes": [one for one in found if one["role"] == "cause"],
        "contributing": [one for one in found if one["role"] == "contributing"],
        "information": [one for one in found if one["role"] == "information"],
        **view_closing(document),
    }


def view_closing(document: Mapping[str, Any]) -> dict[str, Any]:
    """What every page ends with: what was skipped, the command, the tool, the document's schema."""
    skipped = document.get("skipped", ())
    return {
        "skipped": [{key: clean(one[key]) for key in ("what", "reason", "fix")} for one in skipped],
        "command": clean(document["command"]),
        "tool": clean(f"{document['tool']['name']} {document['tool']['version']}"),
        "schema": clean(document["schema"]),
    }


def describe_samples(count: int, inputs: Mapping[str, Any]) -> str:
    """How many samples there were, and where they are from: "3 samples (x.npz)"."""
    made = "generated " if inputs["generated"] else ""
    return f"{format_count(count)} {made}sample{'' if count == 1 else 's'} ({clean(inputs['origin'])})"


def print_listed(console: Console, heading: str, found: Iterable[Mapping[str, Any]]) -> None:
    """Findings for a terminal, each with its place in the network and what to do; nothing where there are none."""
    for number, finding in enumerate(found):
        if not number:
            print_heading(console, heading)
        print_paragraph(console, f"{finding['code']} {finding['title']}", "bold")
        print_paragraph(console, finding["claim"], indent=1)
        if site := finding["site"]:
            where = f"where: {site['node']} ({site['op_type']}), tensor {site['tensor']}"
            print_paragraph(console, where, "dim", indent=1)
        for repair in finding["repairs"]:
            print_paragraph(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)


def print_skipped(console: Console, heading: str, skipped: Iterable[Mapping[str, str]]) -> None:
    """What was not done, with its reason and what to do, for a terminal; nothing where all was."""
    for number, item in enumerate(skipped):
        if not number:
            print_heading(console, heading)
        print_paragraph(console, f"! {item['what']}: {item['reason']}")
        if item["fix"]:
            print_paragraph(console, f"fix: {item['fix']}", "dim", indent=1)
