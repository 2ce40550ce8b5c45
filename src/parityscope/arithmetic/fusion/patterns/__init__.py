"""Decompositions that exporters write and engines put together again: one pattern per file.

Each file ends in a plain function `match(node, order) -> Region | None`, where `node` is the last node of the pattern
and `order` the place of every node in the graph. What fuses with what is up to the profiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.patterns import (
    attention,
    gelu,
    hard_sigmoid,
    hard_swish,
    mish,
    normalization,
    silu,
    softmax,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import Region

    Match = Callable[[ir.Node, dict[ir.Node, int]], Region | None]

__all__ = ["PATTERNS", "regions"]

# By the kind of the regions that they give; in the order in which they are tried.
PATTERNS: dict[str, Match] = {
    "LayerNormalization": normalization.match_layer,
    "RMSNormalization": normalization.match_rms,
    "Softmax": softmax.match,
    "Gelu": gelu.match,
    "GeluInner": gelu.match_inner,
    "GeluOfProducts": gelu.match_products,
    "Mish": mish.match,
    "HardSwish": hard_swish.match,
    "HardSigmoid": hard_sigmoid.match,
    "Silu": silu.match,
    "Attention": attention.match,
}


def regions(order: dict[ir.Node, int], kinds: Sequence[str]) -> list[Region]:
    """The regions of `kinds` in the graph of `order`, none overlapping another: of two that would, the kind named first wins."""
    found: list[Region] = []
    taken: set[ir.Node] = set()
    for kind in kinds:
        for node in order:
            region = None if node in taken else PATTERNS[kind](node, order)
            if region is not None and not taken.intersection(region.nodes):
                found.append(region)
                taken.update(region.nodes)
    return found
