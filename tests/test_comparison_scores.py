"""Outputs that are scores: the same choice, and the same distribution?"""

from __future__ import annotations

import math

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from parityscope.comparison import can_be_scores, measure_all, measure_pair, merge_statistics


def scores(reference: np.ndarray, candidate: np.ndarray) -> dict[str, float]:
    found = measure_all(measure_pair(reference, candidate, channel_axis=None, as_scores=True))
    return {name: measurement.value for name, measurement in found.items()}


def test_divergence_of_logits_against_mpmath() -> None:
    reference = np.array([[1.0, 2.0, -3.0], [0.5, 0.25, 700.0]], np.float32)
    candidate = np.array([[1.5, 2.0, -3.5], [0.5, 0.75, 700.0]], np.float32)
    expected = []
    with mpmath.workdps(400):
        for r, c in zip(reference, candidate, strict=True):
            p = [mpmath.exp(float(x)) for x in r]
            q = [mpmath.exp(float(x)) for x in c]
            p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
            expected.append(float(sum(a * mpmath.log(a / b) for a, b in zip(p, q, strict=True))))
    found = measure_all(measure_pair(reference, candidate, channel_axis=None, as_scores=True))
    assert found["kl_mean"].value == pytest.approx(sum(expected) / 2, rel=1e-12)
    assert found["kl_max"].value == pytest.approx(max(expected), rel=1e-12)
    assert found["kl_max"].worst_index == (0,)


def test_probabilities_are_taken_as_they_are() -> None:
    # sum p ln(p / q) = 0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75), exact up to the rounding of the float32 inputs (none).
    reference = np.array([[0.5, 0.5]], np.float32)
    candidate = np.array([[0.25, 0.75]], np.float32)
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert scores(reference, candidate)["kl_mean"] == pytest.approx(expected, rel=1e-14)


def test_a_candidate_that_forgot_its_softmax_shows() -> None:
    logits = np.array([[3.0, 1.0, 0.5], [-1.0, 4.0, 2.0]])
    reference = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = scores(reference.astype(np.float32), logits.astype(np.float32))
    assert found["top1_agreement"] == 1.0
    assert found["kl_mean"] > 1


def test_an_unlikely_class_that_a_format_cannot_hold_is_no_infinite_divergence() -> None:
    reference = np.array([[1 - 1e-9, 1e-9]], np.float32)
    assert 0 <= scores(reference, reference.astype(np.float16))["kl_mean"] < 1e-7
    lost = np.array([[0.0, 1.0]], np.float16)
    assert scores(np.array([[0.5, 0.5]], np.float32), lost)["kl_mean"] > 5


def test_top_five_counts_shared_classes() -> None:
    # The reference's best are 0..4, the candidate's 1..5: four of five are shared and the best one is another.
    reference = np.array([[9, 8, 7, 6, 5, 4, 0, 0]], np.float32)
    candidate = np.array([[3, 8, 7, 6, 5, 4, 0, 0]], np.float32)
    found = scores(reference, candidate)
    assert (found["top1_agreement"], found["top5_agreement"]) == (0.0, 0.8)


def test_ties_go_to_the_lowest_index_on_both_sides() -> None:
    ones = np.ones((2, 9), np.float32)
    late = ones.copy()
    late[0, 8] = 2  # best: 8, then 0..3 of the tied ones
    found = scores(ones, late)
    assert (found["top1_agreement"], found["top5_agreement"]) == (0.5, (0.8 + 1) / 2)


def test_rows_without_a_distribution() -> None:
    reference = np.array([[1, np.nan, 0], [1, np.nan, 0], [1, 2, 0], [-np.inf, 1, 0]], np.float32)
    candidate = np.array([[1, np.nan, 0], [1, 2, 0], [1, np.nan, 0], [-np.inf, 1, 0]], np.float32)
    found = scores(reference, candidate)
    assert (found["top1_agreement"], found["top5_agreement"]) == (0.5, 0.5)
    assert found["kl_mean"] == math.inf
    masked = np.array([[-np.inf, 1, 0.5]], np.float32)
    shifted = np.array([[-np.inf, 2, 1.5]], np.float32)
    assert scores(masked, shifted)["kl_mean"] == pytest.approx(0, abs=1e-12)


def test_many_rows_merge_like_one_tensor() -> None:
    generator = np.random.default_rng(8)
    reference = generator.standard_normal((4, 300, 1000)).astype(np.float32)
    candidate = reference + 0.05 * generator.standard_normal(reference.shape).astype(np.float32)
    whole = measure_all(measure_pair(reference, candidate, channel_axis=None, as_scores=True))
    parts = [
        measure_pair(reference[at : at + 2], candidate[at : at + 2], channel_axis=None, as_scores=True) for at in (0, 2)
    ]
    merged = measure_all(merge_statistics(*parts))
    for name in ("top1_agreement", "top5_agreement", "kl_mean", "kl_max"):
        assert merged[name].value == pytest.approx(whole[name].value, rel=1e-12), name
    plain = (reference.argmax(-1) == candidate.argmax(-1)).mean()
    assert whole["top1_agreement"].value == plain
    best = [set(np.argsort(-row)[:5].tolist()) for side in (reference, candidate) for row in side.reshape(-1, 1000)]
    shared = [len(r & c) / 5 for r, c in zip(best[:1200], best[1200:], strict=True)]
    assert whole["top5_agreement"].value == pytest.approx(np.mean(shared), rel=1e-12)


def test_which_tensors_can_be_scores() -> None:
    f32 = np.dtype(np.float32)
    assert can_be_scores(f32, (1, 1000))
    assert not can_be_scores(f32, (1, 1))
    assert not can_be_scores(f32, ())
    assert not can_be_scores(f32, (4, 100_001))
    assert not can_be_scores(np.dtype(np.int64), (1, 1000))
    ones = np.ones((3, 1), np.float32)
    with pytest.raises(ValueError, match="scores"):
        measure_pair(ones, ones, channel_axis=None, as_scores=True)
    empty = np.ones((0, 4), np.float32)
    assert scores(empty, empty)["top1_agreement"] == 1.0
