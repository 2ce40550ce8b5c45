"""TensorRT-RTX on the CPU: the network view, typed files, the fusion profile, the inspector's JSON and refused engines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.typed import typed_model
from parityscope.backends import Capture, backend
from parityscope.backends._tensorrt.packages import capability_problem, gpu_problem
from parityscope.backends._tensorrt.plans import check_plan, plan_version
from parityscope.backends.recording import open_target
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt_views import (
    NetworkView,
    Package,
    executed_graph,
    find_in_view,
    find_package,
    network_view,
    read_layer_info,
    read_profile,
)
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.records import Policy
from parityscope.report.network import FORMS, document
from parityscope.study import examine
from parityscope.study._examine import Settings
from parityscope.testing.engine_fusion import agreement
from parityscope.testing.models import require

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


@pytest.fixture(scope="module")
def package() -> Package:
    return find_package("rtx")


def saved(folder: Path, text: str, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save(parser.parse_model(f"{HEAD} {text}"), path)
    return path


def fates(view: NetworkView) -> dict[str, str]:
    return {node.node: node.fate for node in view.nodes}


def test_every_node_is_accounted_for(package: Package, tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        """g (float[2,4] x) => (float[2,4] y) <float[4,4] W = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float two = {2}> {
        [const] c = Constant<value_float = 3.0>()
        [folded] k = Mul(c, two)
        [product] p = MatMul(x, W)
        [scaled] s = Mul(p, k)
        [same] i = Identity(s)
        [unread] u = Exp(x)
        [act] y = Relu(i)
        }""",
    )
    view = network_view(path, package, shapes={})
    # The product of two scalars is computed while building, or in the kernel that names it: both are accounted for.
    assert fates(view).pop("folded") in {"folded", "kernel"}
    assert {name: fate for name, fate in fates(view).items() if name != "folded"} == {
        "const": "folded",
        "product": "kernel",
        "scaled": "kernel",
        "same": "removed",
        "unread": "removed",
        "act": "kernel",
    }
    reasons = {node.node: node.reason for node in view.nodes}
    assert reasons["same"] == "it hands its input on"
    assert reasons["unread"] == "nothing reads what it computes"
    assert {dtype for tensor in view.inputs for dtype in (tensor.dtype,)} == {"float32"}


def test_unnamed_and_namesake_nodes_are_told_apart(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { a = Relu(x) [n] b = Exp(a) [n] y = Tanh(b) }")
    view = network_view(path, package, shapes={})
    assert [node.node for node in view.nodes] == ["Relu#0", "n", "n'"]
    assert set(fates(view).values()) == {"kernel"}


def test_nodes_in_branches_are_accounted_for(package: Package, tmp_path: Path) -> None:
    text = """g (bool c, float[4] x) => (float[4] y) {
        [choice] y = If (c) <
          then_branch = t () => (float[4] a) { [inner_exp] a = Exp(x) },
          else_branch = e () => (float[4] b) { [inner_tanh] b = Tanh(x) }
        >
    }"""
    view = network_view(saved(tmp_path, text), package, shapes={})
    assert view.problem == ""
    assert set(fates(view)) == {"choice", "inner_exp", "inner_tanh"}
    assert fates(view)["inner_exp"] == fates(view)["inner_tanh"] == "kernel"


def test_order_of_inputs_and_namesakes_in_type(package: Package, tmp_path: Path) -> None:
    # The founding case: three inputs of one type and shape, fed by position.
    text = """g (int64[N,S] input_ids, int64[N,S] token_type_ids, int64[N,S] attention_mask) => (int64[N,S] y) {
        a = Add(input_ids, attention_mask) y = Mul(a, token_type_ids) }"""
    path = saved(tmp_path, text)
    shapes = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), (1, 8))
    view = network_view(path, package, shapes=shapes)
    assert view.engine_inputs == view.file_inputs == ("input_ids", "token_type_ids", "attention_mask")
    (finding,) = [each for each in find_in_view(view) if each.code == "BND203"]
    assert finding.details["order"] == ["input_ids", "token_type_ids", "attention_mask"]


def test_unsupported_operator_is_named(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { [fine] a = Relu(x) [odd] y = Bernoulli(a) }")
    view = network_view(path, package, shapes={})
    assert "Bernoulli" in view.problem
    assert set(fates(view).values()) == {"refused"}
    (finding,) = [each for each in find_in_view(view) if each.role == "cause"]
    assert finding.code == "EXP201"


def test_symbol_of_two_sizes_is_split_and_told(package: Package, tmp_path: Path) -> None:
    # Exporters write one symbol for dimensions that have nothing to do with each other; TensorRT then refuses the profile.
    path = saved(tmp_path, "g (float[D,D] x) => (float[D,D] y) { y = Relu(x) }")
    view = network_view(path, package, shapes={"x": (2, 3)})
    assert view.problem == ""
    assert any("'D'" in skip.reason for skip in view.skipped)


def test_dynamic_input_without_a_shape_is_refused(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    with pytest.raises(ParityError, match="dynamic dimensions and no shape") as caught:
        network_view(path, package, shapes={})
    assert "--shapes x:" in caught.value.fix


def test_command_in_three_forms(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { [script] a = Relu(x) y = Exp(a) }")
    model = onnx.load(path)
    model.graph.node[0].name = "</script><b>"
    onnx.save(model, path)
    command = [sys.executable, "-m", "parityscope", "network", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "built, not run" in done.stdout
    held = json.loads(subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True).stdout)
    assert held["fates"] == {"kernel": 2}
    view = network_view(path, package, shapes={})
    page = FORMS.render(document(view, find_in_view(view), model=path, version="0"), "html")
    assert "</script><b>" not in page


def test_backend_builds_and_does_not_run(tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { [a] a = Relu(x) [b] y = Exp(a) }")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 4), np.float32))
    model = load_model(path)
    inputs = load_inputs(model, tmp_path / "x.npz", spool=tmp_path)
    with open_target(model, parse_target("trt?product=rtx&build=only"), Capture()) as session:
        assert session.executed is not None
        assert {node for layer in session.executed.layers for node in layer.nodes} == {"a", "b"}
        assert session.executed.executed == "f32"
        with pytest.raises(ParityError, match="does not run"):
            session.run(next(iter(inputs)))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("trt:f16?product=rtx&build=only", "no precision flags"),
        ("trt?product=rtx&tf32=maybe", "tf32='maybe' is not known"),
        ("trt?product=other", "no product 'other'"),
    ],
)
def test_wrong_targets_are_refused(tmp_path: Path, target: str, said: str) -> None:
    model = load_model(saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }"))
    with pytest.raises(ParityError, match=said) as caught, open_target(model, parse_target(target), Capture()):
        pass
    assert caught.value.fix


def test_no_gpu_is_a_clear_error(package: Package, tmp_path: Path) -> None:
    if not gpu_problem(package):
        pytest.skip("this machine has a GPU")
    model = load_model(saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }"))
    with (
        pytest.raises(ParityError, match="so no engine can run here") as caught,
        open_target(model, parse_target("trt?product=rtx"), Capture()),
    ):
        pass
    assert "parityscope network" in caught.value.fix
    assert "can run" in backend("trt").probe().facts


@pytest.mark.parametrize(
    ("product", "capability", "runs"),
    [("rtx", (8, 9), True), ("rtx", (12, 0), True), ("rtx", (9, 0), False), ("tensorrt", (9, 0), True)],
)
def test_gpus_that_a_product_refuses(product: str, capability: tuple[int, int], *, runs: bool) -> None:
    assert (capability_problem(product, capability) == "") == runs


def test_weights_in_a_file_of_their_own(package: Package, tmp_path: Path) -> None:
    model = ir.to_proto(weighted(SMALL["convolution"]))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    assert (tmp_path / "model.data").exists()
    assert network_view(path, package, shapes={}).problem == ""


def test_engines_that_cannot_be_loaded(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    trt = package.module
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, logger).parse_from_file(str(path))
    plan = bytes(memoryview(builder.build_serialized_network(network, builder.create_builder_config())))
    assert plan_version(plan) == ("rtx", ".".join(package.version.split(".")[:4]))
    check_plan(plan, path, package)
    other = plan[:24] + bytes([2, 0, 0, 0]) + plan[28:]
    cases = [
        (plan[:-100], "truncated"),
        (plan[:20], "too short"),
        (path.read_bytes(), "no engine of TensorRT"),
        (b"ftrt" + bytes(20) + bytes([10, 13, 2, 6]), "an engine of TensorRT 10.13.2.6"),
        (other, "was built by TensorRT-RTX 2.0.0.0"),
    ]
    for content, said in cases:
        with pytest.raises(ParityError, match=said) as caught:
            check_plan(content, path, package)
        assert caught.value.fix


def test_the_calls_that_run_an_engine_exist(package: Package) -> None:
    """No engine can run here; that the bindings have what `running.py` calls can be seen all the same."""
    trt = package.module
    calls = {
        trt.Runtime: ("deserialize_cuda_engine",),
        trt.ICudaEngine: (
            *("num_io_tensors", "get_tensor_name", "get_tensor_mode", "get_tensor_dtype"),
            *("create_execution_context", "create_engine_inspector"),
        ),
        trt.IExecutionContext: ("set_input_shape", "get_tensor_shape", "set_tensor_address", "execute_async_v3"),
        trt.EngineInspector: ("get_engine_information",),
        trt.TensorIOMode: ("INPUT",),
        trt.LayerInformationFormat: ("JSON",),
        trt: ("nptype",),
    }
    assert not [(holder, name) for holder, names in calls.items() for name in names if not hasattr(holder, name)]


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
        with pytest.raises(ParityError, match="no profile of trtexec"):
            read_profile(path)


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "\x00"])
def test_what_is_no_layer_info_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "layers.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ParityError) as caught:
        read_layer_info(path)
    assert "--exportLayerInfo" in caught.value.fix


# --- typed files and the fusion profile ------------------------------------------------------------------------------

SMALL = {
    "attention": """g (float[1,4,8] x) => (float[1,4,8] y) <float[8,8] Q, float[8,8] K, float[8,8] V> {
        q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, V) t = Transpose<perm = [0,2,1]>(k) s = MatMul(q, t)
        p = Softmax<axis = -1>(s) y = MatMul(p, v) }""",
    "normalization": """g (float[2,8] x) => (float[2,8] y) <float[8] S, float[8] B> {
        n = LayerNormalization<axis = -1>(x, S, B) y = Gelu<approximate = "tanh">(n) }""",
    "convolution": """g (float[1,3,8,8] x) => (float[1,4,4,4] y) <float[4,3,3,3] W, float[4] B> {
        c = Conv<pads = [1,1,1,1]>(x, W, B) r = Relu(c) y = MaxPool<kernel_shape = [2,2], strides = [2,2]>(r) }""",
}


def small(name: str) -> ir.Model:
    return weighted(SMALL[name])


def weighted(text: str) -> ir.Model:
    """The model of a text that declares weights, with random values for them."""
    model = parser.parse_model(f"{HEAD.replace('17', '20') if 'Gelu' in text else HEAD} {text}")
    rng = np.random.default_rng(0)
    for value in model.graph.value_info:
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del model.graph.value_info[:]
    return ir.from_proto(model)


@pytest.mark.parametrize("low", ["f16", "bf16"])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_typed_files_are_parsed_and_built(package: Package, tmp_path: Path, name: str, low: str) -> None:
    path = tmp_path / "typed.onnx"
    typed = typed_model(small(name), low, {})
    ir.save(typed.model, path)
    view = network_view(path, package, shapes={})
    assert view.problem == ""
    word = {"f16": "float16", "bf16": "bfloat16"}[low]
    assert view.types[word] > view.types.get("float32", 0)  # only the borders are FP32
    assert {tensor.dtype for tensor in (*view.inputs, *view.outputs)} == {"float32"}  # as the file declares them
    assert not [node for node in view.nodes if node.fate == "refused"]


@pytest.mark.model
def test_detector_as_typed_file_and_the_fusion_profile(package: Package, tmp_path: Path) -> None:
    model = read_graph(require("ocr-det"))
    path = tmp_path / "typed.onnx"
    ir.save(typed_model(model.clone(), "f16", {}).model, path)
    view = network_view(path, package, shapes={"x": (1, 3, 384, 768)})
    assert view.problem == ""
    assert not view.unmapped  # every layer of the network works for a node
    counts = Counter(node.fate for node in view.nodes)
    assert set(counts) <= {"kernel", "absorbed", "folded", "removed"}
    assert counts.total() == len(list(ir.load(path).graph.all_nodes()))
    assert not view.log.unexplained
    fusion = profile_named("tensorrt").predict(model, "f16")
    assert fusion is not None
    agreed = agreement(model, fusion, view.engine_layers)
    # 0.99 was measured (docs/tensorrt.md); a profile without the rule for pointwise chains is below 0.5.
    assert agreed.share > 0.95
    assert agreed.both_fused > 200
    alone = profile_named("none").predict(model, "f16")
    assert alone is None or agreement(model, alone, view.engine_layers).share < 0.5


# --- the founding case: bindings by position -------------------------------------------------------------------------

# A program in the style of TensorRT's Python samples: `bindings` is a list, and the engine takes it in its own order.
PROGRAM = """
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

source, sink = map(Path, sys.argv[1:])
data = np.load(source / "000000.npz", allow_pickle=False)
bindings = [data["input_ids"], data["token_type_ids"], data["attention_mask"]]
engine_order = ENGINE_ORDER
session = ort.InferenceSession("MODEL")
outputs = session.run(None, dict(zip(engine_order, bindings)))
np.savez(sink / "000000.npz", **{value.name: array for value, array in zip(session.get_outputs(), outputs)})
"""


BERT = """g (int64[2,6] input_ids, int64[2,6] attention_mask, int64[2,6] token_type_ids) => (float[2,4] y)
  <float[20,4] words, float[2,4] kinds> {
    w = Gather(words, input_ids) k = Gather(kinds, token_type_ids) e = Add(w, k)
    two = Constant<value = int64[1] {2}>() m = Unsqueeze(attention_mask, two) f = Cast<to = 1>(m)
    h = Mul(e, f) one = Constant<value = int64[1] {1}>() y = ReduceSum<keepdims = 0>(h, one) }"""


def test_swapped_bindings_of_an_engine_are_found(package: Package, tmp_path: Path) -> None:
    model = tmp_path / "bert.onnx"
    ir.save(weighted(BERT), model)
    order = list(network_view(model, package, shapes={}).engine_inputs)
    assert order == ["input_ids", "attention_mask", "token_type_ids"]
    rng = np.random.default_rng(0)
    sentences = {
        "input_ids": rng.integers(0, 20, (2, 6)),
        "attention_mask": np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]),
        "token_type_ids": np.array([[0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]]),
    }
    write_npz(tmp_path / "sentences.npz", sentences)
    program = tmp_path / "infer.py"
    program.write_text(PROGRAM.replace("MODEL", str(model)).replace("ENGINE_ORDER", repr(order)), encoding="utf-8")
    loaded = load_model(model)
    inputs = load_inputs(loaded, tmp_path / "sentences.npz", spool=tmp_path / "spool")
    case = Case(name="bert", model=loaded, inputs=inputs, policy=Policy())
    target = parse_target(f"command?run={sys.executable} {program}")
    settings = Settings(layers=False)
    found = examine(case, parse_target("ort"), target, folder=tmp_path / "tensors", settings=settings)["findings"]
    assert (found[0]["code"], found[0]["role"]) == ("BND001", "cause")
    assert found[0]["details"]["given"] == ["input_ids", "token_type_ids", "attention_mask"]
