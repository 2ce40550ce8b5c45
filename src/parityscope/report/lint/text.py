"""What lint found for a terminal: causes with what to do, then what contributes, then information in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import print_head, print_heading, print_paragraph
from parityscope.report.listed import print_listed, print_skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def print_lint(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what lint found."""
    print_head(console, model, [f"{model['model']}: {model['about']}"])
    print_listed(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    print_listed(console, "Depends on data or converter", model["contributing"])
    if model["information"]:
        print_heading(console, "Information")
    for finding in model["information"]:
        print_paragraph(console, f"{finding['code']}  {finding['claim']}")
    print_skipped(console, "What was not examined", model["skipped"])
