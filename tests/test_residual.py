"""What outputs alone can prove: numbers that follow from each other are no evidence."""

from __future__ import annotations

import numpy as np
import pytest

from parityscope.hypotheses.from_outputs.residual import residual_of

RANDOM = np.random.default_rng(11)


def scores(*logits: float) -> np.ndarray:
    powers = np.exp(np.float64(logits))
    return np.float32(powers / powers.sum())[None]


def counted(reference: list[np.ndarray], candidate: list[np.ndarray]) -> int:
    """How many free numbers a response is credited with that gives the candidate's outputs exactly."""
    residual = residual_of([{"y": one} for one in reference], [{"y": one} for one in candidate], {"y": 1e-7}, ["y"])
    return residual.share({place: {"y": one} for place, one in enumerate(candidate)}).count


@pytest.mark.parametrize("samples", [1, 4])
def test_two_scores_that_add_up_to_one_are_one_number(samples: int) -> None:
    draws = RANDOM.standard_normal((samples, 2, 2))
    assert counted([scores(*one[0]) for one in draws], [scores(*one[1]) for one in draws]) == samples


def test_ten_scores_are_nine_numbers() -> None:
    draws = RANDOM.standard_normal((3, 2, 10))
    assert counted([scores(*one[0]) for one in draws], [scores(*one[1]) for one in draws]) == 27


def test_numbers_that_have_nothing_to_do_with_each_other_all_count() -> None:
    reference = [RANDOM.standard_normal((8, 5)).astype(np.float32) for _ in range(2)]
    assert counted(reference, [one + RANDOM.standard_normal((8, 5)).astype(np.float32) for one in reference]) == 80


def test_one_offset_of_every_row_is_told_by_a_row() -> None:
    """A matrix of rank 1, 16 x 5, is told by 16 + 5 - 1 numbers."""
    reference = [RANDOM.standard_normal((8, 5)).astype(np.float32) for _ in range(2)]
    offset = np.float32([0.5, -1, 2, 0.25, 4])
    assert counted(reference, [one + offset for one in reference]) == 20


@pytest.mark.parametrize(("part", "exact"), [(1.0, True), (0.98, False)])
def test_what_leaves_more_than_rounding_is_not_exact(part: float, exact: bool) -> None:
    """98 % of every error explain 99.96 % of its square, and are another change all the same."""
    reference = RANDOM.standard_normal((8, 5)).astype(np.float32)
    error = RANDOM.standard_normal((8, 5)).astype(np.float32)
    residual = residual_of([{"y": reference}], [{"y": reference + error}], {"y": 1e-6}, ["y"])
    share = residual.share({0: {"y": reference + np.float32(part) * error}})
    assert share.pooled > 0.999
    assert share.is_exact(residual.noise) == exact
