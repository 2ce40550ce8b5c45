"""What an output decides is read from its shape and values, and told only where they show it."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from parityscope.comparison.decisions import Decided, measure_decisions, merge_decisions

DRAW = np.random.default_rng(16)


def normal(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def softmax(values: np.ndarray, axis: int = -1) -> np.ndarray:
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def raw_boxes(classes: int, places: int) -> np.ndarray:
    """(1, 4 + classes, places): boxes in pixels, scores."""
    return np.concatenate([DRAW.uniform(0, 640, (1, 4, places)), DRAW.uniform(0, 0.2, (1, classes, places))], axis=1)


@pytest.mark.parametrize(
    ("array", "name", "kind"),
    [
        (softmax(normal(3, 10)), "y", "classes"),
        (np.log(softmax(normal(3, 10))), "y", "classes"),
        (softmax(normal(3, 10)).astype(np.float16), "y", "classes"),
        (softmax(normal(3, 10)).astype(ml_dtypes.bfloat16), "y", "classes"),
        (normal(2, 1000), "output", "classes"),
        (normal(2, 7), "start_logits", "classes"),
        (softmax(normal(1, 40, 97)), "y", "positions"),
        (normal(1, 40, 97), "logits", "positions"),
        (softmax(normal(1, 21, 8, 8), 1), "y", "segments"),
        ((normal(1, 1, 32, 32) > 0.5).astype(np.float32) * 0.97, "y", "mask"),
        (raw_boxes(80, 8400), "output0", "boxes"),
        (np.swapaxes(raw_boxes(81, 8400), 1, 2), "output0", "boxes"),
        (0.125 * np.sign(normal(3, 64)), "y", "embedding"),
        # What looks like one of these, and is none: nothing is said of it.
        (normal(1, 84, 8400), "y", None),  # a detector whose numbers are not in pixels
        (np.concatenate([raw_boxes(1, 8400), normal(1, 32, 8400)], axis=1), "y", None),  # with coefficients of masks
        (normal(3, 512), "y", None),  # an embedding of any length, or scores
        (normal(1, 128, 768), "y", None),  # hidden states
        (normal(2, 4), "boxes", None),
        (softmax(normal(1, 16, 16)), "y", None),  # attention
        (DRAW.uniform(0, 1, (1, 1, 32, 32)).astype(np.float32), "y", None),  # depth
        (np.full((3, 10), 0.1, np.float32), "y", None),  # no class is the best
        (DRAW.uniform(0, 1, (1, 521)).astype(np.float32), "y", None),  # tags, of which many hold
        (np.array([[0.5, 0.5, 0.5, 0.5]], np.float32), "y", None),  # a rotation
        (np.arange(12).reshape(3, 4), "y", None),
        (np.float32(1.0).reshape(()), "y", None),
        (np.full((1, 10), np.nan, np.float32), "logits", None),
    ],
)
def test_the_kind_is_read_from_shape_and_values(array: np.ndarray, name: str, kind: str | None) -> None:
    found = measure_decisions(array, array, name)
    assert (found.kind if found else None) == kind
    if found is not None:
        assert (found.changed, found.new, found.least) == (0, 0, 1.0)


def test_changed_decisions_are_counted() -> None:
    scores = softmax(normal(5, 10))
    turned = scores.copy()
    turned[1] = np.roll(turned[1], 1)
    turned[3, 0] = np.nan  # no best class any more
    assert measure_decisions(scores, turned) == Decided(kind="classes", count=5, changed=2)
    mask = np.zeros((1, 1, 4, 4), np.float32)
    mask[..., :2] = 1.0
    other = np.roll(mask, 1, axis=3)  # half of the pixels inside are others
    assert measure_decisions(mask, other) == Decided(kind="mask", count=12, changed=8)
    boxes = raw_boxes(3, 200)
    boxes[0, 5, :4] = 0.9
    fewer = boxes.copy()
    fewer[0, 5, 0], fewer[0, 4, 9] = 0.1, 0.8
    assert measure_decisions(boxes, fewer) == Decided(kind="boxes", count=4, changed=1, new=1)
    one = np.eye(32, dtype=np.float32)[:2] * np.array([[1.0], [-1.0]], np.float32)
    found = measure_decisions(one, one + np.eye(32, dtype=np.float32)[2:4])
    assert found is not None
    assert found.least == pytest.approx(2**-0.5)


def test_samples_of_two_kinds_have_none() -> None:
    one, other = Decided(kind="classes", count=2, changed=1), Decided(kind="classes", count=3, changed=0)
    assert merge_decisions(one, other) == Decided(kind="classes", count=5, changed=1)
    assert merge_decisions(one, Decided(kind="mask", count=3, changed=0)) is None
    assert merge_decisions(one, None) is None


def test_a_large_map_is_not_copied_to_see_what_it_is() -> None:
    maps = softmax(normal(1, 32, 256, 256), 1)
    for array in (maps, np.log(maps)):
        tracemalloc.start()
        found = measure_decisions(array, array)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == Decided(kind="segments", count=256 * 256, changed=0)
        assert most < 1.5 * array.nbytes  # what numpy turns to look along an axis
