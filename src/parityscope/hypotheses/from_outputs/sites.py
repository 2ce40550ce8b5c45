"""A step of the reference as a stretch of one, so that what is generated for layers that were seen serves here too.

What the generators read are the reference's own tensors: those of steps near by that do not depend on the site's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.errors import ParityError
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_nan import SWALLOWED
from parityscope.hypotheses.from_outputs.rewriting import rewrite_body
from parityscope.hypotheses.from_outputs.spending import APPLY_S, ELEMENT_S, MADE_S, SITE_S
from parityscope.hypotheses.schemas import axes_by_values
from parityscope.hypotheses.searching import generated_kinds
from parityscope.hypotheses.stretch import ComputedStretch, StretchContext
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.operators import operators_that_move

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import onnx

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_outputs.reference import Inner, Redo, Reference


# Kinds of `searching` by when they are asked: few and short ones everywhere, thousands where something comes near. What fits
# numbers to a tensor that was seen has `families` in its place.
# Those whose short ones are tried at every site.
PLAIN = (
    "neighbours",
    "before",
    "states",
    SWALLOWED,
    "inputs",
    "masks",
    "layouts",
    "attributes",
    "operands",
    "relatives",
)
EARLY = (*PLAIN, "constants", "grids", "changed constants", "values")
LATE = ("operators", "near constants", "changed inputs", "joint", "inside")
_OF_RESULT, _OF_STATES = "values", "states"
_MOVES = operators_that_move("in order", "permuted", "picked", "repeated")
UNCHANGED = StretchEdit(words="", bits=0)
_BEFORE, _BEHIND = 24, 6  # steps around whose tensors and constants are looked at; chosen
_SMALL = 1 << 16  # elements of a constant near by


@dataclass(slots=True, kw_only=True, eq=False)
class EditSite:
    """Where an edit can stand. `output` is the tensor that edits of the result are about.

    With `whole_step` the node itself may be another one too; a further output of a step, and one whose other outputs are right,
    have edits of their result alone. `crashed` says of kinds of edits why what generates them could not go on.
    """

    reference: Reference
    step: ProgramStep
    output: str
    whole_step: bool = True
    inner: Inner | None = None
    crashed: dict[str, str] = field(default_factory=dict)
    _stretch: ComputedStretch | None = None
    _edits: dict[str, list[StretchEdit]] = field(default_factory=dict)
    _counted: dict[str, frozenset[int]] = field(default_factory=dict)

    @property
    def stretch(self) -> ComputedStretch:
        """The step made ready.

        Raises:
            ParityError: it cannot be run alone.
        """
        if self._stretch is None:
            context = _context_of(self) if self.inner is None else _context_inside(self, self.inner)
            self.reference.meter.charge(SITE_S)
            self._stretch = ComputedStretch(context=context, sessions=self.reference.sessions, given=context.candidate)
        return self._stretch

    def beside(self, moved: Reference, sample: int) -> EditSite:
        """The same site, with the edits that it has, on one sample of a reference in which other steps are changed.

        Raises:
            ParityError: the step cannot be run alone.
        """
        stretch = self.stretch.moved(sample, moved.values[sample])
        moved.meter.charge(moved.seconds[self.step.index])
        return replace(self, reference=moved, _stretch=stretch)

    @property
    def node(self) -> onnx.NodeProto:
        """The message of the step's node."""
        stretch = self.stretch
        return next(one for one in stretch.context.nodes if tuple(one.output) == stretch.steps[0].outputs)

    @property
    def size(self) -> int:
        """Elements of its result."""
        return int(self.result.size)

    @property
    def result(self) -> np.ndarray:
        """What the reference gives there, on the first sample."""
        return self.reference.values[0][self.output] if self.inner is None else self.inner.values[0][self.output]

    def result_on(self, sample: int) -> np.ndarray:
        """What the reference gives there on a sample."""
        return (
            self.reference.values[sample][self.output] if self.inner is None else self.inner.values[sample][self.output]
        )

    def counted_axes(self, name: str) -> frozenset[int]:
        """The axes of a result that are as long as the values say, whatever the shapes of what is read: rows that were found."""
        if self.inner is not None or not self.whole_step:
            return frozenset()
        if name not in self._counted:
            node = self.node
            inputs = [self.stretch.value(0, one) if one else None for one in node.input]
            self._counted[name] = axes_by_values(node, inputs, self.stretch.context.opsets, name)
        return self._counted[name]

    @property
    def price(self) -> float:
        """Estimated seconds of the step with an edit."""
        return self.reference.seconds[self.step.index] + APPLY_S + ELEMENT_S * self.size

    @property
    def changed_step(self) -> ProgramStep:
        """The step of which an edit here is about."""
        return self.step if self.inner is None else self.inner.step

    @property
    def hands_on(self) -> bool:
        """Whether the step only moves what nothing else reads: what is done to each element here is done to that as well."""
        step, program = self.step, self.reference.program
        moves = self.inner is None and len(step.outputs) == 1 and step.op_type in _MOVES
        read = moves and sum(step.inputs[0] in other.reads for other in self.reference.live) == 1
        return read and step.inputs[0] in program.steps_of and step.inputs[0] not in program.outputs

    def edits(self, kinds: Sequence[str]) -> Iterator[tuple[str, StretchEdit]]:
        """What is generated of some kinds, with the kind; a generator that cannot go on ends alone."""
        for kind in (one for one in kinds if self._may_have(one)):
            if kind not in self._edits:
                self._edits[kind] = list(self._generated(kind))
                self.reference.meter.charge(MADE_S * len(self._edits[kind]))
            yield from ((kind, edit) for edit in self._edits[kind])

    def _may_have(self, kind: str) -> bool:
        """Whether edits of a kind are asked here: of control flow as a whole those of its states, of a further output its own."""
        if self.inner is None and self.step.bodies:
            return kind in {_OF_RESULT, _OF_STATES}
        return self.whole_step or kind == _OF_RESULT

    def count_edits(self) -> dict[str, int]:
        """How many edits were generated so far, by kind."""
        return {kind: len(edits) for kind, edits in self._edits.items()}

    def _generated(self, kind: str) -> Iterator[StretchEdit]:
        made: Iterator[StretchEdit] | None = None
        while True:
            try:
                made = made or self._generator_of(kind)
                edit = next(made, None)
            except (MemoryError, ParityError):
                raise
            except Exception as error:  # noqa: BLE001 - a strange node trips one generator; it is told, and the others go on
                self.crashed[kind] = f"{type(error).__name__}: {error}"
                return
            if edit is None:
                return
            yield edit

    def _generator_of(self, kind: str) -> Iterator[StretchEdit]:
        return next(edits for name, edits in generated_kinds(self.stretch, [(0, self.node)]) if name == kind)

    def results(
        self, sample: int, edit: StretchEdit, changed: Mapping[str, np.ndarray] | None = None
    ) -> list[np.ndarray | None] | None:
        """What the step gives with an edit, in the reference's types; None where it cannot be had.

        With `changed` the step reads these tensors where the reference has others.
        """
        self.reference.meter.charge(self.price)
        try:
            if self.inner is not None:
                return self._results_outside(self.inner, sample, edit, changed or {})
            found = self.stretch.results(sample, edit, changed or {})
            if changed and len(self.step.outputs) > 1:  # the others of its results are other ones as well
                found = {**self.stretch.results(sample, UNCHANGED, changed), **found}
            return [
                np.asarray(found[name]).astype(self.reference.values[sample][name].dtype, copy=False)
                if name in found
                else None
                for name in self.step.outputs
            ]
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever an edit does, it explains nothing then
            return None

    def _results_outside(
        self, inner: Inner, sample: int, edit: StretchEdit, changed: Mapping[str, np.ndarray]
    ) -> list[np.ndarray | None] | None:
        """What the control flow gives when a node of its body is another one; only what a graph can say is known there."""
        written = rewrite_body(self.step, inner, edit, self.stretch.changed_constants(edit))
        return None if written is None else self.results_of_written(written, sample, changed)

    def results_of_written(
        self, written: ProgramStep, sample: int, changed: Mapping[str, np.ndarray]
    ) -> list[np.ndarray | None]:
        """What the control flow gives with another body."""
        reference = self.reference

        def taken(name: str) -> np.ndarray | None:
            return changed[name] if name in changed else reference.value(sample, name)

        inputs = [taken(name) if name else None for name in self.step.inputs]
        captured = [taken(name) for name in self.step.captured]
        return reference.sessions.run(written, inputs, reference.program, captured)

    def redo(self, edit: StretchEdit) -> Redo:
        """The step with an edit, to be computed in whatever it then reads."""

        def computed(sample: int, changed: Mapping[str, np.ndarray]) -> Sequence[np.ndarray | None]:
            found = self.results(sample, edit, changed)
            if found is None:
                raise ParityError(f"{self.output} cannot be computed with this change")
            return found

        return computed


def redo_edits(edits: Iterable[tuple[EditSite, StretchEdit]]) -> dict[int, Redo]:
    """Edits of several sites, by the steps' indices; those inside of one step together."""
    by_step: dict[int, list[tuple[EditSite, StretchEdit]]] = {}
    for site, edit in edits:
        by_step.setdefault(site.step.index, []).append((site, edit))
    return {
        index: _redo_inside(some) if len(some) > 1 else some[0][0].redo(some[0][1]) for index, some in by_step.items()
    }


def _redo_inside(edits: Sequence[tuple[EditSite, StretchEdit]]) -> Redo:
    """Control flow with several nodes of its bodies changed, to be computed in whatever it then reads."""
    first, _ = edits[0]

    def computed(sample: int, changed: Mapping[str, np.ndarray]) -> Sequence[np.ndarray | None]:
        first.reference.meter.charge(first.price)
        try:
            written: ProgramStep | None = first.step
            for site, edit in edits:
                if site.inner is not None and written is not None:
                    written = rewrite_body(written, site.inner, edit, site.stretch.changed_constants(edit))
            if written is not None:
                return first.results_of_written(written, sample, changed)
        except MemoryError:
            raise
        except Exception as error:  # as for one edit: whatever it does, it explains nothing then
            raise ParityError(f"{first.step.key} cannot be written with these changes") from error
        raise ParityError(f"{first.step.key} cannot be written with these changes")

    return computed


def sites_of(reference: Reference, still: frozenset[str]) -> list[EditSite]:
    """The sites of the live steps, those inside of bodies too; what reaches an output that stands still, or is text, is none.

    A right class or index says little of what it was decided by, and acquits nothing.
    """
    found, values = [], reference.values[0]
    still = frozenset(name for name in still if values[name].dtype.kind == "f")
    for step in reference.live:
        numbers = [name for name in step.outputs if name in values and values[name].dtype.kind not in "OUST"]
        reached = {name: _tensors_reached(reference, step, name) for name in numbers}
        given = [name for name, those in reached.items() if not those.isdisjoint(reference.program.outputs)]
        free = [name for name in given if reached[name].isdisjoint(still)]
        if step.bodies:
            inside = reference.inside(step) if len(free) == len(given) else ()
            found += [EditSite(reference=reference, step=step, output=one.step.key, inner=one) for one in inside]
            if step.captured:  # what a body reads beside its inputs is not known to a step alone
                continue
        for name in free:
            whole_step = name == free[0] and len(free) == len(given)
            found.append(EditSite(reference=reference, step=step, output=name, whole_step=whole_step))
    return found


def _tensors_reached(reference: Reference, step: ProgramStep, output: str) -> set[str]:
    """What depends on one output of a step, and that itself."""
    found = {output}
    for other in reference.after[step.index]:
        if not found.isdisjoint(other.reads):
            found.update(other.outputs)
    return found


def _context_of(site: EditSite) -> StretchContext:
    reference, step = site.reference, site.step
    steps = reference.program.steps
    makers = {
        reference.program.steps_of[name].index: reference.program.steps_of[name]
        for name in step.inputs
        if name in reference.program.steps_of
    }
    takers = {
        one.index: one
        for one in reference.after.get(step.index, ())
        if any(name in one.inputs for name in step.outputs)
    }
    chosen = sorted({**makers, **takers, step.index: step}.items())
    behind = {name for one in (step, *reference.after[step.index]) for name in one.outputs if name}
    near = [*(one for _, one in chosen), *reversed(steps[max(0, step.index - _BEFORE) : step.index + _BEHIND])]
    names = dict.fromkeys(name for one in near for name in (*one.inputs, *one.outputs) if name)
    constants = reference.program.constants
    held = {name: constants[name] for _, one in chosen for name in one.inputs if name in constants}
    held |= {
        name: constants[name]
        for name in names
        if name in constants and constants[name].dtype.kind == "f" and 0 < constants[name].size <= _SMALL
    }
    shown = [name for name in names if name not in behind and name not in constants]
    worlds = [_values_in_world(values, shown, reference.program.inputs) for values in reference.values]
    for name in (name for name in step.inputs if name and name not in constants):
        if name not in worlds[0]:
            raise ParityError(f"{name} is no tensor")
    return StretchContext(
        nodes=[_node_message(one) for _, one in chosen],
        stretch=[[index for index, _ in chosen].index(step.index)],
        output=site.output,
        constants=held,
        worlds=worlds,
        candidate=[values[site.output] for values in reference.values],
        behind=frozenset(behind - {site.output}),
        opsets=dict(reference.program.opsets),
        ir_version=reference.program.ir_version,
        order=reference.order,
    )


def _context_inside(site: EditSite, inner: Inner) -> StretchContext:
    """The node of a body with what it read in one iteration; what lies around it is not looked at."""
    step, program = inner.step, inner.program
    constants = {**site.reference.program.constants, **program.constants}
    held = {name: constants[name] for name in step.inputs if name in constants}
    worlds = []
    for sample, values in enumerate(inner.values):
        shown = {name: site.reference.value(sample, name) for name in step.inputs if name and name not in held}
        worlds.append({name: values.get(name, array) for name, array in shown.items()})
    if any(array is None for world in worlds for array in world.values()):
        raise ParityError(f"not all that {step.op_type} reads was seen")
    return StretchContext(
        nodes=[_node_message(step)],
        stretch=[0],
        output=site.output,
        constants=held,
        worlds=[{name: np.asarray(array) for name, array in world.items()} for world in worlds],
        candidate=[values[site.output] for values in inner.values],
        behind=frozenset(),
        opsets=dict(site.reference.program.opsets),
        ir_version=site.reference.program.ir_version,
    )


def _values_in_world(
    values: Mapping[str, np.ndarray], names: Sequence[str], fed: Sequence[str]
) -> dict[str, np.ndarray]:
    return {name: values[name] for name in dict.fromkeys((*names, *fed)) if name in values}


def _node_message(step: ProgramStep) -> onnx.NodeProto:
    """A step by its sites."""
    node = ir.serde.serialize_node(step.node)
    del node.input[:], node.output[:]
    node.input.extend(step.inputs)
    node.output.extend(step.outputs)
    return node
