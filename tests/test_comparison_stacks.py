"""Many small tensors measured in one pass tell what each by itself tells, merged."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.comparison import channel_axis, likely_scores, measure_all, measure_pair, merge_statistics, to_plain
from parityscope.comparison.distance import error_distance
from parityscope.comparison.stacks import measure_stack
from strategies import FLOAT_DTYPES, arrays, shapes

law = settings(deadline=None, max_examples=30)


def one_by_one(reference: list[np.ndarray], candidate: list[np.ndarray]) -> tuple[object, list[float]]:
    found = [
        measure_pair(r, c, channel_axis=channel_axis(r.ndim), threads=2, as_scores=likely_scores(r.dtype, r.shape))
        for r, c in zip(reference, candidate, strict=True)
    ]
    return reduce(merge_statistics, found), [error_distance(each) for each in found]


def check_same(reference: list[np.ndarray], candidate: list[np.ndarray]) -> None:
    merged, errors = one_by_one(reference, candidate)
    stacked, distances = measure_stack(reference, candidate)
    np.testing.assert_allclose(distances, errors, rtol=1e-12)
    one, two = to_plain(merged), to_plain(stacked)
    assert one.keys() == two.keys()
    for name in one.keys() - {"moments", "floats", "channels", "scores"}:
        assert one[name] == two[name], name
    for name in (
        "finite",
        "reference_only",
        "candidate_only",
        "conflicting",
        "agreeing",
        "first_disagreeing",
        "max_abs",
    ):
        assert (one.get("floats") or {}).get(name) == (two.get("floats") or {}).get(name), name
    left, right = measure_all(merged), measure_all(stacked)
    assert left.keys() == right.keys()
    for name in left.keys() - {"mean_error"}:  # may cancel
        assert right[name].value == pytest.approx(left[name].value, rel=1e-9, nan_ok=True), name
        assert right[name].count == left[name].count
    for name in ("max_abs", "kl_max"):
        if name in left:
            assert right[name].worst_index == left[name].worst_index, name


@law
@given(st.data())
def test_floats_of_any_format_shape_and_value(data: st.DataObject) -> None:
    dtype, shape = data.draw(st.sampled_from(FLOAT_DTYPES)), data.draw(shapes)
    count = data.draw(st.integers(1, 5))
    reference = [data.draw(arrays(dtype, shape)) for _ in range(count)]
    candidate = [data.draw(st.one_of(st.just(one), arrays(dtype, shape))) for one in reference]
    check_same(reference, candidate)


@law
@given(st.data())
def test_numbers_of_usual_size(data: st.DataObject) -> None:
    dtype, shape = data.draw(st.sampled_from(FLOAT_DTYPES[:3])), data.draw(shapes)
    reference = [data.draw(arrays(dtype, shape, finite=True, magnitude=1e4)) for _ in range(3)]
    check_same(reference, [one + np.asarray(0.25, dtype) * one for one in reference])


@law
@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=2, max_size=5), st.data())
def test_integers_and_booleans(rows: list[list[int]], data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.int64, np.int32, np.uint8, np.bool_]))
    reference = [np.array(row).astype(dtype).reshape(2, 2) for row in rows]
    candidate = [np.roll(one, 1) for one in reference]
    check_same(reference, candidate)


def test_each_sample_says_for_itself_whether_it_holds_probabilities() -> None:
    generator = np.random.default_rng(3)
    logits = generator.standard_normal((4, 1, 8)).astype(np.float32)
    likely = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    for mixed in ([likely[0], logits[1], likely[2]], list(likely), list(logits)):
        check_same(mixed, [one * np.float32(1.01) for one in mixed])


def test_texts_are_compared_as_they_are() -> None:
    check_same([np.array(["a", "b"], object)] * 2, [np.array(["a", "c"], object), np.array(["a", "b"], object)])


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        measure_stack([np.zeros(3, np.float32)] * 2, [np.zeros(3, np.int32)] * 2)
    with pytest.raises(ValueError, match="cannot be compared"):
        measure_stack([np.zeros(3, np.bool_)] * 2, [np.zeros(3, np.int32)] * 2)
