"""The replay's own arithmetic where NaN meets a maximum: as the candidate does it.

Whether the largest of some elements is NaN where one of them is differs between runtimes: GPUs hand NaN on (IEEE 754-2019,
maximum), ONNX Runtime's CPU provider, which replays, may lose it (`arithmetic.maxima`). A replay that loses what the candidate
hands on would charge every pooling behind the first NaN with it. So where the candidate's result of a maximum holds NaN,
the maximum is replayed as one that hands NaN on; everywhere else as it stands.

What each tensor of a candidate is computed from, by the reference's graph: the inputs of its region.

The severed replay computes a tensor again from the nearest tensors above it that the candidate showed. Before
anything is recorded these are the nearest ones that will be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.graphs import Names
from parityscope.arithmetic.maxima import NAN_DEPENDENT, propagate_nans
from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.case.graph import dependencies_of
from parityscope.evaluation.program import ObservedRegion, Program, compile_program, program_of, regions_of
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.localization.sides import Sides


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The reference as a program, the regions between observed tensors, and which of these tensors hand NaN on.

    `keeping` is the program in which maxima hand NaN on; None where the candidate never does.
    """

    plain: Program
    keeping: Program | None
    regions: dict[str, ObservedRegion]
    hands_on: frozenset[str]

    @classmethod
    def of(cls, sides: Sides, observed: Sequence[str]) -> Programs:
        """The programs for a candidate's tensors."""
        plain = program_of(sides.model)
        regions = regions_of(plain, observed)
        hands_on = frozenset(
            name
            for name, region in regions.items()
            if any(step.op_type in NAN_DEPENDENT for step in region.steps) and _holds_nan(sides, name)
        )
        keeping = _handing_on(sides.model) if hands_on else None
        return cls(plain=plain, keeping=keeping, regions=regions, hands_on=hands_on)

    @property
    def candidates(self) -> Program:
        """The program that treats NaN as the candidate does, as far as it showed that."""
        return self.plain if self.keeping is None else self.keeping

    def nodes_of(self, name: str, model: Model) -> tuple[str, ...]:
        """The names of the nodes in the region of a tensor, in order, as `model` calls them."""
        steps = self.regions[name].steps
        sites = (next((model.sites[site] for site in step.outputs if site in model.sites), None) for step in steps)
        return tuple(
            step.node.name or step.key if site is None else site.node for site, step in zip(sites, steps, strict=True)
        )


def _holds_nan(sides: Sides, name: str) -> bool:
    """Whether the candidate's tensor holds NaN on any sample."""
    other = sides.pairing[name]
    arrays = (sides.candidate.get(sample, other) for sample in sides.reference.samples)
    return any(array.dtype.kind not in "biu" and bool(np.isnan(array).any()) for array in arrays)


def _handing_on(model: Model) -> Program:
    graph = prepare_copy(model.graph(), OLDEST)
    infer_types(graph)
    propagate_nans(graph, Names(graph))
    return compile_program(graph)
