"""The replay's own arithmetic where NaN meets a maximum: as the candidate does it.

Whether the largest of some elements is NaN where one of them is differs between runtimes: GPUs hand NaN on (IEEE 754-2019,
maximum), ONNX Runtime's CPU provider, which replays, may lose it (`arithmetic.maxima`). A replay that loses what the candidate
hands on would charge every pooling behind the first NaN with it. So where the candidate's result of a maximum holds NaN,
the maximum is replayed as one that hands NaN on; everywhere else as it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._graphs import Names
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.maxima import NAN_DEPENDENT, propagate_nans
from parityscope.case.deriving import Severed, sever
from parityscope.case.graph import computing, node_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from parityscope.localization.sides import Sides

__all__ = ["injected_graph", "severed_graphs"]


def severed_graphs(
    sides: Sides, observed: Sequence[str], wanted: Sequence[str] | None = None
) -> list[tuple[Severed, list[str]]]:
    """The reference's graph severed at `observed`, and those of `wanted` (default: all) that are replayed in it.

    A second graph, in which maxima hand NaN on, is made only where there is a tensor for it.
    """
    model = sides.model.graph()
    maxima = _maxima(model)
    kinds = {name: sides.kind(name) for name in observed}
    severed = sever(model, kinds)
    chosen = list(observed if wanted is None else wanted)
    keeping = [name for name in chosen if maxima.intersection(severed.nodes[name]) and _hands_nan_on(sides, name)]
    found = [(severed, [name for name in chosen if name not in keeping])]
    if keeping:
        # What it tells of regions is told of the nodes that the model has.
        again = Severed(model=sever(_handing_on(sides), kinds).model, reads=severed.reads, nodes=severed.nodes)
        found.append((again, keeping))
    return found


def injected_graph(sides: Sides) -> ir.Model:
    """The reference's graph, in which maxima hand NaN on if one of the candidate's did."""
    model = sides.model.graph()
    maxima = _maxima(model)
    places = sides.model.sites
    seen = [name for name in sides.observed() if places[name].node in maxima]
    return _handing_on(sides) if any(_hands_nan_on(sides, name) for name in seen) else model


def _maxima(model: ir.Model) -> set[str]:
    """The names of the nodes whose treatment of NaN is the runtime's own."""
    return {node_name(node, index) for index, node in enumerate(computing(model)) if node.op_type in NAN_DEPENDENT}


def _hands_nan_on(sides: Sides, name: str) -> bool:
    """Whether the candidate's tensor holds NaN on any sample."""
    other = sides.pairing[name]
    arrays = (sides.candidate.get(sample, other) for sample in sides.reference.samples)
    return any(array.dtype.kind not in "biu" and bool(np.isnan(array).any()) for array in arrays)


def _handing_on(sides: Sides) -> ir.Model:
    model = sides.model.graph()
    infer_types(model)
    propagate_nans(model, Names(model))
    return model
