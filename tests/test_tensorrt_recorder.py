"""The recorder for boxes with TensorRT, over a stand-in that replays scenes; and what `saved` tells of its folder."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from parityscope.backends import Capture
from parityscope.backends.gpu import settings_of_gpu
from parityscope.backends.opening import open_target
from parityscope.backends.recording import RecordingRequest, record_trace
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt.asked import layers_below_request
from parityscope.case import load_inputs, load_model
from parityscope.environment import list_differences
from parityscope.errors import ParityError
from proving.tensorrt_replay.__main__ import RECORDER, load_recorder
from proving.tensorrt_replay.host import Cudart
from proving.tensorrt_replay.inspecting import inspected
from proving.tensorrt_replay.module import open_replay
from proving.tensorrt_replay.scenes import Region, make_scene

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
  <float[4,4] W = {1,2,3,4,0.1,1,0,0,0,0,1,0,0,0,0,1}> {
  [product] a = MatMul(x, W) [cut] b = Relu(a) [soft] c = Softmax(b) [last] y = Exp(c) }"""
FUSED = (
    Region(nodes=("product", "cut"), type="HALF", kind="gemm", tactic="sm80_xmma_f16f16"),
    Region(nodes=("soft", "last"), type="HALF"),
)
VERSIONS = ("8.6.1.6", "10.0.1.6", "10.13.0.35", "10.16.1.11")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parser.parse_model(TEXT), tmp_path / "model.onnx")
    (tmp_path / "samples").mkdir()
    for rows in (1, 2, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
        np.savez(tmp_path / "samples" / f"{rows:03d}.npz", x=x)
    return tmp_path / "model.onnx"


def recorded(scene: Path, model: Path, *words: str, cudart: Any = None, trt: Any = None) -> int:
    line = ["--onnx", str(model), "--inputs", str(model.parent / "samples"), "-o", str(scene / "recording"), *words]
    code: int = load_recorder().main(line, trt=trt or open_replay(str(scene)), cudart=cudart or Cudart())
    return code


def told(scene: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((scene / "recording" / "tensorrt.json").read_text(encoding="utf-8"))
    return found


def test_it_is_written_for_python_3_6() -> None:
    """`vermin` knows of each syntax and member of the library which version has it first."""
    files = [*(ROOT / "recorder").glob("*.py"), *(ROOT / "proving" / "tensorrt_replay").glob("*.py")]
    kept = [str(path) for path in files if path.name not in {"scenes.py", "stubs.py"}]
    assert len(kept) > 10
    line = [
        str(Path(sys.executable).with_name("vermin")),
        "-t=3.6-",
        "--no-tips",
        "--violations",
        "--processes=1",
        *kept,
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    # And needs numpy only, besides TensorRT.
    tree = ast.parse(Path(RECORDER).read_text(encoding="utf-8"))
    imports = {each.name for node in tree.body if isinstance(node, ast.Import) for each in node.names}
    assert imports - {"numpy"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("version", VERSIONS)
def test_saved_tells_what_the_engine_did(version: str, model: Path, tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", model, version, FUSED)
    assert recorded(scene, model, "--fp16", "--times", "2", "--tar") == 0
    facts = told(scene)
    assert facts["version"] == version
    assert "nothing of TensorRT was executed" in facts["made_by"]
    assert str(tmp_path) not in json.dumps(facts)
    by_name = version in {"8.6.1.6", "10.0.1.6"}
    case = load_model(model)
    target = parse_target(f"saved:f16?path={scene / 'recording'}")
    inputs = load_inputs(case, scene / "recording" / "inputs", spool=tmp_path)
    with open_target(case, target, Capture(tensors=("a", "b", "c"))) as session:
        found = session.run(inputs.sample(1))
        graph = session.executed
        missing = {skip.what: skip.reason for skip in session.absent}
    assert graph is not None
    assert (graph.requested, graph.executed) == ("f16", "f16")
    assert [(layer.nodes, layer.stored) for layer in graph.layers] == [
        (("product", "cut"), "f16"),
        (("soft", "last"), "f32"),
    ]
    assert graph.layers[0].kernel == "sm80_xmma_f16f16"
    assert [layer.seconds for layer in graph.layers] == [2e-5, 2e-5]
    # Unfused tensors come without a name of the model's; marked ones by name, and end the fusion.
    assert sorted(found) == (["a", "b", "c", "y"] if by_name else ["b", "y"])
    assert missing == ({} if by_name else dict.fromkeys(("tensor a", "tensor c"), missing.get("tensor a")))
    x = inputs.sample(1).arrays["x"]
    whole = np.maximum(x @ np.array([1, 2, 3, 4, 0.1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1], np.float32).reshape(4, 4), 0)
    assert np.abs(found["b"].astype(np.float32) - whole).max() <= 2e-3 * np.abs(whole).max()
    with tarfile.open(scene / "recording.tar") as archive:
        assert "recording/engine/profile.json" in archive.getnames()
    environment = json.loads((scene / "recording" / "environment.json").read_text(encoding="utf-8"))
    assert (environment["tensorrt"], environment["cuda"]) == (version, "12.6")


@pytest.mark.parametrize(("product", "version"), [("tensorrt", "11.4.0.106"), ("rtx", "1.7.1.116")])
def test_a_box_that_has_strong_typing_alone(
    product: str, version: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = make_scene(tmp_path / "scene", model, version, FUSED, product=product)
    assert recorded(scene, model, "--fp16", "--times", "0", "--product", product) == 2
    assert "\n  fix: " in capsys.readouterr().err
    shutil.rmtree(scene / "recording")
    assert recorded(scene, model, "--times", "0", "--product", product) == 0
    assert told(scene)["typing"] == "strong"
    case = load_model(model)
    inputs = load_inputs(case, scene / "recording" / "inputs", spool=tmp_path)
    target = parse_target(f"saved?path={scene / 'recording'}")
    with open_target(case, target, Capture(tensors=("a", "b", "c"))) as session:
        assert sorted(session.run(inputs.sample(0))) == ["b", "y"]
        assert session.executed is not None
        assert [layer.stored for layer in session.executed.layers] == ["f16", "f32"]


def test_what_looking_changed_is_measured(model: Path, tmp_path: Path) -> None:
    """An engine whose tensors are marked computes in FP32 here: its outputs are other ones, and the study says how far off."""
    plain = onnx.load(model)
    for names in (plain.graph.node,):
        for node in names:
            node.name = node.name or node.output[0]
    scene = make_scene(tmp_path / "scene", model, "10.0.1.6", FUSED, marked=plain)
    assert recorded(scene, model, "--fp16", "--times", "0", "--part", "2") == 0
    parts = told(scene)["parts"]
    assert [part["way"] for part in parts] == ["debug", "debug"]
    assert all(0 < part["disturbance"] < 1e-2 for part in parts)
    case = load_model(model)
    inputs = load_inputs(case, scene / "recording" / "inputs", spool=tmp_path)
    target = parse_target(f"saved?path={scene / 'recording'}")
    request = RecordingRequest(samples=(0, 1), tensors=("a", "c"), folder=tmp_path / "spill")
    trace = record_trace(case, inputs, target, request)
    assert trace.disturbs == "debug tensors marked"
    assert 0 < trace.disturbance <= max(part["disturbance"] for part in parts) * (1 + 1e-6)


def test_a_part_that_the_builder_refuses_is_taken_by_halves(model: Path, tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", model, "8.6.1.6", FUSED, refused_marks=["b"])
    assert recorded(scene, model, "--times", "0") == 0
    (part,) = told(scene)["parts"]
    assert (part["seen"], part["refused"]) == (["a", "c"], ["b"])
    case = load_model(model)
    target = parse_target(f"saved?path={scene / 'recording'}")
    with open_target(case, target, Capture(tensors=("a", "b"))) as session:
        assert [(skip.what, "refuses" in skip.reason) for skip in session.absent] == [("tensor b", True)]


def test_the_same_command_goes_on(model: Path, tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", model, "10.0.1.6", FUSED)
    trt = open_replay(str(scene))
    events, whole = trt.scene.events, 6
    trt.scene.faults["execute"] = True
    assert recorded(scene, model, "--times", "0", trt=trt) == 2
    del trt.scene.faults["execute"]
    assert recorded(scene, model, "--times", "0", trt=trt) == 0
    # The plain engine was built once, and one that shows tensors.
    assert (events.count("build"), events.count("execute")) == (2, whole + 1)
    assert recorded(scene, model, "--times", "0", trt=trt) == 0
    assert (events.count("build"), events.count("execute")) == (2, whole + 1)
    assert recorded(scene, model, "--times", "0", "--fp16", trt=trt) == 2


def test_an_engine_that_exists_is_taken_as_it_is(model: Path, tmp_path: Path) -> None:
    profiles = [{"x": [[1, 4], [1, 4], [1, 4]]}, {"x": [[2, 4], [3, 4], [3, 4]]}]
    scene = make_scene(tmp_path / "scene", model, "10.13.0.35", FUSED, profiles=profiles)
    assert recorded(scene, model, "--fp16", "--watch", "unfused", "--times", "0") == 0
    other = make_scene(tmp_path / "other", model, "10.13.0.35", FUSED, profiles=profiles)
    line = ["--engine", str(scene / "recording" / "engine" / "model.plan"), "--times", "0"]
    line += ["--inputs", str(model.parent / "samples"), "-o", str(other / "recording")]
    assert load_recorder().main(line, trt=open_replay(str(other)), cudart=Cudart()) == 0
    one, two = (np.load(each / "recording" / "outputs" / "003.npz")["y"] for each in (scene, other))
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize(
    ("facts", "words", "says"),
    [
        (
            {"faults": {"parse": {"reason": "no such op", "node": 1, "name": "cut", "operator": "Odd"}}},
            (),
            "no such op",
        ),
        ({"faults": {"build": "soft"}}, (), "Could not find any implementation for node soft"),
        ({"faults": {"context": True}}, (), "no memory"),
        ({"faults": {"execute": True}}, (), "fails while it runs"),
        ({"needs_plugins": ["Own_TRT"]}, (), "no plug-in Own_TRT"),
        ({"formats": {"x": "CHW4"}}, (), "only C order"),
        ({}, ("--maxShapes=x:2x4",), "refuses the shape"),
        ({}, ("--plugins", "missing.so"), "cannot be loaded"),
        ({}, ("--layerPrecisions=none:fp32",), "no layer has that name"),
        ({}, ("--watch", "unfused"), "has no --watch unfused"),
        ({}, ("--stronglyTyped",), "no strong typing"),
    ],
)
def test_what_fails_is_one_error_with_its_fix(
    facts: dict[str, Any],
    words: Sequence[str],
    says: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = make_scene(tmp_path / "scene", model, "8.6.1.6", FUSED, **facts)
    assert recorded(scene, model, *words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "\n  fix: " in error


def test_too_little_memory_is_told(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = make_scene(tmp_path / "scene", model, "10.0.1.6", FUSED)
    assert recorded(scene, model, cudart=Cudart(limit=20)) == 2
    assert "no memory left" in capsys.readouterr().err


def test_a_layer_below_its_request_is_told_from_the_folder(model: Path, tmp_path: Path) -> None:
    """Asked for FP32 and written in half precision: what `CST001` reads off the layers of an engine that is here."""
    scene = make_scene(tmp_path / "scene", model, "10.0.1.6", FUSED)
    words = ("--precisionConstraints", "prefer", "--layerPrecisions", "product:fp32,cut:fp32")
    assert recorded(scene, model, "--fp16", "--times", "0", "--watch", "none", *words) == 0
    target = parse_target(f"saved:f16?path={scene / 'recording'}")
    with open_target(load_model(model), target, Capture()) as session:
        assert session.executed is not None
        assert [layer.nodes for layer in layers_below_request(session.executed.layers)] == [("product", "cut")]
        assert session.disturbs == "none"


def test_a_folder_that_is_no_recording_is_refused(model: Path, tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", model, "10.0.1.6", FUSED)
    assert recorded(scene, model, "--times", "0") == 0
    path = scene / "recording" / "tensorrt.json"
    held = json.loads(path.read_text(encoding="utf-8"))
    wrong: list[Any] = [{}, [], {**held, "product": 3}, {**held, "arguments": []}, {**held, "precision": "f99"}]
    wrong += [{**held, "parts": [part]} for part in (3, {"number": "../x"}, {"number": 0, "names": {"a": 1}})]
    wrong += [{**held, "parts": [{"number": 7, "seen": []}]}]
    for each in wrong:
        path.write_text(json.dumps(each), encoding="utf-8")
        target = parse_target(f"saved?path={scene / 'recording'}")
        with pytest.raises(ParityError) as caught, open_target(load_model(model), target, Capture()):
            pass
        assert caught.value.fix


def test_types_that_numpy_lacks_keep_their_numbers() -> None:
    recorder = load_recorder()
    every = np.arange(256, dtype=np.uint8)
    for kind, dtype in (("FP8", ml_dtypes.float8_e4m3fn), ("E8M0", ml_dtypes.float8_e8m0fnu)):
        expected = every.view(dtype).astype(np.float32)
        assert np.array_equal(recorder.elements_of(every, kind, (256,)), expected, equal_nan=True)
    wide = np.arange(1 << 16, dtype=np.uint16)
    found = recorder.elements_of(wide.view(np.uint8), "BF16", (1 << 16,))
    assert np.array_equal(found, wide.view(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
    pairs = np.array([0x10, 0x98, 0xF7], np.uint8)
    four = np.array([0, 1, 8, 9, 7, 15], np.uint8)
    expected = four.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert recorder.elements_of(pairs, "FP4", (6,)).tolist() == expected.tolist()
    assert recorder.elements_of(pairs, "INT4", (5,)).tolist() == [0, 1, -8, -7, 7]


def old_pythons() -> list[str]:
    """Interpreters of 3.6 to 3.10 that have numpy: those of pyenv, or named in PARITYSCOPE_OLD_PYTHONS."""
    named = os.environ.get("PARITYSCOPE_OLD_PYTHONS", "").split(os.pathsep)
    versions = Path.home() / ".pyenv" / "versions"
    found = [*filter(None, named), *(str(path) for v in (6, 8, 10) for path in versions.glob(f"3.{v}.*/bin/python"))]
    return [
        path
        for path in found
        if subprocess.run([path, "-c", "import numpy"], capture_output=True, check=False).returncode == 0
    ]


def test_old_interpreters_write_the_same(model: Path, tmp_path: Path) -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("no Python 3.6, 3.8 or 3.10 with numpy here")
    scene = make_scene(tmp_path / "scene", model, "8.6.1.6", FUSED)
    assert recorded(scene, model, "--fp16", "--times", "1") == 0
    files = sorted(path.relative_to(scene / "recording") for path in (scene / "recording").rglob("*.npz"))
    for python in pythons:
        there = tmp_path / "there"
        line = [python, "-m", "proving.tensorrt_replay", str(scene), "--onnx", str(model), "--fp16", "--times", "1"]
        line += ["--inputs", str(model.parent / "samples"), "-o", str(there)]
        done = subprocess.run(
            line, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
        )
        assert done.returncode == 0, done.stderr
        for file in files:
            with np.load(there / file) as theirs, np.load(scene / "recording" / file) as ours:
                assert {name: theirs[name].tobytes() for name in theirs} == {
                    name: ours[name].tobytes() for name in ours
                }
        shutil.rmtree(there)


PROGRAM = r"""
#include "parityscope_tensorrt.hpp"

#include <iterator>

struct Inspector final : nvinfer1::IEngineInspector {
    std::string words;
    char const* getEngineInformation(nvinfer1::LayerInformationFormat) const noexcept override { return words.c_str(); }
};

struct Engine final : nvinfer1::ICudaEngine {
    std::string words;
    nvinfer1::IEngineInspector* createEngineInspector() const noexcept override {
        auto* made = new Inspector;
        made->words = words;
        return made;
    }
};

int main(int, char** words) {
    std::ifstream file(words[1], std::ios::binary);
    Engine engine;
    engine.words.assign(std::istreambuf_iterator<char>(file), {});
    parityscope::Recorder recording("recording");
    parityscope::DebugListener listener;
    const auto device = nvinfer1::TensorLocation::kDEVICE;
    for (int number = 0; number < 2; ++number) {
        const float x[4] = {1, 0, 0, static_cast<float>(number)};
        recording.input("x", x, {1, 4});
        const std::uint16_t halves[4] = {0x3C00, 0x4000, 0x4200, 0x4400}; // 1, 2, 3, 4
        listener.processDebugTensor(halves, device, nvinfer1::DataType::kHALF, {2, {1, 4}}, words[2], nullptr);
        const unsigned char bytes[2] = {0x38, 0xC0}; // float8: 1, -2
        listener.processDebugTensor(bytes, device, nvinfer1::DataType::kFP8, {1, {2}}, "odd", nullptr);
        const unsigned char nibbles[2] = {0x98, 0x07}; // int4: -8, -7, 7
        listener.processDebugTensor(nibbles, device, nvinfer1::DataType::kINT4, {1, {3}}, "odd", nullptr);
        const float y[4] = {1, 1, 1, 1};
        recording.output("y", y, {1, 4});
        listener.record(recording);
        recording.commit();
    }
    if (listener.processDebugTensor(nullptr, device, nvinfer1::DataType::kHALF, {1, {2}}, "lost", nullptr)) return 3;
    try {
        listener.record(recording);
        return 4;
    } catch (const std::runtime_error& error) {
        if (!std::strstr(error.what(), "fix: ")) return 5;
    }
    parityscope::record_engine(engine, listener, "recording");
}
"""


def test_a_program_in_cpp_tells_what_its_engine_shows(model: Path, tmp_path: Path) -> None:
    """Compiled against a stand-in of NvInfer.h; the engine's words are the stand-in's, the values the program's own."""
    compiler = next((found for name in ("g++", "clang++", "c++") if (found := shutil.which(name))), "")
    if not compiler:
        pytest.skip("no C++ compiler (g++, clang++, c++) on PATH")
    trt = open_replay(str(make_scene(tmp_path / "scene", model, "10.13.0.35", FUSED)))
    text = inspected(trt.scene, {"debug": [], "outputs": [], "unfused": True, "detailed": True})
    (tmp_path / "layers.json").write_text(text, encoding="utf-8")
    first = json.loads(text, strict=False)["Layers"][0]["Outputs"][0]["Name"]
    (tmp_path / "main.cpp").write_text(PROGRAM, encoding="utf-8")
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    folders = ("-I", str(ROOT / "recorder"), "-isystem", str(ROOT / "proving" / "tensorrt_replay" / "include"))
    subprocess.run([compiler, *strict, *folders, "main.cpp", "-o", "main"], cwd=tmp_path, check=True, timeout=300)
    done = subprocess.run([str(tmp_path / "main"), "layers.json", first], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0
    folder = tmp_path / "recording"
    kept = np.load(folder / "outputs" / "000001.npz")
    assert (kept["odd"].tolist(), kept["odd#1"].tolist()) == ([1.0, -2.0], [-8, -7, 7])
    case = load_model(model)
    inputs = load_inputs(case, folder / "inputs", spool=tmp_path)
    with open_target(case, parse_target(f"saved:f16?path={folder}"), Capture(tensors=("a", "b"))) as session:
        found = session.run(inputs.sample(1))
        assert session.executed is not None
        assert session.executed.layers[0].nodes == ("product", "cut")
        # What no value of the model is called by is told too.
        assert {skip.what for skip in session.absent} == {"tensor a", "tensor odd", "tensor odd#1"}
        assert session.environment["gpu"] == "stand-in GPU"
        assert session.disturbs == "unfused tensors shown"
    assert found["b"].tolist() == [[1.0, 2.0, 3.0, 4.0]]


SMI = "#!/bin/sh\necho 'NVIDIA H100, 580.1, 9.0, 1980 MHz, Enabled, [N/A]'\necho 'another, 580.1, 9.0, 1, Enabled, Enabled'\n"


def test_a_box_tells_the_same_of_its_gpu_live_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    live = settings_of_gpu()
    assert live == {
        "gpu": "NVIDIA H100",
        "driver": "580.1",
        "compute capability": "9.0",
        "gpu clock": "1980 MHz",
        "persistence mode": "Enabled",
    }
    assert load_recorder()._gpu() == live
    elsewhere = {**live, "compute capability": "8.9", "gpu clock": "345 MHz"}
    assert [one.key for one in list_differences(live, elsewhere)] == ["compute capability"]
