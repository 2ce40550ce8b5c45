"""What is known of operators stands in one place, and every operator of the standard has its record there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import onnx
import pytest

import parityscope
from parityscope.operators import (
    OPERATORS,
    STANDARD,
    base_of,
    does_multiply,
    of_kind,
    operators_that_move,
    role_of,
)

SOURCE = Path(parityscope.__file__).parent
# Lists that are somebody's own: how many literals of three or more operators a file may have, and why.
OWN = {
    "evaluation/straight.py": (
        1,
        "which product of floats each product of integers stands for, and where its inputs are",
    ),
    # what an engine does, from its documentation and source
    "arithmetic/fusion/openvino.py": (14, "OpenVINO's profile: it fuses so, and keeps layers in FP32 so"),
    "arithmetic/fusion/onnxruntime_cuda.py": (1, "the CUDA provider's profile"),
    "arithmetic/fusion/tensorrt.py": (2, "TensorRT's profile"),
    "arithmetic/typed/tensorrt.py": (2, "what TensorRT's parser refuses"),
    "backends/openvino.py": (1, "OpenVINO's own names of layers"),
    "backends/openvino_ir/operators.py": (5, "OpenVINO's own names, and what each is in ONNX"),
    "backends/openvino_ir/bodies.py": (1, "the three recurrences, as OpenVINO writes them"),
    "case/deciding.py": (1, "what reads a choice out of scores"),
    "backends/onnxruntime_executed.py": (1, "ONNX Runtime's own names of nodes"),
    # a fused pattern is made of these nodes
    "arithmetic/fusion/patterns/gelu.py": (2, "the nodes of a GELU"),
    "arithmetic/fusion/patterns/gated.py": (2, "the nodes of a Mish, of a HardSwish"),
    "arithmetic/fusion/patterns/normalization.py": (1, "the nodes of a normalization"),
    "arithmetic/fusion/patterns/softmax.py": (1, "the nodes of a Softmax"),
    "checks/range_activation.py": (1, "where normalizations, GELU and Softmax overflow when exporters take them apart"),
    "checks/saturated_sums.py": (1, "where integer products have their weight and its zero point"),
    "linting/tensorrt_operators.py": (3, "what TensorRT's release notes and tables restrict"),
    "linting/square_overflow.py": (2, "the nodes of a normalization, and the words for four patterns"),
    "repairs/fused_operator.py": (1, "the four operators that it puts in"),
    # the operator's own function, beside its name
    "arithmetic/_steps.py": (1, "the three recurrences"),
    "expectation/variances.py": (1, "the formula of each sum"),
    "explanation/floor.py": (1, "how many numbers each of them adds up"),
    "hypotheses/from_other_graph/differing.py": (1, "what each of them does to a result, in words"),
    "hypotheses/from_outputs/slopes.py": (2, "the derivative of each kind of step"),
    "hypotheses/from_values.py": (1, "functions of that file, by the names that they have there"),
    "hypotheses/functions.py": (1, "the functions themselves"),
    "hypotheses/arithmetic/_contraction.py": (1, "the three products, written out"),
    "repairs/_exponents.py": (1, "the exponent of each power"),
}
ENOUGH = 3


def names_in(node: ast.AST) -> set[str]:
    """The operators that a literal lists, or a text of nothing but names that is split."""
    elements: list[ast.expr] = []
    match node:
        case ast.Set(elts=elts) | ast.List(elts=elts) | ast.Tuple(elts=elts):
            elements = elts
        case ast.Dict(keys=keys):
            elements = [key for key in keys if key is not None]
        case ast.MatchOr(patterns=patterns):
            elements = [pattern.value for pattern in patterns if isinstance(pattern, ast.MatchValue)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return set(text.split()) & OPERATORS.keys()
        case _:
            return set()
    flat = [each for one in elements for each in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return {str(each.value) for each in flat if isinstance(each, ast.Constant)} & OPERATORS.keys()


def lists_in(text: str) -> int:
    if ".split(" not in text and len(OPERATORS.keys() & set(re.findall(r'"(\w+)"', text))) < ENOUGH:
        return 0  # most files, which need no parser
    return sum(len(names_in(node)) >= ENOUGH for node in ast.walk(ast.parse(text)))


def test_every_operator_of_the_standard_has_a_record() -> None:
    schemas = onnx.defs.get_all_schemas()
    assert {(one.domain, one.name) for one in schemas} <= {(one.domain, one.name) for one in STANDARD.values()}


def test_a_record_says_no_more_inputs_than_the_operator_has() -> None:
    newest = {schema.name: schema for schema in onnx.defs.get_all_schemas()}
    attributes: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        attributes.setdefault(schema.name, set()).update(schema.attributes)
    for one in [one for one in STANDARD.values() if one.name in newest]:
        most = newest[one.name].max_input
        assert len(one.inputs) <= most, one.name
        for positions in (one.multiplies, one.scales_with, one.steers):
            assert all(index < most for index in positions or ()), one.name
        assert {one.typed_by, *one.computes_with, *one.defaults} <= {"", *attributes[one.name]}, one.name


def test_defaults_of_attributes_are_the_standards() -> None:
    for one in STANDARD.values():
        for name, value in one.defaults.items():
            default = onnx.defs.get_schema(one.name).attributes[name].default_value
            assert default.f == pytest.approx(value, rel=1e-7), one.name


def test_what_is_built_on_records_is_asked_by_name() -> None:
    assert role_of("BatchNormalization", 4) == "running variance"
    assert role_of("Conv", 9) == role_of("Unheard", 0) == "constant"
    assert base_of("NhwcFusedConv") == "Conv" == base_of("Conv")
    assert base_of("Unheard") == "Unheard"
    assert does_multiply("Einsum", 7)
    assert not does_multiply("Conv", 2)
    assert STANDARD["Resize"].steers == (1, 2, 3)
    assert STANDARD["QLinearConv"].positions("zero point") == (2, 5, 7)
    assert "Transpose" in operators_that_move("permuted")
    assert of_kind("random").isdisjoint(of_kind("constant"))


def test_a_list_of_operators_is_seen() -> None:
    assert lists_in('KINDS = frozenset({"Conv", "Gemm", "MatMul"})') == 1
    assert lists_in('KINDS = {("Conv", 1): 2, ("Gemm", 0): 1, "MatMul": 3}') == 1
    assert lists_in('KINDS = "Conv Gemm MatMul".split()') == 1
    assert lists_in('KINDS = {"Conv", "Gemm", "conv"}') == 0


def test_no_other_file_lists_operators() -> None:
    found = {
        str(path.relative_to(SOURCE)): count
        for path in sorted(SOURCE.rglob("*.py"))
        if "operators" not in path.relative_to(SOURCE).parts[0] and (count := lists_in(path.read_text("utf-8")))
    }
    assert found == {path: count for path, (count, _) in OWN.items()}
