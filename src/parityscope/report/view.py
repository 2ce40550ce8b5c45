"""The view model: what a report says, in the order it says it, as plain data with every number already worded.

In: the study's document. Out: a dict of str, list and dict that the page and the terminal lay out without deciding
anything: verdict, headline and key figures; causes; what to do; outputs; evidence (figures, suspects, experiments);
all tensors; how it was run; what was not examined. Numbers that only drawings need stay numbers (`view_figures`).

Layers that make the error larger which comes in: the network's own conditioning, named and never blamed.

With exact arithmetic such a layer hands on more relative error than it was given (a difference of close numbers, a logarithm
near one, a normalization of a channel that hardly varies). A candidate is no worse for it; what enters is what to reduce.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from parityscope.report._figures import view_figures
from parityscope.report._findings import view_experiments, view_findings, view_sequence
from parityscope.report._ladder import view_ladder
from parityscope.report._map import network_map
from parityscope.report._no_cause import say_no_cause
from parityscope.report._running import view_running
from parityscope.report._skips import view_skips
from parityscope.report._tensors import GRADES, broken_elements, view_outputs, view_suspects, view_tensors
from parityscope.report._tiles import view_tiles
from parityscope.report.first_screen import first_screen
from parityscope.report.nvidia import deploys_with_tensorrt, view_nvidia_commands
from parityscope.report.offered import view_repairs
from parityscope.report.words import as_number, clean, format_count, format_figure, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

_GAIN = 2.0  # inherited over what enters, both relative; below it a layer is like many. Chosen.
_ABOVE = 4.0  # of the FP32 floor: what is amplified is more than noise (the margin of the grade "f32")
_NAMED = 3  # of them, the largest gains first. Chosen.
# Two runs that differ by no more do not vary: one rounding of FP32.
_FLOAT32_ROUNDING = 2.0**-24
_SYMBOLS: Mapping[str, str] = {"within": "✓", "beyond": "✕", "incomplete": "?"}


def _describe_amplifying_layers(document: Mapping[str, Any]) -> list[str]:
    """A sentence for each of the layers that amplify most; none where none does by much."""
    found = [(_number_in_row(row, "gain"), row) for row in document.get("tensors", ()) if _amplifies_much(row)]
    found.sort(key=lambda each: -each[0])
    return [
        f"{clean(row.get('node') or row['name'])} ({clean(row.get('op_type', ''))}) makes the error that enters it "
        f"{format_figure(gain)} times larger, to {format_figure(row.get('inherited'))}: this is the network's own "
        "conditioning and no cause."
        for gain, row in found[:_NAMED]
    ]


def _amplifies_much(row: Mapping[str, Any]) -> bool:
    gain, inherited, floor = (_number_in_row(row, key) for key in ("gain", "inherited", "floor"))
    return math.isfinite(gain) and gain >= _GAIN and inherited > _ABOVE * (0.0 if math.isnan(floor) else floor)


def _number_in_row(row: Mapping[str, Any], key: str) -> float:
    """A number of a row; NaN where it lacks it."""
    found = as_number(row.get(key))
    return math.nan if found is None else found


def view_study(document: Mapping[str, Any]) -> dict[str, Any]:
    """The view model of `document`; keys that a document lacks give empty parts, never an error."""
    found = view_findings(document)
    answer = view_answer(document)
    return {
        **answer,
        "title": f"{_model_name(document)}: {answer['verdict']['label'].lower()}",
        "headline": clean(document.get("headline") or _view_verdict(document)["meaning"]),
        "versus": _view_versus(document),
        "tiles": view_tiles(document, answer["repairs"]),
        "map": network_map(document),
        "causes": [finding for finding in found if finding["role"] == "cause"],
        "others": [finding for finding in found if finding["role"] != "cause"],
        "sequence": view_sequence(document),
        "doing": "What could be done" if document.get("verdict") == "within" else "What to do",
        "nvidia": view_nvidia_commands(document),
        "tensorrt": deploys_with_tensorrt(document),
        "outputs": view_outputs(document),
        "suspects": view_suspects(document),
        "conditioning": _describe_amplifying_layers(document),
        "localization": _describe_localization(document),
        "experiments": view_experiments(document),
        "figures": view_figures(document),
        "ladder": view_ladder(document),
        "tensors": view_tensors(document),
        "running": view_running(document),
    }


def view_answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of the view model the answer alone is made of, and that: all that the first screen needs, however many tensors."""
    parts: dict[str, Any] = {
        "verdict": _view_verdict(document),
        "varies": _describe_variation(document),
        "no_cause": say_no_cause(document),
        "repairs": view_repairs(document),
        "skipped": view_skips(document),
    }
    return {**parts, "first_screen": first_screen(document, parts)}


def _model_name(document: Mapping[str, Any]) -> str:
    return clean(document.get("model", {}).get("name") or "model")


def _view_verdict(document: Mapping[str, Any]) -> dict[str, str]:
    """The verdict in the words of what it was held against: a budget that somebody wrote, or what the format explains."""
    key = str(document.get("verdict", "incomplete"))
    key = key if key in _SYMBOLS else "incomplete"
    label, meaning = _words_of_verdict(key, document)
    return {"key": key, "label": label, "symbol": _SYMBOLS[key], "meaning": meaning}


def _words_of_verdict(key: str, document: Mapping[str, Any]) -> tuple[str, str]:
    policy = document.get("policy") or {}
    declared = str(policy.get("declared") or "")
    arithmetic = GRADES.get(declared, clean(declared)) or "the arithmetic"
    if key == "incomplete":
        return "Not everything was judged", "Nothing judged differs too much, but something asked for was not judged."
    if key == "within":
        if policy.get("budgets"):
            return "Within the budget", "Every output is as close to the reference as its budget asks."
        return f"As close as {arithmetic} allows", "Every output is as close to the reference as the arithmetic allows."
    if any(broken_elements(row) for row in document.get("outputs", ())):
        return "NaN or infinite", "An output is not finite where the reference's is."
    if policy.get("budgets"):
        return "Beyond the budget", "At least one output is further from the reference than its budget allows."
    return f"Differs more than {arithmetic} explains", "At least one output differs more than its arithmetic explains."


def _view_versus(document: Mapping[str, Any]) -> dict[str, str]:
    inputs = document.get("inputs", {})
    samples = as_number(inputs.get("samples")) or 0
    kind = "generated " if inputs.get("generated") else ""
    origin = clean(inputs.get("origin") or "")
    return {
        "model": _model_name(document),
        "reference": clean(document.get("reference", {}).get("target") or "reference"),
        "candidate": clean(unquote(document.get("candidate", {}).get("target") or "candidate")),
        "inputs": f"{format_count(samples)} {kind}{'sample' if samples == 1 else 'samples'}{' of ' if origin else ''}{origin}",
        "created": clean(document.get("created") or ""),
    }


def _describe_variation(document: Mapping[str, Any]) -> str:
    """What is said before anything is blamed, if the candidate's answers vary; empty if they do not."""
    spread = as_number(document.get("candidate", {}).get("spread"))
    if spread is None or spread <= _FLOAT32_ROUNDING:
        return ""
    part = as_number(document["candidate"].get("changing"))
    told = "" if part is None else f" {format_percent(part)} of the squared error differs from run to run."
    return (
        f"The candidate's answers vary: two runs on one sample differ by {format_figure(spread)} (relative L2).{told} "
        "Nothing below is known more finely than that."
    )


def _describe_localization(document: Mapping[str, Any]) -> str:
    """One sentence on how introduced and inherited error were told apart; empty when they were not."""
    found = document.get("localization")
    if not found:
        return ""
    windows = as_number(found.get("windows")) or 1
    parts = [
        f"Method: {clean(found.get('method', ''))}, {format_count(found.get('observed', 0))} tensors observed",
        *(["in one pass"] if windows == 1 else []),  # the method says how many windows there were
    ]
    if found.get("samples"):
        parts.append(f"samples {', '.join(str(sample) for sample in found['samples'])}")
    return ", ".join(parts) + "."
