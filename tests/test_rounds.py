"""The tables of a round of unseen faults, the edits that make them, and the interval of its score; nothing is downloaded."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from proving.rounds.editing import Edit, after, identity, operand, swap_blocks, weight
from proving.rounds.judging import wilson_interval
from proving.rounds.tables import ROUNDS, tables_of

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
small (float[2] x) => (float[2] y) <float[2] scale = {2.0, 3.0}> {
  a = Mul(x, scale)
  b = Relu(a)
  y = Mul(b, scale)
}
"""


def outputs_after(*edits: Edit) -> list[float]:
    model = onnx.parser.parse_model(TEXT)
    for edit in edits:
        edit(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [float(value) for value in session.run(None, {"x": np.array([1.0, -1.0], np.float32)})[0]]


@pytest.mark.parametrize("number", ROUNDS)
def test_every_model_has_ten_faults_and_four_right_deployments(number: int) -> None:
    tables = tables_of(number)
    names = [model.name for model in tables.models]
    assert list(tables.faults) == list(tables.rights) == list(tables.samples) == names
    for name in names:
        assert len(tables.faults[name]) == 10
        assert len(set(tables.rights[name])) == 4
        assert all(fault.says and fault.also and fault.place for fault in tables.faults[name])


# Round 3 has 36, 20, 12 and 12: half of its models 5, 2, 1 and 2, the others 4, 3, 2 and 1.
@pytest.mark.parametrize(("number", "kinds"), [(2, (40, 24, 8, 8)), (3, (36, 20, 12, 12))])
def test_a_round_has_the_agreed_kinds_of_faults(number: int, kinds: tuple[int, ...]) -> None:
    counted = Counter(fault.shown for faults in tables_of(number).faults.values() for fault in faults)
    assert tuple(counted[kind] for kind in ("graph", "outputs", "around", "two")) == kinds


def test_edits_change_what_they_name_and_nothing_else() -> None:
    assert outputs_after() == [4.0, 0.0]
    assert outputs_after(weight("scale", lambda value: value + 1)) == [9.0, 0.0]
    assert outputs_after(operand("y", 1, lambda value: value + 1)) == [6.0, 0.0]
    assert outputs_after(identity("b")) == [4.0, -9.0]
    assert outputs_after(after("a", "Neg")) == [0.0, 9.0]
    assert outputs_after(after("a", "Neg", reader="b")) == [0.0, 9.0]
    assert swap_blocks(np.arange(7), 0, 2).tolist() == [2, 3, 0, 1, 4, 5, 6]


def test_wilson_interval_of_eight_of_ten() -> None:
    # (0.8 + 1.9208/10 -+ 1.95996 sqrt(0.016 + 0.009604)) / (1 + 0.38415), with 1.95996 ** 2 = 3.84146
    assert wilson_interval(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert wilson_interval(0, 0) == (0.0, 1.0)
