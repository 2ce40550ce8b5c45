"""What runs gave -> expectations, judged pairs and the verdict, in the first look at a candidate and in later ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.quantized import QUANTIZED
from parityscope.comparison.rows import aligner
from parityscope.prediction import (
    FLOAT32_ROUNDING,
    FORMATS,
    Expectation,
    distance,
    expect_outputs,
    expect_tensors,
    margin_of,
)
from parityscope.records import Site
from parityscope.study._drawing import redrawn
from parityscope.study._judging import judge, pair_of
from parityscope.study._outputs import error_by_sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.records import Pair, Verdict
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun

__all__ = ["expectation_of", "judged_outputs", "overall", "plain_pairs", "tensor_pairs", "worst_samples"]

_LOCALIZED_SAMPLES = 3  # chosen: the worst ones; every sample's outputs are compared anyway
_PREDICTED_SAMPLES = 4  # chosen: expectations vary less between samples than the margins of the grades


def expectation_of(case: Case, run: OutputRun, progress: Progress) -> Expectation:
    """What each format would cost; nothing has to be predicted for outputs that one FP32 rounding explains."""
    least = dict.fromkeys(run.statistics, FLOAT32_ROUNDING)
    if all(distance(found) <= margin_of("f32") * FLOAT32_ROUNDING for found in run.statistics.values()):
        return Expectation(errors={"f32": least})
    chosen = _predicted_samples(case.inputs.indices, run)
    align = aligner(case.policy.matched)
    formats = tuple(dict.fromkeys([*FORMATS, *({case.policy.declared} & QUANTIZED.keys())]))
    expectation = expect_outputs(case.model, case.inputs, chosen, formats, progress=progress, align=align)
    measured = {name: distance(found) for name, found in run.statistics.items() if found.is_float}
    declared = case.policy.declared
    return redrawn(case.model, case.inputs, chosen, expectation, measured, declared, align, progress)


def _predicted_samples(indices: Sequence[int], run: OutputRun) -> tuple[int, ...]:
    """The first samples and, as many, those of the largest errors: where a Softmax is saturated rounding is nothing."""
    sizes = error_by_sample(run, indices)
    worst = sorted(indices, key=lambda index: -sizes[index])[: _PREDICTED_SAMPLES // 2]
    rest = [index for index in indices if index not in worst][: _PREDICTED_SAMPLES - len(worst)]
    return tuple(sorted([*worst, *rest]))


def judged_outputs(
    case: Case, run: OutputRun, expectation: Expectation, names: Mapping[str, str], how: Mapping[str, str]
) -> tuple[Pair, ...]:
    """Each compared output as a pair with its verdict.

    Args:
        case: Model, inputs and policy.
        run: What comparing the outputs gave.
        expectation: Errors that arithmetics make, by output.
        names: The reference's name of an output -> the candidate's, where they differ.
        how: By what the two were paired, where not by name.
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
    return tuple(pairs)


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
    memory: int,
    progress: Progress,
) -> dict[str, Pair]:
    """The compared intermediate tensors as pairs, graded by what arithmetics are expected to do to them; none without layers.

    Args:
        case: Model, inputs and policy.
        layers: What comparing the tensors gave.
        outputs: The judged outputs.
        names: The reference's name of a tensor -> the candidate's, where they differ.
        how: By what the two were paired, where not by name.
        memory: Bytes that the expectation may take.
        progress: Who is told.
    """
    if layers is None:
        return {}
    # What is declared, and what the outputs turned out to be: a run in another arithmetic is graded by that one.
    formats = dict.fromkeys((case.policy.declared, *(pair.grade for pair in outputs)))
    expectation = expect_tensors(
        case.model,
        case.inputs,
        layers.reference,
        list(layers.statistics),
        formats=tuple(name for name in formats if name in {*FORMATS, *QUANTIZED}),
        memory=memory,
        progress=progress,
    )
    return plain_pairs(case, layers.statistics, names, how, expectation)


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
