"""A recording of outputs that hold NaN or Inf, or one number everywhere: a simulated format of a small range tells why.

The simulation is believed where its NaN and Inf stand where the recording's stand, and where it gives the same number everywhere.
It is then examined in the recording's place, layer by layer, and what is found there is told of the recording, with how far the
two agree.
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

_FORMATS = ("f16", "bf16")  # in which deployments give NaN where FP32 gives numbers; the smaller range first
_STANDS = 0.9  # of the elements that are lost on either side: from there on the simulation is believed; chosen
_SAME = 1e-2  # relative: two numbers that outputs are everywhere, and that formats round otherwise; chosen
_ABOUT = ("RNG",)  # codes of what is found about ranges and NaN
_SAMPLES = 4
# What gives such outputs too, and is not the simpler answer: changes of the network, an output that was not written.
_OTHERS = frozenset({"FUS014", "BND003"})


def add_simulated(known: Examination) -> Diagnosis:
    """The diagnosis with what a simulation tells of NaN and Inf, in front; as it is where it needs or gets no telling."""
    diagnosis = known.diagnosis
    if (
        known.layers is not None
        or known.verdict != "beyond"
        or any(one.role == "cause" and one.code not in _OTHERS for one in diagnosis.findings)
    ):
        return diagnosis
    broken = any(pair.nonfinite_candidate for pair in known.outputs)
    if not broken and not _gives_one_number(known):
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
        told = tuple(
            _tell_finding(one, name, both, either, broken=broken) for one in found if one.code.startswith(_ABOUT)
        )
        if told:
            rest = (replace(one, role="contributing") if one.role == "cause" else one for one in diagnosis.findings)
            return replace(diagnosis, findings=(*told, *rest))
    if not broken or any(one.role == "cause" for one in diagnosis.findings):
        return diagnosis
    skip = Skip(
        what="where NaN and Inf begin",
        reason="no simulated format has them where the recording has"
        + (f" (elements that both have: {'; '.join(tried)})" if tried else ""),
        fix="record tensors of the inside (docs/recorder.md)",
    )
    return replace(diagnosis, skipped=(*diagnosis.skipped, skip))


def _gives_one_number(known: Examination) -> bool:
    """Whether an output that is wrong is one number everywhere, and the reference's is not."""
    wrong = {pair.site.tensor for pair in known.beyond}
    with open_bench(known) as bench:
        for index in bench.samples[:_SAMPLES]:
            reference, candidate = bench.reference(index), bench.candidate(index)
            if any(
                _is_one_number(candidate[name]) and not _is_one_number(reference[name]) for name in wrong & {*candidate}
            ):
                return True
    return False


def _is_one_number(array: np.ndarray) -> bool:
    return bool(
        array.dtype.kind == "f" and array.size > 1 and np.isfinite(array).all() and (array == array.flat[0]).all()
    )


def _lost_elements(array: np.ndarray) -> np.ndarray:
    """Of which elements nothing is left: what is NaN or Inf, and all where they are one number."""
    return np.full(array.shape, True) if _is_one_number(array) else ~np.isfinite(np.asarray(array, np.float64))


def _count_standing(known: Examination, target: Target) -> tuple[int, int]:
    """Elements of the outputs that are lost, and not in the reference: in the same way on both sides, and on either."""
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
                right = ~_lost_elements(reference[name])
                mine, its = (_lost_elements(one) & right for one in (simulated[name], array))
                alike = np.isclose(simulated[name], array, rtol=_SAME) | ~np.isfinite(array)
                both, either = both + int((mine & its & alike).sum()), either + int((mine | its).sum())
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


def _tell_finding(finding: Finding, name: str, both: int, either: int, *, broken: bool) -> Finding:
    """A finding about the simulation as one about the recording."""
    title = {"f16": "FP16", "bf16": "BF16"}[name]
    where = f"{both:,} of {either:,} elements" if both < either else f"all {both:,} elements"
    stand = (
        "whose NaN and Inf stand where the recording's do" if broken else "whose outputs are the same number everywhere"
    )
    return replace(
        finding,
        claim=f"{finding.claim} So it is in {title} simulated, {stand} ({where}).",
        confidence=finding.confidence * both / either,
        confidence_from=f"{finding.confidence_from}; times the part of what is lost that the simulation shares",
        details={**finding.details, "simulated": name, "lost_both": both, "lost_either": either},
    )
