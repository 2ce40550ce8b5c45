"""What was done to an output behind the model: a step more or less, decimals, another order of an axis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.checks import Example
from parityscope.checks.misreading.permuted import find_permutation
from parityscope.checks.misreading.processing import explain_processing
from parityscope.testing.check_contract import findings_of
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT = 1e-6


def softmax(array: np.ndarray) -> np.ndarray:
    powers = np.exp(array - array.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def outputs(seed: int, samples: int = 3) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(samples, 2, 10)).astype(np.float32))


@given(seed=st.integers(0, 999), factor=st.floats(0.01, 100).filter(lambda one: abs(one - 1) > 0.01))
def test_one_factor_is_found_and_two_are_not(seed: int, factor: float) -> None:
    mine = outputs(seed)
    found = explain_processing([(one, (one * factor).astype(np.float32)) for one in mine], LIMIT)
    assert found is not None
    assert float(found.words.split()[1]) == pytest.approx(factor, rel=1e-5)
    # One sample with another factor has no factor in common with the others.
    other = [(one * (factor if place else 2 * factor)).astype(np.float32) for place, one in enumerate(mine)]
    assert explain_processing(list(zip(mine, other, strict=True)), LIMIT) is None


def test_decimals_are_seen_in_the_values_and_not_where_the_model_has_them() -> None:
    mine = [softmax(one) for one in outputs(1)]
    found = explain_processing([(one, np.round(one, 3)) for one in mine], LIMIT)
    assert found is not None
    assert found.words == "was rounded to 3 decimals"
    cut = explain_processing([(one * 100, np.trunc(one * 100)) for one in mine], LIMIT)
    assert cut is not None
    assert cut.words == "was cut to whole numbers"
    # Values of the grid that are further off than rounding makes them.
    assert explain_processing([(one, np.round(one, 2) + np.float32(0.02)) for one in mine], LIMIT) is None
    # A model that rounds itself, and a deployment that is wrong.
    assert explain_processing([(np.round(one, 1), np.round(one[::-1], 1)) for one in mine], LIMIT) is None


def test_what_is_saturated_tells_no_step() -> None:
    # Both are nought and one after a sigmoid, whatever the logits are.
    mine = [np.where(one > 0, 1.0, 0.0).astype(np.float32) for one in outputs(2)]
    logits = [np.where(one > 0, 40.0, -40.0).astype(np.float32) * np.arange(1, 11, dtype=np.float32) for one in mine]
    assert explain_processing(list(zip(mine, logits, strict=True)), LIMIT) is None


def test_integers_that_count_from_one() -> None:
    ids = [np.random.default_rng(seed).integers(0, 80, size=12) for seed in range(3)]
    found = explain_processing([(one, one + 1) for one in ids], 1e-6)
    assert found is not None
    assert found.words == "is the model's plus 1 throughout"
    assert explain_processing([(one, one + 1 + (one > 40)) for one in ids], 1e-6) is None
    # Three answers of two classes may be one more by chance.
    few = [np.array([one]) for one in (0, 1, 0)]
    assert explain_processing([(one, one + 1) for one in few], 1e-6) is None


@given(seed=st.integers(0, 999), order=st.permutations(range(10)))
def test_one_order_of_an_axis_on_all_samples(seed: int, order: list[int]) -> None:
    mine = outputs(seed)
    found = find_permutation([(one, one[:, order]) for one in mine], LIMIT)
    if order == sorted(order):
        assert found is None
        return
    assert found is not None
    assert found[0].startswith("has its axis 1 in another order, the same on every sample: ")
    # One sample alone may have rows of its own order, and so may each of several.
    assert find_permutation([(mine[0], mine[0][:, order])], LIMIT) is None
    assert find_permutation([(mine[0], mine[0][:, order]), (mine[1], mine[1])], LIMIT) is None


LINEAR = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,12] y) {
  m = MatMul(x, w)
  y = LAST(m)
}"""


@pytest.mark.parametrize(("last", "role"), [("Relu", "contributing"), ("Softplus", "cause")])
def test_a_factor_that_the_inputs_may_have_had_is_a_possibility(last: str, role: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    example = Example(
        model=LINEAR.replace("LAST", last),
        inputs={"x": draw.normal(size=(2, 16)).astype(np.float32)},
        constants={"w": draw.normal(size=(16, 12)).astype(np.float32)},
        outputs_fault=lambda samples: [{"y": each["y"] * np.float32(1.7)} for each in samples],
    )
    found = [one for one in findings_of(example, tmp_path / "case") if one["code"] == "BND005"]
    assert [one["role"] for one in found] == [role]


THREE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,n,8] x) => (float[1,n,4] p, float[1,n,5] q, float[1,n,6] r) {
  h = Tanh(x)
  p = MatMul(h, wp)
  q = MatMul(h, wq)
  r = MatMul(h, wr)
}"""
THREE_WEIGHTS = {
    name: np.random.default_rng(seed).normal(size=(8, size)).astype(np.float32)
    for seed, (name, size) in enumerate((("wp", 4), ("wq", 5), ("wr", 6)))
}


def diagnosed(
    folder: Path, change: Callable[[int, dict[str, np.ndarray]], dict[str, np.ndarray]]
) -> list[dict[str, Any]]:
    """The findings of a recording of what is made of the outputs of THREE, by the sample's number."""
    model = write_network(folder / "model.onnx", THREE, THREE_WEIGHTS)
    run = open_session(load_model(model).graph())
    for number, rows in enumerate((21, 31, 17)):
        x = np.random.default_rng(number).normal(size=(1, rows, 8)).astype(np.float32)
        write_npz(folder / "inputs" / f"{number}.npz", {"x": x})
        write_npz(folder / "recorded" / f"{number}.npz", change(number, run({"x": x})))
    line = ["diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "study")]
    assert exit_status(*line, "--candidate", f"saved?path={folder / 'recorded'}") == 1
    return list(json.loads((folder / "study" / "study.json").read_text(encoding="utf-8"))["findings"])


def test_one_order_of_several_outputs_is_one_claim_that_names_all(tmp_path: Path) -> None:
    places = (3, 6, 2)
    found = diagnosed(
        tmp_path, lambda number, right: {name: np.roll(one, places[number], 1) for name, one in right.items()}
    )
    told = [one for one in found if one["code"] == "BND004"]
    assert [one["claim"].partition(";")[0] for one in told] == [
        "Outputs p, q, r: each was rolled along axis 1, by 3, 6, 2 on the samples in turn"
    ]
    assert told[0]["share"] == pytest.approx(1.0)


def test_an_order_of_one_output_says_little_where_others_are_wrong(tmp_path: Path) -> None:
    def change(number: int, right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(number)
        noise = {name: draw.normal(size=one.shape).astype(np.float32) for name, one in right.items()}
        return {name: one + 2 * noise[name] for name, one in right.items()} | {
            "p": draw.permutation(right["p"].reshape(-1)).reshape(right["p"].shape)
        }

    found = diagnosed(tmp_path, change)
    assert found[0]["code"] != "BND004" or found[0]["role"] == "information"
    told = next(one for one in found if one["code"] == "BND004")
    assert told["claim"].startswith("Output p holds the right values in another order")
    assert (told["role"], told["share"] < 0.5) == ("information", True)
    assert "FUS014" in {one["code"] for one in found}


def test_outputs_that_were_each_read_otherwise_are_causes_together(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        lambda _, right: {
            "p": right["p"][..., ::-1],
            "q": right["q"] * np.float32(100),
            "r": np.roll(right["r"], 1, 2),
        },
    )
    causes = [one for one in found if one["role"] == "cause"]
    assert {one["code"] for one in causes} == {"BND004", "BND005"}
    told = " ".join(one["claim"] for one in causes)
    assert all(f"Output {name} " in told for name in "pqr")
    assert "Output r is rolled by 1 along axis 2" in told
