"""Formats -> expected error per tensor; the noise floor and the grades.

A tensor's grade is the finest arithmetic whose *expected* error on these samples covers the measured one:

* `f32`: the noise floor, how far two honest FP32 evaluations are expected and measured to be apart (`noise`).
* `tf32`, `f16`, `bf16`: the reference simulated with that format's *rounding*, its range left as FP32's. Loss of range
  (overflow, underflow to zero) is not rounding and is never excused by a grade. Where a simulation gives NaN or
  infinity and the reference does not, nothing is expected: an infinite error would excuse every other.

* `int8`: the reference with the operands of its products quantized to INT8, by scales of these samples
  (`backends.calibrating`). It is computed where it is declared.

A measured error may exceed the expected one by a margin and still have that grade; the margins are constants below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.arithmetic import format_named
from parityscope.arithmetic.quantized import QUANTIZED
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.recording import Progress, silent
from parityscope.backends.sizing import plan_chunks
from parityscope.comparison import measure_pair
from parityscope.comparison.rows import Align, as_given
from parityscope.comparison.statistics import scaled
from parityscope.errors import ParityError
from parityscope.noise import FLOAT32_ROUNDING, noise_floor
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.case import Inputs, Model, Sample
    from parityscope.comparison import Statistics
    from parityscope.records import Grade
    from parityscope.trace import Trace

__all__ = [
    "FLOAT32_ROUNDING",
    "FORMATS",
    "Expectation",
    "distance",
    "expect_outputs",
    "expect_tensors",
    "grade_of",
    "graded_error",
    "margin_of",
]

FORMATS = ("tf32", "f16", "bf16")

# Final outputs of real engines lie within a factor of two of the simulated rounding error (measured on FP16 engines:
# per tensor 0.91 to 1.11 of it; accumulation order moves it by a few percent).
_FORMAT_MARGIN = 2.0

# Measured with bench/noise_floor.py, float tensors of more than 64 elements: ONNX Runtime against OpenVINO in FP32 and
# against itself unoptimized, on the PP-OCRv4 detector, recogniser and angle classifier (1113 tensors). The error of a
# tensor over its floor had medians of 0.2 to 0.8 (one pair: 1.45), 99th percentiles of up to 1.7, and was 1.7 at most.
# The margin is twice that, rounded up, for kernels that were not measured (Winograd's) and tensors of few elements. It
# hides no TF32: with TF32 products nine of ten tensors there were more than 200 floors away.
_FLOAT32_MARGIN = 4.0

# Of the samples, so many are enough for the floor: relative to the tensor it hardly depends on the data. Chosen.
_FLOOR_SAMPLES = 2
_UNOPTIMIZED = Target(backend="ort", options=(("optimization", "disabled"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Expected relative L2 error by format and tensor ("f32" is the noise floor), and what could not be predicted."""

    errors: Mapping[str, Mapping[str, float]]
    skipped: tuple[Skip, ...] = ()

    def of(self, tensor: str) -> dict[str, float]:
        """Expected error of one tensor by format."""
        return {name: found[tensor] for name, found in self.errors.items() if tensor in found}


def distance(statistics: Statistics) -> float:
    """The error that grades are about: relative L2 for floats, share of unequal elements for everything else."""
    return statistics.rel_l2 if statistics.is_float else statistics.mismatch_share


def graded_error(statistics: Statistics) -> float:
    """`distance`; of floats whose reference is zero everywhere their root mean square, in the tensor's own unit.

    Relative to nothing every error is infinite, and a bug as large as a rounding.
    """
    floats = statistics.floats
    if floats is None or floats.disagreeing or floats.moments.reference2 or not floats.finite:
        return distance(statistics)
    return scaled(math.sqrt(floats.moments.error2 / floats.finite), floats.moments.exponent)


def grade_of(measured: float, expected: Mapping[str, float]) -> Grade:
    """The finest arithmetic that covers `measured`; "beyond" when none does."""
    order: tuple[Grade, ...] = ("f32", "tf32", "f16", "bf16", "int8")
    for name in order:
        if name in expected and measured <= margin_of(name) * expected[name]:
            return name
    return "beyond"


def margin_of(name: str) -> float:
    """How many times the expected error still has the grade `name`."""
    return _FLOAT32_MARGIN if name == "f32" else _FORMAT_MARGIN


def expect_outputs(
    model: Model,
    inputs: Inputs,
    samples: Sequence[int],
    formats: Sequence[str] = FORMATS,
    progress: Progress = silent,
    align: Align = as_given,
) -> Expectation:
    """Expected error of every output, over `samples` together, in each format and for FP32 itself.

    `align` puts what was found beside what was expected, where rows have no order of their own.
    """
    names = [value.name for value in model.outputs]
    chosen = [inputs.sample(index) for index in samples]
    try:
        with open_target(model, Target(backend="ort"), Capture()) as session:
            reference = [session.run(sample) for sample in chosen]
    except ParityError as error:
        return Expectation(errors={}, skipped=(_unpredicted("the reference", error),))
    position = {index: place for place, index in enumerate(samples)}
    floor = noise_floor(
        model,
        inputs,
        samples[:_FLOOR_SAMPLES],
        names,
        reference=lambda index, name: reference[position[index]].get(name),
        progress=progress,
        align=align,
    )
    # Inputs and constants that are outputs as well: nothing computes them.
    handed_on = dict.fromkeys((name for name in names if name not in model.sites), FLOAT32_ROUNDING)
    errors: dict[str, dict[str, float]] = {"f32": handed_on | dict(floor.errors)}
    skipped = list(floor.skipped)
    plain: tuple[tuple[str, str], ...] = ()
    if floor.moved:  # by a bug of the optimizer: what a format costs is then told from the model as it stands
        plain = _UNOPTIMIZED.options
        with open_target(model, _UNOPTIMIZED, Capture()) as session:
            reference = [session.run(sample) for sample in chosen]
    for step, name in enumerate(formats):
        progress("predicting", step, len(formats))
        try:
            target = _target(name, model, chosen, plain)
            found = _output_errors(model, target, chosen, reference, names, align)
            errors[name], lost = _foreseen(name, found)
            skipped += lost
        except ParityError as error:
            skipped.append(_unpredicted(name, error))
    progress("predicting", len(formats), len(formats))
    errors["f32"] = _no_less_than_rounding(errors["f32"], errors.get("f16", {}))
    return Expectation(errors=errors, skipped=tuple(skipped))


def _no_less_than_rounding(floor: Mapping[str, float], half: Mapping[str, float]) -> dict[str, float]:
    """The FP32 floor of each output, and at least what rounding every tensor to FP32 does to first order.

    The model of the floor does not enter the bodies of Loop and Scan; the simulation does. Errors of rounding are
    proportional to the format's unit roundoff to first order, and no layer rounds less often than once.
    """
    scale = format_named("f32").unit_roundoff / format_named("f16").unit_roundoff
    known = {name: scale * value for name, value in half.items() if math.isfinite(value)}
    return {name: max(value, known.get(name, 0.0)) for name, value in floor.items()}


def expect_tensors(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    tensors: Sequence[str],
    *,
    formats: Sequence[str] = FORMATS,
    memory: int = 512 << 20,
    threads: int = 2,
    progress: Progress = silent,
) -> Expectation:
    """Expected error of every tensor of `tensors`, over the samples of the reference trace."""
    floor = noise_floor(
        model,
        inputs,
        reference.samples[:_FLOOR_SAMPLES],
        tensors,
        reference=lambda index, name: reference.get(index, name) if reference.has(index, name) else None,
        memory=memory,
        threads=threads,
        progress=progress,
    )
    errors: dict[str, dict[str, float]] = {"f32": dict(floor.errors)}
    skipped = list(floor.skipped)
    chunks = plan_chunks(model, inputs.sample(reference.samples[0]), tensors, memory // 2) if formats else []
    for step, name in enumerate(formats):
        progress("predicting tensors", step, len(formats))
        try:
            target = _target(name, model, [inputs.sample(index) for index in reference.samples])
            for chunk in chunks:
                found = _tensor_errors(model, inputs, reference, target, list(chunk), threads)
                errors.setdefault(name, {}).update(_foreseen(name, found)[0])
        except ParityError as error:
            skipped.append(_unpredicted(name, error))
    return Expectation(errors=errors, skipped=tuple(skipped))


def _target(name: str, model: Model, samples: Sequence[Sample], further: tuple[tuple[str, str], ...] = ()) -> Target:
    """What simulates a format on samples, with `further` options."""
    if name not in QUANTIZED:
        return _rounding(name, further)
    from parityscope.backends.calibrating import calibrated, quantized_target

    return quantized_target(name, calibrated(model, samples))


def _rounding(name: str, further: tuple[tuple[str, str], ...] = ()) -> Target:
    """The simulation of a format's rounding alone, its range left as FP32's, with `further` options."""
    return Target(backend="sim", precision=name, options=tuple(sorted((*further, ("range", "unbounded")))))


def _output_errors(
    model: Model,
    target: Target,
    samples: Sequence[Sample],
    reference: Sequence[Mapping[str, np.ndarray]],
    names: Sequence[str],
    align: Align,
) -> dict[str, Statistics]:
    totals: dict[str, Statistics] = {}
    with open_target(model, target, Capture()) as session:
        for sample, expected in zip(samples, reference, strict=True):
            found = align(expected, session.run(sample))
            for name in names:
                if name in found and found[name].shape == expected[name].shape:
                    part = measure_pair(expected[name], found[name], channel_axis=None)
                    totals[name] = totals[name].merge(part) if name in totals else part
    return totals


def _foreseen(number_format: str, totals: Mapping[str, Statistics]) -> tuple[dict[str, float], list[Skip]]:
    """The error of each tensor that a simulation foresees, and those of which it foresees none.

    Elements in which the reference alone is not finite say nothing about rounding.
    """
    errors, lost = {}, []
    for name, total in totals.items():
        if not total.nonfinite_candidate:
            errors[name] = total.rel_l2_finite if total.nonfinite_reference else graded_error(total)
            continue
        lost.append(
            Skip(
                what=f"expected error of {number_format} at {name}",
                reason="its rounding alone gives NaN or infinity where the reference does not",
                fix="ask where it begins: parityscope predict",
            )
        )
    return errors, lost


def _tensor_errors(
    model: Model, inputs: Inputs, reference: Trace, target: Target, names: list[str], threads: int
) -> dict[str, Statistics]:
    totals: dict[str, Statistics] = {}
    with open_target(model, target, Capture(tensors=tuple(names))) as session:
        for index in reference.samples:
            found = dict(session.run(inputs.sample(index)))
            for name in names:
                array = found.pop(name, None)
                if array is None or not reference.has(index, name):
                    continue
                expected = reference.get(index, name)
                if expected.shape == array.shape:
                    part = measure_pair(expected, array, channel_axis=None, threads=threads)
                    totals[name] = totals[name].merge(part) if name in totals else part
    return totals


def _unpredicted(name: str, error: ParityError) -> Skip:
    return Skip(what=f"expected error of {name}", reason=error.problem, fix=error.fix)
