"""A model without a deployment on one screen: what FP16 and BF16 would do to it, what its file says, and what to do next.

In: a forecast's document that holds a `lint` document beside it. Out: what the first screen of a study has (`title`, `rows`).
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

from parityscope.report import forecast
from parityscope.report._skips import view_skips
from parityscope.report.as_text import print_first_screen
from parityscope.report.forecast import view_forecast
from parityscope.report.forms import Forms
from parityscope.report.offered import data_words
from parityscope.report.screen_rows import cut_text, first_sentence, make_row, rows_of_missing
from parityscope.report.words import as_number, clean, format_count, format_percent, shorten_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = 48  # characters of a name
_LONGEST = 150  # of an answer: two lines
_GENERATED = "the samples are generated: give real ones with --inputs"
_MOST_FINDINGS = 2
_GRAVE = ("cause", "contributing")


def view_model_alone(document: Mapping[str, Any]) -> dict[str, Any]:
    """`symbol`, `title`, `basis`, `rows`, `rest` and `details`, in the order of the questions."""
    lost = [str(one["title"]) for one in document["formats"] if one["lost"]]
    safe = [str(one["title"]) for one in document["formats"] if not one["lost"]]
    grave = any(one["role"] in _GRAVE for one in document["lint"]["findings"])
    warned = ", though its file warns of it" if grave and not lost else ""
    return {
        "symbol": "✕" if lost else "!" if warned else "✓",
        "title": f"{shorten_name(document['model']['name'], _NAME)}: {_describe_answer(lost, safe)}{warned}",
        "basis": _describe_basis(document["inputs"]),
        "rows": list(_list_rows(document)),
        "rest": _describe_rest(document),
        "details": "-o PAGE.html holds every layer",
    }


def _describe_answer(lost: list[str], safe: list[str]) -> str:
    if not lost:
        return f"no output is lost in {' or '.join(safe)}"
    if not safe:
        return f"an output is lost in {' and '.join(lost)}"
    return f"an output is lost in {' and '.join(lost)}, none in {' or '.join(safe)}"


def _describe_basis(inputs: Mapping[str, Any]) -> str:
    count = int(inputs["samples"])
    kind = "generated sample" if inputs["generated"] else "sample"
    told = f"{format_count(count)} {kind}{'' if count == 1 else 's'}"
    return told if inputs["generated"] else f"{told} of {clean(inputs['origin'])}"


def _list_rows(document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    yield from (make_row(str(one["title"]), _describe_format(one)) for one in document["formats"])
    grave = [one for one in document["lint"]["findings"] if one["role"] in _GRAVE]
    for place, one in enumerate(grave[:_MOST_FINDINGS]):
        yield make_row(
            "File" if not place else "and", f"{cut_text(first_sentence(one['claim']), _LONGEST)} [{clean(one['code'])}]"
        )
    path, inputs = str(document["model"]["path"]), document["inputs"]
    data = " ".join(data_words({"inputs": "DATA"} if inputs["generated"] else document["data"]))
    if any(one["lost"] for one in document["formats"]):
        fixed = f"{document['model']['name']}.f16.onnx"
        command = f"{shlex.join(['parityscope', 'repair', path])} {data} {shlex.join(['--low', 'f16', '-o', fixed])}"
        yield make_row("Next", "keep in FP32 what FP16 breaks, and no more:", command=command)
    else:
        yield make_row(
            "Next",
            "hold a deployment against it:",
            command=f"{shlex.join(['parityscope', 'diagnose', path, '--candidate', 'TARGET'])} {data}",
        )
    yield from rows_of_missing(view_skips(document))
    if inputs["generated"]:
        yield make_row("Note", _GENERATED)


def _describe_format(found: Mapping[str, Any]) -> str:
    """What becomes of the outputs in a format, and the layer that it begins at where one is lost."""
    outputs = list(found["outputs"])
    lost = [one for one in outputs if not math.isfinite(as_number(one["expected"]) or 0.0)]
    worst = max(outputs, key=lambda one: as_number(one["expected"]) or 0.0, default=None)
    if worst is None:
        return "there is no output of numbers"
    name = shorten_name(worst["site"]["tensor"], _NAME)
    if len(lost) == len(outputs) > 1:
        told = f"all {len(outputs)} outputs are NaN or infinite"
    elif lost:
        told = f"'{shorten_name(lost[0]['site']['tensor'], _NAME)}' is NaN or infinite"
    else:
        told = f"'{name}' differs by {format_percent(worst['expected'])}"
    return f"{told}; {cut_text(first_sentence(found['cause']['text']), _LONGEST)}" if found["cause"] else told


def _describe_rest(document: Mapping[str, Any]) -> str:
    counts = document["lint"]["counts"]
    more = sum(counts.values()) - min(_MOST_FINDINGS, sum(counts[role] for role in _GRAVE))
    return f"parityscope lint tells {format_count(more)} more of the file." if more else ""


def _view(document: Mapping[str, Any]) -> dict[str, Any]:
    screen = view_model_alone(document)
    key = {"✕": "beyond", "✓": "within"}.get(screen["symbol"], "incomplete")
    return {**view_forecast(document), "first_screen": screen, "verdict": {"key": key}}


FORMS = Forms(title="a look", view=_view, show=print_first_screen, page=forecast.FORMS.page)
