"""MNN (Alibaba's engine for phones): the model is converted, then run on the CPU.

**Options**: `threads`. **Precision**: `mnn:f32` asks for high precision, `mnn:f16` for low, which is FP16 where the processor has
its arithmetic and FP32 elsewhere. **Observes** the tensors that are left after the converter fused and removed what it could.

MNN has no integers of 64 bits: such inputs are given as 32 bits and such outputs widened again. The command `mnnconvert` of the
package reports each conversion to its maker; the function that it calls does not, and is what is called here.

Sources: MNN's documentation, "Python API" (Interpreter, Session, Tensor) and "Model conversion"; read from version 3.6.1.
"""

# ruff: noqa: INP001 - a package of one file
from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from importlib import metadata, util
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.backends.targets import threads_of, with_option
from parityscope.errors import ParityError
from parityscope.installed import Arithmetic
from parityscope.private_folders import scratch_folder
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from parityscope.case import Model, Sample
    from parityscope.installed import Machine
    from parityscope.records import Target

__all__ = ["BACKEND"]

_PRECISIONS = {"": "high", "f32": "high", "f16": "low"}
_HALVES = ("asimdhp", "fp16")  # what Linux and ARM call FP16 arithmetic; x86-64's MNN computes in FP32
_TAKES = {"float32": "float32", "int32": "int32", "int64": "int32"}


def _probe() -> Probe:
    if util.find_spec("MNN") is None:
        return Probe(problem="MNN is not installed", fix="pip install mnn")
    return Probe(version=metadata.version("mnn"))


@contextlib.contextmanager
def _open(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    for value in model.inputs:
        if value.dtype not in _TAKES:
            raise ParityError(f"MNN takes no input of {value.dtype}: {value.name!r}", where=str(model.path))
    with scratch_folder("mnn") as folder, _to_stderr():
        engine = _converted(model, folder / "model.mnn")
        settings: dict[str, Any] = {"backend": "CPU", "precision": _PRECISIONS[target.precision]}
        settings["numThread"] = threads_of(target) or 1
        if capture.tensors:
            settings["saveTensors"] = tuple(capture.tensors)
        opened = engine.createSession(settings)
        shown = set(engine.getSessionOutputAll(opened))
    outputs = {value.name: value.dtype for value in model.outputs}
    kept = [name for name in capture.tensors if name in shown]

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        _feed(engine, opened, {value.name: sample.arrays[value.name] for value in model.inputs})
        engine.runSession(opened)
        found = {name: _array(engine.getSessionOutput(opened, name)) for name in dict.fromkeys((*outputs, *kept))}
        return {name: array.astype(outputs.get(name, array.dtype), copy=False) for name, array in found.items()}

    yield Session(
        run=run,
        absent=tuple(
            Skip(what=f"tensor {name}", reason="MNN's converter fused or removed it")
            for name in capture.tensors
            if name not in shown
        ),
        environment={"mnn": metadata.version("mnn"), "asked for": settings["precision"]},
    )


def _converted(model: Model, path: Path) -> Any:
    """The model as MNN's interpreter reads it.

    Raises:
        ParityError: the converter refuses it.
    """
    import _tools as tools  # the package's own name for its converter
    import MNN

    words = ["mnnconvert", "-f", "ONNX", "--modelFile", str(model.path), "--MNNModel", str(path), "--bizCode", "mnn"]
    tools.mnnconvert([*words, "--keepInputFormat", "1"])
    if not path.is_file():
        raise ParityError(
            "MNN's converter refuses the model", where=str(model.path), fix="read what it says above, on standard error"
        )
    return MNN.Interpreter(str(path))


def _feed(engine: Any, opened: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Gives a session its inputs, whose sizes it takes on."""
    import MNN

    slots = engine.getSessionInputAll(opened)
    arrays = {name: np.ascontiguousarray(array, _TAKES[array.dtype.name]) for name, array in arrays.items()}
    sizes = {
        name: array.shape for name, array in arrays.items() if name in slots and slots[name].getShape() != array.shape
    }
    for name, shape in sizes.items():
        engine.resizeTensor(slots[name], shape)
    if sizes:
        engine.resizeSession(opened)
    for name, array in arrays.items():
        if name in slots:  # one that nothing reads is gone
            slots[name].copyFrom(MNN.Tensor(array.shape, _kind(array), array, MNN.Tensor_DimensionType_Caffe))


def _array(tensor: Any) -> np.ndarray:
    """What a tensor of the session holds, in the order that ONNX has: float32 or int32."""
    import MNN

    shape = tensor.getShape()
    held = np.zeros(shape, np.float32 if tensor.getDataType() == MNN.Halide_Type_Float else np.int32)
    copy = MNN.Tensor(shape, _kind(held), held, MNN.Tensor_DimensionType_Caffe)
    tensor.copyToHostTensor(copy)
    return np.array(copy.getNumpyData(), held.dtype).reshape(shape)


def _kind(array: np.ndarray) -> Any:
    import MNN

    return MNN.Halide_Type_Float if array.dtype == np.float32 else MNN.Halide_Type_Int


@contextlib.contextmanager
def _to_stderr() -> Iterator[None]:
    """What the library prints while it works goes where messages go: standard output is the command's result."""
    sys.stdout.flush()
    held = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(held, 1)
        os.close(held)


def _switched(target: Target) -> Iterator[Target]:
    yield with_option(target, "threads", "1")
    if target.precision == "f16":
        yield replace(target, precision="f32")


def _arithmetic(machine: Machine) -> Iterator[Arithmetic]:
    half = any(name in machine.features for name in _HALVES)
    yield Arithmetic(target="mnn", computes="f32", tf32="none", because="Parityscope asks for high precision")
    why = f"this CPU has {'' if half else 'no '}FP16 arithmetic that MNN uses"
    yield Arithmetic(target="mnn:f16", computes="f16" if half else "f32", tf32="none", because=why)


BACKEND = Backend(
    name="mnn",
    title="MNN (CPU)",
    words="MNN",
    called=("alibaba-mnn",),
    options={"threads": "inference threads (default 1)"},
    precisions=("f32", "f16"),
    observes=True,
    probe=_probe,
    open=_open,
    isolated=True,
    plain=frozenset({"threads"}),
    package="mnn",
    tries_repairs=True,
    converts=True,
    switched=_switched,
    settings={
        "f32": 'interpreter.createSession({"backend": "CPU", "precision": "high"})',
        "f16": 'interpreter.createSession({"backend": "CPU", "precision": "low"})',
    },
    arithmetic=_arithmetic,
)
