"""TensorRT-RTX on the CPU: the network view, typed files, the fusion profile and refused engines."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from command_line import exit_status, in_a_process
from examinations import examination_of
from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.typed import typed_model
from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt import api
from parityscope.backends.tensorrt.findings import find_in_view
from parityscope.backends.tensorrt.loading import check_plan, plan_version
from parityscope.backends.tensorrt.network import NetworkView, network_view
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.packages import Package, capability_problem, gpu_problem
from parityscope.backends.tensorrt.profiles import ranges_of_samples
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.records import Policy
from parityscope.report.network import FORMS, network_document
from parityscope.study import examine_request
from parityscope.testing.networks import write_network
from proving.engine_fusion import agreement, foretold
from proving.models.fetching import require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def saved(folder: Path, text: str, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save(parser.parse_model(f"{HEAD} {text}"), path)
    return path


def exactly(shapes: Mapping[str, tuple[int, ...]]) -> TensorrtOptions:
    """Options of an engine for these shapes alone."""
    return TensorrtOptions(shapes=ranges_of_samples([shapes]))


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
    view = network_view(path, package)
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
    view = network_view(path, package)
    assert [node.node for node in view.nodes] == ["Relu#0", "n", "n'"]
    assert set(fates(view).values()) == {"kernel"}


def test_nodes_in_branches_are_accounted_for(package: Package, tmp_path: Path) -> None:
    text = """g (bool c, float[4] x) => (float[4] y) {
        [choice] y = If (c) <
          then_branch = t () => (float[4] a) { [inner_exp] a = Exp(x) },
          else_branch = e () => (float[4] b) { [inner_tanh] b = Tanh(x) }
        >
    }"""
    view = network_view(saved(tmp_path, text), package)
    assert view.problem == ""
    assert set(fates(view)) == {"choice", "inner_exp", "inner_tanh"}
    assert fates(view)["inner_exp"] == fates(view)["inner_tanh"] == "kernel"


def test_order_of_inputs_and_namesakes_in_type(package: Package, tmp_path: Path) -> None:
    # The founding case: three inputs of one type and shape, fed by position.
    text = """g (int64[N,S] input_ids, int64[N,S] token_type_ids, int64[N,S] attention_mask) => (int64[N,S] y) {
        a = Add(input_ids, attention_mask) y = Mul(a, token_type_ids) }"""
    path = saved(tmp_path, text)
    shapes = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), (1, 8))
    view = network_view(path, package, exactly(shapes))
    assert view.engine_inputs == view.file_inputs == ("input_ids", "token_type_ids", "attention_mask")
    (finding,) = [each for each in find_in_view(view) if each.code == "BND203"]
    assert finding.details["order"] == ["input_ids", "token_type_ids", "attention_mask"]


def test_unsupported_operator_is_named(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { [fine] a = Relu(x) [odd] y = Bernoulli(a) }")
    view = network_view(path, package)
    assert "Bernoulli" in view.problem
    assert set(fates(view).values()) == {"refused"}
    (finding,) = [each for each in find_in_view(view) if each.role == "cause"]
    assert finding.code == "EXP201"


def test_an_operator_without_a_plugin_names_the_way(package: Package, tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> '
        "g (float[2,4] x) => (float[2,4] y) { [fine] a = Relu(x) [odd] y = mine.MyScale(a) }"
    )
    onnx.save(model, tmp_path / "custom.onnx")
    view = network_view(tmp_path / "custom.onnx", package)
    assert "odd (MyScale)" in view.problem
    (finding,) = [each for each in find_in_view(view) if each.code == "EXP201"]
    assert "plugins=" in finding.repairs[0].command


def test_symbol_of_two_sizes_is_split_and_told(package: Package, tmp_path: Path) -> None:
    # Exporters write one symbol for dimensions that have nothing to do with each other; TensorRT then refuses the profile.
    path = saved(tmp_path, "g (float[D,D] x) => (float[D,D] y) { y = Relu(x) }")
    view = network_view(path, package, exactly({"x": (2, 3)}))
    assert view.problem == ""
    assert any("'D'" in skip.reason for skip in view.skipped)


def test_dynamic_input_without_a_shape_is_refused(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    with pytest.raises(ParityError, match="dynamic dimensions and no shape") as caught:
        network_view(path, package)
    assert "--shapes x:" in caught.value.fix


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process: (exit code, stdout, stderr)."""
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")

    def run(*words: str) -> tuple[int, str, str]:
        code = exit_status(*words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_command_in_three_forms(package: Package, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { [script] a = Relu(x) y = Exp(a) }")
    model = onnx.load(path)
    model.graph.node[0].name = "</script><b>"
    onnx.save(model, path)
    # A process of its own, as a user starts it: the build is contained in a child.
    done = in_a_process("network", str(path))
    assert done.returncode == 0, done.stderr
    assert "built, not run" in done.stdout
    _, out, _ = cli("network", str(path), "--format", "json")
    assert json.loads(out)["fates"] == {"kernel": 2}
    view = network_view(path, package)
    page = FORMS.render(network_document(view, find_in_view(view), model=path), "html")
    assert "</script><b>" not in page


def test_lint_and_predict_show_the_network_too(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    path = saved(tmp_path, "g (float[N,4] x) => (float[N,4] y) { [fine] a = Relu(x) [odd] y = Bernoulli(a) }")
    asked = ("--network", "trt?product=rtx", "--shapes", "x:2x4", "--format", "json")
    status, out, err = cli("lint", str(path), *asked)
    assert status == 1, err
    assert json.loads(out)["findings"][0]["code"] == "EXP201"
    path = saved(tmp_path, "g (float[N,4] x) => (float[N,4] y) { [a] a = Relu(x) [b] y = Exp(a) }", "fine.onnx")
    status, out, err = cli("predict", str(path), *asked)
    assert status == 0, err
    held = json.loads(out)
    assert held["network"]["inputs"]["network"][0]["shape"] == [-1, 4]
    assert any("2 kernel" in said for said in held["statements"])


def test_the_command_takes_a_target_and_data(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    path = saved(tmp_path, "g (float[N,4] x) => (float[N,4] y) { [a] a = Relu(x) [b] y = Exp(a) }")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 4), np.float32))
    asked = ("network", str(path), "--product", "rtx", "--inputs", str(tmp_path / "x.npz"))
    more = ("--candidate", "trt?capability=8.9", "--settled", str(tmp_path / "s.onnx"), "--format", "json")
    status, out, err = cli(*asked, *more)
    assert status == 0, err
    held = json.loads(out)
    assert held["settled"] is True
    assert held["inputs"]["network"][0]["shape"] == [3, 4]
    onnx.checker.check_model(str(tmp_path / "s.onnx"))
    status, _, err = cli(*asked, "--candidate", "trt:f16")
    assert status == 2
    assert "always strongly typed" in err


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
    assert "can run" in backend_named("trt").probe().facts


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
    assert network_view(path, package).problem == ""


def build_plan(package: Package, path: Path) -> bytes:
    """An engine of the model; its builder and logger end here, since TensorRT keeps the first logger as long as it lives."""
    trt = package.module
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, logger).parse_from_file(str(path))
    return bytes(memoryview(builder.build_serialized_network(network, builder.create_builder_config())))


def test_engines_that_cannot_be_loaded(package: Package, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    plan = build_plan(package, path)
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


def test_the_calls_that_build_and_run_an_engine_exist(package: Package) -> None:
    """No engine can run here; that the bindings have every member of the protocols can be seen all the same."""
    trt = package.module
    kinds = {
        api.Builder: trt.Builder,
        api.BuilderConfig: trt.IBuilderConfig,
        api.ExecutionContext: trt.IExecutionContext,
        api.Engine: trt.ICudaEngine,
        api.NetworkDefinition: trt.INetworkDefinition,
        api.OptimizationProfile: trt.IOptimizationProfile,
        api.Registry: trt.IPluginRegistry,
        api.Runtime: trt.Runtime,
    }
    wanted = [
        (theirs, name)
        for ours, theirs in kinds.items()
        for name in {*vars(ours), *ours.__annotations__}
        if not name.startswith("_")
    ]
    assert len(wanted) > 30
    # Called where a version has them, or without a protocol of their own.
    wanted += [
        (trt.ICudaEngine, name) for name in ("create_execution_context", "create_engine_inspector", "is_debug_tensor")
    ]
    wanted += [(trt.IExecutionContext, name) for name in ("set_debug_listener", "set_all_tensors_debug_state")]
    wanted += [(trt.IExecutionContext, name) for name in ("unfused_tensors_debug_state", "set_output_allocator")]
    wanted += [(trt.INetworkDefinition, name) for name in ("mark_debug", "mark_unfused_tensors_as_debug_tensors")]
    wanted += [(trt.EngineInspector, "get_engine_information"), (trt.LayerInformationFormat, "JSON")]
    wanted += [
        (trt.Refitter, "get_missing_weights"),
        (trt.Refitter, "refit_cuda_engine"),
        (trt.ICudaEngine, "refittable"),
    ]
    wanted += [(trt.OnnxParserRefitter, name) for name in ("refit_from_file", "num_errors", "get_error")]
    wanted += [(trt.IPluginRegistry, "all_creators"), (trt.Runtime, "get_engine_validity")]
    assert not [(holder, name) for holder, name in wanted if not hasattr(holder, name)]


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
    view = network_view(path, package)
    assert view.problem == ""
    word = {"f16": "float16", "bf16": "bfloat16"}[low]
    assert view.types[word] > view.types.get("float32", 0)  # only the borders are FP32
    assert {tensor.dtype for tensor in (*view.inputs, *view.outputs)} == {"float32"}  # as the file declares them
    assert not [node for node in view.nodes if node.fate == "refused"]


@pytest.mark.model
@pytest.mark.story
def test_detector_as_typed_file_and_the_fusion_profile(package: Package, tmp_path: Path) -> None:
    model = read_graph(require("ocr-det"))
    path = tmp_path / "typed.onnx"
    ir.save(typed_model(model.clone(), "f16", {}).model, path)
    view = network_view(path, package, exactly({"x": (1, 3, 384, 768)}))
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
    # 64 of 80 regions were measured: just these nodes in one kernel, which is harder than edge by edge.
    regions = foretold(model, fusion, view.engine_layers)
    assert regions.exact > 0.75 * regions.regions > 50
    alone = profile_named("none").predict(model, "f16")
    assert alone is None or agreement(model, alone, view.engine_layers).share < 0.5


# A scale of one element each; the bias of the product stays apart in the engine too.
QUANTIZED = """<ir_version: 10, opset_import: ["" : 19]> g (float[2,3,16,16] x) => (float[2,6] y)
  <float[8,3,3,3] W, float[8,6] V, float s = {0.02}, float t = {0.01}, KIND z = {0}, KIND zw = {0}, int64[2] axes = {2, 3}> {
    [q0] a = QuantizeLinear(x, s, z) [d0] b = DequantizeLinear(a, s, z)
    [qw] w8 = QuantizeLinear(W, t, zw) [dw] w = DequantizeLinear(w8, t, zw)
    [conv] c = Conv<pads = [1,1,1,1]>(b, w) [relu] d = Relu(c)
    [mean] e = ReduceMean<keepdims = 0>(d, axes)
    [q1] f = QuantizeLinear(e, s, z) [d1] h = DequantizeLinear(f, s, z)
    [qv] v8 = QuantizeLinear(V, t, zw) [dv] v = DequantizeLinear(v8, t, zw)
    [dense] i = MatMul(h, v) [q2] j = QuantizeLinear(i, s, z) [d2] k = DequantizeLinear(j, s, z)
    [bound] y = Relu(k) }"""


@pytest.mark.parametrize("kind", ["int8", "float8e4m3fn"])
def test_regions_of_a_quantized_file_are_foretold(package: Package, tmp_path: Path, kind: str) -> None:
    weights = {
        name: np.random.default_rng(7).normal(size=shape) for name, shape in (("W", (8, 3, 3, 3)), ("V", (8, 6)))
    }
    path = write_network(
        tmp_path / "quantized.onnx",
        QUANTIZED.replace("KIND", kind),
        {name: array.astype(np.float32) for name, array in weights.items()},
    )
    model = read_graph(path)
    view = network_view(path, package, exactly({"x": (2, 3, 16, 16)}))
    assert view.problem == ""
    fusion = profile_named("tensorrt").predict(model, "f16")
    assert fusion is not None
    kernels = [set(each.values) for each in fusion.kernels]
    assert {"b", "w", "c", "d"} in kernels
    assert {"h", "v", "i", "j"} in kernels
    assert {"k", "y"} in kernels
    engine = [set(layer.nodes) for layer in view.engine_layers]
    assert any({"d0", "conv", "relu"} <= nodes and not nodes & {"q1", "d1"} for nodes in engine)
    assert any({"d1", "dense"} <= nodes for nodes in engine)
    assert agreement(model, fusion, view.engine_layers).share > 0.7


SIZES = {
    "w": (8, 8, 3, 3),
    "w1": (8, 8, 1, 1),
    "s": (8,),
    "v": (32, 32),
    "u": (32, 32),
    "bias": (32,),
}
CONV3, NORM = "Conv<pads = [1,1,1,1]>", "BatchNormalization"
IMAGE, ROWS = "float[1,8,24,24] x) => (float[1,8,24,24] y", "float[8,32] x) => (float[8,32] y"
# What a rule of the profile says of each, by its name in the docstring of fusion/tensorrt.py.
FORETOLD = {
    "sum_of_two": (
        IMAGE,
        (
            f"[z] z = {CONV3}(x, w) [zr] zr = Relu(z) [a] a = {CONV3}(zr, w) [ab] ab = {NORM}(a, s, s, s, s) [d] d = Conv(zr, w1)"
            f"[db] db = {NORM}(d, s, s, s, s) [add] e = Add(ab, db) [r] r = Relu(e) [last] y = {CONV3}(r, w)"
        ),
    ),
    "put_together": (
        "float[1,8,24,24] x) => (float[1,16,24,24] y",
        (
            f"[a] a = {CONV3}(x, w) [sa] sa = Sigmoid(a) [ma] ma = Mul(a, sa) [b] b = {CONV3}(ma, w) [sb] sb = Sigmoid(b)"
            "[mb] mb = Mul(b, sb) [cat] k = Concat<axis = 1>(ma, mb) [r] y = Relu(k)"
        ),
    ),
    "output_of_a_convolution": (IMAGE, f"[a] a = {CONV3}(x, w) [b] b = {NORM}(a, s, s, s, s) [r] y = Relu(b)"),
    "output_that_others_read": (
        "float[1,8,24,24] x) => (float[1,8,24,24] y, float[1,8,24,24] b",
        (f"[a] a = {CONV3}(x, w) [b] b = {NORM}(a, s, s, s, s) [r] r = Relu(b) [last] y = {CONV3}(r, w)"),
    ),
    "equal_products": (
        ROWS,
        (
            "[m] m = MatMul(x, v) [s] g = Sigmoid(m) [sm] h = Mul(m, g) [n] n = MatMul(x, u) [gate] e = Mul(h, n)"
            "[last] y = MatMul(e, v)"
        ),
    ),
    "residual_of_rows": (
        ROWS,
        (
            "[m] m = MatMul(x, v) [add] a = Add(m, bias) [r] r = Relu(a) [n] n = MatMul(r, u) [sum] e = Add(n, r)"
            "[last] y = MatMul(e, v)"
        ),
    ),
}


@pytest.mark.parametrize("name", FORETOLD)
def test_regions_of_small_networks_are_foretold(package: Package, tmp_path: Path, name: str) -> None:
    given, body = FORETOLD[name]
    rng = np.random.default_rng(3)
    held = {key: np.abs(rng.normal(size=shape)).astype(np.float32) for key, shape in SIZES.items() if f" {key}" in body}
    header = '<ir_version: 8, opset_import: ["": 17]>'
    path = write_network(tmp_path / "small.onnx", f"{header} g ({given}) {{ {body} }}", held)
    model = read_graph(path)
    typed = tmp_path / "typed.onnx"
    ir.save(typed_model(model.clone(), "f16", {}).model, typed)
    shape = (8, 32) if given == ROWS else (1, 8, 24, 24)
    view = network_view(typed, package, exactly({"x": shape}))
    assert view.problem == ""
    fusion = profile_named("tensorrt").predict(model, "f16")
    assert fusion is not None
    regions = foretold(model, fusion, view.engine_layers)
    assert (regions.predicted, regions.exact) == (regions.regions, regions.regions)


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


@pytest.mark.story
def test_swapped_bindings_of_an_engine_are_found(package: Package, tmp_path: Path) -> None:
    model = tmp_path / "bert.onnx"
    ir.save(weighted(BERT), model)
    order = list(network_view(model, package).engine_inputs)
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
    target = f"command?run={sys.executable} {program}"
    found = examine_request(examination_of(case, target, folder=tmp_path / "tensors"))["findings"]
    assert (found[0]["code"], found[0]["role"]) == ("BND001", "cause")
    assert found[0]["details"]["given"] == ["input_ids", "token_type_ids", "attention_mask"]
