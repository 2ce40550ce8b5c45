"""A step left out, done twice, exchanged with its neighbours; another node's result, or another sample's, in its place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import NodeAgain, StretchEdit
from parityscope.hypotheses.from_inputs import edit_of_input, edit_taking
from parityscope.hypotheses.schemas import schema_of
from parityscope.hypotheses.written import do_again_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.stretch import ComputedStretch

_MOST_ALIKE = 10
_AS_IT_IS = StretchEdit(words="", bits=0, at=-1)  # no step is at that place


def neighbour_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Edits of the order in which `node`, the step at `place`, and those around the stretch are done."""
    step = stretch.steps[place]
    makers = {name: one for one in (*stretch.around, *stretch.steps[:place]) for name in one.outputs if name}
    for index, name in enumerate(step.inputs):
        if not name:
            continue
        rest = [other for other in step.inputs if other and other != name]
        ignored = f", {', '.join(map(repr, rest))} ignored" if rest else ""
        yield StretchEdit(
            words=f"{step.op_type} left out: {name!r} handed on{ignored}",
            bits=4,
            at=place,
            node=_identity_node(node),
            before=lambda arrays, i=index: [arrays[i]],
            reads=(index,),
        )
        maker = makers.get(name)
        if maker is not None and maker in stretch.around:
            yield from _maker_edits(stretch, place, index, maker)
        if place and name in stretch.steps[place - 1].outputs:
            yield _swap_steps(stretch, place, index)
    if place == len(stretch.steps) - 1:
        yield from _edit_before_bias(stretch, place)
        yield from _result_edits(stretch, step)


def _swap_steps(stretch: ComputedStretch, place: int, index: int) -> StretchEdit:
    """A step of the stretch done before the one whose result it reads."""
    step, before = stretch.steps[place], stretch.steps[place - 1]

    def whole(one: ComputedStretch, sample: int) -> np.ndarray:
        return one.run_in_order(sample, place, index)

    return StretchEdit(words=f"{step.op_type} done before {before.op_type}", bits=6, whole=whole)


def _edit_before_bias(stretch: ComputedStretch, place: int) -> Iterator[StretchEdit]:
    """The last step done before a constant that the step above it may do without (a bias) is added there."""
    if not place or not set(stretch.steps[place - 1].outputs) & set(stretch.steps[place].inputs):
        return
    step, above = stretch.steps[place], stretch.steps[place - 1]
    message = next(node for node in stretch.context.nodes if tuple(node.output) == above.outputs)
    schema = schema_of(message, stretch.context.opsets)
    for index, name in enumerate(above.inputs):
        optional = schema is not None and index < len(schema.inputs) and schema.inputs[index].option.name == "Optional"
        if not optional or name not in stretch.context.constants:
            continue

        def whole(one: ComputedStretch, sample: int, index: int = index) -> np.ndarray:
            dropped = StretchEdit(words="", bits=0, at=place - 1, before=lambda a: [*a[:index], None, *a[index + 1 :]])
            full, without = one.results(sample, _AS_IT_IS), one.results(sample, dropped)
            added = full[above.outputs[0]] - without[above.outputs[0]]
            return np.asarray(without[step.outputs[0]] + added)

        yield StretchEdit(words=f"{step.op_type} done before {name!r} is added in {above.op_type}", bits=6, whole=whole)


def _identity_node(node: onnx.NodeProto) -> onnx.NodeProto:
    import onnx

    return onnx.NodeProto(op_type="Identity", input=["x"], output=[node.output[0]])


def _maker_edits(stretch: ComputedStretch, place: int, index: int, maker: ProgramStep) -> Iterator[StretchEdit]:
    """The node before an input left out, done twice, or done behind this one."""
    for name in maker.inputs:
        if name and stretch.value(0, name) is not None:
            words = f"{maker.op_type} before input {index} left out ({name!r} taken)"
            yield edit_taking(stretch, words, 6, place, index, name)
    step, (given, *others) = stretch.steps[place], maker.inputs or ("",)

    def again(one: ComputedStretch, sample: int, array: np.ndarray) -> np.ndarray:
        return one.compute(maker, [array, *one.read(sample, maker)[1:]])

    def twice(one: ComputedStretch, sample: int) -> np.ndarray:
        made = again(one, sample, one.known_value(sample, step.inputs[index]))
        return one.run(sample, edit_of_input(place, "", 0, index, made))

    once_more = NodeAgain(of=maker.outputs[0], reads=(step.inputs[index], *others))
    written = do_again_from(stretch, place, {index: 0}, (once_more,))
    yield StretchEdit(words=f"{maker.op_type} before input {index} done twice", bits=6, whole=twice, again=written)

    def exchanged(one: ComputedStretch, sample: int) -> np.ndarray:
        return again(one, sample, one.run(sample, edit_of_input(place, "", 0, index, one.value(sample, given))))

    if len(stretch.steps) == 1:
        behind = NodeAgain(of=maker.outputs[0], reads=(0, *others))
        written = (*do_again_from(stretch, place, {index: given}), behind)
        yield StretchEdit(words=f"exchanged with the {maker.op_type} before it", bits=7, whole=exchanged, again=written)


def _result_edits(stretch: ComputedStretch, step: ProgramStep) -> Iterator[StretchEdit]:
    others = [stretch.value(0, name) if name else None for name in step.inputs]
    output = stretch.context.output
    if len(stretch.steps) == 1 and others and others[0] is not None:
        yield StretchEdit(
            words=f"{step.op_type} done twice",
            bits=5,
            whole=lambda one, sample: one.compute(step, [one.base[sample], *one.read(sample, step)[1:]]),
            again=(NodeAgain(of=step.outputs[0], reads=(output, *step.inputs[1:])),),
        )
    for taker in stretch.around:
        if output in taker.inputs:

            def follows(one: ComputedStretch, sample: int, t: ProgramStep = taker) -> np.ndarray:
                arrays = [one.base[sample] if name == output else one.value(sample, name) for name in t.inputs]
                return one.compute(t, arrays)

            words = f"the {taker.op_type} that follows done here already"
            follows_too = NodeAgain(of=taker.outputs[0], reads=tuple(taker.inputs))
            yield StretchEdit(words=words, bits=5, whole=follows, again=(follows_too,))
    shape = stretch.base[0].shape
    alike = [
        name
        for name, array in stretch.worlds[0].items()
        if array.shape == shape and array.dtype == stretch.base[0].dtype
    ][:_MOST_ALIKE]
    for name in alike if shape else ():
        yield StretchEdit(
            words=f"{name!r} in place of the result (outputs or buffers exchanged)",
            bits=6 + math.log2(len(alike)),
            whole=lambda one, sample, n=name: np.asarray(one.value(sample, n)),
            again=(NodeAgain(reads=(name,)),),
        )
