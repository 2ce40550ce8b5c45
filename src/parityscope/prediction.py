"""Formats -> expected error per tensor; the noise floor and the grades.

A tensor's grade is the finest arithmetic whose *expected* error on these samples covers the measured one:

* `f32`: the spread of equivalent evaluations of the reference (optimizer off, one thread, inputs moved by one unit in
  the last place), never less than one rounding of the result. Moving the inputs alone underestimates accumulation
  (by up to 270 times), which is why it is only one of the three.
* `tf32`, `f16`, `bf16`: the reference simulated with that format's *rounding*, its range left as FP32's. Loss of range
  (overflow, underflow to zero) is not rounding and is never excused by a grade.

A measured error may exceed the expected one by a margin and still have that grade; the margins are constants below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.recording import Progress, open_target, plan_chunks, silent
from parityscope.case import Sample
from parityscope.comparison import measure_pair
from parityscope.errors import ParityError
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.case import Inputs, Model
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
    "margin_of",
]

FORMATS = ("tf32", "f16", "bf16")

# Final outputs of real engines lie within a factor of two of the simulated rounding error (measured on FP16 engines:
# per tensor 0.91 to 1.11 of it; accumulation order moves it by a few percent).
_FORMAT_MARGIN = 2.0

# Between runtimes the summation order differs in every layer, while the three variants share most kernels. FP32 errors of
# two runtimes were 1 to 4 times the spread of one (measured: ONNX Runtime against OpenVINO); 10 is the factor of the
# float64 gate for tensors of few elements (numerics notes: m = 2-3, 10 below a thousand elements).
_FLOAT32_MARGIN = 10.0

# Half a unit in the last place: the least relative error that rounding one result to float32 can make.
FLOAT32_ROUNDING = 2.0**-24
_SEED = 20240229  # of the direction in which inputs are moved; any would do, a fixed one can be repeated


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


def grade_of(measured: float, expected: Mapping[str, float]) -> Grade:
    """The finest arithmetic that covers `measured`; "beyond" when none does."""
    order: tuple[Grade, ...] = ("f32", "tf32", "f16", "bf16")
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
) -> Expectation:
    """Expected error of every output, over `samples` together, in each format and for FP32 itself."""
    names = [value.name for value in model.outputs]
    chosen = [inputs.sample(index) for index in samples]
    try:
        with open_target(model, Target(backend="ort"), Capture()) as session:
            reference = [session.run(sample) for sample in chosen]
    except ParityError as error:
        return Expectation(errors={}, skipped=(_unpredicted("the reference", error),))
    errors: dict[str, dict[str, float]] = {}
    skipped = []
    variants = [*_float32_variants(), *((name, _rounding(name), False) for name in formats)]
    for position, (name, target, moved) in enumerate(variants):
        progress("predicting", position, len(variants))
        try:
            found = _output_errors(model, target, chosen, reference, names, moved=moved)
        except ParityError as error:
            skipped.append(_unpredicted(name, error))
            continue
        held = errors.setdefault(name, {})
        for tensor, size in found.items():
            held[tensor] = max(held.get(tensor, FLOAT32_ROUNDING if name == "f32" else 0.0), size)
    progress("predicting", len(variants), len(variants))
    return Expectation(errors=errors, skipped=tuple(skipped))


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
    errors: dict[str, dict[str, float]] = {}
    skipped = []
    chunks = plan_chunks(model, inputs.sample(reference.samples[0]), tensors, memory // 2)
    variants = [("f32", Target(backend="ort", options=(("optimization", "disabled"),)))]
    variants += [(name, _rounding(name)) for name in formats]
    for position, (name, target) in enumerate(variants):
        progress("predicting tensors", position, len(variants))
        try:
            for chunk in chunks:
                errors.setdefault(name, {}).update(
                    _tensor_errors(model, inputs, reference, target, list(chunk), threads)
                )
        except ParityError as error:
            skipped.append(_unpredicted(name, error))
    if "f32" in errors:
        errors["f32"] = {tensor: max(size, FLOAT32_ROUNDING) for tensor, size in errors["f32"].items()}
    return Expectation(errors=errors, skipped=tuple(skipped))


def _float32_variants() -> list[tuple[str, Target, bool]]:
    return [
        ("f32", Target(backend="ort", options=(("optimization", "disabled"),)), False),
        ("f32", Target(backend="ort", options=(("threads", "1"),)), False),
        ("f32", Target(backend="ort"), True),
    ]


def _rounding(name: str) -> Target:
    """The simulation of a format's rounding alone, its range left as FP32's."""
    return Target(backend="sim", precision=name, options=(("range", "unbounded"),))


def _output_errors(
    model: Model,
    target: Target,
    samples: Sequence[Sample],
    reference: Sequence[Mapping[str, np.ndarray]],
    names: Sequence[str],
    *,
    moved: bool,
) -> dict[str, float]:
    totals: dict[str, Statistics] = {}
    with open_target(model, target, Capture()) as session:
        for sample, expected in zip(samples, reference, strict=True):
            found = session.run(_moved(sample) if moved else sample)
            for name in names:
                if name in found and found[name].shape == expected[name].shape:
                    part = measure_pair(expected[name], found[name], channel_axis=None)
                    totals[name] = totals[name].merge(part) if name in totals else part
    return {name: distance(total) for name, total in totals.items()}


def _tensor_errors(
    model: Model, inputs: Inputs, reference: Trace, target: Target, names: list[str], threads: int
) -> dict[str, float]:
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
    return {name: distance(total) for name, total in totals.items()}


def _moved(sample: Sample) -> Sample:
    """The sample with every float input moved by one unit in the last place, up or down at random."""
    generator = np.random.default_rng(_SEED)
    arrays = {}
    for name, array in sample.arrays.items():
        if array.dtype.kind == "f":
            towards = np.where(generator.random(array.shape) < 0.5, -math.inf, math.inf).astype(array.dtype)
            finite = np.isfinite(array)
            arrays[name] = np.where(finite, np.nextafter(array, towards), array)
        else:
            arrays[name] = array
    return Sample(index=sample.index, name=sample.name, arrays=arrays, original=sample.original)


def _unpredicted(name: str, error: ParityError) -> Skip:
    return Skip(what=f"expected error of {name}", reason=error.problem, fix=error.fix)
