"""View of what was compared: the outputs with their verdicts, the suspects, and one row for every tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from parityscope.report._ladder import triangle
from parityscope.report.words import ABSENT, clean, count, figure, number, percent, shape, size

__all__ = ["GRADES", "level", "minor", "nonfinite", "outputs", "suspects", "tensors"]

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


def outputs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry an output, in the model's order."""
    declared = (document.get("policy") or {}).get("declared", "")
    return [_output(row, declared) for row in document.get("outputs", ())]


def suspects(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The suspects, worst first, with what each explains, and whether one hardly matters beside the first."""
    ranked = document.get("suspects", ())
    return [{**_suspect(rank, row), "minor": minor(row, ranked)} for rank, row in enumerate(ranked, start=1)]


def minor(row: Mapping[str, Any], ranked: Sequence[Mapping[str, Any]]) -> bool:
    """Whether next to nothing of the output error comes of suspect `row`: by its share where that was measured.

    Where it was not, by what it introduces beside the first of `ranked`. The first is never minor.
    """
    share = number(row.get("share"))
    if row is ranked[0] or (share is not None and not math.isfinite(share)):
        return False
    if share is not None:
        return abs(share) < _MINOR
    first, own = number(ranked[0].get("introduced")), number(row.get("introduced"))
    return first is not None and own is not None and own < _MINOR * first


def tensors(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a tensor in graph order; cells are (text, sort key), where a key of None sorts last."""
    blamed = {row.get("site", {}).get("tensor") for row in document.get("suspects", ())[:1]}
    return [
        {**_tensor(row), "classes": _classes(row, suspect=row.get("name") in blamed)}
        for row in document.get("tensors", ())
    ]


def level(value: object) -> int:
    """The shade of a relative error, 0 (least) to 5."""
    x = number(value)
    if x is None:
        return 0
    return len(_LEVELS) if math.isnan(x) else sum(x > bound for bound in _LEVELS)


def _output(row: Mapping[str, Any], declared: str) -> dict[str, Any]:
    return {
        "name": clean(row.get("name", "")),
        "verdict": row.get("verdict") or "incomplete",
        "grade": GRADES.get(row.get("grade", ""), ABSENT),
        "reason": clean(row.get("reason", "")),
        "rel_l2": size_or_broken(row.get("rel_l2"), broken_elements(row)),
        "measured": row.get("rel_l2") is not None,
        "level": level(row.get("rel_l2")),
        "expected": [
            {"format": GRADES.get(name, clean(name)), "value": figure(value), "declared": name == declared}
            for name, value in sorted((row.get("expected") or {}).items(), key=lambda item: _place(item[0]))
        ],
        "triangle": triangle(row),
        "facts": _output_facts(row),
        "metrics": [(clean(name), _measured(value)) for name, value in sorted((row.get("measurements") or {}).items())],
    }


def _place(name: str) -> int:
    """The place of a format among those that are graded by; a file sorts its keys by the alphabet."""
    return list(GRADES).index(name) if name in GRADES else len(GRADES)


def _output_facts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was measured besides the error; nothing of an output that was not compared."""
    if row.get("rel_l2") is None:
        return []
    facts = [
        ("largest absolute error", f"{size(row.get('max_abs'))}{_at(row.get('worst_index'))}"),
        ("cosine", _cosine(row.get("cosine"))),
        ("SNR", ABSENT if row.get("snr_db") is None else f"{figure(row['snr_db'])} dB"),
        ("norm, candidate over reference", size(row.get("norm_ratio"))),
        ("NaN or Inf", nonfinite(row.get("nonfinite")) or "none"),
        ("samples", _samples(row)),
    ]
    return [(name, value) for name, value in facts if value != ABSENT]


def _suspect(rank: int, row: Mapping[str, Any]) -> dict[str, Any]:
    site = row.get("site", {})
    return {
        "rank": rank,
        "tensor": clean(site.get("tensor", "")),
        "node": clean(site.get("node", "")),
        "op_type": clean(site.get("op_type", "")),
        "index": clean(site.get("index", "")),
        "introduced": size_or_broken(row.get("introduced"), row.get("introduced_nonfinite")),
        "inherited": size(row.get("inherited")),
        "level": level(row.get("introduced")),
        "floor": figure(row.get("floor")),
        "gain": figure(row.get("gain")),
        "share": percent(row.get("share")),
        "nonfinite": count(row.get("introduced_nonfinite") or 0),
        "region": [clean(node) for node in row.get("region") or ()],
        "explained_by": _explained(row),
    }


def _explained(row: Mapping[str, Any]) -> list[str]:
    """The hypotheses that explain a suspect, the first few of them."""
    told = [
        f"{clean(entry.get('hypothesis', ''))} {percent(entry.get('share'))}" for entry in row.get("explained_by") or ()
    ]
    more = len(told) - _MOST_EXPLAIN
    return told if more <= 0 else [*told[:_MOST_EXPLAIN], f"and {more:,} more in study.json"]


def _classes(row: Mapping[str, Any], *, suspect: bool) -> str:
    marks = {"suspect": suspect, "output": bool(row.get("is_output"))}
    return " ".join(name for name, holds in marks.items() if holds)


def _tensor(row: Mapping[str, Any]) -> dict[str, Any]:
    worst = row.get("worst_channel") or {}
    channel = f"{count(worst.get('index'))}: {size(worst.get('rel_l2'))}" if worst else ABSENT
    return {
        "index": clean(row.get("index", "")),
        "name": clean(row.get("name", "")),
        "node": clean(row.get("node", "")),
        "op_type": clean(row.get("op_type", "")),
        "dtype": clean(row.get("dtype", "")),
        "shape": shape(row.get("shape")),
        "pairing": _pairing(row),
        "errors": [_error(row.get(key)) for key in ("rel_l2", "introduced", "inherited")],
        "max_abs": (size(row.get("max_abs")), _key(row.get("max_abs"))),
        "channel": (channel, _key(worst.get("rel_l2"))),
        "nonfinite": (nonfinite(row.get("nonfinite")), sum(_counts(row.get("nonfinite"))[:2])),
        "grade": GRADES.get(row.get("grade") or "", ABSENT),
    }


def nonfinite(counts: Mapping[str, Any] | None) -> str:
    """Non-finite elements in words: "3 reference, 7 candidate"; empty when there are none."""
    names = ("reference", "candidate", "agreeing")
    return ", ".join(f"{value:,} {name}" for name, value in zip(names, _counts(counts), strict=True) if value)


def size_or_broken(value: object, broken: object) -> str:
    """An error as a figure; where NaN or Inf make it infinite, how many elements are."""
    x, elements = number(value), number(broken)
    return f"{count(elements)} NaN or Inf" if elements and (x is None or not math.isfinite(x)) else size(value)


def broken_elements(row: Mapping[str, Any]) -> int:
    """How many elements of an output are NaN or Inf on one side alone."""
    return sum(_counts(row.get("nonfinite"))[:2])


def _counts(counts: Mapping[str, Any] | None) -> list[int]:
    return [int(number((counts or {}).get(name)) or 0) for name in ("reference", "candidate", "agreeing")]


def _error(value: object) -> dict[str, Any]:
    return {"text": size(value), "key": _key(value), "level": level(value)}


def _key(value: object) -> str:
    """What a browser sorts by: a number that `parseFloat` reads; NaN counts as the worst; empty when absent."""
    x = number(value)
    return "" if x is None else "Infinity" if math.isnan(x) else "Infinity" if x == math.inf else f"{x:.6g}"


def _at(index: object) -> str:
    return f" at [{', '.join(str(i) for i in index)}]" if isinstance(index, list | tuple) and index else ""


def _cosine(value: object) -> str:
    """Near 1 the distance to 1 is what can be read: three digits of 0.9999987 say nothing."""
    x = number(value)
    return f"1 - {figure(1 - x)}" if x is not None and 0.99 < x < 1 else figure(value)


def _samples(row: Mapping[str, Any]) -> str:
    """How many, and how they spread when there are several."""
    each = [value for value in (number(item) for item in row.get("per_sample") or ()) if value is not None]
    text = count(row.get("samples"))
    if len(each) < 2:
        return text
    ordered = sorted(math.inf if math.isnan(value) else value for value in each)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return (
        f"{text}: relative L2 from {size(ordered[0])} over {size(middle)} (median) to {size(ordered[-1])}, "
        f"worst is sample {count(row.get('worst_sample'))}"
    )


def _measured(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return figure(entry)
    unit = clean(entry.get("unit", ""))
    return f"{figure(entry.get('value'))} {'' if unit in _NO_UNITS else unit}".strip()


def _pairing(row: Mapping[str, Any]) -> str:
    """How the candidate's tensor was found, where that was not by the same name."""
    how, other = row.get("how") or "name", row.get("candidate_name") or row.get("name")
    return "" if how == "name" and other == row.get("name") else f"paired by {clean(how)} with {clean(other)}"
