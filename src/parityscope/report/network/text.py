"""The network view for a terminal: what was built, what became of the nodes, and the engine's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import VERDICT_STYLES, command_line, heading, more, say, table, written
from parityscope.report.network.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns (commands are never wrapped), with ANSI colours if `color`."""
    return written(_draw, view(document), width=width, color=color)


def _draw(console: Console, model: Mapping[str, Any]) -> None:
    say(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    say(console, f"{model['model']}: {model['headline']}", "bold")
    table(console, ("", ""), model["facts"], apart=True)
    heading(console, "What became of the nodes")
    table(console, ("fate", "nodes", "that is"), model["fates"], right=(1,))
    for finding in model["findings"]:
        heading(console, f"{finding['code']} {finding['title']}")
        say(console, finding["claim"], indent=1)
        for repair in finding["repairs"]:
            say(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)
    if model["layers"]:
        heading(console, "Layers of the engine")
        table(console, ("layer", "writes", "ONNX nodes"), model["layers"])
        more(console, model["layers_more"], " in the JSON")
    if model["skipped"]:
        heading(console, "What was done otherwise")
    for item in model["skipped"]:
        say(console, f"! {item['what']}: {item['reason']}")
        if item["fix"]:
            say(console, f"fix: {item['fix']}", "dim", indent=1)
