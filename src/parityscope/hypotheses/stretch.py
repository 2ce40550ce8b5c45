"""The nodes between observed tensors on the candidate's own inputs, and how far what an edit predicts is from what it gave.

Nothing that an edit reads may depend on the stretch's own output: it would explain the error with the error. What lies behind
the output is named when a stretch is made, and refused here, in one place.
"""

from __future__ import annotations

import copy
import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import onnx

from parityscope.arithmetic.sites import EXACT_INPUTS, PRODUCTS
from parityscope.errors import ParityError
from parityscope.evaluation.sessions import Sessions
from parityscope.hypotheses.arithmetic import Operand, Variant
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.measures import ROUNDING, MadeOnce, StretchMeasures, as_float64, squared_differences
from parityscope.hypotheses.power import MOST_NUMBERS
from parityscope.hypotheses.stretch_steps import build_program, change_step, fit_inputs, set_opset
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.hypotheses.edits import Arrays


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StretchContext:
    """What is known around a stretch: nodes near by in the graph's order, and the candidate's arrays.

    Args:
        nodes: Messages of the nodes; those of the stretch among them.
        stretch: Which of them are the stretch, in order.
        output: The tensor that is explained; a result of the last node of the stretch.
        constants: Parameters that the nodes read, and others near by.
        worlds: By sample, the candidate's tensors that the nodes read or give, by the reference's names.
        candidate: By sample, what the candidate gave at `output`.
        behind: Tensors that depend on `output`.
        opsets: Versions of the operator sets.
        ir_version: Of the model.
        order: By sample, its number among all; empty where they follow each other.
    """

    nodes: Sequence[onnx.NodeProto]
    stretch: Sequence[int]
    output: str
    constants: Mapping[str, np.ndarray]
    worlds: Sequence[Mapping[str, np.ndarray]]
    candidate: Sequence[np.ndarray]
    behind: frozenset[str]
    opsets: Mapping[str, int]
    ir_version: int
    order: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuses what would explain the error with itself."""
        leaks = [name for world in self.worlds for name in world if name in self.behind or name == self.output]
        if leaks:
            raise ValueError(f"{leaks[0]} depends on {self.output}, which is to be explained")


@dataclass(slots=True, kw_only=True, eq=False)
class ComputedStretch:
    """A context made ready to be computed with edits; sample 0 is the one that constants are fitted on.

    `given` are the results as the model says, by sample, where they are known. `worlds` are the context's, until what is read on
    a sample is something else. `crashed` says of kinds of edits why what
    generates them could not go on.
    """

    context: StretchContext
    arithmetic: Variant = field(default_factory=lambda: Variant(words=""))
    sessions: Sessions = field(default_factory=lambda: Sessions(threads=1))
    program: Program = field(init=False)
    steps: list[ProgramStep] = field(init=False)
    around: list[ProgramStep] = field(init=False)
    worlds: Sequence[Mapping[str, np.ndarray]] = field(init=False)
    base: list[np.ndarray] = field(init=False)
    replayed: Sequence[np.ndarray] = field(init=False)
    found: Sequence[np.ndarray] = field(init=False)
    given: Sequence[np.ndarray] = ()
    tried: int = 0
    failed: int = 0
    crashed: dict[str, str] = field(default_factory=dict)
    measured: StretchMeasures = field(init=False)
    _edited: dict[tuple[str, StretchEdit], ProgramStep] = field(default_factory=dict)
    plain: dict[str, np.ndarray] = field(default_factory=dict)  # what each step gives on the first sample, unedited

    def __post_init__(self) -> None:
        """Computes the stretch as the model says, where that is not `given`."""
        self.worlds = self.context.worlds
        self.program = build_program(self.context)
        by_output = {step.outputs: step for step in self.program.steps}
        ordered = [by_output[tuple(node.output)] for node in self.context.nodes if tuple(node.output) in by_output]
        inside = {tuple(self.context.nodes[index].output) for index in self.context.stretch}
        self.steps = [step for step in ordered if step.outputs in inside]
        # What a body reads beside its inputs is not known to a step alone.
        self.around = [step for step in ordered if step.outputs not in inside and not step.captured]
        self.base = list(self.given) or [self.run(sample) for sample in range(len(self.worlds))]
        self.replayed = MadeOnce(len(self.base), lambda sample: as_float64(self.base[sample]))
        self.found = MadeOnce(len(self.base), lambda sample: as_float64(self.context.candidate[sample]))
        self.measured = StretchMeasures(self.found, self.replayed)

    @property
    def size(self) -> float:
        """The root mean square of what the model says."""
        return self.measured.size

    @property
    def errors(self) -> Sequence[np.ndarray]:
        """By sample, the squared differences to what the candidate gave."""
        return self.measured.errors

    @property
    def fitted_on(self) -> np.ndarray:
        """Which elements of the first sample numbers are fitted to; others judge."""
        return self.measured.fitted_on

    @property
    def floor(self) -> float:
        """The squared error that counts as nothing."""
        return (ROUNDING * self.size) ** 2

    @property
    def weight(self) -> float:
        """Half of the numbers that count as evidence."""
        return min(sum(array.size for array in self.context.candidate), MOST_NUMBERS) / 2

    @property
    def picks(self) -> np.ndarray:
        """The elements that edits are first held against."""
        return self.measured.picks

    def rebased(self, bases: Sequence[np.ndarray]) -> ComputedStretch:
        """The same with other results as what the model says: what an edit is behind another one."""
        other = copy.copy(self)
        other.base = base = list(bases)
        other.replayed = MadeOnce(len(base), lambda sample: as_float64(base[sample]))
        other.measured = StretchMeasures(other.found, other.replayed)
        return other

    def fitted_among(self, chosen: np.ndarray) -> ComputedStretch:
        """The same where numbers are fitted to those of the chosen elements alone; bools of the first sample's shape."""
        other = copy.copy(self)
        other.measured = StretchMeasures(self.found, self.replayed)
        other.measured.fitted_on = self.fitted_on & chosen
        return other

    def moved(self, sample: int, changed: Mapping[str, np.ndarray]) -> ComputedStretch:
        """The same where what is read on one sample is something else."""
        other = copy.copy(self)
        other.worlds = worlds = list(self.worlds)
        known = worlds[sample]
        worlds[sample] = {**known, **{name: changed[name] for name in known if name in changed}}
        other.base = base = list(self.base)
        other.plain = {}
        base[sample] = other.run(sample)
        other.replayed = MadeOnce(len(base), lambda place: as_float64(base[place]))
        return other

    @property
    def same_shape(self) -> bool:
        """Whether both sides' results have one shape, on every sample."""
        return all(known.shape == found.shape for known, found in zip(self.base, self.context.candidate, strict=True))

    def samples_before(self, sample: int, most: int | None = None) -> tuple[int, ...]:
        """The places of the samples from the first of all up to the one before, in their order; of these at `most` the last.

        Raises:
            KeyError: one of them was not observed.
        """
        order = self.context.order or range(len(self.base))
        places = {number: place for place, number in enumerate(order)}
        first = 0 if most is None else max(0, order[sample] - most)
        return tuple(places[number] for number in range(first, order[sample]))

    def knows_before(self, sample: int, most: int | None = None) -> bool:
        """Whether there are samples before one, and all of them (the last of them) were observed."""
        try:
            return bool(self.samples_before(sample, most))
        except KeyError:
            return False

    def value(self, sample: int, name: str) -> np.ndarray | None:
        """The candidate's array, or a constant, by the reference's name; None where it is not known."""
        world = self.worlds[sample]
        return world.get(name, self.context.constants.get(name))

    def known_value(self, sample: int, name: str) -> np.ndarray:
        """As `value`.

        Raises:
            ParityError: it is not known.
        """
        array = self.value(sample, name)
        if array is None:
            raise ParityError(f"{name} was not observed")
        return array

    def read(self, sample: int, step: ProgramStep) -> list[np.ndarray | None]:
        """What a step around the stretch reads.

        Raises:
            ParityError: the candidate did not show it.
        """
        found = [self.value(sample, name) if name else None for name in step.inputs]
        if any(array is None and name for array, name in zip(found, step.inputs, strict=True)):
            raise ParityError(f"not all that {step.op_type} reads was observed")
        return found

    def compute(self, step: ProgramStep, arrays: Arrays) -> np.ndarray:
        """The first result of a step on other arrays."""
        return self.compute_all(step, arrays)[0]

    def compute_all(self, step: ProgramStep, arrays: Arrays) -> list[np.ndarray]:
        """All results of a step on other arrays."""
        return [np.asarray(one) for one in self.sessions.run(fit_inputs(step, arrays), list(arrays), self.program)]

    def run(self, sample: int, edit: StretchEdit | None = None) -> np.ndarray:
        """The result on the candidate's own inputs, before it is rounded; with an edit.

        Raises:
            ParityError: the runtime refuses a node.
        """
        if edit is not None and edit.whole is not None:
            return edit.whole(self, sample)
        return self._run(sample, {} if edit is None else {edit.at: edit})

    def results(
        self, sample: int, edit: StretchEdit, changed: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> dict[str, np.ndarray]:
        """All that the stretch's steps give with an edit, by name; the output alone where the edit speaks of that.

        With `changed` these tensors are read where others are known.

        Raises:
            ParityError: the runtime refuses a node.
        """
        if edit.whole is not None:
            return {self.context.output: edit.whole(self.moved(sample, changed) if changed else self, sample)}
        return self._results(sample, {edit.at: edit}, changed)

    def _run(self, sample: int, edits: Mapping[int, StretchEdit]) -> np.ndarray:
        """The result with an edit of each of some steps, by their places."""
        return self._results(sample, edits)[self.context.output]

    def _results(
        self,
        sample: int,
        edits: Mapping[int, StretchEdit],
        changed: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> dict[str, np.ndarray]:
        own: dict[str, np.ndarray] = {}
        # What an edit does not reach is not computed for it again.
        plain = self._plain_results() if len(self.steps) > 1 and edits and not sample and not changed else {}
        reached: set[str] = set()
        for place, step in enumerate(self.steps):
            edit, edited, program = edits.get(place), step, self.program
            if plain and edit is None and reached.isdisjoint(step.reads):
                own.update((name, plain[name]) for name in step.outputs if name in plain)
                continue
            reached.update(step.outputs)
            arrays: Arrays = [self._take_input(sample, own, step, index, changed) for index in range(len(step.inputs))]
            if edit is not None:
                arrays = arrays if edit.before is None else edit.before(arrays)
                edited = self._edited_step(step, edit)
                program = program if edit.opset is None else set_opset(program, edit)
            captured = [self._find_value(sample, own, name, changed) for name in step.captured]
            results = self.sessions.run(fit_inputs(edited, arrays), list(arrays), program, captured)
            if edit is not None and edit.after is not None:
                results = [edit.after(results[0]), *results[1:]]
            for name, array in zip(step.outputs, results, strict=False):
                own[name] = self._value_between(step, name, array)
        return own

    def _plain_results(self) -> dict[str, np.ndarray]:
        self.plain = self.plain or self._results(0, {})
        return self.plain

    def run_in_order(self, sample: int, place: int, index: int) -> np.ndarray:
        """The result where the step at `place` is done before the one that gives its input `index`: f(g(x)) for g(f(x)).

        Raises:
            ParityError: the runtime refuses a node so.
        """
        first, second = self.steps[place], self.steps[place - 1]
        entering = next(name for name in second.inputs if name)

        def taking(arrays: Arrays) -> Arrays:
            # What the later step reads beside the other's result stays.
            own = [
                self._take_input(sample, {}, first, other) if other != index else None
                for other in range(len(first.inputs))
            ]
            source = next(array for name, array in zip(second.inputs, arrays, strict=False) if name == entering)
            own[index] = source
            made = self.compute(first, own)
            return [made if name == entering else array for name, array in zip(second.inputs, arrays, strict=False)]

        exchanged = StretchEdit(words="", bits=0, at=place - 1, before=taking)
        handed_on = StretchEdit(
            words="", bits=0, at=place, node=onnx.NodeProto(op_type="Identity"), before=lambda a: [a[index]]
        )
        return self._run(sample, {place - 1: exchanged, place: handed_on})

    def stored(self, array: np.ndarray) -> np.ndarray:
        """A result as the arithmetic stores it, float64."""
        output = self.arithmetic.output
        if output is None or array.dtype.kind != "f":
            return as_float64(array)
        with np.errstate(over="ignore", invalid="ignore"):
            return as_float64(output.apply(array if array.dtype.itemsize > 2 else array.astype(np.float32)))

    def _take_input(
        self,
        sample: int,
        own: Mapping[str, np.ndarray],
        step: ProgramStep,
        index: int,
        changed: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> np.ndarray | None:
        name = step.inputs[index]
        if not name:
            return None
        array = self._find_value(sample, own, name, changed)
        if self.arithmetic.stored is None and self.arithmetic.operands is None:
            return array
        if array.dtype.kind != "f" or array.dtype.itemsize < 4 or index in EXACT_INPUTS.get(step.op_type, ()):
            return array
        operand = Operand(node=step.node, index=index, constant=name in self.context.constants)
        if self.arithmetic.stored is not None and name not in own:
            array = self.arithmetic.stored(array, operand)
        multiplied = PRODUCTS.get(step.op_type, ())
        if self.arithmetic.operands is not None and (multiplied is None or index in multiplied):
            array = self.arithmetic.operands(array, operand)
        return array

    def _find_value(
        self, sample: int, own: Mapping[str, np.ndarray], name: str, changed: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        return own[name] if name in own else changed[name] if name in changed else self.known_value(sample, name)

    def _edited_step(self, step: ProgramStep, edit: StretchEdit) -> ProgramStep:
        """The step with the edit's node: written once, as an edit that comes near is run many times."""
        if edit.node is None and edit.opset is None:
            return step
        key = step.key, edit
        if key not in self._edited:
            self._edited[key] = change_step(step, edit)
        return self._edited[key]

    def _value_between(self, step: ProgramStep, name: str, array: np.ndarray) -> np.ndarray:
        if self.arithmetic.between is None or name == self.context.output or array.dtype.kind != "f":
            return array
        return self.arithmetic.between(array, Operand(node=step.node, index=-1, constant=False))

    def changed_constants(self, edit: StretchEdit) -> dict[str, np.ndarray]:
        """What an edit of constants alone makes of them, by name; nothing of edits that look at other inputs."""
        if edit.before is None or edit.node is not None or edit.opset is not None or edit.at < 0:
            return {}
        step = self.steps[edit.at]
        arrays = [self.context.constants.get(name) for name in step.inputs]
        try:
            made = edit.before(arrays)
        except (AttributeError, TypeError, ValueError, IndexError, KeyError):
            return {}
        changed = [index for index, (old, new) in enumerate(zip(arrays, made, strict=False)) if old is not new]
        names = {index: step.inputs[index] for index in changed}
        if len(made) != len(arrays) or any(name not in self.context.constants for name in names.values()):
            return {}
        return {name: np.asarray(made[index]) for index, name in names.items() if made[index] is not None}

    def share(self, edit: StretchEdit) -> float | None:
        """The share of the first sample's squared error that an edit explains, on some elements; None if it cannot be run."""
        self.tried += 1
        predicted = self.predict_sample(edit, 0, self.picks)
        if predicted is None:
            self.failed += 1
            return None
        left = squared_differences(self.found[0].ravel()[self.picks], predicted, self.size).sum()
        return float(1 - left / max(self.errors[0].ravel()[self.picks].sum(), 1e-300))

    def confirm(self, edit: StretchEdit) -> tuple[float, float] | None:
        """The explained share and the description length, on what nothing was fitted to; None if it cannot be run."""
        left = whole = count = 0.0
        judged = [sample for sample in self.measured.shown_on if sample] or [0]
        for sample in judged:
            predicted = self.predict_sample(edit, sample)
            if predicted is None:
                return None
            chosen = ~self.fitted_on if sample == 0 and not self.fitted_on.all() else np.ones(predicted.shape, bool)
            if not self.errors[sample][chosen].any():
                chosen = np.ones(predicted.shape, bool)
            left += float(squared_differences(self.found[sample], predicted, self.size)[chosen].sum())
            whole += float(self.errors[sample][chosen].sum())
            count += int(chosen.sum())
        floor = self.floor * count
        length = edit.bits + self.weight * math.log2(max(left, floor) / max(whole, floor))
        return 1 - left / max(whole, 1e-300), length

    def predict_sample(self, edit: StretchEdit, sample: int, picks: np.ndarray | None = None) -> np.ndarray | None:
        """What an edit says that the candidate gave on a sample, float64; None if it cannot be run, or is of another shape.

        With `picks` only at these elements, (n,).
        """
        try:
            with np.errstate(all="ignore"):
                predicted = np.asarray(self.run(sample, edit))
                if predicted.shape != self.found[sample].shape:
                    return None
                return self.stored(predicted if picks is None else predicted.ravel()[picks])
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever an edit does, it explains nothing then, and is counted
            return None
