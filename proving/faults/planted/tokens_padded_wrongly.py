"""A tokenizer with other settings: padding on the left, a mask of ones, special tokens left out, a token cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import fed
from proving.faults.records import Fault
from proving.faults.subjects import ENCODERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    way = int(bed.draw.integers(3))
    words = ("padding on the left", "a mask of ones", "the last token cut off")[way]
    return fed(bed, [_prepared(sample, way) for sample in bed.samples], words)


def _prepared(sample: Mapping[str, np.ndarray], way: int) -> dict[str, np.ndarray]:
    mask = sample["attention_mask"]
    length = int(mask.sum())
    if way == 0:
        return {name: np.roll(array, mask.shape[1] - length, axis=1) for name, array in sample.items()}
    if way == 1:
        return {**sample, "attention_mask": np.ones_like(mask)}
    found = {name: array.copy() for name, array in sample.items()}
    found["input_ids"][0, length - 2 : length] = [sample["input_ids"][0, length - 1], 0]
    found["attention_mask"][0, length - 1] = 0
    found["token_type_ids"][0, length - 1] = 0
    return found


FAULT = Fault(
    title="A tokenizer's settings", family="preprocessing", expected="PRE001", subjects=ENCODERS, plant=_plant
)
