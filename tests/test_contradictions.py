"""Evidence that disagrees about one claim is said, with real contradictions; what agrees is not called one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from command_line import exit_status, read_study
from parityscope.case.formats.npz import write_npz
from parityscope.report.as_text import render_first_screen
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,12] scores) {
  a = MatMul(x, w1)
  h = LeakyRelu<alpha = 0.1>(a)
  t = MatMul(h, w2)
  u = Tanh(t)
  scores = MatMul(u, w3)
}"""
DRAW = np.random.default_rng(31)
WEIGHTS = {
    name: (DRAW.normal(size=shape) / 4).astype(np.float32)
    for name, shape in (("w1", (20, 14)), ("w2", (14, 16)), ("w3", (16, 12)))
}
SAMPLES = [DRAW.normal(size=(6, 20)).astype(np.float32) for _ in range(3)]

Values = dict[str, np.ndarray]


def compute(x: np.ndarray, alpha: float = 0.1, scale: float = 1.0) -> Values:
    """All tensors of the network with this alpha, and this factor on its result."""
    a = x @ WEIGHTS["w1"]
    h = np.where(a < 0, np.float32(alpha) * a, a)
    t = h @ WEIGHTS["w2"]
    u = np.tanh(t)
    return {"a": a, "h": h, "t": t, "u": u, "scores": np.float32(scale) * (u @ WEIGHTS["w3"])}


def diagnose(folder: Path, recorded: Callable[[int, np.ndarray], Values], more: str = "") -> tuple[list[Any], str]:
    """The findings and the first screen of a recording."""
    model = write_network(folder / "model.onnx", NETWORK, WEIGHTS)
    for name in ("inputs", "recorded"):
        (folder / name).mkdir()
    for number, x in enumerate(SAMPLES):
        np.savez(folder / "inputs" / f"{number}.npz", x=x)
        np.savez(folder / "recorded" / f"{number}.npz", **recorded(number, x))
    words = ("diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "study"))
    assert exit_status(*words, "--candidate", f"saved?path={folder / 'recorded'}{more}") == 1
    study = read_study(folder / "study")
    return study["findings"], " ".join(render_first_screen(study, width=400).split())


def test_layers_of_another_build_than_the_outputs_are_told(tmp_path: Path) -> None:
    # What was recorded inside is right; the outputs are those of a build that takes LeakyRelu for Relu.
    found, screen = diagnose(tmp_path, lambda _, x: {**compute(x), "scores": compute(x, alpha=0.0)["scores"]})
    (outputs,) = [one for one in found if one["code"] == "FUS014"]
    assert (outputs["role"], outputs["site"]["tensor"]) == ("cause", "h")
    told = (
        "gives all of the outputs, while the recorded layers are right there: layers and outputs are of different runs"
    )
    assert told in outputs["contradicted"]
    assert "But evidence contradicts this: " in screen
    assert "cause proved" not in screen
    layers = [one for one in found if one["code"] == "FUS003" and one["role"] != "information"]
    assert all(told in one["contradicted"] for one in layers)


def test_samples_that_disagree_are_told_and_not_averaged(tmp_path: Path) -> None:
    found, screen = diagnose(tmp_path, lambda n, x: compute(x, alpha=0.0) if n < 2 else compute(x, scale=1.4))
    (of_layer,) = [
        one for one in found if one["role"] != "information" and (one["site"] or {}).get("tensor") == "scores"
    ]
    assert "samples disagree: on 2 of 3 that are wrong (number 0, 1)" in of_layer["contradicted"]
    assert "But evidence contradicts this: samples disagree" in screen


def test_evidence_that_agrees_is_no_contradiction(tmp_path: Path) -> None:
    found, screen = diagnose(tmp_path, lambda _, x: compute(x, alpha=0.0))
    assert [one["site"]["tensor"] for one in found if one["role"] == "cause"] == ["h"]
    assert not any(one["contradicted"] for one in found)
    assert "But " not in screen


def test_a_file_beside_a_recording_of_another_build_is_told(tmp_path: Path) -> None:
    other = write_network(tmp_path / "other.onnx", NETWORK.replace("0.1", "0.3"), WEIGHTS)
    noise = np.random.default_rng(5).normal(size=(6, 14)).astype(np.float32)

    def recorded(_: int, x: np.ndarray) -> Values:
        values = compute(x)
        h = values["h"] + noise
        u = np.tanh(h @ WEIGHTS["w2"])
        return {"a": values["a"], "h": h, "t": h @ WEIGHTS["w2"], "u": u, "scores": u @ WEIGHTS["w3"]}

    found, screen = diagnose(tmp_path, recorded, f"&model={other}")
    told = "the file that is named as the candidate's does not give what was recorded"
    assert any(told in one["contradicted"] for one in found)
    assert told in screen


def test_what_contradicts_another_claim_is_not_said_of_the_cause(tmp_path: Path) -> None:
    # BF16 is as far off as one output is, and is ruled out by the other, which an input that never arrived explains.
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] x, float[1,32] h) => (float[1,32] p, float[1,32] q) {
      a = MatMul(x, w)
      b = Mul(h, small)
      p = Add(a, b)
      q = Tanh(h)
    }"""
    w, small = (DRAW.normal(size=(16, 32)) / 4).astype(np.float32), np.float32(2e-3)
    write_network(tmp_path / "model.onnx", text, {"w": w, "small": small.reshape(1)})
    for number in range(3):
        x, h = (DRAW.normal(size=(1, size)).astype(np.float32) for size in (16, 32))
        write_npz(tmp_path / "inputs" / f"{number}.npz", {"x": x, "h": h})
        write_npz(tmp_path / "outputs" / f"{number}.npz", {"p": x @ w, "q": np.zeros_like(h)})
    words = ["diagnose", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "inputs")]
    words += ["--candidate", str(tmp_path / "outputs"), "--study", str(tmp_path / "study"), "--quiet"]
    assert exit_status(*words) == 1
    study = read_study(tmp_path / "study")
    assert any(one["contradicted"] and one["role"] != "cause" for one in study["findings"])
    screen = " ".join(render_first_screen(study, width=400).split())
    assert "Why Input h is zero throughout" in screen
    assert "But " not in screen
