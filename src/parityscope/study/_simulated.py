"""A recording of outputs alone that holds NaN or Inf: the model simulated in a format of a small range tells where they begin.

The simulation is believed where its NaN and Inf stand where the recording's stand. It is then examined in the recording's place,
layer by layer, and what is found there is told of the recording, with how far the two agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.diagnosis import examine_scene
from parityscope.errors import ParityError
from parityscope.records import Diagnosis, Skip, Target
from parityscope.study._bench import open_bench
from parityscope.study._looking import judged_outputs, overall, tensor_pairs, worst_samples
from parityscope.study._outputs import run_outputs, worst_of
from parityscope.study._scene import scene_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.records import Finding
    from parityscope.study._found import Known

__all__ = ["with_simulated"]

_FORMATS = ("f16", "bf16")  # in which deployments give NaN where FP32 gives numbers; the smaller range first
_STANDS = 0.9  # of the elements that are NaN or Inf on either side: from there on the simulation is believed; chosen
_ABOUT = ("RNG",)  # codes of what is found about ranges and NaN
_SAMPLES = 4
_BY_OUTPUTS = (
    "FUS014"  # one change or two that give the outputs: a whole format gives them too, and is the simpler answer
)


def with_simulated(known: Known, diagnosis: Diagnosis, *, folder: Path, memory: int, progress: Progress) -> Diagnosis:
    """`diagnosis` with what a simulation tells of NaN and Inf, in front; as it is where it needs or gets no telling."""
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
            both, either = _standing(known, target)
            tried.append(f"{name}: {both:,} of {either:,}")
            if both < _STANDS * either:
                continue
            found = _examined(known, target, folder / "simulated", memory, progress)
        except ParityError as error:
            skip = Skip(what=f"NaN and Inf in a simulation of {name}", reason=error.problem, fix=error.fix)
            return replace(diagnosis, skipped=(*diagnosis.skipped, skip))
        told = tuple(_told(one, name, both, either) for one in found if one.code.startswith(_ABOUT))
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


def _standing(known: Known, target: Target) -> tuple[int, int]:
    """Elements of the outputs that are NaN or Inf, and not in the reference: on both sides, and on either."""
    case, both, either = known.case, 0, 0
    with (
        open_bench(
            case, known.reference, known.candidate, known.names, worst_of(known.run, known.case.inputs.indices)
        ) as bench,
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


def _examined(known: Known, target: Target, folder: Path, memory: int, progress: Progress) -> Sequence[Finding]:
    """What the checks find where the simulation stands in the place of the recording."""
    from parityscope.study._layers import examine_layers

    case = known.case
    names: Mapping[str, str] = {
        name: name for name in (*case.model.sites, *(value.name for value in case.model.outputs))
    }
    run = run_outputs(case, known.reference, target, names, progress)
    if known.expectation is None:
        return ()
    outputs = judged_outputs(case, run, known.expectation, names, {}, progress)
    layers = examine_layers(
        case,
        known.reference,
        target,
        names,
        worst_samples(outputs, case.inputs.indices),
        folder=folder,
        memory=memory,
        inject=True,
        thorough=known.thorough,
        progress=progress,
    )
    if layers is None:
        return ()
    stand_in = replace(
        known,
        candidate=target,
        run=run,
        outputs=outputs,
        names=names,
        verdict=overall(outputs, run),
        layers=layers,
        tensors=tensor_pairs(case, layers, outputs, names, {}, progress, thorough=known.thorough),
    )
    with open_bench(
        case, known.reference, target, names, worst_of(stand_in.run, stand_in.case.inputs.indices)
    ) as bench:
        scene = scene_of(stand_in, {}, target.precision, target.precision)
        return examine_scene(replace(scene, bench=bench), progress=progress).diagnosis.findings


def _told(finding: Finding, name: str, both: int, either: int) -> Finding:
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
