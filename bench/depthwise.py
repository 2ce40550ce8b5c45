"""Which of a model's convolutions ONNX Runtime adds up in FP16 on a GPU, layer by layer.

    python bench/depthwise.py NAME=MODEL.onnx+INPUT.npz [...] [--device cuda] [--all]

Each depthwise convolution (with --all: every convolution) is run alone, as a model of one float16 node, on what the
reference feeds it on the given input, rounded. Its error against FP32 arithmetic on the same rounded numbers
is divided by what two accumulators predict: FP32 and one rounding of the result, and float16 behind every tap
(`parityscope.arithmetic.accumulating`). The one that is near 1 is the one that the engine used.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from fidelity import case

from parityscope.arithmetic import format_named, round_to
from parityscope.arithmetic._graphs import Names, constant_tensor
from parityscope.arithmetic.accumulating import accumulate, is_depthwise
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import prepared
from parityscope.arithmetic.primitives import Rewriting
from parityscope.backends._onnxruntime import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

PROVIDERS = {"cuda": ["CUDAExecutionProvider"], "cpu": ["CPUExecutionProvider"]}
F16 = format_named("f16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", choices=list(PROVIDERS), default="cuda")
    parser.add_argument("--all", action="store_true", help="every convolution, not only depthwise ones")
    arguments = parser.parse_args()
    print("| model | layer | weights | input | error | over FP32 sums | over FP16 sums |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.models:
        measure(name, arguments.device, every=arguments.all)


def measure(name: str, device: str, *, every: bool) -> None:
    model, sample = case(name)
    graph = prepared(model.graph(), 11)
    nodes = [node for node in graph.graph if is_depthwise(node) or (every and node.op_type == "Conv")]
    nodes = [node for node in nodes if constant_tensor(node.inputs[1]) is not None]
    wanted = list(dict.fromkeys(str(node.inputs[0].name) for node in nodes))
    inputs = {value.name for value in model.outputs} | {value.name for value in model.inputs}
    computed = [tensor for tensor in wanted if tensor not in inputs]
    outputs = [value.name for value in model.outputs]
    run = open_session(prepared(model.graph(), 11), outputs=[*outputs, *computed], folder=model.path.parent)
    fed = {**sample.arrays, **run(sample.arrays)}
    for node in nodes:
        x = round_to(fed[str(node.inputs[0].name)].astype(np.float32), F16)
        w = round_to(constant_tensor(node.inputs[1]).numpy().astype(np.float32), F16)
        found = single(node, x, w, np.dtype(np.float16), PROVIDERS[device])
        exact = single(node, x, w, np.dtype(np.float32), PROVIDERS["cpu"])
        wide = round_to(exact.astype(np.float32), F16)
        error = size(found - exact)
        ratios = [error / size(wide - exact) if size(wide - exact) else math.nan]
        if is_depthwise(node):
            narrow = size(taps(node, x, w) - exact)
            ratios.append(error / narrow if narrow else math.nan)
        told = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"| {sample.name} | {node.name} | {w.shape} | {x.shape} | {error / size(exact):.2e} | {told} |", flush=True
        )


def single(node: ir.Node, x: np.ndarray, w: np.ndarray, dtype: np.dtype, providers: Sequence[str]) -> np.ndarray:
    """What the node gives alone, without its bias, computed in `dtype`, as float64."""
    model = alone(node, x.astype(dtype), w.astype(dtype))
    return open_session(model, providers=providers)({"x": x.astype(dtype)})["y"].astype(np.float64)


def taps(node: ir.Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same with sums in float16, tap by tap."""
    model = alone(node, x, w)
    infer_types(model)
    accumulate(model.graph[0], F16, Rewriting(model=model, names=Names(model), overflow="infinity"))
    return open_session(model)({"x": x})["y"].astype(np.float64)


def alone(node: ir.Node, x: np.ndarray, w: np.ndarray) -> ir.Model:
    tensor = ir.tensor(w, name="w")
    weights = ir.Value(name="w", type=ir.TensorType(tensor.dtype), shape=ir.Shape(w.shape), const_value=tensor)
    source = ir.Value(name="x", type=ir.TensorType(tensor.dtype), shape=ir.Shape(x.shape))
    copy = ir.Node("", "Conv", [source, weights], list(node.attributes.values()), num_outputs=1)
    copy.outputs[0].name, copy.outputs[0].type = "y", ir.TensorType(tensor.dtype)
    graph = ir.Graph([source], copy.outputs, nodes=[copy], initializers=[weights], opset_imports={"": 17}, name="alone")
    return ir.Model(graph, ir_version=9)


def size(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


if __name__ == "__main__":
    main()
