"""A graph whose Clip, Relu, Max and Min swallow NaN, as C's fmax and fmin do and as kernels do that are built on them.

IEEE 754-2019 has both: maximum hands NaN on, maximumNumber gives the other operand. ONNX does not say which it means; ONNX
Runtime's CPU provider hands NaN on in these operators. A Clip that is computed as fmin(fmax(x, low), high) makes `low` of a
NaN, one that is computed the other way round makes `high` of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.graphs import Names, add_constant, give_back, redirect_uses
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["SWALLOWS", "swallow_nan"]

SWALLOWS = with_trait("bounds")


def swallow_nan(model: ir.Model, first: Literal["low", "high"], among: Collection[str] | None = None) -> ir.Model:
    """Edits `model`: the operators (those whose results are `among`, if given) make a bound, or the other operand, of NaN.

    `first` is the bound that a Clip with two applies first, and makes of NaN. A Max or Min of NaN alone gives an infinity.
    """
    infer_types(model)
    names = Names(model)
    for node in list(model.graph):
        if node.op_type in SWALLOWS and not node.domain and (among is None or str(node.outputs[0].name) in among):
            if node.op_type in {"Max", "Min"}:
                _without_nan(model, node, names)
            else:
                _with_bound(model, node, first, names)
    return model


def _without_nan(model: ir.Model, node: ir.Node, names: Names) -> None:
    """Every operand of a Max or Min that is NaN becomes the infinity that never wins."""
    end = -np.inf if node.op_type == "Max" else np.inf
    for place, value in enumerate(list(node.inputs)):
        if value is not None and value.dtype is not None and value.dtype.is_floating_point():
            node.replace_input_with(
                place, _where_nan(model, node, value, _scalar_like(model, value, end, names), value, names)
            )


def _with_bound(model: ir.Model, node: ir.Node, first: str, names: Names) -> None:
    """A Clip or Relu, and behind it the bound where what it read is NaN."""
    value, old = node.inputs[0], node.outputs[0]
    bound = _bound_for_nan(model, node, first, names)
    if value is None or bound is None or value.dtype is None or not value.dtype.is_floating_point():
        return
    name, uses = old.name, list(old.uses())
    old.name = names.fresh(name, "kept")
    made = _where_nan(model, node, value, bound, old, names, behind=True)
    made.name = name
    redirect_uses(uses, made)
    give_back(old, made)


def _bound_for_nan(model: ir.Model, node: ir.Node, first: str, names: Names) -> ir.Value | None:
    """The bound that is made of NaN: the first that is applied, or the only one."""
    value = node.inputs[0]
    if node.op_type == "Relu":
        return None if value is None else _scalar_like(model, value, 0.0, names)
    low, high = (node.inputs[place] if len(node.inputs) > place else None for place in (1, 2))
    if value is not None and low is None and "min" in node.attributes:
        low = _scalar_like(model, value, node.attributes["min"].as_float(), names)
    if value is not None and high is None and "max" in node.attributes:
        high = _scalar_like(model, value, node.attributes["max"].as_float(), names)
    return (low or high) if first == "low" else (high or low)


def _scalar_like(model: ir.Model, like: ir.Value, number: float, names: Names) -> ir.Value:
    dtype = like.dtype or ir.DataType.FLOAT
    return add_constant(model.graph, np.asarray(number, dtype.numpy()), names.fresh(like.name, "bound"))


def _where_nan(
    model: ir.Model,
    node: ir.Node,
    looked_at: ir.Value,
    then: ir.Value,
    otherwise: ir.Value,
    names: Names,
    *,
    behind: bool = False,
) -> ir.Value:
    """Where(IsNaN(looked_at), then, otherwise), in front of `node` or behind it."""
    found = ir.Node("", "IsNaN", [looked_at], num_outputs=1)
    found.outputs[0].name = names.fresh(looked_at.name, "nan")
    found.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    chosen = ir.Node("", "Where", [found.outputs[0], then, otherwise], num_outputs=1)
    chosen.outputs[0].name = names.fresh(looked_at.name, "swallowed")
    chosen.outputs[0].type, chosen.outputs[0].shape = otherwise.type, otherwise.shape
    if behind:
        model.graph.insert_after(node, [found, chosen])
    else:
        model.graph.insert_before(node, [found, chosen])
    return chosen.outputs[0]
