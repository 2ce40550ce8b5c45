"""An ONNX model -> a scene: a folder with `scene.json` and the network as the scene's engine computes it.

Made, not recorded: which nodes are one layer and in which type is told by the caller, and names and words follow the rules
that `facts.json` has. Each region computes in FP32 inside and is rounded where it ends, as a fused kernel is; weights of a
region in half precision are rounded once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from parityscope.backends.tensorrt.naming import name_all_nodes
from proving.tensorrt_replay.facts import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TYPES = {
    TensorProto.FLOAT: "FLOAT",
    TensorProto.FLOAT16: "HALF",
    TensorProto.BFLOAT16: "BF16",
    TensorProto.INT8: "INT8",
    TensorProto.UINT8: "UINT8",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.BOOL: "BOOL",
}
_KINDS = {
    "Conv": "CONVOLUTION",
    "MatMul": "MATRIX_MULTIPLY",
    "Gemm": "MATRIX_MULTIPLY",
    "Cast": "CAST",
    "Softmax": "SOFTMAX",
}
_CASTS = {"HALF": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16}
_FIRST_INT64 = (10,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One layer of an engine: its nodes in the graph's order, and the type that it writes. `name` is the inspector's."""

    nodes: tuple[str, ...]
    type: str = "FLOAT"
    kind: str = "kgen"
    tactic: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is known of a model's values: TensorRT's type and the shape, -1 for what is open."""

    types: Mapping[str, str]
    shapes: Mapping[str, list[int]]
    values: set[str] = field(default_factory=set)

    def tensor(self, name: str) -> dict[str, Any]:
        return {"name": name, "dtype": self.types.get(name, "FLOAT"), "shape": self.shapes.get(name, [])}


def make_scene(
    folder: Path,
    path: Path,
    version: str,
    regions: Sequence[Region] = (),
    *,
    product: str = "tensorrt",
    raw: bool = False,
    engine: onnx.ModelProto | None = None,
    marked: onnx.ModelProto | None = None,
    honest: onnx.ModelProto | None = None,
    **facts: Any,
) -> Path:
    """Makes the scene of the model at `path` in `folder`.

    Args:
        folder: Where to write.
        path: The ONNX file.
        version: TensorRT's, by which the facts go.
        regions: The engine's layers; without any each node is one.
        product: "tensorrt" or "rtx".
        raw: The file comes to TensorRT as it is: its parser calls nodes without a name after their first output.
        engine: The network as the engine computes it; without one it is made of the regions.
        marked: The same where tensors are marked by name, which ends fusions; without one it is the engine's.
        honest: The same where precisions were asked for and obeyed, or the network is strongly typed.
        facts: More of the scene (`refused_marks`, `faults`, `profiles`, `renamed`, ...).
    """
    folder.mkdir(parents=True, exist_ok=True)
    message = onnx.shape_inference.infer_shapes(_parsed(path) if raw else name_all_nodes(path, {}).message)
    told = _told(message, version)
    regions = tuple(regions) or tuple(Region(nodes=(node.name,)) for node in message.graph.node)
    onnx.save(engine or in_regions(message, regions), folder / "engine.onnx")
    scene: dict[str, Any] = {
        "schema": "parityscope-tensorrt-replay/1",
        "said": "made, not recorded; nothing of TensorRT was executed",
        "version": version,
        "product": product,
        "network": _network(message, told),
        "layers": _layers(message, regions, told, internal=product == "rtx" or numbers(version)[0] >= 10),
        "engine": "engine.onnx",
        "fed_as": {
            value.name: "int64"
            for value in message.graph.input
            if value.type.tensor_type.elem_type == TensorProto.INT64 and told.types[value.name] == "INT32"
        },
    }
    for key, held in (("marked", marked), ("honest", honest)):
        if held is not None:
            onnx.save(held, folder / f"{key}.onnx")
            scene[key] = f"{key}.onnx"
    (folder / "scene.json").write_text(json.dumps({**scene, **facts}, indent=1), encoding="utf-8")
    return folder


def _parsed(path: Path) -> onnx.ModelProto:
    """The model with the names that TensorRT's parser gives (importerUtils.cpp of onnx-tensorrt, getNodeName)."""
    message = onnx.load(path)
    for node in message.graph.node:
        node.name = node.name or f"node_of_{node.output[0]}"
    return message


def in_regions(message: onnx.ModelProto, regions: Sequence[Region]) -> onnx.ModelProto:
    """The model with every region's results, and the weights that it reads, rounded to its type; values stay FP32."""
    made = onnx.ModelProto()
    made.CopyFrom(message)
    graph = made.graph
    narrow = {node: _CASTS[region.type] for region in regions if region.type in _CASTS for node in region.nodes}
    ends = {region.nodes[-1] for region in regions}
    weights = {one.name: one for one in graph.initializer}
    outputs = {value.name for value in graph.output}
    nodes = []
    for node in graph.node:
        kind = narrow.get(node.name)
        if kind is None:
            nodes.append(node)
            continue
        for name in node.input:
            if name in weights and weights[name].data_type == TensorProto.FLOAT:
                half = numpy_helper.to_array(weights[name]).astype(np.float16).astype(np.float32)
                weights[name].CopyFrom(numpy_helper.from_array(half, name))
        if node.name not in ends:
            nodes.append(node)
            continue
        results = [name for name in node.output if name]
        for place, name in enumerate(node.output):
            node.output[place] = f"{name}/whole" if name else ""
        nodes.append(node)
        for name in results:
            nodes.append(helper.make_node("Cast", [f"{name}/whole"], [f"{name}/half"], f"{name}/narrow", to=kind))
            nodes.append(helper.make_node("Cast", [f"{name}/half"], [name], f"{name}/back", to=TensorProto.FLOAT))
    del graph.node[:]
    graph.node.extend(nodes)
    kept = [value for value in graph.value_info if value.name not in outputs]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    return made


def _told(message: onnx.ModelProto, version: str) -> _Told:
    types, shapes = {}, {}
    for value in (*message.graph.input, *message.graph.value_info, *message.graph.output):
        tensor = value.type.tensor_type
        kind = _TYPES.get(tensor.elem_type, "FLOAT")
        types[value.name] = "INT32" if kind == "INT64" and numbers(version) < _FIRST_INT64 else kind
        shapes[value.name] = [dim.dim_value or -1 for dim in tensor.shape.dim]
    return _Told(types=types, shapes=shapes)


def _network(message: onnx.ModelProto, told: _Told) -> dict[str, Any]:
    weights = {one.name for one in message.graph.initializer}
    return {
        "inputs": [told.tensor(value.name) for value in message.graph.input if value.name not in weights],
        "outputs": [value.name for value in message.graph.output],
        "weights": sorted(weights),
        "layers": [
            {
                "name": node.name,
                "type": _KINDS.get(node.op_type, "OTHER"),
                "metadata": f"[ONNX Layer: {node.name}]",
                "inputs": [name for name in node.input if name],
                "outputs": [told.tensor(name) for name in node.output if name],
            }
            for node in message.graph.node
        ],
    }


def _layers(
    message: onnx.ModelProto, regions: Sequence[Region], told: _Told, *, internal: bool
) -> list[dict[str, Any]]:
    nodes = {node.name: node for node in message.graph.node}
    weights = {one.name for one in message.graph.initializer}
    outputs = {value.name for value in message.graph.output}
    called: dict[str, dict[str, Any]] = {}
    found = []
    for number, region in enumerate(regions):
        makes = [told.tensor(nodes[name].output[0]) for name in region.nodes]
        last = makes[-1]
        kind = (
            last["dtype"] if last["name"] in outputs or last["dtype"] not in {"FLOAT", "HALF", "BF16"} else region.type
        )
        inner = internal and region.kind == "kgen" and last["name"] not in outputs
        name = f"__myln_k_arg__bb1_{number}_myl0" if inner else last["name"]
        output = {"name": name, "dtype": kind, "shape": last["shape"], "value": last["name"]}
        if last["name"] in outputs:
            output["output"] = True
        own = {nodes[each].output[0] for each in region.nodes}
        reads = [each for node in region.nodes for each in nodes[node].input if each and each not in weights | own]
        found.append(
            {
                "name": region.name or _title(region, number),
                "kind": region.kind,
                "type": region.type,
                "tactic": region.tactic,
                "nodes": list(region.nodes),
                "makes": makes,
                "inputs": [called.get(each, told.tensor(each)) for each in dict.fromkeys(reads)],
                "outputs": [output],
            }
        )
        called[last["name"]] = output
    return found


def _title(region: Region, number: int) -> str:
    """As TensorRT calls layers: ONNX names joined, or what Myelin made of them."""
    if region.kind == "kgen":
        return f"__myl_{''.join(name.rpartition('/')[2][:4] for name in region.nodes)}_myl0_{number}"
    return " + ".join(region.nodes)
