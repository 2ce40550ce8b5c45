"""What lies inside the bodies of If, Loop and Scan, screened: such a node is in the low format as a whole, or not at all.

One FP32 run per sample of a copy that hands out the magnitudes of what bodies compute (`arithmetic.watching`). A node is
flagged by the first thing inside it that would flag a node by itself (`screen`): a tensor beyond the range, or one that
vanishes on its way to a pole; a constant that overflows, or vanishes as a whole; a tensor from outside that a body reads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic._graphs import constant_tensor
from parityscope.arithmetic._switching import inner_nodes
from parityscope.arithmetic.sites import exact_uses, is_float
from parityscope.arithmetic.watching import watching
from parityscope.backends._onnxruntime import open_session
from parityscope.case.graph import computing, node_name
from parityscope.forecast.records import Range
from parityscope.records import Site
from parityscope.repairs.search.records import Flag
from parityscope.repairs.search.screen import vanishing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.arithmetic.watching import Watching
    from parityscope.case import Inputs, Model

__all__ = ["flagged_within"]


def flagged_within(
    model: Model, inputs: Inputs, ranges: Mapping[str, Range], low: str, margin: float, threads: int
) -> dict[str, Flag]:
    """The nodes with bodies that must stay in full precision, by name; `ranges` are those of the main graph.

    Raises:
        ParityError: the reference cannot run.
    """
    watched = watching(model.graph())
    if watched is None:
        return {}
    number_format = format_named(low)
    inside = _ranges(watched, inputs, threads, model)
    known: dict[ir.Value, Range] = dict(inside)
    for node in watched.original.graph:
        known |= {value: ranges[str(value.name)] for value in node.outputs if str(value.name) in ranges}
    exact = exact_uses(watched.original)
    found = {}
    for index, node in enumerate(computing(watched.original)):
        name = node_name(node, index)
        reasons = (_reason(inner, known, exact, number_format, margin) for inner in inner_nodes(node))
        poles = _poles(node, known, number_format)
        first = next((one for one in (*reasons, *poles) if one is not None), None)
        if first is not None:
            inner, flag = first
            text = f"inside it {inner} {flag}"
            found[name] = Flag(
                node=name, op_type=node.op_type, blame="activation", text=text, tensor="", value=math.nan
            )
    return found


def _ranges(watched: Watching, inputs: Inputs, threads: int, model: Model) -> dict[ir.Value, Range]:
    run = open_session(watched.model, threads=threads, optimization="disabled", folder=model.path.parent)
    largest = np.zeros(len(watched.tensors))
    smallest = np.full(len(watched.tensors), np.inf)
    for sample in inputs:
        outputs = run(sample.arrays)
        rows = np.array([outputs[one.output] for one in watched.tensors], np.float64).reshape(-1, 2)
        largest, smallest = np.maximum(largest, rows[:, 0]), np.minimum(smallest, rows[:, 1])
    return {
        one.value: Range(
            site=Site(tensor=str(one.value.name), node=one.node, op_type="", index=0, scope=""),
            elements=0,
            largest=float(high),
            smallest=float(small) if math.isfinite(small) else 0.0,
            zeros=0,
            nonfinite=0,
        )
        for one, high, small in zip(watched.tensors, largest, smallest, strict=True)
    }


def _reason(
    inner: ir.Node,
    known: Mapping[ir.Value, Range],
    exact: frozenset[tuple[ir.Node, int]],
    number_format: Format,
    margin: float,
) -> tuple[str, str] | None:
    """What is wrong with a node in a body: what it is called, and a sentence without a subject."""
    name = inner.name or inner.op_type
    title, most = number_format.title, number_format.largest
    reads = [value for index, value in enumerate(inner.inputs) if value is not None and (inner, index) not in exact]
    for value in reads:
        tensor = constant_tensor(value)
        if tensor is not None and is_float(value):
            size = np.abs(tensor.numpy().astype(np.float64))
            finite = size[np.isfinite(size)]
            if finite.size and finite.max() > most:
                return name, f"reads a constant {finite.max():.4g}, beyond {title}'s {most:.5g}"
            if finite.any() and finite.max() <= number_format.smallest_subnormal / 2:
                return name, f"reads a constant {finite.max():.3g}, which becomes 0 in {title}"
    for value, verb in [*((one, "gives") for one in inner.outputs), *((one, "reads") for one in reads)]:
        held = known.get(value)
        if held is not None and is_float(value) and held.largest * margin > most:
            where = "beyond" if held.largest > most else f"within a factor {margin:g} of"
            return name, f"{verb} {held.largest:.4g}, {where} {title}'s {most:.5g}"
    return None


def _poles(node: ir.Node, known: Mapping[ir.Value, Range], number_format: Format) -> Iterator[tuple[str, str]]:
    inside = list(inner_nodes(node))
    for value, smallest in vanishing(inside, known.get, number_format).items():
        maker = value.producer()
        name = (maker.name or maker.op_type) if maker is not None else str(value.name)
        way = "on its way to a denominator, logarithm or root"
        yield name, f"gives {smallest:.3g}, which becomes 0 in {number_format.title} {way}"
