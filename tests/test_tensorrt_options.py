"""What can be asked of TensorRT: options against versions, profiles, plugins, marks, and precisions of single layers."""

from __future__ import annotations

import enum
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import parser

from command_line import in_a_process
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt import configuring
from parityscope.backends.tensorrt.asked import asked_of, layers_below_request, requested_of, tell_types_asked
from parityscope.backends.tensorrt.building import build_engine
from parityscope.backends.tensorrt.findings import find_in_view
from parityscope.backends.tensorrt.marking import Marks, registered_tensor_names, take_most, way_for
from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.backends.tensorrt.network import executed_graph, network_view
from parityscope.backends.tensorrt.options import TensorrtOptions, options_of
from parityscope.backends.tensorrt.packages import Package
from parityscope.backends.tensorrt.precisions import ask_for, wanted_of
from parityscope.backends.tensorrt.profiles import ShapeRange, check_covered, flags_for, ranges_of, ranges_of_samples
from parityscope.backends.trt import check_scales, choose_device
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.logs import EngineLayer
from parityscope.logs.records import EngineTensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

rtx = pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
SMALL = """g (float[N,4] x) => (float[N,4] y) <float[4,4] W = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
  [product] a = MatMul(x, W) [cut] b = Relu(a) [soft] c = Softmax(b) [last] y = Exp(c) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f"{HEAD} {SMALL}"), path)
    return path


class Flags10(enum.Enum):
    """The builder flags of TensorRT 10.13, of those that are asked for."""

    FP16, BF16, INT8, FP8, TF32, VERSION_COMPATIBLE = range(6)


class Sources(enum.IntEnum):
    """The tactic sources of TensorRT 10.13."""

    CUBLAS, CUBLAS_LT, CUDNN, EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS = range(5)


class Levels(enum.Enum):
    NONE, AMPERE_PLUS, SAME_COMPUTE_CAPABILITY = range(3)


class FlagsOf86(enum.Enum):
    FP16, INT8, TF32 = range(3)


class LevelsOf86(enum.Enum):
    NONE, AMPERE_PLUS = range(2)


# Only what options are checked against: which members each version's enumerations have.
TEN = Package(
    module=SimpleNamespace(BuilderFlag=Flags10, HardwareCompatibilityLevel=Levels, TacticSource=Sources),
    product="tensorrt",
    version="10.13.2.6",
)
OLD = Package(
    module=SimpleNamespace(BuilderFlag=FlagsOf86, HardwareCompatibilityLevel=LevelsOf86),
    product="tensorrt",
    version="8.6.1.6",
)
ELEVEN = Package(module=SimpleNamespace(BuilderFlag=rtx.BuilderFlag), product="tensorrt", version="11.4.0.106")


def asked(text: str, package: Package) -> TensorrtOptions:
    return options_of(parse_target(text), package)


@pytest.mark.parametrize(
    "text", ["trt:f16", "trt:bf16", "trt?layers=a:f32", "trt?constraints=obey", "trt?typing=weak", "trt:int8"]
)
def test_what_11_and_rtx_no_longer_have_names_the_typed_way(text: str, package: Package) -> None:
    for one in (package, ELEVEN):
        with pytest.raises(ParityError, match="always strongly typed") as caught:
            asked(text, one)
        assert "parityscope repair" in caught.value.fix
        assert "model=typed.onnx" in caught.value.fix


def test_weak_typing_where_the_version_has_it() -> None:
    assert asked("trt", TEN).typing == "strong"
    assert asked("trt:f32", TEN).typing == "strong"
    assert asked("trt", OLD).typing == "weak"
    found = asked("trt:f16?layers=/decoder/*:f32,head:bf16", TEN)
    assert (found.typing, found.precision, found.constraints) == ("weak", "f16", "obey")
    assert found.layers == (("/decoder/*", "f32"), ("head", "bf16"))
    assert asked("trt?layers=a:f32&constraints=prefer", TEN).constraints == "prefer"


@pytest.mark.parametrize(
    ("text", "which", "said"),
    [
        ("trt?typing=strong", OLD, "no strong typing"),
        ("trt:f16?typing=strong", TEN, "a wish to a weakly typed build"),
        ("trt:bf16", OLD, "has no bf16"),
        ("trt?hardware=same_cc", OLD, "no same_cc"),
        ("trt?capability=8.9", TEN, "is TensorRT-RTX's"),
        ("trt?layers=a:f64", TEN, "is not NAME:TYPE"),
        ("trt?level=6", TEN, "no optimization level"),
        ("trt?shapes=x:1x3..2x3", TEN, "is not name:"),
        ("trt?shapes=x:1x3..4x3..2x3", TEN, "smallest..usual..largest"),
        ("trt?shapes=x:1x3,x:2x3", TEN, "shapes= names 'x' twice"),
        ("trt?fix=16000", TEN, "is not NAME:VALUE"),
        ("trt?capability=89", TEN, "is not MAJOR.MINOR"),
        ("trt?observe=some", TEN, "observe='some' is not known"),
        ("trt?timing_cache=t.cache", None, "keeps no timing cache"),
        ("trt?hardware=ampere_plus", None, "no hardware compatibility levels"),
        ("trt?version_compatible=on", None, "no version-compatible engines"),
        ("trt?layers=a:bf16", OLD, "has no bf16"),
        ("trt?workspace=much", TEN, "workspace='much' is no size"),
        ("trt?workspace=0", TEN, "is no size"),
        ("trt?tactics=CUDNN", TEN, "is not \\+NAME or -NAME"),
        ("trt?tactics=-CUBLAST", TEN, "no tactic source CUBLAST"),
        ("trt?tactics=-CUDNN", None, "no choice of tactic sources"),
        ("trt?dla=first", TEN, "no number of a device"),
        ("trt?dla=0", None, "has no DLA"),
        ("trt?device=-1", TEN, "no number of a device"),
        ("trt?fallback=maybe", TEN, "fallback='maybe' is not known"),
    ],
)
def test_wrong_options_are_refused(text: str, which: Package | None, said: str, package: Package) -> None:
    with pytest.raises(ParityError, match=said) as caught:
        asked(text, which or package)
    assert caught.value.fix


def test_options_are_read() -> None:
    found = asked("trt?tf32=on&fix=sr:16000,at:1,2&plugins=a.so,b.so&level=5&timing_cache=t&hardware=same_cc", TEN)
    assert found.tf32
    assert found.settle
    assert (found.values["sr"].tolist(), found.values["at"].tolist()) == (16000, [1, 2])
    assert [path.name for path in found.plugins] == ["a.so", "b.so"]
    assert (found.level, found.hardware, found.timing_cache and found.timing_cache.name) == (5, "same_cc", "t")
    assert not asked("trt", TEN).tf32
    boxed = asked("trt?workspace=4GiB&tactics=-CUDNN,%2Bcublas&dla=1&fallback=off&device=2", TEN)
    assert (boxed.workspace, boxed.tactics) == (4 << 30, (("CUDNN", False), ("CUBLAS", True)))
    assert (boxed.dla, boxed.fallback, boxed.device) == (1, False, 2)
    assert asked("trt?workspace=512", TEN).workspace == 512 << 20


def test_a_quantized_build_without_scales_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="trt:int8 needs scales") as caught:
        check_scales(load_model(model), asked("trt:int8", TEN))
    assert "quantize_static" in caught.value.fix
    quantized = """g (float[2] x) => (float[2] y) <float s = {0.1}, int8 z = {0}> {
      q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    onnx.save(parser.parse_model(f"{HEAD} {quantized}"), tmp_path / "quantized.onnx")
    check_scales(load_model(tmp_path / "quantized.onnx"), asked("trt:int8", TEN))
    check_scales(load_model(model), asked("trt:f16", TEN))


@pytest.mark.parametrize(("visible", "number", "seen"), [(None, 1, "1"), ("3,5", 1, "5")])
def test_a_gpu_is_chosen_by_its_number(
    visible: str | None, number: int, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is changed in this process comes back: monkeypatch knows the variable before it is changed.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "0")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    choose_device(number)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
    with pytest.raises(ParityError, match="there is no GPU 7"):
        choose_device(7)


# --- with the real builder -------------------------------------------------------------------------------------------


def test_an_engine_for_a_range_of_shapes(package: Package, model: Path, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    assert build_engine(model, package, asked("trt?shapes=x:1x4..2x4..8x4", package), log_file=log).problem == ""
    assert "In input (x), minShape is not the same as maxShape" in log.read_text(encoding="utf-8")
    with pytest.raises(ParityError, match=r"is \?x4 in the model, 1x5 was asked for"):
        build_engine(model, package, asked("trt?shapes=x:1x5", package))


def test_gpus_to_build_for(package: Package, model: Path) -> None:
    one = build_engine(model, package, asked("trt?shapes=x:2x4&capability=8.9", package))
    two = build_engine(model, package, asked("trt?shapes=x:2x4&capability=8.9,12.0", package))
    assert one.plan is not None
    assert two.plan is not None
    assert one.plan != two.plan
    with pytest.raises(ParityError, match=r"does not know compute capability 9\.0") as caught:
        build_engine(model, package, asked("trt?shapes=x:2x4&capability=9.0", package))
    assert "8.9" in caught.value.fix


def test_what_this_builder_lacks(package: Package, model: Path) -> None:
    with pytest.raises(ParityError, match="has no build routes"):
        build_engine(model, package, asked("trt?shapes=x:2x4&build_route=-knob=1", package))
    # Refitting calls a GPU's compiler while the engine is built.
    built = build_engine(model, package, asked("trt?shapes=x:2x4&refit=on", package))
    assert (built.plan, "takes a GPU" in built.problem, "refit=on" in built.fix) == (None, True, True)
    # The flag exists; the lean runtime that it needs is no part of the wheel, and the builder's own words say so.
    options = replace(asked("trt?shapes=x:2x4", package), version_compatible=True)
    view = network_view(model, package, options)
    assert "libnvinfer_lean" in view.problem
    (refused,) = [one for one in find_in_view(view) if one.code == "EXP201"]
    assert any("tensorrt-lean" in repair.command for repair in refused.repairs)
    assert not [one for one in find_in_view(view) if one.code == "RUN202"]


def test_tf32_is_not_asked_for_where_the_environment_forbids_it(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with pytest.raises(ParityError, match="NVIDIA_TF32_OVERRIDE=0 switches TF32 off") as caught:
        asked("trt?tf32=on", TEN)
    assert "unset" in caught.value.fix
    assert not asked("trt", TEN).tf32
    done = in_a_process("network", str(model), "--shapes", "x:2x4", "--tf32")
    assert (done.returncode, "switches TF32 off" in done.stderr) == (2, True)


def test_shapes_that_are_no_inputs_or_do_not_cover_the_samples(package: Package, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="has no input 'X'; it has x") as caught:
        build_engine(model, package, asked("trt?shapes=X:2x4", package))
    assert "x:..." in caught.value.fix
    data = tmp_path / "data.npz"
    np.savez(data, x=np.zeros((3, 4), np.float32))
    done = in_a_process("network", str(model), "--inputs", str(data), "--candidate", "trt?shapes=x:1x4..2x4..2x4")
    assert done.returncode == 2
    assert "[1, 4] to [2, 4] of input 'x', sample 0 has [3, 4]" in done.stderr
    assert "shapes=x:3x4" in done.stderr
    check_covered(ranges_of("x:1x4..2x4..3x4"), [{"x": (3, 4)}])


@pytest.fixture
def config(package: Package, model: Path) -> Any:
    trt = package.module
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    held = builder.create_builder_config()
    return SimpleNamespace(held=held, builder=builder, logger=logger)


# TensorRT-RTX still has the calls of timing caches, and keeps nothing in them: the calls are real, what is held is not.
@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX")
def test_a_timing_cache_is_written_and_read_and_no_other_file_is_written_over(config: Any, tmp_path: Path) -> None:
    path = tmp_path / "timing.cache"
    options = TensorrtOptions(timing_cache=path)
    for _ in range(2):
        configuring.set_timing_cache(config.held, options)
        configuring.keep_timing_cache(config.held, options)
        assert path.stat().st_size > 50
    assert list(tmp_path.glob("timing.cache*")) == [path]
    path.write_bytes(b"another GPU's measurements " * 100)
    with pytest.raises(ParityError, match="is no timing cache of this GPU and version") as caught:
        configuring.set_timing_cache(config.held, options)
    assert "does not exist yet" in caught.value.fix
    with pytest.raises(ParityError, match="there is no folder"):
        configuring.set_timing_cache(config.held, TensorrtOptions(timing_cache=tmp_path / "gone" / "t"))


# The form of the description: BuildRouteKnobDatabase in trtexec of TensorRT 11.1.
KNOBS = {"tuner_version": "1", "tuner_options": [{"option": "-conv_use_long_w", "allowed_values": "[on|off]"}]}


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("-conv_use_long_w=off", ""),
        ("--conv_use_long_w=off", ""),
        ("conv_use_long_w=off", "is not -name=value"),
        ("-conv_use_long_w", "is not -name=value"),
        ("-conv_use_long=off", "has no knob -conv_use_long"),
        ("-conv_use_long_w=refused", "refuses build_route="),
    ],
)
def test_build_routes_by_the_knobs_that_are_described(route: str, said: str) -> None:
    class Config:
        all_build_routes = json.dumps(KNOBS)
        _route = ""

        @property
        def build_route(self) -> str:
            return self._route

        @build_route.setter
        def build_route(self, route: str) -> None:
            self._route = "" if "refused" in route else route

    config = Config()
    if not said:
        configuring.set_route(config, TensorrtOptions(build_route=route), ELEVEN)
        assert config.build_route == route
        return
    with pytest.raises(ParityError, match=said) as caught:
        configuring.set_route(config, TensorrtOptions(build_route=route), ELEVEN)
    assert "helpBuildRoute" in caught.value.fix or "-conv_use_long_w" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "said"), [(None, "there is no plugin library"), (b"no library", "cannot be loaded")]
)
def test_plugins_that_cannot_be_loaded(
    package: Package, model: Path, tmp_path: Path, content: bytes | None, said: str
) -> None:
    library = tmp_path / "plugin.so"
    if content is not None:
        library.write_bytes(content)
    with pytest.raises(ParityError, match=said) as caught:
        build_engine(model, package, TensorrtOptions(plugins=(library,)))
    assert caught.value.fix


def compiled(folder: Path, source: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "plugin.c").write_text(source, encoding="utf-8")
    library = folder / "plugin.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "plugin.c")], check=True)
    return library


def test_a_library_without_plugins(package: Package, model: Path, tmp_path: Path) -> None:
    library = compiled(tmp_path, "int nothing(void) { return 0; }")
    with pytest.raises(ParityError, match="registers no plugin"):
        build_engine(model, package, TensorrtOptions(plugins=(library,)))


# Dies as a faulty plugin does: in native code, with words on stderr first.
CRASH = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void load(void) { fprintf(stderr, "plugin 7 is faulty\\n"); abort(); }
"""


def test_a_native_crash_is_one_error_with_its_last_words(model: Path, tmp_path: Path) -> None:
    library = compiled(tmp_path, CRASH)
    target = parse_target(f"trt?product=rtx&build=only&shapes=x:2x4&plugins={quote(str(library))}")
    with (
        pytest.raises(ParityError, match="killed by SIGABRT") as caught,
        open_target(load_model(model), target, Capture()),
    ):
        pass
    assert "plugin 7 is faulty" in caught.value.where
    done = in_a_process("network", str(model), "--shapes", "x:2x4", "--candidate", f"trt?plugins={library}")
    assert done.returncode == 2
    assert "TensorRT crashed: its process was killed by SIGABRT" in done.stderr


# --- what is shown -----------------------------------------------------------------------------------------------------


def test_ways_to_look_by_version(package: Package) -> None:
    assert way_for("", package) == way_for("", ELEVEN) == way_for("", TEN) == "unfused"
    assert way_for("", OLD) == "outputs"
    assert way_for("debug", package) == "debug"
    with pytest.raises(ParityError, match="has no observe=debug"):
        way_for("debug", OLD)


def test_unfused_tensors_leave_the_engine_as_it_is(package: Package, model: Path) -> None:
    options = TensorrtOptions(shapes=ranges_of("x:2x4"))
    plain = build_engine(model, package, options)
    names = ("a", "b", "c")
    unfused = build_engine(model, package, options, marks=Marks(way="unfused", names=names))
    kernels = [[(layer.name, layer.nodes) for layer in built.log.layers] for built in (plain, unfused)]
    assert kernels[0] == kernels[1]
    # As an output a tensor has to be written: the engine has it, and is another one.
    shown = build_engine(model, package, options, marks=Marks(way="outputs", names=("b", "gone")))
    assert [tensor.name for tensor in shown.outputs] == ["y", "b"]
    assert dict(shown.marked.names) == {"b": "b"}
    assert [skip.what for skip in shown.marked.absent] == ["tensor gone"]
    debug = build_engine(model, package, options, marks=Marks(way="debug", names=("b",)))
    assert [tensor.name for tensor in debug.outputs] == ["y"]
    assert dict(debug.marked.names) == {"b": "b"}
    assert debug.plan != plain.plan


@given(
    floats=st.lists(st.integers(0, 40), unique=True, max_size=12),
    others=st.lists(st.integers(41, 60), unique=True, max_size=6),
    refused=st.sets(st.integers(0, 60), max_size=2),
)
def test_what_the_builder_refuses_to_show_is_left_out(floats: list[int], others: list[int], refused: set[int]) -> None:
    tried: list[tuple[str, ...]] = []

    def builds(names: Sequence[str]) -> tuple[str, ...] | None:
        tried.append(tuple(names))
        return None if any(int(name) in refused for name in names) else tuple(names)

    groups = [[str(number) for number in group] for group in (floats, others)]
    most = take_most(builds, groups)
    names = {name for group in groups for name in group}
    assert most.built is not None
    assert set(most.built) | set(most.left) == names
    assert not set(most.built) & set(most.left)
    assert not {int(name) for name in most.built} & refused
    if not refused & {int(name) for name in names}:
        assert (most.left, len(tried)) == ((), 1)
    if not refused & set(floats):
        # A bool or an integer that is refused costs no tensor of floating point.
        assert set(groups[0]) <= set(most.built)
    assert len(tried) <= 13


def test_a_builder_that_shows_nothing_still_builds() -> None:
    assert take_most(lambda names: None if names else "plain", [["a", "b"], ["c"]]).built == "plain"
    assert take_most(lambda _names: None, [["a"]]).built is None


def test_names_that_the_parser_gave() -> None:
    lines = [
        "[TRT] [V] Registering tensor: y_0 for ONNX tensor: y\n",
        "[TRT] [V] Registering tensor: b for ONNX tensor: b\n",
    ]
    assert registered_tensor_names(lines) == {"y": "y_0", "b": "b"}


# --- profiles ----------------------------------------------------------------------------------------------------------

SHAPES = st.lists(st.tuples(*[st.integers(1, 50)] * 3), min_size=1, max_size=8)


@given(SHAPES)
def test_a_range_of_samples_covers_each_and_no_size_beyond(shapes: list[tuple[int, int, int]]) -> None:
    found = ranges_of_samples([{"x": shape} for shape in shapes])["x"]
    assert all(found.covers(shape) for shape in shapes)
    assert found.usual == shapes[0]
    for axis in range(3):
        sizes = [shape[axis] for shape in shapes]
        assert (found.smallest[axis], found.largest[axis]) == (min(sizes), max(sizes))


def test_flags_of_trtexec() -> None:
    ranges = {
        "x": ShapeRange(smallest=(1, 3), usual=(2, 3), largest=(8, 3)),
        "m": ShapeRange(smallest=(1,), usual=(1,), largest=(1,)),
    }
    assert flags_for(ranges) == "--minShapes=x:1x3,m:1 --optShapes=x:2x3,m:1 --maxShapes=x:8x3,m:1"


# --- precisions of single layers, which only TensorRT up to 10 has: the logic without it ---------------------------------


@dataclass
class Layer:
    """A layer as `api.TypedLayer` describes it."""

    name: str
    metadata: str
    kinds: tuple[str, ...]
    reads_shape: bool = False
    precision: Any = None
    types: list[Any] = field(default_factory=list)

    @property
    def num_outputs(self) -> int:
        return len(self.kinds)

    @property
    def num_inputs(self) -> int:
        return 1

    def get_input(self, index: int) -> Any:
        assert index == 0
        return SimpleNamespace(is_shape_tensor=self.reads_shape)

    def get_output(self, index: int) -> Any:
        return SimpleNamespace(dtype=SimpleNamespace(name=self.kinds[index]))

    def set_output_type(self, index: int, dtype: Any) -> None:
        assert index == len(self.types)
        self.types.append(dtype)


def test_layers_are_asked_by_the_nodes_they_are_made_for() -> None:
    layers = [
        Layer("Conv_1", "[ONNX Layer: /head/Conv]", ("FLOAT",)),
        Layer("helper", "[ONNX Layer: /head/Shape]", ("INT64",)),
        Layer("(Unnamed Layer* 3) [Shuffle]", "", ("FLOAT",)),
        Layer("tail", "", ("FLOAT", "FLOAT")),
        Layer("scale", "[ONNX Layer: /head/Cast]", ("FLOAT",), reads_shape=True),
    ]
    wanted = [("/head/*", "f32"), ("tail", "f16")]
    assert ask_for(layers, wanted, {"f32": "FLOAT", "f16": "HALF"}) == ("Conv_1", "tail")
    assert [layer.precision for layer in layers] == ["FLOAT", None, None, "HALF", None]
    assert [layer.types for layer in layers] == [["FLOAT"], [], [], ["HALF", "HALF"], []]
    with pytest.raises(ParityError, match="names 'nobody'"):
        ask_for(layers, [("nobody", "f32")], {"f32": "FLOAT"})
    # Only integers have that name: a precision cannot be asked of them.
    with pytest.raises(ParityError, match="names '/head/Shape'"):
        ask_for(layers, [("/head/Shape", "f32")], {"f32": "FLOAT"})


def test_of_two_patterns_the_last_wins() -> None:
    wanted = (("/head/*", "f16"), ("/head/norm", "f32"))
    assert [wanted_of(name, wanted) for name in ("/head/norm", "/head/conv", "tail")] == ["f32", "f16", ""]


# --- types that were asked for --------------------------------------------------------------------------------------------

MIXED = """g (float[2] x) => (float[2] y) {
  [down] a = Cast<to = 10>(x) [half] b = Exp(a) [up] c = Cast<to = 1>(b) [single] y = Tanh(c) }"""


def engine_layer(name: str, dtype: str, *nodes: str) -> EngineLayer:
    output = EngineTensor(name=f"{name}.out", dtype=dtype)
    return EngineLayer(name=name, kind="kgen", inputs=(), outputs=(output,), nodes=nodes, told=True)


def test_what_the_file_asks_for_and_what_a_layer_writes(tmp_path: Path) -> None:
    path = tmp_path / "mixed.onnx"
    onnx.save(parser.parse_model(f"{HEAD} {MIXED}"), path)
    types = asked_of(name_all_nodes(path, {}).message, TensorrtOptions())
    assert types == {"down": "f16", "half": "f16", "up": "f32", "single": "f32"}
    assert requested_of(types, "") == "f16"
    layers = [
        engine_layer("fused", "Half", "down", "half"),
        # A node that asks for FP32 in a block that ends in one that asks for FP16: nothing is missed.
        engine_layer("ends in half", "Half", "single", "half"),
        # Asked for FP32, got FP16 inside of a fused block.
        engine_layer("{ForeignNode[up...single]}", "Half", "up", "single"),
        engine_layer("unknown", "Half", "elsewhere"),
    ]
    graph = tell_types_asked(executed_graph(layers, "f16"), types)
    assert [layer.asked for layer in graph.layers] == ["f16", "f16", "f32", ""]
    assert [layer.name for layer in layers_below_request(graph.layers)] == ["{ForeignNode[up...single]}"]


QUANTIZED = """g (float[2,4] x) => (float[2,4] y)
  <float[4,4] W = {1,2,3,4,0.1,1,0,0,0,0,1,0,0,0,0,1}, float s = {0.02}, int8 z = {0}> {
  [quantize_x] xq = QuantizeLinear(x, s, z) [x_back] xd = DequantizeLinear(xq, s, z)
  [quantize_w] wq = QuantizeLinear(W, s, z) [w_back] wd = DequantizeLinear(wq, s, z)
  [product] a = MatMul(xd, wd) [cut] b = Relu(a) [quantize_b] bq = QuantizeLinear(b, s, z)
  [b_back] bd = DequantizeLinear(bq, s, z) [second] c = MatMul(bd, wd) [last] y = Relu(c) }"""


def test_a_kernel_that_ends_in_a_quantizer_writes_what_it_was_asked_for(package: Package, tmp_path: Path) -> None:
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {QUANTIZED}'), tmp_path / "quantized.onnx")
    view = network_view(tmp_path / "quantized.onnx", package)
    assert view.problem == ""
    assert "int8" in {layer.stored for layer in view.executed.layers if "cut" in layer.nodes}
    assert not layers_below_request(view.executed.layers)
    assert (view.executed.requested, view.executed.executed) == ("f32", "f32")


def test_wishes_of_a_weakly_typed_build(tmp_path: Path) -> None:
    path = tmp_path / "mixed.onnx"
    onnx.save(parser.parse_model(f"{HEAD} {SMALL}"), path)
    options = asked("trt:f16?layers=soft:f32", TEN)
    types = asked_of(name_all_nodes(path, {}).message, options)
    assert types == {"soft": "f32"}
    assert requested_of(types, options.precision) == "f16"
    graph = tell_types_asked(executed_graph([engine_layer("all", "Half", "product", "cut", "soft")], "f16"), types)
    assert [layer.name for layer in layers_below_request(graph.layers)] == ["all"]


def test_a_strongly_typed_build_keeps_what_was_asked(package: Package, tmp_path: Path) -> None:
    path = tmp_path / "mixed.onnx"
    onnx.save(parser.parse_model(f"{HEAD} {MIXED}"), path)
    view = network_view(path, package)
    assert view.problem == ""
    assert (view.executed.requested, view.executed.executed) == ("f16", "f16")
    assert not layers_below_request(view.executed.layers)


def test_a_layer_below_its_request_is_a_finding() -> None:
    from parityscope.checks import known_checks
    from parityscope.checks.asking import ask_check
    from parityscope.records import ExecutedGraph

    graph = tell_types_asked(
        executed_graph([engine_layer("{ForeignNode[a...b]}", "Half", "a", "b")], "f32"), {"a": "f32"}
    )
    known: Any = SimpleNamespace(executed_graph=graph, outputs=(SimpleNamespace(grade="f16"),), places={}, number=1)
    check = known_checks()["CST001"]
    (proposal,) = (one for one in ask_check(check, known) if "layers" in one.experiment.claim)
    found = proposal.test().finding
    assert found is not None
    assert found.role == "cause"
    assert found.details == {"layers": ["{ForeignNode[a...b]}"], "nodes": ["a", "b"]}
    known.outputs = (SimpleNamespace(grade="f32"),)  # the nodes inside may have been computed as asked
    (proposal,) = (one for one in ask_check(check, known) if "layers" in one.experiment.claim)
    quiet = proposal.test().finding
    assert quiet is not None
    assert (quiet.role, quiet.share) == ("contributing", None)
    for silent in (None, ExecutedGraph(layers=()), executed_graph([engine_layer("x", "Half", "a")], "f32")):
        known.executed_graph = silent
        assert [one for one in ask_check(check, known) if "layers" in one.experiment.claim] == []


def test_products_that_round_to_tf32() -> None:
    from parityscope.backends.tensorrt.network import described_by

    kernel = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
    layer = replace(engine_layer("conv", "Float", "a"), tactic=kernel)
    told = described_by(TensorrtOptions(), {"a": "f32"})([layer])
    # It was switched off, and the kernel's name says that it is used all the same.
    assert (told.requested, told.executed, told.layers[0].precision, told.layers[0].stored) == (
        "f32",
        "tf32",
        "tf32",
        "f32",
    )
    asked_for = described_by(TensorrtOptions(tf32=True), {"a": "f32"})([engine_layer("conv", "Float", "a")])
    assert (asked_for.requested, asked_for.executed) == ("tf32", "tf32")


# A builder that dies in the middle of its work, as TensorRT does: its log is there up to the last line.
DYING = """
import os, signal, sys
from pathlib import Path
from parityscope.cli import guard_exit_code
from parityscope.cli.shell.contained import contain_work
log = Path(sys.argv[1])
def work():
    with log.open("w", buffering=1) as lines:
        lines.write("[TRT] [V] Timing Runner: node_7 (CaskConvolution)\\n")
        os.kill(os.getpid(), signal.SIGSEGV)
sys.exit(guard_exit_code(lambda: contain_work(work, log, "TensorRT")))
"""


def test_a_crash_in_the_middle_of_a_build_has_the_last_line_of_its_log(tmp_path: Path) -> None:
    words = [sys.executable, "-c", DYING, str(tmp_path / "build.log")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "killed by SIGSEGV" in done.stderr
    assert "node_7 (CaskConvolution)" in done.stderr
