"""Engines: files that cannot be loaded, inputs that do not fit, and what is kept.

No engine can run without a supported GPU. What is decided about one is tested on facts; what TensorRT itself decides, on the
real reader of TensorRT-RTX, which refuses a file before it looks for a GPU.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import parser

from parityscope.backends import Capture
from parityscope.backends.opening import open_target, shapes_for
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt.building import build_engine
from parityscope.backends.tensorrt.iotensors import (
    IOFact,
    check_engine,
    check_fixed,
    check_sample,
    io_facts,
    narrow_inputs,
    widen_outputs,
)
from parityscope.backends.tensorrt.loading import check_plan, load_engine, reason_of
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.plan_cache import KeptEngine, find_engine, keep_engine, key_of
from parityscope.backends.tensorrt.profiles import ShapeRange, ranges_of_samples
from parityscope.case import load_inputs, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends.tensorrt.packages import Package

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


@pytest.fixture(scope="module")
def plan(package: Package, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("engine") / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} g (float[2,4] x) => (float[2,4] y) {{ y = Relu(x) }}"), path)
    built = build_engine(path, package).plan
    assert built is not None
    return built


# --- engines that TensorRT refuses, by its real reader --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan[:-100], "truncated"),
        (lambda plan: plan[:70], "truncated"),
        (lambda plan: plan[: len(plan) // 2] + bytes(len(plan) - len(plan) // 2), "damaged on the way"),
        (lambda _plan: b"\x08\x08" * 200, "is no engine"),
        (lambda _plan: b"", "is no engine"),
    ],
)
def test_what_the_reader_refuses_is_one_error(package: Package, plan: bytes, change: Any, said: str) -> None:
    with pytest.raises(ParityError, match=said) as caught:
        load_engine(change(plan), package, (), where="model.plan")
    assert caught.value.fix
    assert caught.value.where == "model.plan"


def test_an_engine_of_another_minor_version(package: Package, plan: bytes) -> None:
    older = plan[:25] + bytes([plan[25] - 1]) + plan[26:]
    with pytest.raises(ParityError, match=r"was built by TensorRT-RTX 1\.\d+\.\d+\.\d+; [\d.]+ is installed"):
        check_plan(older, Path("model.plan"), package)
    with pytest.raises(ParityError, match="another version of TensorRT-RTX") as caught:
        load_engine(older, package, (), where="model.plan")
    assert "build it again" in caught.value.fix


@pytest.mark.parametrize(
    ("theirs", "ours", "loads"),
    [
        ((10, 13, 2, 6), "10.13.2.6", True),
        ((10, 9, 0, 34), "10.13.2.6", True),  # version-compatible engines do
        ((8, 6, 1, 6), "10.13.2.6", True),
        ((10, 13, 2, 6), "11.4.0.106", True),
        ((11, 4, 0, 106), "10.13.2.6", False),  # never in an older one
        ((8, 5, 3, 1), "10.13.2.6", False),  # there were none before 8.6
        ((8, 5, 3, 1), "8.6.1.6", False),
    ],
)
def test_engines_of_other_versions_are_refused_only_where_none_loads(
    package: Package, plan: bytes, theirs: tuple[int, ...], ours: str, loads: bool
) -> None:
    other = b"ftrt" + plan[4:24] + bytes(theirs) + plan[28:]
    here = replace(package, product="tensorrt", version=ours)
    if loads:
        check_plan(other, Path("model.plan"), here)
        return
    with pytest.raises(ParityError, match=rf"was built by TensorRT {'.'.join(map(str, theirs))}; {ours[:4]}") as caught:
        check_plan(other, Path("model.plan"), here)
    assert caught.value.fix


def test_an_engine_brings_its_runtime_only_where_that_was_said(
    package: Package, plan: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    real = package.module.Runtime

    def remembered(logger: Any) -> Any:
        made.append(real(logger))
        return made[-1]

    monkeypatch.setattr(package.module, "Runtime", remembered)
    load_engine(plan, package, (), where="model.plan")
    load_engine(plan, package, (), where="model.plan", carries_code=True)
    assert [runtime.engine_host_code_allowed for runtime in made] == [False, True]


def test_a_whole_engine_needs_a_gpu(package: Package, plan: bytes) -> None:
    loaded = load_engine(plan, package, (), where="model.plan")
    assert (loaded.engine is None) == bool(loaded.missing_cuda)


# As quoted in issues 2177, 955, 1913, 2041 and 574 of NVIDIA/TensorRT and issue 9 of ComfyUI-ultimate-openpose-estimator. The GPU
# of 2177 is a GTX 1050 Ti, of compute capability 6.1; the TensorRT of 574 is 5.1.5, that of the last 10.12.0.36: what is expected
# is what is here.
LINES = {
    "text": "The engine plan file is not compatible with this version of TensorRT, expecting library version 5.1.5 got 0.0.0, "
    "please rebuild.",
    "nameless": "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is not compatible with "
    "this version of TensorRT, expecting library version 10.12.0.36 got .)",
    # The last two: words in the library of TensorRT-RTX 1.7.
    "carries": "Cannot deserialize engine with lean runtime since IRuntime::getEngineHostCodeAllowed() is false.",
    "newer": "The current device is not compatible with this hardware-compatible engine. Expected compute capability >= 8.0",
    "gpu": "6: The engine plan file is generated on an incompatible device, expecting compute 6.1 got compute 8.6, "
    "please rebuild.",
    "plugin": "INVALID_ARGUMENT: getPluginCreator could not find plugin RetinaFaceDecode version 1",
    "creator": "1: [pluginV2Runner.cpp::nvinfer1::rt::load::290] Error Code 1: Serialization (Serialization assertion creator "
    "failed.Cannot deserialize plugin since corresponding IPluginCreator not found in Plugin Registry)",
    "archive": "1: [stdArchiveReader.cpp::StdArchiveReader::40] Error Code 1: Serialization (Serialization assertion "
    "stdVersionRead == serializationVersion failed.Version tag does not match. Note: Current Version: 213, Serialized Engine "
    "Version: 205)",
    "library": "6: The engine plan file is not compatible with this version of TensorRT, expecting library version 8.5.0 got "
    "8.4.1, please rebuild.",
}


@pytest.mark.parametrize(
    ("line", "said", "fix"),
    [
        ("gpu", "compute capability 8.6, this one has 6.1", "hardware=ampere_plus"),
        ("text", "was damaged, or written as text", "in binary"),
        ("nameless", "by another version; 10.12.0.36 is installed", "build it again"),
        ("carries", "is version-compatible", "version_compatible=on"),
        ("newer", "for newer GPUs", "build it on"),
        ("plugin", "needs a plugin that is not loaded: RetinaFaceDecode 1", "plugins="),
        ("creator", "needs a plugin that is not loaded", "plugins="),
        ("archive", "another version of TensorRT", "version_compatible=on"),
        ("library", "was built by version 8.4.1; 8.5.0 is installed", "version_compatible=on"),
    ],
)
def test_reasons_that_take_another_machine(line: str, said: str, fix: str) -> None:
    problem, way = reason_of(["something before", LINES[line]])
    assert said in problem
    assert fix in way


def test_reasons_that_nobody_knows() -> None:
    assert reason_of(["the moon is in the wrong phase"]) == ("", "")


def test_a_truncated_engine_through_the_target(plan: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} g (float[2,4] x) => (float[2,4] y) {{ y = Relu(x) }}"), path)
    # The length in the header is put right, so that only TensorRT's own reader can tell.
    cut = plan[:16] + (len(plan) - 64).to_bytes(8, "little") + plan[24:-64]
    (tmp_path / "cut.plan").write_bytes(cut)
    target = parse_target(f"trt?product=rtx&engine={tmp_path / 'cut.plan'}")
    with pytest.raises(ParityError) as caught, open_target(load_model(path), target, Capture()):
        pass
    assert "truncated or was damaged" in caught.value.problem


# --- inputs and outputs against a sample ------------------------------------------------------------------------------------

X = IOFact(
    name="x",
    is_input=True,
    dtype="float32",
    shape=(-1, 3, -1),
    covered=ShapeRange(smallest=(1, 3, 8), usual=(1, 3, 8), largest=(4, 3, 64)),
)
IDS = IOFact(name="ids", is_input=True, dtype="int32", shape=(2,))
Y = IOFact(name="y", is_input=False, dtype="float16", shape=(-1, 2))
GOOD = {"x": np.zeros((2, 3, 9), np.float32), "ids": np.zeros(2, np.int32)}


def checked(**arrays: np.ndarray) -> None:
    check_sample((X, IDS, Y), {**GOOD, **arrays}, "first", "model.plan")


def test_a_sample_that_fits() -> None:
    checked()
    check_engine((X, IDS, Y), ["ids", "x"], ["y"], "")


def test_int64_and_int32_are_told_apart() -> None:
    with pytest.raises(ParityError, match="input 'ids' is int64, the engine wants int32") as caught:
        checked(ids=np.zeros(2, np.int64))
    assert "TensorRT before 10 makes int32" in caught.value.fix
    assert "narrow=on" in caught.value.fix


def test_int64_stands_for_int32_where_that_was_asked() -> None:
    arrays = {**GOOD, "ids": np.array([3, -4])}
    found = narrow_inputs((X, IDS, Y), arrays, "first", "")
    assert (found["ids"].dtype.name, found["ids"].tolist()) == ("int32", [3, -4])
    assert found["x"] is GOOD["x"]
    checked(**found)
    with pytest.raises(ParityError, match="has numbers beyond int32"):
        narrow_inputs((X, IDS, Y), {"ids": np.array([1 << 31, 0])}, "first", "")
    back = widen_outputs({"y": np.array([1], np.int32), "z": np.array([1], np.int32)}, {"y": "int64", "z": "int32"})
    assert [array.dtype.name for array in back.values()] == ["int64", "int32"]


def test_a_profile_that_does_not_cover_names_the_flags() -> None:
    with pytest.raises(
        ParityError, match=r"covers \[1, 3, 8\] to \[4, 3, 64\] of input 'x', sample first has \[8, 3, 4\]"
    ) as e:
        checked(x=np.zeros((8, 3, 4), np.float32))
    assert "--minShapes=x:1x3x4 --optShapes=x:1x3x8 --maxShapes=x:8x3x64" in e.value.fix


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((2, 3, 9))}, "is float64, the engine wants float32"),
        ({"ids": np.zeros(3, np.int32)}, r"is \[2\] in the engine, sample first has \[3\]"),
        ({"x": np.zeros((2, 3), np.float32)}, "covers"),
    ],
)
def test_samples_that_do_not_fit(arrays: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(ParityError, match=said) as caught:
        checked(**arrays)
    assert caught.value.fix


def test_names_are_never_matched_by_place() -> None:
    with pytest.raises(ParityError, match="inputs are x, ids, the model's are input_ids, mask"):
        check_engine((X, IDS, Y), ["input_ids", "mask"], ["y"], "")
    with pytest.raises(ParityError, match="outputs are y, the model's are logits"):
        check_engine((X, IDS, Y), ["x", "ids"], ["logits"], "")
    with pytest.raises(ParityError, match="no input 'ids'"):
        check_sample((X, IDS), {"x": GOOD["x"]}, "first", "")


def test_values_that_became_constants() -> None:
    fixed = {"sr": np.array(16000)}
    check_fixed(fixed, {"sr": np.array(16000)}, "first", "")
    check_fixed(fixed, {}, "first", "")
    with pytest.raises(ParityError, match="built for sr = 16000, sample first has 8000"):
        check_fixed(fixed, {"sr": np.array(8000)}, "first", "")


def test_layouts_that_cannot_be_fed() -> None:
    vector = replace(X, linear=False, layout="Channel major FP16 format where channel % 8 == 0")
    with pytest.raises(ParityError, match="channel % 8") as caught:
        check_engine((vector, IDS, Y), ["x", "ids"], ["y"], "")
    assert "--inputIOFormats=fp32:chw" in caught.value.fix


@dataclass(frozen=True)
class Enumerated:
    name: str


@dataclass(frozen=True)
class Described:
    """An engine as `api.Engine` has it: what it says of two tensors, and nothing that runs."""

    num_io_tensors: int = 2
    num_optimization_profiles: int = 1

    def get_tensor_name(self, index: int, /) -> str:
        return ("x", "y")[index]

    def get_tensor_mode(self, name: str, /) -> Enumerated:
        return Enumerated("INPUT" if name == "x" else "OUTPUT")

    def get_tensor_dtype(self, name: str, /) -> Enumerated:
        return Enumerated("HALF" if name == "y" else "INT64")

    def get_tensor_shape(self, name: str, /) -> Sequence[int]:
        return (-1, 3) if name == "x" else (-1, 2)

    def get_tensor_format(self, name: str, /) -> Enumerated:
        return Enumerated("HWC8" if name == "y" else "LINEAR")

    def get_tensor_format_desc(self, name: str, /) -> str:
        return f"format of {name}"

    def get_tensor_location(self, name: str, /) -> Enumerated:
        return Enumerated("DEVICE" if name == "y" else "HOST")

    def get_tensor_profile_shape(self, _name: str, _profile: int, /) -> Sequence[Sequence[int]]:
        return [(1, 3), (2, 3), (4, 3)]

    def is_shape_inference_io(self, _name: str, /) -> bool:
        return False


def test_facts_of_an_engine() -> None:
    x, y = io_facts(Described())
    assert (x.is_input, x.dtype, x.host, x.linear) == (True, "int64", True, True)
    assert x.covered == ShapeRange(smallest=(1, 3), usual=(2, 3), largest=(4, 3))
    assert (y.is_input, y.dtype, y.linear, y.layout, y.covered) == (False, "float16", False, "format of y", None)


# --- engines that are kept --------------------------------------------------------------------------------------------

RANGES = {"x": ShapeRange(smallest=(1, 3), usual=(2, 3), largest=(4, 3))}


def test_an_engine_is_found_where_it_covers(tmp_path: Path) -> None:
    key = key_of({"model": "1"})
    assert find_engine(tmp_path / "none", key, [{"x": (2, 3)}]) is None
    keep_engine(tmp_path, key, KeptEngine(plan=b"plan", ranges=RANGES, facts={"names": {"a": "b"}}))
    found = find_engine(tmp_path, key, [{"x": (1, 3), "other": (9,)}, {"x": (4, 3)}])
    assert found is not None
    assert (found.plan, dict(found.ranges), found.facts) == (b"plan", RANGES, {"names": {"a": "b"}})
    assert find_engine(tmp_path, key, [{"x": (5, 3)}]) is None
    assert find_engine(tmp_path, key_of({"model": "2"}), [{"x": (2, 3)}]) is None
    # A wider one is kept beside it.
    wide = {"x": ShapeRange(smallest=(1, 3), usual=(2, 3), largest=(8, 3))}
    keep_engine(tmp_path, key, KeptEngine(plan=b"wide", ranges=wide, facts={}))
    assert find_engine(tmp_path, key, [{"x": (5, 3)}]) == KeptEngine(plan=b"wide", ranges=wide, facts={})


def test_a_damaged_engine_is_not_used(tmp_path: Path) -> None:
    key = key_of({})
    keep_engine(tmp_path, key, KeptEngine(plan=b"plan", ranges={}, facts={}))
    (file,) = tmp_path.glob("*.plan")
    file.write_bytes(b"plam")
    assert find_engine(tmp_path, key, [{}]) is None
    (told,) = tmp_path.glob("*.json")
    told.write_text(json.dumps({"ranges": 3}), encoding="utf-8")
    assert find_engine(tmp_path, key, [{}]) is None


def test_shapes_of_all_samples_reach_the_build(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} g (float[N,2] x) => (float[N,2] y) {{ y = Exp(x) }}"), path)
    model = load_model(path)
    folder = tmp_path / "samples"
    folder.mkdir()
    for index, rows in enumerate((2, 5, 3, 5)):
        np.savez(folder / f"{index}.npz", x=np.zeros((rows, 2), np.float32))
    inputs = load_inputs(model, folder, spool=tmp_path)
    target = parse_target("trt?product=rtx&build=only")
    assert shapes_for(model, parse_target("ort"), inputs) == ()
    shapes = shapes_for(model, target, inputs)
    assert shapes == ({"x": (2, 2)}, {"x": (5, 2)}, {"x": (3, 2)})
    assert ranges_of_samples(shapes)["x"] == ShapeRange(smallest=(2, 2), usual=(2, 2), largest=(5, 2))
    with open_target(model, target, Capture(shapes=shapes)) as session:
        assert session.executed is not None
    with pytest.raises(ParityError, match="dynamic dimensions and no shape"), open_target(model, target, Capture()):
        pass


def test_no_name_is_made_of_a_pattern() -> None:
    """Options are plain: an engine's key says every one of them, so that another build is another engine."""
    assert re.fullmatch(r"[0-9a-f]{32}", key_of({"options": TensorrtOptions()}))
    assert key_of({"options": TensorrtOptions(tf32=True)}) != key_of({"options": TensorrtOptions()})
