"""A small layer as the model says it: ONNX text with parameters and inputs, and what ONNX Runtime makes of it in FP32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
from onnx import numpy_helper

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer in ONNX text, its parameters and inputs.

    `operands` names what a product multiplies, `contracted` the axis of each that is summed over.
    """

    text: str
    parameters: Arrays
    feeds: Arrays
    operands: tuple[str, ...] = ()
    contracted: tuple[tuple[str, int], ...] = ()
    opset: int = 17


def region(layer: Layer) -> ir.Model:
    return ir.from_proto(_proto(layer))


def run(layer: Layer, feeds: Arrays) -> np.ndarray:
    """The layer in ONNX Runtime's FP32."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(_proto(layer).SerializeToString(), options)
    return np.asarray(session.run(None, dict(feeds))[0])


def chain(steps: list[str], rank: int, result: int | None = None, kind: str = "float") -> str:
    """Steps that read `t` (the first one `x`) as a graph's text."""
    lines = []
    for number, step in enumerate(steps):
        before = f"t{number - 1}"
        after = "y" if number == len(steps) - 1 else f"t{number}"
        lines.append(f"{after} = {step.replace('(t', f'({before}')}")
    shape = ",".join("NCHWD"[axis] for axis in range(rank))
    given = ",".join("ABEFG"[axis] for axis in range(rank if result is None else result))
    return f"g ({kind}[{shape}] x) => ({kind}[{given}] y) {{\n" + "\n".join(lines) + "\n}"


def _proto(layer: Layer) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {layer.opset}]> {layer.text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in layer.parameters.items())
    return model
