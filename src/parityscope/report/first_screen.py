"""The first screen: is it usable, why not, where does that begin, what to do, and how sure is all this.

In: the study's document and parts of its view. Out: a title, labelled answers in the order of the questions, and what else
there is, as plain data that the terminal and the page lay out alike. Nothing is averaged over NaN: what is not finite is
counted. No effect is told that was not measured.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Any

from parityscope.backends import known_backends
from parityscope.backends.targets import format_target, parse_target
from parityscope.errors import ParityError
from parityscope.languages import columns_of, say_in_language
from parityscope.records import Target
from parityscope.report._no_cause import FROM_OUTPUTS, next_command
from parityscope.report._tensors import GRADES
from parityscope.report._usability import describe_usability, name_output
from parityscope.report.offered import WEAK, diagnose_again_command, name_written_file, proof_command, repair_command
from parityscope.report.repair_effects import (
    KEEP,
    PROVED,
    SYMPTOMS,
    describe_change,
    describe_effect,
    describe_proof,
    is_proved,
    left_by_proof,
    limit_of,
    runtime_of,
)
from parityscope.report.words import (
    LONGEST_NAME,
    as_number,
    call_name,
    clean,
    format_count,
    format_percent,
    name_once,
    shorten_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.backends import Backend

__all__ = [
    "cut_text",
    "describe_handing_on",
    "first_screen",
    "first_sentence",
    "make_row",
    "number_node",
    "place_outside",
]

_Row = dict[str, str]
# Characters of an answer, of a further cause, and of what has one line; chosen: three lines, two and one of a terminal.
_LONGEST, _SHORTER, _LINE = 290, 170, 84
_ALL = 0.995  # of the error, which three digits call all of it
_BRACKETS = re.compile(r" \([^()]*\)|（[^（）]*）")  # noqa: RUF001 - as Chinese has them
# Between two statements of a text.
_BETWEEN = re.compile(r"; |；|(?<=[a-z0-9)'\"%])\. (?=['A-Z])|。(?=.)")  # noqa: RUF001 - as Chinese has them
_GAP = " … "
_SMALL = 0.1  # of what a layer inherits: it only passes that on; chosen
_MOST_NOTES = 2
_MOST_ADVICE = 3
_HALF = frozenset({"f16", "bf16"})
_SEARCHED = "search for the smallest change that keeps the error within 1 % (another limit: --budget):"
# What is not examined: in other words, and what nobody misses.
_INSIDE = {"localization": "values inside the network (none given)"}
_NO_GAP = {"another experiment explains all of the error already", "it cannot be applied to this node"}
_EXPERIMENT = re.compile(r"^(?:experiment )?[A-Z]{3}\d{3}-\S*: ")
_NO_CHANGE = "no cause is proved: no single change of the network that was tried gives these outputs"
_SAME = "Both sides are the same target and model."
# Codes that say nothing more once a proved cause makes all of the error: of its size, of other ways to run the model.
_OF_ALL = frozenset({"ACC001", "DAT009"})
# Where causes of these codes and families are, which have no layer.
_PLACES: Mapping[str, str] = {
    "DAT006": "no single layer, but the budget",
    "DAT007": "no single layer, but elements of an output",
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
        further = [one for one in causes[1:] if is_proved(one) or not is_proved(causes[0])]
        further += [
            one for one in document.get("findings", ()) if one.get("role") == "contributing" and _is_needed(one)
        ]
        yield from (_row_of_further_cause(one, causes) for one in further[: _MOST_ADVICE - 1])
        yield from _rows_of_place(document, causes)
        proved = any(map(is_proved, causes))
        offered = [one for one in model["repairs"] if one["cures"] or (one["likely"] and not proved)]
        repairs = list(_rows_of_repairs(offered, repair_command(document), document))
        proof = list(_rows_of_proof(document, offered))
        # What a symptom is of is only known once it was looked at again.
        yield from [*proof, *repairs] if offered and offered[0]["code"] in SYMPTOMS else [*repairs, *proof]
        if causes:
            left_told = any(row["label"] == "Fix" and row["note"] for row in repairs)
            yield from _rows_of_sureness(document, causes, left_told=left_told)
    else:
        yield from _rows_of_proof(document, ())
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
    known = runtime_of(document)
    by = clean(runtime) if known is None else f"{known.words or known.title}{_describe_version(document, known)}"
    named = call_name((document.get("model") or {}).get("name") or "model")
    whole = " wholly" if known is not None and known.simulates and declared in _HALF else ""
    return (
        f"{named}{f'{whole} in {GRADES.get(declared, clean(declared))}' if declared else ''}{f' ({by})' if by else ''}"
    )


def _describe_version(document: Mapping[str, Any], known: Backend) -> str:
    """The version of what ran the candidate, or which runtime a program or a recording tells of; of a prediction nothing."""
    candidate = document.get("candidate", {})
    version = clean(candidate.get("version") or "").partition("-")[0]
    if known.simulates or known.reads_model:
        return f" {version}" if version and not known.simulates else ""
    facts = {str(name).lower(): clean(value) for name, value in (candidate.get("environment") or {}).items()}
    told = [
        f"{one.title} {facts[name]}"
        for one in known_backends().values()
        if one.reads_model and (name := (one.package or one.name).lower()) in facts
    ]
    return f", {told[0]}" if told else ", runtime unknown"


def _describe_basis(document: Mapping[str, Any]) -> str:
    inputs = document.get("inputs") or {}
    samples = int(as_number(inputs.get("samples")) or 0)
    kind = "generated sample" if inputs.get("generated") else "sample"
    origin = clean(inputs.get("origin") or "")
    given = f" of {origin if len(origin) <= LONGEST_NAME else f'…{origin[1 - LONGEST_NAME :]}'}" if origin else ""
    right = runtime_of(document, "reference")
    version = clean((document.get("reference") or {}).get("version") or "")
    taken = f"; right: {right.title}{f' {version}' if version else ''}" if right is not None else ""
    return f"{format_count(samples)} {kind}{'' if samples == 1 else 's'}{given}{taken}"


def _row_of_cause(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> _Row:
    if not causes:
        told = _NO_CHANGE if _region_of(document) else clean(model["no_cause"])
        return make_row("Why", cut_text(told), command=next_command(document))
    return make_row("Why", f"{cut_text(_say_cause(causes[0]))} {_describe_standing(causes[0], causes)}")


def _row_of_further_cause(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> _Row:
    return make_row(
        "or" if _is_instead(finding, causes[0]) else "and",
        f"{cut_text(_say_cause(finding), _SHORTER)} {_describe_standing(finding, causes)}",
    )


def _describe_standing(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """The code of a cause, how sure it is, and what part of the error it makes where that is not all."""
    share = as_number(finding.get("share"))
    part = f", {format_percent(share)} of the error" if share is not None and share < _ALL else ""
    sure = _describe_sureness(finding, causes)
    return f"[{clean(finding.get('code', ''))}, {'cause proved' if sure == 'proved' else sure}{part}]"


def _is_instead(finding: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether a cause explains what another one explains already, and is as sure: both cannot be the whole of it."""
    shares = [as_number(one.get("share")) or 0.0 for one in (finding, first)]
    return min(shares) >= PROVED and is_proved(finding) == is_proved(first)


def _say_cause(finding: Mapping[str, Any]) -> str:
    """What a finding says is wrong: its claim's first sentence without what was measured, which stands with the evidence."""
    told = first_sentence(finding.get("claim") or finding.get("title") or "")
    for one in finding.get("evidence", ())[:1]:
        because = clean(one.get("because") or "")
        # Where a cause was proved with others, what proved it stands behind what was measured first.
        while because and not told.endswith(because):
            because = because.rpartition("; ")[0]
        statement = told.removesuffix(because)
        ends = [place for end in (": ", "; ") if (place := statement.rfind(end)) > 0]
        if because and ends:
            return statement[: max(ends)]
    return told


def first_sentence(text: object) -> str:
    """The first sentence of a claim, without its full stop."""
    claim = clean(text)
    return re.split(r"(?<=[a-z0-9)'\"%])\. (?=['A-Z])", claim, maxsplit=1)[0].removesuffix(".")


def cut_text(text: str, longest: int = _LONGEST) -> str:
    """A sentence in the language that is spoken, as short as there is room: whole, or without its middle.

    Names give way before words do (what tells them apart stands at their ends), then what is said in brackets, then what is
    said after the first statement. Of a statement that is still too long its start and its end are left.
    """
    told = name_once(say_in_language(text))
    told = " ".join(shorten_name(word, LONGEST_NAME) for word in told.split(" "))
    while columns_of(told) > longest and (places := list(_BRACKETS.finditer(told))):
        told = told[: places[-1].start()] + told[places[-1].end() :]
    while columns_of(told) > longest and (places := list(_BETWEEN.finditer(told))):
        told = told[: places[-1].start()]
    return told if columns_of(told) <= longest else _without_middle(told, longest)


def _without_middle(text: str, longest: int) -> str:
    """The first two thirds of what has room, and of its end the last; cut between words, in Chinese between signs."""
    kept = longest * len(text) // columns_of(text) - len(_GAP)
    head, tail = text[: kept * 2 // 3], text[len(text) - kept // 3 :]
    return f"{head.rpartition(' ')[0] or head}{_GAP}{tail.partition(' ')[2] or tail}"


def _is_needed(finding: Mapping[str, Any]) -> bool:
    """Whether what makes little of the error was proved together with what makes the rest of it, and not without."""
    return "together" in (finding.get("details") or {}) and is_proved(finding)


def _describe_sureness(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """How sure a cause is: proved, one of so many that explain the same, likely by so much, or only measured."""
    if finding.get("code") in SYMPTOMS:
        return "measured"
    alike = sum(_is_instead(one, causes[0]) for one in causes) if _is_instead(finding, causes[0]) else 1
    if alike > 1:
        return f"possible: 1 of {alike}"
    return "proved" if is_proved(finding) else f"likely: {format_percent(as_number(finding.get('confidence')) or 0.0)}"


def _region_of(document: Mapping[str, Any]) -> tuple[int, str, str, int] | None:
    """Of how many nodes one holds the error, the first and the last one's tensor, and how many there are, as outputs tell."""
    asked = [one for one in document.get("findings", ()) if one.get("code") == FROM_OUTPUTS and one["role"] != "cause"]
    details = asked[0].get("details") or {} if asked else {}
    region = [clean(name) for name in details.get("region") or ()]
    nodes = as_number(details.get("nodes"))
    return (len(region), region[0], region[-1], int(nodes)) if region and nodes else None


def _rows_of_place(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    """The layer of the first cause, else of the first suspect, and what only hands its error on."""
    first = causes[0] if causes else {}
    site = first.get("site")
    if elsewhere := place_outside(first):
        details = first.get("details") or {}
        moved = list(details.get("order") or ()) if str(first["code"]).startswith("BND") else []
        named = ", ".join(call_name(one) for one in moved or [(site or {}).get("tensor") or ""] if one)
        held = list(details.get("elements") or ()) if first["code"] == "DAT007" else []
        counted = f", {format_count(len(held))} of {format_count(details.get('of'))}" if held else ""
        counted += f", the first at {held[0]}" if len(held) > 1 else f", at {held[0]}" if held else ""
        yield make_row("Where", f"{elsewhere}{f': {named}' if named else ''}{counted}")
        return
    if not causes and (region := _region_of(document)):
        count, start, end, every = region
        ends = f"from '{call_name(start)}' to '{call_name(end)}'"
        told = (
            f"anywhere in the network's {format_count(every)} nodes, or in what enters it"
            if count == every
            else f"one or more of {format_count(count)} nodes, {ends}"
        )
        yield make_row("Where", told)
        return
    ranked = document.get("suspects", ())
    site = site or (ranked[0].get("site") if ranked else None)
    if not site:
        return
    node, tensor = clean(site.get("node") or ""), clean(site.get("tensor") or "")
    index = as_number(site.get("index"))
    nodes = as_number((document.get("model") or {}).get("nodes"))
    place = f"{number}, " if (number := number_node(index, nodes)) else ""
    # A node without a name is called by what it gives elsewhere.
    unnamed = re.fullmatch(r"\w+#\d+", node) and tensor
    kind = f" ({clean(site.get('op_type'))})" if site.get("op_type") else ""
    kind = f", which gives '{call_name(tensor)}'" if unnamed else kind
    passing = _describe_earlier_loss(document, index) or describe_handing_on(document.get("tensors", ()), index)
    if "NaN" in passing and not any(map(_holds_lost, document.get("outputs", ()))):
        passing += "; the outputs are finite"
    yield make_row("Where", f"{place}{call_name(node or tensor)}{kind}{passing}")


def number_node(index: float | None, nodes: float | None) -> str:
    """Which node of how many, counted from 0 as in the names of nodes that have none; "" where that is not known."""
    if index is None or not nodes or not 0 <= index < nodes:
        return ""
    return f"node #{format_count(index)} of #0 to #{format_count(nodes - 1)}"


def _describe_earlier_loss(document: Mapping[str, Any], index: float | None) -> str:
    """Where NaN or infinity begins before a place, and that it matters less there; "" where it does not."""
    lost = [one for one in document.get("tensors", ()) if _holds_lost(one)]
    earlier = [one for one in lost if index is not None and (as_number(one.get("index")) or 0) < index]
    if not earlier:
        return ""
    first = min(earlier, key=lambda one: as_number(one.get("index")) or 0)
    where = f"#{format_count(first['index'])} ({clean(first.get('op_type') or 'node')})"
    born = {
        as_number((one.get("site") or {}).get("index")) or 0: as_number(one.get("share"))
        for one in document.get("suspects", ())
        if math.isinf(as_number(one.get("introduced")) or 0.0)
    }
    own, *before = born.get(index or 0), *(share for each, share in born.items() if each < (index or 0))
    less = own is not None and before and all(share is not None and share < own for share in before)
    return f"; NaN or infinity at {where} upstream does less harm" if less else f"; NaN or infinity begins at {where}"


def place_outside(finding: Mapping[str, Any]) -> str:
    """Where a cause is that has no layer; "" where it has one."""
    code = str(finding.get("code", ""))
    details = finding.get("details") or {}
    if code[:3] == "BND" and (code == "BND002" or set(details.get("order") or ()) & {*details.get("inputs", ())}):
        return "before the network, in how the inputs are bound"
    entered = (finding.get("site") or {}).get("op_type") == "Input"
    return _PLACES.get(code) or _PLACES.get(code[:3]) or (_PLACES["PRE"] if entered else "")


def describe_handing_on(tensors: Sequence[Mapping[str, Any]], index: float | None) -> str:
    """How many nodes behind a place are wrong, or hold what is not finite, by what they inherit; "" where none is."""
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
    count = format_count(len({as_number(one["index"]) for one in behind}))
    if all(map(_holds_lost, behind)):
        return f"; {count} downstream only pass on NaN or infinity"
    return f"; {count} downstream only pass on the error"


def _holds_lost(tensor: Mapping[str, Any]) -> bool:
    return bool(as_number((tensor.get("nonfinite") or {}).get("candidate")))


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
        text = cut_text(repair["text"], _SHORTER if told else _LONGEST)
        if told:
            yield make_row(
                "or",
                f"{text} ({f'tried: {change}' if (change := describe_change(repair, document)) else 'not tried'})",
            )
            told.add(command or repair["text"])
            continue
        if repair["tried_file"]:
            kept = (
                f", where {repair['trial']['note']} (its types say so: build it without --fp16)"
                if repair["repair"] == KEEP
                else ""
            )
            text = f"use {repair['tried_file']}{kept}, with this done in it already: {text}"
        elif command.startswith("trtexec ") and ((known := runtime_of(document)) is None or known.tensorrt != "yes"):
            text = f"{text}; where TensorRT runs it:"
        label = "Fix" if repair["cures"] and repair["code"] not in SYMPTOMS else "Then"
        note = describe_effect(repair, document)
        # What simulates a file once more is no step to take: the row behind it says what is.
        again = repair["tried_file"] and (known := runtime_of(document)) is not None and known.simulates
        yield make_row(label, text, command="" if again else command, note=note)
        told.add(command or repair["text"])
        if repair["repair"] == KEEP and searching and searching not in told:
            # What was tried to prove the cause may keep more in FP32 than has to be.
            yield make_row("or", _SEARCHED, command=searching)
            told.add(searching)
    if len(told) == 1 and offered[0]["cures"] and searching and searching not in told:
        yield make_row("or", _SEARCHED, command=searching)


def _rows_of_proof(document: Mapping[str, Any], offered: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    """What tells whether the first repair helped, with the file that it writes; of a prediction, what tests the real one."""
    best = offered[0] if offered and offered[0]["cures"] else None
    tried, written = (best["tried_file"], name_written_file(best["command"])) if best else ("", "")
    proof, known = proof_command(document, written), runtime_of(document)
    deployed = f"deploy {tried or written}" if tried or written else ""
    if known is not None and known.simulates:
        as_what = GRADES.get(str((document.get("policy") or {}).get("declared") or "f32"), "FP32")
        told = f"{deployed or 'deploy it'}, record its outputs, test them as {as_what}: this was a prediction"
        yield make_row("Then", told, command=proof)
    elif best and not tried and (written or not best["command"].startswith("parityscope")):
        again = "record it again" if known is not None and known.recorded else "" if written else "do it"
        steps = ", ".join(one for one in (deployed, again) if one)
        label, told = (
            ("Next", "whether it is wrong again") if best["code"] in SYMPTOMS else ("Then", "whether it helped")
        )
        yield make_row(label, f"{steps}, and this tells {told}:", command=proof)
        if rest := _command_for_rest(document):
            yield make_row("Then", "look for the rest, which nothing that was tried explains:", command=rest)


def _command_for_rest(document: Mapping[str, Any]) -> str:
    """What diagnoses the next recording, where the first cause leaves more than the arithmetic explains; else ""."""
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    left = left_by_proof(document, causes[0]) if causes else None
    known = runtime_of(document)
    if left is None or left <= limit_of(document) or known is None or not known.recorded:
        return ""
    return diagnose_again_command(document)


def _one_line(written: Mapping[str, str]) -> str:
    """What an advice wrote, where that is one line: the setting that switches something off."""
    lines = [line for line in written.get("lines", "").splitlines() if not line.startswith("#")]
    return lines[0] if len(lines) == 1 else ""


def _rows_of_sureness(
    document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]], *, left_told: bool
) -> Iterator[_Row]:
    """How sure the first cause is, where neither its code nor what its repair left says all of it."""
    sure = _describe_sureness(causes[0], causes)
    if sure.startswith("possible"):
        told = "each explains all of the error on these samples; more samples, or a look at layers, tell them apart"
        yield make_row("Sure", f"{sure}; {told}")
    elif not left_told:
        told = describe_proof(document, causes[0])
        yield make_row("Sure", f"{sure}; {told}" if told else sure)


def _rows_of_widened(document: Mapping[str, Any]) -> Iterator[_Row]:
    """That nothing was computed in the half precision that is declared: what was within says nothing of it."""
    candidate = document.get("candidate") or {}
    declared = str((document.get("policy") or {}).get("declared") or "")
    known = runtime_of(document)
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
        if not _is_told_by(one, causes)
        and (
            (one.get("role") == "contributing" and _may_be(one))
            or (one.get("role") == "information" and str(one.get("code", "")).startswith("DAT"))
        )
    ]
    most = 1 if document.get("verdict") == "beyond" else _MOST_NOTES
    yield from (make_row("Note", cut_text(one, _SHORTER)) for one in notes[:most])


def _may_be(finding: Mapping[str, Any]) -> bool:
    """Whether a claim is rather right than wrong."""
    sure = as_number(finding.get("confidence"))
    return sure is None or sure > WEAK


def _is_told_by(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a proved cause says of the same layer, or of all of the error, what a finding describes once more."""
    proved = [one for one in causes if is_proved(one)]
    tensor = (finding.get("site") or {}).get("tensor")
    if tensor and any(tensor == (one.get("site") or {}).get("tensor") for one in proved):
        return True
    shares = [as_number((one.get("details") or {}).get("together")) or as_number(one.get("share")) for one in proved]
    return bool(tensor or finding.get("code") in _OF_ALL) and any(
        share is not None and share >= PROVED for share in shares
    )


def _rows_of_not_judged(document: Mapping[str, Any], skipped: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    """Outputs without a verdict, and what was asked for and not done, with the fix."""
    outputs = [one for one in document.get("outputs", ()) if one.get("verdict") == "incomplete"]
    for place, one in enumerate(outputs[:_MOST_NOTES], start=1):
        text = cut_text(f"output '{name_output(one)}': {clean(one.get('reason', ''))}", _SHORTER)
        others = len(outputs) - place if place == _MOST_NOTES else 0
        note = (
            f"and likewise at {format_count(others)} more of {format_count(len(document['outputs']))} outputs"
            if others
            else ""
        )
        yield make_row("Missing", text, note=note)
    for skip in [one for one in skipped if one["asked"]][:_MOST_NOTES]:
        note = f"fix: {skip['fix']}" if skip["fix"] else ""
        yield make_row("Missing", cut_text(f"{skip['what']}: {skip['reason']}", _SHORTER), note=note)


def _name_missed(skipped: Sequence[Mapping[str, Any]]) -> str:
    """What was not examined, in few words."""
    gaps = [each for each in skipped if each["reason"] not in _NO_GAP]
    names = [str(one) for each in gaps for one in (each["names"] or [each["what"]])]
    told = [cut_text(_INSIDE.get(name) or _EXPERIMENT.sub("whether ", name), _LINE) for name in names[:_MOST_NOTES]]
    return ", ".join([*told, *([f"{format_count(len(names) - len(told))} more"] if len(names) > len(told) else [])])


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
    if missed := _name_missed(model["skipped"]):
        told.append(f"not examined: {missed}")
    return f"{'; '.join(told)}." if told else ""
