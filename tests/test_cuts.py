"""Exact attribution over cuts: shares sum to one, find planted errors, and cost few runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from one_sample import one_sample
from parityscope.case import Model, load_model
from parityscope.case.crossing import all_crossings
from parityscope.localization import Sides, attribute_error
from parityscope.records import Target
from parityscope.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

CHAIN = "\n".join(f"t{index + 1} = Mul(t{index}, two)" for index in range(32))
MODEL = f"""
<ir_version: 8, opset_import: ["" : 17]>
chain (float[4] x) => (float[4] y) <float two = {{1.0}}>
{{
  t0 = Identity(x)
  {CHAIN}
  y = Identity(t32)
}}
"""
BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
branches (float[4] x) => (float[4] y, float[4] z)
{
  a = Relu(x)
  b = Neg(a)
  c = Mul(a, a)
  y = Add(b, c)
  z = Exp(b)
}
"""


def model_of(folder: Path, text: str) -> Model:
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    return load_model(folder / "m.onnx")


def trace(tensors: dict[str, np.ndarray]) -> Trace:
    return Trace(
        target=Target(backend="ort"),
        environment={},
        samples=(0,),
        names=tuple(tensors),
        outputs=(),
        disturbs="none",
        tensors={(0, name): array for name, array in tensors.items()},
    )


def both(model: Model, x: np.ndarray, reference: dict[str, np.ndarray], candidate: dict[str, np.ndarray]) -> Sides:
    return Sides(
        model=model,
        inputs=one_sample({"x": x}),
        reference=trace(reference),
        candidate=trace(candidate),
        pairing={name: name for name in candidate},
    )


def test_two_planted_errors_get_their_shares(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    first, second = np.array([0.5, 0, 0, 0], np.float32), np.array([0, 0, 1.0, 0], np.float32)
    reference = {f"t{index}": x for index in range(33)} | {"y": x}
    candidate = {f"t{index}": x + (first if index >= 10 else 0) + (second if index >= 20 else 0) for index in range(33)}
    candidate["y"] = candidate["t32"]
    found = attribute_error(both(model_of(tmp_path, MODEL), x, reference, candidate), 0)
    # e = (0.5, 0, 1, 0): <first, e> / <e, e> = 0.25 / 1.25 and <second, e> / <e, e> = 1 / 1.25, all exact in binary
    # but for the division.
    culprits = {(one.first, one.last): one.share for one in found if one.share}
    assert culprits == {(10, 10): pytest.approx(0.2), (20, 20): pytest.approx(0.8)}
    assert sum(one.share for one in found) == pytest.approx(1.0, abs=1e-12)
    assert all(one.last + 1 == other.first for one, other in itertools.pairwise(found))
    assert (found[0].first, found[-1].last) == (0, -1)
    # Two culprits among 33 cuts: at most two paths of log2(33) halvings.
    assert len(found) <= 2 * 6 + 1


def test_errors_that_cancel_are_both_seen(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    wave, rest = np.array([1.0, 0, 0, 0], np.float32), np.array([0, 0.125, 0, 0], np.float32)
    reference = {f"t{index}": x for index in range(33)} | {"y": x}
    candidate = {
        f"t{index}": x + (wave if 10 <= index < 20 else 0) + (rest if index >= 30 else 0) for index in range(33)
    }
    candidate["y"] = candidate["t32"]
    found = attribute_error(both(model_of(tmp_path, MODEL), x, reference, candidate), 0)
    # The wave is eight times the output error, comes in at 10 and goes at 20, and phi is blind to it: <wave, e> = 0.
    moved = {(one.first, one.last): one.moved for one in found if one.moved > 0}
    assert moved == {
        (10, 10): pytest.approx(8.0),
        (20, 20): pytest.approx(8.0),
        (30, 30): pytest.approx(1.0),
    }


def test_a_nan_is_traced_to_where_it_comes_from(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    reference = {"a": x, "b": -x, "c": x * x, "y": x * x - x, "z": np.exp(-x)}
    c = reference["c"].copy()
    c[2] = np.nan
    found = attribute_error(both(model_of(tmp_path, BRANCHES), x, reference, reference | {"c": c, "y": c - x}), 0)
    assert [(one.first, one.last, one.share) for one in found if one.share] == [(2, 2, 1.0)]


def test_unseen_tensors_leave_no_cut_across_them(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    reference = {"a": x, "b": -x, "y": x * x - x, "z": np.exp(-x)}
    candidate = reference | {"y": reference["y"] + 1}
    found = attribute_error(both(model_of(tmp_path, BRANCHES), x, reference, candidate), 0)
    # c cannot be seen, so that there is no cut between Mul (2) and Add (3); behind Add only b crosses.
    assert [(one.first, one.last, one.share) for one in found if one.share] == [(2, 3, 1.0)]


def test_equal_outputs_have_no_shares(tmp_path: Path) -> None:
    x = np.ones(4, np.float32)
    tensors = {"a": x, "b": -x, "c": x, "y": 0 * x, "z": np.exp(-x)}
    assert attribute_error(both(model_of(tmp_path, BRANCHES), x, tensors, tensors), 0) == ()


def test_crossings_are_what_is_read_behind(tmp_path: Path) -> None:
    found = all_crossings(model_of(tmp_path, BRANCHES).graph())
    assert [(cut.index, [value.name for value in cut.values], sorted(cut.done)) for cut in found] == [
        (1, ["a"], []),
        (2, ["a", "b"], []),
        (3, ["b", "c"], []),
        (4, ["b"], ["y"]),
    ]
