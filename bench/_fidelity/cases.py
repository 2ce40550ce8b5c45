"""The models and the inputs that predictions are measured on."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.arithmetic.typed import typed_model
from parityscope.case import Sample
from parityscope.case.model import load_model
from proving.models.efficientnet import efficientnet_lite0
from proving.models.fetching import fetch, model_path
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.arithmetic import Format
    from parityscope.case import Model

_SMALL = 64  # elements: numbers that say how to compute (an epsilon, a factor of 0.5) are exact for a reason


def drawn(model: Model, sample: Sample, number: int, number_format: Format, folder: Path) -> tuple[Model, Sample]:
    """The network and its sample moved, so that an engine's roundings fall otherwise; number 0 is themselves.

    An engine has only its file to be moved by (the simulation draws its roundings: `expectation.drawing`). Parameters of
    more than 64 elements and inputs become x (1 + u z / 2), z normal and u the unit roundoff of the format: as far as a rounding
    moves a number on average (0.42 u). At 2 u the PP-OCRv4 recogniser in BF16 became another function in one draw of six. The
    model is written to `folder`, and beside it, as NAME.f16.onnx, its strongly typed FP16 copy.
    """
    if not number:
        return model, sample
    generator = np.random.default_rng((20261121, number))
    graph = _with_moved_parameters(prepare_copy(model.graph(), OLDEST), number_format, number)
    arrays = {
        name: _moved(array, number_format, generator) if array.dtype.kind == "f" else array
        for name, array in sample.arrays.items()
    }
    path = folder / f"{sample.name}-{number}.onnx"
    ir.save(graph, path)
    ir.save(typed_model(ir.load(path), "f16", {}).model, folder / f"{sample.name}-{number}.f16.onnx")
    return load_model(path), Sample(index=number, name=f"{sample.name}-{number}", arrays=arrays)


def _with_moved_parameters(model: ir.Model, number_format: Format, number: int) -> ir.Model:
    """`model` itself, its float32 parameters of more than 64 elements moved."""
    held = [value for graph in model.graphs() for value in graph.initializers.values()]
    for at, value in enumerate(held):
        array = None if value.const_value is None else value.const_value.numpy()
        if array is not None and array.dtype == np.float32 and array.size > _SMALL:
            moved = _moved(array, number_format, np.random.default_rng((20261121, number, at)))
            value.const_value = ir.tensor(moved, name=value.name)
    return model


def _moved(array: np.ndarray, number_format: Format, generator: np.random.Generator) -> np.ndarray:
    size = 0.5 * number_format.unit_roundoff
    return np.asarray(array * (1.0 + size * generator.standard_normal(array.shape, np.float32)), array.dtype)


def case(name: str) -> tuple[Model, Sample]:
    """A model of the catalogue with its sample, or NAME=MODEL.onnx+INPUT.npz."""
    title, _, files = name.partition("=")
    if files:
        path, _, data = files.partition("+")
        with np.load(data, allow_pickle=False) as arrays:
            held = dict(arrays)
        return load_model(path), Sample(index=0, name=title, arrays=held)
    if name in FURTHER:
        return FURTHER[name]()
    return load_model(model_path(name)), Sample(index=0, name=name, arrays=sample_of(name))


def pack(name: str, folder: Path) -> str:
    """Writes a model, its strongly typed FP16 copy and its input to `folder`; gives what names them to `case`."""
    model, sample = case(name)
    folder.mkdir(parents=True, exist_ok=True)
    path, data = folder / f"{name}.onnx", folder / f"{name}.npz"
    onnx.save(onnx.load(model.path), path)
    ir.save(typed_model(model.graph(), "f16", {}).model, folder / f"{name}.f16.onnx")
    np.savez(data, allow_pickle=False, **sample.arrays)
    return f"{name}={path}+{data}"


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Where models that are made here lie; it goes when the process ends."""
    return tempfile.TemporaryDirectory(prefix="parityscope-fidelity-")


def lite0() -> tuple[Model, Sample]:
    """EfficientNet-Lite0 on a photograph."""
    from PIL import Image

    path = efficientnet_lite0(Path(_scratch().name) / "lite0.onnx")
    with Image.open(fetch("chelsea")) as image:
        photo = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    pixels = (np.asarray(photo, np.float32).transpose(2, 0, 1)[None] - np.float32(127)) / np.float32(128)
    return load_model(path), Sample(index=0, name="lite0", arrays={"image": np.ascontiguousarray(pixels)})


def plcmos() -> tuple[Model, Sample]:
    """The judge of concealed packet loss (convolutions and two GRU), on speech: its own package's features.

    The logarithm of the spectrum's power over 20, of Hamming windows of 512 at 16 kHz every 256.
    """
    sound = sample_of("dnsmos")["input_1"][0, :48000].astype(np.float64)
    window = np.hamming(513)[:-1]
    frames = np.stack([sound[start : start + 512] * window for start in range(0, len(sound) - 512, 256)])
    features = np.log(np.maximum(np.abs(np.fft.rfft(frames)) ** 2, 1e-10)) / 20.0
    arrays = {
        "degraded_audio": features[None, None].astype(np.float32),
        "rater_embed": np.random.default_rng(5).normal(size=(1, 64)).astype(np.float32),
    }
    proto = onnx.load(model_path("plcmos"))
    for value in proto.graph.input:  # OpenVINO's CPU plugin wants the ranks that follow from these shapes
        for dim, size in zip(value.type.tensor_type.shape.dim, arrays[value.name].shape, strict=True):
            dim.dim_value = size
    path = Path(_scratch().name) / "plcmos.onnx"
    onnx.save(proto, path)
    return load_model(path), Sample(index=0, name="plcmos", arrays=arrays)


def noisy(name: str) -> tuple[Model, Sample]:
    """A model of sound whose sample is nowhere silent: white noise a hundredth as loud over it.

    Real recordings are like that. In silence the epsilon under a logarithm is all there is, and vanishes in FP16.
    """
    generator = np.random.default_rng(5)
    arrays = {
        key: (array + 1e-2 * np.abs(array).max() * generator.standard_normal(array.shape)).astype(array.dtype)
        for key, array in sample_of(name).items()
    }
    return load_model(model_path(name)), Sample(index=0, name=f"{name}-noisy", arrays=arrays)


# Beyond the catalogue's samples: another kind of network, other inputs.
FURTHER: Mapping[str, Callable[[], tuple[Model, Sample]]] = {
    "lite0": lite0,
    "plcmos": plcmos,
    "pitch-noisy": lambda: noisy("pitch"),
    "dnsmos-noisy": lambda: noisy("dnsmos"),
}
