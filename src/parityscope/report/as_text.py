"""The study for a terminal: verdict and cause first, then what to do, the evidence, and what was not examined.

`render` knows nothing about the terminal: the caller passes its width and whether colour is wanted (a terminal, and
no NO_COLOR). Without colour the text holds no escape codes; names have theirs spelt out (`words.clean`), so that no
file can write to the terminal.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

__all__ = ["RENDERER", "render"]

_STYLES = {"within": "bold green", "beyond": "bold red", "incomplete": "bold yellow"}
_OUTCOMES = {"supports": "green", "refutes": "red", "inconclusive": "yellow"}
# Narrower than this, names are cut rather than tables squeezed further (chosen: the narrowest usual terminal split).
_NARROWEST = 40
_MOST_SUSPECTS = 5
_INDENT = "  "


def render(document: Mapping[str, Any], *, width: int = 100, color: bool = False, ladder: bool = False) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`, and the tolerance ladder if asked."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=max(width, _NARROWEST),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},  # nothing of the caller's environment decides what a study says
    )
    model = view(document)
    with console.capture() as captured:
        _verdict(console, model)
        _causes(console, model)
        _repairs(console, model)
        _others(console, model)
        _outputs(console, model)
        _suspects(console, model)
        if ladder:
            _ladder(console, model)
        _experiments(console, model)
        _skipped(console, model)
        _run(console, model)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _verdict(console: Console, model: Mapping[str, Any]) -> None:
    verdict, versus = model["verdict"], model["versus"]
    _say(console, f"{verdict['symbol']} {verdict['label']}", _STYLES[verdict["key"]])
    _say(console, model["headline"], "bold")
    _say(console, f"{versus['model']}: {versus['candidate']} against {versus['reference']}, {versus['inputs']}", "dim")


def _causes(console: Console, model: Mapping[str, Any]) -> None:
    _heading(console, "Cause" if len(model["causes"]) < 2 else "Causes")
    if model["no_cause"]:
        _say(console, model["no_cause"])
    for finding in model["causes"]:
        _finding(console, finding)


def _others(console: Console, model: Mapping[str, Any]) -> None:
    if model["others"]:
        _heading(console, "Also found")
        for finding in model["others"]:
            _finding(console, finding)


def _finding(console: Console, finding: Mapping[str, Any]) -> None:
    _say(console, f"{finding['code']} {finding['title']}", "bold")
    _say(console, finding["claim"], indent=1)
    site = finding["site"]
    if site:
        _say(console, f"where: {site['node'] or site['tensor']} ({site['op_type']}), tensor {site['tensor']}", indent=1)
    _say(console, f"confidence: {finding['confidence']} ({finding['confidence_from']})", indent=1)
    if finding["share"]:
        _say(console, f"explains: {finding['share']} of the output error", indent=1)
    for name, value in finding["details"]:
        _say(console, f"{name}: {value}", indent=1)


def _repairs(console: Console, model: Mapping[str, Any]) -> None:
    if not model["repairs"]:
        return
    _heading(console, "What to do")
    for place, repair in enumerate(model["repairs"], start=1):
        _say(console, f"{place}. {repair['repair']}", "bold")
        _say(console, repair["text"], indent=1)
        trial = repair["trial"]
        if trial:
            change = (
                f"tried: {trial['before']} -> {trial['after']} ({trial['ratio'] or 'no ratio'}), {trial['verdict']}"
            )
            _say(console, change, "green" if trial["verdict"] == "within" else "yellow", indent=1)
        for line in repair["command"].splitlines():
            # A command is never wrapped: it is there to be copied.
            console.print(f"{_INDENT}{_INDENT}{line}", style="cyan", soft_wrap=True)


def _outputs(console: Console, model: Mapping[str, Any]) -> None:
    _heading(console, "Outputs (relative L2 error)")
    rows = []
    for output in model["outputs"]:
        declared = next((entry["value"] for entry in output["expected"] if entry["declared"]), "")
        name = short(output["name"], max(16, console.width - 56))
        rows.append((name, output["rel_l2"], declared, output["grade"], output["verdict"]))
    _table(console, ("output", "measured", "expected", "grade", "verdict"), rows, right=(1, 2))
    for output in model["outputs"]:
        if output["reason"]:
            _say(console, f"{short(output['name'], 32)}: {output['reason']}", "dim")
        if found := output["triangle"]:
            _say(
                console,
                f"{short(output['name'], 32)}: {found['peer_reference']} is what the format costs anyway "
                f"({found['peer']}), {found['own']} is this engine's own",
                "dim",
            )


def _suspects(console: Console, model: Mapping[str, Any]) -> None:
    if not model["suspects"]:
        return
    _heading(console, "Where it begins (relative L2 error)")
    rows = [
        (
            str(suspect["rank"]),
            short(suspect["node"] or suspect["tensor"], max(14, console.width - 58)),
            suspect["introduced"],
            suspect["inherited"],
            suspect["share"],
        )
        for suspect in model["suspects"][:_MOST_SUSPECTS]
    ]
    _table(console, ("", "layer", "introduced", "inherited", "share of output"), rows, right=(2, 3, 4))
    more = len(model["suspects"]) - _MOST_SUSPECTS
    if more > 0:
        _say(console, f"and {more:,} more, in the HTML report", "dim")


def _ladder(console: Console, model: Mapping[str, Any]) -> None:
    _heading(console, "Which tensors exceed which tolerance (relative L2), from loose to tight")
    if not model["ladder"]:
        _say(console, "No tensors were compared.")
        return
    rows = [(rung["tolerance"], rung["failing"], rung["first"], rung["new"]) for rung in model["ladder"]]
    _table(console, ("tolerance", "exceed it", "first in the graph", "new at this step"), rows, right=(0, 1))


def _experiments(console: Console, model: Mapping[str, Any]) -> None:
    if not model["experiments"]:
        return
    _heading(console, "Experiments")
    for item in model["experiments"]:
        _say(console, f"{item['symbol']} {item['label']}: {item['check']} {item['claim']}", _OUTCOMES[item["outcome"]])
        _say(console, f"{item['before']} -> {item['after']}: {item['because']}", "dim", indent=1)


def _skipped(console: Console, model: Mapping[str, Any]) -> None:
    if not model["skipped"]:
        return
    _heading(console, "What was not examined")
    for item in model["skipped"]:
        _say(console, f"{'! ' if item['asked'] else '- '}{item['what']}: {item['reason']}")
        if item["fix"]:
            _say(console, f"fix: {item['fix']}", "cyan", indent=1)


def _run(console: Console, model: Mapping[str, Any]) -> None:
    running = model["running"]
    if running["command"]:
        _heading(console, "How it was run")
        console.print(f"{_INDENT}{running['command']}", style="cyan", soft_wrap=True)
        _say(console, f"{running['tool']}, {_versions(running)}", "dim", indent=1)


def _versions(running: Mapping[str, Any]) -> str:
    """Both sides' runtimes: "reference onnxruntime 1.23.2, candidate openvino 2025.3"."""
    return ", ".join(f"{side['name']} {dict(side['facts']).get('version', 'unknown')}" for side in running["sides"])


def _heading(console: Console, title: str) -> None:
    console.print()
    _say(console, title, "bold underline")


def _say(console: Console, text: str, style: str = "", *, indent: int = 0) -> None:
    """`text` as a paragraph, wrapped at the width and indented as a whole."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, len(_INDENT) * indent)))


def _table(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


RENDERER = Renderer(name="text", suffix=".txt", render=render)
