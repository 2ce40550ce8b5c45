"""Nodes that a format breaks, and what makes and reads their values, in FP32; everything else in that format.

A constant that vanishes or a value that overflows is put right where it stands, and what was broken in the same way before it
with it: the nodes that are kept are the broken ones, those that read what they give, and those that lead to them, `depth` steps
back.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.typed import typed_model
from parityscope.backends.sizing import tensor_shapes
from parityscope.case.graph import computing_nodes, node_name
from parityscope.repairs.search.costs import flops_of
from parityscope.repairs.search.writing import typed_names

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx_ir as ir

    from parityscope.case import Model, Sample

KEEP = "keep_in_fp32"


def keep_around(
    model: Model, nodes: Collection[str], low: str, depth: int, sample: Sample
) -> tuple[ir.Model, str] | None:
    """A strongly typed copy, and how many nodes stay in FP32 and their share of the FLOPs that `sample` takes.

    Kept are `nodes`, what reads them, and what lies up to `depth` steps before them. None where none of them has a format of its
    own.

    Raises:
        ParityError: the model cannot be written in `low`.
    """
    graph = model.graph()
    names = {one: node_name(one, index) for index, one in enumerate(computing_nodes(graph))}
    deciding = typed_names(graph, low)
    front = {one for one, name in names.items() if name in nodes and name in deciding}
    if not front:
        return None
    held = front | {reader for one in front for value in one.outputs for reader, _ in value.uses()}
    for _ in range(depth):
        front = {
            made for one in front for value in one.inputs if value is not None and (made := value.producer())
        } - held
        held |= front
    kept = sorted({names[one] for one in held if one in names} & deciding)
    typed = typed_model(graph, low, dict.fromkeys(kept, "f32"), inside=True)
    shapes = tensor_shapes(model, sample, list(model.sites)) | {key: each.shape for key, each in sample.arrays.items()}
    work = {name: flops_of(one, shapes) for one, name in names.items()}
    whole = math.fsum(work.values())
    part = f", {100 * math.fsum(work[name] for name in kept) / whole:.3g} % of the FLOPs," if whole else ""
    return typed.model, f"{len(kept)} of its {len(names)} nodes{part} stay in FP32"
