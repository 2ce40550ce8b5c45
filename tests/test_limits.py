"""Which numbers keep a budget's limit."""

from __future__ import annotations

import math

import pytest

from parityscope.case.limits import keeps_limit
from parityscope.records import Budget, Tolerance


def budget(metric: str, limit: float, tolerance: Tolerance | None = None) -> Budget:
    return Budget(output="", metric=metric, limit=limit, reason="a test", tolerance=tolerance)


@pytest.mark.parametrize(
    ("metric", "better", "limit", "kept", "missed"),
    [
        ("rel_l2", "lower", 1e-2, (0.0, 1e-2), (1.0001e-2, math.inf)),
        ("cosine", "higher", 0.99, (0.99, 1.0, math.inf), (0.9899, -math.inf)),
        # Two-sided: the size of a mean error, and how far a ratio of norms is from 1 on either side (0.75 and 1.25 exactly).
        ("mean_error", "lower", 0.25, (-0.25, 0.0, 0.25), (-0.26, 0.26)),
        ("norm_ratio", "lower", 0.25, (0.75, 1.0, 1.25), (0.74, 1.26, 0.0)),
    ],
)
def test_a_limit_is_kept_on_its_side(
    metric: str, better: str, limit: float, kept: tuple[float, ...], missed: tuple[float, ...]
) -> None:
    assert all(keeps_limit(value, budget(metric, limit), better) for value in kept)
    assert not any(keeps_limit(value, budget(metric, limit), better) for value in missed)
    assert not keeps_limit(math.nan, budget(metric, limit), better)


def test_of_a_tolerance_fewer_elements_outside_are_better_whatever_the_metric_says() -> None:
    none_outside = budget("outside", 0.0, Tolerance(atol=0.5, rtol=0.0))
    for better in ("lower", "higher"):
        assert keeps_limit(0.0, none_outside, better)
        assert not keeps_limit(1.0, none_outside, better)
