"""The FP32 noise floor of tensors: how far two honest FP32 evaluations of a network are apart.

Of each tensor, as relative L2 distance, over the samples together:

    floor² = 2 (propagated² + rounding²) + variation²,    never less than one rounding, 2^-24

* propagated: the errors that products and reductions are expected to make (`arithmetic.error_model`, the second
  moments of N. J. Higham and T. Mary's probabilistic analysis, SIAM J. Sci. Comput. 41, 2019), put on the tensors of one
  forward pass `_GAIN` times as large as they are and carried on by the network itself (`arithmetic.noising`). Two
  evaluations make independent errors: hence the 2.
* rounding: 0.4247 · 2^-24, of whatever computes the tensor last.
* variation: the measured distance of an equivalent evaluation of the reference: optimizer off, one thread, and the sums
  of all products with constant weights in a random order. It holds what the model leaves out (fusion, folded constants,
  other kernels). What it shares with the model is counted twice, which raises a floor by no more than a factor 1.42.

An optimizer with a bug is no equivalent evaluation. Where the variation is far beyond FP32's rounding the unoptimized model is
held against itself with its sums in several orders; if these agree, their distance is the variation, and a Skip says so. (Not
in quantized graphs: computing in integers what is written in floats is another arithmetic, and what users of them expect.)

Inputs moved by one unit in the last place are no part of it: both sides are given the same inputs, and such a move says
nothing about accumulation (it is up to 270 times too small there).

Not covered: algorithms with larger constants than a sum of products (Winograd, FFT), and recurrent layers' inner sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import Progress, silent
from parityscope.backends.sizing import plan_chunks
from parityscope.comparison import measure_pair
from parityscope.comparison.rows import Align, as_given
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.backends._ort_running import Run
    from parityscope.case import Inputs, Model
    from parityscope.comparison import Statistics

__all__ = ["FAR", "FLOAT32_ROUNDING", "NoiseFloor", "Reference", "noise_floor"]

Reference = Callable[[int, str], np.ndarray | None]  # (sample, tensor) -> what the reference computed

# Half a unit in the last place: the least relative error that rounding one result to float32 can make.
FLOAT32_ROUNDING = 2.0**-24
# Of the disturbance. Large beside the rounding errors of the disturbed pass itself, which are of size 1, and small enough
# for linearity: an error of 4e-7 becomes 1e-4, less than TF32 makes. Chosen, a power of two.
_GAIN = 256.0
_SEED = 20240229  # of the order of the sums; any would do, a fixed one can be repeated
# Of the floor: TF32, the nearest arithmetic to FP32, is 2^13 away, and honest kernels within 2. Chosen between, nearer to TF32.
FAR = 2.0**10
# A choice between nearly equal values falls one way or the other with the rounding: that all of so many orders of the sums
# agree, and the optimized run alone does not, happens by chance in one of eight of those rare cases. Chosen.
_ORDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """Floor by tensor (relative L2; share of unequal elements for what is not floating point), and what it lacks.

    `moved` are the tensors that ONNX Runtime's optimizer moves far beyond it, and how far: there it is not to be trusted.
    """

    errors: Mapping[str, float]
    skipped: tuple[Skip, ...] = ()
    moved: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


def noise_floor(
    model: Model,
    inputs: Inputs,
    samples: Sequence[int],
    tensors: Sequence[str],
    *,
    reference: Reference | None = None,
    memory: int = 512 << 20,
    threads: int = 2,
    progress: Progress = silent,
    align: Align = as_given,
) -> NoiseFloor:
    """The floor of `tensors` on `samples` (indices into `inputs`).

    Args:
        model: The reference model.
        inputs: Its samples.
        samples: The samples to evaluate.
        tensors: Names of values that nodes compute.
        reference: What the undisturbed reference computed; without it the model is run.
        memory: Bytes for the tensors held at a time.
        threads: Threads that compare.
        progress: Told about every part.
        align: Puts what was found beside what was expected, where rows have no order of their own.

    Raises:
        ParityError: no reference is given and ONNX Runtime cannot run the model.
    """
    chunks = [list(chunk) for chunk in plan_chunks(model, inputs.sample(samples[0]), tensors, memory // 2)]
    evaluations: dict[str, _Evaluation] = {}
    skipped = []
    for what, derive in (("propagated", _disturbed), ("variation", _reordered)):
        try:
            evaluations[what] = derive(model)
        except ParityError as error:
            skipped.append(_lacking(what, error))
    errors: dict[str, float] = {}
    moved: dict[str, float] = {}
    for position, chunk in enumerate(chunks):
        progress("noise floor", position, len(chunks))
        known = reference or _evaluated(model, inputs, samples, chunk)
        found: dict[str, dict[str, float]] = {}
        for what, evaluation in tuple(evaluations.items()):
            try:
                found[what] = _distances(evaluation, chunk, inputs, samples, known, threads, align)
            except ParityError as error:
                del evaluations[what]
                skipped.append(_lacking(what, error))
        if far := _far(chunk, found.get("variation", {}), model.graph()):
            still = _unoptimized(model, inputs, samples, list(far), threads, align)
            wrong = {name: far[name] for name, size in still["variation"].items() if size * FAR < far[name]}
            for what, sizes in still.items():
                found.setdefault(what, {}).update({name: sizes[name] for name in wrong if name in sizes})
            moved.update(wrong)
        errors.update(_combined(chunk, found))
    progress("noise floor", len(chunks), len(chunks))
    skipped += [_moved_by_optimizer(name, distance) for name, distance in moved.items()]
    return NoiseFloor(errors=errors, skipped=tuple(skipped), moved=moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """A derived graph, the values of it that can be compared, and how to open it."""

    graph: ir.Model
    names: frozenset[str]
    open: Callable[[ir.Model, list[str]], Run]


def _combined(tensors: Sequence[str], found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The floor of each tensor that was measured at least once; a distance that is not finite says nothing."""
    from parityscope.arithmetic.error_model import ROUNDING

    errors = {}
    for name in tensors:
        sizes = {what: found[what][name] for what in found if math.isfinite(found[what].get(name, math.nan))}
        if sizes:
            own = 2.0 * ((sizes.get("propagated", 0.0) / _GAIN) ** 2 + (ROUNDING * FLOAT32_ROUNDING) ** 2)
            errors[name] = max(FLOAT32_ROUNDING, math.sqrt(own + sizes.get("variation", 0.0) ** 2))
    return errors


def _far(tensors: Sequence[str], variation: Mapping[str, float], graph: ir.Model) -> dict[str, float]:
    """The variation of the tensors that vary far more than FP32 rounds."""
    if any("Quantize" in node.op_type for node in graph.graph):
        return {}
    floats = _floats(graph)
    varied = {name: variation.get(name, 0.0) for name in tensors if name in floats}
    return {name: size for name, size in varied.items() if math.isfinite(size) and size > FAR * FLOAT32_ROUNDING}


def _unoptimized(
    model: Model, inputs: Inputs, samples: Sequence[int], tensors: list[str], threads: int, align: Align
) -> dict[str, dict[str, float]]:
    """Both parts of the floor with the optimizer off throughout; the variation is the largest over several orders of the sums."""

    def opened(graph: ir.Model, names: list[str]) -> Run:
        return open_session(graph, outputs=names, optimization="disabled", threads=1, folder=model.path.parent)

    plain = opened(model.graph(), tensors)
    arrays = {index: plain(inputs.sample(index).arrays) for index in samples}
    derived = [("propagated", _disturbed(model))]
    derived += [("variation", _reordered(model, seed)) for seed in range(_SEED, _SEED + _ORDERS)]
    worst: dict[str, dict[str, float]] = {"propagated": {}, "variation": {}}
    for what, one in derived:
        evaluation = _Evaluation(graph=one.graph, names=one.names, open=opened)
        found = _distances(evaluation, tensors, inputs, samples, lambda at, name: arrays[at].get(name), threads, align)
        worst[what] = {name: max(size, worst[what].get(name, 0.0)) for name, size in found.items()}
    return worst


def _moved_by_optimizer(name: str, distance: float) -> Skip:
    return Skip(
        what=f"noise floor of {name}, what the optimizer does",
        reason=f"ONNX Runtime's optimizer moves it by {distance:.3g} (relative L2), which no order of the sums does",
        fix="compare with the model as it stands: --reference 'ort?optimization=disabled'",
    )


def _disturbed(model: Model) -> _Evaluation:
    from parityscope.arithmetic.noising import disturbed

    graph = disturbed(model.graph(), _GAIN).model
    folder = model.path.parent
    return _Evaluation(
        graph=graph,
        names=_floats(graph),
        open=lambda derived, names: open_session(derived, outputs=names, folder=folder),
    )


def _reordered(model: Model, seed: int = _SEED) -> _Evaluation:
    from parityscope.arithmetic.reordering import reordered

    graph = reordered(model.graph(), np.random.default_rng(seed))
    folder = model.path.parent
    return _Evaluation(
        graph=graph,
        names=_computed(graph),
        open=lambda derived, names: open_session(
            derived, outputs=names, optimization="disabled", threads=1, folder=folder
        ),
    )


def _computed(graph: ir.Model) -> frozenset[str]:
    return frozenset(str(value.name) for node in graph.graph for value in node.outputs if value.name)


def _floats(graph: ir.Model) -> frozenset[str]:
    """Names of computed tensors of floating point: a disturbed choice or count says nothing about its noise."""
    import onnx_ir as ir

    return frozenset(
        str(value.name)
        for node in graph.graph
        for value in node.outputs
        if value.name and isinstance(value.type, ir.TensorType) and value.type.dtype.is_floating_point()
    )


def _evaluated(model: Model, inputs: Inputs, samples: Sequence[int], tensors: list[str]) -> Reference:
    run = open_session(model.graph(), outputs=tensors, folder=model.path.parent)
    arrays = {index: run(inputs.sample(index).arrays) for index in samples}
    return lambda sample, name: arrays[sample].get(name)


def _distances(
    evaluation: _Evaluation,
    tensors: Sequence[str],
    inputs: Inputs,
    samples: Sequence[int],
    reference: Reference,
    threads: int,
    align: Align,
) -> dict[str, float]:
    """Relative L2 distance of each tensor from the reference, over the samples together."""
    names = [name for name in tensors if name in evaluation.names]
    if not names:
        return {}
    run = evaluation.open(evaluation.graph, names)
    totals: dict[str, Statistics] = {}
    for index in samples:
        wanted = {name: array for name in names if (array := reference(index, name)) is not None}
        arrays = dict(align(wanted, run(inputs.sample(index).arrays)))
        for name in names:
            array, expected = arrays.pop(name), wanted.get(name)
            if expected is None or expected.shape != array.shape:
                continue
            part = measure_pair(expected, array, channel_axis=None, threads=threads)
            totals[name] = totals[name].merge(part) if name in totals else part
    return {name: each.rel_l2 if each.is_float else each.mismatch_share for name, each in totals.items()}


def _lacking(what: str, error: ParityError) -> Skip:
    return Skip(what=f"noise floor, {what} errors", reason=error.problem, fix=error.fix)
