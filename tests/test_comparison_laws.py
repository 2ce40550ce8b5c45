"""Laws that every metric keeps, for tensors of any float format, shape and value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.comparison import QUANTILE_BOUND, all_metrics, measure_all, measure_pair, merge_statistics, to_plain
from strategies import arrays, pairs, tensors, wide

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
# Compiling a kernel on a cold machine takes seconds: no deadline. Sums of at most 1296 elements in another order differ
# by less than 1296 float64 roundings.
law = settings(deadline=None, max_examples=60)
SUMS = 1296 * 2.0**-53


def disagreements(reference: np.ndarray, candidate: np.ndarray) -> int:
    r, c = wide(reference), wide(candidate)
    finite = np.isfinite(r) & np.isfinite(c)
    return int((~finite & ~((r == c) | (np.isnan(r) & np.isnan(c)))).sum())


@law
@given(tensors())
def test_equal_tensors_are_perfect(tensor: np.ndarray) -> None:
    found = measure_all(measure_pair(tensor, tensor.copy(), channel_axis=0 if tensor.ndim else None))
    for metric in all_metrics():
        if metric.name in found:
            assert found[metric.name].value == metric.perfect, metric.name
    for name in ("rel_l2_finite", "mean_abs", "p999_abs", "max_rel_rms", "outlier_energy", "ulp_max", "nonfinite"):
        assert found[name].value == 0.0
    assert found["norm_ratio"].value == 1.0


@law
@given(pairs())
def test_nan_and_infinity_are_never_hidden(pair: tuple[np.ndarray, np.ndarray]) -> None:
    reference, candidate = pair
    statistics = measure_pair(reference, candidate, channel_axis=None)
    found = measure_all(statistics)
    bad = disagreements(reference, candidate)
    assert found["nonfinite"].value == bad
    r, c = wide(reference), wide(candidate)
    assert statistics.nonfinite_agreeing == int(((~np.isfinite(r)) & ((r == c) | (np.isnan(r) & np.isnan(c)))).sum())
    assert statistics.floats is not None
    counts = statistics.floats
    assert counts.finite + counts.disagreeing + counts.agreeing == statistics.count == reference.size
    for name in ("rel_l2", "max_abs", "mean_abs", "rms_error", "max_rel", "max_rel_rms", "ulp_mean", "ulp_max"):
        if bad:
            assert found[name].value == math.inf, name
        else:
            assert not math.isnan(found[name].value), name
    assert math.isnan(found["cosine"].value) == bool(bad)
    if bad:
        assert found["snr_db"].value == -math.inf
        index = found["max_abs"].worst_index
        assert index is not None
        assert disagreements(reference[index], candidate[index]) == 1


@law
@given(pairs(F32))
def test_the_largest_relative_error_is_numpys(pair: tuple[np.ndarray, np.ndarray]) -> None:
    reference, candidate = (array.reshape(-1) for array in pair)
    r, c = wide(reference), wide(candidate)
    usable = np.isfinite(r) & np.isfinite(c)
    statistics = measure_pair(reference, candidate, channel_axis=None)
    assert statistics.floats is not None
    found = statistics.floats
    assert found.zero_references == np.count_nonzero(r[usable] == 0)
    usable &= r != 0
    with np.errstate(all="ignore"):
        relative = np.where(usable, np.abs(c - r) / np.where(usable, np.abs(r), 1), 0)
    expected = relative.max(initial=0)
    assert found.max_rel == expected
    assert found.max_rel_index == ((int(relative.argmax()),) if expected else None)


@law
@given(pairs(F32), st.data())
def test_merging_any_split_equals_the_whole(pair: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    reference, candidate = (array.reshape(-1) for array in pair)
    cut = data.draw(st.integers(0, reference.size))
    whole = measure_pair(reference, candidate, channel_axis=None)
    merged = merge_statistics(
        measure_pair(reference[:cut], candidate[:cut], channel_axis=None),
        measure_pair(reference[cut:], candidate[cut:], channel_axis=None),
    )
    left, right = measure_all(whole), measure_all(merged)
    assert left.keys() == right.keys()
    for name, expected in left.items():
        if name == "mean_error":  # may cancel: its rounding is relative to mean_abs
            continue
        assert right[name].count == expected.count
        assert right[name].value == pytest.approx(expected.value, rel=2 * SUMS, nan_ok=True), name
    one, two = to_plain(whole), to_plain(merged)
    for exact in ("reference_values", "candidate_values", "error_octaves", "sketch"):
        assert one[exact] == two[exact]


@law
@given(pairs(F32, finite=True, magnitude=1e6), st.randoms(use_true_random=False))
def test_a_permutation_of_elements_changes_no_metric(pair: tuple[np.ndarray, np.ndarray], random: object) -> None:
    reference, candidate = (array.reshape(-1) for array in pair)
    order = np.random.default_rng(0).permutation(reference.size)
    before = measure_all(measure_pair(reference, candidate, channel_axis=None))
    after = measure_all(measure_pair(reference[order], candidate[order], channel_axis=None))
    for name in before.keys() - {"mean_error"}:
        assert after[name].value == pytest.approx(before[name].value, rel=2 * SUMS), name


@law
@given(arrays(F32, (7, 11), finite=True, magnitude=1e6), st.integers(-20, 20))
def test_scaling_by_a_power_of_two_scales_errors_exactly(tensor: np.ndarray, power: int) -> None:
    # Exact only while nothing is subnormal: values below 2^-100 are set to zero.
    reference = np.where(np.abs(tensor) < 2.0**-100, np.float32(0), tensor)
    candidate = (reference * np.float32(1.01)).astype(np.float32)
    factor = np.float32(2.0**power)
    before = measure_all(measure_pair(reference, candidate, channel_axis=1))
    after = measure_all(measure_pair(reference * factor, candidate * factor, channel_axis=1))
    for name in ("rel_l2", "cosine", "norm_ratio", "max_rel_rms", "outlier_share", "worst_channel", "ulp_mean"):
        assert after[name].value == before[name].value, name
    for name in ("max_abs", "mean_abs", "rms_error", "p50_abs", "p999_abs"):
        assert after[name].value == before[name].value * float(factor), name


@law
@given(pairs(finite=True))
def test_quantiles_keep_their_bound(pair: tuple[np.ndarray, np.ndarray]) -> None:
    reference, candidate = pair
    if not reference.size:
        return
    found = measure_all(measure_pair(reference, candidate, channel_axis=None))
    with np.errstate(over="ignore"):  # float64, left alone in the next line
        errors = np.abs(wide(candidate) - wide(reference)).reshape(-1)
    if max(np.abs(wide(reference)).max(), np.abs(wide(candidate)).max()) >= 2.0**100 and reference.dtype == F64:
        return  # the range then moves with the largest value: tested below
    for name, share in (("p50_abs", 0.5), ("p90_abs", 0.9), ("p99_abs", 0.99), ("p999_abs", 0.999)):
        exact = np.quantile(errors, share, method="inverted_cdf")
        if 0 < exact < 2.0**-160:
            assert 0 < found[name].value <= 2.0**-160
        else:
            assert abs(found[name].value - exact) <= QUANTILE_BOUND * exact, name


@law
@given(pairs(F64, finite=True))
def test_float64_of_any_magnitude_neither_overflows_nor_vanishes(pair: tuple[np.ndarray, np.ndarray]) -> None:
    reference, candidate = pair
    found = measure_all(measure_pair(reference, candidate, channel_axis=None))
    for name in ("rel_l2", "cosine", "max_rel_rms", "norm_ratio", "rms_error"):
        assert not math.isnan(found[name].value), name
    assert -1 <= found["cosine"].value <= 1
    if np.array_equal(reference, candidate):
        assert found["rel_l2"].value == 0
    elif np.any(reference):
        # In units of the largest magnitude nothing overflows; what vanishes is below 2^-500 of it.
        unit = max(float(np.abs(reference).max()), float(np.abs(candidate).max()))
        exponent = math.frexp(unit)[1]
        r, c = np.ldexp(reference, -exponent), np.ldexp(candidate, -exponent)
        norm = float(np.linalg.norm(r))
        if norm > 2.0**-400:
            assert found["rel_l2"].value == pytest.approx(float(np.linalg.norm(c - r)) / norm, rel=SUMS)


def test_extreme_float64_samples_merge_in_one_unit() -> None:
    # |e| / |r| = sqrt(2e-8 * 1e600 ...) over both: the second sample is nothing beside the first, and the reverse.
    large, small, zero = np.full(4, 1e300), np.full(4, 1e-300), np.zeros(4)
    for order in ((large, small), (small, large)):
        merged = merge_statistics(*(measure_pair(r, r * 1.5, channel_axis=0) for r in order))
        assert merged.rel_l2 == pytest.approx(0.5, rel=SUMS)
        assert measure_all(merged)["max_abs"].value == 0.5e300
    for r in (large, small):
        for merged in (
            merge_statistics(measure_pair(r, r * 1.5, channel_axis=0), measure_pair(zero, zero, channel_axis=0)),
            merge_statistics(measure_pair(zero, zero, channel_axis=0), measure_pair(r, r * 1.5, channel_axis=0)),
        ):
            assert merged.rel_l2 == pytest.approx(0.5, rel=SUMS)
            assert measure_all(merged)["worst_channel"].value == pytest.approx(0.5, rel=SUMS)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_quantiles_of_extreme_float64(size: float) -> None:
    # Errors of size * 1 ... size * 100 against values of size: the range of the sketch follows the tensor.
    errors = np.arange(1.0, 101.0)
    found = measure_all(measure_pair(np.full(100, size), size + size * errors, channel_axis=None))
    assert found["p50_abs"].value == pytest.approx(50 * size, rel=QUANTILE_BOUND)
    assert found["p99_abs"].value == pytest.approx(99 * size, rel=QUANTILE_BOUND)
    floats = measure_pair(np.full(1, size), np.full(1, -size), channel_axis=None).floats
    assert floats is not None
    assert floats.reference_values.bins.tolist() == [4096 + math.frexp(size)[1] - 1]


def test_errors_below_the_range_are_counted_as_its_lower_end() -> None:
    found = measure_all(measure_pair(np.ones(1) * 0, np.full(1, 2.0**-60) * 2.0**-110, channel_axis=None))
    assert found["p50_abs"].value == pytest.approx(2.0**-170, rel=QUANTILE_BOUND)  # alone: the range follows it
    mixed = measure_all(measure_pair(np.array([1.0, 0, 0]), np.array([1.0, 2.0**-170, 2.0**-170]), channel_axis=None))
    assert mixed["p50_abs"].value == 2.0**-160


def test_merging_refuses_other_dtypes() -> None:
    zeros = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="cannot be merged"):
        merge_statistics(
            measure_pair(zeros, zeros, channel_axis=None),
            measure_pair(zeros, zeros.astype(np.float16), channel_axis=None),
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_threads_change_nothing_but_rounding(dtype: Any) -> None:
    generator = np.random.default_rng(5)
    reference = generator.standard_normal((3, 5, 61, 701)).astype(dtype)
    candidate = (reference * (1 + 1e-2 * generator.standard_normal(reference.shape))).astype(dtype)
    candidate[0, 0, 0, 7] = candidate[2, 4, 60, 700] = reference[0, 0, 0, 7] = reference[2, 4, 60, 700] = np.nan
    one = measure_pair(reference, candidate, channel_axis=1, threads=1)
    two = measure_pair(reference, candidate, channel_axis=1, threads=2)
    left, right = measure_all(one), measure_all(two)
    for name, expected in left.items():
        if name != "mean_error":
            assert right[name].value == pytest.approx(expected.value, rel=1e-12), name
        assert right[name].worst_index == expected.worst_index
    assert to_plain(one)["sketch"] == to_plain(two)["sketch"]
