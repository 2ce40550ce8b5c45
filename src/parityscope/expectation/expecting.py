"""Formats -> the error to be expected of each tensor, and the FP32 noise floor: one pass over the network, all worlds together.

Each format is a world that rounds, held against the plain world beside it (`evaluation`). The noise floor is how far two honest
FP32 evaluations of a network are apart. Of each tensor, as relative L2 distance, over the samples together:

    floor² = 2 (propagated² + rounding²) + variation²,    never less than one rounding, 2^-24

* propagated: the errors that products and reductions are expected to make (`error_model`, the second
  moments of N. J. Higham and T. Mary's probabilistic analysis, SIAM J. Sci. Comput. 41, 2019), put on the tensors of one
  world `_GAIN` times as large as they are and carried on by the network itself (`disturbing`). Two
  evaluations make independent errors: hence the 2. Behind quantizers and other steps an error is that of the elements that
  cross an edge, as many more as it is larger, so that its square grows with the gain and not with its square: there a second
  world tells from which power on.
* rounding: 0.4247 · 2^-24, of whatever computes the tensor last.
* variation: the measured distance of an equivalent evaluation from the reference: nodes one by one, and the sums
  of all products with constant weights in a random order. It holds what the model leaves out (fusion, folded constants,
  other kernels). What it shares with the model is counted twice, which raises a floor by no more than a factor 1.42.

An optimizer with a bug is no equivalent evaluation. Where the variation is far beyond FP32's rounding the plain world is
held against itself with its sums in several orders; if these agree, their distance is the variation, and a Skip says so. (Not
in quantized graphs: computing in integers what is written in floats is another arithmetic, and what users of them expect.)

Inputs moved by one unit in the last place are no part of it: both sides are given the same inputs, and such a move says
nothing about accumulation (it is up to 270 times too small there).

Not covered: algorithms with larger constants than a sum of products (Winograd, FFT), and recurrent layers' inner sums.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import QUANTIZED, format_named
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.backends.sim import prepare_world
from parityscope.comparison.moments import scale_by_power
from parityscope.comparison.rows import Align, align_as_given
from parityscope.errors import ParityError
from parityscope.evaluation.machine import usable_cores
from parityscope.evaluation.program import Program, wide_program
from parityscope.evaluation.reordering import reordered_world
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.expectation.disturbing import disturbed_world
from parityscope.expectation.grades import BOTH_ROUND, FLOAT32_ROUNDING, FORMATS
from parityscope.expectation.metering import PLAIN, REORDERED, Meter, SamplePlace
from parityscope.expectation.records import FAR, Expectation, Reference
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.operators import with_trait
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.held_grids import HeldGrid
    from parityscope.case import Inputs, Model
    from parityscope.comparison import ReplayStatistics
    from parityscope.comparison.parts import Parts

# Of the disturbance. Large beside the rounding errors of the disturbed pass itself, which are of size 1, and small enough
# for linearity: an error of 4e-7 becomes 1e-4, less than TF32 makes. Chosen, a power of two.
_GAIN, _LESS_GAIN = 256.0, 16.0
_STEPS = with_trait("steps")
_STEPPED = 2.0  # times as large as where all is linear: then elements cross edges; chosen
_SEED = 20240229  # of the order of the sums; any would do, a fixed one can be repeated
# A choice between nearly equal values falls one way or the other with the rounding: that all of so many orders of the sums
# agree, and the optimized run alone does not, happens by chance in one of eight of those rare cases. Chosen.
_ORDERS = 3
# Of the samples, so many are enough for the floor: relative to the tensor it hardly depends on the data. Chosen.
_FLOOR_SAMPLES = 2
_DISTURBED, _LESS_DISTURBED = "disturbed", "disturbed-less"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorQuestion:
    """Of what the errors are to be told, over `samples` together.

    Args:
        model: The reference model.
        inputs: Its samples.
        samples: Indices of samples.
        tensors: Names of values of the main graph.
        formats: What to predict ("tf32", "f16", "bf16", "int8"); rounding alone, with FP32's range.
        floor_on: The samples that tell the noise floor ("f32"), the first two if None; without any it is not told.
        reference: What the reference's own runtime computed; without it the plain world takes its place.
        align: Puts what was found beside what was expected, where rows have no order of their own.
        by_part: Whether the errors by part are wanted too.
        enough: Is shown the least of the floor that one world tells, without its variation and with the least noise of
            products: where that is enough, nothing else is run.
        settled: Is shown what the first sample tells: where that settles it, no other is run.
        calibrated_on: The samples that quantized formats take their scales from; `samples` if there are none.
        held: The grids on which the candidate's own file keeps constants, by name.
    """

    model: Model
    inputs: Inputs
    samples: Sequence[int]
    tensors: Sequence[str]
    formats: Sequence[str] = FORMATS
    floor_on: Sequence[int] | None = None
    reference: Reference | None = None
    align: Align = align_as_given
    by_part: bool = False
    enough: Callable[[Expectation], bool] | None = None
    settled: Callable[[Expectation], bool] | None = None
    calibrated_on: Sequence[int] = ()
    held: Mapping[str, HeldGrid] = field(default_factory=lambda: MappingProxyType({}))

    def open_meter(self) -> Meter:
        """What errors are measured with."""
        return Meter(model=self.model, reference=self.reference, align=self.align, by_part=self.by_part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OpenQuestion:
    """A question with the worlds that answer it; `watch` are its tensors that the program gives, `predicting` one a format."""

    question: ErrorQuestion
    wide: ir.Model
    plain: World
    predicting: Sequence[World]
    watch: Sequence[str]
    sessions: Sessions
    progress: Progress

    def disturbed(self, *, least: bool = False, name: str = _DISTURBED, gain: float = _GAIN) -> World:
        """The world that carries the errors of products and reductions on."""
        world = World(name=name, program=self.plain.program)
        return disturbed_world(world, self.wide, gain, self.sessions, least=least)

    def noise(self) -> list[World]:
        """The worlds that tell the floor."""
        reordered = reordered_world(replace(self.plain, name=REORDERED), np.random.default_rng(_SEED))
        has_steps = any(
            step.op_type in _STEPS and step.inputs[0] in self.plain.program.steps_of
            for step in self.plain.program.steps
        )
        less = [self.disturbed(name=_LESS_DISTURBED, gain=_LESS_GAIN)] if has_steps else []
        return [reordered, self.disturbed(), *less]

    def measure(self, meter: Meter, worlds: Sequence[World], place: int, samples: Sequence[int]) -> None:
        """Runs these worlds on one of the samples."""
        question, steps = self.question, len(self.plain.program.steps)
        told = SamplePlace(progress=self.progress, place=place, samples=len(question.samples), steps=steps)
        meter.measure(worlds, question.inputs, samples[place], self.watch, self.sessions, told)


def expect_error(
    question: ErrorQuestion, *, progress: Progress = ignore_progress, sessions: Sessions | None = None
) -> Expectation:
    """The errors to be expected of some tensors.

    `progress` is told about every step; `sessions` is what was opened before, and may serve again.
    """
    sessions = Sessions(threads=usable_cores()) if sessions is None else sessions
    try:
        wide, program = wide_program(question.model)
    except ParityError as error:
        return Expectation(errors={}, skipped=(_skip_of_lacking(error),))
    predicting, skipped = _worlds_of_formats(question)
    opened = _OpenQuestion(
        question=question,
        wide=wide,
        plain=World(name=PLAIN, program=program),
        predicting=predicting,
        watch=[name for name in dict.fromkeys(question.tensors) if name in _known_sites(program)],
        sessions=sessions,
        progress=progress,
    )
    floor_on = question.samples[:_FLOOR_SAMPLES] if question.floor_on is None else question.floor_on
    meter = question.open_meter()
    try:
        if floor_on and question.enough:
            least = _least_floor(opened, floor_on)
            if question.enough(least):
                return least
        floor_on = _measure_samples(opened, meter, floor_on)
        moved = _moved_by_reference(meter, opened.plain, question.inputs, floor_on, sessions) if floor_on else {}
    except ParityError as error:
        return Expectation(errors={}, skipped=(*skipped, _skip_of_lacking(error)))
    progress("predicting", 1, 1)
    return _sum_up(opened, meter, moved, skipped, has_floor=bool(floor_on))


def _worlds_of_formats(question: ErrorQuestion) -> tuple[list[World], list[Skip]]:
    """A world for each format, and which of them cannot be had."""
    worlds, skipped = [], []
    for name in question.formats:
        try:
            worlds.append(_world_of_format(name, question))
        except ParityError as error:
            skipped.append(Skip(what=f"expected error of {name}", reason=error.problem, fix=error.fix))
    return worlds, skipped


def _least_floor(opened: _OpenQuestion, floor_on: Sequence[int]) -> Expectation:
    """The least of the floor that one world tells."""
    meter, world = opened.question.open_meter(), opened.disturbed(least=True)
    for place in range(len(floor_on)):
        opened.measure(meter, [world], place, floor_on)
    return Expectation(errors={"f32": _floors_of_tensors(meter, opened.watch)}, parts={"f32": _floor_parts(meter)})


def _measure_samples(opened: _OpenQuestion, meter: Meter, floor_on: Sequence[int]) -> Sequence[int]:
    """Runs all worlds on each sample, until that is settled; the samples that tell the floor then."""
    question, noise = opened.question, []
    if floor_on:
        noise = opened.noise()
    for place, index in enumerate(question.samples):
        worlds = [opened.plain, *opened.predicting, *(noise if index in floor_on else [])]
        if len(worlds) > 1:
            opened.measure(meter, worlds, place, question.samples)
        if place or not question.settled or index not in floor_on:
            continue
        if question.settled(Expectation(errors=_errors_so_far(meter, opened.watch))):
            return [index]
    return floor_on


def _sum_up(
    opened: _OpenQuestion, meter: Meter, moved: Mapping[str, float], skipped: Sequence[Skip], *, has_floor: bool
) -> Expectation:
    """What was measured, as the expectation of each tensor and part."""
    question, skipped = opened.question, list(skipped)
    errors: dict[str, dict[str, float]] = {}
    parts = {world.name: meter.parts.get(world.name, {}) for world in opened.predicting}
    if has_floor:
        sites = question.model.sites
        handed_on = dict.fromkeys((name for name in question.tensors if name not in sites), FLOAT32_ROUNDING)
        errors["f32"] = handed_on | _floors_of_tensors(meter, opened.watch)
        skipped += [_moved_by_optimizer(name, size) for name, size in moved.items()]
    for world in opened.predicting:
        errors[world.name], lost = _foreseen_errors(world.name, meter.totals.get(world.name, {}))
        skipped += lost
    if has_floor and "f16" in errors:
        errors["f32"] = _floor_at_rounding(errors["f32"], errors["f16"])
    if has_floor and question.by_part:
        parts["f32"] = _floor_parts(meter)
    return Expectation(errors=errors, skipped=tuple(skipped), moved=moved, parts=parts)


def run_reference(model: Model, inputs: Inputs, samples: Sequence[int]) -> dict[int, dict[str, np.ndarray]]:
    """What ONNX Runtime gives at the outputs, by sample, on the samples that tell the floor.

    Raises:
        ParityError: the runtime refuses the model.
    """
    from parityscope.backends import Capture
    from parityscope.backends.opening import open_target

    with open_target(model, Target(backend="ort"), Capture()) as session:
        return {index: dict(session.run(inputs.sample(index))) for index in samples[:_FLOOR_SAMPLES]}


def _errors_so_far(meter: Meter, tensors: Sequence[str]) -> dict[str, dict[str, float]]:
    """The floor and the errors of all formats that a meter was shown."""
    worlds = {
        name: found for name, found in meter.totals.items() if name not in {REORDERED, _DISTURBED, _LESS_DISTURBED}
    }
    errors = {name: _foreseen_errors(name, found)[0] for name, found in worlds.items()}
    return {"f32": _floors_of_tensors(meter, tensors), **errors}


def _known_sites(program: Program) -> set[str]:
    return {*program.steps_of, *program.constants, *program.inputs}


def _world_of_format(name: str, question: ErrorQuestion) -> World:
    """What simulates a format: its rounding alone, its range left as FP32's."""
    model = question.model
    if name not in QUANTIZED:
        target = Target(backend="sim", precision=name, options=(("range", "unbounded"),))
        return replace(prepare_world(model, target, ())[0], name=name)
    from parityscope.arithmetic.quantizing import quantize_products
    from parityscope.backends.calibrating import calibrate_magnitudes
    from parityscope.evaluation.simulating import simulated_world

    samples = [question.inputs.sample(index) for index in question.calibrated_on or question.samples]
    return simulated_world(
        name, quantize_products(model.graph(), name, calibrate_magnitudes(model, samples), question.held)
    )


def _moved_by_reference(
    meter: Meter, plain: World, inputs: Inputs, samples: Sequence[int], sessions: Sessions
) -> dict[str, float]:
    """The tensors that the reference's optimizer moves, and how far; what varies there is then told of the plain world."""
    program = plain.program
    if meter.reference is None or any("Quantize" in step.op_type for step in program.steps):
        return {}
    varied = meter.totals.get(REORDERED, {})
    far = {
        name: found.total
        for name, found in varied.items()
        if not found.exact and math.isfinite(found.total) and found.total > FAR * FLOAT32_ROUNDING
    }
    if not far:
        return {}
    orders = [
        reordered_world(replace(plain, name=f"{REORDERED}{seed}"), np.random.default_rng(seed))
        for seed in range(_SEED + 1, _SEED + _ORDERS)
    ]
    again = Meter(model=meter.model, reference=lambda _index, _site: None, align=meter.align)
    quiet = SamplePlace(progress=ignore_progress, place=0, samples=1, steps=1)
    for index in samples:
        again.measure([plain, *orders], inputs, index, list(far), sessions, quiet)
    several = [meter.still.get(REORDERED, {}), *again.totals.values()]
    worst = {name: max((one[name].total for one in several if name in one), default=math.inf) for name in far}
    wrong = {name: far[name] for name, size in worst.items() if size * FAR < far[name]}
    for name in wrong:
        varied[name] = max((one[name] for one in several if name in one), key=lambda one: one.total)
    return wrong


def _floors_of_tensors(meter: Meter, tensors: Sequence[str]) -> dict[str, float]:
    """The floor of each tensor that was measured at least once; a distance that is not finite says nothing."""
    disturbed_by, varied_by = (meter.totals.get(name, {}) for name in (_DISTURBED, REORDERED))
    errors = {}
    for name in tensors:
        variation = _total_or_nan(varied_by.get(name))
        if name in varied_by and varied_by[name].exact:
            errors[name] = (
                variation  # choices and counts are not rounded, and a disturbed one says nothing about its noise
            )
            continue
        propagated = (
            _total_or_nan(disturbed_by[name]) if name in disturbed_by and not disturbed_by[name].exact else math.nan
        )
        if math.isfinite(variation) or math.isfinite(propagated):
            propagated, variation = (size if math.isfinite(size) else 0.0 for size in (propagated, variation))
            own = 2.0 * (propagated * _own_part(meter, name)) ** 2 + BOTH_ROUND
            errors[name] = max(FLOAT32_ROUNDING, math.sqrt(own + variation**2))
    return errors


def _floor_parts(meter: Meter) -> dict[tuple[int, str], Parts]:
    """The floor's formula for each part; where the disturbance says nothing, what varied and the last rounding."""
    varied, carried = (meter.parts.get(name, {}) for name in (REORDERED, _DISTURBED))
    found = {}
    for place, part in (varied or carried).items():
        floor = part.scaled(0.0, BOTH_ROUND).plus(part.scaled(1.0 if varied else 0.0, 0.0))
        own = _own_part(meter, place[1])
        if place in carried and own > _STEPPED / _GAIN:
            # One element that crosses an edge may lie in any part, and is of its whole size there.
            found[place] = floor.plus(carried[place].levelled())
        else:
            found[place] = floor.plus(carried[place].scaled(2.0 * own**2, 0.0)) if place in carried else floor
    return found


def _own_part(meter: Meter, name: str) -> float:
    """What an error is of that which it becomes `_GAIN` times as large: by the power with which it grows, 1/2 behind steps."""
    much, less = (_total_or_nan(meter.totals.get(world, {}).get(name)) for world in (_DISTURBED, _LESS_DISTURBED))
    if _LESS_DISTURBED not in meter.totals or not math.isfinite(much + less) or much <= 0:
        return 1.0 / _GAIN
    power = math.log(much / less) / math.log(_GAIN / _LESS_GAIN) if less > 0 else 0.0
    return float(_GAIN ** -min(1.0, max(0.5, power)))


def _total_or_nan(found: ReplayStatistics | None) -> float:
    return math.nan if found is None else found.total


def _floor_at_rounding(floor: Mapping[str, float], half: Mapping[str, float]) -> dict[str, float]:
    """The FP32 floor of each tensor, and at least what rounding every tensor to FP32 does to first order.

    The model of the floor does not enter the bodies of Loop and Scan; the simulation does. Errors of rounding are
    proportional to the format's unit roundoff to first order, and no layer rounds less often than once.
    """
    scale = format_named("f32").unit_roundoff / format_named("f16").unit_roundoff
    known = {name: scale * value for name, value in half.items() if math.isfinite(value)}
    return {name: max(value, known.get(name, 0.0)) for name, value in floor.items()}


def _foreseen_errors(number_format: str, totals: Mapping[str, ReplayStatistics]) -> tuple[dict[str, float], list[Skip]]:
    """The error of each tensor that a simulation foresees, and those of which it foresees none.

    Elements in which the reference alone is not finite say nothing about rounding.
    """
    errors, lost = {}, []
    for name, total in totals.items():
        if not total.introduced_nonfinite:
            errors[name] = total.total_finite if total.total_nonfinite else _graded_total(total)
            continue
        lost.append(
            Skip(
                what=f"expected error of {number_format} at {name}",
                reason="its rounding alone gives NaN or infinity where the reference does not",
                fix="ask where it begins: parityscope predict",
            )
        )
    return errors, lost


def _graded_total(total: ReplayStatistics) -> float:
    """As `grades.graded_error`: where the reference is zero everywhere the root mean square, in the tensor's own unit."""
    finite = total.count - total.left_out
    if total.exact or total.reference2 or not finite:
        return total.total
    return scale_by_power(math.sqrt(total.total2 / finite), total.exponent)


def _moved_by_optimizer(name: str, size: float) -> Skip:
    return Skip(
        what=f"noise floor of {name}, what the optimizer does",
        reason=f"ONNX Runtime's optimizer moves it by {size:.3g} (relative L2), which no order of the sums does",
        fix="compare with the model as it stands: --reference 'ort?optimization=disabled'",
    )


def _skip_of_lacking(error: ParityError) -> Skip:
    return Skip(what="noise floor and expected errors", reason=error.problem, fix=error.fix)
