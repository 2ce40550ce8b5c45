"""The severed replay's split: introduced and inherited error add up to the whole, element by element."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.comparison import ReplayStatistics, measure_pair, measure_replay
from strategies import FLOAT_DTYPES, arrays, shapes, wide

F32 = np.dtype(np.float32)
replay = functools.partial(measure_replay, channel_axis=None)


def check(found: ReplayStatistics, r: np.ndarray, c: np.ndarray, f: np.ndarray, *, rel: float) -> None:
    """Against whole-array float64 formulas, over elements where all three are finite."""
    r, c, f = (wide(array).reshape(-1) for array in (r, c, f))
    finite = np.isfinite(r) & np.isfinite(c) & np.isfinite(f)
    assert found.left_out == int((~finite).sum())
    r, c, f = r[finite], c[finite], f[finite]
    assert found.introduced2 == pytest.approx(float(np.sum((c - f) ** 2)), rel=rel)
    assert found.inherited2 == pytest.approx(float(np.sum((f - r) ** 2)), rel=rel)
    assert found.reference2 == pytest.approx(float(np.sum(r**2)), rel=rel)
    assert found.total2 == pytest.approx(float(np.sum((c - r) ** 2)), rel=rel)
    scale = math.sqrt(found.introduced2 * found.inherited2)
    assert found.product == pytest.approx(float(np.sum((c - f) * (f - r))), abs=rel * scale)


@settings(deadline=None, max_examples=60)
@given(shapes, st.data())
def test_sums_equal_numpys_and_add_up(shape: tuple[int, ...], data: st.DataObject) -> None:
    r, c, f = (data.draw(arrays(F32, shape, magnitude=1e18)) for _ in range(3))
    rel = 1296 * 2.0**-53
    found = replay(r, c, f)
    check(found, r, c, f, rel=rel)
    parts = found.introduced2 + found.inherited2 + 2 * found.product
    assert parts == pytest.approx(found.total2, abs=4 * rel * (found.introduced2 + found.inherited2))
    if not found.left_out:
        whole = measure_pair(r, c, channel_axis=None)
        # (c - f) + (f - r) is c - r up to a float64 rounding of the larger part.
        spread = math.sqrt(found.introduced2 + found.inherited2) * 2.0**-51
        assert whole.floats is not None
        assert math.sqrt(found.total2) == pytest.approx(math.sqrt(whole.floats.moments.error2), rel=rel, abs=spread)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_a_candidate_of_another_format_and_many_blocks(dtype: np.dtype[Any]) -> None:
    generator = np.random.default_rng(9)
    r = generator.standard_normal((3, 40, 57, 13)).astype(np.float32)
    f = r + 0.01 * generator.standard_normal(r.shape).astype(np.float32)
    c = f.astype(dtype)
    found = measure_replay(r, c, f, channel_axis=1, threads=2)
    check(found, r, c, f, rel=1e-12)
    assert found.channels is not None
    introduced = (c.astype(np.float64) - f.astype(np.float64)) ** 2
    np.testing.assert_allclose(found.channels.error2, introduced.sum(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.channels.reference2, (r.astype(np.float64) ** 2).sum(axis=(0, 2, 3)), rtol=1e-12)
    worst = np.unravel_index(np.argmax(introduced), r.shape)
    if dtype.itemsize < 4:  # else f fits and nothing is introduced
        assert found.worst_index == tuple(int(i) for i in worst)
        assert found.introduced_max == math.sqrt(introduced[worst])


def test_a_small_case_by_hand() -> None:
    # introduced = (0, 2), inherited = (3, 0), |r|^2 = 25: at right angles, and the whole is sqrt(13).
    r, f, c = (np.array(row, np.float32) for row in ([3, 4], [6, 4], [6, 6]))
    found = replay(r, c, f)
    assert (found.introduced, found.inherited, found.angle) == (0.4, 0.6, 0.0)
    assert found.total == pytest.approx(math.sqrt(13) / 5, rel=2.0**-50)
    assert (found.introduced_max, found.worst_index) == (2, (1,))
    assert found.gain(0.3) == pytest.approx(2.0, rel=2.0**-50)
    assert math.isnan(found.gain(0.0))
    opposite = replay(r, r, f)
    assert opposite.angle == pytest.approx(-1.0, rel=2.0**-50)
    assert opposite.total == 0.0


def test_nonfinite_values_are_blamed_where_they_arise() -> None:
    nan, inf = math.nan, math.inf
    #              fine  c makes NaN  f already had it  both inherit  all agree  saturated  healed
    r = np.array([1, 1, 1, 1, inf, 1, 1], np.float32)
    f = np.array([1, 1, nan, inf, inf, inf, nan], np.float32)
    c = np.array([2, nan, nan, inf, inf, 65504, 1], np.float32)
    found = replay(r, c, f)
    assert found.introduced_nonfinite == 1
    assert found.introduced_conflicting == 2  # saturated, healed
    assert found.inherited_nonfinite == 4
    assert found.inherited_conflicting == 0
    assert found.total_nonfinite == 3
    assert found.left_out == 6
    assert (found.introduced, found.inherited, found.total) == (inf, inf, inf)
    assert (found.introduced_finite, found.inherited_finite, found.total_finite) == (1.0, 0.0, 1.0)
    assert (found.introduced_max, found.worst_index) == (inf, (1,))


def test_samples_and_threads_merge() -> None:
    generator = np.random.default_rng(10)
    r, f, c = (generator.standard_normal((2, 3, 400, 600)).astype(np.float32) for _ in range(3))
    whole = measure_replay(r, c, f, channel_axis=1, threads=1)
    halves = [measure_replay(r[i], c[i], f[i], channel_axis=0, threads=2) for i in range(2)]
    merged = halves[0].merge(halves[1])
    for name in ("introduced", "inherited", "total", "angle"):
        assert getattr(merged, name) == pytest.approx(getattr(whole, name), rel=1e-12), name
    assert whole.worst_index is not None
    assert (merged.introduced_max, merged.worst_index) == (whole.introduced_max, whole.worst_index[1:])
    assert merged.channels is not None
    assert whole.channels is not None
    np.testing.assert_allclose(merged.channels.error2, whole.channels.error2, rtol=1e-12)


def test_extreme_float64_neither_overflows_nor_vanishes() -> None:
    for size in (1e300, 1e-300):
        r = np.full(5, size)
        found = replay(r, r * 1.75, r * 1.5)
        assert found.introduced == pytest.approx(0.25, rel=1e-14)
        assert found.inherited == pytest.approx(0.5, rel=1e-14)
        assert found.introduced_max == pytest.approx(0.25 * size, rel=1e-14)
        merged = found.merge(replay(np.zeros(2), np.zeros(2), np.zeros(2)))
        assert merged.total == pytest.approx(0.75, rel=1e-14)


def test_zero_references_empty_and_scalar_tensors() -> None:
    zero = np.zeros((), np.float32)
    one = np.ones((), np.float32)
    assert (replay(zero, zero, zero).introduced, replay(zero, one, zero).introduced) == (0.0, math.inf)
    assert replay(zero, one, zero).worst_index == ()
    empty = np.zeros((0, 4), np.float16)
    found = replay(empty, empty, empty)
    assert (found.introduced, found.inherited, found.angle, found.worst_index) == (0.0, 0.0, 0.0, None)


def test_integers_are_counted() -> None:
    r = np.array([1, 2, 3, 2**53], np.int64)
    f = np.array([1, 2, 4, 2**53], np.int64)
    c = np.array([1, 2, 4, 2**53 + 1], np.int64)
    found = replay(r, c, f)
    assert (found.introduced, found.inherited, found.total) == (0.25, 0.25, 0.5)
    assert (found.introduced_max, found.worst_index) == (1, (3,))
    words = np.array(["a", "b"], object)
    assert replay(words, words[::-1], words).introduced == 1.0


def test_shapes_must_match() -> None:
    ones = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="shape"):
        replay(ones, ones, ones[:2])
