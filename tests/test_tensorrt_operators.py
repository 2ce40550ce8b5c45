"""What a file needs of TensorRT's versions: the published matrices, and what a real parser says of the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import parser

import parityscope.linting.tensorrt_operators as rule
from parityscope.linting import RuleExample
from parityscope.linting.contract import findings_of

HEAD = '<ir_version: 10, opset_import: ["": 17]> g '
# A file -> the version that it needs ("" for any that is known here, "none"), and what of it is named.
FILES = {
    "(float[4] x) => (float[4] y) { [n] y = Neg(x) }": ("", ""),
    "(float[4] x) => (float[N] y) { [n] y = Unique(x) }": ("none", "Unique"),
    "(uint8[4] x) => (uint8[4] y) { [n] y = Add(x, x) }": ("none", "UINT8"),
    "(uint8[4] x) => (float[4] y) { [n] y = Cast<to = 1>(x) }": ("", ""),
    "(int16[4] x) => (int16[4] y) { [n] y = Add(x, x) }": ("none", "INT16"),
    "(bfloat16[4] x) => (bfloat16[4] y) { [n] y = Add(x, x) }": ("9.0", "Add in BF16"),
    "(float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i) { [n] y, i = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) }": (
        "none",
        "second output",
    ),
    "(float[1,1,8,8] x) => (float[1,1,N,M] y) { [n] y = MaxPool<kernel_shape=[2,2],dilations=[2,2]>(x) }": (
        "none",
        "dilations",
    ),
    '(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { [n] y = ScatterND<reduction="add">(x, i, u) }': (
        "none",
        "reduction",
    ),
    "(float[4,4] x) => (float[4,4] y, float[4,1] m) <float[4] s={1,1,1,1}> { [n] y, m = LayerNormalization(x, s) }": (
        "none",
        "first output",
    ),
    "(float[4,4] x, int64[1] a) => (float[N,M] y) { [n] y = ReduceSum(x, a) }": ("none", "axes"),
    "(float[4] x) => (float[4] y) <float s={0.1}, int8 z={3}> { q = QuantizeLinear(x,s,z) [n] y = DequantizeLinear(q,s,z) }": (
        "none",
        "zero point",
    ),
    "(float[4] x) => (float[4] y) <float s={0.1}, int8 z={0}> { q = QuantizeLinear(x,s,z) [n] y = DequantizeLinear(q,s,z) }": (
        "",
        "",
    ),
    "(float[4] x) => (float[2] y, int64[2] i) <int64[1] k={2}> { [n] y, i = TopK<sorted = 0>(x, k) }": (
        "later than 10.1",
        "sorted = 0",
    ),
    "(float[4,4] x, int64 a) => (float[4,4] y) { [n] y = CumSum(x, a) }": ("later than 10.1", "axis"),
    "(float[4] x) => (float[4] y) { s = SequenceEmpty() t = SequenceInsert(s, x) [n] y = ConcatFromSequence<axis=0>(t) }": (
        "none",
        "SequenceEmpty",
    ),
}


@pytest.mark.parametrize("text", FILES)
def test_the_version_that_a_file_needs_is_told(text: str, tmp_path: Path) -> None:
    version, words = FILES[text]
    found = findings_of(rule.RULE, RuleExample(model=HEAD + text), tmp_path)
    assert [one.details["needs"] for one in found] == ([version] if version else [])
    assert all(words in one.claim for one in found)


@pytest.mark.parametrize(("opset", "version"), [(17, ""), (19, "9.0"), (20, "10.0"), (22, "later than 10.1")])
def test_an_opset_needs_a_version(opset: int, version: str, tmp_path: Path) -> None:
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g (float[4] x) => (float[4] y) {{ y = Neg(x) }}'
    found = findings_of(rule.RULE, RuleExample(model=text), tmp_path)
    assert [one.details["needs"] for one in found] == ([version] if version else [])


def test_each_release_has_its_source() -> None:
    held = json.loads(Path(rule.__file__).with_suffix(".json").read_text(encoding="utf-8"))
    assert [one["version"] for one in held["releases"]] == ["8.6", "9.0", "9.1", "9.2", "9.3", "10.0", "10.1"]
    for one in (*held["releases"], held["newest opset"]):
        assert re.match(r"https://(github.com/onnx/onnx-tensorrt/blob/[0-9a-f]{40}|docs.nvidia.com)/", one["source"])
    standard = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    assert set(held["parser"]) <= standard
    assert not set(held["operators"]) - standard - {"ImageScaler", "ParametricSoftplus", "ScaledTanh"}


def test_a_real_parser_says_the_same() -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    for text, (version, _) in FILES.items():
        network = builder.create_network(0)  # the parser does not keep it alive
        asked = trt.OnnxParser(network, logger)
        assert asked.parse(parser.parse_model(HEAD + text).SerializeToString()) == (version != "none"), text
    network = builder.create_network(0)
    asked = trt.OnnxParser(network, logger)
    matrix = rule.read_matrix()
    # DeformConv is a plug-in that TensorRT-RTX does not bring.
    for name in (*matrix.operators, *matrix.parser):
        taken = matrix.since(name) != "none"
        assert asked.supports_operator(name) == taken or name == "DeformConv", name
