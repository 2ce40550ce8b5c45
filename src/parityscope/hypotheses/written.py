"""What an edit does with arrays, as nodes of a graph: what moves elements along an axis or anywhere, or scales and shifts them.

It is asked of the edit itself, which is given the numbers of the elements in place of them: what comes out says where each went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from parityscope.errors import ParityError
from parityscope.hypotheses.edits import NodeAgain
from parityscope.hypotheses.measures import are_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.stretch import ComputedStretch

    Change = Callable[[np.ndarray], np.ndarray]
    Source = str | int | np.ndarray

_MOST = 1 << 20  # elements whose places are told one by one, which float32 counts exactly; chosen
_SAME = 1e-6  # relative: scaled and shifted to within a few roundings of FP32; chosen


@np.errstate(all="ignore")  # of what is no number
def write_edit(stretch: ComputedStretch, edit: StretchEdit) -> tuple[NodeAgain, ...]:
    """The nodes that do in a graph what an edit does with arrays; none where that is not known, or said otherwise already."""
    if edit.again or edit.node is not None or edit.reads is not None or edit.behind or edit.opset is not None:
        return edit.again
    whole, after, result = edit.whole, edit.after, stretch.context.output
    try:
        if whole is not None:
            others = stretch.base[1:]
            return _write_change(lambda array: whole(stretch.rebased([array, *others]), 0), stretch.base[0], result, 0)
        if after is not None:
            alone = edit.before is None and edit.at == len(stretch.steps) - 1
            return _write_change(after, stretch.base[0], result, 0) if alone else ()
        return _write_inputs(stretch, edit) if edit.at >= 0 else ()
    except (ParityError, ArithmeticError, AttributeError, TypeError, ValueError, IndexError, KeyError):
        return ()


def _write_inputs(stretch: ComputedStretch, edit: StretchEdit) -> tuple[NodeAgain, ...]:
    """The step with changed inputs, and those behind it; none where constants alone are changed."""
    if edit.before is None:
        return ()
    step, before = stretch.steps[edit.at], edit.before
    arrays = [stretch.value(0, name) if name else None for name in step.inputs]
    made = before(arrays)
    changed = [index for index, (old, new) in enumerate(zip(arrays, made, strict=False)) if old is not new]
    if len(made) != len(arrays) or all(step.inputs[index] in stretch.context.constants for index in changed):
        return ()
    nodes: tuple[NodeAgain, ...] = ()
    sources: dict[int, Source] = {}
    for index in changed:
        old, new = arrays[index], made[index]
        if old is None or new is None:
            return ()
        if step.inputs[index] in stretch.context.constants:
            sources[index] = new
            continue

        def change(array: np.ndarray, index: int = index) -> np.ndarray:
            given = before([array if place == index else one for place, one in enumerate(arrays)])[index]
            if given is None:
                raise ValueError("it is left out")
            return np.asarray(given)

        written = _write_change(change, old, step.inputs[index], len(nodes))
        if not written:
            return ()
        nodes += written
        sources[index] = len(nodes) - 1
    return do_again_from(stretch, edit.at, sources, nodes)


def do_again_from(
    stretch: ComputedStretch, place: int, sources: Mapping[int, Source], before: tuple[NodeAgain, ...] = ()
) -> tuple[NodeAgain, ...]:
    """The steps from `place` on where some of its inputs are `sources`, behind others; none where a graph cannot say it so."""
    made, known = [*before], dict[str, int]()
    for at, step in enumerate(stretch.steps[place:], place):
        if at > place and known.keys().isdisjoint(step.reads):
            continue
        if step.captured or known.keys() & set(step.reads) - set(step.inputs):
            return ()
        known[step.outputs[0]] = len(made)
        reads: tuple[Source, ...] = tuple(known.get(name, name) for name in step.inputs)
        if at == place:
            reads = tuple(sources.get(other, name) for other, name in enumerate(step.inputs))
        made.append(NodeAgain(of=step.outputs[0], reads=reads))
    return tuple(made) if made[-1].of == stretch.context.output else ()


def _write_change(change: Change, array: np.ndarray, source: str, count: int) -> tuple[NodeAgain, ...]:
    """The nodes, behind `count` others, that do to the tensor `source` what `change` does to this array; none if unknown."""
    made = change(array)
    if made.dtype != array.dtype:
        return ()
    return _write_scale(change, array, made, source, count) or _write_move(change, array, made, source, count)


def _write_scale(change: Change, array: np.ndarray, made: np.ndarray, source: str, count: int) -> tuple[NodeAgain, ...]:
    if array.dtype.kind != "f" or made.shape != array.shape:
        return ()
    offset, both = (np.unique(change(np.full_like(array, value))) for value in (0, 1))
    if offset.size != 1 or both.size != 1:
        return ()
    scaled = array * (both - offset) + offset
    if not np.allclose(scaled, made, rtol=_SAME, atol=_SAME * float(np.abs(made).max(initial=0)), equal_nan=True):
        return ()
    return (
        NodeAgain(node=_node("Mul"), reads=(source, (both - offset).reshape(()))),
        NodeAgain(node=_node("Add"), reads=(count, offset.reshape(()))),
    )


def _write_move(change: Change, array: np.ndarray, made: np.ndarray, source: str, count: int) -> tuple[NodeAgain, ...]:
    for axis, length in enumerate(array.shape):
        rest = made.shape[:axis] + made.shape[axis + 1 :]
        if made.ndim != array.ndim or rest != array.shape[:axis] + array.shape[axis + 1 :]:
            continue
        view = [1] * array.ndim
        view[axis] = length
        numbers = np.broadcast_to(np.arange(length, dtype=np.float32).reshape(view), array.shape)
        came = np.moveaxis(change(numbers.astype(array.dtype)), axis, 0).reshape(made.shape[axis], -1)[:, 0]
        order = came.astype(np.int64)
        if ((order >= 0) & (order < length)).all() and are_equal(np.take(array, order, axis), made):
            return (NodeAgain(node=_node("Gather", axis=axis), reads=(source, order)),)
    if max(array.size, made.size) > _MOST:
        return ()
    numbers = np.arange(array.size, dtype=np.float32).reshape(array.shape)
    order = change(numbers.astype(array.dtype)).astype(np.int64)
    if not ((order >= 0) & (order < array.size)).all() or not are_equal(array.reshape(-1)[order], made):
        return ()
    return (
        NodeAgain(node=_node("Reshape"), reads=(source, np.array([-1], np.int64))),
        NodeAgain(node=_node("Gather", axis=0), reads=(count, order)),
    )


def _node(op_type: str, **attributes: int) -> bytes:
    message = onnx.NodeProto(op_type=op_type)
    message.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
    return bytes(message.SerializeToString())
