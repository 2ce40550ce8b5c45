"""One tensor inside goes through BF16 on its way: a Cast down and up that nobody needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant

_BFLOAT16_FROM = 13


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    node = nodes_of(model, draw, "MatMul", "Conv", "Add", "Relu", "Mul")[0]
    name = node.output[0]
    node.output[0] = f"{name}_wide"
    place = list(model.graph.node).index(node)
    cast = onnx.helper.make_node
    # Cast knows bfloat16 from opset 13 on.
    old = any(one.version < _BFLOAT16_FROM for one in model.opset_import if not one.domain)
    kind = int(onnx.TensorProto.FLOAT16 if old else onnx.TensorProto.BFLOAT16)
    model.graph.node.insert(place + 1, cast("Cast", [f"{name}_wide"], [f"{name}_narrow"], to=kind))
    model.graph.node.insert(place + 2, cast("Cast", [f"{name}_narrow"], [name], to=int(onnx.TensorProto.FLOAT)))
    return f"{name} goes through {'float16' if old else 'bfloat16'}", (name,)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="A tensor stored in a narrower type",
    family="types",
    expected="ACC001",
    # One tensor's rounding is a lower arithmetic at one place.
    accepted=("FUS002",),
    subjects=("small-two", "small-conv", "small-rows", "lite0", "dnsmos"),
    plant=_plant,
)
