"""What random models brought to light, each as the smallest model that shows it.

The models were grown node by node, of every operator, and given to every command.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from command_line import exit_status, read_study
from parityscope.arithmetic.switchable import make_switchable
from parityscope.arithmetic.typed import typed_model
from parityscope.backends.onnxruntime_sessions import open_path, open_session
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.testing.networks import parse_network, write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g'


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# What the second product gives is so small beside the first's that its rounding costs nothing.
WEIGHTS = {"w": drawn(8, 6), "v": 1e-3 * drawn(8, 6, seed=3)}


def samples(folder: Path, count: int = 1, **shapes: tuple[int, ...]) -> Path:
    """A folder of `count` samples of normally distributed inputs of these shapes."""
    (folder / "x").mkdir()
    for index in range(count):
        arrays = {name: drawn(*shape, seed=10 * index + 1) for name, shape in shapes.items()}
        np.savez(folder / "x" / f"{index}.npz", allow_pickle=False, **arrays)
    return folder / "x"


def diagnosed(folder: Path, reference: Path, candidate: str, *more: str) -> dict[str, object]:
    """The document of a diagnosis of `folder`/x that ends with "beyond"."""
    words = ("diagnose", str(reference), "--candidate", candidate, "--inputs", str(folder / "x"), "--quiet")
    assert exit_status(*words, "--study", str(folder / "study"), *more) == 1
    return read_study(folder / "study")


def findings(document: Mapping[str, object]) -> dict[str, dict[str, object]]:
    found = document["findings"]
    assert isinstance(found, list)
    return {one["code"]: one for one in found}


def repair(folder: Path, model: Path) -> int:
    """The exit code of a repair that writes `folder`/repaired.onnx."""
    words = ("repair", str(model), "--inputs", str(folder / "x"), "--quiet", "--budget", "rel_l2=1e-4")
    return exit_status(*words, "-o", str(folder / "repaired.onnx"))


def test_an_output_that_is_an_input_keeps_its_numbers() -> None:
    model = parse_network(f"{HEAD} (float[3,64] x) => (float[3,64] x, float[3,64] y) {{ y = Relu(x) }}")
    run = open_session(ir.from_proto(model))
    found = run({"x": np.full((3, 64), 5.0, np.float32)})  # an array that ends with the call
    gc.collect()
    others = [np.full((3, 64), 7.0, np.float32) for _ in range(200)]
    assert (found["x"] == 5.0).all()
    given = others[0]
    found = run({"x": given})
    given[:] = 9.0
    assert (found["x"] == 7.0).all()


def test_an_output_that_is_an_input_is_expected_to_be_exact(tmp_path: Path) -> None:
    text = f"{HEAD} (float[2,8] x) => (float[2,8] x, float[2,4] y) {{ y = MatMul(x, w) }}"
    model = write_network(tmp_path / "m.onnx", text, {"w": drawn(8, 4)})
    other = write_network(tmp_path / "other.onnx", text, {"w": drawn(8, 4, seed=9)})
    samples(tmp_path, 2, x=(2, 8))
    document = diagnosed(tmp_path, model, f"ort?model={other}")
    verdicts = {one["name"]: one["verdict"] for one in document["outputs"]}  # type: ignore[attr-defined]
    assert verdicts == {"x": "within", "y": "beyond"}
    # Without an expectation for x, "no more than TF32 explains" was said of an error of zero.
    assert not {"ACC001", "RUN002"} & set(findings(document))


def test_the_layer_of_a_model_without_anything_inside_is_named(tmp_path: Path) -> None:
    text = f"{HEAD} (float[2,8] x) => (float[2,4] y) {{ [layer] y = MatMul(x, w) }}"
    model = write_network(tmp_path / "m.onnx", text, {"w": drawn(8, 4)})
    other = write_network(tmp_path / "other.onnx", text, {"w": drawn(8, 4, seed=9)})
    samples(tmp_path, x=(2, 8))
    document = diagnosed(tmp_path, model, f"ort?model={other}")
    assert [one["site"]["node"] for one in document["suspects"]] == ["layer"]  # type: ignore[attr-defined]


def test_a_scalar_may_be_a_suspect(tmp_path: Path) -> None:
    text = f"{HEAD} (float[4,8] x) => (float[4,8] y) {{ s = ReduceMax<keepdims = 0>(x) t = Mul(s, k) y = Div(x, t) }}"
    model = write_network(tmp_path / "m.onnx", text, {"k": np.float32(2)})
    other = write_network(tmp_path / "other.onnx", text, {"k": np.float32(3)})
    samples(tmp_path, x=(4, 8))
    document = diagnosed(tmp_path, model, f"ort?optimization=disabled&model={other}")
    assert document["suspects"][0]["site"]["tensor"] == "t"  # type: ignore[index]


def test_a_wrong_bound_is_fitted_to_the_last_place(tmp_path: Path) -> None:
    """A Clip rounds nothing, so that a bound wrong by one unit in the last place would be seen in every element."""
    text = f"{HEAD} (float[4,200] x) => (float[4,200] y) {{ c = Clip(x, low, high) y = Mul(c, c) }}"
    bounds = {"low": np.float32(-1000.0), "high": np.float32(1.6558809)}
    model = write_network(tmp_path / "m.onnx", text, bounds)
    other = write_network(tmp_path / "other.onnx", text, bounds | {"high": np.float32(0.82794046)})
    samples(tmp_path, x=(4, 200))
    found = findings(diagnosed(tmp_path, model, f"ort?optimization=disabled&model={other}"))
    assert "FUS003" not in found
    assert "0.82794" in str([one["claim"] for one in found.values()])


def test_half_precision_layers_are_weighed(tmp_path: Path) -> None:
    """Of few elements the ends of a rounded result are looked at whatever the claim explains, of float16 as well."""
    text = f"""{HEAD} (float[4,8] x) => (float[4,6] y)
        {{ h = Cast<to = 10>(x) m = MatMul(h, w) y = Cast<to = 1>(m) }}"""
    model = write_network(tmp_path / "m.onnx", text, {"w": drawn(8, 6).astype(np.float16)})
    other = write_network(tmp_path / "other.onnx", text, {"w": drawn(8, 6, seed=9).astype(np.float16)})
    samples(tmp_path, x=(4, 8))
    document = diagnosed(tmp_path, model, f"ort?optimization=disabled&model={other}")
    assert document["suspects"][0]["site"]["tensor"] == "m"  # type: ignore[index]


def test_sizes_that_depend_on_numbers_differ_between_formats(tmp_path: Path) -> None:
    """1.0 and 1.01 are one number in FP8 E4M3, so that Unique gives one element less."""
    text = f"""{HEAD} (float[6] x) => (float[m] y) {{ u = Unique<sorted = 1>(x) h = Exp(u) y = Sqrt(h) }}"""
    model = write_network(tmp_path / "m.onnx", text)
    np.savez(tmp_path / "x.npz", x=np.array([1.0, 1.01, 2.0, 3.0, -1.0, 0.5], np.float32))
    words = ("predict", str(model), "--inputs", str(tmp_path / "x.npz"), "--quiet", "--formats", "f8e4m3,bf16")
    # In FP8 nothing of y can be compared, and what was asked for and not judged is no 0.
    assert exit_status(*words) == 3


def test_what_guards_a_maximum_decides_nothing() -> None:
    """ReduceMax loses NaN in ONNX Runtime, which nodes beside it mend; of an input they are no nodes of the model."""
    model = parse_network(
        f"{HEAD} (float[4,8] x) => (float[4,1] y) {{ [top] m = ReduceMax<axes = [1]>(x) y = Exp(m) }}"
    )
    names = [node.name for node in make_switchable(ir.from_proto(model), "f16").nodes]
    assert names == ["top", "Exp#1"]


def test_functions_are_repaired_where_they_are_called(tmp_path: Path) -> None:
    body = [helper.make_node("Tanh", ["X"], ["h"]), helper.make_node("Mul", ["h", "X"], ["Y"])]
    function = helper.make_function("local", "Gate", ["X"], ["Y"], body, [helper.make_opsetid("", 17)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["x", "v"], ["b"]),
        helper.make_node("Gate", ["a"], ["c"], domain="local"),
        helper.make_node("Gate", ["b"], ["d"], domain="local"),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6])],
        [onnx.numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8), tmp_path / "m.onnx")
    samples(tmp_path, 3, x=(4, 8))
    assert repair(tmp_path, tmp_path / "m.onnx") == 0  # within on each, though two held-out samples certify nothing
    path = tmp_path / "repaired.onnx"
    plain, found = (
        open_path(each, outputs=["y"])({"x": drawn(4, 8, seed=5)})["y"] for each in (tmp_path / "m.onnx", path)
    )
    assert np.linalg.norm(found - plain) < 2e-4 * np.linalg.norm(plain)
    assert len(load_model(path).sites) > len(nodes)  # as many products as calls


def test_an_output_without_elements_is_no_obstacle_to_a_search(tmp_path: Path) -> None:
    text = f"""{HEAD} (float[4,8] x) => (float[4,6] y, float[0,6] none)
        {{ a = MatMul(x, w) b = MatMul(x, v) y = Add(a, b) none = Slice(y, start, end) }}"""
    ends = {"start": np.array([4], np.int64), "end": np.array([9], np.int64)}
    model = write_network(tmp_path / "m.onnx", text, WEIGHTS | ends)
    samples(tmp_path, 3, x=(4, 8))
    # In units of the budget 4.4 and 3.4: nothing can be in FP16 that is worth its Casts.
    assert repair(tmp_path, model) == 1


def test_shapes_in_external_files_are_told_apart_from_lost_files(tmp_path: Path) -> None:
    text = f"{HEAD} (float[4,8] x) => (float[4,1,8] y) {{ y = Unsqueeze(x, axes) }}"
    model = parse_network(text, {"axes": np.array([1], np.int64)})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(ParityError) as caught:
        open_path(tmp_path / "m.onnx", outputs=["y"])
    assert "size_threshold" in caught.value.fix


def test_a_node_that_the_optimizer_made_wrongly_is_told_to_be_its_own(tmp_path: Path) -> None:
    """The Cast from float16 before a normalization in FP32 goes into the LayerNormalization, which then is of both types."""
    text = f"""{HEAD} (float16[4,8] x) => (float[4,8] y) {{
        f = Cast<to = 1>(x) m = ReduceMean<axes = [-1]>(f) c = Sub(f, m) q = Pow(c, two) v = ReduceMean<axes = [-1]>(q)
        e = Add(v, eps) s = Sqrt(e) n = Div(c, s) t = Mul(n, w) y = Add(t, b) }}"""
    constants = {"two": np.float32(2), "eps": np.float32(1e-3), "w": drawn(8), "b": drawn(8, seed=1)}
    write_network(tmp_path / "m.onnx", text, constants)
    open_path(tmp_path / "m.onnx", outputs=["y"], optimization="disabled")
    with pytest.raises(ParityError) as caught:
        open_path(tmp_path / "m.onnx", outputs=["y"])
    assert "optimization=disabled" in caught.value.fix


def test_a_sequence_between_nodes_is_no_tensor(tmp_path: Path) -> None:
    text = f"""{HEAD} (float[4,8] x) => (float[4,8] y) {{
        a = Relu(x) s = SequenceConstruct(a, x) i = Identity(s) b = SequenceAt(i, first) y = Mul(b, k) }}"""
    model = write_network(tmp_path / "m.onnx", text, {"first": np.int64(0), "k": np.float32(2)})
    other = write_network(tmp_path / "other.onnx", text, {"first": np.int64(0), "k": np.float32(3)})
    assert list(load_model(model).sites) == ["a", "b", "y"]
    samples(tmp_path, x=(4, 8))
    document = diagnosed(tmp_path, model, f"ort?optimization=disabled&model={other}")
    assert document["suspects"][0]["site"]["tensor"] == "y"  # type: ignore[index]


@pytest.mark.parametrize("opset", [9, 17])
def test_what_is_defined_with_float32_constants_stays_in_float32(opset: int) -> None:
    """MeanVarianceNormalization in float16 is allowed by its schema, and its definition adds a float32 epsilon to it."""
    model = parse_network(f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[2,3,4,4] x) => (float[2,3,4,4] y) {{
        a = Relu(x) m = MeanVarianceNormalization(a) y = Relu(m) }}""")
    typed = typed_model(ir.from_proto(model), "f16", {}).model
    open_session(typed.clone())({"x": drawn(2, 3, 4, 4)})
    assert [node.op_type for node in typed.graph if node.op_type != "Cast"] == [
        node.op_type for node in model.graph.node
    ]


def test_classes_are_not_said_to_have_a_relative_error(tmp_path: Path) -> None:
    """Which of two nearly equal numbers is larger any coarser arithmetic may decide in another way."""
    text = f"""{HEAD} (float[64,8] x) => (int64[64] y)
        {{ m = MatMul(x, w) n = Mul(m, k) y = ArgMax<axis = 1, keepdims = 0>(n) }}"""
    weights = drawn(8, 1) + 1e-4 * drawn(8, 3, seed=5)
    constants = {"w": weights.astype(np.float32), "k": np.array([1.0, 1.0, 1.0], np.float32)}
    model = write_network(tmp_path / "m.onnx", text, constants)
    samples(tmp_path, x=(64, 8))
    document = diagnosed(tmp_path, model, "sim:bf16", "--declared", "f32")
    found = findings(document)["ACC001"]
    assert isinstance(found["confidence"], float)
    assert 0.0 < found["confidence"] <= 1.0
    assert "nan" not in str(found["claim"])


def test_an_output_that_was_computed_is_not_old(tmp_path: Path) -> None:
    """Behind a Relu the wrong answer to one sample may be the right answer to the sample before."""
    text = f"""{HEAD} (float[1,64] x) => (float[1,1] y, float[1,64] z)
        {{ m = MatMul(x, w) r = Relu(m) s = Sigmoid(r) y = Mul(s, k) z = Tanh(x) }}"""
    model = write_network(tmp_path / "m.onnx", text, {"w": np.full((64, 1), 0.02, np.float32), "k": np.float32(1.12)})
    other = write_network(
        tmp_path / "other.onnx", text, {"w": np.full((64, 1), -0.01, np.float32), "k": np.float32(1.12)}
    )
    (tmp_path / "x").mkdir()
    for index, number in enumerate((-1, 1)):
        np.savez(tmp_path / "x" / f"{index}.npz", x=np.float32(number) + drawn(1, 64, seed=index))
    document = diagnosed(tmp_path, model, f"ort?optimization=disabled&model={other}")
    assert document["suspects"][0]["site"]["tensor"] == "m"  # type: ignore[index]
    assert "BND003" not in findings(document)


def test_quantized_tensors_may_be_suspects(tmp_path: Path) -> None:
    """ONNX Runtime adds no int8 to int8, and before opset 14 the standard has no such Add."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[4,8] x) => (float[4,8] y)
        { a = Mul(x, k) q = QuantizeLinear(a, scale, zero) d = DequantizeLinear(q, scale, same) y = Tanh(d) }"""
    constants = {"k": np.float32(1.5), "scale": np.float32(0.05), "zero": np.int8(0), "same": np.int8(0)}
    model = write_network(tmp_path / "m.onnx", text, constants)
    other = write_network(tmp_path / "other.onnx", text, constants | {"zero": np.int8(3)})
    samples(tmp_path, x=(4, 8))
    document = diagnosed(tmp_path, model, f"ort?optimization=disabled&model={other}")
    suspect = document["suspects"][0]  # type: ignore[index]
    assert suspect["site"]["tensor"] == "q"
    assert suspect["share"] == pytest.approx(1.0, abs=1e-6)
