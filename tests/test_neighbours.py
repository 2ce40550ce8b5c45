"""Steps left out, done twice or in another order are told as that; what was fitted to one sample is held against others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.explanation import explain_region
from parityscope.hypotheses.searching import search_edits
from parityscope.hypotheses.stretch import ComputedStretch, StretchContext
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Mapping

DRAW = np.random.default_rng(31)
WEIGHTS = {
    "w": DRAW.normal(size=(12, 10)).astype(np.float32) / np.float32(3),
    "b": DRAW.normal(size=10).astype(np.float32),
}
X = DRAW.normal(size=(30, 12)).astype(np.float32)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,12] x) => (float[N,10] y) '
PLAIN = "{ a = MatMul(x, w) s = Add(a, b) y = Tanh(s) }"


def network(body: str) -> ir.Model:
    return ir.from_proto(parse_network(HEAD + body, WEIGHTS))


def computed(body: str, x: np.ndarray = X) -> np.ndarray:
    return open_session(network(body), outputs=["y"])({"x": x})["y"]


@pytest.mark.parametrize(
    ("deployed", "words"),
    [
        ("{ a = MatMul(x, w) y = Add(a, b) }", "Tanh left out"),
        ("{ a = MatMul(x, w) t = Tanh(a) y = Add(t, b) }", "Tanh done before Add"),
    ],
)
def test_a_step_left_out_or_done_too_early_is_told(deployed: str, words: str) -> None:
    # All three steps are one region, so that none of what lies between them was seen.
    found = explain_region(network(PLAIN), {"x": X}, computed(deployed))
    assert found.is_bug
    assert any(words in each.words for each in found.by), [each.words for each in found.by]


def test_a_step_done_twice_is_told() -> None:
    head = HEAD.replace("N,10", "N,12")
    once, twice = (
        ir.from_proto(parse_network(head + body, {}))
        for body in ("{ y = Softmax(x) }", "{ t = Softmax(x) y = Softmax(t) }")
    )
    found = explain_region(once, {"x": 4 * X}, open_session(twice, outputs=["y"])({"x": 4 * X})["y"])
    assert found.is_bug
    assert found.by[0].words == "Softmax done twice"


@pytest.mark.search_of(0.1)
def test_the_same_steps_in_the_same_order_are_no_bug() -> None:
    found = explain_region(network(PLAIN), {"x": X}, computed(PLAIN))
    assert not found.is_bug


def stretch_of(candidate: list[np.ndarray], samples: list[np.ndarray]) -> ComputedStretch:
    """The product alone, on samples, and what a candidate gave for it."""
    graph = parse_network(HEAD + "{ y = MatMul(x, w) }", WEIGHTS).graph
    worlds: list[Mapping[str, np.ndarray]] = [{"x": sample} for sample in samples]
    return ComputedStretch(
        context=StretchContext(
            nodes=list(graph.node),
            stretch=[0],
            output="y",
            constants=WEIGHTS,
            worlds=worlds,
            candidate=candidate,
            behind=frozenset(),
            opsets={"": 17},
            ir_version=8,
        )
    )


@pytest.mark.parametrize("holds", [True, False])
def test_what_one_sample_was_fitted_to_is_confirmed_on_the_others_or_is_none(holds: bool) -> None:
    samples = [X[:10], X[10:20], X[20:]]
    right = [sample @ WEIGHTS["w"] for sample in samples]
    factors = (
        (1.7, 1.7, 1.7) if holds else (1.7, 0.6, 1.0)
    )  # a factor of the first sample alone explains that one wholly
    found = search_edits(
        stretch_of([y * np.float32(k) for y, k in zip(right, factors, strict=True)], samples), 5.0
    ).ranked
    scaled = [one for one in found if one.edit.words.startswith("the result scaled by 1.7")]
    assert scaled
    assert (scaled[0].share > 0.9999) == holds
    assert (found[0].share > 0.9999) == holds
    if not holds:
        assert all(one.share < 0.5 for one in found), [(one.edit.words, one.share) for one in found]


def test_of_one_sample_elements_that_nothing_was_fitted_to_judge() -> None:
    stretch = stretch_of([X @ WEIGHTS["w"]], [X])
    chosen = stretch.fitted_on
    assert 0.3 < chosen.mean() < 0.7
    # The elements that numbers are fitted to are scaled, the others are right.
    candidate = np.where(chosen, 1.7, 1.0) * stretch.base[0]
    found = search_edits(stretch_of([candidate.astype(np.float32)], [X]), 5.0).ranked
    assert all(one.share < 0.5 for one in found), [(one.edit.words, one.share) for one in found]
