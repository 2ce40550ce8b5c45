"""NaN and Inf are counted and told first, never as a share; a recording that holds them gets where they begin, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status, read_study
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.npz import write_npz

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
# What FP16 makes NaN or Inf of, the tensor at which it is told, and the code of the cause.
MODELS = {
    "an epsilon before a logarithm": (
        """g (float[1,8,6] x) => (float[1,8,6] y) {
            k = Constant<value_float = 0.0000000001>()
            p = Mul(x, x)  e = Add(p, k)  l = Log(e)  y = Neg(l) }""",
        "e",
        "RNG003",
    ),
    "a range that is left": (
        """g (float[1,8,6] x) => (float[1,8,6] y) {
            k = Constant<value_float = 300.0>()
            a = Mul(x, k)  b = Mul(a, a)  c = Sqrt(b)  y = Neg(c) }""",
        "b",
        "RNG002",
    ),
    "a mask of whole rows": (
        """g (float[1,8,6] x) => (float[1,8,6] y) {
            k = Constant<value_float = -1000000000.0>()  zero = Constant<value_float = 0.0>()
            one = Constant<value_float = 0.5>()
            first = Abs(x)  largest = ReduceMax<axes = [2]>(first)  silent = Less(largest, one)
            mask = Where(silent, k, zero)  s = Add(x, mask)  y = Softmax<axis = 2>(s) }""",
        "mask",
        "RNG001",
    ),
}


def arrays() -> list[np.ndarray]:
    """Rows of some size, and silence."""
    rng = np.random.default_rng(3)
    found = [rng.normal(size=(1, 8, 6)).astype(np.float32) for _ in range(2)]
    for array in found:
        array[0, :, :] += np.sign(array[0, :, :])
        array[0, 5:, :] = 0.0
    return found


def desk(folder: Path, text: str) -> Path:
    """The model and its inputs."""
    onnx.save(onnx.parser.parse_model(_HEAD + text), folder / "model.onnx")
    for number, array in enumerate(arrays()):
        write_npz(folder / "inputs" / f"{number}.npz", {"x": array})
    return folder


def recorded(folder: Path) -> str:
    """What an FP16 deployment gave, outputs alone."""
    model = load_model(folder / "model.onnx")
    with open_target(model, parse_target("sim:f16"), Capture()) as session:
        for number, array in enumerate(arrays()):
            found = session.run(Sample(index=number, name=str(number), arrays={"x": array}))
            write_npz(folder / "outputs" / f"{number}.npz", {"y": found["y"]})
    return f"saved?path={folder / 'outputs'}"


def diagnosed(folder: Path, candidate: str, capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """The study and what is written to a terminal."""
    study = folder / "study"
    command = ["diagnose", str(folder / "model.onnx"), "--inputs", str(folder / "inputs"), "--candidate", candidate]
    assert exit_status(*command, "--quiet", "--study", str(study)) == 1
    said = capfd.readouterr()
    return read_study(study), said.out


@pytest.mark.parametrize("alone", [False, True], ids=["with tensors", "from a recording alone"])
@pytest.mark.parametrize("what", MODELS)
def test_where_nan_begins_and_why(what: str, alone: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, tensor, code = MODELS[what]
    folder = desk(tmp_path, text)
    document, shown = diagnosed(folder, recorded(folder) if alone else "sim:f16", capfd)
    assert "is NaN or Inf in" in document["headline"]
    assert "inf %" not in shown
    assert "∞" not in shown
    first = document["findings"][0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == (code, "cause", tensor), first["claim"]
    assert first["share"] is None or 0 <= first["share"] <= 1
    assert ("in FP16 simulated" in first["claim"]) == alone
    if not alone:
        assert document["suspects"][0]["site"]["tensor"] == tensor


@pytest.mark.parametrize("declared", ["", ":f16"], ids=["declared in FP32", "declared in FP16"])
def test_zeros_everywhere_behind_a_range_that_is_left_are_no_input_of_zeros(
    declared: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = desk(
        tmp_path,
        """g (float[1,8,6] x) => (float[1,8,6] y) {
            k = Constant<value_float = 300.0>()
            a = Mul(x, k)  b = Mul(a, a)  n = ReduceSum<keepdims = 1>(b)  c = Div(a, n)  y = Mul(c, k) }""",
    )
    candidate = recorded(folder).replace("saved", f"saved{declared}")
    assert not any(np.load(path)["y"].any() for path in (folder / "outputs").iterdir())
    document, _ = diagnosed(folder, candidate, capfd)
    first, *others = document["findings"]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("RNG002", "cause", "b"), first["claim"]
    assert "whose outputs are the same number everywhere" in first["claim"]
    assert not any(one["role"] == "cause" for one in others)


@pytest.mark.search_of(0.1)
def test_nan_that_no_format_makes_is_blamed_on_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = desk(tmp_path, MODELS["an epsilon before a logarithm"][0])
    for number, array in enumerate(arrays()):
        broken = -np.log(array**2 + np.float32(1e-10))
        broken[0, 2] = np.nan
        write_npz(folder / "outputs" / f"{number}.npz", {"y": broken})
    document, _ = diagnosed(folder, f"saved?path={folder / 'outputs'}", capfd)
    assert "NaN or Inf in 12 of 96 elements of the candidate alone" in document["headline"]
    assert not any(one["code"].startswith("RNG") for one in document["findings"])
    assert any(skip["what"] == "where NaN and Inf begin" for skip in document["skipped"])
