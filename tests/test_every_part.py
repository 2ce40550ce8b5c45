"""Every sample, channel, field and row of an output is held against its own expectation: one number excuses none of them."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.comparison.parts import LargestParts, measure_largest
from parityscope.testing.networks import write_network
from parityscope.workers.packing import pack_record, unpack_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fault = Callable[[int, np.ndarray], np.ndarray]

# A detector's last step: boxes in pixels beside class scores, in one output.
_DETECTOR = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,400] x) => (float[1,14,400] y) {
  h = MatMul(w, x)
  boxes, logits = Split<axis = 1>(h, parts)
  pixels = Mul(boxes, large)
  scores = Sigmoid(logits)
  y = Concat<axis = 1>(pixels, scores)
}"""
_RNG = np.random.default_rng(3)
_DETECTING = {
    "w": _RNG.normal(size=(14, 16)).astype(np.float32),
    "parts": np.array([4, 10]),
    "large": np.array(3000.0, np.float32),
}
_CHAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,6,6] x) => (float[1,8,6,6] y) {
  a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 8>(x, k)
  b = Relu(a)
  y = Add(b, x)
}"""
_CHAINED = {"k": _RNG.normal(size=(8, 1, 3, 3)).astype(np.float32)}
_INTEGERS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1000] x) => (int64[1,1000] y) {
  a = Mul(x, k)
  y = Cast<to = 7>(a)
}"""
_COUNTED = {"k": np.array(64.0, np.float32)}


def _without_scores(_: int, array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[:, 4:] = 0
    return changed


def _one_bad(index: int, array: np.ndarray) -> np.ndarray:
    return array * 0 if index == 17 else array


def _all_but_the_large_one(index: int, array: np.ndarray) -> np.ndarray:
    return array if index == 0 else array * 0


def _halved(_: int, array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[:, ::2] /= 2
    return changed


def _one_row(_: int, array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[:, 3, 2] += 0.02
    return changed


def _one_integer(_: int, array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[0, 500] += 1
    return changed


def _as_it_is(_: int, array: np.ndarray) -> np.ndarray:
    return array


def _judged(
    tmp_path: Path, text: str, constants: dict[str, np.ndarray], samples: np.ndarray, fault: Fault, precision: str
) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `compare`: the candidate is a recording of an honest run in `precision`, with a fault."""
    tmp_path.mkdir(exist_ok=True)
    path = write_network(tmp_path / "m.onnx", text, constants)
    model = load_model(path)
    honest = parse_target("ort?optimization=disabled" if precision == "f32" else f"sim:{precision}")
    data, given = tmp_path / "x", tmp_path / "y"
    data.mkdir()
    given.mkdir()
    with open_target(model, honest, Capture()) as session:
        for index, array in enumerate(samples):
            write_npz(data / f"{index:05}.npz", {"x": array})
            found = session.run(Sample(index=index, name=f"{index}", arrays={"x": array}))["y"]
            write_npz(given / f"{index:05}.npz", {"y": fault(index, found)})
    line = [str(path), "--inputs", str(data), "--candidate", f"saved?path={given}", "--declared", precision]
    code = exit_status("compare", *line, "--format", "json", "--study", str(tmp_path / "s"), "--quiet")
    return code, read_study(tmp_path / "s")


def _detections(count: int) -> np.ndarray:
    return _RNG.normal(size=(count, 1, 16, 400)).astype(np.float32)


def _images(count: int) -> np.ndarray:
    return _RNG.normal(size=(count, 1, 8, 6, 6)).astype(np.float32)


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16", "tf32"])
def test_scores_of_zero_beside_boxes_in_pixels(tmp_path: Path, precision: str) -> None:
    code, found = _judged(tmp_path, _DETECTOR, _DETECTING, _detections(2) / 4, _without_scores, precision)
    assert code == 1
    assert precision == "f32" or "of axis 1" in found["outputs"][0]["reason"]


@pytest.mark.parametrize("fault", [_one_bad, _all_but_the_large_one])
def test_a_bad_sample_among_many(tmp_path: Path, fault: Fault) -> None:
    samples = _images(20)
    samples[0] *= 1e3
    samples[1:] /= 50
    code, found = _judged(tmp_path, _CHAIN, _CHAINED, samples, fault, "f16")
    assert code == 1
    assert found["outputs"][0]["reason"].startswith("sample ")


@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.parametrize("fault", [_halved, _one_row])
def test_channels_and_rows_have_an_error_of_their_own(tmp_path: Path, fault: Fault, precision: str) -> None:
    samples = _images(2) / 100
    samples[:, :, 7] *= 1e3  # one channel of what is added is large, and so is its rounding
    assert _judged(tmp_path, _CHAIN, _CHAINED, samples, fault, precision)[0] == 1


@pytest.mark.parametrize("size", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_a_small_field_is_not_excused_by_large_neighbours(tmp_path: Path, precision: str, size: float) -> None:
    text = _DETECTOR.replace("Sigmoid(logits)", "Mul(logits, small)")
    constants = {**_DETECTING, "large": np.array(1.0, np.float32), "small": np.array(size, np.float32)}
    if precision == "f16":
        constants["small"] = np.array(max(size, 1e-3), np.float32)  # what FP16 holds
    samples = _detections(2)
    assert _judged(tmp_path, text, constants, samples, _without_scores, precision)[0] == 1


def _clamped(_: int, array: np.ndarray) -> np.ndarray:
    return np.where(array < 1e-8, 0, array).astype(array.dtype)


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("function", ["Sigmoid(h)", "Softmax<axis = 1>(h)"])
def test_what_a_kernel_clamps_of_a_probability_is_no_loss(tmp_path: Path, function: str, precision: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,400] x) => (float[1,14,400] y) {{
      h = MatMul(w, x)
      z = {function}
      y = Identity(z)
    }}"""
    weights = _DETECTING["w"].copy()
    weights[3] = -np.abs(weights[3]) * 4.0  # a class that these inputs never are
    samples = np.abs(_detections(2)) * 2.0
    code, found = _judged(tmp_path, text, {"w": weights}, samples, _clamped, precision)
    assert code == 0, found["outputs"]


def test_one_wrong_integer_of_a_million(tmp_path: Path) -> None:
    samples = _RNG.normal(size=(1, 1, 1_000_000)).astype(np.float32)
    assert _judged(tmp_path, _INTEGERS.replace("1000", "1000000"), _COUNTED, samples, _one_integer, "f32")[0] == 1


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16", "tf32"])
@pytest.mark.parametrize(("text", "constants"), [(_DETECTOR, _DETECTING), (_CHAIN, _CHAINED)], ids=["boxes", "chain"])
def test_honest_deployments_are_within(
    tmp_path: Path, text: str, constants: dict[str, np.ndarray], precision: str
) -> None:
    samples = _detections(6) / 4 if text is _DETECTOR else _images(6) * np.logspace(-4, 3, 6).reshape(6, 1, 1, 1, 1)
    code, found = _judged(tmp_path, text, constants, samples.astype(np.float32), _as_it_is, precision)
    assert code == 0, found["outputs"]


_LOST_ON = [[11], [4, 7, 10, 13, 16, 19]]


def _without_a_weak_channel(bad: list[int]) -> Fault:
    def fault(index: int, array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed[:, 5] *= index not in bad
        return changed

    return fault


def _weak_images(count: int, size: float = 2e-4) -> np.ndarray:
    samples = _images(count)
    samples[:, :, 5] *= size
    return samples


@pytest.mark.parametrize("bad", _LOST_ON, ids=["one", "several"])
@pytest.mark.parametrize(("precision", "size"), [("f32", 1e-8), ("f16", 2e-5), ("bf16", 2e-4), ("tf32", 1e-6)])
def test_a_weak_channel_that_is_lost_on_some_samples(
    tmp_path: Path, bad: list[int], precision: str, size: float
) -> None:
    fault = _without_a_weak_channel(bad)
    code, found = _judged(tmp_path, _CHAIN, _CHAINED, _weak_images(20, size), fault, precision)
    assert code == 1
    told = re.match(r"sample (\d+), index 5 of axis 1: ", found["outputs"][0]["reason"])
    assert told, found["outputs"][0]["reason"]
    assert int(told[1]) in bad


@pytest.mark.parametrize("size", [1.0, 2e-4, 1e-6])
@pytest.mark.parametrize("precision", ["f32", "f16", "bf16", "tf32"])
def test_honest_weak_channels_are_within_on_many_samples(tmp_path: Path, precision: str, size: float) -> None:
    code, found = _judged(tmp_path, _CHAIN, _CHAINED, _weak_images(20, size), _as_it_is, precision)
    assert code == 0, found["outputs"]
    assert not any("by part" in one["what"] for one in found["skipped"])


def test_one_bad_of_many_small_samples(tmp_path: Path) -> None:
    fault = _without_a_weak_channel([317])
    code, found = _judged(tmp_path, _CHAIN, _CHAINED, _weak_images(400, 2e-5), fault, "f16")
    assert code == 1, found["outputs"]
    assert found["outputs"][0]["reason"].startswith("sample 317, index 5 of axis 1: ")


def test_a_bad_sample_of_an_output_without_parts_beside_two_that_err_more(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) {
      a = Add(x, large)
      y = Sub(a, large)
    }"""
    samples = _RNG.normal(size=(40, 1, 64)).astype(np.float32)
    samples[:2] *= 300
    samples[20:22] /= 120  # what FP16 leaves of these is little

    def fault(index: int, array: np.ndarray) -> np.ndarray:
        return array * (0.9 if index == 11 else 1)

    constants = {"large": np.array(8.0, np.float32)}
    assert _judged(tmp_path / "good", text, constants, samples, _as_it_is, "f16")[0] == 0
    code, found = _judged(tmp_path / "bad", text, constants, samples, fault, "f16")
    assert code == 1
    assert found["outputs"][0]["reason"].startswith("sample 11: ")


def test_largest_parts_do_not_depend_on_who_found_them() -> None:
    reference = [_RNG.normal(size=(8, rows, 6)) * _RNG.choice([1e-4, 1.0], (8, 1, 1)) for rows in (5,) * 6 + (7,) * 6]
    candidate = [one * (1 + 1e-3 * _RNG.normal(size=one.shape)) for one in reference]

    def found(*groups: range) -> LargestParts:
        each = [measure_largest(one, [reference[i] for i in one], [candidate[i] for i in one]) for one in groups]
        return functools.reduce(LargestParts.merge, (one for one in each if one is not None))

    whole = found(range(6), range(6, 12))
    others = found(range(1), range(1, 4), range(4, 6), range(6, 9), range(9, 12))
    packed = unpack_record(pack_record(others), [LargestParts])
    assert whole.found.keys() == others.found.keys()
    assert all(np.array_equal(whole.found[place], packed.found[place]) for place in whole.found)
