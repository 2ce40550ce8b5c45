"""What recurrent layers introduce: explained by what is rounded in each step, expected by size in an unknown order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from parityscope.arithmetic import round_to
from parityscope.arithmetic.formats import FORMATS
from parityscope.explanation import ExplanationOptions, explain_region
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable

    Rounding = Callable[[np.ndarray], np.ndarray]

STEPS, HIDDEN = 12, 16
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[12,2,16] x, float[1,2,16] h) => (float[12,1,2,16] y) {
  y = GRU <hidden_size=16, linear_before_reset=1> (x, w, r, b, , h)
}"""


def layer(seed: int = 0) -> tuple[ir.Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    draw = np.random.default_rng(seed)
    weights = {
        "w": draw.normal(size=(1, 3 * HIDDEN, 16)) / 4,
        "r": draw.normal(size=(1, 3 * HIDDEN, HIDDEN)) / 4,
        "b": draw.normal(size=(1, 6 * HIDDEN)) / 4,
    }
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    proto = parse_network(TEXT, weights)
    feeds = {"x": draw.normal(size=(STEPS, 2, 16)), "h": draw.normal(size=(1, 2, HIDDEN))}
    return ir.from_proto(proto), weights, {name: array.astype(np.float32) for name, array in feeds.items()}


def gru(
    weights: dict[str, np.ndarray],
    feeds: dict[str, np.ndarray],
    *,
    read: Rounding,
    state: Rounding,
    total: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """The specification's equations: what is `read` rounded, how a product is added up, and how the state is stored."""
    w, r, b = (read(weights[name][0]).astype(np.float64) for name in ("w", "r", "b"))
    h = read(feeds["h"][0]).astype(np.float64)
    every = []
    for x in read(feeds["x"]).astype(np.float64):
        first = total(x, w.T) + b[: 3 * HIDDEN]
        second = total(h, r.T) + b[3 * HIDDEN :]
        update, reset = (
            1.0 / (1.0 + np.exp(-(one + two)))
            for one, two in zip(np.split(first, 3, 1)[:2], np.split(second, 3, 1)[:2], strict=True)
        )
        fresh = np.tanh(first[:, 2 * HIDDEN :] + reset * second[:, 2 * HIDDEN :])
        h = state(((1.0 - update) * fresh + update * h).astype(np.float32)).astype(np.float64)
        every.append(h)
    return np.stack(every)[:, None].astype(np.float32)


def to(name: str) -> Rounding:
    return lambda array: round_to(np.asarray(array, np.float32), FORMATS[name])


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_state_stored_in_each_step_is_named(name: str) -> None:
    model, weights, feeds = layer()
    candidate = gru(weights, feeds, read=to(name), state=to(name), total=np.matmul)
    found = explain_region(model, feeds, candidate, ExplanationOptions(declared=name))
    assert found.status == "explained"
    assert found.by[0].hypothesis == f"{name}_inputs_output"
    assert "the state after each step" in found.by[0].words


@pytest.mark.parametrize(("name", "truth"), [("tf32", "tf32_nearest"), ("f16", "f16_inputs"), ("bf16", "bf16_inputs")])
def test_products_that_take_the_state_of_every_step_rounded_are_named(name: str, truth: str) -> None:
    # Tensor cores: operands are narrow, sums and the state between steps are FP32.
    model, weights, feeds = layer(3)

    def total(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(to(name)(left).astype(np.float64) @ to(name)(right).astype(np.float64))

    candidate = gru(weights, feeds, read=lambda array: array, state=lambda array: array, total=total)
    found = explain_region(model, feeds, candidate, ExplanationOptions())
    assert found.status == "explained"
    assert truth in {each.hypothesis for each in found.by}
    assert not found.is_bug


def test_sums_in_fp16_in_an_unknown_order_are_expected_where_fp16_is_declared() -> None:
    model, weights, feeds = layer(1)
    order = np.random.default_rng(5).permutation(HIDDEN)

    def total(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        found = np.zeros((left.shape[0], right.shape[1]), np.float32)
        for index in order:
            found = to("f16")(found + (left[:, index, None] * right[index]).astype(np.float32))
        return found.astype(np.float64)

    candidate = gru(weights, feeds, read=to("f16"), state=to("f16"), total=total)
    assert explain_region(model, feeds, candidate, ExplanationOptions(declared="f16")).status == "expected"
    assert explain_region(model, feeds, candidate, ExplanationOptions(declared="f32")).status == "unexplained"


def test_an_exchanged_gate_is_no_rounding() -> None:
    model, weights, feeds = layer(2)
    gates = weights["w"].reshape(3, HIDDEN, 16)[[1, 0, 2]].reshape(weights["w"].shape)
    candidate = gru({**weights, "w": gates}, feeds, read=to("f16"), state=to("f16"), total=np.matmul)
    found = explain_region(model, feeds, candidate, ExplanationOptions(declared="f16"))
    assert found.is_bug
    assert all("blocks" in one.words or "axis" in one.words for one in found.by)
