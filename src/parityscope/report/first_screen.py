"""The first screen: is it usable, why not, where does that begin, what to do, and how sure is all this.

In: the study's document and parts of its view. Out: a title, labelled answers in the order of the questions, and what else
there is, as plain data that the terminal and the page lay out alike. Nothing is averaged over NaN: what is not finite is
counted. No effect is told that was not measured.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from parityscope.backends import known_backend
from parityscope.backends.targets import format_target, parse_target
from parityscope.errors import ParityError
from parityscope.expectation.grades import margin_of
from parityscope.languages import columns_of, say_in_language
from parityscope.records import Target
from parityscope.report._no_cause import next_command
from parityscope.report._tensors import GRADES
from parityscope.report._usability import describe_usability, name_output
from parityscope.report.offered import proof_command, repair_command
from parityscope.report.words import (
    as_number,
    clean,
    format_count,
    format_figure,
    format_percent,
    shorten_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "cut_text",
    "describe_handing_on",
    "first_screen",
    "first_sentence",
    "make_row",
    "place_outside",
]

_Row = dict[str, str]
_PROVED = 0.9  # chosen, as where advice is given: from here on a cause is called proved
# Characters of an answer, of a further cause, and of what has one line; chosen: three lines, two and one of a terminal.
_LONGEST, _SHORTER, _LINE = 290, 150, 84
_ALL = 0.995  # of the error, which three digits call all of it
# Of a cut text that must be left when it ends with a part of a sentence, and with a whole word; chosen.
_CLAUSES, _WORDS = 0.6, 0.7
# A name that a converter made of two equal ones: "a/add;a/add".
_DOUBLED = re.compile(r"(?<![^\s'])([^\s;']{4,});\1(?![^\s',:])")
_PARTS = (", ", " (", "，")  # noqa: RUF001 - as Chinese has them
_WHOLE = ("; ", ": ", "；", "：")  # noqa: RUF001 - as Chinese has them; what stands before is a whole statement
_BRACKETS = re.compile(r" \([^()]*\)|（[^（）]*）")  # noqa: RUF001 - as Chinese has them
_NAME = 48  # characters of a name
_INNER_NAME = 40  # of one in a sentence that is too long
_SMALL = 0.1  # of what a layer inherits: it only passes that on; chosen
_MOST_NOTES = 2
_MOST_ADVICE = 3
_KEEP = "keep_in_fp32"
_HALF = frozenset({"f16", "bf16"})
_SEARCHED = "search for the smallest change that meets a budget:"
# What is not examined: in other words, and what is a test more or less, which has no name outside of the report.
_INSIDE = {"localization": "layers inside the network"}
_TESTS = {"experiment", "repair", "trial"}
_SAME = "Both sides are the same target and model."
# Codes that say what is wrong with an output, and not what made it so.
_SYMPTOMS = frozenset({"DAT007"})
# Where causes of these codes and families are, which have no layer.
_PLACES: Mapping[str, str] = {
    "DAT006": "no single layer, but the budget",
    "DAT007": "no single layer, but a few elements of an output",
    "DAT008": "no single layer, but elements that are nearly zero",
    "DAT009": "in the reference, not in the candidate",
    "DAT010": "no single layer, but the order of an output's rows",
    "DAT": "before the network, in the data",
    "PRE": "before the network, in how the inputs are prepared",
    "BND": "behind the network, in how the outputs are bound",
    "ENV": "no single layer, but the settings of the runtime",
    "ACC": "no single layer: all of them round",
    "RUN": "no single layer, but the run itself",
    "SHP": "no single layer, but between the rows of a batch",
    "SEQ": "no single layer, but from call to call",
}


def first_screen(document: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """What the first screen says of `document`; `model` are the parts of its view that are made already.

    `title` is the verdict in a sentence, `basis` what it rests on, `rows` the answers (`label`, `text`, `command`, `note`),
    `rest` how much was ruled out and not examined.
    """
    return {
        "symbol": model["verdict"]["symbol"],
        "title": f"{_describe_subject(document)}: {describe_usability(document)}",
        "basis": _describe_basis(document),
        "rows": list(_list_rows(document, model)),
        "rest": _describe_rest(document, model),
    }


def _list_rows(document: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[_Row]:
    beyond = document.get("verdict") == "beyond"
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    if beyond:
        yield _row_of_cause(document, causes, model)
        yield from (
            _row_of_further_cause(one, causes[0]) for one in causes[1:3] if _is_proved(one) or not _is_proved(causes[0])
        )
        yield from _rows_of_place(document, causes)
        proved = any(map(_is_proved, causes))
        yield from _rows_of_repairs(
            [one for one in model["repairs"] if one["cures"] or not proved],
            repair_command(document),
            document,
        )
        yield from _rows_of_sureness(document, causes)
    yield from _rows_of_widened(document)
    yield from _rows_of_notes(document, model)
    yield from _rows_of_not_judged(document, model["skipped"])


def make_row(label: str, text: str, *, command: str = "", note: str = "") -> _Row:
    """A row of the first screen as plain data."""
    return {"label": label, "text": text, "command": command, "note": note}


def _describe_subject(document: Mapping[str, Any]) -> str:
    """The model, what it was meant to be computed in, and by whom: "ocr-det in FP16 (OpenVINO)"."""
    candidate = document.get("candidate", {})
    declared = str((document.get("policy") or {}).get("declared") or candidate.get("declared") or "")
    runtime = str(candidate.get("backend") or "")
    known = known_backend(runtime) if runtime else None
    by = clean(runtime) if known is None else known.words or known.title
    named = shorten_name((document.get("model") or {}).get("name") or "model", _NAME)
    whole = " wholly" if known is not None and known.simulates and declared in _HALF else ""
    return (
        f"{named}{f'{whole} in {GRADES.get(declared, clean(declared))}' if declared else ''}{f' ({by})' if by else ''}"
    )


def _describe_basis(document: Mapping[str, Any]) -> str:
    inputs = document.get("inputs") or {}
    samples = int(as_number(inputs.get("samples")) or 0)
    kind = "generated sample" if inputs.get("generated") else "sample"
    origin = clean(inputs.get("origin") or "")
    given = f" of {origin if len(origin) <= _NAME else f'…{origin[1 - _NAME :]}'}" if origin else ""
    return f"{format_count(samples)} {kind}{'' if samples == 1 else 's'}{given}"


def _row_of_cause(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> _Row:
    if not causes:
        return make_row("Why", cut_text(clean(model["no_cause"])), command=next_command(document))
    first = causes[0]
    return make_row(
        "Why",
        f"{cut_text(_first_claim_sentence(first))} [{clean(first.get('code', ''))}, {_describe_sureness(first)}]",
    )


def _row_of_further_cause(finding: Mapping[str, Any], first: Mapping[str, Any]) -> _Row:
    label = "or" if _is_instead(finding, first) else "and"
    return make_row(
        label,
        (
            f"{cut_text(_first_claim_sentence(finding), _SHORTER)} [{clean(finding.get('code', ''))}, "
            f"{_describe_sureness(finding)}]"
        ),
    )


def _is_instead(finding: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether a cause explains what another one explains already: both cannot be the whole of it."""
    shares = [as_number(one.get("share")) or 0.0 for one in (finding, first)]
    return min(shares) >= _PROVED


def _first_claim_sentence(finding: Mapping[str, Any]) -> str:
    """The claim's first sentence; what a title adds is for the rest of the report."""
    return first_sentence(finding.get("claim") or finding.get("title") or "")


def first_sentence(text: object) -> str:
    """The first sentence of a claim, without its full stop."""
    claim = clean(text)
    return re.split(r"(?<=[a-z0-9)'\"%])\. (?=['A-Z])", claim, maxsplit=1)[0].removesuffix(".")


def cut_text(text: str, longest: int = _LONGEST) -> str:
    """A sentence in the language that is spoken, cut to what has room: what was cut could not be looked up any more."""
    told = _DOUBLED.sub(r"\1", say_in_language(text))
    if columns_of(told) <= longest:
        return told
    # Names give way before words do (what tells them apart stands at their ends), and then what is said in brackets.
    told = _shorten_names(told)
    if columns_of(told) > longest:
        told = _BRACKETS.sub("", told)
    if columns_of(told) <= longest:
        return told
    least = longest * len(told) // columns_of(told)
    kept = told[: least - 1]
    # Where a part of the sentence ends, if most of it is left, else at a word; Chinese has few spaces to cut at.
    for ends, most, more in ((_WHOLE, _CLAUSES, ""), (_PARTS, _CLAUSES, " …"), ((" ",), _WORDS, " …")):
        place = max(kept.rfind(end) for end in ends)
        if place > most * len(kept):
            return f"{kept[:place]}{more}"
    return f"{kept} …"


def _shorten_names(text: str) -> str:
    return " ".join(shorten_name(word, _INNER_NAME) if len(word) > _INNER_NAME else word for word in text.split(" "))


def _is_proved(finding: Mapping[str, Any]) -> bool:
    return (as_number(finding.get("confidence")) or 0.0) >= _PROVED


def _describe_sureness(finding: Mapping[str, Any]) -> str:
    if finding.get("code") in _SYMPTOMS:
        return "measured; what makes it is not known"
    return "proved" if _is_proved(finding) else f"likely: {format_percent(as_number(finding.get('confidence')) or 0.0)}"


def _rows_of_place(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    """The layer of the first cause, else of the first suspect, and what only hands its error on."""
    first = causes[0] if causes else {}
    site = first.get("site")
    if elsewhere := place_outside(first):
        moved = list((first.get("details") or {}).get("order") or ()) if str(first["code"]).startswith("BND") else []
        named = ", ".join(shorten_name(clean(one), _NAME) for one in moved or [(site or {}).get("tensor") or ""] if one)
        yield make_row("Where", f"{elsewhere}{f': {named}' if named else ''}")
        return
    ranked = document.get("suspects", ())
    site = site or (ranked[0].get("site") if ranked else None)
    if not site:
        return
    node, tensor = clean(site.get("node") or ""), clean(site.get("tensor") or "")
    index = as_number(site.get("index"))
    nodes = as_number((document.get("model") or {}).get("nodes"))
    place = (
        f"node {format_count(index + 1)} of {format_count(nodes)}, "
        if index is not None and nodes and 0 <= index < nodes
        else ""
    )
    kind = f" ({clean(site.get('op_type'))})" if site.get("op_type") else ""
    passing = describe_handing_on(document.get("tensors", ()), index)
    if "NaN" in passing and not any(map(_holds_lost, document.get("outputs", ()))):
        passing += ", and the outputs are finite again"
    yield make_row("Where", f"{place}{shorten_name(node or tensor, _NAME)}{kind}{passing}")


def place_outside(finding: Mapping[str, Any]) -> str:
    """Where a cause is that has no layer; "" where it has one."""
    code = str(finding.get("code", ""))
    details = finding.get("details") or {}
    if code[:3] == "BND" and (code == "BND002" or set(details.get("order") or ()) & {*details.get("inputs", ())}):
        return "before the network, in how the inputs are bound"
    return _PLACES.get(code) or _PLACES.get(code[:3], "")


def describe_handing_on(tensors: Sequence[Mapping[str, Any]], index: float | None) -> str:
    """How many tensors behind a place are wrong, or hold what is not finite, by what they inherit; "" where none is."""
    behind = [
        one
        for one in tensors
        if index is not None
        and (as_number(one.get("index")) or 0) > index
        and (one.get("grade") == "beyond" or _holds_lost(one))
        and one.get("inherited") is not None
        and one.get("introduced") is not None
        and (as_number(one["introduced"]) or 0.0) <= _SMALL * (as_number(one["inherited"]) or 0.0)
    ]
    if not behind:
        return ""
    if all(map(_holds_lost, behind)):
        return f"; {format_count(len(behind))} downstream only pass on NaN or infinity"
    return f"; {format_count(len(behind))} downstream only pass on the error"


def _holds_lost(tensor: Mapping[str, Any]) -> bool:
    return bool(as_number((tensor.get("nonfinite") or {}).get("candidate")))


def _describe_trial(trial: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """The verdict on what a trial left, with the number and the output that it rests on."""
    if trial["verdict"] not in {"within", "beyond"}:
        return "not judged"
    policy = document.get("policy") or {}
    declared = str(policy.get("declared") or "")
    grade = GRADES.get(declared, clean(declared)) or "the arithmetic"
    said = "within" if trial["verdict"] == "within" else "still beyond"
    if policy.get("budgets"):
        return f"{said} the budget"
    outputs = [one for one in document.get("outputs", ()) if one.get("name") == trial["output"]]
    expected = as_number(outputs[0]["expected"].get(declared)) if outputs and outputs[0].get("expected") else None
    if not expected or trial["error"] is None:
        return f"{said} what {grade} explains"
    if not trial["error"]:
        return said
    several = len(document["outputs"]) > 1
    named = f" in '{shorten_name(trial['output'], _INNER_NAME)}'" if several else ""
    return (
        f"{said}: {format_figure(trial['error'] / expected)} times {grade}'s expected rounding error "
        f"(up to {margin_of(declared):g} is rounding){named}"
    )


def _rows_of_repairs(
    offered: Sequence[Mapping[str, Any]], searching: str, document: Mapping[str, Any]
) -> Iterator[_Row]:
    """The best repair that was tried, or the first that is offered; then two more, of which none has a command that was told.

    `searching` is the command that searches the model's repair, "" where there is none.
    """
    told: set[str] = set()
    for repair in offered:
        command = (str(repair["command"] or _one_line(repair["code_lines"])).splitlines() or [""])[0]
        if len(told) == _MOST_ADVICE or command in told or repair["text"] in told:
            continue
        text = _shorten_names(cut_text(repair["text"], _SHORTER))  # in full where the cause is told
        if told:
            yield make_row("or", text)
            told.add(command or repair["text"])
            continue
        file = (repair["trial"] or {}).get("file", "")
        used = f"use {file}: " if file and repair["trial"]["verdict"] == "within" else ""
        yield make_row("Fix", f"{used}{text}", command=command, note=_shown_effect(repair, document))
        told.add(command or repair["text"])
        if repair["repair"] == _KEEP and searching and searching not in told:
            # What was tried to prove the cause may keep more in FP32 than has to be.
            yield make_row("or", _SEARCHED, command=searching)
            told.add(searching)
    if len(told) == 1 and searching and searching not in told:
        yield make_row("or", _SEARCHED, command=searching)
        return
    if offered and not offered[0]["command"].startswith("parityscope"):
        command = proof_command(document)
        done = "record it again" if " --after " in command else "do it"
        words = (
            f"{done}, and this tells whether it helped:"
            if offered[0]["trial"]
            else f"none was tried here: {done}, and this tells whether it helped:"
        )
        yield make_row("Then", words, command=command)


def _one_line(written: Mapping[str, str]) -> str:
    """What an advice wrote, where that is one line: the setting that switches something off."""
    lines = [line for line in written.get("lines", "").splitlines() if not line.startswith("#")]
    return lines[0] if len(lines) == 1 else ""


def _shown_effect(repair: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """What was measured of a repair, and how its file is built; "" where nothing was."""
    trial = repair["trial"]
    if not trial:
        return ""
    note = trial["note"]
    kept = f"; {note}" if note and (repair["repair"] == _KEEP or columns_of(note) <= _LINE) else ""
    typed = repair["repair"] == _KEEP and trial["file"] and trial["verdict"] == "within"
    built = "; that file holds its own types: no f16 in the target, no --fp16 in the build" if typed else ""
    return f"tried: {trial['change']}, {_describe_trial(trial, document)}{kept}{built}"


def _rows_of_sureness(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    if not causes:
        return
    first = causes[0]
    rivals = sum(_is_instead(one, first) for one in causes[1:])
    if rivals:
        which = f"{rivals + 1} causes explain all of the error on these samples alike"
        yield make_row("Sure", f"not of which: {which}; more samples, or a look at layers, tell them apart")
        return
    yield make_row("Sure", f"{_describe_proof(document, first)}{_describe_rest_of_error(first)}")


def _describe_proof(document: Mapping[str, Any], finding: Mapping[str, Any]) -> str:
    """How sure a cause is, in the words that stand behind it, and what that rests on: what is left of the error without it.

    What the error was is told above, and not once more: an experiment measures it on other samples or outputs.
    """
    sure = _describe_sureness(finding).partition(";")[0]  # what more it says stands with the cause
    sequence = document.get("sequence") or {}
    steps = [one for one in sequence.get("steps", ()) if one.get("code") == finding.get("code")]
    if len(steps) == 1 and _is_proved(finding):
        left = format_percent(steps[0].get("after"))
        told = f"{sure}; with this fault in the reference, both sides differ by {left}"
        return _hold_against_rounding(told, document, steps[0].get("after"))
    for one in finding.get("evidence", ()):
        measure = str((one.get("experiment") or {}).get("measure") or "")
        before, after = (as_number(one.get(key)) for key in ("before", "after"))
        if one.get("outcome") == "supports" and "relative L2" in measure and before and after is not None:
            left = format_percent(after, exact=True)
            told = f"{sure}; without it, both sides differ by {left}"
            return _hold_against_rounding(told, document, after)
    source = clean(finding.get("confidence_from") or "")
    share = f"{format_percent(as_number(finding.get('confidence')) or 0.0)}: " if _is_proved(finding) else ""
    return f"{sure}; {share}{source}" if source else sure


def _hold_against_rounding(told: str, document: Mapping[str, Any], left: object) -> str:
    """What is told of the error that a cause leaves, with how much more than the rounding of what is declared that is."""
    declared = str((document.get("policy") or {}).get("declared") or "")
    expected = [as_number((one.get("expected") or {}).get(declared)) or 0.0 for one in document.get("outputs", ())]
    most, error = max(expected, default=0.0), as_number(left) or 0.0
    if not most or error <= margin_of(declared) * most:
        return told
    return f"{told}; that is {format_figure(error / most)} times {GRADES[declared]}'s rounding"


def _describe_rest_of_error(finding: Mapping[str, Any]) -> str:
    """That a cause is not all of it; "" where it is."""
    share = as_number(finding.get("share"))
    return "" if share is None or share >= _ALL else f"; it explains {format_percent(share)} of the output error"


def _rows_of_widened(document: Mapping[str, Any]) -> Iterator[_Row]:
    """That nothing was computed in the half precision that is declared: what was within says nothing of it."""
    candidate = document.get("candidate") or {}
    declared = str((document.get("policy") or {}).get("declared") or "")
    known = known_backend(str(candidate.get("backend") or ""))
    if document.get("verdict") == "beyond" or declared not in _HALF or known is None:
        return
    try:
        target = parse_target(str(candidate.get("target") or ""))
    except ParityError:  # a study from elsewhere: its target may be written otherwise
        return
    if known.widens_halves(target):
        options = tuple(one for one in target.options if one[0] == "model")
        faithful = shlex.quote(format_target(Target(backend="sim", options=options)))
        yield make_row(
            "Note",
            f"computed in FP32: {known.title} has no {GRADES[declared]} arithmetic on a CPU; --candidate {faithful} has",
        )


def _rows_of_notes(document: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[_Row]:
    """What weakens the answer: answers that vary, data that is no data, what contributes."""
    findings = document.get("findings", ())
    causes = [one for one in findings if one.get("role") == "cause"]
    notes = [_SAME] if str(document.get("headline", "")).startswith(_SAME) else []
    notes += [model["varies"]] if model["varies"] else []
    notes += [
        f"{clean(one.get('title', ''))} [{clean(one.get('code', ''))}]"
        for one in findings
        if (one.get("role") == "contributing" and not _is_told_by(one, causes))
        or (one.get("role") == "information" and str(one.get("code", "")).startswith("DAT"))
    ]
    most = 1 if document.get("verdict") == "beyond" else _MOST_NOTES
    yield from (make_row("Note", cut_text(one, _SHORTER)) for one in notes[:most])


def _is_told_by(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a proved cause says of the same layer, or of all of the error, what a finding describes once more."""
    proved = [one for one in causes if _is_proved(one)]
    tensor = (finding.get("site") or {}).get("tensor")
    if tensor and any(tensor == (one.get("site") or {}).get("tensor") for one in proved):
        return True
    shares = [as_number((one.get("details") or {}).get("together")) or as_number(one.get("share")) for one in proved]
    return bool(tensor) and any(share is not None and share >= _PROVED for share in shares)


def _rows_of_not_judged(document: Mapping[str, Any], skipped: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    """Outputs without a verdict, and what was asked for and not done, with the fix."""
    outputs = [one for one in document.get("outputs", ()) if one.get("verdict") == "incomplete"]
    for one in outputs[:_MOST_NOTES]:
        yield make_row("Missing", cut_text(f"output '{name_output(one)}': {clean(one.get('reason', ''))}", _SHORTER))
    for skip in [one for one in skipped if one["asked"]][:_MOST_NOTES]:
        note = f"fix: {skip['fix']}" if skip["fix"] else ""
        yield make_row("Missing", cut_text(f"{skip['what']}: {skip['reason']}", _SHORTER), note=note)


def _name_missed(skipped: Sequence[Mapping[str, Any]]) -> str:
    """What was not examined, in few words."""
    names = [str(one) for each in skipped for one in (each["names"] or [each["what"]])]
    kinds = [name.partition(" ")[0] for name in names]
    parts = [_INSIDE.get(name, name) for name, kind in zip(names, kinds, strict=True) if kind not in _TESTS]
    first = [name if len(name) <= _NAME else cut_text(name, _NAME) for name in parts[:_MOST_NOTES]]
    others = len(names) - len(first)
    more = [] if not others else ["1 further test"] if others == 1 else [f"{format_count(others)} further tests"]
    return ", ".join([*first, *more])


def _describe_rest(document: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    claims = {
        str((one.get("experiment") or {}).get("claim", ""))
        for one in document.get("refuted", ())
        if one.get("outcome") == "refutes"
    }
    refuted = len(claims)
    told = (
        [f"{format_count(refuted)} other {'cause was' if refuted == 1 else 'causes were'} ruled out"] if refuted else []
    )
    if model["skipped"]:
        told.append(f"not examined: {_name_missed(model['skipped'])}")
    return f"{'; '.join(told)}." if told else ""
