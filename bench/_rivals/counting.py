"""What a model with types of its own keeps in FP32, whoever wrote it.

A node computes in the type of its first float output. Casts, Constants and operators that only move numbers
(`arithmetic.movement.MOVES`) are no computation: they are counted neither as FP32 nor as low. FLOPs are those of
products (`repairs.search.costs.flops_of`), with shapes from one run of the de-typed model. A Cast counts when it
converts between float formats; those from and to integers are part of what the model computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.movement import MOVES
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.backends.sizing import tensor_shapes
from parityscope.case import load_model
from parityscope.case.graph import computing_nodes
from parityscope.repairs.search.costs import flops_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Sample

_LOW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_FLOATS = _LOW | {ir.DataType.FLOAT}
_NO_COMPUTATION = MOVES | {"Cast", "CastLike", "Constant", "ConstantOfShape", "Shape", "Range"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """`full` and `nodes` are computing nodes in FP32 and in all; `flops` is the share in FP32, in [0, 1]."""

    full: int
    nodes: int
    flops: float
    casts: int


def counted(path: Path, sample: Sample, folder: Path) -> Counted:
    """Counts in the file `path`; `folder` is for scratch.

    Raises:
        ParityError: the runtime refuses the de-typed model.
    """
    graph = load_model(path).graph()
    infer_types(graph)
    nodes = [node for node in computing_nodes(graph) if _computes(node)]
    shapes = _shapes(path, nodes, sample, folder)
    flops = [(flops_of(node, shapes), _is_full(node)) for node in nodes]
    whole = sum(number for number, _ in flops)
    return Counted(
        full=sum(_is_full(node) for node in nodes),
        nodes=len(nodes),
        flops=sum(number for number, full in flops if full) / whole if whole else 0.0,
        casts=sum(_converts(node) for node in computing_nodes(graph)),
    )


def _computes(node: ir.Node) -> bool:
    return node.op_type not in _NO_COMPUTATION and bool(node.outputs) and node.outputs[0].dtype in _FLOATS


def _is_full(node: ir.Node) -> bool:
    return node.outputs[0].dtype not in _LOW


def _converts(node: ir.Node) -> bool:
    """Whether a node converts between two float formats."""
    if node.op_type != "Cast" or node.inputs[0] is None:
        return False
    source, made = node.inputs[0].dtype, node.outputs[0].dtype
    return source in _FLOATS and made in _FLOATS and source != made


def _shapes(path: Path, nodes: Sequence[ir.Node], sample: Sample, folder: Path) -> Mapping[str, Sequence[int]]:
    """Dimensions of what the nodes read and give: the names are those of the typed model, which de-typing keeps."""
    plain = folder / f"{path.stem}-plain.onnx"
    ir.save(arrange_precision(load_model(path).graph(), None).model, plain)
    model = load_model(plain)
    known = set(model.sites)
    wanted = {str(value.name) for node in nodes for value in (*node.inputs, *node.outputs) if value is not None}
    shapes = {name: array.shape for name, array in sample.arrays.items()}
    return shapes | tensor_shapes(model, sample, sorted(wanted & known))
