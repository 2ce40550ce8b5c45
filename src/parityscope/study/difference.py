"""Is it different, and where does that begin: the stages of an examination up to the layers, each adding what it found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import backend_named
from parityscope.backends.opening import model_of
from parityscope.expectation.records import Expectation
from parityscope.pairing import pair_graphs
from parityscope.records import Diagnosis, Skip
from parityscope.study._grading import (
    expect_errors,
    grade_tensors,
    judge_outputs,
    plain_pairs,
    verdict_of,
    worst_samples,
)
from parityscope.study._lockstep import compare_tensors
from parityscope.study.outputs import run_outputs
from parityscope.study.sampling import judge_sampling, keep_drawn, skips_of_sampling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.examination import Examination
    from parityscope.records import Pair

NOT_LOOKED = Skip(
    what="localization",
    reason="every output is within FP32's own noise, so that no layer can matter",
    fix="look all the same: parityscope diagnose --thorough, or parityscope localize",
)


def pair_tensors(known: Examination) -> Examination:
    """With which tensor of the reference is which of the candidate's."""
    case, request = known.case, known.request
    own = model_of(case.model, known.candidate)
    runtime = backend_named(known.candidate.backend)
    # A recording's names are the model's already (`_opening`); what another program calls its outputs only its answers tell.
    inputs = {value.name for value in case.model.inputs}
    explicit = {} if runtime.recorded else {old: new for old, new in request.mapping.items() if old not in inputs}
    paired = pair_graphs(
        case.model, own, case.inputs, explicit=explicit, memory=request.memory, other=runtime.reads_model
    )
    names = {**{value.name: value.name for value in case.model.outputs}, **paired.names}
    return replace(known, names=names, how=paired.how).skipping(*paired.skipped)


def compare_outputs(known: Examination) -> Examination:
    """With both sides' outputs compared on every sample, and what the candidate computes in.

    Samples on which the candidate fails are left out of all that follows; what the others told stays.
    """
    run = run_outputs(known, inspect=known.request.goes_to("layers"), partly=True)
    if run.unanswered or run.sampling is not None:
        inputs = known.case.inputs if run.sampling is None else keep_drawn(known.case.inputs, run.sampling)
        left = tuple(index for index in inputs.indices if index not in run.unanswered)
        known = replace(known, case=replace(known.case, inputs=replace(inputs, indices=left)))
    executed = run.executed.executed if run.executed else ""
    computes = executed or known.candidate.precision or known.case.policy.declared
    return replace(known, run=run, executed=executed, computes=computes).skipping(*run.skipped)


def predict_errors(known: Examination) -> Examination:
    """With the errors that arithmetics make at the outputs.

    Only arithmetic that the engine was seen to honour is excused; what it was asked for is what it declares.
    """
    expectation = expect_errors(known)
    return replace(known, expectation=expectation).skipping(*expectation.skipped)


def grade_outputs(known: Examination) -> Examination:
    """With every output judged, and the verdict."""
    known = replace(known, outputs=judge_sampling(known, judge_outputs(known)))
    unjudged = (*known.unjudged, *_outputs_without_reference(known.outputs), *skips_of_sampling(known))
    return replace(known, verdict=verdict_of(known), unjudged=unjudged)


def call_repeatedly(known: Examination) -> Examination:
    """With how the error grows over calls, where states are fed back: beyond where it grows beyond what is honest."""
    if not (known.request.states or known.request.drive):
        return known
    from parityscope.localization.calls import first_beyond
    from parityscope.study._repeated_calls import measure_growth

    growth = measure_growth(known)
    return replace(known, growth=growth, verdict=known.verdict if first_beyond(growth) is None else "beyond")


def can_layers_matter(known: Examination) -> bool:
    """Whether any layer can matter to the verdict, or all are to be looked at anyway."""
    exact = known.verdict == "within" and all(pair.grade == "f32" for pair in known.outputs)
    return known.request.looks_everywhere or not exact


def compare_all_tensors(known: Examination) -> Examination:
    """With all intermediate tensors side by side; nothing is said of what each introduces."""
    statistics, problems = compare_tensors(known)
    tensors = plain_pairs(known.case, statistics, known.names, known.how, Expectation(errors={}))
    return replace(known, tensors=tensors).skipping(*problems)


def localize_error(known: Examination) -> Examination:
    """With what each layer introduces and inherits, on the worst samples; only at the place of a proof where there is one."""
    from parityscope.study.layers import observe_layers

    layers = observe_layers(
        known, worst_samples(known), folder=known.folder, inject=known.verdict != "within", proof=known.proof
    )
    if layers is None:
        return known.skipping(
            Skip(
                what="localization",
                reason=f"{known.candidate.backend} gave no intermediate tensors back",
                fix="record some with the recorder, or let the program write them beside its outputs",
            )
        )
    diagnosis = Diagnosis(findings=(), unexplained=layers.localization.unexplained)
    known = replace(known, layers=layers, diagnosis=diagnosis)
    return known.skipping(*layers.skipped, *layers.localization.skipped, *_skip_elsewhere(known))


def grade_suspicious_tensors(known: Examination) -> Examination:
    """With the compared tensors as pairs, and the expected error of those that checks ask about."""
    return replace(known, tensors=grade_tensors(known)) if known.layers is not None else known


def _skip_elsewhere(known: Examination) -> tuple[Skip, ...]:
    if known.proof is None:
        return ()
    others = sum(name not in known.proof.pairing for name in known.case.model.sites)
    what, fix = f"{others} tensors at other places", "look all the same: --thorough"
    return (Skip(what=what, reason=known.proof.reason, fix=fix),)


def _outputs_without_reference(outputs: Sequence[Pair]) -> tuple[Skip, ...]:
    """The outputs where the reference itself gives no number, so that nothing is known of what would be right there."""
    return tuple(
        Skip(
            what=f"{pair.nonfinite_reference + pair.nonfinite_agreeing} elements of output {pair.site.tensor}",
            reason="the reference itself gives NaN or infinity there",
            fix="run the model alone on these samples, and mend the model or the data first",
        )
        for pair in outputs
        if pair.nonfinite_reference + pair.nonfinite_agreeing
    )
