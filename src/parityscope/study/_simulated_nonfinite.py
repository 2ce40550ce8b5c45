"""A recording of outputs alone that holds NaN or Inf: the model simulated in a format of a small range tells where they begin.

The simulation is believed where its NaN and Inf stand where the recording's stand. It is then examined in the recording's place,
layer by layer, and what is found there is told of the recording, with how far the two agree.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.diagnosis import run_experiments
from parityscope.errors import ParityError
from parityscope.records import Diagnosis, Skip, Target
from parityscope.study._grading import grade_tensors, judge_outputs, verdict_of, worst_samples
from parityscope.study._lab import open_lab
from parityscope.study.bench import open_bench
from parityscope.study.outputs import run_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.examination import Examination
    from parityscope.records import Finding

__all__ = ["add_simulated"]

_FORMATS = ("f16", "bf16")  # in which deployments give NaN where FP32 gives numbers; the smaller range first
_STANDS = 0.9  # of the elements that are NaN or Inf on either side: from there on the simulation is believed; chosen
_ABOUT = ("RNG",)  # codes of what is found about ranges and NaN
_SAMPLES = 4
_BY_OUTPUTS = (
    "FUS014"  # one change or two that give the outputs: a whole format gives them too, and is the simpler answer
)


def add_simulated(known: Examination) -> Diagnosis:
    """The diagnosis with what a simulation tells of NaN and Inf, in front; as it is where it needs or gets no telling."""
    diagnosis = known.diagnosis
    if (
        known.layers is not None
        or known.verdict != "beyond"
        or any(one.role == "cause" and one.code != _BY_OUTPUTS for one in diagnosis.findings)
    ):
        return diagnosis
    if not any(pair.nonfinite_candidate for pair in known.outputs):
        return diagnosis
    tried: list[str] = []
    for name in dict.fromkeys((known.case.policy.declared, *_FORMATS)):
        if name not in _FORMATS:
            continue
        target = Target(backend="sim", precision=name)
        try:
            both, either = _count_standing(known, target)
            tried.append(f"{name}: {both:,} of {either:,}")
            if both < _STANDS * either:
                continue
            found = _examine_simulation(known, target)
        except ParityError as error:
            skip = Skip(what=f"NaN and Inf in a simulation of {name}", reason=error.problem, fix=error.fix)
            return replace(diagnosis, skipped=(*diagnosis.skipped, skip))
        told = tuple(_tell_finding(one, name, both, either) for one in found if one.code.startswith(_ABOUT))
        if told:
            rest = (replace(one, role="contributing") if one.role == "cause" else one for one in diagnosis.findings)
            return replace(diagnosis, findings=(*told, *rest))
    if any(one.role == "cause" for one in diagnosis.findings):
        return diagnosis
    skip = Skip(
        what="where NaN and Inf begin",
        reason="no simulated format has them where the recording has"
        + (f" (elements that both have: {'; '.join(tried)})" if tried else ""),
        fix="record tensors of the inside (docs/recorder.md)",
    )
    return replace(diagnosis, skipped=(*diagnosis.skipped, skip))


def _count_standing(known: Examination, target: Target) -> tuple[int, int]:
    """Elements of the outputs that are NaN or Inf, and not in the reference: on both sides, and on either."""
    case, both, either = known.case, 0, 0
    with (
        open_bench(known) as bench,
        open_target(case.model, target, Capture()) as session,
    ):
        for index in bench.samples[:_SAMPLES]:
            reference, candidate = bench.reference(index), bench.candidate(index)
            simulated = session.run(case.inputs.sample(index))
            for name, array in candidate.items():
                if array.dtype.kind != "f" or name not in simulated or simulated[name].shape != array.shape:
                    continue
                right = np.isfinite(np.asarray(reference[name], np.float64))
                mine, its = (~np.isfinite(np.asarray(one, np.float64)) & right for one in (simulated[name], array))
                both, either = both + int((mine & its).sum()), either + int((mine | its).sum())
    return both, either


def _examine_simulation(known: Examination, target: Target) -> Sequence[Finding]:
    """What the checks find where the simulation stands in the place of the recording."""
    from parityscope.study.layers import observe_layers

    if known.expectation is None:
        return ()
    case = known.case
    names = {name: name for name in (*case.model.sites, *(value.name for value in case.model.outputs))}
    known = replace(
        known,
        candidate=target,
        names=names,
        how={},
        answers=None,
        explanations={},
        executed=target.precision,
        computes=target.precision,
    )
    known = replace(known, run=run_outputs(known))
    known = replace(known, outputs=judge_outputs(known))
    known = replace(known, verdict=verdict_of(known))
    layers = observe_layers(known, worst_samples(known), folder=known.folder / "simulated", inject=True)
    if layers is None:
        return ()
    known = replace(known, layers=layers)
    known = replace(known, tensors=grade_tensors(known))
    with open_bench(known) as bench:
        return run_experiments(replace(known, bench=bench, lab=open_lab(known), end=math.inf)).diagnosis.findings


def _tell_finding(finding: Finding, name: str, both: int, either: int) -> Finding:
    """A finding about the simulation as one about the recording."""
    title = {"f16": "FP16", "bf16": "BF16"}[name]
    where = f"{both:,} of {either:,} elements" if both < either else f"all {both:,} elements"
    return replace(
        finding,
        claim=f"{finding.claim} So it is in {title} simulated, whose NaN and Inf stand where the recording's do ({where}).",
        confidence=finding.confidence * both / either,
        confidence_from=f"{finding.confidence_from}; times the part of the NaN and Inf that the simulation shares",
        details={**finding.details, "simulated": name, "nonfinite_both": both, "nonfinite_either": either},
    )
