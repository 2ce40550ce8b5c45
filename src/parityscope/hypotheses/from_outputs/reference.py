"""The reference's tensors on a few samples, and its outputs when steps are computed otherwise.

What a change does not reach is not computed again: the reference's own tensors are the prefix that all edits share, and what
comes out the same as before ends there. What is fed is read by a step of its own (`read_first`), so that an edit can stand there
too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.errors import ParityError
from parityscope.evaluation.estimating import CALL_S, ELEMENT_S, PRODUCT_S, count_work
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.program import steps_fed
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.hypotheses.from_outputs.spending import WorkMeter
from parityscope.hypotheses.from_outputs.suffixes import Suffixes
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.operators import of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.hypotheses.from_outputs.suffixes import Suffix

READ = "::read"  # behind the name of an input: what the network reads of it
# What a step gives on a sample, computed otherwise, when these tensors are not the reference's own; raises ParityError where it
# cannot.
Redo = Callable[[int, Mapping[str, np.ndarray]], "Sequence[np.ndarray | None]"]

_INSIDE_CALL_S, _INSIDE_ELEMENT_S, _INSIDE_PRODUCT_S = 1e-5, 3e-10, 4e-11  # of a step of many in one session
_LOOKED_AT = 64  # elements that are compared before all are; chosen
_ITERATION = 1  # whose tensors are looked at inside a loop, from nought: states are often zero in the first
_LONGEST_SHAPE = 8  # axes; chosen: what is longer is looked at as data though it depends on a shape alone
_SHAPES = of_kind("shape")
_QUANTIZED = of_kind("quantization")
_RANDOM = of_kind("random")
_POINTWISE = with_trait("pointwise")
_MOST_GROWN, _SMALL = (
    64,
    1 << 14,
)  # times as large as the reference's, or as so many elements: then it is not computed; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inner:
    """A step of a body (the attribute `body` of control flow), with what the body's tensors were in one iteration of each sample.

    `outside` are the names by which the bodies read what is not theirs.
    """

    step: ProgramStep
    program: Program
    body: str
    outside: Sequence[str]
    values: Sequence[Mapping[str, np.ndarray]]


@dataclass(slots=True, kw_only=True, eq=False)
class Reference:
    """A program with what it gave on each sample.

    `live` are the steps that depend on what is fed (more than on its shape), or say how constants are quantized, and lead to an
    output, in order; `after` says for each of them, by index, which of these lie behind it, and `seconds` what it costs. `redone`
    are steps that are computed otherwise than the model says, by index: `values` are then what comes of that. `meter` is charged
    for all that is computed. `suffixes` are the places from which on it is run at once, `order` the samples' numbers among all.
    """

    program: Program
    sessions: Sessions
    values: Sequence[Mapping[str, np.ndarray]]
    live: tuple[ProgramStep, ...] = ()
    after: dict[int, tuple[ProgramStep, ...]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    redone: Mapping[int, Redo] = field(default_factory=dict)
    feeds: Sequence[Mapping[str, np.ndarray]] = ()
    meter: WorkMeter = field(default_factory=WorkMeter)
    suffixes: Suffixes | None = None
    order: Sequence[int] = ()

    def value(self, sample: int, site: str) -> np.ndarray | None:
        """A tensor of the reference, or a constant."""
        found = self.values[sample].get(site)
        return self.program.constants.get(site) if found is None else found

    def inside(self, step: ProgramStep) -> Sequence[Inner]:
        """The steps of a step's bodies that were run, each with its tensors of the second iteration (of the first, of one)."""
        seen = [self._seen_inside(sample, step) for sample in range(len(self.values))]
        return [
            Inner(step=one, program=body, body=name, outside=tuple(step.captured.values()), values=seen)
            for name, body in step.bodies.items()
            for one in body.steps
            if not one.bodies and one.op_type not in _SHAPES | _RANDOM and all(one.key in values for values in seen)
        ]

    def _seen_inside(self, sample: int, step: ProgramStep) -> Mapping[str, np.ndarray]:
        sites = [site for body in step.bodies.values() for site in (*body.inputs, *body.steps_of)]
        found: dict[str, list[np.ndarray]] = {}
        world = World(name="plain", program=self.program)
        try:
            for moment in evaluate_worlds([world], self.feeds[sample], sites, self.sessions):
                for site in moment.sites:
                    array = moment.stored("plain", site)
                    if isinstance(array, np.ndarray) and len(found.setdefault(site, [])) <= _ITERATION:
                        found[site].append(array)
        except ParityError:
            return {}
        return {site: arrays[-1] for site, arrays in found.items()}

    def cost(self, step: ProgramStep) -> float:
        """Estimated seconds of the outputs when a step gives something else."""
        suffix = self._suffix_behind((step.index,))
        before = (one for one in self.after[step.index] if suffix is None or one.index < suffix.start)
        behind = 0.0 if suffix is None else suffix.seconds
        return self.seconds[step.index] + sum(self.seconds[one.index] for one in before) + behind

    def around(self, step: ProgramStep, hops: int) -> set[int]:
        """The steps at most so many from one, before it or behind, and itself: by index."""
        readers: dict[str, list[ProgramStep]] = {}
        for other in self.live:
            for name in other.reads:
                readers.setdefault(name, []).append(other)
        known, front = {step.index}, [step]
        for _ in range(hops):
            beside = [
                self.program.steps_of[name] for one in front for name in one.reads if name in self.program.steps_of
            ]
            beside += [reader for one in front for name in one.outputs for reader in readers.get(name, ())]
            front = list({one.index: one for one in beside if one.index not in known}.values())
            known.update(one.index for one in front)
        return known

    def respond(self, sample: int, redone: Mapping[int, Redo]) -> Mapping[str, np.ndarray]:
        """The outputs on a sample when some steps are computed otherwise: what lies well behind them is run as one.

        Raises:
            ParityError: the runtime refuses a step behind them.
        """
        known = self.values[sample]
        suffix = self._suffix_behind(redone)
        if suffix is not None and not suffix.opened(partial(self.value, sample), self.meter):
            suffix = None
        changed = self.changed_with(sample, redone, suffix)
        if suffix is not None and changed:
            ends = suffix.respond(changed, partial(self.value, sample))
            if ends is None:
                changed = self.changed_with(sample, redone)
            else:
                self.meter.charge(suffix.seconds if ends else 0.0)
                changed |= ends
        return {name: changed.get(name, known[name]) for name in self.program.outputs if name in known}

    def _suffix_behind(self, indices: Iterable[int]) -> Suffix | None:
        """What lies behind steps, and behind all that is computed otherwise already; None where it costs less step by step."""
        indices = tuple(indices)
        suffix = self.suffixes and self.suffixes.behind(max((*indices, *self.redone)))
        if not suffix or suffix.refused:
            return None
        after = {one.index for index in indices for one in self.after[index] if one.index >= suffix.start}
        return suffix if suffix.seconds < sum(self.seconds[index] for index in after) else None

    def changed_with(
        self, sample: int, redone: Mapping[int, Redo], suffix: Suffix | None = None
    ) -> dict[str, np.ndarray]:
        """All tensors before a suffix, if one is given, that are other ones when some steps are computed otherwise.

        Raises:
            ParityError: the runtime refuses a step behind them.
        """
        changed: dict[str, np.ndarray] = {}
        reached = {one.index: one for first in redone for one in (self.program.steps[first], *self.after[first])}
        for index in reached if len(redone) == 1 else sorted(reached):
            if suffix is not None and index >= suffix.start:
                break
            if index in redone:
                self._note_changed(sample, reached[index], redone[index](sample, changed), changed)
            else:
                self._compute_again(sample, reached[index], changed)
        return changed

    def moved(self, redone: Mapping[int, Redo], samples: Collection[int] | None = None) -> Reference:
        """The same with steps computed otherwise from here on, on all samples or on some.

        Raises:
            ParityError: as `changed_with`.
        """
        values = [
            {**known, **self.changed_with(sample, redone)} if samples is None or sample in samples else known
            for sample, known in enumerate(self.values)
        ]
        return replace(self, values=values, redone={**self.redone, **redone})

    def _compute_again(self, sample: int, step: ProgramStep, changed: dict[str, np.ndarray]) -> None:
        """Computes a step again, if it reads what was changed."""
        if changed.keys().isdisjoint(step.reads) or step.op_type in _RANDOM:
            return
        self.meter.charge(self.seconds[step.index])
        if step.index in self.redone:
            self._note_changed(sample, step, self.redone[step.index](sample, changed), changed)
            return
        inputs = [self._take_changed(sample, changed, name) for name in step.inputs]
        if step.op_type in _POINTWISE and _grows(inputs, self.values[sample].get(step.outputs[0])):
            raise ParityError(f"{step.key} would be many times as large")
        captured = [self._take_changed(sample, changed, name) for name in step.captured] if step.captured else ()
        self._note_changed(sample, step, self.sessions.run(step, inputs, self.program, captured), changed)

    def _take_changed(self, sample: int, changed: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
        if not name:
            return None
        return changed[name] if name in changed else self.value(sample, name)

    def _note_changed(
        self, sample: int, step: ProgramStep, results: Sequence[np.ndarray | None], changed: dict[str, np.ndarray]
    ) -> None:
        known = self.values[sample]
        changed |= {
            site: array
            for site, array in zip(step.outputs, results, strict=False)
            if site and array is not None and not _are_same(known.get(site), array)
        }


def read_first(graph: ir.Graph, names: Collection[str] | None = None) -> None:
    """Puts a step that reads it between each input of numbers and the network; `names` limits that to some, by what is read."""
    for value in graph.inputs:
        numbers = value.dtype is not None and (value.dtype == ir.DataType.FLOAT or value.dtype.is_integer())
        if not numbers or value.name in graph.initializers or not value.uses():
            continue
        if names is not None and f"{value.name}{READ}" not in names:
            continue
        node = ir.Node("", "Identity", [value], num_outputs=1, name=f"{value.name}{READ}")
        read = node.outputs[0]
        read.name, read.type, read.shape = f"{value.name}{READ}", value.type, value.shape
        users = list(value.uses())
        graph.insert_before(graph[0], node)
        for user, index in users:
            if user is not node:
                user.replace_input_with(index, read)


def open_reference(program: Program, feeds: Sequence[Mapping[str, np.ndarray]], nbytes: int) -> Reference:
    """Runs the program on each sample and keeps all that it gave.

    Raises:
        ParityError: it cannot be run step by step, or its tensors take more than `nbytes`.
    """
    sessions = Sessions(threads=1)
    values, left = [], nbytes
    for fed in feeds:
        kept: dict[str, np.ndarray] = {name: np.asarray(fed[name]) for name in program.inputs if name in fed}
        for moment in evaluate_worlds([World(name="plain", program=program)], fed, None, sessions):
            for site in moment.sites:
                array = moment.stored("plain", site)
                if isinstance(array, np.ndarray):
                    kept[site] = array
                    left -= array.nbytes
            if left < 0:
                raise ParityError("the reference's tensors take more memory than the search may have")
        values.append(kept)
    reference = Reference(program=program, sessions=sessions, values=values, feeds=feeds)
    _find_live(reference)
    return reference


def _find_live(reference: Reference) -> None:
    """Which steps are live, what lies behind each, and what each costs."""
    program = reference.program
    wanted, live = set(program.outputs), []
    for step in reversed(steps_fed(program, _QUANTIZED, lambda step: _is_no_shape(reference, step))):
        if any(name in wanted for name in step.outputs):
            wanted.update(step.reads)
            live.append(step)
    reference.live = tuple(reversed(live))
    inside: dict[int, float] = {}
    behind: dict[str, int] = {}
    for place in reversed(range(len(reference.live))):
        step, bits = reference.live[place], 0
        for name in step.outputs:
            bits |= behind.get(name, 0)
        for name in step.reads:
            behind[name] = behind.get(name, 0) | bits | 1 << place
        reference.after[step.index] = tuple(reference.live[other] for other in _bit_places(bits))
        elements, products = _count_work(reference, step)
        reference.seconds[step.index] = CALL_S + ELEMENT_S * elements + PRODUCT_S * products
        inside[step.index] = _INSIDE_CALL_S + _INSIDE_ELEMENT_S * elements + _INSIDE_PRODUCT_S * products
    reference.suffixes = Suffixes(program, reference.live, inside)


def _is_no_shape(reference: Reference, step: ProgramStep) -> bool:
    """Whether a step gives more numbers than a shape has."""
    made = [reference.values[0].get(name) for name in step.outputs]
    return any(array is not None and array.size > _LONGEST_SHAPE for array in made)


def _bit_places(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]


def _count_work(reference: Reference, step: ProgramStep) -> tuple[float, float]:
    """Elements read and given, and multiplications."""
    read = [array for name in step.reads if (array := reference.value(0, name)) is not None]
    made = [array for name in step.outputs if (array := reference.values[0].get(name)) is not None]
    return count_work(step.op_type, [array.shape for array in read], [array.shape for array in made])


def _grows(inputs: Sequence[np.ndarray | None], known: np.ndarray | None) -> bool:
    """Whether what is read would be broadcast to much more than the reference's own: shapes of which one was changed."""
    shapes = [np.shape(array) for array in inputs if array is not None]
    if known is None or len(shapes) < 2:
        return False
    rank = max(map(len, shapes))
    longest = np.array([(1,) * (rank - len(shape)) + shape for shape in shapes]).max(0, initial=1)
    return bool(math.prod(longest.tolist()) > _MOST_GROWN * max(known.size, _SMALL))


def _are_same(one: np.ndarray | None, other: np.ndarray) -> bool:
    if one is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    flat, its = one.reshape(-1), other.reshape(-1)
    # Most that follows a change differs nearly everywhere: a look at one element, or at some, says so.
    if flat.size and other.dtype.kind in "fiu" and (flat[0] < its[0] or flat[0] > its[0]):
        return False
    if flat.size > _LOOKED_AT:
        part = slice(None, None, flat.size // _LOOKED_AT)
        if not _are_equal(flat[part], its[part]):
            return False
    return _are_equal(flat, its)


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether flat arrays of one type and size agree; NaN with NaN."""
    same = one == other
    if np.count_nonzero(same) == same.size:
        return True
    if one.dtype.kind in "fc":
        same |= (one != one) & (other != other)  # noqa: PLR0124 - what is not equal to itself is NaN
    return bool(np.count_nonzero(same) == same.size)
