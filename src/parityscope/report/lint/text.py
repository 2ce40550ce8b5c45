"""What lint found for a terminal: causes with what to do, then what contributes, then information in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import VERDICT_STYLES, command_line, print_heading, print_paragraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["print_lint"]


def print_lint(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what lint found."""
    print_paragraph(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    if not model["causes"]:
        print_paragraph(console, model["headline"], "bold")
    print_paragraph(console, f"{model['model']}: {model['about']}", "dim")
    _print_section(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    _print_section(console, "Depends on data or converter", model["contributing"])
    if model["information"]:
        print_heading(console, "Information")
    for finding in model["information"]:
        print_paragraph(console, f"{finding['code']}  {finding['claim']}")
    if model["skipped"]:
        print_heading(console, "What was not examined")
    for item in model["skipped"]:
        print_paragraph(console, f"! {item['what']}: {item['reason']}")
        print_paragraph(console, f"fix: {item['fix']}", "dim", indent=1)


def _print_section(console: Console, title: str, found: list[Mapping[str, Any]]) -> None:
    if found:
        print_heading(console, title)
    for finding in found:
        print_paragraph(console, f"{finding['code']} {finding['title']}", "bold")
        print_paragraph(console, finding["claim"], indent=1)
        site = finding["site"]
        if site:
            print_paragraph(
                console, f"where: {site['node']} ({site['op_type']}), tensor {site['tensor']}", "dim", indent=1
            )
        for repair in finding["repairs"]:
            print_paragraph(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)
