"""The plumbing of a run: what goes to which address, and what is seen of memory that was not written.

No engine runs here. A context that conforms to `api.ExecutionContext` writes through the addresses that it is given, which
are of this process's memory; TensorRT's own listener and allocator classes are TensorRT-RTX's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import ml_dtypes
import numpy as np
import onnx
import pytest

from parityscope.backends.tensorrt.executing import EngineRun, run_once
from parityscope.backends.tensorrt.iotensors import IOFact, check_sample, covering_profile, io_facts
from parityscope.backends.tensorrt.listening import Heard
from parityscope.backends.tensorrt.loading import LoadedEngine
from parityscope.backends.tensorrt.marking import Marked
from parityscope.backends.tensorrt.memory import Device
from parityscope.backends.tensorrt.network import described_by
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.running import EngineQuestion, listen_to_context, open_engine
from parityscope.case import Sample, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from parityscope.backends.tensorrt.packages import Package

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")


class HostArray:
    """Memory with an address, as Polygraphy's DeviceArray has it."""

    def __init__(self, nbytes: int) -> None:
        self.held = np.zeros(nbytes, np.uint8)
        self.ptr = self.held.ctypes.data

    @classmethod
    def raw(cls, shape: tuple[int, ...]) -> HostArray:
        return cls(shape[0])

    def copy_from(self, content: np.ndarray, _stream: object) -> None:
        self.held[: content.nbytes] = content

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.held[:] = 0


def copy(dst: int, src: int, nbytes: int, kind: str) -> None:
    assert kind == "DeviceToHost"
    ctypes.memmove(dst, src, nbytes)


CUDA = SimpleNamespace(
    DeviceArray=HostArray,
    MemcpyKind=SimpleNamespace(DeviceToHost="DeviceToHost"),
    wrapper=lambda: SimpleNamespace(memcpy=copy, stream_synchronize=lambda _stream: None),
)


@dataclass
class Written:
    """A context whose work is a function of the bytes at its inputs' addresses: output name -> array."""

    work: Callable[[dict[str, int]], dict[str, np.ndarray]]
    shapes: dict[str, tuple[int, ...]]
    addresses: dict[str, int] = field(default_factory=dict)
    given: dict[str, tuple[int, ...]] = field(default_factory=dict)
    allocators: dict[str, Any] = field(default_factory=dict)

    def set_input_shape(self, name: str, shape: Any, /) -> bool:
        self.given[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int, /) -> bool:
        self.addresses[name] = memory
        return True

    def get_tensor_shape(self, name: str, /) -> tuple[int, ...]:
        return self.shapes[name]

    def set_output_allocator(self, name: str, keeper: Any) -> bool:
        self.allocators[name] = keeper
        return True

    def execute_async_v3(self, _stream: int, /) -> bool:
        for name, array in self.work(self.addresses).items():
            address = self.addresses.get(name, 0)
            if name in self.allocators:
                address = self.allocators[name].reallocate_output_async(name, 0, array.nbytes + 3, 256, 0)
                self.allocators[name].notify_shape(name, array.shape)
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
        return True


@contextlib.contextmanager
def working(package: Package, context: Written) -> Iterator[EngineRun]:
    with contextlib.ExitStack() as memory:
        device = Device(CUDA, SimpleNamespace(ptr=7, synchronize=lambda: None))
        yield EngineRun(package=package, context=context, device=device, memory=memory, where="model.plan")


X = IOFact(name="x", is_input=True, dtype="float32", shape=(2, 2))
N = IOFact(name="n", is_input=True, dtype="int64", shape=(1,), host=True)
Y = IOFact(name="y", is_input=False, dtype="bfloat16", shape=(2, 2))
Z = IOFact(name="z", is_input=False, dtype="int64", shape=(1,), host=True)
SAMPLE = Sample(
    index=0,
    name="first",
    # Not contiguous, and in another order than the engine's.
    arrays={"n": np.array([3]), "x": np.arange(4, dtype=np.float32).reshape(2, 2).T},
)


def at(address: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(address, count), dtype=dtype).reshape(shape)


def test_inputs_and_outputs_go_by_name(package: Package) -> None:
    def work(where: dict[str, int]) -> dict[str, np.ndarray]:
        doubled = (at(where["x"], "float32", (2, 2)) * 2).astype(ml_dtypes.bfloat16)
        return {"y": doubled, "z": at(where["n"], "int64", (1,)) + 1}

    context = Written(work=work, shapes={"y": (2, 2), "z": (1,)})
    with working(package, context) as held:
        found = run_once(held, (X, N, Y, Z), SAMPLE)
    assert found["y"].dtype == ml_dtypes.bfloat16
    assert found["y"].astype(np.float32).tolist() == [[0, 4], [2, 6]]
    assert found["z"].tolist() == [4]
    assert context.given == {"x": (2, 2), "n": (1,)}


def test_an_output_that_is_not_written_is_seen(package: Package) -> None:
    def nothing(_where: dict[str, int]) -> dict[str, np.ndarray]:
        return {"z": np.array([1])}

    context = Written(work=nothing, shapes={"y": (2, 2), "z": (1,)})
    with working(package, context) as held, pytest.raises(ParityError, match="wrote nothing into output 'y'") as caught:
        run_once(held, (X, N, Y, Z), SAMPLE)
    assert caught.value.fix


def test_an_output_that_is_written_in_part_shows_nan(package: Package) -> None:
    def half(_where: dict[str, int]) -> dict[str, np.ndarray]:
        return {"y": np.zeros(2, ml_dtypes.bfloat16), "z": np.array([1])}

    context = Written(work=half, shapes={"y": (2, 2), "z": (1,)})
    with working(package, context) as held:
        found = run_once(held, (X, N, Y, Z), SAMPLE)
    assert np.isnan(found["y"].astype(np.float32)).tolist() == [[False, False], [True, True]]


def test_an_output_whose_shape_the_run_decides(package: Package) -> None:
    def some(_where: dict[str, int]) -> dict[str, np.ndarray]:
        return {"y": np.ones((3, 2), ml_dtypes.bfloat16)}

    context = Written(work=some, shapes={"y": (-1, 2)})
    with working(package, context) as held:
        found = run_once(held, (X, N, Y), SAMPLE)
    assert found["y"].astype(np.float32).tolist() == [[1, 1]] * 3


def test_a_failure_of_the_run_is_an_error(package: Package) -> None:
    context = Written(work=lambda _where: {}, shapes={"y": (2, 2)})
    context.execute_async_v3 = lambda _stream, /: False  # type: ignore[method-assign] # TensorRT says no
    with working(package, context) as held, pytest.raises(ParityError, match="failed while running sample first"):
        run_once(held, (X, N, Y), SAMPLE)


@dataclass
class Told:
    """What a context is told about showing."""

    listener: Any = None
    all_shown: bool = False
    unfused_tensors_debug_state: bool = False

    def set_debug_listener(self, listener: Any) -> bool:
        self.listener = listener
        return True

    def set_all_tensors_debug_state(self, shown: bool) -> bool:
        self.all_shown = shown
        return True


def test_tensorrts_own_listener_hands_over_what_is_shown(package: Package, tmp_path: Path) -> None:
    heard = Heard(names={"engine_b": "b", "engine_h": "h"}, budget=1 << 20, folder=tmp_path)
    context = Told()
    device = Device(CUDA, SimpleNamespace(ptr=7, synchronize=lambda: None))
    listener = listen_to_context(package, context, heard, device)
    assert (context.listener, context.all_shown) == (listener, True)
    assert context.unfused_tensors_debug_state is True
    trt = package.module
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    places = (
        (capsule(array.ctypes.data, None, None), trt.TensorLocation.DEVICE),
        (array.ctypes.data, trt.TensorLocation.HOST),
    )
    for address, location in places:
        assert listener.process_debug_tensor(address, location, trt.DataType.BF16, trt.Dims([2]), "engine_b", 0) is True
    assert (
        listener.process_debug_tensor(0, trt.TensorLocation.DEVICE, trt.DataType.FP4, trt.Dims([2]), "other", 0) is True
    )
    assert {name: found.astype(np.float32).tolist() for name, found in heard.arrays.items()} == {
        "b": [1.5, -2],
        "b#1": [1.5, -2],
    }
    assert heard.unknown == {"other"}


# --- a whole session, over memory of this process -------------------------------------------------------------------------

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) { [cut] h = Relu(x) [last] y = Exp(h) }"""
INSPECTED = {
    "Layers": [
        {
            "Name": "cut_myl0_0",
            "LayerType": "kgen",
            "Inputs": [{"Name": "x", "Dimensions": [2, 2], "Datatype": "Float"}],
            "Outputs": [{"Name": "__mye_h", "Dimensions": [2, 2], "Datatype": "Half"}],
            "TacticName": "__myl_Relu",
            "Metadata": "[ONNX Layer: cut]",
        },
        {
            "Name": "last_myl0_1",
            "LayerType": "kgen",
            "Inputs": [{"Name": "__mye_h", "Dimensions": [2, 2], "Datatype": "Half"}],
            "Outputs": [{"Name": "y", "Dimensions": [2, 2], "Datatype": "Float"}],
            "TacticName": "__myl_Exp",
            "Metadata": "[ONNX Layer: last]\x1e[ONNX Layer: last]",
        },
    ],
    "I/O Tensors": [],
}


@dataclass
class Shown(Written):
    """A context that also shows a tensor, through the listener that it was given."""

    trt: Any = None
    listener: Any = None
    unfused_tensors_debug_state: bool = False

    def set_debug_listener(self, listener: Any) -> bool:
        self.listener = listener
        return True

    def set_all_tensors_debug_state(self, _shown: bool) -> bool:
        return True

    def execute_async_v3(self, stream: int, /) -> bool:
        held = np.maximum(at(self.addresses["x"], "float32", (2, 2)), 0).astype(np.float16)
        if self.listener is not None:
            place, kind = self.trt.TensorLocation.DEVICE, self.trt.DataType.HALF
            self.listener.process_debug_tensor(held.ctypes.data, place, kind, self.trt.Dims([2, 2]), "__mye_h", 0)
        return super().execute_async_v3(stream)


@dataclass
class Whole:
    """An engine as `api.Engine` has it, with a context over memory of this process."""

    context: Any
    knows: tuple[str, ...] = ("__mye_h",)
    num_io_tensors: int = 2
    num_optimization_profiles: int = 1

    def get_tensor_name(self, index: int, /) -> str:
        return ("x", "y")[index]

    def get_tensor_mode(self, name: str, /) -> Any:
        return SimpleNamespace(name="INPUT" if name == "x" else "OUTPUT")

    def get_tensor_dtype(self, _name: str, /) -> Any:
        return SimpleNamespace(name="FLOAT")

    def get_tensor_shape(self, _name: str, /) -> tuple[int, ...]:
        return (2, 2)

    def get_tensor_format(self, _name: str, /) -> Any:
        return SimpleNamespace(name="LINEAR")

    def get_tensor_format_desc(self, _name: str, /) -> str:
        return "Row major linear FP32 format"

    def get_tensor_location(self, _name: str, /) -> Any:
        return SimpleNamespace(name="DEVICE")

    def get_tensor_profile_shape(self, _name: str, _profile: int, /) -> list[tuple[int, ...]]:
        raise AssertionError("nothing here is dynamic")

    def is_shape_inference_io(self, _name: str, /) -> bool:
        return False

    def is_debug_tensor(self, name: str) -> bool:
        return name in self.knows

    def create_execution_context(self) -> Any:
        return self.context

    def create_engine_inspector(self) -> Any:
        # TensorRT joins the parts of a fused layer's metadata by a raw 0x1E, which strict JSON refuses (NVIDIA/TensorRT#2779).
        text = json.dumps(INSPECTED).replace("\\u001e", "\x1e")
        return SimpleNamespace(get_engine_information=lambda _form: text)


@pytest.mark.parametrize(
    ("knows", "marked"),
    # What was marked as unfused "cannot be detected by is_debug_tensor()": the documentation of TensorRT-RTX's binding.
    [(("__mye_h",), Marked()), ((), Marked(names={"h": "h", "gone": "gone"}, unfused=True))],
)
def test_a_session_shows_what_lies_between_kernels(
    knows: tuple[str, ...], marked: Marked, package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def device() -> Iterator[Device]:
        yield Device(CUDA, SimpleNamespace(ptr=7, synchronize=lambda: None))

    monkeypatch.setattr("parityscope.backends.tensorrt.running.opened_device", device)
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")

    def work(where: dict[str, int]) -> dict[str, np.ndarray]:
        return {"y": np.exp(np.maximum(at(where["x"], "float32", (2, 2)), 0))}

    context = Shown(work=work, shapes={"y": (2, 2)}, trt=package.module)
    loaded = LoadedEngine(runtime=None, engine=Whole(context=context, knows=knows), words=())
    asked = EngineQuestion(
        describe=described_by(TensorrtOptions(), {"cut": "f32", "last": "f32"}),
        tensors=("h", "gone"),
        marked=marked,
        disturbs="unfused tensors shown",
        summary=tmp_path / "ranges.json",
    )
    sample = Sample(index=0, name="first", arrays={"x": np.array([[-1, 0.5], [2, -3]], np.float32)})
    with open_engine(loaded, package, model, asked) as session:
        for _ in range(2):
            found = session.run(sample)
        assert session.executed is not None
        assert [layer.asked for layer in session.executed.layers] == ["f32", "f32"]
        assert [layer.stored for layer in session.executed.layers] == ["f16", "f32"]
        assert [skip.what for skip in session.absent] == ["tensor gone"]
    assert sorted(found) == ["h", "y"]
    assert found["h"].tolist() == [[0, 0.5], [2, 0]]
    assert found["y"].tolist() == np.exp(np.array([[0, 0.5], [2, 0]], np.float32)).tolist()
    (ranges,) = json.loads((tmp_path / "ranges.json").read_text(encoding="utf-8"))["tensors"]
    assert (ranges["name"], ranges["statistics"]["max"], ranges["statistics"]["occurrences"]) == ("h", 2, 2)


@dataclass
class Several(Whole):
    """An engine with two optimization profiles: one row, and two to four."""

    num_optimization_profiles: int = 2

    def get_tensor_shape(self, _name: str, /) -> tuple[int, ...]:
        return (-1, 2)

    def get_tensor_profile_shape(self, _name: str, profile: int, /) -> list[tuple[int, ...]]:
        return [[(1, 2), (1, 2), (1, 2)], [(2, 2), (3, 2), (4, 2)]][profile]


def test_the_profile_that_covers_a_sample_is_chosen() -> None:
    engine = Several(context=None)
    profiles = [io_facts(engine, number) for number in range(2)]
    rows = {count: covering_profile(profiles, {"x": np.zeros((count, 2), np.float32)}) for count in (1, 2, 4, 5)}
    assert rows == {1: 0, 2: 1, 4: 1, 5: 0}
    with pytest.raises(ParityError, match="profile covers"):
        check_sample(profiles[0], {"x": np.zeros((5, 2), np.float32)}, "fifth", "model.plan")
