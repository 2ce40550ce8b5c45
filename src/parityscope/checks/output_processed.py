"""An output was processed once more than the model says, or once less.

What goes wrong: the sigmoid or the softmax is in the model and in the program as well, or in neither; logits are taken for
probabilities; vectors are normalized on one side only; results are written in percent, as whole numbers or with two decimals;
class numbers begin at one; boxes are written as centre and size; a quantized output is turned back with another scale or zero
point.

How it shows: outputs in another range, in every precision alike; the intermediate tensors, if there are any, are right up to the
end.

How we test for it: no run. A sigmoid, a softmax, an exponential and normalizations of rows (to length one, to a sum of one, by
the largest, to mean zero and variance one) are applied to the reference's output, and to the candidate's; and one factor, or one
number added, is fitted to all elements of all samples at once. A claim is accepted if what is left of the error is what the
declared arithmetic explains, on every wrong sample looked at. Each wrong field (an index of the last axis, or of the second) is
also taken as a sum of a few of the model's: a box as centre and size for one of corners. That numbers were rounded or cut to so
many decimals is seen in the candidate's values, which all lie on that grid.

What it is confused with: a last layer that computes another function, which looks the same from outside; where layers were
captured and the error begins before the last one, nothing is claimed. A network without a bias hands a factor of its inputs
on to its outputs (PRE001); one more run tells whether this one does, and then a factor is told as a possibility.

How to repair: find what stands between the engine and what was recorded, and take that step out, or put it in.

Sources: PyTorch's manual (BCEWithLogitsLoss, CrossEntropyLoss: functions that training has and an export may lack);
sentence-transformers, `normalize_embeddings`; COCO's class numbers, which begin at one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import is_recording
from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_percent
from parityscope.checks._correcting import leave_outputs_out
from parityscope.checks._reproducing import (
    Misfit,
    bad_samples,
    limit_of,
    part_of_error,
    show_as_possible,
    show_refuted,
    show_supported,
)
from parityscope.checks.misreading.processing import explain_processing
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]

_SURE = 0.8  # chosen: the last layer may compute so itself


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if bench.graphs is not None and not is_recording(known.candidate):
        return  # what was run is a file: all that it does stands in it
    for pair in known.beyond:
        if _begins_at_the_end(known, pair.site.tensor):
            yield _make_claim(known, bench, pair.site.tensor)


def _begins_at_the_end(known: Examination, output: str) -> bool:
    """Whether nothing says that the error begins before the output."""
    suspects = known.localization.suspects if known.localization else ()
    return not suspects or suspects[0].site.tensor == output


def _make_claim(known: Examination, bench: Bench, output: str) -> Claim:
    return Claim(
        site=known.places.get(output) or Site(tensor=output, node="", op_type="Input", index=-1),
        words=f"output {output} went through a step more or less than the model says",
        predicts=Prediction(
            change="none: apply such steps to the reference's output, and to the candidate's",
            measure="relative L2 distance of the two",
            if_true="it falls to what the declared arithmetic explains",
            if_false="it stays far above",
        ),
        cost_s=0.02,
        runs="nothing",
        test=lambda: _test_claim(known, bench, output),
    )


def _test_claim(known: Examination, bench: Bench, output: str) -> Shown:
    limit = limit_of(known, output)
    pairs = []
    for index in bench.samples:
        reference, candidate = bench.reference(index).get(output), bench.candidate(index).get(output)
        if reference is None or candidate is None or reference.shape != candidate.shape:
            return show_refuted(None, f"sample {index} has no output to compare")
        if distance_between(reference, candidate) > limit:
            pairs.append((reference, candidate))
    if not pairs:
        return show_refuted(None, "no sample of this output is wrong")
    worst = max(distance_between(reference, candidate) for reference, candidate in pairs)
    before = Misfit(error=worst, over=worst / limit)
    found = explain_processing(pairs, limit)
    if found is None:
        return show_refuted(before, "no step that is known makes the one of the other")
    if pairs[0][0].dtype.kind == "f" and not bad_samples(known, bench):
        return show_refuted(before, "so few values are met by chance")
    because = (
        f"so it is on {len(pairs)} samples, where the error falls from {format_percent(worst)} to "
        f"{format_percent(found.error)}"
    )
    after = Misfit(error=found.error, over=found.error / limit)
    share = after.share(before)
    shown = replace(
        show_supported(before, after, because),
        sentence=f"Output {output} {found.words}; {because}.",
        confidence=_SURE * share,
        confidence_from="0.8 of the part of the squared error that is gone: the last layer may compute so itself",
        share=share * part_of_error(known, bench, {output}),
        repairs=[("same_steps", f"do the same to {output} on both sides, between the engine and what is compared")],
        details={"output": output, "step": found.words},
        correction=leave_outputs_out((output,)),
    )
    if not found.factor or not _is_handed_on(known, bench, output):
        return shown
    return replace(
        show_as_possible(shown, "this network hands a factor of its inputs on to its outputs"),
        confidence=0.5 * _SURE * share,
        correction=None,
    )


def _is_handed_on(known: Examination, bench: Bench, output: str) -> bool:
    """Whether inputs twice as large make an output twice as large: then a factor of the one is one of the other."""
    index = bench.samples[0]
    doubled = {name: array * 2 if array.dtype.kind == "f" else array for name, array in bench.inputs(index).items()}
    try:
        found = bench.outputs(doubled).get(output)
    except ParityError:
        return False
    reference = bench.reference(index).get(output)
    return (
        found is not None
        and reference is not None
        and distance_between(reference * 2, found) <= limit_of(known, output)
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,12] x) => (float[2,12] y) { y = LAST(x) }"""
_SOFTMAX, _SIGMOID, _PLAIN = (
    _MODEL.replace("LAST", name) for name in ("Softmax<axis = 1>", "Sigmoid", "LeakyRelu<alpha = 0.1>")
)
_IDS = """<ir_version: 8, opset_import: ["" : 17]> g (float[40,12] x) => (int64[40] y) {
  y = ArgMax<axis = 1, keepdims = 0>(x)
}"""
_BOXES = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,20,4] x) => (float[2,20,4] y) { y = Sigmoid(x) }"""
_RNG = np.random.default_rng(67)
_X = {"x": _RNG.normal(size=(2, 12)).astype(np.float32)}
_SCENES = {"x": _RNG.normal(size=(2, 20, 4)).astype(np.float32)}
_MANY = {"x": _RNG.normal(size=(40, 12)).astype(np.float32)}


def _deployment_changing(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Samples], Samples]:
    return lambda samples: [{"y": change(each["y"]).astype(each["y"].dtype)} for each in samples]


def _apply_sigmoid(array: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-array)))


def _centre_and_size(boxes: np.ndarray) -> np.ndarray:
    low, high = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([(low + high) / 2, high - low], axis=-1)


CHECK = Check(
    code="BND005",
    title="An output was processed once more, or once less",
    propose=_propose_claims,
    holds=(
        Example(model=_SIGMOID, inputs=_X, outputs_fault=_deployment_changing(_apply_sigmoid), site="y"),
        Example(model=_SIGMOID, inputs=_X, outputs_fault=_deployment_changing(lambda y: np.log(y / (1 - y))), site="y"),
        Example(model=_SOFTMAX, inputs=_X, outputs_fault=_deployment_changing(np.log), site="y"),
        Example(model=_SOFTMAX, inputs=_X, outputs_fault=_deployment_changing(lambda y: np.log(y) + 3), site="y"),
        Example(model=_SOFTMAX, inputs=_X, outputs_fault=_deployment_changing(lambda y: y * 100), site="y"),
        Example(model=_SOFTMAX, inputs=_X, outputs_fault=_deployment_changing(lambda y: np.round(y, 2)), site="y"),
        Example(model=_PLAIN, inputs=_X, outputs_fault=_deployment_changing(lambda y: y + 0.03), site="y"),
        Example(
            model=_PLAIN,
            inputs=_X,
            outputs_fault=_deployment_changing(lambda y: y / np.linalg.norm(y, axis=-1, keepdims=True)),
            site="y",
        ),
        Example(
            model=_SIGMOID,
            inputs=_X,
            outputs_fault=_deployment_changing(lambda y: y / y.sum(axis=-1, keepdims=True)),
            site="y",
        ),
        Example(model=_IDS, inputs=_MANY, outputs_fault=_deployment_changing(lambda y: y + 1), site="y"),
        Example(model=_BOXES, inputs=_SCENES, outputs_fault=_deployment_changing(_centre_and_size), site="y"),
    ),
    holds_not=(
        Example(model=_PLAIN, inputs=_X, candidate="sim:bf16", declared="f32"),
        Example(model=_PLAIN, inputs=_X, outputs_fault=_deployment_changing(np.tanh)),
        Example(model=_PLAIN, inputs=_X, outputs_fault=_deployment_changing(lambda y: y * 0)),
        Example(model=_PLAIN, inputs=_X, outputs_fault=_deployment_changing(lambda y: y[:, ::-1])),
        Example(model=_IDS, inputs=_MANY, outputs_fault=_deployment_changing(lambda y: 11 - y)),
        Example(model=_BOXES, inputs=_SCENES, outputs_fault=_deployment_changing(lambda y: y[..., :1] * y)),
    ),
)
