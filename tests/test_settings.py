"""Settings for runtimes that take those instead of a typed graph: written for a small model, and run where they can be."""

from __future__ import annotations

import importlib.util
import re
import shlex
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.errors import ParityError
from parityscope.repairs.settings import Text, known_exporters, settings_for

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """<ir_version: 9, opset_import: ["": 17]> g (float[2,64] x) => (float[2,64] y) {
    [A] a = MatMul (x, w)
    [B] b = MatMul (a, w)
    [norm] n = LayerNormalization (b, s)
    [odd,name:1] c = MatMul (n, w)
    y = Tanh (c) }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    text = MODEL.replace("[odd,name:1]", "[odd]")
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (64, 64)), ("s", (64,))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    next(node for node in proto.graph.node if node.name == "odd").name = "odd,name:1"
    onnx.save(proto, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def written(kind: str, kept: dict[str, str], path: Path, low: str = "f16") -> Text:
    return settings_for(kind, kept, ir.load(path), low=low)


def imported(text: Text, folder: Path) -> ModuleType:
    """The script as a module."""
    file = folder / text.filename
    file.write_text(text.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kinds() -> None:
    assert sorted(known_exporters()) == [
        "modelopt",
        "nncf",
        "openvino",
        "ort-float16",
        "polygraphy",
        "tensorrt",
        "trtexec",
    ]


@pytest.mark.parametrize("kind", ["tensorrt", "trtexec", "polygraphy", "openvino", "modelopt", "ort-float16"])
def test_refusals(kind: str, path: Path) -> None:
    with pytest.raises(ParityError, match="no node 'nonsense'"):
        written(kind, {"nonsense": "f32"}, path)
    assert written(kind, {}, path).text  # nothing to keep is said as well


def test_an_unknown_kind(path: Path) -> None:
    with pytest.raises(ParityError, match="no settings of kind 'tvm'"):
        written("tvm", {}, path)


def test_trtexec(path: Path) -> None:
    text = written("trtexec", {"A": "f32", "B": "bf16", "odd,name:1": "f32", "Tanh#4": "f32"}, path)
    command = "".join(line for line in text.text.splitlines(keepends=True) if not line.startswith("#"))
    assert shlex.split(command.replace("\\\n", "")) == [
        "trtexec",
        "--onnx=MODEL.onnx",
        "--fp16",
        "--bf16",
        "--precisionConstraints=obey",
        "--layerPrecisions=A:fp32,B:bf16,node_of_y:fp32",
        "--layerOutputTypes=A:fp32,B:bf16,node_of_y:fp32",
        "--saveEngine=ENGINE.plan",
    ]
    assert [note.what for note in text.notes] == ["node odd,name:1"]
    assert "TensorRT 11 removed" in text.text


@pytest.mark.parametrize("kind", ["tensorrt", "polygraphy"])
def test_layers_of_tensorrt_are_found(kind: str, path: Path, tmp_path: Path) -> None:
    text = written(kind, {"A": "f32", "odd,name:1": "bf16", "Tanh#4": "f32"}, path)
    assert "TensorRT 11 removed" in text.text
    module = imported(text, tmp_path)
    assert module.KEPT == {"A": "float32", "odd,name:1": "bfloat16", "node_of_y": "float32"}
    names = {
        ("A", ""): "A",
        ("A_12", ""): "A",  # before 8.6 there was no metadata
        ("(Unnamed Layer* 3)", "[ONNX Layer: odd,name:1]"): "odd,name:1",
        ("A_1", "[ONNX Layer: A_1]"): None,  # another node, that is called so
        ("AB", ""): None,
        ("node_of_y", ""): "node_of_y",
    }
    for (name, metadata), owner in names.items():
        assert module.owner_of(SimpleNamespace(name=name, metadata=metadata)) == owner
    assert callable(module.postprocess if kind == "polygraphy" else module.build)


def test_polygraphy_finds_the_function(path: Path, tmp_path: Path) -> None:
    from polygraphy.backend.common import InvokeFromScript

    text = written("polygraphy", {"A": "f32"}, path)
    (tmp_path / text.filename).write_text(text.text, encoding="utf-8")
    # The network itself needs TensorRT: without it the function is found and fails where it asks for that.
    with pytest.raises(ImportError, match="tensorrt"):
        InvokeFromScript(str(tmp_path / text.filename), "postprocess")(network=None)


def test_modelopt(path: Path) -> None:
    text = written("modelopt", {"A": "f32", "odd,name:1": "f32", "Tanh#4": "f32"}, path, low="bf16")
    words = shlex.split(text.text)
    assert words[words.index("--low_precision_type") + 1] == "bf16"
    assert words[words.index("--nodes_to_exclude") + 1 :] == ["A$", "odd,name:1$"]
    assert [note.what for note in text.notes] == ["node Tanh#4"]
    with pytest.raises(ParityError, match="FP32 only"):
        written("modelopt", {"A": "bf16"}, path)


def test_onnxruntime_leaves_the_listed_nodes_alone(path: Path, tmp_path: Path) -> None:
    module = imported(written("ort-float16", {"B": "f32", "norm": "f32"}, path), tmp_path)
    module.convert(str(path), str(tmp_path / "typed.onnx"))
    model = ir.load(tmp_path / "typed.onnx")
    makers = {node.name: node for node in model.graph}
    weights = {name: makers[name].inputs[1] for name in ("A", "B")}
    types = {name: value.dtype for name, value in weights.items() if value is not None}
    assert types["A"] == ir.DataType.FLOAT16
    producer = weights["B"].producer() if weights["B"] is not None else None  # a shared weight is cast up for B
    assert types["B"] == ir.DataType.FLOAT or (producer is not None and producer.op_type == "Cast")
    with pytest.raises(ParityError, match="float16 only"):
        written("ort-float16", {}, path, low="bf16")


def executed(source: Path, hint: str) -> dict[str, str]:
    """Runtime precision of the layers of OpenVINO's executed graph, by the ONNX nodes in them."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(str(source), "CPU", {"INFERENCE_PRECISION_HINT": hint})
    found: dict[str, str] = {}
    for operation in compiled.get_runtime_model().get_ordered_ops():
        facts: Any = operation.get_rt_info()
        kind = facts["layerType"].astype(str)
        if kind in {"FullyConnected", "MatMul", "MVN", "Eltwise"}:
            for name in facts["originalLayersNames"].astype(str).split(","):
                found[name] = facts["runtimePrecision"].astype(str)
    return found


def test_openvino_keeps_what_is_marked(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    before = executed(path, "bf16")
    if before["A"] != "bf16":
        pytest.skip("this CPU has no bfloat16 arithmetic: OpenVINO runs everything in f32")
    module = imported(written("openvino", {"B": "f32", "norm": "f32"}, path, low="bf16"), tmp_path)
    assert module.mark(str(path), str(tmp_path / "marked.xml")) == []
    after = executed(tmp_path / "marked.xml", "bf16")
    assert (before["B"], after["B"]) == ("bf16", "f32")
    assert after["A"] == "bf16"
    # LayerNormalization without a bias becomes MVN and Multiply, with a Range of axes: all of it is marked.
    xml = (tmp_path / "marked.xml").read_text(encoding="utf-8")
    marked = [layer for layer in xml.split("<layer ")[1:] if 'name="precise"' in layer]
    assert {re.findall(r'type="(\w+)"', layer)[0] for layer in marked} == {"MatMul", "MVN", "Multiply", "Range"}


def test_openvino_says_what_it_did_not_find(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    text = written("openvino", {"B": "f32"}, path)
    module = imported(text, tmp_path)
    module.KEPT.add("folded")
    assert module.mark(str(path), str(tmp_path / "marked.xml")) == ["folded"]


def test_each_kind_says_it_in_a_few_lines_too(path: Path) -> None:
    name = next(node.name for node in onnx.load(path).graph.node if node.name and not set(node.name) & set(",:"))
    for kind in known_exporters():
        brief = written(kind, {name: "f32"}, path).brief
        assert 1 <= len(brief.splitlines()) <= 4
        if kind != "openvino":  # which is told the tensor
            assert name in brief
    scope = written("nncf", {name: "f32"}, path)
    assert f"nncf.IgnoredScope(names=[{name!r}])" in scope.brief
    compile(scope.text, scope.filename, "exec")
