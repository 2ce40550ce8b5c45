"""What a log says, as findings: causes first, each with the line it rests on, what it means and what to do."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.logs.comparing import layer_of
from parityscope.plain_numbers import list_first
from parityscope.records import ROLES, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.logs.comparing import LogPair
    from parityscope.logs.records import EngineLayer, Log, Noted, WeightIssue

_TYPE_NAMES = {"fp32": "Float", "fp16": "Half", "bf16": "BFloat16", "int8": "Int8"}
_NETWORK = "parityscope network model.onnx"
_MOST_WILD = 100  # names with a * that are looked for, each among all nodes (chosen)
_SHOWN = 8  # names in a claim (chosen); the details hold them all
_KINDS: Mapping[str, tuple[str, str, str, str]] = {
    "overflow": (
        "RNG201",
        "cause",
        "beyond {form}: they were set to its largest finite number",
        "the engine computes with other weights than the model; every layer after them inherits the error",
    ),
    "underflow": (
        "RNG202",
        "information",
        "smaller than {form}'s smallest number: they were set to it",
        "absolute changes of at most 6e-8 in FP16; harmful only where such weights are multiplied by large values",
    ),
    "subnormal": (
        "RNG203",
        "information",
        "subnormal in {form}: they keep fewer digits",
        "harmless with few exceptions: the numbers are below 6.1e-5 in FP16 and rarely decide anything",
    ),
}


def find_in_log(log: Log) -> tuple[Finding, ...]:
    """The findings of one log."""
    found = [
        *(_finding_of_weights(issue) for issue in log.weights),
        *_findings_of_refused(log),
        *_findings_of_not_honoured(log),
        *_findings_of_kernels(log),
        *(_finding_of_meaning(noted) for noted in log.noted if noted.meaning.code),
    ]
    found += _findings_of_failure(log, explained=any(finding.role == "cause" for finding in found))
    return tuple(sorted(found, key=lambda finding: ROLES.index(finding.role)))


def find_pair(pair: LogPair) -> tuple[Finding, ...]:
    """The findings of both logs, each with the log that it is from, those of both once; then what differs between them."""
    reference, candidate = find_in_log(pair.reference), find_in_log(pair.candidate)
    claims = ({(one.code, one.claim) for one in reference}, {(one.code, one.claim) for one in candidate})
    found = []
    for one in reference:
        both = (one.code, one.claim) in claims[1]
        found.append(replace(one, title=f"{one.title} ({'both logs' if both else pair.reference.path.name})"))
    found += [
        replace(one, title=f"{one.title} ({pair.candidate.path.name})")
        for one in candidate
        if (one.code, one.claim) not in claims[0]
    ]
    return tuple(sorted((*found, *find_between(pair)), key=lambda finding: ROLES.index(finding.role)))


def find_between(pair: LogPair) -> tuple[Finding, ...]:
    """What differs between two builds in a way that changes numbers."""
    found = []
    for difference in pair.differences:
        told = bool(difference.reference and difference.candidate)
        if difference.what == "TF32" and told and difference.reference[:3] != difference.candidate[:3]:
            claim = f"TF32 is {difference.reference} in one build and {difference.candidate} in the other"
            found.append(_make_finding("ACC202", "TF32 differs between the builds", "contributing", claim, {}))
        if (
            difference.what == "inputs in engine order"
            and told
            and _is_permuted(difference.reference, difference.candidate)
        ):
            claim = (
                f"the engines have their inputs in another order: {difference.reference}, and {difference.candidate}; a program "
                "that binds by position feeds one of them wrongly"
            )
            found.append(_make_finding("BND202", "inputs in another order", "contributing", claim, {}))
    retyped = [node for node in pair.nodes if node.retyped]
    if retyped:
        named = [f"{one.node} ({'/'.join(one.reference.types)} -> {'/'.join(one.candidate.types)})" for one in retyped]
        claim = f"{len(retyped)} of {len(pair.nodes)} nodes write another type in the second build: {list_first(named, _SHOWN)}"
        details = {"nodes": [each.node for each in retyped]}
        found.append(_make_finding("CST205", "other types in the engine", "information", claim, details))
    return tuple(found)


def _finding_of_weights(issue: WeightIssue) -> Finding:
    code, role, what, why = _KINDS[issue.kind]
    names = f" ({list_first(issue.names, _SHOWN)})" if issue.names else ""
    count = "1 weight has" if issue.count == 1 else f"{issue.count:,} weights have"
    claim = f"{count} elements {what.format(form=issue.format)}{names}; {why}"
    repairs: tuple[OfferedRepair, ...] = ()
    if issue.kind == "overflow":
        repairs = (
            OfferedRepair(
                repair="scale_into_range",
                text="fold or rescale these weights in the ONNX graph, or keep their nodes in FP32",
                command="parityscope repair model.onnx --candidate TARGET --inputs DATA -o fixed.onnx",
            ),
        )
    details = {"line": issue.line, "weights": list(issue.names), "format": issue.format}
    return _make_finding(code, f"weights: {issue.kind} in {issue.format}", role, claim, details, repairs)


def _findings_of_refused(log: Log) -> Iterator[Finding]:
    for node in log.refused:
        claim = f"the parser refused {node.node}{f' ({node.operator})' if node.operator else ''}: {node.reason}"
        yield _make_finding("EXP201", "node refused by the parser", "cause", claim, {"node": node.node})


def _findings_of_failure(log: Log, *, explained: bool) -> Iterator[Finding]:
    """A run that ended with FAILED, or a build with errors and no end; no cause beside another one or if the last run passed."""
    errors = log.severities.get("E", 0)
    if log.failed_runs:
        which = f"{log.failed_runs} of {log.runs} runs" if log.runs > 1 else "the run"
        what = f"{which} ended with FAILED"
    elif log.unfinished and errors and log.outcome != "passed":
        what = f"an engine build begins, has {errors} error{'s' * (errors > 1)} and does not end"
    else:
        return
    last = [line.text for line in log.unexplained if line.severity == "E"][:3]
    said = f"; errors that nothing is known about: {' | '.join(last)}" if last else ""
    meant = {"polygraphy": "a build failed, or outputs differ by more than was allowed"}.get(
        log.tool, "nothing was built or run"
    )
    role = "contributing" if explained or log.outcome == "passed" else "cause"
    claim = f"{what}: {meant}{said}"
    advice = OfferedRepair(repair="network", text="see which node is refused, and why, without a GPU", command=_NETWORK)
    details = {"errors": errors, "runs": log.runs, "failed": log.failed_runs}
    yield _make_finding("RUN202", "the run failed", role, claim, details, (advice,))


def _findings_of_not_honoured(log: Log) -> Iterator[Finding]:
    """Layers that were asked for a type with --layerPrecisions and whose fused layer writes others."""
    asked = next((flag.partition("=")[2] for flag in log.flags if flag.startswith("--layerPrecisions=")), "")
    layers = layer_of(log)
    missed: list[tuple[str, str, EngineLayer]] = []
    wild = 0
    for item in asked.split(",") if asked and layers else ():
        name, _, wanted = item.rpartition(":")
        dtype = _TYPE_NAMES.get(wanted.strip().lower(), "")
        wild += "*" in name
        meant = fnmatch.filter(layers, name) if "*" in name and wild <= _MOST_WILD else [name]
        for node in meant if dtype else ():
            layer = layers.get(node)
            if layer is not None and layer.types and dtype not in layer.types:
                missed.append((node, wanted, layer))
    if missed:
        told = [f"{node} (asked {wanted}, writes {'/'.join(layer.types)})" for node, wanted, layer in missed]
        claim = f"{len(missed)} nodes do not have the precision that was asked for in the engine: {list_first(told, _SHOWN)}"
        details = {"nodes": [node for node, _, _ in missed], "layers": sorted({layer.name for _, _, layer in missed})}
        yield _make_finding("CST204", "precision not honoured inside a fused layer", "contributing", claim, details)


def _findings_of_kernels(log: Log) -> Iterator[Finding]:
    """Layers whose kernel's own name says that it rounds to TF32, or that it sums in FP16."""
    rounding = [layer for layer in log.layers if "tf32" in layer.tactic.lower()]
    if rounding:
        claim = f"{len(rounding)} layers run kernels that round to TF32: {_names_of(rounding)}"
        details = {"layers": [layer.name for layer in rounding]}
        yield _make_finding("ACC203", "kernels in TF32", "contributing", claim, details)
    # NVIDIA's kernels name their types, the sum's last: f16f16_f16f32_f32 sums in FP32, f16f16_f16f16_f16 in FP16.
    summing = [layer for layer in log.layers if "f16f16_f16f16_f16" in layer.tactic.lower()]
    if summing:
        claim = f"{len(summing)} layers run kernels whose names say that they sum in FP16: {_names_of(summing)}"
        details = {"layers": [layer.name for layer in summing]}
        yield _make_finding("ACC204", "sums in FP16", "contributing", claim, details)


def _names_of(layers: list[EngineLayer]) -> str:
    return list_first((layer.name for layer in layers), _SHOWN)


def _finding_of_meaning(noted: Noted) -> Finding:
    meaning = noted.meaning
    names = f": {list_first(noted.facts, _SHOWN)}" if noted.facts else ""
    claim = f"{meaning.means}{names}; {meaning.why}"
    repairs = (OfferedRepair(repair=meaning.name, text=meaning.fix, command=meaning.command),) if meaning.fix else ()
    details = {"line": noted.line, "lines": noted.count, "names": list(noted.facts)}
    return _make_finding(meaning.code, meaning.name, meaning.role, claim, details, repairs)


def _make_finding(
    code: str,
    title: str,
    role: Any,
    claim: str,
    details: Mapping[str, Any],
    repairs: tuple[OfferedRepair, ...] = (),
) -> Finding:
    return Finding(
        code=code,
        title=title,
        role=role,
        claim=claim,
        confidence=1.0,
        confidence_from="the log says so; what it does to the outputs is for a comparison to measure",
        details=details,
        repairs=repairs,
    )


def _is_permuted(one: str, other: str) -> bool:
    return sorted(one.split(", ")) == sorted(other.split(", "))
