"""Everything an examination found, as the plain strict-JSON document that reports are drawn from."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import backend_named
from parityscope.backends.machine import machine_facts
from parityscope.backends.opening import model_of
from parityscope.backends.targets import format_target, without_option
from parityscope.comparison.ladder import tolerance_ladder
from parityscope.records import SCHEMA, Skip
from parityscope.study._document_rows import (
    decisions_row,
    distance_of,
    graph_views,
    graph_wiring,
    output_row,
    plots_of,
    tensor_rows,
)
from parityscope.study._folder import to_strict_data
from parityscope.study._sample_columns import errors_of_samples
from parityscope.study._verdicts import reason_for
from parityscope.study.changed_decisions import is_told
from parityscope.study.sampling import findings_of_sampling
from parityscope.study.worst import findings_of_worst
from parityscope.times import format_time
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Model
    from parityscope.examination import Examination
    from parityscope.localization.calls import Growth
    from parityscope.records import Diagnosis, Finding, Pair, Suspect, Target

_SUSPECTS = 20  # listed; the table of tensors holds them all
_NAMED_ON_A_RUNG = 5


def document_of(known: Examination) -> dict[str, Any]:
    """The document of one examination: everything that is known of it, and what was not done."""
    known = _conclude_examination(known)
    case, run = known.case, known.compared
    errors = errors_of_samples(known)
    suspects = known.layers.localization.suspects if known.layers else ()
    plain: dict[str, Any] = to_strict_data(
        {
            "schema": SCHEMA,
            "tool": {"name": "parityscope", "version": __version__},
            "created": format_time(),
            "command": known.command,
            "verdict": known.verdict,
            "headline": _headline_of(known),
            "model": {**_plain_model(case.model, case.name), "path": str(known.request.model)},
            "reference": _plain_side(known.reference, run.reference_environment, run.reference_seconds),
            "candidate": {
                **_plain_side(known.candidate, run.candidate_environment, run.candidate_seconds),
                "executed": run.executed.executed if run.executed else "",
                "nbytes": model_of(case.model, known.candidate).nbytes,
                "declared": case.policy.declared,
                "spread": run.spread,
                "changing": run.changing,
                "disturbance": known.layers.localization.disturbance if known.layers else None,
                "executed_layers": [asdict(layer) for layer in run.executed.layers] if run.executed else [],
            },
            "environment": _plain_environment(),
            "inputs": {
                "origin": case.inputs.origin,
                "samples": len(case.inputs),
                "generated": case.inputs.generated,
                "sha256": case.inputs.sha256,
                "names": list(case.inputs.names),
            },
            "policy": asdict(case.policy),
            "outputs": [
                {
                    **output_row(pair, reason_for(pair, case.policy)),
                    **errors[pair.site.tensor],
                    "decisions": decisions_row(run.decisions.get(pair.site.tensor), pair),
                    "triangle": _plain_triangle(known, pair.site.tensor),
                }
                for pair in known.outputs
            ],
            "tensors": tensor_rows(known.tensors, suspects),
            "suspects": [_plain_suspect(suspect, known) for suspect in suspects[:_SUSPECTS]],
            "plots": plots_of(run.statistics, known.layers.statistics if known.layers else {}, suspects),
            "graph_views": graph_views(case.model, suspects),
            "wiring": graph_wiring(case.model) if known.tensors else {},
            "localization": _plain_localization(known),
            "ladder": [
                {**asdict(rung), "new": list(rung.new[:_NAMED_ON_A_RUNG]), "new_count": len(rung.new)}
                for rung in tolerance_ladder([(name, distance_of(pair)) for name, pair in known.tensors.items()])
            ]
            if known.tensors
            else [],
            "findings": [_plain_finding(finding) for finding in _all_findings(known)],
            "refuted": [asdict(evidence) for evidence in known.diagnosis.refuted],
            "calls": _plain_calls(known.growth),
            "sequence": None if known.sequence is None else asdict(known.sequence),
            "question": dict(known.question),
            "skipped": [asdict(skip) for skip in known.skipped],
            "unexplained": known.diagnosis.unexplained,
            "timings": dict(known.timings),
        }
    )
    return plain


def _conclude_examination(known: Examination) -> Examination:
    """With the last word on the verdict, and everything that was not run, paired or judged, each once."""
    unjudged = (*known.unjudged, *_skip_shared_bug(known.diagnosis))
    within = known.verdict == "within" and any(skip.asked for skip in unjudged)
    skipped = (*unjudged, *known.skipped, *known.diagnosis.skipped, *known.case.inputs.not_judged)
    return replace(
        known,
        verdict="incomplete" if within else known.verdict,
        skipped=tuple({(skip.what, skip.reason): skip for skip in skipped}.values()),
    )


def _skip_shared_bug(diagnosis: Diagnosis) -> list[Skip]:
    """What the verdict does not say, because the reference that the candidate agrees with is wrong."""
    return [
        Skip(
            what="whether the candidate is right",
            reason="the reference is not, and shares a bug of its optimizer with the candidate",
            fix=finding.repairs[0].command,
            asked=True,
        )
        for finding in diagnosis.findings
        if finding.details.get("shared")
    ][:1]


def _all_findings(known: Examination) -> tuple[Finding, ...]:
    """Those of the diagnosis, and what is known of the samples where nothing was diagnosed."""
    found = known.diagnosis.findings
    about = (*findings_of_sampling(known), *findings_of_worst(known))
    if known.case.inputs.generated:
        from parityscope.checks.generated_inputs import findings_about  # and with it every record of a check

        about = (*findings_about(known.case.inputs), *about)
    told = {finding.code for finding in found}
    return (*found, *(one for one in about if one.code not in told))


def _plain_calls(growth: Growth | None) -> dict[str, Any] | None:
    """How the error grew over repeated calls; None where nothing was fed back."""
    if growth is None:
        return None
    steps = [asdict(step) for step in growth.steps]
    parting = growth.parting and {**asdict(growth.parting), "tie": growth.parting.is_tie}
    return {
        "states": dict(growth.states),
        "factor": growth.factor,
        "leaves": growth.leaves,
        "parting": parting,
        "steps": steps,
    }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    # asdict copies what it finds, and the read-only mapping that stands for "no details" cannot be copied.
    return asdict(replace(finding, details=dict(finding.details)))


_REAL = "DAT004"  # the check that ran both sides on real samples


def _headline_of(known: Examination) -> str:
    return ("Both sides are the same target and model. " if _are_same(known) else "") + _what_was_found(known)


def _are_same(known: Examination) -> bool:
    """Whether the candidate is the reference, so that their agreement says nothing about another."""
    sides = (known.reference, known.candidate)
    if len({without_option(side, "model") for side in sides}) > 1:
        return False
    return len({model_of(known.case.model, side).sha256 for side in sides}) == 1


def _what_was_found(known: Examination) -> str:
    worst = max(known.outputs, key=_error_size)
    size = _words_of(worst)
    causes = [one for one in known.diagnosis.findings if one.role == "cause"]
    decided = _words_of_decisions(known)
    if known.verdict == "within" and decided:
        return f"The candidate is within what {known.case.policy.declared} arithmetic allows, but {decided}; {size}."
    if known.verdict == "within":
        return f"The candidate agrees with the reference as {known.case.policy.declared} arithmetic allows: {size}."
    if known.verdict == "incomplete":
        return f"Not everything that was asked for could be judged. What was: {size}."
    fair = next((one for one in causes if "real" in one.details and one.code == _REAL), None)
    if fair is not None:
        left = f"{100 * float(fair.details['real']):.3g} % (relative L2)"
        return (
            f"On the real samples the candidate is within what was declared: it differs by {left}. "
            f"The given data is not like them: there {size}."
        )
    if decided and any(pair.usual_changes and pair.verdict == "beyond" for pair in known.outputs):
        size = f"{decided}; {size}"
    several = known.sequence is not None and len(known.sequence.steps) > 1
    told = causes if several else causes[:1]
    said = f" Cause{'s' if several else ''}: {'; '.join(map(_short_cause, told))}." if told else ""
    return f"The candidate is beyond what was declared: {size}.{said}"


def _words_of_decisions(known: Examination) -> str:
    """Of the output of whose decisions the largest share changed, how many, and how many arithmetic alone changes."""
    decisions = known.compared.decisions
    told = [
        (pair, held)
        for pair in known.outputs
        if (held := decisions.get(pair.site.tensor)) is not None and is_told(held)
    ]
    if not told:
        return ""
    pair, held = max(told, key=lambda one: one[1].others / max(one[1].count, 1))
    told_of = f"{held.others:,} of {held.count:,} decisions of output {pair.site.tensor!r} are others ({held.kind})"
    if pair.usual_changes is None:
        return told_of
    changed, count = pair.usual_changes
    return f"{told_of}, and {known.case.policy.declared} itself changes {changed:,.0f} of {count:,}"


def _short_cause(cause: Finding) -> str:
    """The cause in half a sentence; the finding tells the rest."""
    where = f", at {cause.site.node}" if cause.site and cause.site.node else ""
    return cause.title[0].lower() + cause.title[1:] + where


def _error_size(pair: Pair) -> float:
    value = pair.value("rel_l2" if "rel_l2" in pair.measurements else "mismatch_share")
    return math.inf if math.isnan(value) else value


def _words_of(pair: Pair) -> str:
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


def _plain_model(model: Model, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "path": str(model.named),
        "sha256": model.sha256,
        "nbytes": model.nbytes,
        "nodes": model.nodes,
        "opset": model.opsets.get("", model.opsets.get("ai.onnx")),
        "producer": model.producer,
        "inputs": [asdict(value) for value in model.inputs],
        "outputs": [asdict(value) for value in model.outputs],
    }


def _plain_side(target: Target, environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    return {
        "target": format_target(target),
        "backend": target.backend,
        "precision": target.precision,
        "executed": "",
        "version": environment.get(backend_named(target.backend).package or target.backend, ""),
        "seconds": seconds,
        "environment": dict(environment),
    }


def _plain_environment() -> dict[str, str]:
    return {
        "os": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        **machine_facts(),
    }


def _plain_suspect(suspect: Suspect, known: Examination) -> dict[str, Any]:
    """A suspect, what explains its error, and the findings about it (`share` of a finding is its confidence)."""
    explanation = known.explanations.get(suspect.site.tensor)
    told: dict[str, Any] = {"explained_by": []}
    if explanation is not None:
        from parityscope.explanation import explanation_as_json

        told = explanation_as_json(explanation)
    causes = [
        {"hypothesis": f"{finding.code} {finding.title}", "share": finding.confidence}
        for finding in known.diagnosis.findings
        if finding.site == suspect.site and finding.role != "information"
    ]
    return {**asdict(suspect), "explanation": told, "explained_by": [*told["explained_by"], *causes]}


def _plain_triangle(known: Examination, name: str) -> dict[str, Any] | None:
    found = known.triangles.get(name)
    return None if found is None else {**asdict(found), "own": found.own}


def _plain_localization(known: Examination) -> dict[str, Any] | None:
    if known.layers is None:
        return None
    found = known.layers.localization
    return {
        "method": found.method,
        "observed": found.observed,
        "windows": found.windows,
        "samples": list(found.samples),
        "unexplained": found.unexplained,
        "stretches": [asdict(stretch) for stretch in found.stretches],
        "skipped": [asdict(skip) for skip in found.skipped],
    }
