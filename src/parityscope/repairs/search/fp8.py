"""Products in FP8 in a search: scales from the search samples, and what a product in FP8 costs.

Scales come from the largest magnitude of each operand on the search samples, times a margin; what is beyond it on
another sample saturates, and is part of the error that is certified.

Time: the profile's "f8e4m3" where there is one, else the roofline with FP8's own peak, half the bytes of the operands
against FP16, plus one pass over each computed operand that is quantized (read in the storage format, written in eight
bits; as if no two products shared it). A decision `<name> in FP8` stands in the network as a vertex of its own without
wires: full, it costs the time that the product takes longer without it, low, nothing. If the product itself stays in FP32
that is less than FP8 would save.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.float8 import IN_FP8, OperandScaling, scalings_of
from parityscope.backends.sizing import tensor_shapes
from parityscope.case.graph import constant_value
from parityscope.repairs.search.costs import CAST_OVERHEAD, Times
from parityscope.repairs.search.network import OUTSIDE, Vertex
from parityscope.repairs.search.screen import ranges_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.repairs.search.costs import Hardware
    from parityscope.repairs.search.network import CutNetwork

_EIGHT_BYTES = 1


def product_scales(
    model: Model, inputs: Inputs, margin: float, threads: int, progress: Progress
) -> dict[str, Scalings]:
    """The scales of every product of `model` (uniquely named nodes) that can be in FP8, by name.

    Raises:
        ParityError: the reference cannot run.
    """
    ranges = ranges_of(model, inputs, threads, progress)
    largest = {name: held.largest * margin for name, held in ranges.items()}
    for sample in inputs:
        for name, array in sample.arrays.items():
            if array.dtype.kind == "f" and array.size:
                largest[name] = max(largest.get(name, 0.0), float(np.abs(array).max()) * margin)
    graph = model.graph()
    infer_types(graph)
    first = next(iter(inputs))
    shapes = {name: tuple(dims) for name, dims in tensor_shapes(model, first, list(model.sites)).items()}
    shapes |= {name: array.shape for name, array in first.arrays.items()}
    return scalings_of(graph, largest, shapes)


def chosen_products(products: Mapping[str, Scalings], kept: Collection[str]) -> dict[str, Scalings]:
    """Those of `products` whose decision `<name> in FP8` is not among the kept ones."""
    return {name: scalings for name, scalings in products.items() if f"{name}{IN_FP8}" not in kept}


def with_products(
    network: CutNetwork,
    products: Mapping[str, Scalings],
    places: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    model: ir.Model,
    hardware: Hardware,
) -> CutNetwork:
    """`network` with a vertex for each decision `<name> in FP8`; `places` are the places of all decisions by name.

    Where the nodes themselves decide nothing, they are in FP32, and no Casts stand between them.
    """
    alone = not any(vertex.decision is not None for vertex in network.vertices)
    nodes = {node.name: node for node in model.graph}
    vertices = [replace(one, sources=(OUTSIDE,)) for one in network.vertices] if alone else list(network.vertices)
    at = {vertex.name: index for index, vertex in enumerate(vertices)}
    for name, scalings in products.items():
        vertex = vertices[at[name]]
        unscaled = vertex.times.full if alone else vertex.times.low
        told = vertex.times.eighth
        modelled = _fp8_seconds(vertex.flops, nodes[name], scalings, shapes, hardware) if math.isnan(told) else told
        scaled = min(unscaled, modelled)
        saved = unscaled - scaled
        times = vertex.times
        least = Times(full=times.full - saved, low=times.low if alone else times.low - saved)
        # Where the node decides nothing else, its FLOPs are those of this decision.
        vertices[at[name]] = replace(vertex, times=least, flops=0.0 if alone else vertex.flops)
        vertices.append(
            Vertex(
                name=f"{name}{IN_FP8}",
                op_type=vertex.op_type,
                decision=places[f"{name}{IN_FP8}"],
                flops=vertex.flops if alone else 0.0,
                times=Times(full=saved, low=0.0),
            )
        )
    return replace(network, vertices=tuple(vertices), wires=() if alone else network.wires, decisions=len(places))


def scales_said(products: Mapping[str, Scalings], model: ir.Model) -> dict[str, dict[str, float]]:
    """The scales of computed operands by product and input: what a plan has to say. Those of weights follow from them."""
    nodes = {node.name: node for node in model.graph}
    return {
        name: {
            str(index): float(one.scale)
            for index, one in scalings.items()
            if not _is_constant_input(nodes[name], index)
        }
        for name, scalings in products.items()
    }


def scales_taken(said: Mapping[str, Mapping[str, float]], model: ir.Model) -> dict[str, Scalings]:
    """The scales of the products that a plan names. A product that does not exist, or cannot be in FP8, is left out."""
    infer_types(model)
    aligned: dict[str, Sequence[int]] = {}
    found: dict[str, Scalings] = {}
    for node in model.graph:
        held = said.get(node.name or "")
        if held is None:
            continue
        names = [str(value.name) for value in node.inputs[:2] if value is not None]
        # Any dimensions that fit: the search has looked at the real ones.
        aligned |= dict.fromkeys(names, (16, 16))
        largest = dict.fromkeys(names, 1.0)
        own = scalings_of(model, largest, aligned).get(node.name or "")
        if own is not None:
            given = {int(index): OperandScaling(scale=np.array(scale, np.float32)) for index, scale in held.items()}
            found[node.name or ""] = own | given
    return found


def _is_constant_input(node: ir.Node, index: int) -> bool:
    value = node.inputs[index]
    return value is not None and constant_value(value) is not None


def _fp8_seconds(
    flops: float, node: ir.Node, scalings: Scalings, shapes: Mapping[str, Sequence[int]], hardware: Hardware
) -> float:
    """The modelled time of a product in FP8 with a result of 16 bits, and of quantizing what it reads."""
    read = quantized = 0
    for index in scalings:
        value = node.inputs[index]
        tensor = constant_value(value) if value is not None else None
        size = math.prod(shapes.get(str(value.name), ()) if value is not None and tensor is None else ())
        read += tensor.size if tensor is not None else size
        quantized += 0 if tensor is not None else size
    given = math.prod(shapes.get(str(node.outputs[0].name), ()))
    traffic = (_EIGHT_BYTES * read + 2 * given) / hardware.bandwidth
    passes = sum(0 if _is_constant_input(node, index) else 1 for index in scalings)
    down = (2 + _EIGHT_BYTES) * quantized / hardware.bandwidth + CAST_OVERHEAD * passes
    return max(flops / hardware.eighth, traffic) + down
