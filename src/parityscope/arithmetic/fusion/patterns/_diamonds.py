"""The shape that gated activations share: x enters, goes two or more ways, and is multiplied together again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import Region, closed, data_inputs, dominated, only_use, scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import onnx_ir as ir

__all__ = ["diamond", "scaled"]


def diamond(
    node: ir.Node,
    order: dict[ir.Node, int],
    kind: str,
    allowed: Collection[str],
    accepts: Callable[[list[str]], bool],
) -> Region | None:
    """The region of operators `allowed` that `node`, a product of two things, closes, if `accepts` its operators."""
    if node.op_type != "Mul" or len(data_inputs(node)) != 2:
        return None
    found = dominated(node, allowed, order)
    if found is None:
        return None
    nodes, entry = found
    if not accepts([each.op_type for each in nodes]) or not closed(nodes, node.outputs[0]):
        return None
    return Region(kind=kind, nodes=nodes, entries=(entry,), output=node.outputs[0])


def scaled(region: Region, factors: Collection[float]) -> Region:
    """The region with a product by one of `factors` behind it, if there is one (a quotient counts by its inverse)."""
    use = only_use(region.output)
    if use is None:
        return region
    user, index = use
    number = scalar(user.inputs[1 - index]) if user.op_type in {"Mul", "Div"} and len(user.inputs) == 2 else None
    if not number or (user.op_type == "Div" and index != 0):
        return region
    factor = number if user.op_type == "Mul" else 1 / number
    if not any(abs(factor - each) <= 1e-3 * each for each in factors):
        return region
    return Region(kind=region.kind, nodes=(*region.nodes, user), entries=region.entries, output=user.outputs[0])
