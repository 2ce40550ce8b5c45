"""Elementwise operators of the standard that are put in another's place compute what their version of it says."""

from __future__ import annotations

import numpy as np
import pytest

from parityscope.hypotheses.from_pointwise import operators_with_numbers, starts_of

X = np.linspace(-3.0, 3.0, 41)


@pytest.mark.parametrize("version", [7, 8, 10, 11, 12, 17, 22])
def test_every_operator_computes_in_its_version(version: int) -> None:
    operators = {one.op_type: one for one in operators_with_numbers(version)}
    assert {"Clip", "Elu", "HardSigmoid", "LeakyRelu", "Selu"} <= operators.keys()
    for one in operators.values():
        for numbers in starts_of(one, X):
            assert one.of(numbers)(X).shape == X.shape
    # The bounds were attributes once, in the order of their names.
    clip = operators["Clip"]
    bounds = {"min": -1.0, "max": 0.5}
    np.testing.assert_array_equal(clip.of(tuple(bounds[name] for name, _ in clip.numbers))(X), np.clip(X, -1.0, 0.5))
