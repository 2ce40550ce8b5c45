"""What the nodes inside If, Loop and Scan work on, for the cost model: FP32 runs that count over all iterations.

Dimensions inside a body may differ from one iteration to the next, so that elements are counted.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.watching import seen_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.case import Model, Sample

_SAMPLES = 8  # chosen: which branches are taken, and how often bodies run, is a mean of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A tensor inside a body: its elements over all iterations, the mean of the samples, and its longest last dimension."""

    elements: float
    last: float


Sizes = dict[tuple[str, int], Size]  # by the name of the node that gives the tensor, and the number of the output


def sizes_within(model: Model, samples: Sequence[Sample], threads: int) -> Sizes:
    """The sizes of what bodies compute, 0 where none ran, on the first few samples; `model` has unique node names.

    Raises:
        ParityError: the reference cannot run.
    """
    held = list(seen_within(model, samples[:_SAMPLES], threads))
    found: Sizes = {}
    for value in held[0] if held else ():
        node = value.producer()
        if node is not None:
            several = [seen[value] for seen in held]
            size = Size(elements=mean(one.elements for one in several), last=max(one.last for one in several))
            found[node.name or "", value.index() or 0] = size
    return found


def shapes_within(node: ir.Node, sizes: Sizes) -> dict[str, tuple[float, ...]]:
    """What is known of the values of a node inside a body as shapes of two dimensions: all but the last over all iterations."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    known = ((str(value.name), size_of(value, sizes)) for value in values)
    return {name: (size.elements / max(size.last, 1.0), size.last) for name, size in known if size is not None}


def size_of(value: ir.Value | None, sizes: Mapping[tuple[str, int], Size]) -> Size | None:
    """The size of a value that a node inside a body gives; None for any other."""
    node = None if value is None else value.producer()
    return None if node is None or value is None else sizes.get((node.name or "", value.index() or 0))
