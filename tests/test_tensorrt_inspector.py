"""An engine as a graph: the inspector's JSON, regions, and which values of the model its tensors are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from parityscope.backends.tensorrt.borders import (
    border_values,
    fits_shape,
    read_by,
    site_names,
    whole_regions,
    with_site_names,
)
from parityscope.backends.tensorrt.inspector import read_layer_info, read_profile
from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.backends.tensorrt.network import executed_graph, network_view
from parityscope.backends.tensorrt.packages import Package, find_package
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.logs import EngineLayer

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")


HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


# --- the inspector's JSON --------------------------------------------------------------------------------------------

# The layer quoted in https://github.com/NVIDIA/TensorRT/issues/4020 (10.x), in a document of its layout.
TEN = {
    "Layers": [
        {
            "Name": "resnetv15_stage4_conv3_fwd + resnetv15_stage4_batchnorm3_fwd + resnetv15_stage4_relu1_fwd",
            "LayerType": "CaskConvolution",
            "Inputs": [
                {
                    "Name": "resnetv15_stage4_activation0",
                    "Location": "Device",
                    "Dimensions": [1, 512, 7, 7],
                    "Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format",
                }
            ],
            "Outputs": [
                {
                    "Name": "resnetv15_stage4_relu1_fwd",
                    "Location": "Device",
                    "Dimensions": [1, 512, 7, 7],
                    "Format/Datatype": "Channel major FP16 format where channel % 8 == 0",
                }
            ],
            "TacticValue": "0xcddae68de84cc6ee",
            "StreamId": 0,
            "Metadata": "[ONNX Layer: resnetv15_stage4_conv3_fwd]\x1e[ONNX Layer: resnetv15_stage4_batchnorm3_fwd]\x1e"
            "[ONNX Layer: resnetv15_stage4_relu1_fwd]",
        }
    ],
    "Bindings": ["resnetv15_stage4_activation0", "resnetv15_stage4_relu1_fwd"],
}
# The fields of TensorRT 11 by NVIDIA's migration page, with what TensorRT-RTX 1.7 prints in them.
ELEVEN = {
    "Layers": [
        {
            "Name": "__myl_CastConc_myl0_3",
            "LayerType": "kgen",
            "Inputs": [{"Name": "x", "Dimensions": [1, 3, 8, 8], "Datatype": "Float", "Format": "(Linear) Row major"}],
            "Outputs": [
                {"Name": "y", "Dimensions": [1, 3, 8, 8], "Datatype": "Half", "Format": "(NHWC) Channel major"}
            ],
            "TacticName": "__myl_CastConc_0x0e92",
            "Metadata": "[ONNX Layer: cast]\x1e[ONNX Layer: conv]",
        },
        "a layer without details",
    ],
    "I/O Tensors": [
        {"Name": "x", "IOMode": "Input", "DataType": "Float", "Dimensions": [1, 3, 8, 8]},
        {"Name": "y", "IOMode": "Output", "DataType": "Half", "Dimensions": [1, 3, 8, 8]},
    ],
}


def test_inspector_of_10_and_11(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(TEN), encoding="utf-8")
    (layer,), tensors = read_layer_info(path)
    assert layer.nodes == tuple(f"resnetv15_stage4_{name}_fwd" for name in ("conv3", "batchnorm3", "relu1"))
    assert (layer.inputs[0].dtype, layer.types, layer.tactic) == ("Int8", ("Half",), "0xcddae68de84cc6ee")
    assert [tensor.mode for tensor in tensors] == ["input", "output"]
    path.write_text(json.dumps(ELEVEN), encoding="utf-8")
    layers, tensors = read_layer_info(path)
    assert layers[0].nodes == ("cast", "conv")
    assert layers[1].name == "a layer without details"
    assert [(tensor.name, tensor.mode, tensor.dtype) for tensor in tensors] == [
        ("x", "input", "Float"),
        ("y", "output", "Half"),
    ]
    # TensorRT writes the 0x1E between names as it is (NVIDIA/TensorRT#2779), which strict JSON refuses.
    path.write_text(json.dumps(ELEVEN).replace("\\u001e", "\x1e"), encoding="utf-8")
    assert read_layer_info(path)[0][0].nodes == ("cast", "conv")
    graph = executed_graph(layers, "f32")
    assert graph.layers[0].precision == "f16"
    assert (graph.requested, graph.executed) == ("f32", "f16")  # asked for FP32, got FP16


def test_profile_of_trtexec(tmp_path: Path) -> None:
    # The layout that trtexec's sampleReporting.cpp writes; the numbers are those of NVIDIA/TensorRT issue 3842.
    path = tmp_path / "profile.json"
    text = """[
  { "count" : 2094 }
, { "name" : "a layer without details", "timeMs" : 47.82, "averageMs" : 0.0228, "medianMs" : 0.0225, "percentage" : 1.6 }
]"""
    path.write_text(text, encoding="utf-8")
    times = read_profile(path)
    assert times == {"a layer without details": pytest.approx(22.8e-6)}
    (tmp_path / "layers.json").write_text(json.dumps(ELEVEN), encoding="utf-8")
    graph = executed_graph(read_layer_info(tmp_path / "layers.json")[0], "f32", times)
    assert [layer.seconds for layer in graph.layers] == [None, pytest.approx(22.8e-6)]
    for wrong in ("{}", "[]", '[{"name": "x"}]', "3", ""):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(ParityError, match=r"no profile of trtexec|no whole JSON") as caught:
            read_profile(path)
        assert "--exportProfile" in caught.value.fix


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "\x00"])
def test_what_is_no_layer_info_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "layers.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ParityError) as caught:
        read_layer_info(path)
    assert "--exportLayerInfo" in caught.value.fix


# --- the engine's tensors and the model's ---------------------------------------------------------------------------------------


def test_layers_of_a_real_engine_end_in_values_of_the_model(package: Package, tmp_path: Path) -> None:
    # Unnamed nodes and a Constant before them, so that a place in the file is no place among the nodes that compute.
    text = """g (float[1,3,8,8] x) => (float[1,4,1,1] y) <float[4,3,3,3] W, float[4] B> {
        half = Constant<value = float {0.5}>() c = Conv<pads = [1,1,1,1]>(x, W, B) r = Relu(c) s = Mul(r, half)
        p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(s) y = GlobalAveragePool(p) }"""
    message = parser.parse_model(f"{HEAD} {text}")
    rng = np.random.default_rng(0)
    for value in message.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        message.graph.initializer.append(
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), value.name)
        )
    del message.graph.value_info[:]
    path = tmp_path / "model.onnx"
    onnx.save(message, path)
    model = load_model(path)
    view = network_view(path, package)
    names = site_names(name_all_nodes(path, {}), model.sites)
    assert names == {"Conv#0": "Conv#0", "Relu#1": "Relu#1", "Mul#2": "Mul#2", "MaxPool#3": "MaxPool#3"} | {
        "GlobalAveragePool#4": "GlobalAveragePool#4"
    }
    layers = with_site_names(view.engine_layers, names, model.sites)
    values = border_values(layers, model.sites)
    shapes = {"c": "1,4,8,8", "r": "1,4,8,8", "s": "1,4,8,8", "p": "1,4,4,4", "y": "1,4,1,1"}
    dimensions = {tensor.name: tensor.dimensions for layer in layers for tensor in layer.outputs}
    assert values
    for tensor, value in values.items():
        assert sorted(dimensions[tensor].split(",")) == sorted(shapes[value].split(","))
    assert values["y"] == "y"


def test_names_of_an_engine_that_was_built_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ h = Exp(x) y = Tanh(h) }}"), path)
    model = load_model(path)
    view = network_view(path, find_package("rtx"))
    one = replace(view.engine_layers[0], nodes=("node_of_h", "node_of_y", "elsewhere"))
    assert with_site_names([one], {}, model.sites)[0].nodes == ("Exp#0", "Tanh#1", "elsewhere")


REGION = """g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> {
  [a] a = Exp(x) [b] b = Tanh(a) [side] s = Mul(x, w) [other] o = Neg(b) [c] c = Add(b, s) [d] y = Relu(c) [z] z = Abs(o) }"""


@pytest.mark.parametrize(
    ("name", "ends", "members"),
    [
        ("{ForeignNode[b...d]}", ("b", "d"), ("b", "side", "c", "d")),  # `a` stands before it
        ("{ForeignNode[w...c]}", ("w", "c"), ("a", "b", "side", "c")),  # it begins with a constant
        ("{ForeignNode[d]}", ("d",), ("d",)),
        ("d + z", ("d", "z"), ("d", "z")),  # no region
    ],
)
def test_regions_whose_metadata_lists_nothing(
    tmp_path: Path, name: str, ends: tuple[str, ...], members: tuple[str, ...]
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} {REGION}"), path)
    model = load_model(path)
    reads = read_by(name_all_nodes(path, {}), model.sites)
    assert reads["c"] == ("b", "side")
    region = EngineLayer(name=name, kind="Myelin", inputs=(), outputs=(), nodes=ends, told=False)
    assert whole_regions([region], reads)[0].nodes == members
    # What another layer names is that layer's.
    beside = EngineLayer(name="side", kind="PointWise", inputs=(), outputs=(), nodes=("side",), told=False)
    assert set(whole_regions([region, beside], reads)[0].nodes) == set(members) - (
        {"side"} if "Foreign" in name else set()
    )


@pytest.mark.parametrize(
    ("shape", "wanted", "answer"),
    [
        ((24, 9, 32), (2, 12, 9, 32), True),
        ((2, 9, 384), (18, 384), True),
        ((1, 4, 1, 1), (4,), True),
        ((), (1,), True),
        ((18, 1152), (2, 9, 384), False),  # three products in one
        ((1, 8, 4, 4), (1, 4, 4, 8), False),  # another layout
        ((24, 32, 9), (2, 12, 9, 32), False),  # transposed
        ((1, 2, 1, 427), (1, 36, 1, 172), False),  # prepared for the kernel that follows
        ((0, 3), (0, 3), True),
        ((0, 3), (3, 0), False),
    ],
)
def test_sizes_that_can_be_a_value(shape: tuple[int, ...], wanted: tuple[int, ...], *, answer: bool) -> None:
    assert fits_shape(shape, wanted) == answer
