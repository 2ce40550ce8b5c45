"""What each tensor of a candidate is computed from, by the reference's graph: the inputs of its region.

The severed replay computes a tensor again from the nearest tensors above it that the candidate showed. Before
anything is recorded these are the nearest ones that will be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import dependencies_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import onnx_ir as ir

__all__ = ["reads_of"]


def reads_of(model: ir.Model, pairing: Mapping[str, str], wanted: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The nearest tensors of `wanted` above each of them.

    Args:
        model: The reference's graph; it is put in topological order.
        pairing: Names of the reference's tensors -> the candidate's.
        wanted: The candidate's tensors that are of interest, its outputs among them.

    Returns:
        The candidate's names, both as keys and as values; the model's inputs and constants are not among them.
    """
    model.graph.sort()
    nearest: dict[int, dict[str, None]] = {}
    found: dict[str, dict[str, None]] = {}
    for node in model.graph:
        above = {name: None for value in dependencies_of(node) for name in nearest.get(id(value), ())}
        for value in node.outputs:
            partner = pairing.get(str(value.name))
            if partner in wanted and partner is not None:
                found.setdefault(partner, {}).update(above)
                nearest[id(value)] = {partner: None}
            else:
                nearest[id(value)] = above
    return {name: tuple(above) for name, above in found.items()}
