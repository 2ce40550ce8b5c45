"""View of what was compared: the outputs with their verdicts, the suspects, and one row for every tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from parityscope.report._ladder import view_triangle
from parityscope.report.words import (
    ABSENT,
    as_number,
    clean,
    format_count,
    format_error,
    format_figure,
    format_percent,
    format_shape,
)

GRADES: Mapping[str, str] = {
    "f32": "FP32",
    "tf32": "TF32",
    "f16": "FP16",
    "bf16": "BF16",
    "f8e4m3": "FP8 E4M3",
    "f8e5m2": "FP8 E5M2",
    "int8": "INT8",
    "beyond": "beyond",
}
# Upper bounds of the five shades of a relative L2 error; above the last, and for what is not finite, the sixth.
# Chosen: decades around the unit roundoffs 2^-24 (FP32, 6e-8), 2^-11 (FP16 and TF32, 5e-4) and 2^-8 (BF16, 4e-3).
_LEVELS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)

# Of the output error; what contributes less stands behind what contributes more (chosen: a thousandth).
_MINOR = 1e-3
_MOST_EXPLAIN = 4  # hypotheses that a suspect's row names. Chosen: some layers are explained by a dozen alike.
# Units that only say which kind of ratio a metric is: its name says that already.
_NO_UNITS = {"1", "ratio", "absolute", "relative", "cosine", "share"}


def view_outputs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry an output, in the model's order."""
    declared = (document.get("policy") or {}).get("declared", "")
    return [_view_output(row, declared) for row in document.get("outputs", ())]


def view_suspects(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The suspects, worst first, with what each explains, and whether one hardly matters beside the first."""
    ranked = document.get("suspects", ())
    return [
        {**_view_suspect(rank, row), "minor": is_minor_suspect(row, ranked)} for rank, row in enumerate(ranked, start=1)
    ]


def is_minor_suspect(row: Mapping[str, Any], ranked: Sequence[Mapping[str, Any]]) -> bool:
    """Whether next to nothing of the output error comes of suspect `row`: by its share where that was measured.

    Where it was not, by what it introduces beside the first of `ranked`. The first is never minor.
    """
    share = as_number(row.get("share"))
    if row is ranked[0] or (share is not None and not math.isfinite(share)):
        return False
    if share is not None:
        return abs(share) < _MINOR
    first, own = as_number(ranked[0].get("introduced")), as_number(row.get("introduced"))
    return first is not None and own is not None and own < _MINOR * first


def view_tensors(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a tensor in graph order; cells are (text, sort key), where a key of None sorts last."""
    blamed = {row.get("site", {}).get("tensor") for row in document.get("suspects", ())[:1]}
    return [
        {**_view_tensor(row), "classes": _css_classes(row, suspect=row.get("name") in blamed)}
        for row in document.get("tensors", ())
    ]


def shade_of_error(value: object) -> int:
    """The shade of a relative error, 0 (least) to 5."""
    x = as_number(value)
    if x is None:
        return 0
    return len(_LEVELS) if math.isnan(x) else sum(x > bound for bound in _LEVELS)


def _view_output(row: Mapping[str, Any], declared: str) -> dict[str, Any]:
    return {
        "name": clean(row.get("name", "")),
        "verdict": row.get("verdict") or "incomplete",
        "grade": GRADES.get(row.get("grade", ""), ABSENT),
        "reason": clean(row.get("reason", "")),
        "rel_l2": size_or_broken(row.get("rel_l2"), broken_elements(row)),
        "measured": row.get("rel_l2") is not None,
        "level": shade_of_error(row.get("rel_l2")),
        "expected": [
            {"format": GRADES.get(name, clean(name)), "value": format_figure(value), "declared": name == declared}
            for name, value in sorted((row.get("expected") or {}).items(), key=lambda item: _format_place(item[0]))
        ],
        "triangle": view_triangle(row),
        "facts": _output_facts(row),
        "elements": _view_elements(row),
        "metrics": [
            (clean(name), _format_measurement(value)) for name, value in sorted((row.get("measurements") or {}).items())
        ],
    }


def _view_elements(row: Mapping[str, Any]) -> dict[str, str]:
    """What single elements differ by, and where most; nothing of an output that was not compared."""
    if row.get("max_abs") is None:
        return {}
    held = {name: one.get("value") for name, one in (row.get("measurements") or {}).items()}
    relative = (row.get("measurements") or {}).get("max_rel", {})
    return {
        "max_abs": format_error(row["max_abs"]),
        "place": _format_place_of_element(row.get("worst_index")),
        "max_rel": format_error(relative.get("value")),
        "max_rel_place": _format_place_of_element(relative.get("worst_index")),
        "zero_references": format_count(held["zero_references"]) if "zero_references" in held else ABSENT,
        "max_rel_rms": format_error(held.get("max_rel_rms")),
        "mean_abs": format_error(held.get("mean_abs")),
        "p50_abs": format_error(held.get("p50_abs")),
        "p99_abs": format_error(held.get("p99_abs")),
    }


def _format_place_of_element(index: object) -> str:
    return f"[{', '.join(map(str, index))}]" if isinstance(index, list | tuple) and index else ABSENT


def _format_place(name: str) -> int:
    """The place of a format among those that are graded by; a file sorts its keys by the alphabet."""
    return list(GRADES).index(name) if name in GRADES else len(GRADES)


def _output_facts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was measured besides the error; nothing of an output that was not compared."""
    if row.get("rel_l2") is None:
        return []
    facts = [
        ("largest absolute error", f"{format_error(row.get('max_abs'))}{_format_index(row.get('worst_index'))}"),
        ("cosine", _format_cosine(row.get("cosine"))),
        ("SNR", ABSENT if row.get("snr_db") is None else f"{format_figure(row['snr_db'])} dB"),
        ("norm, candidate over reference", format_error(row.get("norm_ratio"))),
        ("NaN or Inf", describe_nonfinite(row.get("nonfinite")) or "none"),
        ("samples", _describe_samples(row)),
    ]
    return [(name, value) for name, value in facts if value != ABSENT]


def _view_suspect(rank: int, row: Mapping[str, Any]) -> dict[str, Any]:
    site = row.get("site", {})
    return {
        "rank": rank,
        "tensor": clean(site.get("tensor", "")),
        "node": clean(site.get("node", "")),
        "op_type": clean(site.get("op_type", "")),
        "index": clean(site.get("index", "")),
        "introduced": size_or_broken(row.get("introduced"), row.get("introduced_nonfinite")),
        "inherited": format_error(row.get("inherited")),
        "level": shade_of_error(row.get("introduced")),
        "floor": format_figure(row.get("floor")),
        "gain": format_figure(row.get("gain")),
        "share": format_percent(row.get("share")),
        "nonfinite": format_count(row.get("introduced_nonfinite") or 0),
        "region": [clean(node) for node in row.get("region") or ()],
        "explained_by": _list_explanations(row),
    }


def _list_explanations(row: Mapping[str, Any]) -> list[str]:
    """The hypotheses that explain a suspect, the first few of them."""
    told = [
        f"{clean(entry.get('hypothesis', ''))} {format_percent(entry.get('share'))}"
        for entry in row.get("explained_by") or ()
    ]
    more = len(told) - _MOST_EXPLAIN
    return told if more <= 0 else [*told[:_MOST_EXPLAIN], f"and {more:,} more in study.json"]


def _css_classes(row: Mapping[str, Any], *, suspect: bool) -> str:
    marks = {"suspect": suspect, "output": bool(row.get("is_output"))}
    return " ".join(name for name, holds in marks.items() if holds)


def _view_tensor(row: Mapping[str, Any]) -> dict[str, Any]:
    worst = row.get("worst_channel") or {}
    channel = f"{format_count(worst.get('index'))}: {format_error(worst.get('rel_l2'))}" if worst else ABSENT
    return {
        "index": clean(row.get("index", "")),
        "name": clean(row.get("name", "")),
        "node": clean(row.get("node", "")),
        "op_type": clean(row.get("op_type", "")),
        "dtype": clean(row.get("dtype", "")),
        "shape": format_shape(row.get("shape")),
        "pairing": _describe_pairing(row),
        "errors": [_view_error(row.get(key)) for key in ("rel_l2", "introduced", "inherited")],
        "max_abs": (format_error(row.get("max_abs")), _sort_key(row.get("max_abs"))),
        "channel": (channel, _sort_key(worst.get("rel_l2"))),
        "nonfinite": (describe_nonfinite(row.get("nonfinite")), sum(_nonfinite_counts(row.get("nonfinite"))[:2])),
        "grade": GRADES.get(row.get("grade") or "", ABSENT),
    }


def describe_nonfinite(counts: Mapping[str, Any] | None) -> str:
    """Non-finite elements in words: "3 reference, 7 candidate"; empty when there are none."""
    names = ("reference", "candidate", "agreeing")
    return ", ".join(f"{value:,} {name}" for name, value in zip(names, _nonfinite_counts(counts), strict=True) if value)


def size_or_broken(value: object, broken: object) -> str:
    """An error as a figure; where NaN or Inf make it infinite, how many elements are."""
    x, elements = as_number(value), as_number(broken)
    return (
        f"{format_count(elements)} NaN or Inf"
        if elements and (x is None or not math.isfinite(x))
        else format_error(value)
    )


def broken_elements(row: Mapping[str, Any]) -> int:
    """How many elements of an output are NaN or Inf on one side alone."""
    return sum(_nonfinite_counts(row.get("nonfinite"))[:2])


def _nonfinite_counts(counts: Mapping[str, Any] | None) -> list[int]:
    return [int(as_number((counts or {}).get(name)) or 0) for name in ("reference", "candidate", "agreeing")]


def _view_error(value: object) -> dict[str, Any]:
    return {"text": format_error(value), "key": _sort_key(value), "level": shade_of_error(value)}


def _sort_key(value: object) -> str:
    """What a browser sorts by: a number that `parseFloat` reads; NaN counts as the worst; empty when absent."""
    x = as_number(value)
    return "" if x is None else "Infinity" if math.isnan(x) else "Infinity" if x == math.inf else f"{x:.6g}"


def _format_index(index: object) -> str:
    return f" at [{', '.join(str(i) for i in index)}]" if isinstance(index, list | tuple) and index else ""


def _format_cosine(value: object) -> str:
    """Near 1 the distance to 1 is what can be read: three digits of 0.9999987 say nothing."""
    x = as_number(value)
    return f"1 - {format_figure(1 - x)}" if x is not None and 0.99 < x < 1 else format_figure(value)


def _describe_samples(row: Mapping[str, Any]) -> str:
    """How many, and how they spread when there are several."""
    each = [value for value in (as_number(item) for item in row.get("per_sample") or ()) if value is not None]
    text = format_count(row.get("samples"))
    if summary := row.get("per_sample_summary"):
        lowest, middle, highest = (as_number(summary["percentiles"][one]) for one in ("0", "50", "100"))
    elif len(each) < 2:
        return text
    else:
        ordered = sorted(math.inf if math.isnan(value) else value for value in each)
        lowest, highest = ordered[0], ordered[-1]
        middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    told = [format_error(one) for one in (lowest, middle, highest)]
    if told[0] == told[2]:
        return f"{text}: relative L2 {told[0]} on each"
    worst = format_count(row.get("worst_sample"))
    return f"{text}: relative L2 from {told[0]} over {told[1]} (median) to {told[2]}, worst is sample {worst}"


def _format_measurement(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return format_figure(entry)
    unit = clean(entry.get("unit", ""))
    return f"{format_figure(entry.get('value'))} {'' if unit in _NO_UNITS else unit}".strip()


def _describe_pairing(row: Mapping[str, Any]) -> str:
    """How the candidate's tensor was found, where that was not by the same name."""
    how, other = row.get("how") or "name", row.get("candidate_name") or row.get("name")
    return "" if how == "name" and other == row.get("name") else f"paired by {clean(how)} with {clean(other)}"
