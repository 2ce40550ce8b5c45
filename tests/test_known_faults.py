"""The table of known faults: each entry has its source, and is told where it fits and nowhere else."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest
from onnx import parser

from parityscope.arithmetic import FORMATS
from parityscope.checks import known_checks
from parityscope.checks.asking import ask_check
from parityscope.checks.known_fault import CHECK
from parityscope.environment import numbers_of
from parityscope.examination import Examination, OutputRun
from parityscope.known_faults import RUNTIMES, every_fault, faults_of
from parityscope.records import Policy, Target
from parityscope.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIPPED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y)
  <float[4,4] W = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4] b = {1,1,1,1}, float low = {0}, float high = {6}> {
  m = MatMul(x, W) a = Add(m, b) [bounded] y = Clip(a, low, high) }"""
POOLED = """<ir_version: 8, opset_import: ["" : 19]> g (float[1,1,4,4] x) => (float[1,1,4,4] y) {
  [pool] y = AveragePool<kernel_shape = [2,2], pads = [0,0,1,1], count_include_pad = 1>(x) }"""
SUMS = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, int64 i, int64 j) => (float[2,4] y, float[2,4] z) {
  [one] y = CumSum(x, i) [two] z = CumSum(x, j) }"""
PRODUCT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,1] y)
  <float[4,1] W = {1,2,3,4}> { [p] y = MatMul(x, W) }"""


def told(text: str, candidate: Mapping[str, str], precision: str = "f32") -> list[dict[str, Any]]:
    """What the check tells of a network whose candidate says so of itself."""
    graph = ir.from_proto(parser.parse_model(text))
    model = SimpleNamespace(shared_graph=lambda: graph, sites={})
    case: Any = SimpleNamespace(model=model, policy=Policy(declared=precision))
    side = Target(backend="saved", precision=precision)
    known = Examination(
        request=Request(model="m.onnx", candidate="saved"),
        case=case,
        reference=side,
        candidate=side,
        verdict="beyond",
        run=OutputRun(candidate_environment=candidate),
    )
    found = [one.test().finding for one in ask_check(CHECK, known)]
    assert all(one is not None and one.role == "information" and one.repairs for one in found)
    return [dict(one.details) for one in found if one is not None]


def test_each_entry_is_whole() -> None:
    names = [one.name for one in every_fault()]
    assert len(names) == len(set(names)) >= 20
    for one in every_fault():
        assert one.runtime in RUNTIMES
        assert one.standing in {"confirmed", "reported"}
        assert all(re.match(r"https://\S+$", source) for source in (one.source, *one.sources)), one.name
        assert one.symptom
        assert one.workaround
        assert numbers_of(one.first)
        assert not one.last or numbers_of(one.first)[: len(numbers_of(one.last))] <= numbers_of(one.last)
        assert one.chain or one.operators or one.formats, f"{one.name} fits every network"
        assert set(one.formats) <= set(FORMATS)
        assert not one.asked_by or one.asked_by in known_checks()


@pytest.mark.parametrize(
    ("text", "facts", "precision", "nodes"),
    [
        (CLIPPED, {"tensorrt": "10.13.3.9"}, "f32", ["bounded"]),
        (CLIPPED, {"tensorrt": "tensorrt 10.12.0.36"}, "f32", ["bounded"]),
        (CLIPPED, {"tensorrt": "10.11.0.33"}, "f32", None),
        (CLIPPED, {"tensorrt": "tensorrt_rtx 1.7.1.116"}, "f32", None),
        (CLIPPED.replace("Add(m", "Mul(m"), {"tensorrt": "10.13.3.9"}, "f32", None),
        (SUMS, {"tensorrt": "11.4.0.106"}, "f32", ["one", "two"]),
        (SUMS.replace("z = CumSum(x, j)", "z = Neg(x)"), {"tensorrt": "11.4.0.106"}, "f32", None),
        (POOLED, {"onnxruntime": "1.22.0"}, "f32", ["pool"]),
        (POOLED, {"onnxruntime": "1.31.1"}, "f32", None),
        (POOLED.replace(": 19", ": 17"), {"onnxruntime": "1.22.0"}, "f32", None),
        (POOLED.replace("count_include_pad = 1", "count_include_pad = 0"), {"onnxruntime": "1.22.0"}, "f32", None),
        (PRODUCT, {"openvino": "2026.4.0-22959", "cpu features": "avx512_bf16 avx2"}, "bf16", ["p"]),
        (PRODUCT, {"openvino": "2026.4.0-22959", "cpu features": "avx512_bf16 amx_bf16"}, "bf16", None),
        (PRODUCT, {"openvino": "2026.4.0-22959", "cpu features": "avx512_bf16"}, "f32", None),
        (PRODUCT, {"openvino": "2026.4.1-22982", "cpu features": "avx512_bf16"}, "bf16", None),
        (PRODUCT, {"onnxruntime": "1.22.0", "machine": "riscv64"}, "f32", ["p"]),
        (PRODUCT, {"onnxruntime": "1.22.0", "machine": "x86_64"}, "f32", None),
        (PRODUCT, {"onnxruntime": "1.22.0"}, "f32", None),
    ],
)
def test_a_fault_is_told_where_it_fits(
    text: str, facts: dict[str, str], precision: str, nodes: list[str] | None
) -> None:
    assert [one["nodes"] for one in told(text, facts, precision)] == ([] if nodes is None else [nodes])


def test_a_fault_without_an_end_goes_on() -> None:
    assert {one.name for one in faults_of("tensorrt", "12.0.1", {})} == {
        one.name for one in every_fault() if not one.last
    }


def test_every_fault_can_be_met() -> None:
    for one in every_fault():
        facts = {key: words[0] for key, words in one.facts}
        for version in filter(None, (one.first, one.last)):
            assert one in faults_of(one.runtime, version, facts), one.name
