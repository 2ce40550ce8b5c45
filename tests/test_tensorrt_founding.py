"""Two public cases from a folder that the recorder wrote, to the cause and to a repair that the same engine takes.

The engines are made by the stand-in (`proving/tensorrt_replay`), not recorded: what is shown is that the whole way holds, from
the box to trtexec's line and back, and nothing of TensorRT itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from command_line import exit_status
from parityscope.arithmetic.islands import find_islands, model_ignoring_islands
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network
from proving.tensorrt_replay.__main__ import load_recorder
from proving.tensorrt_replay.host import Cudart
from proving.tensorrt_replay.module import open_replay
from proving.tensorrt_replay.scenes import Region, make_scene
from proving.tensorrt_replay.trtexec import refusals, trtexec_lines
from test_founding_clip import PICTURE, photograph, sharpening
from test_founding_island import MIXED, constants

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "10.13.0.35"


def recorded(scene: Path, model: Path, inputs: Path, name: str, *words: str) -> Path:
    line = ["--onnx", str(model), "--inputs", str(inputs), "-o", str(scene / name), "--times", "0", *words]
    assert load_recorder().main(line, trt=open_replay(str(scene)), cudart=Cudart()) == 0
    return scene / name


def diagnosed(model: Path, recording: Path, declared: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    study = recording.parent / f"study-{recording.name}"
    line = ["diagnose", str(model), "--inputs", str(recording / "inputs"), "--candidate", f"saved?path={recording}"]
    code = exit_status(*line, "--declared", declared, "--format", "json", "--quiet", "--study", str(study))
    said = capfd.readouterr()
    assert code in {0, 1}, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def lines_of(found: dict[str, Any]) -> list[str]:
    """Every line of trtexec that a diagnosis offers."""
    return [line for one in found["findings"] for repair in one["repairs"] for line in trtexec_lines(repair["command"])]


def flags_of(line: str) -> list[str]:
    """The flags of a line that the recorder has too, which are trtexec's."""
    has = ("--fp16", "--stronglyTyped", "--precisionConstraints", "--layerPrecisions")
    return [word for word in line.split() if word.partition("=")[0] in has]


def test_an_ignored_island_from_the_box_and_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_network(tmp_path / "mixed.onnx", MIXED, constants(20))
    model = load_model(path)
    ir.save(model_ignoring_islands(model.graph(), find_islands(model.graph())), tmp_path / "ignored.onnx")
    x = np.random.default_rng(6).normal(size=(4, 64)).astype(np.float32)
    x[1::2] /= 100
    write_npz(tmp_path / "samples" / "0.npz", {"x": x})
    outputs = [node.output[0] for node in onnx.load(path).graph.node]
    names = [f"node_of_{output}" for output in outputs]
    myelin = Region(nodes=tuple(names), type="HALF", name=f"{{ForeignNode[{names[0]}...{names[-1]}]}}")
    scene = make_scene(
        tmp_path / "scene",
        path,
        VERSION,
        (myelin,),
        raw=True,
        engine=onnx.load(tmp_path / "ignored.onnx"),
        honest=onnx.load(path),
    )
    recording = recorded(scene, path, tmp_path / "samples", "weak", "--fp16")
    found = diagnosed(path, recording, "f16", capfd)
    first = found["findings"][0]
    assert (found["verdict"], first["code"], first["role"]) == ("beyond", "CST003", "cause")
    lines = lines_of(found)
    obeyed = next(line for line in lines if "--layerPrecisions" in line)
    assert all(not refusals(line, VERSION) for line in lines)
    # 11 has strong typing only.
    assert "11.4.0.106 has no --layerPrecisions" in refusals(obeyed, "11.4.0.106")
    strong = next(line for line in lines if "--stronglyTyped" in line)
    assert not refusals(strong, "11.4.0.106")
    for number, line in enumerate((obeyed, strong)):
        repaired = recorded(scene, path, tmp_path / "samples", f"repaired-{number}", *flags_of(line))
        assert diagnosed(path, repaired, "f16", capfd)["verdict"] == "within"


def test_a_lost_bound_from_the_box_and_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    half = np.array(0.5, np.float32)
    weights = {"w": sharpening(), "low": np.negative(half), "high": half}
    path = write_network(tmp_path / "picture.onnx", PICTURE, weights)
    lost = write_network(tmp_path / "lost.onnx", PICTURE.replace("(c, low, high)", "(c, low)"), weights)
    write_npz(tmp_path / "samples" / "0.npz", {"x": photograph()})
    nodes = tuple(f"node_of_{node.output[0]}" for node in onnx.load(path).graph.node)
    fused = Region(nodes=nodes, kind="CaskConvolution", tactic="sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32")
    # Marking the convolution's result ends the fusion, and the Clip by itself keeps both bounds.
    scene = make_scene(
        tmp_path / "scene", path, VERSION, (fused,), raw=True, engine=onnx.load(lost), marked=onnx.load(path)
    )
    recording = recorded(scene, path, tmp_path / "samples", "plain")
    found = diagnosed(path, recording, "f32", capfd)
    first = found["findings"][0]
    assert (found["verdict"], first["code"], first["site"]["node"]) == ("beyond", "FUS014", "Clip#1")
    assert all(not refusals(line, VERSION) for line in lines_of(found))
    # Looked into by name, the engine is another one, and that is said: nothing of the inside is taken for the deployment's.
    watched = recorded(scene, path, tmp_path / "samples", "watched", "--watch", "debug")
    parts = json.loads((watched / "tensorrt.json").read_text(encoding="utf-8"))["parts"]
    assert parts[0]["disturbance"] > 0.1
    again = diagnosed(path, watched, "f32", capfd)
    assert again["candidate"]["disturbance"] > 0.1
    told = {one["code"]: one["role"] for one in again["findings"]}
    assert (told["FUS014"], told["RUN002"]) == ("cause", "information")


@pytest.mark.parametrize(
    ("line", "version", "says"),
    [
        ("trtexec --onnx=m.onnx --fp16 --layerPrecisions=a:fp32", "10.5", "no effect"),
        ("trtexec --onnx=m.onnx --precisionConstraints=obey --layerPrecisions=a:half", "10.5", "does not take"),
        ("trtexec --onnx=m.onnx --precisionConstraints=obey --layerPrecisions=a:bf16", "8.6.1.6", "does not take"),
        ("trtexec --onnx=m.onnx --precisionConstraints=obey --layerPrecisions=*a*:fp32", "10.5", "at most one *"),
        ("trtexec --onnx=m.onnx --precisionConstraints=obey --layerPrecisions=a*:fp32", "8.6.1", "no patterns"),
        ("trtexec --loadEngine=m.plan --useProfile=1", "8.6.1", "has no"),
        ("trtexec --onnx=m.onnx --tacticSources=-CUDNN", "11.0", "does not take"),
        ("trtexec --onnx=m.onnx --markUnfusedTensorsAsDebugTensors", "10.5", "has no"),
        ("trtexec --onnx=m.onnx --minShapes=x:1x3", "10.5", "all three"),
        ("trtexec --onnx=m.onnx --stronglyTyped", "8.6.1.6", "has no"),
        ("trtexec --fp16", "10.5", "no model"),
        ("trtexec --onnx=m.onnx --strongly-typed", "10.5", "not known"),
        ("trtexec --onnx=m.onnx --noTF32=1", "10.5", "takes no value"),
    ],
)
def test_the_grammar_refuses(line: str, version: str, says: str) -> None:
    assert any(says in problem for problem in refusals(line, version))
