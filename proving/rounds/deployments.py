"""Right deployments: other files, levels and formats of the same network, none of which may move its outputs visibly."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from proving.rounds.editing import every_graph

RECORDED = ("bfloat16", "float16")  # only the outputs of these are at hand
DECLARED = {"bfloat16": "bf16", "float16": "f16"}
_STORED = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16}


def deploy(name: str, original: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The network of `path` as deployment `name` has it."""
    model = onnx.ModelProto()
    model.CopyFrom(original)
    if name in DECLARED:
        return honest(model, np.dtype(np.float16) if name == "float16" else np.dtype(ml_dtypes.bfloat16))
    if name == "half":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        converted: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=True)
        return converted
    if name == "opset":
        upgraded: onnx.ModelProto = onnx.version_converter.convert_version(
            model, max(18, next(one.version for one in model.opset_import if not one.domain) + 2)
        )
        return upgraded
    if name == "renamed":
        return _rename(model)
    if name == "reexported":
        return _rename(_through_files("folded", path))
    return _through_files(name, path)


def honest(model: onnx.ModelProto, dtype: np.dtype[Any]) -> onnx.ModelProto:
    """Every float32 weight and every float32 result rounded to `dtype` and back; the arithmetic stays FP32."""
    rounded = onnx.shape_inference.infer_shapes(model)
    bodies = list(every_graph(rounded.graph))
    types = {one.name: one.type.tensor_type.elem_type for body in bodies for one in (*body.value_info, *body.output)}
    for body in bodies:
        for tensor in body.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                value = numpy_helper.to_array(tensor).astype(dtype).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        nodes = []
        for node in body.node:
            results = [one for one in node.output if types.get(one) == TensorProto.FLOAT]
            nodes.append(node)
            for one in results:
                node.output[list(node.output).index(one)] = f"{one}.whole"
                nodes.append(onnx.helper.make_node("Cast", [f"{one}.whole"], [f"{one}.narrow"], to=_STORED[dtype]))
                nodes.append(onnx.helper.make_node("Cast", [f"{one}.narrow"], [one], to=TensorProto.FLOAT))
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del body.node[:]
        body.node.extend(kept)
    return rounded


def _rename(model: onnx.ModelProto) -> onnx.ModelProto:
    """All tensors but inputs and outputs, and all nodes, get names that say nothing."""
    bodies = list(every_graph(model.graph))
    fixed = {one.name for one in (*model.graph.input, *model.graph.output)} | {""}
    names: dict[str, str] = {}

    def renamed(name: str) -> str:
        return name if name in fixed else names.setdefault(name, f"t{len(names)}")

    for body in bodies:
        del body.value_info[:]
        for tensor in body.initializer:
            tensor.name = renamed(tensor.name)
        for value in body.output if body is not model.graph else ():
            value.name = renamed(value.name)
        for node in body.node:
            node.name = ""
            node.input[:] = map(renamed, node.input)
            node.output[:] = map(renamed, node.output)
    return model


def _through_files(name: str, path: Path) -> onnx.ModelProto:
    import onnxruntime as ort
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.onnx"
        if name in {"optimized", "folded"}:
            options = ort.SessionOptions()
            level = ort.GraphOptimizationLevel
            options.graph_optimization_level = (
                level.ORT_ENABLE_EXTENDED if name == "optimized" else level.ORT_ENABLE_BASIC
            )
            options.optimized_model_filepath = str(made)
            ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        else:  # seven bits: eight saturate on processors without VNNI
            quantization.quantize_dynamic(path, made, per_channel=True, reduce_range=True)
        return onnx.load(made)
