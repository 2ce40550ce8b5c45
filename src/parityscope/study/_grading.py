"""What runs gave -> expectations, judged pairs and the verdict, in the first look at a candidate and in later ones."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import QUANTIZED
from parityscope.case.graph import computing_nodes
from parityscope.comparison.distance import error_distance
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, FORMATS, grade_of, graded_error, margin_of
from parityscope.expectation.records import Expectation
from parityscope.records import Site, Skip, Target
from parityscope.study._verdicts import has_budget, judge_pair, pair_of
from parityscope.study.changed_decisions import count_honest_changes
from parityscope.study.more_draws import redraw_doubtful
from parityscope.study.output_parts import covers_parts, find_deviations, finest_of_outputs, one_rounding_explains
from parityscope.study.outputs import FIRST_SAMPLES, WORST_SAMPLES, error_by_sample
from parityscope.study.unlike_samples import expect_unlike

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.arithmetic.held_grids import HeldGrid
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.comparison.rows import Align
    from parityscope.evaluation.sessions import Sessions
    from parityscope.examination import Examination, Layers, OutputRun
    from parityscope.records import Pair, Verdict
    from parityscope.study.changed_decisions import HonestChanges
    from parityscope.study.output_parts import Deviation

_PLAIN = Target(backend="ort")
_ENDS = ("tf32", "bf16")  # the finest format, which is suspected first, and the coarsest
_FAR_OFF = 2.0**-11  # half a unit in the last place of FP16: no FP32 run of a usual network errs by that much. Chosen.
# A tenth of what TF32 makes of a usual network: less is likely FP32's, and the half of its floor that is cheap shows it. Chosen.
_NEAR = 2.0**-15
# The same arithmetic may err more on other inputs, or in a network with one cause put right: as in checks/_reproducing.py.
_CHANGED = 4.0
_LOCALIZED_SAMPLES = 3  # chosen: the worst ones; every sample's outputs are compared anyway
_RIGHT_AT_FIRST = 1e-3  # of the least error of the others: a first sample with less is right; chosen


def expect_errors(examination: Examination) -> Expectation:
    """What arithmetics would cost: as many as it takes to grade what was measured.

    Nothing has to be predicted for outputs that one FP32 rounding explains; what FP32 is known to make at least is enough
    where it explains all, and beside what is declared no format, where that does. Where the floor on the first samples does
    not, the worst ones tell it too: noise may go further there. Else come the format that is suspected first and the coarsest,
    and those between where one of these explains an error that what is declared does not. Where the worst sample tells that
    none of them explains any output by far, no other is asked. Where a prediction fails, outputs with a budget are judged
    without it.
    """
    try:
        return _foresee_errors(examination)
    except ParityError as error:
        return Expectation(errors={}, skipped=(Skip(what="expected errors", reason=error.problem, fix=error.fix),))


def _foresee_errors(examination: Examination) -> Expectation:
    case, run, progress = examination.case, examination.compared, examination.progress
    measured = {name: graded_error(found) for name, found in run.statistics.items()}
    least = dict.fromkeys(measured, FLOAT32_ROUNDING)
    if one_rounding_explains(run):
        return Expectation(errors={"f32": least})
    chosen = _predicted_samples(examination)
    align = make_aligner(case.policy, without_order=True)  # rows that passed each other: `tied_rows`
    declared = case.policy.declared
    first = [declared] if declared in {*FORMATS, *QUANTIZED} else []
    ends = [name for name in _ENDS if name not in first]
    between = [name for name in FORMATS if name not in {*first, *ends}]
    # What is so far off is beyond the finest for sure: then one pass tells both.
    far = max(measured.values(), default=0.0) > _FAR_OFF
    plain = _plain_outputs(examination, chosen)
    if far:
        # What is beyond for sure is so on the worst sample: where a Softmax is saturated any error is, beside that sample's own.
        sizes = error_by_sample(examination)
        chosen = tuple(sorted(chosen, key=lambda index: -sizes[index]))
        plain = {**_plain_outputs(examination, chosen[:1]), **plain}

    def is_enough(least: Expectation) -> bool:
        grades = {grade_of(error, least.of(name)) for name, error in measured.items()}
        return grades == {"f32"} and covers_parts(run.parts, least.parts.get("f32", {}), finest_of_outputs(case.model))

    near = not first and max(measured.values(), default=0.0) < _NEAR
    formats = [*first, *ends] if far else first
    from parityscope.evaluation.machine import usable_cores
    from parityscope.evaluation.sessions import Sessions

    sessions = Sessions(threads=usable_cores())
    foresee = partial(_expect_output_errors, examination, chosen, align=align, sessions=sessions)
    wrong = {name for name, error in measured.items() if error != 0}

    def is_settled(found: Expectation) -> bool:
        there = {name: dict(per_sample).get(chosen[0], 0.0) for name, per_sample in run.per_sample.items()}
        return set(formats) <= found.errors.keys() and far_beyond(run, found, there) == wrong

    expectation = foresee(formats, plain, is_enough if near else None, is_settled if far else None)
    if not far and any(grade_of(error, expectation.of(name)) == "beyond" for name, error in measured.items()):
        expectation = expectation.and_also(foresee(ends, {}))
    if not far and not first and not is_enough(expectation):
        others = [index for index in chosen if index not in plain]
        expectation = expectation.and_also(foresee((), {**plain, **_plain_outputs(examination, others)}))
    if between and any(grade_of(error, expectation.of(name)) in _ENDS for name, error in measured.items()):
        expectation = expectation.and_also(foresee(between, {}))
    floats = {name: error_distance(found) for name, found in run.statistics.items() if found.is_float}
    expectation = redraw_doubtful(case.model, case.inputs, chosen, expectation, floats, case.policy, align, progress)

    def foresee_again(samples: Sequence[int]) -> Expectation:
        if declared in FORMATS or declared in QUANTIZED:
            return _expect_output_errors(
                examination, samples, first, {}, align=align, sessions=sessions, calibrated_on=(*chosen, *samples)
            )
        return _expect_output_errors(
            examination, samples, (), _plain_outputs(examination, samples), align=align, sessions=sessions
        )

    return expect_unlike(examination, expectation, foresee_again)


def far_beyond(run: OutputRun, expectation: Expectation, errors: Mapping[str, float] | None = None) -> set[str]:
    """The outputs so far off that no predicted arithmetic explains them, nor would on other inputs or changed a little.

    `errors` are those of the samples that the expectation is of; those of all if they are not given.
    """
    found = set()
    for name, statistics in run.statistics.items():
        expected = expectation.of(name)
        error = graded_error(statistics) if errors is None else errors[name]
        most = max((margin_of(form) * size for form, size in expected.items()), default=math.nan)
        if "f32" in expected and error > _FAR_OFF and error > _CHANGED * most:
            found.add(name)
    return found


def _plain_outputs(examination: Examination, samples: Sequence[int]) -> Mapping[int, Mapping[str, np.ndarray]]:
    """What ONNX Runtime gives at the outputs, by sample, on those that tell the FP32 floor; it is not asked twice.

    Raises:
        ParityError: the runtime refuses the model.
    """
    kept = examination.compared.kept if examination.reference == _PLAIN else {}
    known = {index: kept[index] for index in samples if index in kept}
    if known or not samples:
        return known
    from parityscope.expectation.expecting import run_reference

    return run_reference(examination.case.model, examination.case.inputs, samples)


def _expect_output_errors(
    examination: Examination,
    samples: Sequence[int],
    formats: Sequence[str],
    plain: Mapping[int, Mapping[str, np.ndarray]],
    enough: Callable[[Expectation], bool] | None = None,
    settled: Callable[[Expectation], bool] | None = None,
    *,
    align: Align,
    sessions: Sessions,
    calibrated_on: Sequence[int] = (),
) -> Expectation:
    """The expected errors of the outputs; the floor on the samples that are in `plain`, or what of it is `enough`."""
    from parityscope.expectation.expecting import ErrorQuestion, expect_error

    case = examination.case
    question = ErrorQuestion(
        model=case.model,
        inputs=case.inputs,
        samples=samples,
        tensors=[value.name for value in case.model.outputs],
        formats=formats,
        floor_on=tuple(plain),
        reference=lambda index, name: plain.get(index, {}).get(name),
        align=align,
        by_part=True,
        enough=enough,
        settled=settled,
        calibrated_on=calibrated_on,
        held=_grids_of_candidate(examination),
    )
    return expect_error(question, progress=examination.progress, sessions=sessions)


def _grids_of_candidate(examination: Examination) -> Mapping[str, HeldGrid]:
    """The grids on which the candidate's own file keeps constants, where INT8 is declared; none without such a file."""
    case, candidate = examination.case, examination.candidate
    if case.policy.declared not in QUANTIZED or not candidate.option("model"):
        return {}
    from parityscope.arithmetic.held_grids import held_grids
    from parityscope.backends.opening import model_of

    return held_grids(case.model.shared_graph(), model_of(case.model, candidate).shared_graph())


def _predicted_samples(examination: Examination) -> tuple[int, ...]:
    """The first samples and, as many, those that are worst at an output beside what is usual there.

    Where a Softmax is saturated rounding is nothing, and one bad sample of a thousand is one that users meet.
    """
    indices = examination.case.inputs.indices
    beside = dict.fromkeys(indices, 0.0)
    for found in examination.compared.per_sample.values():
        errors = [error for _, error in found]
        usual = math.nan if any(map(math.isnan, errors)) else float(np.median(errors)) if errors else 0.0
        for index, error in found:
            size = math.inf if math.isnan(error) else error
            ratio = size / usual if usual > 0 and math.isfinite(usual) else math.inf if size > 0 else 0.0
            beside[index] = max(beside.get(index, 0.0), ratio)
    sizes = error_by_sample(examination)
    worst = sorted(indices, key=lambda index: (-beside[index], -sizes[index]))[:WORST_SAMPLES]
    rest = [index for index in indices if index not in worst][: FIRST_SAMPLES + WORST_SAMPLES - len(worst)]
    return tuple(sorted([*worst, *rest]))


def judge_outputs(examination: Examination) -> tuple[Pair, ...]:
    """Each compared output as a pair with its verdict: as a whole and, where no budget speaks for it, in parts and decisions."""
    case, run = examination.case, examination.compared
    names, how = examination.names, examination.how
    expectation = examination.expectation or Expectation(errors={})
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
        pairs.append(replace(pair, verdict=judge_pair(pair, statistics, case.policy)))
    judged = [pair for pair in pairs if not has_budget(pair, case.policy)]
    asked = [pair.site.tensor for pair in judged if pair.verdict == "within"]
    align = make_aligner(case.policy, without_order=True)  # rows that passed each other: `tied_rows`
    apart = find_deviations(examination, asked, align)
    # Choices that differ are beyond by their number alone; whether they are by their scores is asked here.
    chosen = [
        pair.site.tensor
        for pair in judged
        if pair.verdict == "beyond" and not run.statistics[pair.site.tensor].is_float
    ]
    counted = count_honest_changes(examination, [*(name for name in asked if name not in apart), *chosen], align)
    return tuple(_judge_decisions(pair, apart, counted, case.policy.declared) for pair in pairs)


def _judge_decisions(
    pair: Pair, apart: Mapping[str, Deviation], counted: Mapping[str, HonestChanges], declared: str
) -> Pair:
    """An output judged as a whole, with what its parts and its decisions say."""
    name = pair.site.tensor
    found = counted.get(name)
    if found is not None:
        usual = (found.usual, found.count) if found.count else None
        pair = replace(pair, usual_changes=usual, flip=found.flip)
    if name in apart:
        return replace(pair, verdict="beyond", grade="beyond", apart=apart[name].words(declared))
    if found is not None and found.is_beyond:
        # Choices that a coarser arithmetic makes as often keep its grade.
        grade = "beyond" if pair.verdict == "within" else pair.grade
        return replace(pair, verdict="beyond", grade=grade, apart=found.words(declared))
    if found is not None and found.whole and pair.verdict == "beyond":
        return replace(
            pair, verdict="within", grade=grade_of(0.0, {declared: 0.0}), apart=found.words_of_excuse(declared)
        )
    return pair


def verdict_of(examination: Examination) -> Verdict:
    """The verdict on all outputs; incomplete where something that was asked for was skipped."""
    verdicts = {pair.verdict for pair in examination.outputs}
    if "beyond" in verdicts:
        return "beyond"
    asked = any(skip.asked for skip in examination.compared.skipped)
    return "incomplete" if asked or "incomplete" in verdicts else "within"


def worst_samples(examination: Examination) -> tuple[int, ...]:
    """The samples with the largest output errors, worst first; of the first ones, where the very first alone is right.

    That is how what is kept of the samples before shows, and it is told by what lies before.
    """
    indices = examination.case.inputs.indices
    size = [0.0] * len(indices)
    for pair in examination.outputs:
        if len(pair.per_sample) == len(indices):
            size = [max(a, math.inf if math.isnan(b) else b) for a, b in zip(size, pair.per_sample, strict=True)]
    among = range(len(indices))
    if len(indices) > _LOCALIZED_SAMPLES and size[0] < _RIGHT_AT_FIRST * min(size[1:]):
        among = range(_LOCALIZED_SAMPLES)
    order = sorted(among, key=lambda position: -size[position])
    return tuple(indices[position] for position in order[:_LOCALIZED_SAMPLES])


def grade_tensors(examination: Examination) -> dict[str, Pair]:
    """The compared intermediate tensors as pairs, those that matter graded by what is expected of them; none without layers.

    Those are what is computed from the model's inputs, and what differs between runs of the candidate; all, if everything is
    looked at.
    """
    case, layers = examination.case, examination.layers
    if layers is None:
        return {}
    from parityscope.expectation.expecting import ErrorQuestion, expect_error

    # What is declared, and what the outputs turned out to be: a run in another arithmetic is graded by that one.
    formats = dict.fromkeys((case.policy.declared, *(pair.grade for pair in examination.outputs)))
    trace = layers.reference
    question = ErrorQuestion(
        model=case.model,
        inputs=case.inputs,
        samples=trace.samples,
        tensors=list(layers.statistics) if examination.request.looks_everywhere else _worth_grading(case, layers),
        formats=tuple(name for name in formats if name in {*FORMATS, *QUANTIZED}),
        reference=lambda index, name: trace.get(index, name) if trace.has(index, name) else None,
        held=_grids_of_candidate(examination),
    )
    expectation = expect_error(question, progress=examination.progress)
    return plain_pairs(case, layers.statistics, layers.pairing, examination.how, expectation)


def _worth_grading(case: Case, layers: Layers) -> list[str]:
    """The tensors of which checks ask what error is to be expected."""
    inputs = {value.name for value in case.model.inputs}
    readers = [
        str(output.name)
        for node in computing_nodes(case.model.shared_graph())
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
    """Statistics by the reference's name as pairs with the expected errors; `names` and `how` as in `Examination`."""
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
