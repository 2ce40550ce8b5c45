"""Integers, booleans and strings are compared as they are."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.comparison import measure_all, measure_pair, merge_statistics

INTEGERS = (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64)


def test_int64_beyond_2_to_53_is_not_equal_to_its_neighbour() -> None:
    reference = np.array([5, 2**53, 7], np.int64)
    candidate = np.array([5, 2**53 + 1, 7], np.int64)
    found = measure_all(measure_pair(reference, candidate, channel_axis=None))
    assert (found["mismatches"].value, found["max_abs"].value) == (1, 1)
    assert found["mismatches"].worst_index == (1,)
    assert found["mismatch_share"].value == 1 / 3
    assert "rel_l2" not in found


def test_the_largest_difference_of_int64_does_not_wrap() -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    reference = np.array([0, low], np.int64)
    candidate = np.array([3, high], np.int64)
    found = measure_all(measure_pair(reference, candidate, channel_axis=None))["max_abs"]
    assert (found.value, found.worst_index) == (2**64 - 1, (1,))


@settings(deadline=None, max_examples=80)
@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
def test_integers_of_any_two_widths_against_python(data: st.DataObject, one: type, other: type) -> None:
    size = data.draw(st.integers(0, 8))

    def row(dtype: type) -> list[int]:
        info = np.iinfo(dtype)
        element = st.one_of(st.integers(int(info.min), int(info.max)), st.integers(0, 3))
        return data.draw(st.lists(element, min_size=size, max_size=size))

    r, c = row(one), row(other)
    found = measure_all(measure_pair(np.array(r, one), np.array(c, other), channel_axis=None))
    differences = [abs(b - a) for a, b in zip(r, c, strict=True)]
    assert found["mismatches"].value == sum(difference > 0 for difference in differences)
    assert found["max_abs"].value == max(differences, default=0)
    if any(differences):
        assert found["mismatches"].worst_index == (next(i for i, d in enumerate(differences) if d),)
        assert found["max_abs"].worst_index == (differences.index(max(differences)),)


def test_booleans_small_integers_and_empty_ones() -> None:
    flags = np.array([[True, False], [True, True]])
    found = measure_all(measure_pair(flags, ~flags, channel_axis=None))
    assert found["mismatch_share"].value == 1
    nibbles = np.array([1, -3], ml_dtypes.int4)
    assert measure_all(measure_pair(nibbles, nibbles[::-1], channel_axis=None))["max_abs"].value == 4
    empty = np.zeros((0, 2), np.int64)
    assert measure_all(measure_pair(empty, empty, channel_axis=0))["mismatch_share"].value == 0


def test_booleans_are_no_integers() -> None:
    with pytest.raises(ValueError, match="bool"):
        measure_pair(np.zeros(2, np.int8), np.zeros(2, bool), channel_axis=None)


def test_strings_are_equal_or_not() -> None:
    reference = np.array([["cat", "dog"], ["é", ""]], object)
    candidate = np.array([[b"cat", b"dot"], ["é".encode(), b""]], object)
    statistics = measure_pair(reference, candidate, channel_axis=None)
    found = measure_all(statistics)
    assert found.keys() == {"mismatches", "mismatch_share"}
    assert found["mismatches"].worst_index == (0, 1)
    assert math.isnan(statistics.rel_l2)
    assert statistics.mismatch_share == 0.25


def test_merged_samples_name_the_first_mismatch_and_the_largest_difference() -> None:
    zeros = np.zeros(3, np.int32)
    equal = measure_pair(zeros, zeros, channel_axis=None)
    small = measure_pair(zeros, np.array([0, 0, 1], np.int32), channel_axis=None)
    large = measure_pair(zeros, np.array([0, -9, 0], np.int32), channel_axis=None)
    found = measure_all(merge_statistics(merge_statistics(equal, small), large))
    assert (found["mismatches"].value, found["mismatches"].worst_index, found["mismatches"].count) == (2, (2,), 9)
    assert (found["max_abs"].value, found["max_abs"].worst_index) == (9, (1,))
