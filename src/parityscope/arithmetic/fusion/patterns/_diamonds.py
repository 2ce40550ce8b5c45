"""The shape that gated activations share: x enters, goes two or more ways, and is multiplied together again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import (
    MatchedRegion,
    data_inputs,
    dominated_nodes,
    is_closed,
    only_use,
    scalar_constant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import onnx_ir as ir


def match_diamond(
    node: ir.Node,
    order: dict[ir.Node, int],
    kind: str,
    allowed: Collection[str],
    accepts: Callable[[list[str]], bool],
) -> MatchedRegion | None:
    """The region of operators `allowed` that `node`, a product of two things, closes, if `accepts` its operators."""
    if node.op_type != "Mul" or len(data_inputs(node)) != 2:
        return None
    found = dominated_nodes(node, allowed, order)
    if found is None:
        return None
    nodes, entry = found
    if not accepts([each.op_type for each in nodes]) or not is_closed(nodes, node.outputs[0]):
        return None
    return MatchedRegion(kind=kind, nodes=nodes, entries=(entry,), output=node.outputs[0])


def include_factor(region: MatchedRegion, factors: Collection[float]) -> MatchedRegion:
    """The region with a product by one of `factors` behind it, if there is one (a quotient counts by its inverse)."""
    use = only_use(region.output)
    if use is None:
        return region
    user, index = use
    number = (
        scalar_constant(user.inputs[1 - index]) if user.op_type in {"Mul", "Div"} and len(user.inputs) == 2 else None
    )
    if not number or (user.op_type == "Div" and index != 0):
        return region
    factor = number if user.op_type == "Mul" else 1 / number
    if not any(abs(factor - each) <= 1e-3 * each for each in factors):
        return region
    return MatchedRegion(kind=region.kind, nodes=(*region.nodes, user), entries=region.entries, output=user.outputs[0])
