"""A graph whose Clips and Relus take their bounds as inputs, so that each can be lost without a new session.

`loosen_bounds(model)` gives the edited graph and its bounds. A bound that is lost is infinite: `feed_bounds(bounds, lost)`
gives the inputs. `without_bounds(model, lost)` takes some away for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.graphs import Names, give_back, redirect_uses
from parityscope.case.graph import constant_value
from parityscope.operators import operators_that_move

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["Bound", "feed_bounds", "loosen_bounds", "without_bounds"]

_BROADCASTS = 8  # the opset
# Operators that hand on what they read, so that what stands before them is what a fused bound belongs to.
_HANDED_ON = operators_that_move("in order", "permuted") | {"BatchNormalization"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One bound of a tensor: which side, its value, the graph input that holds it, and the operators in front ("Conv")."""

    tensor: str
    upper: bool
    value: float
    source: str
    behind: str
    dtype: np.dtype[np.generic]

    @property
    def words(self) -> str:
        """As it is told: "the upper bound 6 of 'r1'"."""
        return f"the {'upper' if self.upper else 'lower'} bound {self.value:g} of {self.tensor!r}"


def loosen_bounds(model: ir.Model) -> list[Bound]:
    """Edits `model`: each Clip and Relu of its main graph with constant bounds becomes a Max and a Min of new scalar inputs.

    Nothing is edited before opset 8, where Max and Min do not broadcast.
    """
    if model.opset_imports.get("", 0) < _BROADCASTS:
        return []
    infer_types(model)
    names = Names(model)
    found: list[Bound] = []
    for node in list(model.graph):
        value = node.inputs[0] if node.op_type in {"Clip", "Relu"} and not node.domain else None
        if value is None or value.dtype is None or not value.dtype.is_floating_point():
            continue
        ends = _constant_bounds(node)
        if ends is None:
            continue
        current = value
        for op_type, end in zip(("Max", "Min"), ends, strict=True):
            if np.isfinite(end):
                bound, current = _bound_by_input(model, node, current, op_type, end, names)
                found.append(bound)
        if current is not value:
            _take_over(node, current, names)
    return found


def feed_bounds(bounds: Iterable[Bound], lost: Collection[Bound] = ()) -> Mapping[str, np.ndarray]:
    """The new inputs by name, scalars of the bounds' own dtypes: the bounds, or for those that are `lost` an infinity."""
    infinite = {bound.source: np.inf if bound.upper else -np.inf for bound in lost}
    return {one.source: np.asarray(infinite.get(one.source, one.value), one.dtype) for one in bounds}


def without_bounds(model: ir.Model, lost: Collection[Bound]) -> None:
    """Edits `model`: its Clips and Relus lose these bounds and keep the others."""
    gone = {(one.tensor, one.upper) for one in lost}
    for node in model.graph:
        sides = [upper for upper in (False, True) if (str(node.outputs[0].name), upper) in gone]
        if node.op_type == "Relu" and sides:
            node.op_type = "Identity"
        elif node.op_type == "Clip":
            for upper in sides:
                node.attributes.pop("max" if upper else "min", None)
                if len(node.inputs) > 1 + upper:
                    node.replace_input_with(1 + upper, None)


def _constant_bounds(node: ir.Node) -> tuple[float, float] | None:
    """The two bounds, infinite where there is none; None where one is computed."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    ends = []
    for place, name, none in ((1, "min", -np.inf), (2, "max", np.inf)):
        value = node.inputs[place] if len(node.inputs) > place else None
        if value is None:
            ends.append(float(node.attributes[name].as_float()) if name in node.attributes else none)
            continue
        tensor = constant_value(value)
        if tensor is None or tensor.size != 1:
            return None
        ends.append(float(tensor.numpy().reshape(())))
    # Clip before opset 11 wrote "no bound" as the largest number.
    largest = float(np.finfo(np.float32).max)
    return (-np.inf if ends[0] <= -largest else ends[0], np.inf if ends[1] >= largest else ends[1])


def _bound_by_input(
    model: ir.Model, node: ir.Node, value: ir.Value, op_type: str, end: float, names: Names
) -> tuple[Bound, ir.Value]:
    """The bound, and `value` bounded by a new input."""
    tensor, dtype = str(node.outputs[0].name), value.dtype or ir.DataType.FLOAT
    source = ir.Value(name=names.fresh(tensor, op_type.lower()), type=ir.TensorType(dtype), shape=ir.Shape([]))
    model.graph.inputs.append(source)
    made = ir.Node("", op_type, [value, source], num_outputs=1)
    made.outputs[0].name = names.fresh(tensor, f"{op_type}ed")
    made.outputs[0].type, made.outputs[0].shape = node.outputs[0].type or ir.TensorType(dtype), node.outputs[0].shape
    node.prepend(made)
    bound = Bound(
        tensor=tensor,
        upper=op_type == "Min",
        value=end,
        source=str(source.name),
        behind=_operators_in_front(node),
        dtype=dtype.numpy(),
    )
    return bound, made.outputs[0]


def _take_over(node: ir.Node, value: ir.Value, names: Names) -> None:
    """Lets everything read `value` in place of what `node` computes, under its name."""
    old = node.outputs[0]
    name, old.name = old.name, names.fresh(old.name, "clipped")
    value.name = name
    redirect_uses(list(old.uses()), value)
    give_back(old, value)


def _operators_in_front(node: ir.Node) -> str:
    """The operators that a fused bound belongs to: "Conv", "Gemm", "MatMul, Add", or what stands in front."""
    seen: list[str] = []
    current: ir.Node | None = node
    for _ in range(4):  # chosen: a product, a bias and a normalization, or a movement
        value = current.inputs[0] if current is not None and current.inputs else None
        current = value.producer() if value is not None else None
        if current is None:
            break
        if current.op_type not in _HANDED_ON:
            seen.insert(0, current.op_type)
        if current.op_type not in {"Add", *_HANDED_ON}:
            break
    return ", ".join(seen)
