"""Decompositions that exporters write and engines put together again: one pattern per file, which is found as any plug-in is.

A file ends in `PATTERNS`, a tuple of values made of a plain function `match(node, order) -> Region | None`, where `node` is the
last node of the pattern and `order` the place of every node in the graph. Each says which engines run it as one kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import MatchedRegion

    Match = Callable[[ir.Node, dict[ir.Node, int]], MatchedRegion | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A decomposition of `kind`, the name of the operator that it stands for.

    `engines` are the profiles that run it as one kernel. Of two that would overlap, the one with the lower `place` wins: wholes
    come before what may be a part of them. `is_activation` says that it is one function of each element.
    """

    kind: str
    match: Match
    engines: frozenset[str]
    place: int = 80
    is_activation: bool = False


def known_patterns() -> dict[str, Pattern]:
    """Every pattern by its kind, in the order in which they are tried."""
    found = [one for value, _ in discover_plugins(__name__, "PATTERNS", tuple).values() for one in value]
    return {one.kind: one for one in sorted(found, key=lambda one: (one.place, one.kind))}


def fused_by(engine: str) -> tuple[str, ...]:
    """The kinds that an engine runs as one kernel, in the order in which they are tried."""
    return tuple(one.kind for one in known_patterns().values() if engine in one.engines)


def activation_kinds() -> frozenset[str]:
    """The kinds that are one function of each element."""
    return frozenset(one.kind for one in known_patterns().values() if one.is_activation)


def find_regions(order: dict[ir.Node, int], kinds: Sequence[str]) -> list[MatchedRegion]:
    """The regions of `kinds` in the graph of `order`, none overlapping another: of two that would, the kind named first wins."""
    known = known_patterns()
    found: list[MatchedRegion] = []
    taken: set[ir.Node] = set()
    for kind in kinds:
        for node in order:
            region = None if node in taken else known[kind].match(node, order)
            if region is not None and not taken.intersection(region.nodes):
                found.append(region)
                taken.update(region.nodes)
    return found
