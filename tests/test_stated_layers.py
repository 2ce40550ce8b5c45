"""A dump of an engine's layers as the file of a recorded candidate: what it says otherwise than the reference is proved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest

from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

_RNG = np.random.default_rng(95)
X = {"x": _RNG.normal(size=(1, 3, 9, 9)).astype(np.float32)}
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,9,9] x) => (float[1,4,9,9] y) {
  [first] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
  [act] r = Relu(c)
  [second] y = Conv<pads = [1, 1, 1, 1]>(r, w2, b2)
}"""
SHAPES = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (4, 8, 3, 3), "b2": (4,)}
WEIGHTS = {name: (0.4 * _RNG.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}
# A detailed layer as TensorRT 10 writes it (NVIDIA/TensorRT issue 4020 and TREX's examples).
LAYER = {
    "LayerType": "CaskConvolution",
    "ParameterType": "Convolution",
    "Kernel": [3, 3],
    "PaddingMode": "kEXPLICIT_ROUND_DOWN",
    "PrePadding": [1, 1],
    "PostPadding": [1, 1],
    "Stride": [1, 1],
    "Dilation": [1, 1],
    "Groups": 1,
    "HasReLU": 0,
    "Activation": "NONE",
}


def _dump(first: dict[str, Any], second: dict[str, Any], kind: str = "Float") -> dict[str, Any]:
    def layer(name: str, out: str, nodes: tuple[str, ...], count: int, told: dict[str, Any]) -> dict[str, Any]:
        metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in nodes)
        tensor = {"Name": out, "Dimensions": [1, 1, 9, 9], "Format/Datatype": kind}
        weights = {"Weights": {"Type": "Float", "Count": count}, "Metadata": metadata}
        return {"Name": name, "Inputs": [], "Outputs": [tensor], **LAYER, **weights, **told}

    fused = {"Activation": "RELU", "HasReLU": 1}
    return {
        "Layers": [
            layer("first + act", "r", ("first", "act"), 216, fused | first),
            layer("second", "y", ("second",), 288, second),
        ],
        "Bindings": ["x", "y"],
    }


def _told(tmp_path: Path, capfd: pytest.CaptureFixture[str], dump: Any, deployed: str, code: int = 1) -> dict[str, Any]:
    """The study of what a deployment of that network gave, beside the dump of its layers."""
    reference = write_network(tmp_path / "reference.onnx", NETWORK, WEIGHTS)
    engine = write_network(tmp_path / "engine.onnx", deployed, WEIGHTS)
    write_npz(tmp_path / "x.npz", X)
    (tmp_path / "recorded").mkdir()
    (y,) = ort.InferenceSession(str(engine)).run(None, X)
    write_npz(tmp_path / "recorded" / "0.npz", {"y": y})
    (tmp_path / "layers.json").write_text(json.dumps(dump), encoding="utf-8")
    command = ["diagnose", str(reference), "--inputs", str(tmp_path / "x.npz"), "--format", "json", "--quiet"]
    command += ["--candidate", f"saved?path={tmp_path}/recorded&model={tmp_path}/layers.json"]
    assert exit_status(*command, "--study", str(tmp_path / "study")) == code
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("first", "second", "deployed", "words"),
    [
        (
            {"Activation": "SIGMOID", "HasReLU": 0},
            {},
            NETWORK.replace("Relu", "Sigmoid"),
            "Sigmoid act in place of Relu act",
        ),
        (
            {},
            {"Dilation": [2, 2], "PrePadding": [2, 2], "PostPadding": [2, 2]},
            NETWORK.replace("y = Conv<pads = [1, 1, 1, 1]>", "y = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>"),
            "attribute dilations of Conv second",
        ),
        (
            {"PrePadding": [2, 0], "PostPadding": [0, 2]},
            {},
            NETWORK.replace("c = Conv<pads = [1, 1, 1, 1]>", "c = Conv<pads = [2, 0, 0, 2]>"),
            "attribute pads of Conv first",
        ),
        (
            {"Stride": [2, 2]},
            {"PrePadding": [3, 3], "PostPadding": [3, 3]},
            NETWORK.replace("c = Conv<pads = [1, 1, 1, 1]>", "c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>").replace(
                "y = Conv<pads = [1, 1, 1, 1]>", "y = Conv<pads = [3, 3, 3, 3]>"
            ),
            "attribute strides of Conv first",
        ),
    ],
)
def test_what_a_dump_says_otherwise_is_named_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], first: Any, second: Any, deployed: str, words: str
) -> None:
    found = _told(tmp_path, capfd, _dump(first, second), deployed)["findings"]
    assert (found[0]["code"], found[0]["role"]) == ("EXP005", "cause")
    assert any(words in one["claim"] for one in found if one["code"] == "EXP005")


def test_a_dump_that_says_the_same_blames_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document = _told(tmp_path, capfd, _dump({}, {}), NETWORK, code=0)
    assert not [one for one in document["findings"] if one["role"] == "cause"]
    assert not [one for one in document["skipped"] if "layers.json" in one["what"]]


def test_the_types_that_layers_write_are_the_candidates_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document = _told(tmp_path, capfd, _dump({}, {}, kind="Half"), NETWORK, code=0)
    assert document["policy"]["declared"] == "f16"


def test_what_no_graph_of_these_weights_has_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = _dump({"Kernel": [5, 5]}, {"Groups": 2, "Weights": {"Type": "Float", "Count": 144}})
    document = _told(tmp_path, capfd, dump, NETWORK.replace("Relu", "Tanh"))
    told = " ".join(one["reason"] for one in document["skipped"])
    for words in ("Conv first: a kernel of [5, 5]", "Conv second: 144 weights instead of 288", "Conv second: 2 groups"):
        assert words in told


def test_a_dump_that_says_nothing_is_one_skip(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document = _told(tmp_path, capfd, {"Layers": ["first + act", "second"]}, NETWORK.replace("Relu", "Tanh"))
    assert len([one for one in document["skipped"] if "layers.json" in one["what"]]) == 1
