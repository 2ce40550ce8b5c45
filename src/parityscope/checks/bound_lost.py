"""A fused Clip lost a bound, told from outputs alone.

What goes wrong: the kernel that takes over a product and the activation behind it knows an activation with one bound, and
the other one is gone. TensorRT 10.12 and 10.13 make a ReLU of MatMul, Add and Clip(0, 6).

How it shows: outputs that are too large where activations saturate, in every precision alike; nothing fails.

How we test for it: the reference runs with a bound taken away: all upper bounds, those behind the same operators (a rule of a
fusion holds wherever it applies), and each alone. The prediction is the whole output vector and nothing in it is fitted. It is
accepted as everywhere: what is left is what the declared arithmetic explains, and a tenth of the error at most, on every
sample that is wrong. Where none is, pairs of bounds that have nothing to do with each other are tried, all where there are no
more than 20 bounds, else one that takes a part of the error away with those that would leave least beside it; then three.
Bounds are inputs, and what stands before the first that is lost is computed once.

What it is confused with: where tensors were captured the layer is looked at itself (FUS002), and this is not tried, unless
looking ended the fusion and the error with it (RUN002); a bound that no value of these samples reaches leaves no trace. Outputs
that are one answer to all samples are left so by any layer that hands nothing on: then it is one possibility.

How to repair: write the bound as Min and Max, keep the Clip out of the fusion, or update the runtime.

Sources: NVIDIA/TensorRT issues 4606 (MatMul, Add, Clip) and 3938 (Conv, Clip).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.bounds import without_bounds
from parityscope.backends import is_recording
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.checks import Check, Claim, Correction, Example, NearMiss, Prediction
from parityscope.checks._bounded_runs import BoundedRuns
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import (
    NEAR,
    RUN_S,
    Misfit,
    bad_samples,
    is_one_answer,
    measure_misfit,
    show_as_dead,
    show_refuted,
    show_supported,
)
from parityscope.checks.barriers import offer_barrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.arithmetic.bounds import Bound
    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Lost = tuple[Bound, ...]
    Run = Callable[[int, Lost], Mapping[str, np.ndarray]]

__all__ = ["CHECK"]

_MOST = 200  # chosen: bounds tried alone, and as many ways together; a network of 100 MFLOP runs 30 times a second
_AT_ONCE = 3  # unrelated bounds at most; chosen, no public report had more than one
_LEADING = 3  # of those that come nearest; chosen
_PARTNERS = 12  # of each of those, what would leave least beside it; chosen
_ANOTHER = 0.5  # of the error (chosen): an engine that looking changed by so much is another program
_SHOWN = 4  # bounds in a claim (chosen); the details hold them all


def _is_of_another_program(known: Examination) -> bool:
    """Whether what was seen inside is not the deployment's: looking changed the outputs by as much as they are wrong."""
    errors = [pair.value("rel_l2") for pair in known.outputs]
    return known.disturbance >= _ANOTHER * max((error for error in errors if not math.isnan(error)), default=math.inf)


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if known.localization is not None and not _is_of_another_program(known):
        return
    runs = BoundedRuns(known.model, bench.inputs)
    bounds = runs.bounds
    if not bounds:
        return
    tried = list(_list_hypotheses(bounds))

    def test() -> Shown:
        trial = _BoundsTrial(known, bench, runs.run)
        return _test_claim(trial, tried, bounds)

    yield Claim(
        words="a Clip or Relu lost a bound",
        predicts=Prediction(
            change=f"run the reference without a bound: {len(tried)} ways, then several bounds one beside the other",
            measure="worst relative L2 error of the outputs",
            if_true="one way reproduces the candidate on every wrong sample",
            if_false="none does",
        ),
        cost_s=RUN_S * len(tried),
        runs="reference",
        test=test,
    )


def _list_hypotheses(bounds: Sequence[Bound]) -> Iterator[Lost]:
    """Which bounds are lost together: rules of a fusion before single accidents, none of them twice."""
    upper, lower = [one for one in bounds if one.upper], [one for one in bounds if not one.upper]
    groups = [tuple(side) for side in (upper, lower)]
    for behind in dict.fromkeys(one.behind for one in bounds):
        groups += [tuple(one for one in side if one.behind == behind) for side in (upper, lower)]
    groups += [(one,) for one in (*upper, *lower)][:_MOST]
    yield from dict.fromkeys(group for group in groups if group)


class _BoundsTrial:
    """The reference with bounds taken away, held against the candidate."""

    def __init__(self, known: Examination, bench: Bench, run: Run) -> None:
        self.known, self.bench, self.run = known, bench, run
        self.samples = bad_samples(known, bench)
        self.before = {one: measure_misfit(known, bench.reference(one), bench.candidate(one)) for one in self.samples}
        self.left: dict[Lost, Misfit] = {}  # on the first sample, of all that was tried
        # The outputs there, of what came near and of each bound alone.
        self.given: dict[Lost, Mapping[str, np.ndarray]] = {}

    def measure(self, index: int, lost: Lost) -> Misfit:
        return measure_misfit(self.known, self.run(index, lost), self.bench.candidate(index))

    def worst(self, lost: Lost) -> Misfit | None:
        """What is left at most of the wrong samples; None if one of them is not explained."""
        first, *others = self.samples
        outputs = self.run(first, lost)
        left = [measure_misfit(self.known, outputs, self.bench.candidate(first))]
        self.left[lost] = left[0]
        if len(lost) == 1 or left[0].share(self.before[first]) >= NEAR:
            self.given[lost] = outputs
        if not left[0].explains(self.before[first]):
            return None
        for index in others:
            left.append(self.measure(index, lost))
            if not left[-1].explains(self.before[index]):
                return None
        return max(left, key=lambda one: one.over)

    def nearest(self, many: int) -> list[Lost]:
        """What leaves least on the first sample, of what takes a part of its error away."""
        before = self.before[self.samples[0]]
        near = [lost for lost, left in self.left.items() if left.share(before) >= NEAR]
        return sorted(near, key=lambda lost: self.left[lost].error)[:many]

    def partners(self, lost: Lost, bounds: Sequence[Bound]) -> list[Bound]:
        """The bounds that would leave least beside `lost` if both did together what each does, on the first sample."""
        reference, candidate = self.bench.reference(self.samples[0]), self.bench.candidate(self.samples[0])

        def left_beside(one: Bound) -> float:
            here, there = self.given[lost], self.given[(one,)]
            both = {name: _add_changes(array, here[name], there[name]) for name, array in reference.items()}
            return measure_misfit(self.known, both, candidate).error

        return sorted((one for one in bounds if one not in lost and (one,) in self.given), key=left_beside)


def _add_changes(before: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What two changes of a tensor would make together if neither knew of the other; the first where that says nothing."""
    if before.dtype.kind != "f" or not before.shape == one.shape == other.shape:
        return one
    with np.errstate(invalid="ignore"):
        return np.asarray(one + other - before)


def _test_claim(trial: _BoundsTrial, tried: list[Lost], bounds: Sequence[Bound]) -> Shown:
    if not trial.samples:
        return show_refuted(None, "no sample's outputs tell enough")
    before = max(trial.before.values(), key=lambda one: one.over)
    many = "1 sample" if len(trial.samples) == 1 else f"{len(trial.samples)} samples"
    for lost in itertools.chain(tried, _bounds_lost_together(trial, bounds)):
        after = trial.worst(lost)
        if after is not None:
            because = f"the error falls from {format_percent(before.error)} to {format_percent(after.error)} on {many}"
            shown = _show_finding(trial.known, lost, after.share(before), show_supported(before, after, because))
            if is_one_answer(trial.known, trial.bench):
                return show_as_dead(shown)
            return replace(shown, correction=_make_correction(lost))
    first = trial.before[trial.samples[0]]
    lost = min(trial.left, key=lambda one: trial.left[one].error)
    least = min(trial.left[lost], first, key=lambda one: one.error)
    because = (
        f"the nearest of {len(trial.left)} ways leaves {format_percent(least.error)} of {format_percent(first.error)}"
    )
    result = show_refuted(first, because, after=least.error)
    if least.share(first) < NEAR:
        return result
    left = replace(
        result, because=f"the error falls from {format_percent(first.error)} to {format_percent(least.error)}"
    )
    shown = _show_finding(trial.known, lost, least.share(first), left)
    return replace(
        result, nearest=NearMiss(shown=replace(shown, correction=_make_correction(lost)), tried=len(trial.left))
    )


def _bounds_lost_together(trial: _BoundsTrial, bounds: Sequence[Bound]) -> Iterator[Lost]:
    """Bounds lost without a common rule: all pairs where they are few, then what comes nearest with one more beside it."""
    pairs = list(itertools.combinations(bounds, 2))
    if len(pairs) <= _MOST:
        yield from (pair for pair in pairs if pair not in trial.left)
    for _ in range(_AT_ONCE - 1):
        for lost in trial.nearest(_LEADING):
            for one in trial.partners(lost, bounds)[:_PARTNERS]:
                more = tuple(bound for bound in bounds if bound in lost or bound is one)
                if more not in trial.left:
                    yield more


def _make_correction(lost: Lost) -> Correction:
    words = ", ".join(one.words for one in lost[:_SHOWN])
    return Correction(words=f"computes without {words}", model=lambda model: without_bounds(model, lost))


def _find_bounded(known: Examination, tensor: str) -> str:
    """What the node that gives `tensor` bounds: the result of another node, else ""."""
    node = next((one for one in known.model.graph().graph if any(value.name == tensor for value in one.outputs)), None)
    value = node.inputs[0] if node is not None and node.inputs else None
    return str(value.name) if value is not None and value.producer() is not None else ""


def _show_finding(known: Examination, lost: Lost, share: float, seen: Shown) -> Shown:
    more = len(lost) - _SHOWN
    listed = ", ".join(one.words for one in lost[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    together = {one.behind for one in lost}
    rule = f", all behind {together.pop()}" if len(lost) > 1 and len(together) == 1 and together != {""} else ""
    site = known.places.get(lost[0].tensor)
    read = _find_bounded(known, lost[0].tensor)
    return replace(
        seen,
        sentence=f"The candidate lost {listed}{rule}: without it the reference gives the same outputs, and {seen.because}.",
        confidence_from="the share of the error, in squares, that the lost bound explains with nothing fitted",
        site=site,
        share=share,
        repairs=(
            *([offer_barrier(known, [read])] if read else []),
            (
                "min_and_max",
                f"write the Clip or Relu that gives {lost[0].tensor!r} as Max and Min",
            ),
            *(
                # Of what made a recording nobody knows that there is another version.
                []
                if is_recording(known.candidate)
                else [("update_runtime", "run it in another version of the runtime")]
            ),
        ),
        details={
            "bounds": [{"tensor": one.tensor, "upper": one.upper, "value": one.value} for one in lost],
            "behind": lost[0].behind,
        },
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,32] x) => (float[4,8] y) {
  a = MatMul(x, w1)
  b = Add(a, b1)
  c = Clip(b, low, high)
  d = MatMul(c, w2)
  e = Relu(d)
  y = MatMul(e, w3)
}"""
_RNG = np.random.default_rng(93)
_CONSTANTS = {
    "w1": _RNG.normal(size=(32, 24)).astype(np.float32),
    "b1": _RNG.normal(size=24).astype(np.float32),
    "w2": _RNG.normal(size=(24, 16)).astype(np.float32),
    "w3": _RNG.normal(size=(16, 8)).astype(np.float32),
    "low": np.array(0, np.float32),
    "high": np.array(6, np.float32),
}
_X = {"x": _RNG.normal(size=(4, 32)).astype(np.float32)}


def _outputs_of_edited_text(edit: tuple[str, str]) -> Mapping[str, np.ndarray]:
    """What the model gives when its text is edited so."""
    import onnx_ir as ir
    from onnx import numpy_helper, parser

    model = parser.parse_model(_MODEL.replace(*edit))
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in _CONSTANTS.items())
    return open_session(ir.serde.deserialize_model(model), outputs=["y"])(_X)


CHECK = Check(
    code="FUS012",
    title="A Clip lost its bound",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            outputs_fault=lambda _: [_outputs_of_edited_text(("(b, low, high)", "(b, low)"))],
            site="c",
        ),
    ),
    holds_not=(
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            outputs_fault=lambda _: [_outputs_of_edited_text(("e = Relu(d)", "e = Tanh(d)"))],
        ),
        Example(model=_MODEL, inputs=_X, constants=_CONSTANTS, candidate="sim:bf16", declared="f32"),
    ),
)
