"""Which coarser arithmetic is named, what stands before it, and what a layer that nothing explains may say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[8,64] x) => (float[8,32] y)'
PLAIN = HEAD + " { a = Gemm(x, v, p)  b = Tanh(a)  c = Gemm(b, w, q)  d = Sigmoid(c)  y = Gemm(d, u, r) }"
# Of fewer layers, where a long search of outputs alone is in vain.
SHORT = HEAD + " { a = Gemm(x, v, p)  b = Tanh(a)  y = Gemm(b, u, r) }"
STORED = PLAIN.replace("{ a", "{ v = Cast<to = 1>(v0)  w = Cast<to = 1>(w0)  u = Cast<to = 1>(u0)  a")
_RNG = np.random.default_rng(40)
X = _RNG.normal(size=(8, 64)).astype(np.float32)
WEIGHTS = {
    "v": (_RNG.normal(size=(64, 64)) / 8).astype(np.float32),
    "w": (_RNG.normal(size=(64, 64)) / 8).astype(np.float32),
    "u": (_RNG.normal(size=(64, 32)) / 8).astype(np.float32),
}
BIASES = {name: (_RNG.normal(size=size) / 8).astype(np.float32) for name, size in (("p", 64), ("q", 64), ("r", 32))}
CONSTANTS: Mapping[str, np.ndarray] = {**WEIGHTS, **BIASES}


def _diagnosed(
    folder: Path, candidate: str, constants: Mapping[str, np.ndarray] = CONSTANTS, network: str = PLAIN
) -> dict[str, Any]:
    """The study of a network against a candidate that is said to compute in FP32."""
    folder.mkdir(exist_ok=True)
    model = write_network(folder / "plain.onnx", network, constants)
    write_npz(folder / "x.npz", {"x": X})
    line = [str(model), "--inputs", str(folder / "x.npz"), "--candidate", candidate, "--declared", "f32"]
    assert exit_status("diagnose", *line, "--study", str(folder / "study"), "--quiet") == 1
    return read_study(folder / "study")


def _arithmetic(found: Mapping[str, Any]) -> dict[str, Any]:
    (told,) = [one for one in found["findings"] if one["code"] == "ACC001"]
    return dict(told)


@pytest.mark.parametrize("precision", ["tf32", "f16", "bf16"])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_nearest_format_is_named_and_not_the_finest_that_covers(
    precision: str, recorded: bool, tmp_path: Path
) -> None:
    candidate = f"sim:{precision}"
    if recorded:  # the outputs alone
        model = write_network(tmp_path / "recorded.onnx", SHORT, CONSTANTS)
        write_npz(tmp_path / "x.npz", {"x": X})
        line = [str(model), "--inputs", str(tmp_path / "x.npz"), "--target", candidate, "--quiet"]
        assert exit_status("run", *line, "-o", str(tmp_path / "engine")) == 0
        candidate = f"saved?path={tmp_path / 'engine'}"
    found = _diagnosed(tmp_path, candidate, network=SHORT)
    told = _arithmetic(found)
    assert told["details"]["grade"] == precision
    assert told["repairs"][0]["command"] == f"--declared {precision}"
    expected = found["outputs"][0]["expected"]
    assert expected["f16"] < 2 * expected["tf32"]  # so that TF32 covers what FP16 makes
    # The simulation errs as the candidate does: no edit of the graph is searched for that might do so too.
    reasons = [skip["reason"] for skip in found["skipped"] if "one change of the network's graph" in skip["what"]]
    assert reasons == (["another experiment explains all of the error already"] if recorded else [])
    assert not recorded or told["share"] > 0.99


def test_the_format_that_layers_show_is_named(tmp_path: Path) -> None:
    # Only its weights are stored in FP16: in size that is nearer to TF32, and in every layer it is FP16 and nothing else.
    stored = {f"{name}0": array.astype(np.float16) for name, array in WEIGHTS.items()}
    other = write_network(tmp_path / "stored.onnx", STORED, {**stored, **BIASES})
    # The file says so itself, and no size is told beside it.
    said = _diagnosed(tmp_path / "file", f"ort?model={other}")
    assert [one["code"] for one in said["findings"] if one["role"] == "cause"] == ["EXP005"]
    assert "float16" in said["findings"][0]["claim"]
    # A recording of every layer has no file.
    line = [str(other), "--inputs", str(tmp_path / "file" / "x.npz"), "--all-tensors", "--quiet"]
    assert exit_status("run", *line, "-o", str(tmp_path / "engine")) == 0
    found = _diagnosed(tmp_path, f"saved?path={tmp_path / 'engine'}")
    measured, expected = found["outputs"][0]["rel_l2"], found["outputs"][0]["expected"]
    assert abs(np.log(measured / expected["tf32"])) < abs(np.log(measured / expected["f16"]))
    assert _arithmetic(found)["details"]["grade"] == "f16"


def test_a_size_is_not_the_cause_beside_layers_that_explain_the_error(tmp_path: Path) -> None:
    # Biases so small that losing all three looks like rounding in size.
    small = {**CONSTANTS, **{name: array / 300 for name, array in BIASES.items()}}
    other = write_network(
        tmp_path / "lost.onnx", PLAIN, {**small, **{name: 0 * array for name, array in BIASES.items()}}
    )
    write_npz(tmp_path / "x.npz", {"x": X})
    line = [str(other), "--inputs", str(tmp_path / "x.npz"), "--all-tensors", "--quiet"]
    assert exit_status("run", *line, "-o", str(tmp_path / "engine")) == 0
    found = _diagnosed(tmp_path, f"saved?path={tmp_path / 'engine'}", small)
    roles = [(one["code"], one["role"]) for one in found["findings"] if one["code"] in {"ACC001", "FUS002"}]
    assert len({one["site"]["node"] for one in found["findings"] if one["code"] == "FUS002"}) == 3
    assert ("ACC001", "cause") not in roles
