"""A model with nothing left to decide: it computes what it did, every node is told, and TensorRT builds what it refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.backends.tensorrt.settling import Settled, settle_model, value_of
from parityscope.errors import ParityError
from proving.models.fetching import require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

NESTED = """g (float[N,2] x, int64 sr) => (float[N,2] y) <float one = {1}> {
    fast = Constant<value = int64 {16000}>()
    [fast_enough] c = Equal(sr, fast)
    [outer] y = If (c) <
      then_branch = t () => (float[N,2] a) {
        [shape] s = Shape(x)
        [rank] r = Size(s)
        two = Constant<value = int64 {2}>()
        [flat] f = Equal(r, two)
        [inner] a = If (f) <
          then_branch = tt () => (float[N,2] v) { [same] v = Exp(x) },
          else_branch = te () => (float[N,2] w) { [other] w = Tanh(x) }
        >
      },
      else_branch = e () => (float[N,2] a) { [slow] b = Sqrt(x) [added] a = Add(b, one) }
    >
}"""


def written(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} {text}"), path)
    return path


def settled_of(path: Path, shapes: Mapping[str, tuple[int, ...]], **values: str) -> Settled:
    given = {name: value_of(text, name) for name, text in values.items()}
    return settle_model(name_all_nodes(path, shapes).message, shapes, given, folder=path.parent)


def outputs(model: Any, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model if isinstance(model, str) else model.SerializeToString()
    found: list[np.ndarray] = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(
        None, dict(feeds)
    )
    return found


def kinds(settled: Settled) -> list[str]:
    return [node.op_type for node in settled.message.graph.node]


@pytest.mark.parametrize(("rate", "left"), [("16000", ["Exp"]), ("8000", ["Sqrt", "Add"])])
def test_known_branches_take_the_place_of_their_if(tmp_path: Path, rate: str, left: list[str]) -> None:
    path = written(tmp_path, NESTED)
    settled = settled_of(path, {"x": (3, 2)}, sr=rate)
    assert [kind for kind in kinds(settled) if kind != "Constant"] == left
    onnx.checker.check_model(settled.message)
    x = np.abs(np.random.default_rng(0).standard_normal((3, 2))).astype(np.float32)
    before = outputs(str(path), {"x": x, "sr": np.array(int(rate))})
    assert np.array_equal(outputs(settled.message, {"x": x})[0], before[0])
    # Every node of the file is still there or told, and none is both.
    names = {node.name for node in name_all_nodes(path, {}).nodes}
    present = {node.name for node in settled.message.graph.node}
    assert present | set(settled.gone) == names
    assert not present & set(settled.gone)
    assert settled.gone["fast_enough"].fate == "folded"
    never = "slow" if rate == "16000" else "same"
    assert "never taken" in settled.gone[never].reason
    assert settled.fixed == ("sr",)


def test_without_the_value_the_branch_stays(tmp_path: Path) -> None:
    settled = settled_of(written(tmp_path, NESTED), {"x": (3, 2)})
    assert kinds(settled)[-1] == "If"
    assert "outer" not in settled.gone


def test_a_branch_that_hands_on_an_outer_value(tmp_path: Path) -> None:
    # The branch's output is a value from outside of it, twice; its own value shares its name with one of the graph.
    text = """g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}, bool yes = {1}> {
        [first] h = Add(x, w)
        [if] y, z, v = If (yes) <
          then_branch = t () => (float[2] h, float[2] h, float[2] k) { [inner] k = Mul(h, w) },
          else_branch = e () => (float[2] h, float[2] k, float[2] k) { [never] k = Exp(h) }
        >
        [unread] k = Neg(v)
    }"""
    path = written(tmp_path, text)
    settled = settled_of(path, {"x": (2,)})
    x = np.array([3, 4], np.float32)
    # ONNX Runtime refuses such branches, so the standard's own evaluator is asked.
    before = ReferenceEvaluator(str(path)).run(None, {"x": x})
    for one, other in zip(outputs(settled.message, {"x": x}), before, strict=True):
        assert np.array_equal(one, other)
    assert settled.gone["inner"].reason == settled.gone["unread"].reason == "nothing reads what it computes"


def test_what_is_never_folded(tmp_path: Path) -> None:
    text = """g (float[2] x) => (float[2] y, float[2048,1024] big)
      <float[4] w = {1,2,3,4}, float scale = {0.5}, int8 zero = {0}, int64[1] four = {4}, int64[2] wide = {2048, 1024}> {
        [q] a = QuantizeLinear(w, scale, zero)
        [dq] b = DequantizeLinear(a, scale, zero)
        [noise] n = RandomNormal<shape = [2]>()
        [sum] r = ReduceSum<keepdims = 0>(b)
        [plus] p = Add(x, n)
        [last] y = Mul(p, r)
        [spread] grown = Expand(scale, wide)
        [at] big = Exp(grown)
    }"""
    settled = settled_of(written(tmp_path, text), {"x": (2,)})
    # 8 MiB made of four bytes stays a node; so do the roles of Q and DQ, and random numbers.
    assert kinds(settled) == [
        "QuantizeLinear",
        "DequantizeLinear",
        "RandomNormal",
        "ReduceSum",
        "Add",
        "Mul",
        "Expand",
        "Exp",
    ]
    assert not settled.gone


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rate", "16000", "there is no input 'rate'"),
        ("sr", "1.5", "is int64 and cannot hold 1.5"),
        ("sr", "1,2", "has 0 dimensions, the value has 1"),
        ("sr", "fast", "sr=fast is no number"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = written(tmp_path, NESTED)
    with pytest.raises(ParityError, match=said) as caught:
        settled_of(path, {"x": (3, 2)}, **{name: text})
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [("3", "int64", ()), ("1,2", "int64", (2,)), ("0.5", "float32", ()), ("true", "bool", ()), ("1e3", "float32", ())],
)
def test_values_of_texts(text: str, dtype: str, shape: tuple[int, ...]) -> None:
    found = value_of(text, "x")
    assert (found.dtype.name, found.shape) == (dtype, shape)


QUANTIZED = """g (int64[2,3] ids) => (float[2,3,4] y)
  <int8[5,4] table = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}, float[5,1] scale = {1,2,3,4,5}> {
    [wide] f = Cast<to = 1>(table)
    [scaled] t = Mul(f, scale)
    [rows] y = Gather(t, ids)
}"""


def test_eight_bit_tables_that_tensorrt_refuses_are_built(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    from parityscope.backends.tensorrt.findings import find_in_view
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import find_package

    path, package = written(tmp_path, QUANTIZED), find_package("rtx")
    refused = network_view(path, package)
    assert "only allowed before DQ" in refused.problem
    (finding,) = [each for each in find_in_view(refused) if each.code == "EXP201"]
    assert "--settle" in finding.repairs[0].command
    view = network_view(path, package, TensorrtOptions(settle=True))
    assert view.problem == ""
    assert {node.node: node.fate for node in view.nodes} == {"wide": "folded", "scaled": "folded", "rows": "kernel"}


SHAPES = {"vad": {"input": (1, 576), "state": (2, 1, 128)}, "vad-15": {"input": (1, 576), "state": (2, 1, 128)}}


@pytest.mark.model
@pytest.mark.parametrize("identity", ["vad", "vad-15"])
def test_branches_of_a_trained_model(identity: str) -> None:
    """TensorRT-RTX stops at an assertion of its own on these; settled it builds them, and they compute the same."""
    pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import find_package
    from parityscope.backends.tensorrt.profiles import ranges_of_samples

    path, shapes = require(identity), SHAPES[identity]
    options = TensorrtOptions(shapes=ranges_of_samples([shapes]), values={"sr": np.array(16000)}, settle=True)
    view = network_view(path, find_package("rtx"), options)
    assert view.problem == ""
    assert view.engine_inputs == view.file_inputs == ("input", "state")
    assert {node.fate for node in view.nodes} <= {"kernel", "absorbed", "folded", "removed"}
    assert len(view.nodes) == len(name_all_nodes(path, {}).nodes)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    before = outputs(str(path), {**feeds, "sr": np.array(16000)})
    for one, other in zip(outputs(view.settled, feeds), before, strict=True):
        # The same operators on the same numbers; sums may be ordered otherwise, as constants are packed for kernels.
        assert np.allclose(one, other, rtol=0, atol=np.finfo(np.float32).eps * np.abs(other).max() * 8)


def test_a_squeeze_without_axes_is_built_once_shapes_are_known(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    from parityscope.backends.tensorrt.findings import find_in_view
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import find_package
    from parityscope.backends.tensorrt.profiles import ranges_of_samples

    text = "g (float[N,1,4] x) => (float[K] y) { [thin] t = Squeeze(x) [act] y = Relu(t) }"
    path, package = written(tmp_path, text), find_package("rtx")
    options = TensorrtOptions(shapes=ranges_of_samples([{"x": (1, 1, 4)}]))
    refused = network_view(path, package, options)
    assert "without an axes input" in refused.problem
    (finding,) = [each for each in find_in_view(refused) if each.code == "EXP201"]
    assert "--settle" in finding.repairs[0].command
    assert network_view(path, package, replace(options, settle=True)).problem == ""
