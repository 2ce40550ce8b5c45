"""The deployment's own recorded inputs are not the reference's.

What goes wrong: both programs read the same images or texts, and prepare them in different ways. The tensors that enter the
two models were recorded, so that nothing has to be guessed.

How it shows: the outputs differ in every precision alike; given the same tensors, both models agree.

How we test for it: the two tensors are compared. What makes the one of the other is named: a step of preprocessing or two, a gain
and offset per channel with their order, mirroring or a shift, another way of resizing, a crop or a letterbox (exactly
where the image is known, else by laying one picture over the other), or the input of another sample. Then the
reference is run on the deployment's inputs: what of the candidate's error is gone is the share that the inputs explain.

What it is confused with: recordings of other samples (which is said, where it is one of those given). Inputs that are the same
refute every fault of preprocessing.

How to repair: correct the deployment's preprocessing: where the map is affine, `preprocess_in_code` writes it; or put it into
the model (`prepend_preprocessing`).

Sources: NVIDIA/TensorRT#3700 (the evaluations of both sides prepared their images in different ways). The fit:
checks/input_fit.py; the laying of one picture over the other: Lucas and Kanade, IJCAI 1981.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats.images import read_image
from parityscope.checks import Check, Claim, Correction, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._examples import PICTURE, picture_arrays
from parityscope.checks.preprocessing.naming import NamedDifference, name_difference
from parityscope.checks.preprocessing.repairing import affine_details, describe_precision, repairs_of
from parityscope.comparison.distance import distance_between
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.case.own import OwnInputs
    from parityscope.examination import Examination


_ROUNDING = 1e-6  # of the variance: what images that libraries round in their own ways differ by
_SAMPLES = 3  # chosen: a fault of preprocessing is the same in all of them


def _propose_claims(known: Examination, own: OwnInputs) -> Iterator[Claim]:
    yield Claim(
        words="the deployment's inputs are not the reference's",
        predicts=Prediction(
            change="the recorded inputs are compared, and the reference runs on them",
            measure="worst relative L2 of the reference's outputs against the candidate's, on its own inputs and on the recorded",
            if_true="the inputs differ, and on the recorded ones the reference gives what the candidate gave",
            if_false="the inputs are the same",
        ),
        cost_s=0.2,
        test=lambda: _test_claim(known, own),
    )


def _test_claim(known: Examination, own: OwnInputs) -> Shown:
    indices = (known.bench.samples if known.bench else known.inputs.indices)[:_SAMPLES]
    samples = {index: known.inputs.sample(index) for index in indices}
    named = []
    for index, sample in samples.items():
        others = {f"sample {each} ({one.name})": one.arrays for each, one in samples.items() if each != index}
        picture = None if sample.original is None else read_image(sample.original)
        named.append(name_difference(sample.arrays, own.read(index), others=others, picture=picture))
    differing = [place for place, one in enumerate(named) if one.words]
    if not differing:
        because = f"on {len(named)} samples the deployment's inputs are the reference's: nothing in front of the model differs"
        return _show_evidence("refutes", (0.0, 0.0), because)
    worst = named[differing[0]]
    before, after = _worst_errors(known, list(samples), named)
    because = _describe_errors(before, after, len(named), len(differing))
    seen = _show_evidence("supports", (before, after), because)
    finding = _show_finding(known, named, worst, seen, (before, after))
    taken = all(one.given is not None for one in named)
    return replace(finding, correction=_make_correction(own) if taken else None)


def _make_correction(own: OwnInputs) -> Correction:
    """The reference runs on what was recorded."""

    def changed(
        index: int, arrays: Mapping[str, np.ndarray], _: Mapping[str, np.ndarray] | None
    ) -> Mapping[str, np.ndarray]:
        return name_difference(arrays, own.read(index), others={}).given or arrays

    return Correction(words="is given the recorded inputs", inputs=changed)


def _show_evidence(outcome: Any, errors: tuple[float, float], because: str) -> Shown:
    return Shown(because=because, outcome=outcome, before=errors[0], after=errors[1])


def _worst_errors(known: Examination, indices: Sequence[int], named: Sequence[NamedDifference]) -> tuple[float, float]:
    """The worst error of the candidate against the reference on its own inputs, and on the deployment's.

    NaN where no run could tell: the outputs are within, or the model does not take the deployment's inputs.
    """
    if known.bench is None:
        return float("nan"), float("nan")
    before, after = 0.0, 0.0
    for index, one in zip(indices, named, strict=True):
        candidate = known.bench.candidate(index)
        before = max(before, _worst_distance(known, known.bench.reference(index), candidate))
        if one.given is None:
            after = float("nan")
            continue
        try:
            outputs = known.bench.outputs(one.given)
        except ParityError:
            after = float("nan")
            continue
        after = max(after, _worst_distance(known, outputs, candidate)) if np.isfinite(after) else after
    return before, after


def _worst_distance(
    known: Examination, outputs: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> float:

    outputs, candidate = make_aligner(known.policy)(outputs, candidate)
    return max(
        (distance_between(outputs[name], candidate[name]) for name in outputs if name in candidate),
        default=float("inf"),
    )


def _describe_errors(before: float, after: float, samples: int, differing: int) -> str:
    counted = f"the inputs of {differing} of {samples} samples differ"
    if not np.isfinite(before):
        return f"{counted}; given the same inputs, the outputs of both sides agree: what differs lies in front of the model"
    if np.isnan(after):
        return f"{counted}; the reference's model does not take the deployment's inputs as they are"
    return (
        f"{counted}; on the deployment's inputs the reference reproduces the candidate to {format_number(after)} (relative L2), "
        f"on its own to {format_number(before)}"
    )


def _show_finding(
    known: Examination,
    named: Sequence[NamedDifference],
    worst: NamedDifference,
    seen: Shown,
    errors: tuple[float, float],
) -> Shown:
    before, after = errors
    share = max(0.0, 1.0 - (after / before) ** 2) if before > 0 and np.isfinite(after) else None
    words = f"the deployment {worst.words}"
    other = [one.words for one in named if one.words not in {"", worst.words}]
    also = f" In other samples it {'; '.join(dict.fromkeys(other))}." if other else ""
    rest = (
        f" That leaves {format_percent(worst.left)} of the variance of its input."
        if _ROUNDING < worst.left < 1.0
        else ""
    )
    index = (known.bench.samples if known.bench else known.inputs.indices)[0]
    details: dict[str, Any] = {
        "words": words,
        "steps": [step.key for step in worst.steps],
        "parameter": worst.words,
        "left": worst.left,
        **({} if worst.given is None else affine_details(worst.given, known.inputs.sample(index).arrays)),
    }
    precision = describe_precision(known.outputs) if share is not None and share > 0.5 else ""
    return replace(
        seen,
        role="cause" if share is not None else "contributing",
        sentence=f"The recorded inputs say that {words}: {seen.because}.{also}{rest}{precision}",
        confidence=1.0 - worst.left / 2.0,
        confidence_from="the inputs were compared; less by half of the part of the variance that the words leave",
        share=share,
        repairs=repairs_of(details, worst.steps, "prepare the deployment's inputs as the reference's are"),
        details=details,
    )


_CONSTANTS, _X = picture_arrays(31)


def _inputs_in_bytes(samples: Sequence[Mapping[str, np.ndarray]]) -> Sequence[Mapping[str, np.ndarray]]:
    return [{"x": np.ascontiguousarray(sample["x"][:, ::-1]) * np.float32(255)} for sample in samples]


def _keep_samples(samples: Sequence[Mapping[str, np.ndarray]]) -> Sequence[Mapping[str, np.ndarray]]:
    return samples


def _double_outputs(outputs: Sequence[Mapping[str, np.ndarray]]) -> Sequence[Mapping[str, np.ndarray]]:
    return [{"y": one["y"] * np.float32(2)} for one in outputs]


CHECK = Check(
    code="PRE002",
    title="The deployment's recorded inputs are not the reference's",
    propose=_propose_claims,
    holds=(
        Example(model=PICTURE, inputs=_X, inputs_fault=_inputs_in_bytes, records_inputs=True, constants=_CONSTANTS),
    ),
    holds_not=(
        # The inputs are the same, and the outputs are wrong: the fault lies behind them.
        Example(
            model=PICTURE,
            inputs=_X,
            inputs_fault=_keep_samples,
            outputs_fault=_double_outputs,
            records_inputs=True,
            constants=_CONSTANTS,
        ),
        # Nothing was recorded.
        Example(model=PICTURE, inputs=_X, inputs_fault=_inputs_in_bytes, constants=_CONSTANTS),
    ),
)
