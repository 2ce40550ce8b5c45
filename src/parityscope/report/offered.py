"""View of what to do: the repairs that findings offer, each with what was measured, and the command or lines for it.

The lines that repair what is outside of the model, for a finding of a document: written by the advice of that name.

A document may come from another machine, so nothing of it is trusted: a name is looked for among the repairs' own files and
the entry points of their group, and details that an advice cannot read give no lines.
"""

from __future__ import annotations

import importlib
import math
import re
import shlex
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from parityscope.backends import known_backend
from parityscope.backends.targets import format_target, parse_target, with_option
from parityscope.errors import ParityError
from parityscope.plugins import plugin_modules
from parityscope.records import Finding
from parityscope.repairs import Advice
from parityscope.report._for_tools import tool_rows
from parityscope.report.words import as_number, clean, format_error_of_trial, format_ratio, without_destinations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_GROUP = "parityscope.repairs"
_REFERENCE = "ort"  # the target where none is given, as the command line has it
# What a repair that has no file of its own is called where a title stands; others are called as their file is.
_KEEP = "keep_in_fp32"
_TITLES = {"put_back": "put back what differs", _KEEP: "keep in FP32", "barrier": "one more output"}
_FIXED = re.compile(r"[^\s\"']+\.fixed\.onnx")
# What changes something else than the reference's model, so that no search in it leads there.
_ELSEWHERE = {"put_back", "barrier", "optimizer_off", "bind_by_name"}
# Chosen: from here on a cause is proved, and below that another claim is more likely wrong than right.
_PROVED, WEAK = 0.9, 0.5


def _lines_of(name: str, finding: Mapping[str, Any]) -> dict[str, str]:
    """`title`, `risk` and `lines` of the advice called `name`; empty where there is none or it has nothing to write."""
    found = _find_advice(name)
    if found is None:
        return {}
    try:
        written = found.write(_finding_record(finding))
    except (TypeError, ValueError, LookupError):
        return {}
    if not written:
        return {}
    lines = "\n".join(clean(line) for line in written.rstrip().splitlines())
    return {"title": found.title, "risk": found.risk, "lines": lines}


def _find_advice(name: str) -> Advice | None:
    """The advice of that name; its file is all that is imported."""
    path = plugin_modules(_GROUP).get(name)
    try:
        found = getattr(importlib.import_module(path), "ADVICE", None) if path else None
    except ImportError:
        return None
    return found if isinstance(found, Advice) else None


def _finding_record(finding: Mapping[str, Any]) -> Finding:
    """What advice reads of a finding: its code and its details."""
    return Finding(
        code=str(finding.get("code", "")),
        title=str(finding.get("title", "")),
        role="cause",
        claim=str(finding.get("claim", "")),
        confidence=1.0,
        confidence_from="",
        details=dict(finding.get("details") or {}),
    )


def view_repairs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every repair offered, those that a trial showed to work best first, each with what the trial measured.

    Beside a cause that is proved, a weak claim gives no advice.
    """
    written = repair_command(document)
    steps = _steps_by_code(document)
    offered = [
        {"place": (finding.get("site") or {}).get("tensor") or number}
        | _with_file(
            _view_repair(repair, finding, written, steps.get(str(finding.get("code", "")))),
            partial(tool_rows, repair, finding),
            document,
        )
        for number, finding in enumerate(_findings_to_advise(document.get("findings", ())))
        for repair in finding.get("repairs", ())
    ]
    # Several findings may ask for the same in the same words: that is said once, with how often.
    told: dict[str, list[dict[str, Any]]] = {}
    for repair in offered:
        same = [repair[key] for key in ("repair", "text", "command", "code_lines", "trial")]
        told.setdefault(repr(same), []).append(repair)
    return sorted(map(_merge_same_advice, told.values()), key=lambda repair: repair["order"])


def _findings_to_advise(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The findings whose advice is given: beside a proved cause only what is not weak itself."""
    sure = [as_number(finding.get("confidence", 1.0)) or 0.0 for finding in findings]
    proved = any(
        finding.get("role") == "cause" and each >= _PROVED for finding, each in zip(findings, sure, strict=True)
    )
    return [finding for finding, each in zip(findings, sure, strict=True) if not proved or each > WEAK]


def _merge_same_advice(same: list[dict[str, Any]]) -> dict[str, Any]:
    """One advice for several findings: the gravest one's, with the codes of all and how many they are."""
    codes = ", ".join(dict.fromkeys(repair["code"] for repair in same))
    first = {**min(same, key=lambda repair: repair["order"]), "code": codes}
    # As many as have a row of their own: a layer that is told of twice, or beside a cause what explains nothing, is none more.
    count = len({(repair["code"], repair["place"]) for repair in same if repair["cures"] or not first["cures"]})
    return {**first, "text": f"{first['text']} ({count} findings)"} if count > 1 else first


def repair_command(document: Mapping[str, Any]) -> str:
    """The command that searches the model's repair and writes it, where the deployment is in FP16 or BF16; else ""."""
    declared = clean((document.get("policy") or {}).get("declared") or "")
    path = clean((document.get("model") or {}).get("path") or "")
    if declared not in {"f16", "bf16"} or not path:
        return ""
    asked = (document.get("question") or {}).get("asked") or {}
    given = "".join(f" {word}" for word in (*data_words(asked), *_words_of_policy(document)))
    fixed = shlex.quote(f"{PurePath(path).stem}.fixed.onnx")
    return f"parityscope repair {shlex.quote(path)}{given} --low {declared} -o {fixed}"


def name_written_file(command: str) -> str:
    """The model that a repair's command writes, as they all call it: NAME.fixed.onnx; "" where it writes none."""
    found = _FIXED.search(command)
    return found.group() if found else ""


def _verify_command(document: Mapping[str, Any], file: str, *, typed: bool = False) -> str:
    """The command that runs the repaired model `file` as the candidate was run, beside that one; "" where nobody knows how.

    With `typed` the file's own types say what is computed in, and not the target.
    """
    asked = (document.get("question") or {}).get("asked") or {}
    path = clean((document.get("model") or {}).get("path") or "")
    ran = clean((document.get("candidate") or {}).get("target") or "")
    if not path or not ran or not file:
        return ""
    try:
        target = parse_target(ran)
        plain = replace(target, precision="", options=()) if typed else target
        after = format_target(with_option(plain, "model", file))
    except ParityError:  # of a document from elsewhere
        return ""
    given = "".join(f" {word}" for word in (*data_words(asked), *_words_of_policy(document)))
    reference = clean(asked.get("reference") or _REFERENCE)
    beside = "" if reference == _REFERENCE else f" --reference {shlex.quote(reference)}"
    before = shlex.quote(clean(asked.get("candidate") or ran))
    return f"parityscope verify {shlex.quote(path)} --before {before} --after {shlex.quote(after)}{given}{beside}"


def proof_command(document: Mapping[str, Any], file: str) -> str:
    """The command that tells whether a repair helped: with both recordings, with the model `file` that it wrote, or as before.

    Of a prediction it is the command that asks about a recording of what is deployed; "" where nobody knows what was asked.
    """
    asked = (document.get("question") or {}).get("asked") or {}
    policy = document.get("policy") or {}
    path = shlex.quote(clean((document.get("model") or {}).get("path") or ""))
    before = clean(asked.get("candidate") or "")
    known = known_backend(str((document.get("candidate") or {}).get("backend") or "none"))
    given = "".join(f" {word}" for word in (*data_words(asked), *_words_of_policy(document)))
    if known is not None and known.simulates:
        if not before:
            return ""
        declared = clean(policy.get("declared") or "f32")
        return f"parityscope diagnose {path} --candidate recorded-outputs --declared {declared}{given}"
    if known is not None and known.recorded and before:
        after = shlex.quote(another_recording(before))
        return f"parityscope verify {path} --before {shlex.quote(before)} --after {after}{given}"
    typed = f" -o {file}" in repair_command(document)  # what the search writes holds its own types
    again = without_destinations(_clean_command(document.get("command") or ""))
    return _verify_command(document, file, typed=typed) or again


def diagnose_again_command(document: Mapping[str, Any]) -> str:
    """The command that asks the same of the recording that follows the candidate's."""
    return _diagnose_command(document, another_recording)


def diagnose_switched_command(document: Mapping[str, Any]) -> str:
    """The command that asks the same of the candidate with the first switch of its runtime thrown; "" where it has none."""
    known = known_backend(str((document.get("candidate") or {}).get("backend") or "none"))
    try:
        target = parse_target(clean((document.get("candidate") or {}).get("target") or ""))
    except ParityError:  # of a document from elsewhere
        return ""
    other = next(iter(known.switched(target)), None) if known is not None else None
    return _diagnose_command(document, lambda _: format_target(other)) if other is not None else ""


def _diagnose_command(document: Mapping[str, Any], change: Callable[[str], str]) -> str:
    """The command that was typed, about another candidate; "" where nobody knows it."""
    words = shlex.split(without_destinations(_clean_command(document.get("command") or "")))
    before = clean(((document.get("question") or {}).get("asked") or {}).get("candidate") or "")
    return shlex.join(change(before) if word == before else word for word in words) if before else ""


def another_recording(first: str) -> str:
    """What a second recording beside the one called `first` may be called."""
    path = PurePath(first.removeprefix("saved?path="))
    return str(path.with_name(f"{path.stem}-again{path.suffix}"))


def _view_repair(
    repair: Mapping[str, Any], finding: Mapping[str, Any], written: str, step: Mapping[str, Any] | None
) -> dict[str, Any]:
    trial = repair.get("trial")
    # What was tried on a copy is a change of the model, which the search makes too; so is keeping a node in FP32.
    name = clean(repair.get("repair", ""))
    searched = written if (trial and name not in _ELSEWHERE) or name == _KEEP else ""
    shown: dict[str, Any] = {
        "repair": name,
        "title": _TITLES.get(name, name.replace("_", " ")),
        "text": clean(repair.get("text", "")),
        "command": _clean_command(repair.get("command", "")) or searched,
        "code": clean(finding.get("code", "")),
        "cures": finding.get("role") == "cause",
        "likely": (as_number(finding.get("confidence", 1.0)) or 0.0) > WEAK,
        "trial": None,
        "tried_file": "",
        "cause": None
        if step is None or trial
        else {key: format_error_of_trial(step.get(key)) for key in ("before", "after")},
        "order": (3 if finding.get("role") == "information" else 1, 0.0),
    }
    shown["code_lines"] = {} if shown["command"] else _lines_of(str(repair.get("repair", "")), finding)
    if trial:
        after = as_number(trial.get("after"))
        shown["trial"] = {
            "before": format_error_of_trial(trial.get("before")),
            "after": format_error_of_trial(trial.get("after")),
            "change": f"{format_error_of_trial(trial.get('before'))} -> {format_error_of_trial(trial.get('after'))}",
            "ratio": format_ratio(trial.get("before"), trial.get("after")),
            "verdict": trial.get("verdict", "incomplete"),
            "output": clean(trial.get("output", "")),
            "error": after,
            "note": clean(trial.get("note", "")),
            "file": clean(trial.get("file", "")),
            "decisions": dict(trial.get("decisions") or {}),
        }
        rank = math.inf if after is None or math.isnan(after) else after
        shown["order"] = (0 if trial.get("verdict") == "within" else 2, rank)
    return shown


def _with_file(
    shown: dict[str, Any],
    rows_for: Callable[[str, str], list[dict[str, str]]],
    document: Mapping[str, Any],
) -> dict[str, Any]:
    """The repair with its lines for other tools, by the declared format and its file.

    Where a copy that was kept is within, running it is what is to be done next.
    """
    trial = shown["trial"]
    declared = clean((document.get("policy") or {}).get("declared") or "")
    if not trial or not trial["file"]:
        return {**shown, "tools": rows_for(declared, "")}
    path = trial["file"]
    within = trial["verdict"] == "within"
    command = _verify_command(document, path, typed=shown["repair"] == _KEEP) if within else ""
    tools = rows_for(declared, path if within else "")
    return {**shown, "command": command or shown["command"], "tools": tools, "tried_file": path if within else ""}


def data_words(asked: Mapping[str, Any]) -> Iterator[str]:
    """The options that say what the samples were, for another command on the same ones."""
    for name in ("inputs", "preprocess"):
        if asked.get(name):
            yield f"--{name} {shlex.quote(clean(asked[name]))}"
    if asked.get("stacked"):
        yield "--stacked"
    for name, dims in sorted((asked.get("shapes") or {}).items()):
        yield f"--shapes {shlex.quote(clean(f'{name}:' + 'x'.join(str(dim) for dim in dims)))}"
    for name in ("samples", "seed"):
        if asked.get(name):
            yield f"--{name} {shlex.quote(clean(asked[name]))}"


def _words_of_policy(document: Mapping[str, Any]) -> Iterator[str]:
    """The options that say how outputs are held against each other, for another command on the same ones."""
    policy = document.get("policy") or {}
    if policy.get("matched"):
        yield f"--match {shlex.quote(','.join(map(clean, policy['matched'])))}"
    for name, words in policy.get("decides") or ():
        yield f"--decide {shlex.quote(clean(f'{name}={words}'))}"


def _steps_by_code(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The step of the sequence for each code that has exactly one: what putting that cause into the reference left."""
    steps = [step for step in (document.get("sequence") or {}).get("steps", ()) if step.get("code")]
    codes = [str(step["code"]) for step in steps]
    return {code: step for code, step in zip(codes, steps, strict=True) if codes.count(code) == 1}


def _clean_command(text: object) -> str:
    """A command keeps its line breaks: it is there to be copied."""
    return "\n".join(clean(line) for line in str(text).splitlines())
