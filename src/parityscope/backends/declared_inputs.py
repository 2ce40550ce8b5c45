"""A candidate's file whose inputs are called otherwise than the model's, or have their channels at another axis.

What both files declare says which input is which: a name that both have, what the user states (`inputs=`), and for the rest the
type and the shape, where these leave one reading. A copy of the file then takes what the model takes: its inputs are
renamed, and where the shapes fit with the channels first alone, or last alone, a Transpose stands behind them.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

from parityscope.arithmetic.graphs import Names, all_values
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.private_folders import lasting_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.case import Model
    from parityscope.records import Target, ValueInfo

INPUTS = "inputs"  # the option of a target that states which is which: NAME:MODEL_NAME,...


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenInput:
    """An input of the candidate's file, and of the model's which one it is; its axis i is the model's axis `axes[i]`."""

    own: str
    name: str
    axes: tuple[int, ...]

    @property
    def moved(self) -> bool:
        """Whether its axes stand in another order."""
        return self.axes != tuple(range(len(self.axes)))


def take_inputs_of(model: Model, own: Model, target: Target) -> Model:
    """`own`, or a copy of its file that takes the inputs of `model` where the file's are called or laid out otherwise.

    Raises:
        ParityError: the target states what is no input.
    """
    taken = pair_inputs(model, own, _stated_inputs(model, own, target.option(INPUTS)))
    if own.source or own.unread or all(one.own == one.name and not one.moved for one in taken):
        return own
    shapes = {value.name: value.shape for value in model.inputs}
    written = _write_copy(own.path, own.sha256, tuple((one, shapes[one.name]) for one in taken))
    return replace(load_model(written), original=own.named, sha256=own.sha256, nbytes=own.nbytes)


def pair_inputs(model: Model, own: Model, stated: Mapping[str, str]) -> tuple[TakenInput, ...]:
    """Which input of `own` is which of `model`, as far as both declare it; `stated` are own names -> the model's."""
    mine = {value.name: value for value in model.inputs}
    its = {value.name: value for value in own.inputs}
    pairs = dict(stated)
    pairs |= {name: name for name in its if name in mine and name not in pairs and name not in pairs.values()}
    left = {name: value for name, value in its.items() if name not in pairs}
    free = {name: value for name, value in mine.items() if name not in pairs.values()}
    while left and (sole := _sole_reading(left, free)):
        pairs[sole[0]] = sole[1]
        del left[sole[0]], free[sole[1]]
    found = []
    for inner, outer in pairs.items():
        axes = _find_axes(mine[outer].shape, its[inner].shape)
        found.append(TakenInput(own=inner, name=outer, axes=axes or tuple(range(len(its[inner].shape or ())))))
    return tuple(found)


def describe_taken(model: Model, own: Model, target: Target) -> str:
    """In words, which inputs of `own`, as `take_inputs_of` gave it, are called or laid out otherwise in its file; "" if none."""
    told = []
    for one in _taken_by_copy(model, own, target):
        if one.moved:
            told.append(
                f"the model's input {one.name!r} is transposed for the candidate's file, whose {one.own!r} has the axes "
                f"{', '.join(map(str, one.axes))}"
            )
        elif one.own != one.name:
            told.append(f"the candidate's input {one.own!r} is taken as the model's {one.name!r}")
    return "; ".join(told)


def name_as_model(
    arrays: Mapping[str, np.ndarray], model: Model, own: Model, target: Target
) -> Mapping[str, np.ndarray]:
    """Inputs that were recorded as the candidate's file takes them, by the names and in the layout of `model`."""
    named = dict(arrays)
    for one in _taken_by_copy(model, own, target):
        if one.own in arrays and (one.own == one.name or one.name not in arrays):
            array = named.pop(one.own)
            fits = one.moved and array.ndim == len(one.axes)
            named[one.name] = array.transpose([one.axes.index(axis) for axis in range(array.ndim)]) if fits else array
    return named


def _taken_by_copy(model: Model, own: Model, target: Target) -> tuple[TakenInput, ...]:
    if own.original is None or own.file.parent != lasting_folder(INPUTS):
        return ()
    file = load_model(own.original)
    return pair_inputs(model, file, _stated_inputs(model, file, target.option(INPUTS)))


def _stated_inputs(model: Model, own: Model, text: str) -> dict[str, str]:
    """What `inputs=` says, by own names; a name may hold colons itself, if only one reading makes sense."""
    mine, its = ([value.name for value in one.inputs] for one in (model, own))
    stated: dict[str, str] = {}
    for item in text.split(",") if text else []:
        parts = item.split(":")
        readings = [(":".join(parts[:cut]), ":".join(parts[cut:])) for cut in range(1, len(parts))]
        fitting = [(inner, outer) for inner, outer in readings if inner in its and outer in mine]
        if len(fitting) == 1:
            stated.update(fitting)
        elif not any(outer in its for _, outer in readings):  # of a copy that has been renamed
            raise ParityError(
                f"{item!r} does not go from an input of the candidate's file to one of the model's",
                where=f"its inputs: {', '.join(its)}; the model's: {', '.join(mine)}",
                fix="write --map MODEL_INPUT=CANDIDATE_INPUT with the exact names",
            )
    return stated


def _sole_reading(left: Mapping[str, ValueInfo], free: Mapping[str, ValueInfo]) -> tuple[str, str] | None:
    """An input and the only one that it can be, where it is the only one for that, too."""
    fitting = {inner: [outer for outer, value in free.items() if _fits(value, its)] for inner, its in left.items()}
    for inner, outers in fitting.items():
        if len(outers) == 1 and (len(left) == 1 or sum(outers[0] in one for one in fitting.values()) == 1):
            return inner, outers[0]
    return None


def _fits(mine: ValueInfo, its: ValueInfo) -> bool:
    return mine.dtype == its.dtype and _find_axes(mine.shape, its.shape) is not None


def _find_axes(
    mine: Sequence[int | str | None] | None, its: Sequence[int | str | None] | None
) -> tuple[int, ...] | None:
    """Which axis of `mine` each of `its` is: as they stand, or with the channels moved; None where neither fits.

    They are moved only where more sizes then agree than as they stand and none contradicts.
    """
    if mine is None or its is None:
        return tuple(range(len(its or mine or ())))
    if len(mine) != len(its):
        return None
    axes = tuple(range(len(mine)))
    orders = [axes]
    if len(axes) > 2:
        orders += dict.fromkeys([(0, *axes[2:], 1), (0, axes[-1], *axes[1:-1])])
    agree = {}
    for order in orders:
        met = [(mine[axis], size) for axis, size in zip(order, its, strict=True)]
        known = [(one, other) for one, other in met if isinstance(one, int) and isinstance(other, int)]
        if all(one == other or min(one, other) < 0 for one, other in known):
            agree[order] = len(known)
    most = max(agree.values(), default=0)
    best = [order for order, count in agree.items() if count == most]
    return axes if axes in best else best[0] if len(best) == 1 else None


@functools.lru_cache(maxsize=4)
def _write_copy(
    path: Path, sha256: str, taken: tuple[tuple[TakenInput, tuple[int | str | None, ...] | None], ...]
) -> Path:
    import onnx_ir as ir

    model = load_model(path).graph()
    graph = model.graph
    values = {str(value.name): value for value in graph.inputs}
    names = {one.name for one, _ in taken}
    fresh = Names(model)
    for value in [one for one in all_values(model) if one.name in names and one.name not in values]:
        value.name = fresh.fresh(value.name, "own")
    for one, shape in taken:
        value = values[one.own]
        if not one.moved:
            value.name = one.name
            continue
        outer = ir.Value(name=one.name, shape=None if shape is None else ir.Shape(shape), type=value.type)
        turned = ir.node("Transpose", [outer], attributes={"perm": list(one.axes)})
        turned.name = turned.outputs[0].name = fresh.fresh(one.own, "turned")
        turned.outputs[0].shape, turned.outputs[0].type = value.shape, value.type
        ir.convenience.replace_all_uses_with(value, turned.outputs[0])
        graph.inputs[graph.inputs.index(value)] = outer
        graph.insert_before(graph[0], turned)
    key = hashlib.sha256(repr((sha256, taken)).encode()).hexdigest()[:16]
    written = lasting_folder(INPUTS) / f"{path.stem}-{key}.onnx"
    outside = any(isinstance(value.const_value, ir.ExternalTensor) for value in graph.initializers.values())
    ir.save(model, written, external_data=f"{written.stem}.data" if outside else None)
    return written
