"""Every pair that was checked -> text | json | html | junit | sarif | github | markdown. All of it is pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_paragraph, write_to_console
from parityscope.report._markup import escape_markup, fence_lines, markdown_table
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items, to_plain_data
from parityscope.report.as_github import annotate_study, quiet_lines, workflow_command
from parityscope.report.as_junit import make_suite, render_suites, suite_of_study
from parityscope.report.as_sarif import make_result, results_of_study, sarif_log, titles_of_rules
from parityscope.report.as_text import plain_first_screen
from parityscope.report.diff import describe_fact, describe_output
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import view_closing
from parityscope.report.words import as_number, clean, format_percent, format_seconds

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from parityscope.report.as_junit import JUnitCase
    from parityscope.study.checking.matrix import MatrixFile
    from parityscope.study.checking.pairs import CheckFile
    from parityscope.study.checking.running import PairOutcome

_BULK = ("tensors", "plots", "graph_views", "wiring", "localization", "ladder", "calls", "refuted", "question")
_STATUSES = ("beyond", "worse", "error", "incomplete", "better", "within")
_SYMBOLS = {"beyond": "✕", "worse": "✕", "error": "✕", "incomplete": "?", "better": "✓", "within": "✓"}
_STYLES = {"beyond": "beyond", "worse": "beyond", "error": "beyond", "incomplete": "incomplete"}
_WIDE = 1000  # columns: the title of a first screen on one line
_MOST = 200  # rows of the table; chosen
_NOTED = {"worse": "Worse than the baseline", "error": "Could not be examined"}
_NEVER = "1970-01-01T00:00:00"  # the form wants a time, and what could not be examined has none
_TITLES = {"BASELINE": "Worse than the baseline", "UNEXAMINED": "Could not be examined"}
_CODES = {"worse": "BASELINE", "error": "UNEXAMINED"}


def check_document(
    file: CheckFile | MatrixFile,
    outcomes: Sequence[PairOutcome],
    *,
    baseline: Path,
    updated: bool = False,
    command: str = "",
) -> dict[str, Any]:
    """Everything that was found, as plain data; `updated` says that it becomes the baseline.

    `verdict` is "beyond" where a pair is beyond or worse than its baseline, "error" where one could not be examined,
    "incomplete" where one could not be judged, else "within".
    `study` of a pair is without the bulk that only plots need; what was measured before stands in `changes`.
    """
    counts = {name: sum(one.status == name for one in outcomes) for name in _STATUSES}
    failed = counts["beyond"] + counts["worse"]
    verdict = "beyond" if failed else next((name for name in ("error", "incomplete") if counts[name]), "within")
    return plain_items(
        {
            **document_head(command, kind="check"),
            "verdict": verdict,
            "file": str(file.path),
            "baseline": str(baseline),
            "updated": updated,
            "counts": counts,
            "pairs": [pair_as_data(one) for one in outcomes],
        }
    )


def pair_as_data(outcome: PairOutcome) -> dict[str, Any]:
    """What became of one pair."""
    request, error = outcome.pair.request, outcome.error
    return {
        "name": outcome.pair.name,
        "model": str(request.model),
        "candidate": request.candidate,
        "status": outcome.status,
        "seconds": outcome.seconds,
        "report": str(outcome.folder / "report.html") if outcome.folder else "",
        "error": None if error is None else {"problem": error.problem, "where": error.where, "fix": error.fix},
        "changes": None if outcome.changes is None else to_plain_data(asdict(outcome.changes)),
        "study": None if outcome.study is None else _without_bulk(outcome.study),
    }


def _without_bulk(study: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in study.items() if key not in _BULK}


def _view_check(document: Mapping[str, Any]) -> dict[str, Any]:
    """All that was checked, worded."""
    verdict = str(document["verdict"])
    return {
        **view_status(verdict),
        "title": describe_summary(document),
        "file": clean(document["file"]),
        "pairs": [view_pair(one) for one in document["pairs"]],
        "better": document["counts"]["better"],
        "updated": document["updated"],
        "unknown": sum(one["changes"] is None and one["study"] is not None for one in document["pairs"]),
        **view_closing(document),
    }


def view_status(status: str) -> dict[str, str]:
    """How what became of a pair, or of all, looks: its sign and its style."""
    return {"symbol": _SYMBOLS.get(status, "✓"), "css": _STYLES.get(status, "within")}


def view_pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    """A pair worded: `failed` says whether it makes the check fail."""
    status = str(pair["status"])
    return {
        "name": clean(pair["name"]),
        "status": status,
        **view_status(status),
        "failed": status in {"beyond", "worse", "error"},
        "told": _describe_pair(pair),
        "seconds": format_seconds(pair["seconds"]),
        "report": clean(pair["report"]),
        "screen": _screen_of(pair),
    }


def _describe_pair(pair: Mapping[str, Any]) -> str:
    """The line of a pair, behind its name."""
    status = str(pair["status"])
    if status == "error":
        error = pair["error"]
        return "; ".join(clean(error[key]) for key in ("problem", "fix") if error[key])
    if status in {"worse", "better"}:
        return f"{_describe_changes(pair, status)}{_describe_since(pair['changes'])}"
    if status == "beyond":
        return _title_of_screen(pair["study"])
    skipped = [*(pair["changes"] or {}).get("skipped", ()), *pair["study"]["skipped"]]
    unjudged = [one for one in skipped if one["asked"]]
    if status == "incomplete" and unjudged:
        return f"{clean(unjudged[0]['what'])}: {clean(unjudged[0]['reason'])}"
    return _describe_worst_output(pair)


def describe_summary(document: Mapping[str, Any]) -> str:
    """How many pairs there are of each kind, in one line."""
    counts = document["counts"]
    words = {
        "beyond": "beyond the policy",
        "worse": "worse than the baseline",
        "error": "could not be examined",
        "incomplete": "not judged",
        "better": "better than the baseline",
        "within": "within",
    }
    return ", ".join(f"{counts[name]} {told}" for name, told in words.items() if counts[name])


def _screen_of(pair: Mapping[str, Any]) -> str:
    """The first screen of a pair's study, or its error in full."""
    if pair["study"] is not None:
        return plain_first_screen(pair["study"])
    error = pair["error"]
    labels = (("", "problem"), ("where: ", "where"), ("fix:   ", "fix"))
    return "\n".join(f"{label}{clean(error[key])}" for label, key in labels if error[key])


def _title_of_screen(study: Mapping[str, Any]) -> str:
    return plain_first_screen(study, width=_WIDE).splitlines()[0][2:].strip()


def _describe_changes(pair: Mapping[str, Any], status: str) -> str:
    found = [one for one in pair["changes"]["outputs"] if one["change"] == status]
    said = f"{status} than the baseline: {clean(found[0]['name'])!r} {describe_output(found[0])}"
    return f"{said}; {len(found) - 1} more outputs too" if len(found) > 1 else said


def _describe_since(changes: Mapping[str, Any]) -> str:
    facts = changes["facts"]
    if not facts:
        return ""
    more = f" and {len(facts) - 1} more" if len(facts) > 1 else ""
    return f"; since {describe_fact(facts[0])}{more}"


def _describe_worst_output(pair: Mapping[str, Any]) -> str:
    rows = pair["study"]["outputs"]
    worst = max(rows, key=lambda one: as_number(one.get("rel_l2")) or 0.0, default=None)
    if worst is None:
        return ""
    told = f"{clean(worst['name'])!r} differs by {format_percent(worst.get('rel_l2'))}"
    changes = pair["changes"]
    if changes is None:
        return f"{told}; it has no baseline yet"
    before = next((one["errors"][0] for one in changes["outputs"] if one["name"] == worst["name"]), None)
    return told if before is None else f"{told}; the baseline is {format_percent(before)}"


def pair_as_text(pair: Mapping[str, Any], *, color: bool = False) -> str:
    """The line of one pair."""
    return write_to_console(print_pair, view_pair(pair), width=100, color=color)


def summary_as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """What stands below the lines of the pairs."""
    return write_to_console(_print_summary, _view_check(document), width=width, color=color)


def _print_check(console: Console, model: Mapping[str, Any]) -> None:
    """Writes a line a pair, and the summary."""
    for pair in model["pairs"]:
        print_pair(console, pair)
    _print_summary(console, model)


def print_pair(console: Console, view: Mapping[str, Any]) -> None:
    """Never wrapped: the line is there to be searched for."""
    from rich.text import Text

    told = say_in_language(view["told"])
    line = Text.assemble(
        (f"{view['symbol']} {view['name']}", VERDICT_STYLES[view["css"]]), f"  {told}  ", (view["seconds"], "dim")
    )
    console.print(line, soft_wrap=True)


def _print_summary(console: Console, model: Mapping[str, Any]) -> None:
    print_paragraph(console, model["title"], "bold")
    if model["updated"]:
        return
    if model["unknown"]:
        print_paragraph(console, "parityscope check --update writes the baseline of what has none", "dim")
    elif model["better"]:
        print_paragraph(console, "parityscope check --update keeps what became better", "dim")


def _check_as_markdown(document: Mapping[str, Any]) -> str:
    """`document` as text."""
    return "\n".join(_list_lines(document)) + "\n"


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    pairs = [view_pair(one) for one in document["pairs"]]
    yield f"### {escape_markup(say_in_language(describe_summary(document)))}"
    rows = [(one["symbol"], one["name"], one["told"], one["seconds"]) for one in pairs]
    yield from markdown_table(("", "check", "answer", "took"), rows, most=_MOST)
    for one in pairs:
        if one["failed"]:
            yield ""
            yield f"#### {escape_markup(one['name'])}"
            yield ""
            yield from fence_lines(one["screen"].splitlines())


def _check_as_github(document: Mapping[str, Any]) -> str:
    """`document` as lines of text."""
    return "\n".join(_list_annotations(document)) + "\n"


def _list_annotations(document: Mapping[str, Any]) -> Iterator[str]:
    yield from quiet_lines(write_to_console(_print_check, _view_check(document), width=100, color=False))
    for pair in document["pairs"]:
        view = view_pair(pair)
        if pair["study"] is not None:
            yield from annotate_study(pair["study"])
        if pair["status"] in _NOTED:
            yield workflow_command("error", f"{_NOTED[pair['status']]}: {view['name']}", view["told"])


def _check_as_junit(document: Mapping[str, Any]) -> str:
    """`document` as XML text."""
    return render_suites(map(_suite_of_pair, document["pairs"]))


def _suite_of_pair(pair: Mapping[str, Any]) -> ET.Element:
    name = clean(pair["name"])
    if pair["study"] is not None:
        return suite_of_study(pair["study"], name=name, further=_case_of_baseline(pair))
    view = view_pair(pair)
    facts = {"candidate": clean(pair["candidate"])}
    seconds = as_number(pair["seconds"]) or 0.0
    return make_suite(
        name,
        [("examination", "error", view["told"])],
        told=view["screen"],
        seconds=seconds,
        created=_NEVER,
        facts=facts,
    )


def _case_of_baseline(pair: Mapping[str, Any]) -> Iterator[JUnitCase]:
    """The baseline as a test case, where there is one."""
    changes = pair["changes"]
    if changes is None:
        return
    if changes["verdict"] == "worse":
        kind = "failure"
    else:
        kind = "error" if changes["verdict"] == "incomplete" else ""
    yield "baseline", kind, view_pair(pair)["told"] if kind else ""


def _check_as_sarif(document: Mapping[str, Any]) -> str:
    """`document` as JSON text."""
    titles = dict(_TITLES)
    for pair in document["pairs"]:
        titles |= titles_of_rules(pair["study"] or {})
    results = [one for pair in document["pairs"] for one in _results_of_pair(pair)]
    return sarif_log(results, titles, str(document["tool"]["version"]))


def _results_of_pair(pair: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    view = view_pair(pair)
    if pair["study"] is not None:
        yield from results_of_study(pair["study"])
    if pair["status"] in _CODES:
        yield make_result(_CODES[pair["status"]], f"{view['name']}: {view['told']}", str(pair["model"]))


FORMS = Forms(
    title="a check",
    view=_view_check,
    show=_print_check,
    page=Page(template=TEMPLATES / "check.html.j2"),
    others={
        "junit": _check_as_junit,
        "sarif": _check_as_sarif,
        "github": _check_as_github,
        "markdown": _check_as_markdown,
    },
)
