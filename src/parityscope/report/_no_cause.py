"""What stands where causes would: the region that holds the error, what was ruled out, what comes nearest, what is next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._ruled_out import describe_nearest, list_ruled_out, say_ruled_out
from parityscope.report.offered import diagnose_again_command, diagnose_switched_command
from parityscope.report.repair_effects import runtime_of
from parityscope.report.words import as_number, clean, format_count, format_percent, without_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FROM_OUTPUTS = "FUS014"  # says all of it itself (checks/outputs_alone.py)
_LISTED = 3  # claims that were ruled out, in words; chosen
_SAME_ARGUMENTS, _OF_COMPARE = {"compare", "localize"}, ("--ladder", "--all-tensors")
_SEEN = {"outputs": "outputs alone", "tensors": "tensors", "layers": "layers"}


def say_no_cause(document: Mapping[str, Any]) -> str:
    """Sentences of a study without a cause; "" where it has one. What a study lacks is left out."""
    findings = document.get("findings", ())
    if any(finding.get("role") == "cause" for finding in findings):
        return ""
    verdict = document.get("verdict")
    if verdict == "within":
        return "The outputs agree, so no cause was looked for."
    if verdict != "beyond":
        return "No cause was established. What could not be judged, and why, is listed under “What was not examined”."
    depth = _depth_of(document)
    if depth in _SEEN:
        return (
            f"No cause was looked for: this command compares {_SEEN[depth]} and makes no experiments; "
            "parityscope diagnose does, with the same arguments."
        )
    answers = [found.get("claim", "") for found in findings if found.get("code") == FROM_OUTPUTS]
    if answers:
        return " ".join([clean(str(answers[0])), *say_ruled_out(list_ruled_out(document))])
    return " ".join(_say_what_is_known(document))


def is_told_from_outputs(document: Mapping[str, Any]) -> bool:
    """Whether what is said where no cause is proved is what the search from outputs found."""
    return any(found.get("code") == FROM_OUTPUTS for found in document.get("findings", ()))


def next_command(document: Mapping[str, Any]) -> str:
    """`diagnose` with what a command that makes no experiments was asked with; "" where experiments were made."""
    if _depth_of(document) not in _SEEN:
        return ""
    program, _, rest = str(document.get("command") or "").partition(" ")
    verb, _, arguments = rest.partition(" ")
    if program != "parityscope" or verb not in _SAME_ARGUMENTS:
        return "parityscope diagnose"
    for switch in _OF_COMPARE:
        arguments = arguments.replace(f" {switch}", "")
    return clean(without_destinations(f"parityscope diagnose {arguments}".strip()))


def _depth_of(document: Mapping[str, Any]) -> str:
    return str(((document.get("question") or {}).get("asked") or {}).get("depth", "causes"))


def _say_what_is_known(document: Mapping[str, Any]) -> Iterator[str]:
    suspects: Sequence[Mapping[str, Any]] = document.get("suspects", ())
    yield f"No cause is proved; {_describe_region(document, suspects)}."
    kinds, refuted = list_ruled_out(document), document.get("refuted", ())
    yield from say_ruled_out(kinds)
    yield from _say_refuted(refuted)
    if not kinds and not refuted:
        yield "No experiment has ruled anything out."
    if near := describe_nearest(document):
        yield f"The nearest description, which is no cause: {near}."
    yield f"Next: {next_measurement(document)[0]}."


def _describe_region(document: Mapping[str, Any], suspects: Sequence[Mapping[str, Any]]) -> str:
    """The smallest region that holds the error."""
    if not suspects:
        nodes = as_number((document.get("model") or {}).get("nodes"))
        held = f" of {format_count(nodes)} nodes" if nodes else " node"
        return f"nothing inside the network was seen, so that any{held} can hold the error"
    first = suspects[0]
    region = [clean(name) for name in first.get("region", ())]
    told = _name_of(first)
    if len(region) > 1:
        told = f"one of {len(region)} nodes, from {region[0]} to {region[-1]}"
    elif region and region[0] != (first.get("site") or {}).get("node"):
        told = region[0]
    share = as_number(first.get("share"))
    part = f", which makes {format_percent(share)} of the output error" if share is not None and share > 0 else ""
    return f"the smallest region that holds the error is {told}{part}"


def _name_of(suspect: Mapping[str, Any]) -> str:
    site = suspect.get("site") or {}
    kind = clean(site.get("op_type") or "")
    return f"{clean(site.get('node') or site.get('tensor') or '')}{f' ({kind})' if kind else ''}"


def _say_refuted(refuted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The claims that were tested and do not hold, each with what would have shown it."""
    if not refuted:
        return
    told = []
    for one in refuted[:_LISTED]:
        experiment = one.get("experiment") or {}
        shown = clean(experiment.get("if_true") or "")
        told.append(f"{clean(experiment.get('claim') or '')}{f' (would have shown: {shown})' if shown else ''}")
    more = len(refuted) - len(told)
    also = f"; and {format_count(more)} more" if more else ""
    yield f"Ruled out by experiment: {'; '.join(told)}{also}."


def next_measurement(document: Mapping[str, Any]) -> tuple[str, str]:
    """The measurement that parts most of what is left, and the command for it; "" where none can be known."""
    known = runtime_of(document)
    again = diagnose_again_command(document) if known is not None and known.recorded else ""
    if record := tensors_to_record(document):
        named = ", ".join(repr(name) for name in record)
        return f"record {named} as well (docs/recorder.md): whether it is right halves the region", again
    suspects = document.get("suspects", ())
    if not suspects:
        return "record tensors inside the network as well, so that the layer can be found (docs/recorder.md)", again
    region = [clean(name) for name in suspects[0].get("region", ())]
    if len(region) > 1 and "halving" not in suspects[0]:
        return f"record what {region[(len(region) - 1) // 2]} gives: whether it is right halves the region", again
    spent = [one for one in document.get("skipped", ()) if "time budget" in str(one.get("reason", ""))]
    if spent:
        return f"give experiments more time (--time): {format_count(len(spent))} were left out or cut off", ""
    if switched := diagnose_switched_command(document):
        return (
            "run it with a setting changed: whether the layer is right then tells an optimizer from a kernel",
            switched,
        )
    return (
        "reduce it to this layer with its input, which is what the runtime's authors need",
        "parityscope reduce STUDY",
    )


def tensors_to_record(document: Mapping[str, Any]) -> list[str]:
    """Those that a finding without a cause names: the one that decides most first."""
    if halving := [clean(one["halving"]) for one in document.get("suspects", ())[:1] if one.get("halving")]:
        return halving
    told = [one.get("details") or {} for one in document.get("findings", ()) if one.get("ruled_out")]
    return [clean(name) for details in told[:1] for name in details.get("record") or ()]
