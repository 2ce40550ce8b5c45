"""What runs gave -> expectations, judged pairs and the verdict, in the first look at a candidate and in later ones."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from parityscope.arithmetic.quantized import QUANTIZED
from parityscope.case.graph import computing
from parityscope.comparison.rows import aligner
from parityscope.errors import ParityError
from parityscope.expectation import (
    FLOAT32_ROUNDING,
    FORMATS,
    Expectation,
    distance,
    grade_of,
    graded_error,
    margin_of,
)
from parityscope.records import Site, Skip, Target
from parityscope.study._drawing import redrawn
from parityscope.study._judging import has_budget, judge, pair_of
from parityscope.study._outputs import FIRST_SAMPLES, WORST_SAMPLES, error_by_sample
from parityscope.study._parts import alike_in_parts, deviations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.comparison.rows import Align
    from parityscope.records import Pair, Verdict
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun

__all__ = ["expectation_of", "judged_outputs", "overall", "plain_pairs", "tensor_pairs", "worst_samples"]

_PLAIN = Target(backend="ort")
_LOCALIZED_SAMPLES = 3  # chosen: the worst ones; every sample's outputs are compared anyway


def expectation_of(case: Case, run: OutputRun, reference: Target, progress: Progress) -> Expectation:
    """What arithmetics would cost: as many, from the finest on, as it takes to grade what was measured.

    Nothing has to be predicted for outputs that one FP32 rounding explains; and no format that is coarser than what explains
    all of them, but for the one that is declared. Where a prediction fails, outputs with a budget are judged without it.
    """
    try:
        return _foreseen(case, run, reference, progress)
    except ParityError as error:
        return Expectation(errors={}, skipped=(Skip(what="expected errors", reason=error.problem, fix=error.fix),))


def _foreseen(case: Case, run: OutputRun, reference: Target, progress: Progress) -> Expectation:
    measured = {name: graded_error(found) for name, found in run.statistics.items()}
    least = dict.fromkeys(measured, FLOAT32_ROUNDING)
    exact = all(distance(found) <= margin_of("f32") * FLOAT32_ROUNDING for found in run.statistics.values())
    if exact and alike_in_parts(run):
        return Expectation(errors={"f32": least})
    chosen = _predicted_samples(case.inputs.indices, run)
    align = aligner(case.policy.matched)
    declared = case.policy.declared
    first = [declared] if declared in {*FORMATS, *QUANTIZED} else []
    plain = _plain_outputs(case, run, reference, chosen)
    expectation = _expected(case, chosen, first, align, progress, plain)
    rest = [name for name in FORMATS if name not in first]
    if rest and any(grade_of(error, expectation.of(name)) == "beyond" for name, error in measured.items()):
        expectation = expectation.and_also(_expected(case, chosen, rest, align, progress, {}))
    floats = {name: distance(found) for name, found in run.statistics.items() if found.is_float}
    return redrawn(case.model, case.inputs, chosen, expectation, floats, declared, align, progress)


def _plain_outputs(
    case: Case, run: OutputRun, reference: Target, samples: Sequence[int]
) -> Mapping[int, Mapping[str, np.ndarray]]:
    """What ONNX Runtime gives at the outputs, by sample, on those that tell the FP32 floor; it is not asked twice.

    Raises:
        ParityError: the runtime refuses the model.
    """
    known = {index: run.kept[index] for index in samples if index in run.kept} if reference == _PLAIN else {}
    if known:
        return known
    from parityscope.expectation.expecting import referred

    return referred(case.model, case.inputs, samples)


def _expected(
    case: Case,
    samples: Sequence[int],
    formats: Sequence[str],
    align: Align,
    progress: Progress,
    plain: Mapping[int, Mapping[str, np.ndarray]],
) -> Expectation:
    """The expected errors of the outputs; the floor on the samples that are in `plain`."""
    from parityscope.expectation.expecting import expect

    return expect(
        case.model,
        case.inputs,
        samples,
        [value.name for value in case.model.outputs],
        formats,
        floor_on=tuple(plain),
        reference=lambda index, name: plain.get(index, {}).get(name),
        progress=progress,
        align=align,
        by_part=True,
    )


def _predicted_samples(indices: Sequence[int], run: OutputRun) -> tuple[int, ...]:
    """The first samples and, as many, those that are worst at an output beside what is usual there.

    Where a Softmax is saturated rounding is nothing, and one bad sample of a thousand is one that users meet.
    """
    beside = dict.fromkeys(indices, 0.0)
    for found in run.per_sample.values():
        errors = [error for _, error in found]
        usual = math.nan if any(map(math.isnan, errors)) else median(errors) if errors else 0.0
        for index, error in found:
            size = math.inf if math.isnan(error) else error
            ratio = size / usual if usual > 0 and math.isfinite(usual) else math.inf if size > 0 else 0.0
            beside[index] = max(beside.get(index, 0.0), ratio)
    sizes = error_by_sample(run, indices)
    worst = sorted(indices, key=lambda index: (-beside[index], -sizes[index]))[:WORST_SAMPLES]
    rest = [index for index in indices if index not in worst][: FIRST_SAMPLES + WORST_SAMPLES - len(worst)]
    return tuple(sorted([*worst, *rest]))


def judged_outputs(
    case: Case,
    run: OutputRun,
    expectation: Expectation,
    names: Mapping[str, str],
    how: Mapping[str, str],
    progress: Progress,
) -> tuple[Pair, ...]:
    """Each compared output as a pair with its verdict: as a whole and, where no budget speaks for it, in every part.

    Args:
        case: Model, inputs and policy.
        run: What comparing the outputs gave.
        expectation: Errors that arithmetics make, by output.
        names: The reference's name of an output -> the candidate's, where they differ.
        how: By what the two were paired, where not by name.
        progress: Who is told.
    """
    places = case.model.sites
    pairs = []
    for name, statistics in run.statistics.items():
        site = places.get(name, Site(tensor=name, node="", op_type="", index=-1))
        pair = pair_of(
            site,
            statistics,
            candidate_name=names.get(name, name),
            how=how.get(name, "name"),
            per_sample=run.per_sample[name],
            expected=expectation.of(name),
            outside=run.outside.get(name),
            is_output=True,
        )
        pairs.append(replace(pair, verdict=judge(pair, statistics, case.policy)))
    asked = [pair.site.tensor for pair in pairs if pair.verdict == "within" and not has_budget(pair, case.policy)]
    apart = deviations(case, run, expectation, asked, aligner(case.policy.matched), progress)
    return tuple(
        replace(pair, verdict="beyond", grade="beyond", apart=apart[pair.site.tensor].words(case.policy.declared))
        if pair.site.tensor in apart
        else pair
        for pair in pairs
    )


def overall(outputs: Sequence[Pair], run: OutputRun) -> Verdict:
    """The verdict on all outputs; incomplete where something that was asked for was skipped."""
    verdicts = {pair.verdict for pair in outputs}
    if "beyond" in verdicts:
        return "beyond"
    asked = any(skip.asked for skip in run.skipped)
    return "incomplete" if asked or "incomplete" in verdicts else "within"


def worst_samples(outputs: Sequence[Pair], indices: Sequence[int]) -> tuple[int, ...]:
    """The samples with the largest output errors, worst first."""
    size = [0.0] * len(indices)
    for pair in outputs:
        if len(pair.per_sample) == len(indices):
            size = [max(a, math.inf if math.isnan(b) else b) for a, b in zip(size, pair.per_sample, strict=True)]
    order = sorted(range(len(indices)), key=lambda position: -size[position])
    return tuple(indices[position] for position in order[:_LOCALIZED_SAMPLES])


def tensor_pairs(
    case: Case,
    layers: Layers | None,
    outputs: Sequence[Pair],
    names: Mapping[str, str],
    how: Mapping[str, str],
    progress: Progress,
    *,
    thorough: bool,
) -> dict[str, Pair]:
    """The compared intermediate tensors as pairs, those that matter graded by what is expected of them; none without layers.

    Those are what is computed from the model's inputs, and what differs between runs of the candidate.

    Args:
        case: Model, inputs and policy.
        layers: What comparing the tensors gave.
        outputs: The judged outputs.
        names: The reference's name of a tensor -> the candidate's, where they differ.
        how: By what the two were paired, where not by name.
        progress: Who is told.
        thorough: Whether all of them are graded.
    """
    if layers is None:
        return {}
    from parityscope.expectation.expecting import expect

    # What is declared, and what the outputs turned out to be: a run in another arithmetic is graded by that one.
    formats = dict.fromkeys((case.policy.declared, *(pair.grade for pair in outputs)))
    trace = layers.reference
    expectation = expect(
        case.model,
        case.inputs,
        trace.samples,
        list(layers.statistics) if thorough else _worth_grading(case, layers),
        tuple(name for name in formats if name in {*FORMATS, *QUANTIZED}),
        reference=lambda index, name: trace.get(index, name) if trace.has(index, name) else None,
        progress=progress,
    )
    return plain_pairs(case, layers.statistics, names, how, expectation)


def _worth_grading(case: Case, layers: Layers) -> list[str]:
    """The tensors of which checks ask what error is to be expected."""
    inputs = {value.name for value in case.model.inputs}
    readers = [
        str(output.name)
        for node in computing(case.model.graph())
        if any(value is not None and value.name in inputs for value in node.inputs)
        for output in node.outputs
    ]
    apart = [one.tensor for one in layers.localization.spreads if one.value > FLOAT32_ROUNDING]
    return [name for name in dict.fromkeys((*readers, *apart)) if name in layers.statistics]


def plain_pairs(
    case: Case,
    found: Mapping[str, Statistics],
    names: Mapping[str, str],
    how: Mapping[str, str],
    expectation: Expectation,
) -> dict[str, Pair]:
    """Statistics by the reference's name as pairs with the expected errors; `names` and `how` as in `tensor_pairs`."""
    places = case.model.sites
    outputs = {value.name for value in case.model.outputs}
    return {
        name: pair_of(
            places[name],
            statistics,
            candidate_name=names.get(name, name),
            how=how.get(name, "name"),
            expected=expectation.of(name),
            is_output=name in outputs,
        )
        for name, statistics in found.items()
    }
