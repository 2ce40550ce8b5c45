"""The study for a terminal: verdict and cause first, then what to do, the evidence, and what was not examined.

`render_text` knows nothing about the terminal: the caller passes its width and whether colour is wanted (a terminal, and
no NO_COLOR). Without colour the text holds no escape codes; names have theirs spelt out (`words.clean`), so that no
file can write to the terminal.
"""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from parityscope.languages import columns_of, say_in_language
from parityscope.report import Renderer
from parityscope.report._console import (
    INDENT,
    VERDICT_STYLES,
    command_line,
    keep_units,
    print_heading,
    print_paragraph,
    print_rows_left,
    print_table,
    write_to_console,
)
from parityscope.report.screen_rows import without_bracket
from parityscope.report.view import view_answer, view_study
from parityscope.report.words import ABSENT, shorten_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_STUDY = "STUDY"  # in commands about its folder
_STUDY_WORD = re.compile(rf"(?<!\S){_STUDY}(?!\S)")  # a word by itself: a file may be named like it
_OUTCOMES = {"supports": "green", "refutes": "dim", "inconclusive": "yellow"}
_MOST_SUSPECTS = 5
_REST = "--all shows everything here"  # where there is no report to point to
_MOST_ANSWER = 15  # lines of the first screen, where further ways to repair can be left out
_MOST_CALLS = 12  # of repeated calls that are shown; chosen
_MOST_LINES = 16  # of code that a repair shows here; more is for the page. Chosen: half a terminal.


def render_text(
    document: Mapping[str, Any], *, study: str = _STUDY, width: int = 100, color: bool = False, ladder: bool = False
) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`, and the tolerance ladder if asked.

    `study` is what commands about its folder name.
    """
    show = partial(_print_report, study=study, ladder=ladder)
    return write_to_console(show, view_study(document), width=width, color=color)


def render_first_screen(document: Mapping[str, Any], *, where: str = "", width: int = 100, color: bool = False) -> str:
    """The answer alone, in at most some fifteen lines; `where` is the report that holds the rest."""
    return write_to_console(partial(print_first_screen, where=where), view_answer(document), width=width, color=color)


def plain_first_screen(document: Mapping[str, Any], width: int = 100) -> str:
    """The answer alone, without colour, blank ends of lines and the pointer to the rest: for other tools' reports."""
    lines = render_first_screen(document, width=width).rstrip().splitlines()
    rest = say_in_language(_REST)
    return "\n".join(line.removesuffix(rest).rstrip() for line in lines if line.strip() != rest)


def print_first_screen(console: Console, model: Mapping[str, Any], *, where: str = "") -> None:
    """The answer, of which `where` is the report; what has none says in its `details` where the rest is."""
    found, style = model["first_screen"], VERDICT_STYLES[model["verdict"]["key"]]
    study = shlex.quote(str(PurePath(where).parent)) if where else _STUDY
    rows = [
        {**row, "command": _STUDY_WORD.sub(lambda _: study, row["command"])}
        for row in _rows_that_fit(found, console.width)
    ]
    _print_answer(console, found, rows, style)
    other = found.get("details") or _REST
    details = say_in_language(f"Details: {where}  (--all for everything here)" if where else other)
    rest = say_in_language(found["rest"])
    console.print(f"{INDENT}{rest}{'  ' if rest else ''}{details}", style="dim", soft_wrap=True)


def _rows_that_fit(found: Mapping[str, Any], width: int) -> list[dict[str, str]]:
    """The rows of an answer; of one that is too long without further ways to the same end, the last of them first.

    Where that is not enough, what stands in brackets gives way, in the longest row first.
    """
    rows = list(found["rows"])
    labels = [row["label"] for row in rows]
    fix = labels.index("Fix") if "Fix" in labels else len(rows)
    further = [place for place, label in enumerate(labels) if place > fix and label == "or"]
    while further and _count_lines(found, rows, width) > _MOST_ANSWER:
        del rows[further.pop()]
    while _count_lines(found, rows, width) > _MOST_ANSWER:
        shorter = {place: without_bracket(row["text"]) for place, row in enumerate(rows)}
        wordy = [place for place, text in shorter.items() if text != say_in_language(rows[place]["text"])]
        if not wordy:
            break
        longest = max(wordy, key=lambda place: columns_of(say_in_language(rows[place]["text"])))
        rows[longest] = {**rows[longest], "text": shorter[longest]}
    return rows


def _count_lines(found: Mapping[str, Any], rows: Sequence[Mapping[str, str]], width: int) -> int:
    """How many lines an answer has with `rows` and its last line."""
    return len(write_to_console(partial(_print_answer, rows=rows), found, width=width, color=False).splitlines()) + 1


def _print_answer(
    console: Console, found: Mapping[str, Any], rows: Sequence[Mapping[str, str]], style: str = ""
) -> None:
    """The title in `style`, and `rows` under it."""
    from rich.text import Text

    title, basis = say_in_language(found["title"]), say_in_language(found["basis"])
    console.print(Text.assemble((keep_units(f"{found['symbol']} {title}"), style), (f"  ({basis})", "dim")))
    for row in rows:
        _print_row(console, row, _width_of_labels(found))


def _width_of_labels(found: Mapping[str, Any]) -> int:
    """Whole indents, as commands are set in by those."""
    longest = max((columns_of(say_in_language(row["label"])) for row in found["rows"]), default=0)
    return (longest // len(INDENT) + 1) * len(INDENT)


def _print_row(console: Console, row: Mapping[str, str], width: int) -> None:
    """One row: its label in `width` columns, its text, its command as it can be copied."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    inner = (len(INDENT) + width + 2) // len(INDENT)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=width, no_wrap=True)
    grid.add_column(overflow="fold")
    told = Text(keep_units(say_in_language(row["text"])))
    if row["note"] and not row["command"]:
        told = Text.assemble(told, "\n", (keep_units(say_in_language(row["note"])), "dim"))
    grid.add_row(Text(say_in_language(row["label"]), style="bold"), told)
    console.print(Padding(grid, (0, 0, 0, len(INDENT))))
    if row["command"]:
        command_line(console, row["command"], indent=inner)
        if row["note"]:
            print_paragraph(console, row["note"], "dim", indent=inner)


def _print_report(console: Console, model: Mapping[str, Any], *, study: str, ladder: bool) -> None:
    _print_verdict(console, model)
    _print_causes(console, model)
    _print_sequence(console, model)
    _print_repairs(console, model)
    if model["tensorrt"]:
        _print_nvidia_commands(console, model)
    _print_other_findings(console, model)
    _print_outputs(console, model)
    _print_elements(console, model)
    _print_suspects(console, model)
    _print_calls(console, model)
    if ladder:
        _print_ladder(console, model)
    _print_experiments(console, model, study)
    _print_skipped(console, model)
    _print_run(console, model)


def _print_verdict(console: Console, model: Mapping[str, Any]) -> None:
    verdict, versus = model["verdict"], model["versus"]
    print_paragraph(console, f"{verdict['symbol']} {verdict['label']}", VERDICT_STYLES[verdict["key"]])
    print_paragraph(console, model["headline"], "bold")
    print_paragraph(
        console, f"{versus['model']}: {versus['candidate']} against {versus['reference']}, {versus['inputs']}", "dim"
    )
    if model["varies"]:
        print_paragraph(console, model["varies"], "yellow")


def _print_causes(console: Console, model: Mapping[str, Any]) -> None:
    print_heading(console, "Cause" if len(model["causes"]) < 2 else "Causes")
    if model["no_cause"]:
        print_paragraph(console, model["no_cause"])
    for finding in model["causes"]:
        _print_finding(console, finding)


def _print_sequence(console: Console, model: Mapping[str, Any]) -> None:
    found = model["sequence"]
    if not found:
        return
    print_heading(console, "One after the other")
    print_paragraph(console, found["note"], "dim")
    for step in found["steps"]:
        print_paragraph(console, f"{step['place']}. {step['code']}: {step['correction']}", "bold")
        change = f"error {step['before']} -> {step['after']}, {step['share']} of all of it; {step['proof']}"
        print_paragraph(console, f"{change} (experiment {step['experiment']})", indent=1)
    print_paragraph(console, found["left"])


def _print_other_findings(console: Console, model: Mapping[str, Any]) -> None:
    if model["others"]:
        print_heading(console, "Also found")
        for finding in model["others"]:
            _print_finding(console, finding)


def _print_finding(console: Console, finding: Mapping[str, Any]) -> None:
    print_paragraph(console, f"{finding['code']} {finding['title']}", "bold")
    print_paragraph(console, finding["claim"], indent=1)
    site = finding["site"]
    if site:
        print_paragraph(
            console, f"where: {site['node'] or site['tensor']} ({site['op_type']}), tensor {site['tensor']}", indent=1
        )
    if finding["contradicted"]:
        print_paragraph(console, f"evidence contradicts it: {finding['contradicted']}", "yellow", indent=1)
    print_paragraph(console, f"confidence: {finding['confidence']} ({finding['confidence_from']})", indent=1)
    if finding["share"]:
        print_paragraph(console, f"explains: {finding['share']} of the output error", indent=1)
    if curve := finding["curve"]:
        print_paragraph(console, f"the curve, from what the model says to what it gives: {curve['pairs']}", indent=1)
    if finding["ruled_out"]:
        rows = [(one["kind"], one["tried"], one["least"], one["nearest"]) for one in finding["ruled_out"]]
        print_table(console, ("ruled out", "tried", "found from", "nearest, no cause"), rows, right=(2,))
    if finding["unsaid"]:
        print_paragraph(
            console, f"details: {'; '.join(f'{name} {value}' for name, value in finding['unsaid'])}", "dim", indent=1
        )


def _print_repairs(console: Console, model: Mapping[str, Any]) -> None:
    if not model["repairs"]:
        return
    print_heading(console, model["doing"])
    for place, repair in enumerate(model["repairs"], start=1):
        print_paragraph(console, f"{place}. {repair['title']}", "bold")
        print_paragraph(console, repair["text"], indent=1)
        trial = repair["trial"]
        if trial:
            change = (
                f"tried: {trial['before']} -> {trial['after']} ({trial['ratio'] or 'no ratio'}), {trial['verdict']}"
            )
            print_paragraph(console, change, "green" if trial["verdict"] == "within" else "yellow", indent=1)
            if trial["file"]:
                print_paragraph(console, f"the copy: {trial['file']}", indent=1)
        elif repair["cause"]:
            before, after = repair["cause"]["before"], repair["cause"]["after"]
            told = f"not tried itself; the reference, given the same fault, goes from {before} to {after}"
            print_paragraph(console, told, "dim", indent=1)
        for line in repair["command"].splitlines():
            command_line(console, line)
        _print_advice_lines(console, repair["code_lines"])
        if repair["tools"]:
            print_paragraph(console, "for your tool:", "dim", indent=1)
        for row in repair["tools"]:
            print_paragraph(console, row["tool"], "dim", indent=2)
            for line in row["lines"].splitlines():
                command_line(console, line, indent=3)


def _print_advice_lines(console: Console, found: Mapping[str, str]) -> None:
    """The lines of an advice, where they are few."""
    if not found:
        return
    lines = found["lines"].splitlines()
    if len(lines) > _MOST_LINES:
        print_paragraph(
            console, f"{len(lines)} lines for it stand in the HTML report ({found['risk']})", "dim", indent=1
        )
        return
    for line in lines:
        command_line(console, line)


def _print_nvidia_commands(console: Console, model: Mapping[str, Any]) -> None:
    if not model["nvidia"]:
        return
    print_heading(console, "With NVIDIA's tools")
    for row in model["nvidia"]:
        versions = f", TensorRT {row['versions']}" if row["versions"] else ""
        print_paragraph(console, f"{row['code']} {row['does']}: {row['tool']}{versions}".strip(), "bold")
        command_line(console, row["line"])


def _print_outputs(console: Console, model: Mapping[str, Any]) -> None:
    print_heading(console, "Outputs (relative L2 error)")
    rows = []
    for output in model["outputs"]:
        declared = next((entry["value"] for entry in output["expected"] if entry["declared"]), "")
        name = shorten_name(output["name"], max(16, console.width - 56))
        rows.append((name, output["rel_l2"], declared, output["grade"], output["verdict"]))
    print_table(console, ("output", "measured", "expected", "grade", "verdict"), rows, right=(1, 2))
    for output in model["outputs"]:
        if output["reason"]:
            print_paragraph(console, f"{shorten_name(output['name'], 32)}: {output['reason']}", "dim")
        if found := output["triangle"]:
            print_paragraph(
                console,
                f"{shorten_name(output['name'], 32)}: {found['peer_reference']} is what the format costs anyway "
                f"({found['peer']}), {found['own']} is this engine's own",
                "dim",
            )


def _print_elements(console: Console, model: Mapping[str, Any]) -> None:
    """What Polygraphy calls the statistics of the absolute and the relative difference."""
    told = [(output["name"], output["elements"]) for output in model["outputs"] if output["elements"]]
    if not told:
        return
    print_heading(console, "Element by element")
    rows = [
        (
            shorten_name(name, max(16, console.width - 66)),
            *(found[key] for key in ("max_abs", "place", "max_rel_rms", "mean_abs", "p50_abs", "p99_abs")),
        )
        for name, found in told
    ]
    heads = ("output", "max abs", "at", "max abs / RMS", "mean abs", "median abs", "p99 abs")
    print_table(console, heads, rows, right=(1, 3, 4, 5, 6))
    relative = [
        (
            shorten_name(name, max(16, console.width - 50)),
            found["max_rel"],
            found["max_rel_place"],
            found["zero_references"],
        )
        for name, found in told
        if found["max_rel"] != ABSENT
    ]
    if relative:
        print_table(console, ("output", "max |c - r| / |r|", "at", "where r is 0"), relative, right=(1, 3))


def _print_suspects(console: Console, model: Mapping[str, Any]) -> None:
    if not model["suspects"]:
        return
    print_heading(console, "Where it begins (relative L2 error)")
    shown = [suspect for suspect in model["suspects"] if not suspect["minor"]][:_MOST_SUSPECTS]
    rows = [
        (
            str(suspect["rank"]),
            shorten_name(suspect["node"] or suspect["tensor"], max(14, console.width - 58)),
            suspect["introduced"],
            suspect["inherited"],
            suspect["share"],
        )
        for suspect in shown
    ]
    print_table(console, ("", "layer", "introduced", "inherited", "share of output"), rows, right=(2, 3, 4))
    hardly = all(suspect["minor"] for suspect in model["suspects"] if suspect not in shown)
    told = " that hardly reach the output, in the HTML report" if hardly else ", in the HTML report"
    print_rows_left(console, len(model["suspects"]) - len(shown), told)
    for sentence in model["conditioning"]:
        print_paragraph(console, sentence, "dim")


def _print_calls(console: Console, model: Mapping[str, Any]) -> None:
    """Some of the repeated calls: the first, the last, where the tokens part, and those that halve what lies between."""
    calls = model["figures"]["calls"]
    rows = calls["rows"]
    if not rows:
        return
    print_heading(console, "Call by call (relative L2 error)")
    step = max(1, -(-len(rows) // _MOST_CALLS))
    shown = sorted({*range(0, len(rows), step), len(rows) - 1, *((calls["parts"] - 1,) if calls["parts"] else ())})
    keys = ["call", "error", "forced", "expected", *(("token", "free_token") if rows[0]["token"] else ())]
    heads = ("call", "free", "teacher-forced", "expected", "reference's token", "candidate's")
    told = [tuple(rows[place][key] for key in keys) for place in shown if place < len(rows)]
    print_table(console, heads[: len(keys)], told, right=tuple(range(len(keys))))
    for one in calls["suspects"]:
        print_paragraph(console, f"call {calls['parts']}: {one['name']}, {one['text']}", "dim")


def _print_ladder(console: Console, model: Mapping[str, Any]) -> None:
    print_heading(console, "Which tensors exceed which tolerance (relative L2), from loose to tight")
    if not model["ladder"]:
        print_paragraph(console, "No tensors were compared.")
        return
    rows = [(rung["tolerance"], rung["failing"], rung["first"], rung["new"]) for rung in model["ladder"]]
    print_table(console, ("tolerance", "exceed it", "first in the graph", "new at this step"), rows, right=(0, 1))


def _print_experiments(console: Console, model: Mapping[str, Any], study: str) -> None:
    if not model["experiments"]:
        return
    print_heading(console, "Experiments")
    if any(item["identity"] for item in model["experiments"]):
        print_paragraph(console, f"parityscope experiment {study} NAME runs one of them again, alone", "dim")
    for group in _group_alike_experiments(model["experiments"]):
        for item in group:
            called = item["identity"] or item["check"]
            print_paragraph(
                console, f"{item['symbol']} {item['label']}: {called} {item['claim']}", _OUTCOMES[item["outcome"]]
            )
        if item["outcome"] == "supports" and item["predicted"]:
            print_paragraph(console, f"predicted: {item['predicted']}", "dim", indent=1)
        found = item["because"] or f"{item['before']}, then {item['after']}"
        print_paragraph(console, f"{'measured: ' if item['outcome'] == 'supports' else ''}{found}", "dim", indent=1)


def _group_alike_experiments(items: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The experiments in their order; those that do not support their claim and say the same stand together."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for place, item in enumerate(items):
        apart = item["outcome"] == "supports" or not item["because"]
        groups.setdefault((place,) if apart else (item["outcome"], item["because"]), []).append(item)
    return list(groups.values())


def _print_skipped(console: Console, model: Mapping[str, Any]) -> None:
    if not model["skipped"]:
        return
    print_heading(console, "What was not examined")
    for item in model["skipped"]:
        print_paragraph(console, f"{'! ' if item['asked'] else '- '}{item['what']}: {item['reason']}")
        if item["fix"]:
            print_paragraph(console, f"fix: {item['fix']}", "cyan", indent=1)


def _print_run(console: Console, model: Mapping[str, Any]) -> None:
    running = model["running"]
    if running["command"]:
        print_heading(console, "How it was run")
        command_line(console, running["command"], indent=1)
        print_paragraph(console, f"{running['tool']}, {_runtime_versions(running)}", "dim", indent=1)


def _runtime_versions(running: Mapping[str, Any]) -> str:
    """Both sides' runtimes: "reference onnxruntime 1.23.2, candidate openvino 2025.3"."""
    return ", ".join(f"{side['name']} {dict(side['facts']).get('version', 'unknown')}" for side in running["sides"])


RENDERER = Renderer(name="text", suffix=".txt", render=render_text)
