"""The network view for a terminal: what was built, what became of the nodes, and the engine's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import (
    VERDICT_STYLES,
    command_line,
    print_heading,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report.listed import print_skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def print_network(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of the network view."""
    print_paragraph(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    print_paragraph(console, f"{model['model']}: {model['headline']}", "bold")
    print_table(console, ("", ""), model["facts"], apart=True)
    print_heading(console, "What became of the nodes")
    print_table(console, ("fate", "nodes", "that is"), model["fates"], right=(1,))
    for finding in model["findings"]:
        print_heading(console, f"{finding['code']} {finding['title']}")
        print_paragraph(console, finding["claim"], indent=1)
        for repair in finding["repairs"]:
            print_paragraph(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)
    if model["layers"]:
        print_heading(console, "Layers of the engine")
        print_table(console, ("layer", "writes", "ONNX nodes"), model["layers"])
        print_rows_left(console, model["layers_more"], " in the JSON")
    print_skipped(console, "What was done otherwise", model["skipped"])
