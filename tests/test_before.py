"""A layer that gives something of the samples before: what is told of it, on samples that nothing was fitted to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

import parityscope
from layer_faults import causes_of, record_fault, run_layers
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,9,5] x) => (float[n,9,4] y) {
  a = MatMul(x, w1)
  b = Add(a, b1)
  s = Sigmoid(b)
  y = MatMul(s, w2)
}"""
_GRU = """<ir_version: 8, opset_import: ["" : 17]> g (float[7,n,5] x{more}) => (float[n,3] y) {{
  s, h = GRU <hidden_size = 6> (x, w, r, b{state})
  q = Squeeze(h, axes)
  y = MatMul(q, w3)
}}"""


def _network() -> onnx.ModelProto:
    draw = np.random.default_rng(3)
    sizes = {"w1": (5, 7), "b1": (7,), "w2": (7, 4)}
    return parse_network(_TEXT, {name: draw.normal(size=size).astype(np.float32) for name, size in sizes.items()})


def _samples(count: int, shape: tuple[int, ...] = (3, 9, 5)) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(4)
    return [{"x": draw.normal(size=shape).astype(np.float32)} for _ in range(count)]


def _keep_part(arrays: list[np.ndarray], number: int) -> np.ndarray:
    array = arrays[number].copy()
    array[:, -2:] = arrays[max(number - 1, 0)][:, -2:]
    return array


def _moving_mean(arrays: list[np.ndarray], number: int) -> np.ndarray:
    mean = arrays[0]
    for array in arrays[1 : number + 1]:
        mean = 0.4 * mean + 0.6 * array
    return mean


_PLANTS: dict[str, tuple[Callable[[list[np.ndarray], int], np.ndarray], str]] = {
    "stale": (lambda arrays, number: arrays[max(number - 1, 0)], "the result of the sample before (a stale buffer)"),
    "stale in part": (
        _keep_part,
        "the result of the sample before (a stale buffer), only at the last 2 indices of axis 1",
    ),
    "kept": (lambda arrays, _: arrays[0], "the result of the first sample (it was kept)"),
    "not cleared": (
        lambda arrays, number: np.sum(arrays[: number + 1], axis=0),
        "the results of all samples so far added up (a buffer that is not cleared)",
    ),
    "mixed": (
        lambda arrays, number: 0.7 * arrays[number] + 0.3 * arrays[max(number - 1, 0)],
        "0.3 times the result of the sample before mixed in, the rest its own",
    ),
    "moving mean": (_moving_mean, "a moving mean over samples that keeps 0.4 of what it was"),
}


# Of six samples only three are looked at.
@pytest.mark.parametrize(("plant", "count"), [*((plant, 3) for plant in _PLANTS), ("mixed", 6)])
def test_what_is_kept_of_samples_before_is_told(plant: str, count: int, tmp_path: Path) -> None:
    of, told = _PLANTS[plant]

    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [of(arrays, number) for number in range(len(arrays))]

    first = causes_of(_network(), _samples(count), "s", fault, tmp_path)[0]
    assert first["site"]["tensor"] == "s"
    # Another change that gives the same is named beside it.
    assert re.search(rf": {re.escape(told)}( \(the same here: .*\))?: it explains 100 %", first["claim"]), first[
        "claim"
    ]


def test_a_mixture_of_one_sample_alone_is_not_claimed(tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [arrays[0], 0.5 * arrays[1] + 0.5 * arrays[0], -arrays[2]]

    assert not [one for one in causes_of(_network(), _samples(3), "s", fault, tmp_path) if "before" in one["claim"]]


@pytest.mark.parametrize("outputs_alone", [False, True])
def test_the_state_of_a_recurrent_layer_is_not_reset(outputs_alone: bool, tmp_path: Path) -> None:
    model, carrying = _carrying_gru()
    samples, state = _samples(4, (7, 2, 5)), np.zeros((1, 2, 6), np.float32)
    for number, sample in enumerate(samples):
        found = run_layers(carrying, {**sample, "h0": state})
        state = found["h"]
        write_npz(tmp_path / "recorded" / f"{number:06d}.npz", {"y": found["y"]} if outputs_alone else found)
    document = parityscope.diagnose(model, candidate=f"saved?path={tmp_path / 'recorded'}", inputs=samples).document
    causes = [one["claim"] for one in document["findings"] if one["role"] == "cause"]
    assert "the state of GRU kept from the sample before (not reset)" in causes[0]


def test_a_stale_layer_is_told_from_the_outputs_alone(tmp_path: Path) -> None:
    # With what is right beside it, so that the output is not the sample before's.
    text = _TEXT.replace("float[n,9,4] y", "float[n,9,5] y").replace(
        "y = MatMul(s, w2)", "c = MatMul(s, w2) y = Add(c, x)"
    )
    draw = np.random.default_rng(3)
    sizes = {"w1": (5, 7), "b1": (7,), "w2": (7, 5)}
    model = parse_network(text, {name: draw.normal(size=size).astype(np.float32) for name, size in sizes.items()})
    samples = _samples(4)
    record_fault(model, samples, "s", lambda arrays: [arrays[max(number - 1, 0)] for number in range(4)], tmp_path)
    files = sorted((tmp_path / "recorded").iterdir())
    answers = [{"y": np.load(one)["y"]} for one in files]
    found = parityscope.diagnose(model, candidate=answers, inputs=samples).document
    causes = [one["claim"] for one in found["findings"] if one["role"] == "cause"]
    assert "the result of the sample before (a stale buffer): 100 %" in causes[0], causes


def _carrying_gru() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A GRU as the model has it, and one whose first state is an input."""
    draw = np.random.default_rng(8)
    sizes = {"w": (1, 18, 5), "r": (1, 18, 6), "b": (1, 36), "w3": (6, 3)}
    tables = {name: draw.normal(size=size).astype(np.float32) / 2 for name, size in sizes.items()}
    tables |= {"axes": np.array([0])}
    return (
        parse_network(_GRU.format(more="", state=""), tables),
        parse_network(_GRU.format(more=", float[1,n,6] h0", state=", , h0"), tables),
    )


@pytest.mark.parametrize("outputs_alone", [False, True])
def test_a_state_that_one_row_of_a_batch_leaves_to_the_next_is_told(outputs_alone: bool, tmp_path: Path) -> None:
    model, carrying = _carrying_gru()
    samples = _samples(3, (7, 6, 5))
    for number, sample in enumerate(samples):
        state, rows = np.zeros((1, 1, 6), np.float32), []
        for row in range(6):
            rows.append(run_layers(carrying, {"x": sample["x"][:, row : row + 1], "h0": state}))
            state = rows[-1]["h"]
        found = {name: np.concatenate([one[name] for one in rows], axis) for name, axis in _BATCH.items()}
        write_npz(tmp_path / "recorded" / f"{number:06d}.npz", {"y": found["y"]} if outputs_alone else found)
    document = parityscope.diagnose(model, candidate=f"saved?path={tmp_path / 'recorded'}", inputs=samples).document
    causes = [one["claim"] for one in document["findings"] if one["role"] == "cause"]
    assert "the state of GRU kept from the row of the batch before (not reset)" in causes[0]


_BATCH = {"s": 2, "h": 1, "q": 0, "y": 0}


_SCAN = """<ir_version: 8, opset_import: ["" : 17]> g (float[9,5] x) => (float[9,4] y) {
  last, all = Scan <num_scan_inputs = 1, body = step (float[5] before, float[5] one) => (float[5] after, float[5] kept) {
    decay = Constant <value_float = 0.9>()
    half = Mul(before, decay)
    after = Add(half, one)
    kept = Identity(after)
  }> (start, x)
  y = MatMul(all, w)
}"""


def test_the_state_of_a_scan_that_is_not_reset_is_told_from_the_outputs(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    tables = {"w": draw.normal(size=(5, 4)).astype(np.float32)}
    model = parse_network(_SCAN, tables | {"start": np.zeros(5, np.float32)})
    carrying = parse_network(_SCAN.replace("float[9,5] x)", "float[9,5] x, float[5] start)"), tables)
    samples, state = _samples(4, (9, 5)), np.zeros(5, np.float32)
    for number, sample in enumerate(samples):
        found = run_layers(carrying, {**sample, "start": state})
        state = found["last"]
        write_npz(tmp_path / "recorded" / f"{number:06d}.npz", {"y": found["y"]})
    document = parityscope.diagnose(model, candidate=f"saved?path={tmp_path / 'recorded'}", inputs=samples).document
    causes = [one["claim"] for one in document["findings"] if one["role"] == "cause"]
    assert "the state of Scan kept from the sample before (not reset)" in causes[0]
