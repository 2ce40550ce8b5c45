"""Known answers: formulas in plain float64 numpy or exact fractions, worked examples, and the faults of other tools."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings

from parityscope.comparison import Statistics, channel_axis, measure_all, measure_pair, merge_statistics
from strategies import FLOAT_DTYPES, pairs, wide

F32 = np.dtype(np.float32)
ROUNDING = 2.0**-50  # a few float64 roundings (2^-53 each) in sums of a handful of terms


def values(reference: np.ndarray, candidate: np.ndarray, axis: int | None = None) -> dict[str, float]:
    found = measure_all(measure_pair(reference, candidate, channel_axis=axis))
    return {name: measurement.value for name, measurement in found.items()}


def test_every_number_of_a_small_pair() -> None:
    # e = (0, 1, -2, 0), |e|^2 = 5, |r|^2 = 1 + 4 + 4 = 9, |c|^2 = 1 + 9 + 0 = 10, <r, c> = 1 + 6 = 7.
    reference = np.array([[1, 2], [2, 0]], np.float32)
    candidate = np.array([[1, 3], [0, 0]], np.float32)
    found = values(reference, candidate, axis=0)
    assert found["rel_l2"] == pytest.approx(math.sqrt(5 / 9), rel=ROUNDING)
    assert found["max_abs"] == 2
    assert found["mean_error"] == -0.25
    assert found["mean_abs"] == 0.75
    assert found["rms_error"] == pytest.approx(math.sqrt(5 / 4), rel=ROUNDING)
    assert found["max_rel_rms"] == pytest.approx(2 / math.sqrt(9 / 4), rel=ROUNDING)
    # 1 / 2 at [0, 1], 2 / 2 at [1, 0]; the reference is zero at [1, 1].
    assert (found["max_rel"], found["zero_references"]) == (1, 1)
    assert found["cosine"] == pytest.approx(7 / math.sqrt(90), rel=ROUNDING)
    assert found["norm_ratio"] == pytest.approx(math.sqrt(10 / 9), rel=ROUNDING)
    assert found["snr_db"] == pytest.approx(10 * math.log10(9 / 5), rel=ROUNDING)
    assert found["outlier_energy"] == pytest.approx(4 / 5, rel=ROUNDING)
    # Two of four errors are 0; the third, 1, lies in the bin [1, 1 + 1/64), whose middle is 1 + 1/128; so does 2's.
    assert (found["p50_abs"], found["p90_abs"]) == (0.0, 2 * (1 + 1 / 128))
    # Channel 0: 1 / sqrt(5); channel 1: 2 / 2. The median of two is their mean.
    assert found["worst_channel"] == 1
    assert found["worst_channel_ratio"] == pytest.approx(2 / (1 + math.sqrt(1 / 5)), rel=ROUNDING)
    # 2 -> 3 is half an octave of 2^23 values; 2 -> 0 is 128 octaves, as its bits 0x40000000 say.
    assert found["ulp_max"] == 0x40000000
    assert found["ulp_mean"] == (2**22 + 0x40000000) / 4
    assert measure_all(measure_pair(reference, candidate, channel_axis=0))["max_abs"].worst_index == (1, 0)


@settings(deadline=None, max_examples=30)
@given(pairs(F32, finite=True, magnitude=1e18))
def test_sums_against_exact_arithmetic(pair: tuple[np.ndarray, np.ndarray]) -> None:
    r, c = ([Fraction(float(value)) for value in array.reshape(-1)] for array in pair)
    error2 = sum(((b - a) ** 2 for a, b in zip(r, c, strict=True)), Fraction(0))
    reference2 = sum((a * a for a in r), Fraction(0))
    found = values(*pair)
    with mpmath.workprec(300):
        if error2 and reference2:
            ratio = mpmath.sqrt(mpmath.fraction(error2.numerator, error2.denominator) * reference2.denominator)
            expected = float(ratio / mpmath.sqrt(reference2.numerator))
        else:
            expected = math.inf if error2 else 0.0
    assert found["rel_l2"] == pytest.approx(expected, rel=1296 * 2.0**-53)
    largest = max((abs(b - a) for a, b in zip(r, c, strict=True)), default=Fraction(0))
    assert found["max_abs"] == pytest.approx(float(largest), rel=2.0**-52)


def test_one_wrong_element_of_millions_is_seen_as_one() -> None:
    reference = np.full(2_360_000, 0.5, np.float32)
    candidate = reference.copy()
    candidate[1_234_567] += 251.31
    found = measure_all(measure_pair(reference, candidate, channel_axis=None))
    assert found["outlier_energy"].value == 1.0
    assert found["outlier_share"].value == 1 / reference.size
    assert found["max_abs"].worst_index == (1_234_567,)
    assert found["p999_abs"].value == 0.0


def test_a_forgotten_normalisation_shows_although_its_cosine_is_one() -> None:
    reference = np.random.default_rng(1).random(20_000).astype(np.float32)
    found = values(reference, reference * np.float32(255))
    assert found["cosine"] == pytest.approx(1.0, abs=1e-9)
    assert found["norm_ratio"] == pytest.approx(255, rel=1e-6)  # products are rounded to float32
    assert found["rel_l2"] == pytest.approx(254, rel=1e-6)


def test_zeros_in_the_reference_are_not_skipped() -> None:
    # msaccucmp's mean relative error is 0.0000 for this; here half of all elements are off by 5 where r has RMS ~0.7.
    reference = np.maximum(np.random.default_rng(2).standard_normal(20_000), 0).astype(np.float32)
    candidate = np.where(reference == 0, np.float32(5), reference)
    found = values(reference, candidate)
    assert found["rel_l2"] > 4
    assert found["max_abs"] == 5
    assert found["p90_abs"] == pytest.approx(5, rel=1 / 128)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_dead_channel_of_256_shows(axis: int) -> None:
    generator = np.random.default_rng(3)
    reference = np.moveaxis(generator.standard_normal((256, 6, 7)).astype(np.float32), 0, axis).copy()
    candidate = (reference * (1 + 1e-4 * generator.standard_normal(reference.shape))).astype(np.float32)
    np.moveaxis(candidate, axis, 0)[17] = 0
    found = measure_all(measure_pair(reference, candidate, channel_axis=axis))
    assert found["worst_channel"].value == pytest.approx(1.0, rel=ROUNDING)
    assert found["worst_channel"].worst_index == (17,)
    assert found["worst_channel_ratio"].value > 1000
    assert found["rel_l2"].value < 0.1


def test_a_channel_of_zeros_is_measured_against_its_neighbours() -> None:
    # Rounding noise of 1e-6 in a channel that ReLU closed is not an infinite error, 5.0 is a large one.
    reference = np.ones((1, 4, 8), np.float32)
    reference[:, 2] = 0
    noisy, wrong = reference.copy(), reference.copy()
    noisy[0, 2, 3] = 1e-6
    wrong[0, 2, 3] = 5
    # The mean square of the channels' norms is 3 * 8 / 4 = 6, its root times 2^-11 the floor.
    floor = math.sqrt(6) * 2.0**-11
    assert values(reference, noisy, axis=1)["worst_channel"] == pytest.approx(1e-6 / floor, rel=1e-6)
    assert values(reference, wrong, axis=1)["worst_channel"] == pytest.approx(5 / floor, rel=ROUNDING)


def test_a_nan_makes_its_channel_infinite() -> None:
    reference = np.ones((2, 3, 5), np.float32)
    candidate = reference.copy()
    candidate[1, 2, 0] = np.nan
    found = measure_all(measure_pair(reference, candidate, channel_axis=1))
    assert found["worst_channel"].value == math.inf
    assert found["worst_channel"].worst_index == (2,)
    assert found["rel_l2"].value == math.inf
    assert found["rel_l2_finite"].value == 0.0


@pytest.mark.parametrize("inner", [1, 3, 20])
@pytest.mark.parametrize("channels", [1, 3, 40])
@pytest.mark.parametrize("broken", [0, 1])
def test_channel_sums_equal_numpys(inner: int, channels: int, broken: int) -> None:
    # Shapes on both sides of every branch of the channel loop, over several blocks of 1024.
    generator = np.random.default_rng(4)
    reference = generator.standard_normal((83, channels, inner)).astype(np.float32)
    candidate = reference + 0.1 * generator.standard_normal(reference.shape).astype(np.float32)
    if broken:
        candidate[5, 0, 0] = np.inf
    found = measure_pair(reference, candidate, channel_axis=1).channels
    assert found is not None
    r, c = reference.astype(np.float64), candidate.astype(np.float64)
    finite = np.isfinite(c)
    expected = np.where(finite, np.where(finite, c, 0) - r, 0) ** 2
    np.testing.assert_allclose(found.error2, expected.sum(axis=(0, 2)), rtol=1e-13)
    np.testing.assert_allclose(found.reference2, np.where(finite, r**2, 0).sum(axis=(0, 2)), rtol=1e-13)
    assert found.disagreeing.tolist() == [broken] + [0] * (channels - 1)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_neighbours_are_one_ulp_apart_in_every_format(dtype: np.dtype[Any]) -> None:
    bits = np.arange(2 ** min(8 * dtype.itemsize - 1, 15), dtype=f"u{dtype.itemsize}")
    if dtype.itemsize > 2:
        bits = bits << (8 * dtype.itemsize - 16)
    step = max(1, 2 ** (8 * dtype.itemsize - 16))
    line = bits.view(dtype)
    line = line[np.isfinite(wide(line))]
    found = values(line[:-1], line[1:])
    assert (found["ulp_mean"], found["ulp_max"]) == (step, step)
    assert values(-line[:-1], -line[1:])["ulp_max"] == step
    smallest = line[1:2] if dtype.itemsize <= 2 else np.array([1], f"u{dtype.itemsize}").view(dtype)
    assert values(-smallest, smallest)["ulp_max"] == 2
    assert values(np.array([-0.0]).astype(dtype), np.array([0.0]).astype(dtype))["ulp_max"] == 0


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_the_best_candidate_of_a_format_is_zero_ulp_away(dtype: np.dtype[Any]) -> None:
    generator = np.random.default_rng(6)
    for wider in (np.float32, np.float64):
        reference = (generator.standard_normal(4000) * np.exp2(generator.uniform(-7, 7, 4000))).astype(wider)
        # float64 to a short format goes through float32 in ml_dtypes: exact here, as the values are float32 first.
        candidate = reference.astype(np.float32).astype(dtype) if dtype.itemsize < 4 else reference.astype(dtype)
        if wider is np.float64 and dtype.itemsize < 4:
            reference = reference.astype(np.float32).astype(np.float64)
        found = measure_all(measure_pair(reference, candidate, channel_axis=None))
        assert found["ulp_max"].value == 0
        r, c = reference.astype(np.float64), candidate.astype(np.float64)
        assert found["rel_l2"].value == pytest.approx(float(np.linalg.norm(c - r) / np.linalg.norm(r)), rel=1e-13)


def test_float16_keys_are_numpys_rounding() -> None:
    # Every float16, every tie between two of them, and the neighbours of each tie in float32.
    half = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (half[:-1] + half[1:]) / 2
    line = np.concatenate([half, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9))])
    line = np.concatenate([line, [65519.9, 65520, 1e9, 1e-9, 2.0**-25, 1e-40]]).astype(np.float32)
    line = np.concatenate([line, -line])
    with np.errstate(over="ignore"):
        expected = line.astype(np.float16)
    largest = np.isinf(expected)
    assert values(line[~largest], expected[~largest])["ulp_max"] == 0
    assert values(line[largest], np.copysign(65504, line[largest]).astype(np.float16))["ulp_mean"] == 1


def test_rounding_to_a_short_format_happens_once() -> None:
    # 1 + 2^-8 is half way between 1 and 1 + 2^-7 in bfloat16; 2^-40 more makes the upper one nearest.
    reference = np.array([1 + 2.0**-8 + 2.0**-40])
    candidate = np.array([1 + 2.0**-7], ml_dtypes.bfloat16)
    assert values(reference, candidate)["ulp_max"] == 0


def test_a_reference_beyond_the_format_is_one_step_beyond_its_largest_value() -> None:
    for dtype, largest in ((np.float16, 65504), (ml_dtypes.float8_e4m3fn, 448)):
        for sign in (1, -1):
            reference = np.array([sign * 97_903_600], np.float32)
            assert values(reference, np.array([sign * largest]).astype(dtype))["ulp_max"] == 1


def test_kinds_of_nonfinite_values() -> None:
    nan, inf = math.nan, math.inf
    reference = np.array([nan, inf, -inf, inf, nan, 1, inf, 1, 2], np.float32)
    candidate = np.array([nan, inf, -inf, -inf, inf, nan, 1, inf, 3], np.float32)
    statistics = measure_pair(reference, candidate, channel_axis=None)
    counts = statistics.floats
    assert counts is not None
    assert (counts.agreeing, counts.conflicting, counts.candidate_only, counts.reference_only) == (3, 2, 2, 1)
    assert counts.first_disagreeing == (3,)
    assert (statistics.nonfinite_reference, statistics.nonfinite_candidate) == (3, 4)
    assert counts.max_abs == 1
    assert counts.max_index == (8,)
    assert statistics.rel_l2_finite == 0.5


def test_ties_of_the_largest_error_go_to_the_lowest_index() -> None:
    reference = np.zeros(5000, np.float32)
    candidate = reference.copy()
    candidate[[4321, 1500, 1400]] = [3, -3, 3]
    candidate[10] = np.nan  # the block before must not shift the index
    reference[10] = np.nan
    assert measure_all(measure_pair(reference, candidate, channel_axis=None))["max_abs"].worst_index == (1400,)
    candidate[[1400, 1500]] = 0
    candidate[[5, 17]] = -3
    assert measure_all(measure_pair(reference, candidate, channel_axis=None))["max_abs"].worst_index == (5,)


def test_histograms_of_values_and_errors() -> None:
    reference = np.array([0, -0.0, 1, 1.5, -3, 1e-40, np.inf], np.float32)
    candidate = np.array([0, 0, 1, 1.5, -3, 1e-40, np.inf], np.float32)
    candidate[3] = 2
    statistics = measure_pair(reference, candidate, channel_axis=None)
    floats = statistics.floats
    assert floats is not None
    # floor(log2(1e-40)) = -133; bins are +-(4096 + exponent), zero is 0.
    assert floats.reference_values.bins.tolist() == [-4097, 0, 4096 - 133, 4096]
    assert floats.reference_values.counts.tolist() == [1, 2, 1, 2]
    assert floats.candidate_values.bins.tolist() == [-4097, 0, 4096 - 133, 4096, 4097]
    assert floats.sketch.zeros == 5
    assert floats.sketch.octaves().bins.tolist() == [-1]
    assert (floats.reference_range, floats.candidate_range) == ((-3, 1.5), (-3, 2))


def test_complex_tensors_are_their_real_and_imaginary_parts() -> None:
    reference = np.array([[1 + 2j, 3 - 1j]], np.complex64)
    candidate = np.array([[1 + 2j, 3 + 1j]], np.complex64)
    statistics = measure_pair(reference, candidate, channel_axis=None)
    found = measure_all(statistics)
    assert statistics.count == 4
    assert found["rel_l2"].value == pytest.approx(math.sqrt(4 / 15), rel=ROUNDING)
    assert found["max_abs"].worst_index == (0, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_layouts_in_memory_do_not_matter(dtype: Any) -> None:
    generator = np.random.default_rng(7)
    reference = generator.standard_normal((40, 60)).astype(dtype)
    candidate = (reference + generator.standard_normal(reference.shape) / 100).astype(dtype)
    expected = values(reference, candidate, axis=0)
    foreign = candidate.astype(candidate.dtype.newbyteorder(">"))
    assert values(reference, foreign, axis=0) == expected
    assert values(np.asfortranarray(reference), candidate, axis=0) == expected
    raw = np.zeros(candidate.nbytes + 1, np.uint8)
    raw[1:] = candidate.reshape(-1).view(np.uint8)
    unaligned = raw[1:].view(dtype).reshape(candidate.shape)
    assert values(reference, unaligned, axis=0) == expected


@pytest.mark.parametrize("shape", [(0, 3), (), (2, 2), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_empty_scalar_and_zero_tensors(shape: tuple[int, ...], dtype: Any) -> None:
    tensor = np.zeros(shape, dtype)
    found = values(tensor, tensor, axis=0 if tensor.ndim else None)
    assert (found["rel_l2"], found["cosine"], found["norm_ratio"], found["snr_db"]) == (0, 1, 1, math.inf)


def test_a_reference_of_zeros_has_an_infinite_relative_error() -> None:
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    found = values(zeros, ones)
    assert (found["rel_l2"], found["max_rel_rms"], found["snr_db"]) == (math.inf, math.inf, -math.inf)
    assert (found["max_rel"], found["zero_references"]) == (math.inf, 3)
    assert (found["cosine"], found["norm_ratio"]) == (0, math.inf)
    assert values(ones, zeros)["rel_l2"] == 1


def test_what_cannot_be_compared_is_refused() -> None:
    ones = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match="shape"):
        measure_pair(ones, ones.reshape(3, 2), channel_axis=None)
    with pytest.raises(ValueError, match="type"):
        measure_pair(ones, ones.astype(np.int32), channel_axis=None)
    with pytest.raises(ValueError, match="axis 2"):
        measure_pair(ones, ones, channel_axis=2)
    with pytest.raises(ValueError, match="cannot be compared"):
        measure_pair(*[np.zeros(2, "datetime64[s]")] * 2, channel_axis=None)


def test_samples_of_different_shapes_merge_without_channels() -> None:
    def sample(width: int) -> Statistics:
        return measure_pair(np.ones((1, width), np.float32), np.full((1, width), 1.5, np.float32), channel_axis=1)

    merged = merge_statistics(sample(3), sample(5))
    assert (merged.count, merged.samples, merged.channels) == (8, 2, None)
    assert merged.rel_l2 == 0.5


def test_channel_axes_by_rank() -> None:
    assert [channel_axis(rank) for rank in range(6)] == [None, None, 1, 2, 1, 1]


def test_importing_the_package_compiles_nothing() -> None:
    code = "import sys, parityscope, parityscope.comparison as c; c.all_metrics(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
