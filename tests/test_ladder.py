"""The tolerance ladder: known rungs, and the laws of any ladder."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from parityscope.comparison.ladder import tolerance_ladder


def test_the_rungs_of_three_tensors() -> None:
    found = tolerance_ladder([("a", 2e-4), ("b", 0.5), ("c", 2e-4), ("d", 0.0)])
    # 1 is the loosest half decade that 0.5 does not exceed; a and c exceed 1e-4 first; d, which is exact, none.
    assert [(one.tolerance, one.failing, one.first, one.new) for one in found] == [
        (1.0, 0, "", ()),
        (0.3, 1, "b", ("b",)),
        (1e-4, 3, "a", ("a", "c")),
    ]


def test_nan_and_infinity_fail_at_the_loosest_tolerance() -> None:
    found = tolerance_ladder([("a", math.inf), ("b", 0.02), ("c", math.nan)])
    assert [(one.failing, one.new) for one in found] == [(2, ("a", "c")), (3, ("b",))]
    assert found[1].tolerance == 0.01


def test_equal_tensors_have_one_rung() -> None:
    assert [(one.failing, one.first) for one in tolerance_ladder([("a", 0.0)])] == [(0, "")]
    assert len(tolerance_ladder([])) == 1


@given(st.lists(st.floats(0, 1e3), max_size=20))
def test_rungs_tighten_and_gather(errors: list[float]) -> None:
    named = [(str(place), error) for place, error in enumerate(errors)]
    found = tolerance_ladder(named)
    assert all(one.tolerance > other.tolerance for one, other in itertools.pairwise(found))
    for rung in found:
        assert rung.failing == sum(error > rung.tolerance for error in errors)
    gathered = [name for rung in found for name in rung.new]
    assert len(gathered) == len(set(gathered))
    # Only what lies below the tightest step may be missing.
    assert {name for name, error in named if error > 1e-8} == set(gathered)
