"""Everything an examination found, as the plain strict-JSON document that reports are drawn from."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import backend
from parityscope.backends._environment import machine_facts
from parityscope.backends.opening import model_of
from parityscope.backends.targets import format_target
from parityscope.checks.generated_inputs import findings_about
from parityscope.comparison.ladder import ladder
from parityscope.records import SCHEMA
from parityscope.study._drawings import graph_views, plots
from parityscope.study._folder import strict
from parityscope.study._tables import distance, output_row, tensor_rows
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Case, Model
    from parityscope.explanation import Explanation
    from parityscope.localization.calls import Growth
    from parityscope.records import Diagnosis, Finding, Pair, Skip, Suspect, Target, Verdict
    from parityscope.study._found import Sequence
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun
    from parityscope.study._triangle import Triangle

__all__ = ["Parts", "document"]

_SUSPECTS = 20  # listed; the table of tensors holds them all
_NAMED_ON_A_RUNG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the stages of an examination gave."""

    case: Case
    reference: Target
    candidate: Target
    run: OutputRun
    outputs: tuple[Pair, ...]
    reasons: Mapping[str, str]
    tensors: Mapping[str, Pair]
    layers: Layers | None
    explanations: Mapping[str, Explanation]
    triangles: Mapping[str, Triangle]
    diagnosis: Diagnosis
    verdict: Verdict
    skipped: tuple[Skip, ...]
    growth: Growth | None
    sequence: Sequence | None
    question: Mapping[str, Any]
    timings: Mapping[str, float]
    created: str
    command: str


def document(parts: Parts) -> dict[str, Any]:
    """The document of one examination."""
    case, run = parts.case, parts.run
    suspects = parts.layers.localization.suspects if parts.layers else ()
    plain: dict[str, Any] = strict(
        {
            "schema": SCHEMA,
            "tool": {"name": "parityscope", "version": __version__},
            "created": parts.created,
            "command": parts.command,
            "verdict": parts.verdict,
            "headline": _headline(parts),
            "model": _model(case.model, case.name),
            "reference": _side(parts.reference, run.reference_environment, run.reference_seconds),
            "candidate": {
                **_side(parts.candidate, run.candidate_environment, run.candidate_seconds),
                "executed": run.executed.executed if run.executed else "",
                "declared": case.policy.declared,
                "spread": run.spread,
                "changing": run.changing,
                "disturbance": parts.layers.localization.disturbance if parts.layers else None,
                "executed_layers": [asdict(layer) for layer in run.executed.layers] if run.executed else [],
            },
            "environment": _environment(),
            "inputs": {
                "origin": case.inputs.origin,
                "samples": len(case.inputs),
                "generated": case.inputs.generated,
                "sha256": case.inputs.sha256,
                "names": list(case.inputs.names),
            },
            "policy": asdict(case.policy),
            "outputs": [
                {**output_row(pair, parts.reasons[pair.site.tensor]), "triangle": _triangle(parts, pair.site.tensor)}
                for pair in parts.outputs
            ],
            "tensors": tensor_rows(parts.tensors, suspects),
            "suspects": [_suspect(suspect, parts) for suspect in suspects[:_SUSPECTS]],
            "plots": plots(parts.run.statistics, parts.layers.statistics if parts.layers else {}, suspects),
            "graph_views": graph_views(case.model, suspects),
            "localization": _localization(parts),
            "ladder": [
                {**asdict(rung), "new": list(rung.new[:_NAMED_ON_A_RUNG]), "new_count": len(rung.new)}
                for rung in ladder([(name, distance(pair)) for name, pair in parts.tensors.items()])
            ]
            if parts.tensors
            else [],
            "findings": [_finding(finding) for finding in _findings(parts)],
            "refuted": [asdict(evidence) for evidence in parts.diagnosis.refuted],
            "calls": _calls(parts.growth),
            "sequence": None if parts.sequence is None else asdict(parts.sequence),
            "question": dict(parts.question),
            "skipped": [asdict(skip) for skip in parts.skipped],
            "unexplained": parts.diagnosis.unexplained,
            "timings": dict(parts.timings),
        }
    )
    return plain


def _findings(parts: Parts) -> tuple[Finding, ...]:
    """Those of the diagnosis, and what is known of the samples where nothing was diagnosed."""
    found = parts.diagnosis.findings
    told = {finding.code for finding in found}
    return (*found, *(one for one in findings_about(parts.case.inputs) if one.code not in told))


def _calls(growth: Growth | None) -> dict[str, Any] | None:
    """How the error grew over repeated calls; None where nothing was fed back."""
    if growth is None:
        return None
    steps = [asdict(step) for step in growth.steps]
    return {"states": dict(growth.states), "factor": growth.factor, "leaves": growth.leaves, "steps": steps}


def _finding(finding: Finding) -> dict[str, Any]:
    # asdict copies what it finds, and the read-only mapping that stands for "no details" cannot be copied.
    return asdict(replace(finding, details=dict(finding.details)))


_REAL = "DAT004"  # the check that ran both sides on real samples


def _headline(parts: Parts) -> str:
    return ("Both sides are the same target and model. " if _are_same(parts) else "") + _what_was_found(parts)


def _are_same(parts: Parts) -> bool:
    """Whether the candidate is the reference, so that their agreement says nothing about another."""
    sides = (parts.reference, parts.candidate)
    bare = {replace(side, options=tuple(one for one in side.options if one[0] != "model")) for side in sides}
    if len(bare) > 1:
        return False
    return len({model_of(parts.case.model, side).sha256 for side in sides}) == 1


def _what_was_found(parts: Parts) -> str:
    worst = max(parts.outputs, key=_size)
    size = _words(worst)
    causes = [one for one in parts.diagnosis.findings if one.role == "cause"]
    if parts.verdict == "within":
        return f"The candidate agrees with the reference as {parts.case.policy.declared} arithmetic allows: {size}."
    if parts.verdict == "incomplete":
        return f"Not everything that was asked for could be judged. What was: {size}."
    fair = next((one for one in causes if "real" in one.details and one.code == _REAL), None)
    if fair is not None:
        left = f"{100 * float(fair.details['real']):.3g} % (relative L2)"
        return (
            f"On the real samples the candidate is within what was declared: it differs by {left}. "
            f"The given data is not like them: there {size}."
        )
    several = parts.sequence is not None and len(parts.sequence.steps) > 1
    told = causes if several else causes[:1]
    said = f" Cause{'s' if several else ''}: {'; '.join(map(_short, told))}." if told else ""
    return f"The candidate is beyond what was declared: {size}.{said}"


def _short(cause: Finding) -> str:
    """The cause in half a sentence; the finding tells the rest."""
    where = f", at {cause.site.node}" if cause.site and cause.site.node else ""
    return cause.title[0].lower() + cause.title[1:] + where


def _size(pair: Pair) -> float:
    value = pair.value("rel_l2" if "rel_l2" in pair.measurements else "mismatch_share")
    return math.inf if math.isnan(value) else value


def _words(pair: Pair) -> str:
    if "rel_l2" not in pair.measurements:
        return f"{pair.value('mismatches'):.0f} elements of output {pair.site.tensor!r} differ"
    size = pair.value("rel_l2")
    if pair.nonfinite_candidate or pair.nonfinite_reference:
        return _words_of_nonfinite(pair)
    if math.isinf(size):
        return f"output {pair.site.tensor!r} is zero everywhere in the reference and not in the candidate"
    return f"output {pair.site.tensor!r} differs by {100 * size:.3g} % (relative L2)"


def _words_of_nonfinite(pair: Pair) -> str:
    """NaN and Inf are counted and never pooled with numbers: what they leave is measured by itself."""
    whole = pair.statistics.get("count", 0) if pair.statistics else 0
    of = f" of {whole:,}" if whole else ""
    told = [
        f"in {count:,}{of} elements of the {side} alone"
        for count, side in ((pair.nonfinite_candidate, "candidate"), (pair.nonfinite_reference, "reference"))
        if count
    ]
    said = f"output {pair.site.tensor!r} is NaN or Inf {' and '.join(told)}"
    rest = pair.value("rel_l2_finite")
    if math.isfinite(rest) and pair.nonfinite_candidate + pair.nonfinite_reference < whole:
        said += f"; the others differ by {100 * rest:.3g} % (relative L2)"
    return said


def _model(model: Model, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "path": str(model.path),
        "sha256": model.sha256,
        "nbytes": model.nbytes,
        "nodes": model.nodes,
        "opset": model.opsets.get("", model.opsets.get("ai.onnx")),
        "producer": model.producer,
        "inputs": [asdict(value) for value in model.inputs],
        "outputs": [asdict(value) for value in model.outputs],
    }


def _side(target: Target, environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    return {
        "target": format_target(target),
        "backend": target.backend,
        "precision": target.precision,
        "executed": "",
        "version": environment.get(backend(target.backend).package or target.backend, ""),
        "seconds": seconds,
        "environment": dict(environment),
    }


def _environment() -> dict[str, str]:
    return {
        "os": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        **machine_facts(),
    }


def _suspect(suspect: Suspect, parts: Parts) -> dict[str, Any]:
    """A suspect, what explains its error, and the findings about it (`share` of a finding is its confidence)."""
    explanation = parts.explanations.get(suspect.site.tensor)
    told: dict[str, Any] = {"explained_by": []}
    if explanation is not None:
        from parityscope.explanation import as_json

        told = as_json(explanation)
    causes = [
        {"hypothesis": f"{finding.code} {finding.title}", "share": finding.confidence}
        for finding in parts.diagnosis.findings
        if finding.site == suspect.site and finding.role != "information"
    ]
    return {**asdict(suspect), "explanation": told, "explained_by": [*told["explained_by"], *causes]}


def _triangle(parts: Parts, name: str) -> dict[str, Any] | None:
    found = parts.triangles.get(name)
    return None if found is None else {**asdict(found), "own": found.own}


def _localization(parts: Parts) -> dict[str, Any] | None:
    if parts.layers is None:
        return None
    found = parts.layers.localization
    return {
        "method": found.method,
        "observed": found.observed,
        "windows": found.windows,
        "samples": list(found.samples),
        "unexplained": found.unexplained,
        "stretches": [asdict(stretch) for stretch in found.stretches],
        "skipped": [asdict(skip) for skip in found.skipped],
    }
