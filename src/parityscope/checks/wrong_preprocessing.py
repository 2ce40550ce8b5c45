"""The deployment prepares its inputs in another way than the reference.

What goes wrong: the model is right and what it is given is not: BGR for RGB, no division by 255, another mean and
deviation, the memory of an NHWC array where NCHW is expected, a mirrored or wrapped image; for tokens, padding on the
other side, a token cut off, special tokens missing, a mask of ones.

How it shows: FP32, FP16 and INT8 deployments are equally wrong. Where tensors were recorded the first layer already
differs as much as the last; fed with the same tensors both sides agree.

How we test for it: from outputs alone. The reference is run on transformed inputs, and a composition of transformations
is accepted if the reference then reproduces the candidate on every sample tried: to what the declared arithmetic
explains, or to a thousandth of the error without it; and if so good an agreement is no accident of that many trials. An
honest deployment of the declared arithmetic is asked too: it may saturate or overflow where the reference does not. What
reproduces outputs that tell little (two classes that are sure of themselves, NaN throughout) is told as a possibility.
Which normalization the reference's inputs had is read from their range. Compositions are built greedily and with
backtracking, within 1,000 runs and never by a clock: the same is found on a slow machine, and a search that was cut off goes
on where it was.

What only the original image knows (resize kernel, antialiasing, half-pixel centres, crop, letterbox, its colour, where it lies,
whether it is filled behind the normalization, the EXIF orientation) is tried where the images are known: samples made of a
folder of images, or `--images`. How the reference places its image is recognised from image and prepared input; a step may
leave a fifth of the error, because libraries round in their own ways. Without images this is not examined, and the study
says so.

What it is confused with: transformations that the model cannot tell apart on these samples (they are named); a first layer
whose weights were changed in the same way. Swapped inputs have their own check.

How to repair: correct the deployment's preprocessing: for an affine map and channels, `preprocess_in_code` writes it; or put
it into the model (`prepend_preprocessing`), so that it can no longer differ.

Sources: NVIDIA/TensorRT#3700 (RT-DETR, mAP 70.7 against 66.1 in every precision); 6 confirmed causes of about 110 public
accuracy issues. Definitions of the normalizations: checks/preprocessing/normalizations.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.checks import Check, Claim, Correction, Example, NearMiss, Prediction, Shown
from parityscope.checks._arriving import has_arrived_right, unless_arrived
from parityscope.checks._common import HALVED, STANDS_IN, format_percent
from parityscope.checks._examples import PICTURE, picture_arrays
from parityscope.checks._reproducing import NEAR, nonsense_fits, unless_one_answer, wrong_samples
from parityscope.checks.preprocessing.images import image_of, image_steps
from parityscope.checks.preprocessing.placings import pictures_of, placing_steps, recognise_placing
from parityscope.checks.preprocessing.repairing import describe_precision, repair_details, repairs_of
from parityscope.checks.preprocessing.searching import PreprocessingQuestion, search_preprocessing
from parityscope.checks.preprocessing.steps import ORIGINAL, UNEXPLAINED, apply_steps, describe_steps, model_inputs
from parityscope.checks.preprocessing.tokens import token_steps, tokens_of
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks.preprocessing.images import Image
    from parityscope.checks.preprocessing.searching import SearchResult
    from parityscope.checks.preprocessing.steps import PreprocessingStep
    from parityscope.checks.preprocessing.walking import StepsTrial
    from parityscope.examination import Examination


_SAMPLES = 4  # chosen: the search runs on the worst, what it accepts must hold on all
_IMAGES = 3  # chosen: inputs that look like images and are examined; each costs about 100 runs
_RUNS = 1000  # inferences that a search may take; chosen: ten times the number of single steps
_NO_RECIPE: Mapping[str, Any] = MappingProxyType({})
_TELLS = 0.5  # of what inputs without content leave; chosen: what leaves more may be no more than a network that says nothing
_MOVES = frozenset({"mirrored", "turned", "channels", "layout"})  # slots of steps that only move elements


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if known.verdict == "within" or not bench.samples:
        return
    chosen = bench.samples[:_SAMPLES]
    samples = [dict(bench.inputs(index)) for index in chosen]
    pictures = pictures_of(known, chosen, _image_inputs(samples[0])[:_IMAGES], samples)
    steps = [*_list_steps(samples), *pictures.steps]
    if not steps:
        return
    samples = [{**sample, **pictures.of(place)} for place, sample in enumerate(samples)]
    claim = Claim(
        words="the deployment prepares its inputs in another way than the reference",
        predicts=Prediction(
            change=f"the reference runs on transformed inputs: {len(steps)} single steps, then compositions, "
            f"{_RUNS:,} runs at most",
            measure="worst relative L2 of reference(T(x)) against the candidate over outputs and samples",
            if_true="for some T, what the declared arithmetic explains (or a thousandth of the error without T)",
            if_false="no T comes near",
        ),
        cost_s=10.0,
        test=lambda: _test_claim(known, bench, samples, steps, pictures.recipe),
    )
    yield unless_arrived(known, bench)(claim)
    if has_arrived_right(known):
        return
    images = _image_inputs(samples[0])
    if images and pictures.problem and known.own is None:
        yield _claim_not_examined(
            "the deployment resizes, antialiases, crops or letterboxes in another way", pictures.problem, pictures.fix
        )
    if len(images) > _IMAGES:
        rest = ", ".join(image.name for image in images[_IMAGES:])
        why = f"{_IMAGES} images are examined at most"
        yield _claim_not_examined(
            f"the deployment prepares {rest} in another way", why, "compare the recorded inputs (PRE002)"
        )


def _image_inputs(sample: Mapping[str, np.ndarray]) -> list[Image]:
    return [image for name, array in model_inputs(sample).items() if (image := image_of(name, array)) is not None]


def _list_steps(samples: Sequence[Mapping[str, np.ndarray]]) -> list[PreprocessingStep]:
    """Every step for every input that is examined."""
    found = [step for image in _image_inputs(samples[0])[:_IMAGES] for step in image_steps(image, samples)]
    tokens = tokens_of(samples[0])
    return [*found, *(token_steps(tokens, samples) if tokens is not None else [])]


def _test_claim(
    known: Examination,
    bench: Bench,
    samples: Sequence[Mapping[str, np.ndarray]],
    steps: Sequence[PreprocessingStep],
    recipe: Mapping[str, Any],
) -> Shown:
    candidate = [dict(bench.candidate(index)) for index in bench.samples[: len(samples)]]
    bounds = {
        pair.site.tensor: margin_of(known.declared) * _expected_error(pair.expected, known.declared)
        for pair in known.outputs
        if all(_is_float(arrays.get(pair.site.tensor)) for arrays in candidate)
    }
    if not bounds:
        raise ParityError("the candidate gave no output of floats on the samples tried", fix="record float outputs")
    question = PreprocessingQuestion(
        samples=samples,
        candidate=candidate,
        run=lambda inputs: _run_reference(bench, inputs),
        bounds=bounds,
        runs=_RUNS,
        kept=bench.kept,
        align=make_aligner(known.policy),
        honest=None if bench.honest is None else lambda inputs: _run_honest(bench, inputs),
        margin=margin_of(known.declared),
    )
    found = search_preprocessing(question, steps)
    wrong = wrong_samples(known, bench)
    if found.best is not None and wrong and all(nonsense_fits(known, bench, index) for index in wrong):
        found = replace(found, certain=False)
    seen = Shown(
        because=_describe_search(found, len(samples)),
        outcome="supports" if found.best else ("inconclusive" if found.left_out else "refutes"),
        before=found.before,
        after=found.after,
    )
    if found.best is not None:
        shown = _show_finding(known, samples[0], found, seen, recipe)
        shown = replace(shown, correction=_make_correction(found.best))
        # An overflow inside the network ends what any input tells, and inputs that make one reproduce it.
        return unless_one_answer(known, bench, shown) if found.honest else shown
    return replace(seen, nearest=_nearest_steps(known, question, found, seen))


def _tells_of_inputs(question: PreprocessingQuestion, near: StepsTrial) -> bool:
    """Whether inputs that were prepared so come nearer to the candidate than inputs without content do, on every sample.

    A network that gives little on has nearly one answer to all that it does not know, and every preparation that it was not
    trained for comes near to that.
    """
    for index, sample in enumerate(question.samples):
        prepared, own = apply_steps(near.steps, sample), model_inputs(sample)
        if not any(map(_is_float, own.values())):
            continue  # token ids have no level
        blank = [_left_of(question, {**own, **_without_content(own, level)}, index) for level in (0.0, 1.0)]
        left = math.inf if prepared is None else _left_of(question, model_inputs(prepared), index)
        if left > _TELLS * min(blank):
            return False
    return True


def _without_content(arrays: Mapping[str, np.ndarray], level: float) -> Mapping[str, np.ndarray]:
    """Floats that are the same everywhere: so many times their mean."""
    return {
        name: np.full_like(array, level * float(array.mean(dtype=np.float64)))
        for name, array in arrays.items()
        if _is_float(array)
    }


def _left_of(question: PreprocessingQuestion, inputs: Mapping[str, np.ndarray], index: int) -> float:
    """The worst relative L2 error of the reference on these inputs against what the candidate gave on a sample."""
    given = question.run(inputs)
    return math.inf if given is None else question.measured(given, index)[0]


def _nearest_steps(
    known: Examination, question: PreprocessingQuestion, found: SearchResult, seen: Shown
) -> NearMiss | None:
    """The steps that come nearest, should what they leave have another cause."""
    near = found.nearest
    correction = None if near is None else _make_correction(near)
    if near is None or correction is None or correction.rough or found.after >= found.before * (1.0 - NEAR) ** 0.5:
        return None
    if not _tells_of_inputs(question, near):  # what costs runs comes last
        return None
    told = replace(found, best=near, exact=False)
    left = replace(seen, because=_describe_search(told, 1))
    shown = _show_finding(known, question.samples[0], told, left)
    return NearMiss(shown=replace(shown, correction=correction), tried=found.runs, distinct=_is_distinct(near))


def _is_distinct(trial: StepsTrial) -> bool:
    """Whether nothing lies near it: between two orders of elements lies nothing, between two scales there is every other."""
    return len(trial.steps) == 1 and trial.steps[0].slot.rpartition(":")[2] in _MOVES


def _may_stand_in(found: SearchResult, best: StepsTrial, details: Mapping[str, Any]) -> bool:
    """Whether something else may do what the steps do nearly: a scale in the network is near many a scale of its inputs.

    What prepares the original images again is near nothing else, and libraries round it in their own ways; nor is a scale that
    is another for each channel, as a data set's deviations are.
    """
    prepared = any(step.base is not None for step in best.steps) or len(set(details.get("divide", ()))) > 1
    return not found.exact and not prepared and not _is_distinct(best)


def _make_correction(trial: StepsTrial) -> Correction | None:
    """None where the original images would have to be prepared again."""
    if any(step.base is not None for step in trial.steps):
        return None

    def changed(
        _: int, arrays: Mapping[str, np.ndarray], __: Mapping[str, np.ndarray] | None
    ) -> Mapping[str, np.ndarray]:
        return apply_steps(trial.steps, arrays) or arrays

    rough = any(step.leaves > UNEXPLAINED for step in trial.steps)
    return Correction(words=f"is given other inputs: {describe_steps(trial.steps)}", inputs=changed, rough=rough)


def _run_reference(bench: Bench, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
    """The reference's outputs; None where it cannot take such inputs, as with ids beyond its vocabulary."""
    try:
        return bench.outputs(inputs)
    except ParityError:
        return None


def _run_honest(bench: Bench, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
    """What an honest deployment gives; None where it cannot take such inputs."""
    if bench.honest is None:
        return None
    try:
        return bench.honest(inputs)
    except ParityError:
        return None


def _expected_error(expected: Mapping[str, float], declared: str) -> float:
    found = expected.get(declared, expected.get("f32", FLOAT32_ROUNDING))
    return max(found, FLOAT32_ROUNDING) if np.isfinite(found) else FLOAT32_ROUNDING


def _is_float(array: np.ndarray | None) -> bool:
    return array is not None and array.size > 0 and np.issubdtype(np.asarray(array).dtype, np.floating)


def _describe_search(found: SearchResult, samples: int) -> str:
    left = f"; {found.left_out} compositions were left out" if found.left_out else ""
    tried = f"{found.runs} transformations were tried on one sample"
    if found.best is None:
        near = (
            f"; the nearest ({describe_steps(found.nearest.steps)}) leaves {format_percent(found.after)}"
            if found.nearest
            else ""
        )
        return f"{tried}: none reproduces the candidate, whose error is {format_percent(found.before)}{near}{left}"
    who = "an honest deployment" if found.honest else "the reference"
    without = format_percent(found.before) if np.isfinite(found.before) else "NaN or Inf on one side only"
    so = (
        f"with it {who} reproduces the candidate to {format_percent(found.after)} on {samples} "
        f"sample{'s' if samples > 1 else ''} (the worst), without it to {without}"
    )
    return f"{so}; {tried}{left}"


def _show_finding(
    known: Examination,
    sample: Mapping[str, np.ndarray],
    found: SearchResult,
    seen: Shown,
    recipe: Mapping[str, Any] = _NO_RECIPE,
) -> Shown:
    best = found.best
    if best is None:
        raise ValueError("nothing was found")
    words = describe_steps(best.steps)
    others = [describe_steps(other.steps) for other in found.others]
    also = f" These samples cannot tell it from: {'; '.join(others)}." if others else ""
    rest = (
        "" if found.exact else " What is left is more than the declared arithmetic explains: something else adds to it."
    )
    if not found.exact and any(step.leaves > UNEXPLAINED for step in best.steps):
        rest = " What is left is more than the declared arithmetic explains: another library's rounding, or something else."
    doubt = "" if found.certain else " These outputs tell so little that it may be an accident."
    mapped = repair_details(best.steps, sample)
    stands_in = _may_stand_in(found, best, mapped)
    surest = (1.0 - found.chance) * (STANDS_IN if stands_in else 1.0)
    details: dict[str, Any] = {
        "steps": [step.key for step in best.steps],
        "words": words,
        "parameter": "+".join(step.key for step in best.steps),
        "cannot_be_told_from": others,
        "before": found.before,
        "after": found.after,
        "runs": found.runs,
        "left_out": found.left_out,
        **mapped,
        **({"recipe": dict(recipe)} if recipe and any(step.base is not None for step in best.steps) else {}),
    }
    return replace(
        seen,
        # What an accident may have made, or another change near by, is a possibility beside others.
        role="cause" if found.certain and not stands_in else "contributing",
        sentence=f"{words[0].upper()}{words[1:]}: {seen.because}.{also}{rest}{doubt}{describe_precision(known.outputs)}",
        confidence=surest if found.certain else 0.5 * (1.0 - found.after / found.before) / (1 + len(found.others)),
        confidence_from="one minus the chance of an accident among that many trials" + (HALVED if stands_in else "")
        if found.certain
        else "half of the part of the error that is gone, over the preparations that leave as little",
        share=_explained_share(found),
        repairs=repairs_of(details, best.steps, "take that step out of the deployment's preprocessing"),
        details=details,
    )


def _explained_share(found: SearchResult) -> float | None:
    """The part of the error that is explained, in squares; none is claimed of what may be an accident."""
    if not found.certain:
        return None
    return 1.0 if found.exact else max(0.0, 1.0 - (found.after / found.before) ** 2)


def describe_inputs(
    details: Mapping[str, Any], sample: Mapping[str, np.ndarray], image: np.ndarray
) -> Mapping[str, np.ndarray]:
    """What a finding's details say that the deployment made of an image (uint8, RGB) for which the reference has `sample`.

    Raises:
        ValueError: the details name steps that these inputs do not allow.
    """
    (seen,) = _image_inputs(sample)
    placed = recognise_placing([image], [sample[seen.name]], seen.axis)
    steps = {step.key: step for step in (*_list_steps([sample]), *placing_steps(seen, placed))}
    named = [str(key) for key in details["steps"]]
    made = (
        apply_steps(tuple(steps[key] for key in named), {**sample, ORIGINAL: image})
        if set(named) <= set(steps)
        else None
    )
    if made is None:
        raise ValueError(f"these inputs do not allow {', '.join(named)}")
    return model_inputs(made)


def _claim_not_examined(claim: str, why: str, fix: str) -> Claim:
    """An experiment that cannot be made from what is there: it ends as what was not examined."""

    def test() -> Shown:
        raise ParityError(f"not examined: {why}", fix=fix)

    return Claim(
        words=claim,
        predicts=Prediction(
            change="prepare the original inputs in other ways",
            measure="distance of the reference's outputs from the candidate's",
            if_true="it vanishes",
            if_false="it does not",
        ),
        cost_s=10.0,
        test=test,
    )


_CONSTANTS, _X = picture_arrays(21)
_BLUE_FIRST = [2, 1, 0]


def _inputs_in_bytes(samples: Sequence[Mapping[str, np.ndarray]]) -> Sequence[Mapping[str, np.ndarray]]:
    return [{"x": sample["x"][:, _BLUE_FIRST] * np.float32(255)} for sample in samples]


def _add_noise(samples: Sequence[Mapping[str, np.ndarray]]) -> Sequence[Mapping[str, np.ndarray]]:
    noise = np.random.default_rng(22).random((1, 3, 16, 16), np.float32)
    return [{"x": 0.5 * (sample["x"] + noise)} for sample in samples]


CHECK = Check(
    code="PRE001",
    title="The deployment prepares its inputs in another way",
    propose=_propose_claims,
    holds=(Example(model=PICTURE, inputs=_X, inputs_fault=_inputs_in_bytes, constants=_CONSTANTS),),
    holds_not=(
        Example(model=PICTURE, inputs=_X, candidate="sim:bf16", constants=_CONSTANTS),
        Example(model=PICTURE, inputs=_X, candidate="sim:bf16", declared="f32", constants=_CONSTANTS),
        # Another image is no transformation of this one.
        Example(model=PICTURE, inputs=_X, inputs_fault=_add_noise, constants=_CONSTANTS),
    ),
)
