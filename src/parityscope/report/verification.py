"""A verification -> text | json | html: what `parityscope verify` shows.

`verification_document` makes the strict-JSON mapping that everything else is drawn from (schema "parityscope/1", kind
"verification"); `view` words it. All of it is pure.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import format_target
from parityscope.checks.generated_inputs import findings_about
from parityscope.report import svg
from parityscope.report._console import (
    print_head,
    print_heading,
    print_not_examined,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report._findings import findings_in_words
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import describe_samples, view_closing
from parityscope.report.words import (
    ABSENT,
    as_number,
    clean,
    format_bytes,
    format_count,
    format_figure,
    format_percent,
    shorten_name,
)
from parityscope.verification.quantities import direction_of_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from parityscope.case import Case
    from parityscope.verification.records import MeasuredSide, Verification

_KIND = "verification"
_ROWS = 20  # regressions that are shown; the JSON holds all
_LABELS = {
    "improved": ("within", "✓", "Improved: the repair holds"),
    "within": ("within", "✓", "Within budget"),
    "not proved": ("incomplete", "?", "Not proved"),
    "worse": ("beyond", "✕", "Worse: the repair is refuted"),
    "beyond": ("beyond", "✕", "Beyond budget: the repair is refuted"),
}
_OUTCOMES = {
    "improved": ("within", "better"),
    "same": ("within", "the same"),
    "not proved": ("incomplete", "not proved"),
    "worse": ("beyond", "worse"),
    "within": ("within", "kept"),
    "beyond": ("beyond", "missed"),
}
_MOST = 10
_WIDTH, _HEIGHT = 520.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 30.0, 16.0, 34.0
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_LANE = 24.0
_DECADES = 14  # shown below the largest error at most
_AT = (_LEFT + 70, _WIDTH - _RIGHT - 70)  # of before and of after
_ROW = 64.0


def verification_document(found: Verification, case: Case, *, command: str = "") -> dict[str, Any]:
    """Everything that a verification says, as plain data.

    Differences are after - before; latencies are in seconds, sizes in bytes.
    """
    model, inputs = case.model, case.inputs
    return plain_items(
        {
            **document_head(command, kind=_KIND),
            "verdict": found.verdict,
            "refuted": found.refuted,
            "because": found.because,
            "findings": list(findings_about(inputs)),
            "needed": found.needed,
            "model": {
                "name": case.name,
                "path": str(model.named),
                "sha256": model.sha256,
                "nodes": model.nodes,
                "nbytes": model.nbytes,
            },
            "inputs": {
                "origin": inputs.origin,
                "sha256": inputs.sha256,
                "generated": inputs.generated,
                "samples": found.samples,
            },
            "reference": _side_as_data(found.reference),
            "before": _side_as_data(found.before),
            "after": _side_as_data(found.after),
            "quantities": [{**asdict(one), "difference": one.difference} for one in found.quantities],
            "budgets": found.budgets,
            "outputs": found.outputs,
            "latency": found.latency,
            "regressions": found.regressions,
            "skipped": found.skipped,
            "seed": found.seed,
            "seconds": found.seconds,
        }
    )


def _side_as_data(side: MeasuredSide) -> dict[str, Any]:
    return {**asdict(side), "target": format_target(side.target)}


def has_succeeded(document: Mapping[str, Any]) -> bool:
    """Whether the verification is "not proved" for want of samples alone: nothing got worse on any of them.

    A certificate about samples like these is more than most people ask for: where every budget is kept on every sample, or every
    sample became better, that is the answer, and the certificate is told in a second line.

    With budgets: each is kept on every sample. Without: each number became better over all, and on no sample worse.
    """
    numbers = document["quantities"]
    if document["verdict"] != "not proved" or not document["needed"]:
        return False
    if budgets := document["budgets"]:
        return all(not one["misses"] for one in budgets) and not any(_has_worsened(one) for one in numbers)
    return bool(numbers) and not any(one["worsened"] for one in numbers) and any(one["improved"] for one in numbers)


def _has_worsened(one: Mapping[str, Any]) -> bool:
    """Whether a decision of the task was lost; errors are the budgets' matter."""
    return one["kind"] == "task" and bool(one["worsened"])


def _describe_missing_samples(document: Mapping[str, Any]) -> str:
    """How many more samples would certify what was seen, and for how many of samples like these: a sentence."""
    more = int(as_number(document["needed"]) or 0) - len(document["inputs"]["samples"])
    told = f"{format_count(max(more, 1))} more {'sample' if more <= 1 else 'samples'} would certify it"
    shares = [one for one in document["budgets"] if as_number(one.get("coverage"))]
    if not shares:
        return f"{told}."
    share, sure = format_percent(shares[0]["coverage"]), format_percent(shares[0]["confidence"])
    return f"{told} for {share} of samples like these, with {sure} confidence."


def _view_verification(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown, in the order in which it is read."""
    css, symbol, label = _LABELS[document["verdict"]]
    samples = document["inputs"]["samples"]
    because = [_make_sentence(one) for one in document["because"]]
    succeeded = has_succeeded(document)
    if succeeded:
        css, symbol = "within", "✓"
        label = f"{_success_title(document)} on {format_count(len(samples))} of {format_count(len(samples))} samples"
        because = [_make_sentence("; ".join(_describe_changes(document)[:3])), _describe_missing_samples(document)]
    return {
        "verdict": css,
        "symbol": symbol,
        "label": label,
        "headline": because[0] if because else label,
        "because": because[1:],
        "needed": format_count(document["needed"]) if document["needed"] and not succeeded else "",
        "model": clean(document["model"]["name"]),
        "inputs": describe_samples(len(samples), document["inputs"]),
        "findings": findings_in_words(document),
        "samples": format_count(len(samples)),
        "sides": [_view_side(document[name], name) for name in ("reference", "before", "after")],
        "quantities": [_view_quantity(one, succeeded=succeeded) for one in document["quantities"]],
        "budgets": [_view_budget(one, succeeded=succeeded) for one in document["budgets"]],
        "outputs": [_view_output(one) for one in document["outputs"]],
        "latency": _view_latency(document["latency"]) if document["latency"] else None,
        "regressions": [_regression_row(one) for one in document["regressions"][:_ROWS]],
        "more_regressions": max(0, len(document["regressions"]) - _ROWS),
        "seed": document["seed"],
        **view_closing(document),
        "schema": f"{document['schema']}, kind {document['kind']}",
    }


def _success_title(document: Mapping[str, Any]) -> str:
    return "Within budget" if document["budgets"] else "Better"


def _describe_changes(document: Mapping[str, Any]) -> list[str]:
    """What became of each number, those of the task first: "top-1 0 -> 1.00"."""
    ordered = sorted(document["quantities"], key=lambda one: one["kind"] != "task")
    return [_describe_change(one) for one in ordered]


def _describe_change(one: Mapping[str, Any]) -> str:
    what = f"the error of {clean(one['name'])}" if one["kind"] == "output" else clean(one["title"])
    return f"{what} {format_figure(one['before'])} \N{RIGHTWARDS ARROW} {format_figure(one['after'])}"


def _make_sentence(text: str) -> str:
    plain = clean(text)
    return plain[:1].upper() + plain[1:] + "."


def _view_side(side: Mapping[str, Any], name: str) -> dict[str, str]:
    spread = as_number(side["spread"])
    return {
        "name": name,
        "target": clean(side["target"]),
        "executed": clean(side["executed"] or ABSENT),
        "size": format_bytes(side["nbytes"]),
        "nodes": format_count(side["nodes"]),
        "spread": "none" if spread == 0.0 else format_figure(spread),
        "environment": ", ".join(f"{clean(key)} {clean(value)}" for key, value in side["environment"].items()),
    }


def _view_quantity(one: Mapping[str, Any], *, succeeded: bool) -> dict[str, Any]:
    css, outcome = _OUTCOMES[one["outcome"]]
    if succeeded and one["outcome"] == "not proved" and one["improved"] and not one["worsened"]:
        css, outcome = "within", "better on every sample tried" if not one["equal"] else "better, on no sample worse"
    interval = ABSENT if one["method"] == "none" else f"{format_figure(one['low'])} to {format_figure(one['high'])}"
    return {
        "name": clean(one["name"]),
        "title": clean(one["title"]) + (f", {clean(one['name'])}" if one["kind"] == "output" else ""),
        "against": clean(one["against"]),
        "better": clean(one["better"]),
        "before": format_figure(one["before"]),
        "after": format_figure(one["after"]),
        "difference": format_figure(one["difference"]),
        "interval": interval,
        "method": _describe_method(one),
        "improved": format_count(one["improved"]),
        "equal": format_count(one["equal"]),
        "worsened": format_count(one["worsened"]),
        "p_value": format_figure(one["p_value"]),
        "css": css,
        "outcome": outcome,
        "needed": format_count(one["needed"]) if one["needed"] else "",
        "decisions": _describe_decisions(one["decisions"]),
    }


def _describe_method(one: Mapping[str, Any]) -> str:
    if one["method"] == "none":
        return "too few samples for an interval"
    name = {"bca": "BCa", "percentile": "percentile"}[one["method"]]
    return f"{format_percent(one['confidence'])} {name} interval of {format_count(one['resamples'])} draws"


def _describe_decisions(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    return (
        f"right on both sides {format_count(one['both'])}, only before {format_count(one['only_before'])}, "
        f"only after {format_count(one['only_after'])}, on neither {format_count(one['neither'])}; McNemar's exact p "
        f"= {format_figure(one['p_value'])}"
    )


def _view_budget(one: Mapping[str, Any], *, succeeded: bool) -> dict[str, str]:
    css, verdict = _OUTCOMES[one["verdict"]]
    if succeeded and one["verdict"] == "not proved":
        css, verdict = "within", "kept on every sample tried"
    budget = one["budget"]
    tolerance = budget["tolerance"]
    limit = (
        format_figure(budget["limit"])
        if tolerance is None
        else f"atol {tolerance['atol']:g} + rtol {tolerance['rtol']:g}"
    )
    return {
        "output": clean(one["output"]),
        "metric": clean(budget["metric"]),
        "limit": limit,
        "reason": clean(budget["reason"]),
        "before": format_figure(one["before"]),
        "after": format_figure(one["after"]),
        "misses": f"{format_count(one['misses'])} of {format_count(one['samples'])}",
        "bound": f"{format_percent(one['bound'])} of samples, with {format_percent(one['confidence'])} confidence",
        "needed": "" if one["verdict"] == "within" else format_count(one["needed"]),
        "css": css,
        "verdict": verdict,
    }


def _view_output(one: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in one["before"] if name in one["after"]]
    return {
        "name": clean(one["output"]),
        "dtype": clean(one["dtype"]),
        "nonfinite": (format_count(one["nonfinite_before"]), format_count(one["nonfinite_after"])),
        "metrics": [
            (clean(name), format_figure(one["before"][name]), format_figure(one["after"][name])) for name in names
        ],
        "decisions": _describe_decisions(one["decisions"]),
    }


def _view_latency(latency: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rows": [
            {
                "name": name,
                "median": _format_milliseconds(latency[name]["median"]),
                "mad": _format_milliseconds(latency[name]["mad"]),
                "p95": _format_milliseconds(latency[name]["p95"]),
            }
            for name in ("before", "after")
        ],
        "rounds": format_count(latency["rounds"]),
        "warm_up": format_count(latency["warm_up"]),
        "speedup": f"{format_figure(latency['speedup'])} ({format_figure(latency['low'])} to {format_figure(latency['high'])})",
    }


def _format_milliseconds(seconds: object) -> str:
    value = as_number(seconds)
    return ABSENT if value is None else f"{format_figure(value * 1000)} ms"


def _regression_row(one: Mapping[str, Any]) -> Sequence[str]:
    return clean(one["sample"]), clean(one["quantity"]), format_figure(one["before"]), format_figure(one["after"])


def _print_verification(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of a verification."""
    _print_sides(console, model)
    _print_numbers(console, model)
    _print_budgets(console, model)
    _print_latency(console, model)
    _print_regressions(console, model)
    print_not_examined(console, model["skipped"])


def _print_sides(console: Console, model: Mapping[str, Any]) -> None:
    print_head(console, model, [f"{model['model']}: {model['inputs']}"])
    rows = [(side["name"], side["target"], side["executed"], side["size"], side["spread"]) for side in model["sides"]]
    print_table(console, ("", "target", "executed", "model", "own spread"), rows, right=(3, 4), apart=True)


def _print_numbers(console: Console, model: Mapping[str, Any]) -> None:
    print_heading(console, "Before and after")
    rows = [
        (shorten_name(one["title"], 48), one["before"], one["after"], one["interval"], one["outcome"])
        for one in model["quantities"]
    ]
    print_table(console, ("", "before", "after", "difference", ""), rows, right=(1, 2), apart=True)
    for one in model["quantities"]:
        counts = f"{one['improved']} better, {one['equal']} equal, {one['worsened']} worse"
        print_paragraph(console, f"{one['title']}: samples {counts}; {one['method']}", "dim")
        if one["decisions"]:
            print_paragraph(console, f"{one['title']}: {one['decisions']}", "dim")


def _print_budgets(console: Console, model: Mapping[str, Any]) -> None:
    if model["budgets"]:
        print_heading(console, "Budgets")
        keys = ("output", "metric", "limit", "after", "misses", "bound", "verdict")
        rows = [tuple(one[key] for key in keys) for one in model["budgets"]]
        print_table(
            console,
            ("output", "metric", "limit", "after", "missed", "shown for", ""),
            rows,
            right=(2, 3, 4),
            apart=True,
        )


def _print_latency(console: Console, model: Mapping[str, Any]) -> None:
    latency = model["latency"]
    if latency is None:
        return
    print_heading(console, "Latency")
    rows = [(row["name"], row["median"], row["mad"], row["p95"]) for row in latency["rows"]]
    print_table(console, ("", "median", "median deviation", "95th percentile"), rows, right=(1, 2, 3), apart=True)
    print_paragraph(
        console,
        f"before / after: {latency['speedup']}, {latency['rounds']} rounds each in turns, after a warm-up",
        "dim",
    )


def _print_regressions(console: Console, model: Mapping[str, Any]) -> None:
    if model["regressions"]:
        print_heading(console, "Samples that got worse")
        rows = [(shorten_name(row[0], 40), *row[1:]) for row in model["regressions"][:_MOST]]
        print_table(console, ("sample", "in", "before", "after"), rows, right=(2, 3), apart=True)
        print_rows_left(console, len(model["regressions"]) + model["more_regressions"] - _MOST)


def _draw_verification(document: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The drawings of a verification: each quantity, sample by sample, and the latency."""
    return {
        "pairs": [_draw_pairs(one, place) for place, one in enumerate(document["quantities"])],
        "latency": _draw_latency(document["latency"]) if document["latency"] else "",
    }


def _draw_pairs(quantity: Mapping[str, Any], place: int) -> str:
    """Before and after of every sample; empty where the number has no meaning for single samples."""
    pairs = [
        (before, after)
        for one in zip(quantity["per_sample_before"], quantity["per_sample_after"], strict=True)
        if (before := as_number(one[0])) is not None and (after := as_number(one[1])) is not None
        if not (math.isnan(before) or math.isnan(after))
    ]
    if not pairs:
        return ""
    values = [value for pair in pairs for value in pair]
    y, grid = _log_scale(values) if quantity["kind"] == "output" else _linear_scale(values)
    body = list(grid)
    for css, better in (("same", 0), ("worse", -1), ("better", 1)):
        chosen = [pair for pair in pairs if direction_of_change(quantity["kind"], quantity["better"], *pair) == better]
        lines = "".join(svg.line_path([(_AT[0], y(before)), (_AT[1], y(after))]) for before, after in chosen)
        dots = svg.point_path(
            [point for before, after in chosen for point in ((_AT[0], y(before)), (_AT[1], y(after)))]
        )
        if chosen:
            body.append(svg.svg_element("path", {"d": lines, "class": f"join {css}"}))
            body.append(svg.svg_element("path", {"d": dots, "class": f"dots {css}"}))
    for at, label in zip(_AT, ("before", "after"), strict=True):
        body.append(svg.svg_text(at, _HEIGHT - 10, label, "label", anchor="middle"))
    title = f"{quantity['title']} of every sample"
    counts = f"{quantity['improved']} samples got better, {quantity['worsened']} worse, {quantity['equal']} are equal"
    return svg.svg_figure(f"pairs-{place}", (_WIDTH, _HEIGHT), title, f"{counts}.", body)


def _draw_latency(latency: Mapping[str, Any]) -> str:
    """Every run of both sides as a dot, with the median and the 95th percentile marked."""
    runs = {name: [float(one) * 1000 for one in latency[name]["seconds"]] for name in ("before", "after")}
    every = [one for side in runs.values() for one in side]
    width, height = 1120.0, 2 * _ROW + 50
    x = svg.linear_scale(0.0, max(every) * 1.02, _LEFT, width - _RIGHT)
    body = []
    for tick in svg.list_ticks(0.0, max(every)):
        body.append(
            svg.svg_element("line", {"x1": x(tick), "x2": x(tick), "y1": 8.0, "y2": height - 38, "class": "grid"})
        )
        body.append(svg.svg_text(x(tick), height - 22, format_figure(tick), "tick", anchor="middle"))
    for row, (name, seconds) in enumerate(runs.items()):
        middle = 8 + _ROW * (row + 0.5)
        # Runs are spread over the height of the row in their order: a drift shows as a slant.
        dots = svg.point_path(
            (x(one), middle - _ROW * 0.36 + _ROW * 0.72 * at / max(1, len(seconds) - 1))
            for at, one in enumerate(seconds)
        )
        body.append(svg.svg_text(_LEFT - 10, middle + 4, name, "tick", anchor="end"))
        body.append(svg.svg_element("path", {"d": dots, "class": f"dots {name}"}))
        for key, css in (("median", "median"), ("p95", "p95")):
            at = x(float(latency[name][key]) * 1000)
            line = {"x1": at, "x2": at, "y1": middle - _ROW * 0.42, "y2": middle + _ROW * 0.42, "class": css}
            body.append(svg.svg_element("line", line))
    body.append(svg.svg_text((_LEFT + width) / 2, height - 4, "milliseconds a run", "label", anchor="middle"))
    said = [f"{name}: median {format_figure(float(latency[name]['median']) * 1000)} ms" for name in runs]
    return svg.svg_figure("latency-runs", (width, height), "Latency of every run", "; ".join(said) + ".", body)


def _log_scale(values: Sequence[float]) -> tuple[Callable[[float], float], Iterator[str]]:
    y, low, high = _FRAME.error_scale(values, _DECADES)

    def grid() -> Iterator[str]:
        yield from _FRAME.levels(low, high, lambda exponent: y(10.0**exponent))
        if any(value == 0 for value in values):
            yield from _FRAME.level(y(0.0), "0")
        if any(math.isinf(value) for value in values):
            yield from _FRAME.level(y(math.inf), "∞")

    return y, grid()


def _linear_scale(values: Sequence[float]) -> tuple[Callable[[float], float], Iterator[str]]:
    shown = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(shown), max(shown)
    scale = svg.linear_scale(low, high, _HEIGHT - _BOTTOM - _LANE, _TOP + _LANE)

    def y(value: float) -> float:
        if math.isinf(value):
            return _TOP + _LANE / 2 if value > 0 else _HEIGHT - _BOTTOM - _LANE / 2
        return scale(value)

    def grid() -> Iterator[str]:
        for tick in svg.list_ticks(low, high, 6):
            yield from _FRAME.level(scale(tick), format_figure(tick))
        for end, label in ((math.inf, "∞"), (-math.inf, "-∞")):
            if end in values:
                yield from _FRAME.level(y(end), label)

    return y, grid()


FORMS = Forms(
    title="a verification",
    view=_view_verification,
    show=_print_verification,
    page=Page(
        template=TEMPLATES / "verification.html.j2",
        styles=(TEMPLATES / "verification.css",),
        draw=_draw_verification,
    ),
)
