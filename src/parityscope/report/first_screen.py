"""The first screen: is it usable, why not, where does that begin, what to do, and how sure is all this.

In: the study's document and parts of its view. Out: a title, labelled answers in the order of the questions, and what else
there is, as plain data that the terminal and the page lay out alike. Nothing is averaged over NaN: what is not finite is
counted. No effect is told that was not measured.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from parityscope.backends import known_backends
from parityscope.backends.targets import format_target, parse_target
from parityscope.errors import ParityError
from parityscope.records import Target
from parityscope.report._no_cause import is_told_from_outputs, next_command, next_measurement
from parityscope.report._ruled_out import describe_nearest, describe_ruled_out, list_ruled_out, say_what_is_left
from parityscope.report._screen_place import region_of, rows_of_place
from parityscope.report._screen_repairs import MOST_ADVICE, rows_of_proof, rows_of_repairs
from parityscope.report._tensors import GRADES
from parityscope.report._usability import are_decisions_others, describe_usability, name_output
from parityscope.report.offered import WEAK, repair_command
from parityscope.report.repair_effects import (
    PROVED,
    SYMPTOMS,
    describe_proof,
    is_proved,
    runtime_of,
)
from parityscope.report.screen_rows import (
    LINE,
    MOST_NOTES,
    SHORTER,
    cut_text,
    first_sentence,
    make_row,
    rows_of_missing,
)
from parityscope.report.words import (
    LONGEST_NAME,
    as_number,
    call_name,
    clean,
    format_count,
    format_percent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.backends import Backend
    from parityscope.report.screen_rows import Row

_ALL = 0.995  # of the error, which three digits call all of it
_MEASURES = frozenset({"record", "reduce"})  # repairs that measure: they have a row of their own
_BY_ROWS = " --budget top1_agreement=0.99"  # the best of so many rows stays; chosen, as `NOTICED`
_MOST_KINDS = 3  # of faults that were ruled out; chosen
_HALF = frozenset({"f16", "bf16"})
# What is not examined: in other words, and what nobody misses.
_INSIDE = {"localization": "values inside the network (none given)"}
_NO_GAP = {"another experiment explains all of the error already", "it cannot be applied to this node"}
_EXPERIMENT = re.compile(r"^(?:experiment )?[A-Z]{3}\d{3}-\S*: ")
_SEARCHED, _CHANGES = re.compile(r"^(?:generated )?hypothes[ei]s of .*", re.DOTALL), "some changes of the network"
_NO_CHANGE = "no cause is proved: no single change of the network that was tried gives these outputs"
_SAME = "Both sides are the same target and model."
# Codes that say nothing more once a proved cause makes all of the error: of its size, of other ways to run the model.
_OF_ALL = frozenset({"ACC001", "DAT009"})
# What says no more than of which rounding an error has the size, and from which confidence on it is told: half of the ratio of
# the two sizes, which lie within a factor of two, as in the margins of the grades.
_BY_SIZE, _LIKE_ROUNDING = "ACC001", 0.25


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


def _list_rows(document: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Row]:
    beyond = document.get("verdict") == "beyond"
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"] or _nearly_causes(document)
    if beyond:
        yield _row_of_cause(document, causes, model)
        if not causes:
            yield from _rows_of_answer(document)
        further = [one for one in causes[1:] if is_proved(one) or not is_proved(causes[0])]
        further += [
            one
            for one in document.get("findings", ())
            if one.get("role") == "contributing" and _is_needed(one) and one not in causes
        ]
        yield from (_row_of_further_cause(one, causes) for one in further[: MOST_ADVICE - 1])
        yield from _rows_of_other_causes(further[MOST_ADVICE - 1 :], [*causes[:1], *further[: MOST_ADVICE - 1]])
        answers = [one for one in document.get("findings", ()) if one.get("ruled_out")]
        yield from _rows_of_contradiction(causes or answers)
        yield from rows_of_place(document, causes)
        proved = any(map(is_proved, causes))
        offered = [one for one in model["repairs"] if one["cures"] or (one["likely"] and not proved)]
        if not causes and (list_ruled_out(document) or is_told_from_outputs(document)):
            told, command = next_measurement(document)
            yield make_row("Next", told, command=command)
            offered = [one for one in offered if one["repair"] not in _MEASURES]
        repairs = list(rows_of_repairs(offered, repair_command(document), document))
        proof = list(rows_of_proof(document, offered))
        # What a symptom is of is only known once it was looked at again.
        yield from [*proof, *repairs] if offered and offered[0]["code"] in SYMPTOMS else [*repairs, *proof]
        if causes:
            left_told = any(row["label"] == "Fix" and row["note"] for row in repairs)
            yield from _rows_of_sureness(document, causes, left_told=left_told)
    elif are_decisions_others(document):
        yield from _rows_of_decisions(document)
    else:
        yield from rows_of_proof(document, ())
    yield from _rows_of_widened(document)
    yield from _rows_of_notes(document, model)
    yield from _rows_of_not_judged(document, model["skipped"])


def _nearly_causes(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Where nothing is proved: the one that explains all of the error but for a rest that it does not, as a possibility.

    What lists what was ruled out says where the error is, and names no cause.
    """
    near = [
        one
        for one in document.get("findings", ())
        if one.get("role") == "contributing"
        and not one.get("ruled_out")
        and (as_number(one.get("share")) or 0.0) >= PROVED
        and (as_number(one.get("confidence")) or 0.0)
        >= WEAK * PROVED  # halved for the rest that it leaves, and of one place
    ]
    return near[:1]


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
    taken = f"; against {right.title}{f' {version}' if version else ''}" if right is not None else ""
    return f"{format_count(samples)} {kind}{'' if samples == 1 else 's'}{given}{taken}"


def _row_of_cause(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> Row:
    if not causes:
        told = _NO_CHANGE if region_of(document) else clean(model["no_cause"])
        told = first_sentence(told) if list_ruled_out(document) else told  # the rest has rows of its own
        return make_row("Why", cut_text(told), command=next_command(document))
    return make_row("Why", f"{cut_text(_say_cause(causes[0]))} {_describe_standing(causes[0], causes)}")


def _rows_of_decisions(document: Mapping[str, Any]) -> Iterator[Row]:
    """What to do where honest arithmetic decides otherwise: FP32 where it decides, or the task's own metric."""
    kept = repair_command(document)
    if kept:
        told = "keep in FP32 what decides, so that they stay:"
        yield make_row("Then", told, command=kept + (_BY_ROWS if _has_rows(document) else ""))
    told = "judge it on labelled samples by your task's own metric, before it is deployed (docs/verify.md)"
    yield make_row("or" if kept else "Then", told)


def _has_rows(document: Mapping[str, Any]) -> bool:
    """Whether what is decided is the best of each row."""
    kinds = {(one.get("decisions") or {}).get("kind") for one in document.get("outputs", ())}
    return bool(kinds & {"classes", "positions"})


def _rows_of_contradiction(shown: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """The evidence that speaks against what is said first: both are told, and no average of them."""
    against = [clean(one["contradicted"]) for one in shown if one.get("contradicted")]
    if against:
        yield make_row("But", cut_text(f"evidence contradicts this: {against[0]}"))


def _rows_of_answer(document: Mapping[str, Any]) -> Iterator[Row]:
    """What is known where no cause is proved: of what size the error is, what was ruled out, and what comes nearest."""
    for one in document.get("findings", ()):
        grade = clean((one.get("details") or {}).get("grade") or "")
        if one.get("code") == _BY_SIZE and (as_number(one.get("confidence")) or 0.0) >= _LIKE_ROUNDING:
            told = f"{cut_text(first_sentence(one.get('claim') or ''))} [{_BY_SIZE}]"
            yield make_row("Perhaps", told, command=f"--declared {grade}" if grade in GRADES else "")
    kinds = list_ruled_out(document)
    if left := say_what_is_left(document):
        yield make_row("Tried", left)
    if ruled := describe_ruled_out(kinds, _MOST_KINDS):
        yield make_row("Ruled out", cut_text(ruled))
    if near := describe_nearest(document):
        yield make_row("Nearest", cut_text(f"a description, no cause: {near}", SHORTER))


def _row_of_further_cause(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> Row:
    return make_row(
        "or" if _is_instead(finding, causes[0]) else "and",
        f"{cut_text(_say_cause(finding), SHORTER)} {_describe_standing(finding, causes)}",
    )


def _rows_of_other_causes(others: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """What is left of the causes, in a row: the code and the place of each that has no row of its own."""
    places = {_place_of(one): one for one in reversed(others)}
    left = [place for place in reversed(places) if place not in {_place_of(one) for one in told}]
    if left:
        named = "; ".join(f"{code} at {call_name(node)}" if node else code for code, node in left)
        yield make_row("and", cut_text(f"{format_count(len(left))} more: {named}", SHORTER))


def _place_of(finding: Mapping[str, Any]) -> tuple[str, str]:
    """The code of a finding, and what it is about."""
    site = finding.get("site") or {}
    return clean(finding.get("code", "")), clean(site.get("node") or site.get("tensor") or "")


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


def _is_needed(finding: Mapping[str, Any]) -> bool:
    """Whether what makes little of the error was proved together with what makes the rest of it, and not without."""
    return "together" in (finding.get("details") or {}) and is_proved(finding)


def _describe_sureness(finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """How sure a cause is: proved, one of so many that explain the same, likely by so much, or only measured."""
    if finding.get("code") in SYMPTOMS:
        return "measured"
    if finding.get("contradicted"):
        return "contradicted"
    alike = sum(_is_instead(one, causes[0]) for one in causes) if _is_instead(finding, causes[0]) else 1
    if alike > 1:
        return f"possible: 1 of {alike}"
    return "proved" if is_proved(finding) else f"likely: {format_percent(as_number(finding.get('confidence')) or 0.0)}"


def _rows_of_sureness(
    document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]], *, left_told: bool
) -> Iterator[Row]:
    """How sure the first cause is, where neither its code nor what its repair left says all of it."""
    sure = _describe_sureness(causes[0], causes)
    if sure == "contradicted":  # a row of its own says by what
        return
    if sure.startswith("possible"):
        record = [call_name(one) for one in (causes[0].get("details") or {}).get("record") or ()]
        looked = f"a recording of {', '.join(record)}" if record else "a look at layers"
        told = f"each explains all of the error on these samples; more samples, or {looked}, tell them apart"
        yield make_row("Sure", f"{sure}; {told}")
    elif not left_told:
        told = describe_proof(document, causes[0])
        yield make_row("Sure", f"{sure}; {told}" if told else sure)


def _rows_of_widened(document: Mapping[str, Any]) -> Iterator[Row]:
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
    if known.widens_halves(target) or candidate.get("executed") == "f32":
        options = tuple(one for one in target.options if one[0] == "model")
        faithful = shlex.quote(format_target(Target(backend="sim", precision=target.precision, options=options)))
        said = (
            f"computed in FP32: {known.title} has no {GRADES[declared]} arithmetic on a CPU; --candidate {faithful} has"
            if known.widens_halves(target)
            else f"computed in FP32: {known.title} did not compute in {GRADES[declared]} here; --candidate {faithful} does"
        )
        yield make_row("Note", said)


def _rows_of_notes(document: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Row]:
    """What weakens the answer: answers that vary, data that is no data, what contributes."""
    findings = document.get("findings", ())
    causes = [one for one in findings if one.get("role") == "cause"]
    notes = [_SAME] if str(document.get("headline", "")).startswith(_SAME) else []
    sides = (document.get("reference") or {}, document.get("candidate") or {})
    notes += dict.fromkeys(clean(note) for side in sides if (note := (side.get("environment") or {}).get("note")))
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
    most = 1 if document.get("verdict") == "beyond" else MOST_NOTES
    yield from (make_row("Note", cut_text(one, SHORTER)) for one in notes[:most])


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


def _rows_of_not_judged(document: Mapping[str, Any], skipped: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Outputs without a verdict, and what was asked for and not done, with the fix."""
    outputs = [one for one in document.get("outputs", ()) if one.get("verdict") == "incomplete"]
    for place, one in enumerate(outputs[:MOST_NOTES], start=1):
        text = cut_text(f"output '{name_output(one)}': {clean(one.get('reason', ''))}", SHORTER)
        others = len(outputs) - place if place == MOST_NOTES else 0
        note = (
            f"and likewise at {format_count(others)} more of {format_count(len(document['outputs']))} outputs"
            if others
            else ""
        )
        yield make_row("Missing", text, note=note)
    yield from rows_of_missing(skipped)


def _name_missed(skipped: Sequence[Mapping[str, Any]]) -> str:
    """What was not examined, in few words."""
    gaps = [each for each in skipped if each["reason"] not in _NO_GAP]
    names = [str(one) for each in gaps for one in (each["names"] or [each["what"]])]
    words = [_INSIDE.get(name) or _EXPERIMENT.sub("whether ", _SEARCHED.sub(_CHANGES, name)) for name in names]
    words = [word for place, word in enumerate(words) if word != _CHANGES or place == words.index(word)]
    told = [cut_text(word, LINE) for word in words[:MOST_NOTES]]
    return ", ".join([*told, *([f"{format_count(len(words) - len(told))} more"] if len(words) > len(told) else [])])


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
