"""Attention: its probabilities are rounded on their way into the second product, inside of the operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from parityscope.arithmetic import round_to
from parityscope.arithmetic.attention import attention_apart
from parityscope.arithmetic.formats import FORMATS
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.explanation import ExplanationOptions, explain_region
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable

    Rounding = Callable[[np.ndarray], np.ndarray]

HEADS, ROWS, WIDTH = 4, 12, 64
TEXT = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,4,12,64] q, float[1,4,12,64] k, float[1,4,12,64] v) => (float[1,4,12,64] y) {
  y = Attention ATTRIBUTES (q, k, v)
}"""


def layer(attributes: str = "") -> tuple[ir.Model, dict[str, np.ndarray]]:
    draw = np.random.default_rng(4)
    feeds = {name: draw.normal(size=(1, HEADS, ROWS, WIDTH)).astype(np.float32) for name in ("q", "k", "v")}
    return ir.from_proto(parse_network(TEXT.replace("ATTRIBUTES", attributes), {})), feeds


def attention(
    feeds: dict[str, np.ndarray], read: Rounding, *, causal: bool = False, scale: float = 0.125
) -> np.ndarray:
    """Both products in float64, of operands that were `read`."""
    scores = read(feeds["q"]).astype(np.float64) @ read(np.swapaxes(feeds["k"], 2, 3)).astype(np.float64) * scale
    if causal:
        scores = np.where(np.tril(np.ones((ROWS, ROWS), bool)), scores, -np.inf)
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances = (chances / chances.sum(-1, keepdims=True)).astype(np.float32)
    return np.asarray(read(chances).astype(np.float64) @ read(feeds["v"]).astype(np.float64), np.float32)


def to(name: str) -> Rounding:
    return lambda array: round_to(np.asarray(array, np.float32), FORMATS[name])


@pytest.mark.parametrize("attributes", ["", "<is_causal = 1>"])
@pytest.mark.parametrize(("name", "truth"), [("tf32", "tf32_nearest"), ("bf16", "bf16_inputs")])
def test_what_is_rounded_inside_is_named(name: str, truth: str, attributes: str) -> None:
    model, feeds = layer(attributes)
    found = explain_region(
        model, feeds, attention(feeds, to(name), causal=bool(attributes)), ExplanationOptions(declared=name)
    )
    assert found.status == "explained"
    assert found.by[0].hypothesis == truth


def test_what_is_rounded_inside_and_given_back_rounded_is_named() -> None:
    model, feeds = layer()
    found = explain_region(model, feeds, to("f16")(attention(feeds, to("f16"))), ExplanationOptions(declared="f16"))
    assert found.by[0].hypothesis == "f16_inputs_output"


def test_another_order_of_sums_stays_within_the_floor_also_behind_a_mask_of_infinities() -> None:
    model, feeds = layer("<is_causal = 1>")
    found = explain_region(model, feeds, attention(feeds, lambda array: array, causal=True))
    assert found.status == "within floor"


def test_a_wrong_scale_is_a_bug() -> None:
    model, feeds = layer()
    assert explain_region(
        model, feeds, attention(feeds, to("bf16"), scale=0.2), ExplanationOptions(declared="bf16")
    ).is_bug


@pytest.mark.parametrize(
    "call",
    [
        "Attention (q, k, v)",
        "Attention <is_causal = 1, scale = 0.3> (q, k, v)",
        "Attention <softcap = 2.0> (q, k, v)",
        "Attention (q, k, v, seen)",
        "Attention (q, k, v, added)",
        "Attention (q, few_k, few_v)",
    ],
)
def test_taken_apart_it_gives_what_the_operator_gives(call: str) -> None:
    draw = np.random.default_rng(1)
    feeds = {name: draw.normal(size=(2, HEADS, ROWS, 16)).astype(np.float32) for name in ("q", "k", "v")}
    feeds |= {name: draw.normal(size=(2, 2, ROWS, 16)).astype(np.float32) for name in ("few_k", "few_v")}
    feeds["added"] = draw.normal(size=(ROWS, ROWS)).astype(np.float32)
    feeds["seen"] = np.tril(np.ones((ROWS, ROWS), np.bool_))
    inputs = ", ".join(
        f"{'bool' if array.dtype == bool else 'float'}[{','.join(map(str, array.shape))}] {name}"
        for name, array in feeds.items()
    )
    text = f'<ir_version: 10, opset_import: ["" : 23]> g ({inputs}) => (float[2,4,12,16] y) {{ y = {call} }}'
    compare(text, feeds, inside=2)


def test_heads_that_lie_side_by_side_are_taken_apart_too() -> None:
    draw = np.random.default_rng(2)
    feeds = {"q": draw.normal(size=(2, ROWS, 64)).astype(np.float32)}
    feeds |= {name: draw.normal(size=(2, ROWS, 32)).astype(np.float32) for name in ("k", "v")}
    text = """<ir_version: 10, opset_import: ["" : 23]>
      g (float[2,12,64] q, float[2,12,32] k, float[2,12,32] v) => (float[2,12,64] y) {
        y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v)
      }"""
    compare(text, feeds, inside=2)


def test_attention_with_a_past_is_left_as_it_is() -> None:
    text = """<ir_version: 10, opset_import: ["" : 23]>
      g (float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v, float[1,2,5,8] pk, float[1,2,5,8] pv)
        => (float[1,2,3,8] y, float[1,2,8,8] nk, float[1,2,8,8] nv) {
        y, nk, nv = Attention (q, k, v, , pk, pv)
      }"""
    model = ir.from_proto(parse_network(text, {}))
    shapes = dict.fromkeys(("q", "k", "v"), (1, 2, 3, 8))
    assert attention_apart(model, shapes) is model


def compare(text: str, feeds: dict[str, np.ndarray], inside: int) -> None:
    model = ir.from_proto(parse_network(text, {}))
    apart = attention_apart(model, {name: array.shape for name, array in feeds.items()})
    assert [node.op_type for node in apart.graph].count("MatMul") == inside
    assert not any(node.op_type == "Attention" for node in apart.graph)
    expected, found = (open_session(each, outputs=["y"])(feeds)["y"] for each in (model, apart))
    assert found.shape == expected.shape
    # Sums of 16 products, a Softmax and 12 products in FP32: some tens of units in the last place of what is added.
    assert math.isclose(np.linalg.norm(found - expected) / np.linalg.norm(expected), 0.0, abs_tol=2e-6)
