"""The study for a terminal: verdict and cause first, then what to do, the evidence, and what was not examined.

`render` knows nothing about the terminal: the caller passes its width and whether colour is wanted (a terminal, and
no NO_COLOR). Without colour the text holds no escape codes; names have theirs spelt out (`words.clean`), so that no
file can write to the terminal.
"""

from __future__ import annotations

from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from parityscope.languages import columns_of, spoken
from parityscope.report import Renderer
from parityscope.report._console import INDENT, VERDICT_STYLES, command_line, heading, more, say, table, written
from parityscope.report.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

__all__ = ["RENDERER", "plain_first_screen", "render", "render_first_screen"]

_OUTCOMES = {"supports": "green", "refutes": "dim", "inconclusive": "yellow"}
_MOST_SUSPECTS = 5
_REST = "--all shows everything here"  # where there is no report to point to
_MOST_LINES = 16  # of code that a repair shows here; more is for the page. Chosen: half a terminal.


def render(
    document: Mapping[str, Any], *, where: str = "", width: int = 100, color: bool = False, ladder: bool = False
) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`, and the tolerance ladder if asked.

    `where` is the report's path, beside which the study's other files lie.
    """
    return written(partial(_draw, ladder=ladder), view(document, _folder_of(where)), width=width, color=color)


def render_first_screen(document: Mapping[str, Any], *, where: str = "", width: int = 100, color: bool = False) -> str:
    """The answer alone, in at most some fifteen lines; `where` is the report that holds the rest."""
    return written(partial(_first_screen, where=where), view(document, _folder_of(where)), width=width, color=color)


def plain_first_screen(document: Mapping[str, Any], width: int = 100) -> str:
    """The answer alone, without colour, blank ends of lines and the pointer to the rest: for other tools' reports."""
    lines = render_first_screen(document, width=width).rstrip().splitlines()
    rest = spoken(_REST)
    return "\n".join(line.removesuffix(rest).rstrip() for line in lines if line.strip() != rest)


def _folder_of(report: str) -> str:
    return str(PurePath(report).parent) if report else ""


def _first_screen(console: Console, model: Mapping[str, Any], *, where: str) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    found, style = model["first_screen"], VERDICT_STYLES[model["verdict"]["key"]]
    title, basis = spoken(found["title"]), spoken(found["basis"])
    console.print(Text.assemble((f"{found['symbol']} {title}", style), (f"  ({basis})", "dim")))
    width = max((columns_of(spoken(row["label"])) for row in found["rows"]), default=0) + len(INDENT) // 2
    inner = (len(INDENT) + width + 2) // len(INDENT)
    for row in found["rows"]:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=width, no_wrap=True)
        grid.add_column(overflow="fold")
        told = Text(spoken(row["text"]))
        if row["note"] and not row["command"]:
            told = Text.assemble(told, "\n", (spoken(row["note"]), "dim"))
        grid.add_row(Text(spoken(row["label"]), style="bold"), told)
        console.print(Padding(grid, (0, 0, 0, len(INDENT))))
        if row["command"]:
            command_line(console, row["command"], indent=inner)
            if row["note"]:
                say(console, row["note"], "dim", indent=inner)
    details = spoken(f"Details: {where}  (--all for everything here)" if where else _REST)
    rest = spoken(found["rest"])
    console.print(f"{INDENT}{rest}{'  ' if rest else ''}{details}", style="dim", soft_wrap=True)


def _draw(console: Console, model: Mapping[str, Any], *, ladder: bool) -> None:
    _verdict(console, model)
    _causes(console, model)
    _sequence(console, model)
    _repairs(console, model)
    if model["tensorrt"]:
        _nvidia(console, model)
    _others(console, model)
    _outputs(console, model)
    _suspects(console, model)
    if ladder:
        _ladder(console, model)
    _experiments(console, model)
    _skipped(console, model)
    _run(console, model)


def _verdict(console: Console, model: Mapping[str, Any]) -> None:
    verdict, versus = model["verdict"], model["versus"]
    say(console, f"{verdict['symbol']} {verdict['label']}", VERDICT_STYLES[verdict["key"]])
    say(console, model["headline"], "bold")
    say(console, f"{versus['model']}: {versus['candidate']} against {versus['reference']}, {versus['inputs']}", "dim")
    if model["varies"]:
        say(console, model["varies"], "yellow")


def _causes(console: Console, model: Mapping[str, Any]) -> None:
    heading(console, "Cause" if len(model["causes"]) < 2 else "Causes")
    if model["no_cause"]:
        say(console, model["no_cause"])
    for finding in model["causes"]:
        _finding(console, finding)


def _sequence(console: Console, model: Mapping[str, Any]) -> None:
    found = model["sequence"]
    if not found:
        return
    heading(console, "One after the other")
    say(console, found["note"], "dim")
    for step in found["steps"]:
        say(console, f"{step['place']}. {step['code']}: {step['correction']}", "bold")
        change = f"error {step['before']} -> {step['after']}, {step['share']} of all of it; {step['proof']}"
        say(console, f"{change} (experiment {step['experiment']})", indent=1)
    say(console, found["left"])


def _others(console: Console, model: Mapping[str, Any]) -> None:
    if model["others"]:
        heading(console, "Also found")
        for finding in model["others"]:
            _finding(console, finding)


def _finding(console: Console, finding: Mapping[str, Any]) -> None:
    say(console, f"{finding['code']} {finding['title']}", "bold")
    say(console, finding["claim"], indent=1)
    site = finding["site"]
    if site:
        say(console, f"where: {site['node'] or site['tensor']} ({site['op_type']}), tensor {site['tensor']}", indent=1)
    say(console, f"confidence: {finding['confidence']} ({finding['confidence_from']})", indent=1)
    if finding["share"]:
        say(console, f"explains: {finding['share']} of the output error", indent=1)
    if finding["unsaid"]:
        say(console, f"details: {'; '.join(f'{name} {value}' for name, value in finding['unsaid'])}", "dim", indent=1)


def _repairs(console: Console, model: Mapping[str, Any]) -> None:
    if not model["repairs"]:
        return
    heading(console, model["doing"])
    for place, repair in enumerate(model["repairs"], start=1):
        say(console, f"{place}. {repair['title']}", "bold")
        say(console, repair["text"], indent=1)
        trial = repair["trial"]
        if trial:
            change = (
                f"tried: {trial['before']} -> {trial['after']} ({trial['ratio'] or 'no ratio'}), {trial['verdict']}"
            )
            say(console, change, "green" if trial["verdict"] == "within" else "yellow", indent=1)
            if trial["file"]:
                say(console, f"the copy: {trial['file']}", indent=1)
        elif repair["cause"]:
            before, after = repair["cause"]["before"], repair["cause"]["after"]
            told = f"not tried itself; the reference, given the same fault, goes from {before} to {after}"
            say(console, told, "dim", indent=1)
        for line in repair["command"].splitlines():
            command_line(console, line)
        _lines(console, repair["code_lines"])


def _lines(console: Console, found: Mapping[str, str]) -> None:
    """The lines of an advice, where they are few."""
    if not found:
        return
    lines = found["lines"].splitlines()
    if len(lines) > _MOST_LINES:
        say(console, f"{len(lines)} lines for it stand in the HTML report ({found['risk']})", "dim", indent=1)
        return
    for line in lines:
        command_line(console, line)


def _nvidia(console: Console, model: Mapping[str, Any]) -> None:
    if not model["nvidia"]:
        return
    heading(console, "With NVIDIA's tools")
    for row in model["nvidia"]:
        versions = f", TensorRT {row['versions']}" if row["versions"] else ""
        say(console, f"{row['code']} {row['does']}: {row['tool']}{versions}".strip(), "bold")
        command_line(console, row["line"])


def _outputs(console: Console, model: Mapping[str, Any]) -> None:
    heading(console, "Outputs (relative L2 error)")
    rows = []
    for output in model["outputs"]:
        declared = next((entry["value"] for entry in output["expected"] if entry["declared"]), "")
        name = short(output["name"], max(16, console.width - 56))
        rows.append((name, output["rel_l2"], declared, output["grade"], output["verdict"]))
    table(console, ("output", "measured", "expected", "grade", "verdict"), rows, right=(1, 2))
    for output in model["outputs"]:
        if output["reason"]:
            say(console, f"{short(output['name'], 32)}: {output['reason']}", "dim")
        if found := output["triangle"]:
            say(
                console,
                f"{short(output['name'], 32)}: {found['peer_reference']} is what the format costs anyway "
                f"({found['peer']}), {found['own']} is this engine's own",
                "dim",
            )


def _suspects(console: Console, model: Mapping[str, Any]) -> None:
    if not model["suspects"]:
        return
    heading(console, "Where it begins (relative L2 error)")
    shown = [suspect for suspect in model["suspects"] if not suspect["minor"]][:_MOST_SUSPECTS]
    rows = [
        (
            str(suspect["rank"]),
            short(suspect["node"] or suspect["tensor"], max(14, console.width - 58)),
            suspect["introduced"],
            suspect["inherited"],
            suspect["share"],
        )
        for suspect in shown
    ]
    table(console, ("", "layer", "introduced", "inherited", "share of output"), rows, right=(2, 3, 4))
    hardly = all(suspect["minor"] for suspect in model["suspects"] if suspect not in shown)
    told = " that hardly reach the output, in the HTML report" if hardly else ", in the HTML report"
    more(console, len(model["suspects"]) - len(shown), told)
    for sentence in model["conditioning"]:
        say(console, sentence, "dim")


def _ladder(console: Console, model: Mapping[str, Any]) -> None:
    heading(console, "Which tensors exceed which tolerance (relative L2), from loose to tight")
    if not model["ladder"]:
        say(console, "No tensors were compared.")
        return
    rows = [(rung["tolerance"], rung["failing"], rung["first"], rung["new"]) for rung in model["ladder"]]
    table(console, ("tolerance", "exceed it", "first in the graph", "new at this step"), rows, right=(0, 1))


def _experiments(console: Console, model: Mapping[str, Any]) -> None:
    if not model["experiments"]:
        return
    heading(console, "Experiments")
    if any(item["identity"] for item in model["experiments"]):
        say(console, "parityscope experiment STUDY NAME runs one of them again, alone", "dim")
    for group in _alike(model["experiments"]):
        for item in group:
            called = item["identity"] or item["check"]
            say(console, f"{item['symbol']} {item['label']}: {called} {item['claim']}", _OUTCOMES[item["outcome"]])
        if item["outcome"] == "supports" and item["predicted"]:
            say(console, f"predicted: {item['predicted']}", "dim", indent=1)
        found = item["because"] or f"{item['before']}, then {item['after']}"
        say(console, f"{'measured: ' if item['outcome'] == 'supports' else ''}{found}", "dim", indent=1)


def _alike(items: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The experiments in their order; those that do not support their claim and say the same stand together."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for place, item in enumerate(items):
        apart = item["outcome"] == "supports" or not item["because"]
        groups.setdefault((place,) if apart else (item["outcome"], item["because"]), []).append(item)
    return list(groups.values())


def _skipped(console: Console, model: Mapping[str, Any]) -> None:
    if not model["skipped"]:
        return
    heading(console, "What was not examined")
    for item in model["skipped"]:
        say(console, f"{'! ' if item['asked'] else '- '}{item['what']}: {item['reason']}")
        if item["fix"]:
            say(console, f"fix: {item['fix']}", "cyan", indent=1)


def _run(console: Console, model: Mapping[str, Any]) -> None:
    running = model["running"]
    if running["command"]:
        heading(console, "How it was run")
        command_line(console, running["command"], indent=1)
        say(console, f"{running['tool']}, {_versions(running)}", "dim", indent=1)


def _versions(running: Mapping[str, Any]) -> str:
    """Both sides' runtimes: "reference onnxruntime 1.23.2, candidate openvino 2025.3"."""
    return ", ".join(f"{side['name']} {dict(side['facts']).get('version', 'unknown')}" for side in running["sides"])


RENDERER = Renderer(name="text", suffix=".txt", render=render)
