"""Deployments with two or three faults at once, and their clean twins: small networks of random weights, with known answers.

`cases(seed)` gives each kind once, with weights and inputs of that seed; `planted` writes one to a folder and gives the words
of the command line that diagnose it. Faults are where they would be: in the file that the candidate runs (`ort`, `sim` and
`openvino` on an edited copy of the model), or in what was recorded of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    Arrays = Mapping[str, np.ndarray]
    Change = Callable[[Arrays, Arrays | None], Arrays]

_NOTHING: Arrays = MappingProxyType({})
_SAMPLES = 4

_TWO = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,8] a, float[2,8] b) => (float[2,6] y) {
  p = MatMul(a, wa)
  q = MatMul(b, wb)
  t = Tanh(q)
  s = Add(p, t)
  c = Clip(s, low, high)
  y = MatMul(c, wo)
}"""
_EXCHANGED = _TWO.replace("MatMul(a, wa)", "MatMul(b, wa)").replace("MatMul(b, wb)", "MatMul(a, wb)")
_CONV = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,16,16] x) => (float[1,24] y) {
  a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
  r = Clip(a, low, high)
  f = Flatten(r)
  y = MatMul(f, v)
}"""
_OTHER_MEAN = _CONV.replace("a = ", "xg = Mul(x, gain)\n  xo = Add(xg, offset)\n  a = ").replace("(x, w", "(xo, w")
_BGR = _CONV.replace("a = ", "xb = Gather<axis = 1>(x, order)\n  a = ").replace("(x, w", "(xb, w")
# The squares of one row are beyond FP16's range in some pixels of some images.
_NORM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,8,8] x) => (float[1,4,6] y) {
  a = Conv(x, w, b)
  h = Mul(a, scale)
  two = Constant<value_float = 2.0>()
  s = Pow(h, two)
  m = ReduceMean<axes = [2, 3], keepdims = 1>(s)
  e = Add(m, eps)
  q = Sqrt(e)
  n = Div(h, q)
  y = ReduceMax<axes = [3], keepdims = 0>(n)
}"""
_LOST = ("low, high)", "low)")

# The means and deviations of ImageNet.
_MEAN = np.array([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
_DEVIATION = np.array([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)
# What a deployment that normalises with 0.5 and 0.5 makes of inputs that were normalised for ImageNet; and BGR.
_ADDED: Arrays = MappingProxyType(
    {
        "gain": (_DEVIATION / 0.5).astype(np.float32),
        "offset": ((_MEAN - 0.5) / 0.5).astype(np.float32),
        "order": np.array([2, 1, 0]),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A deployment: the file it runs, as what, and what becomes of its outputs; and the codes to be named, in any order.

    Without `target` it is a recording of ONNX Runtime on that file, and `change(outputs, those of the sample before)` is what
    becomes of them. `explained` says whether nothing ought to be left.
    """

    model: str
    constants: Arrays
    samples: Sequence[Arrays]
    deployed: str
    target: str = ""
    declared: str = "f32"
    change: Change | None = None
    named: frozenset[str] = field(default_factory=frozenset)
    explained: bool = True


def cases(seed: int) -> dict[str, Planted]:
    """Every kind, with weights and inputs drawn from `seed`."""
    draw = np.random.default_rng(seed)
    return {**_of_two_inputs(draw), **_of_images(draw), **_of_halves(draw)}


def planted(case: Planted, folder: Path) -> list[str]:
    """Writes model, deployment and samples to `folder`; gives the words behind `parityscope diagnose`."""
    model = _written(case.model, case.constants, folder / "model.onnx")
    deployed = _written(case.deployed, {**case.constants, **_ADDED}, folder / "deployed.onnx")
    for number, arrays in enumerate(case.samples):
        write_npz(folder / "inputs" / f"{number:06d}.npz", arrays)
    candidate = f"{case.target}?model={deployed}" if case.target else f"saved?path={_recorded(case, deployed, folder)}"
    return [str(model), "--candidate", candidate, "--inputs", str(folder / "inputs"), "--declared", case.declared]


def _of_two_inputs(draw: np.random.Generator) -> dict[str, Planted]:
    constants = {
        **{name: _normal(draw, shape) for name, shape in (("wa", (8, 16)), ("wb", (8, 16)), ("wo", (16, 6)))},
        "low": np.array(0.0, np.float32),
        "high": np.array(3.0, np.float32),
    }
    samples = [{name: _normal(draw, (2, 8)) for name in "ab"} for _ in range(_SAMPLES)]

    def case(
        deployed: str, *named: str, target: str = "", declared: str = "f32", change: Change | None = None
    ) -> Planted:
        return Planted(
            model=_TWO,
            constants=constants,
            samples=samples,
            deployed=deployed,
            target=target,
            declared=declared,
            change=change,
            named=frozenset(named),
            explained=change is not _noisy,
        )

    absent = _EXCHANGED.replace("p = ", "z = Sub(a, a)\n  p = ").replace("MatMul(a, wb)", "MatMul(z, wb)")
    return {
        "exchanged bindings and a lost bound": case(_EXCHANGED.replace(*_LOST), "BND001", "FUS002", target="ort"),
        "exchanged bindings and TF32": case(_EXCHANGED, "BND001", "ACC001", target="sim:tf32"),
        "exchanged bindings and BF16 by a hint": case(_EXCHANGED, "BND001", "ACC001", target="openvino:bf16"),
        "exchanged bindings and a stale tail, recorded": case(_EXCHANGED, "BND001", "BND003", change=_stale_tail),
        "exchanged bindings and an input that never arrives, recorded": case(absent, "BND001", "BND002"),
        "exchanged bindings and noise, recorded": case(_EXCHANGED, "BND001", change=_noisy),
        "clean": case(_TWO, target="openvino:f32"),
        "clean, BF16 as declared": case(_TWO, target="openvino:bf16", declared="bf16"),
        "clean, recorded": case(_TWO),
    }


def _of_images(draw: np.random.Generator) -> dict[str, Planted]:
    constants = {
        "w": _normal(draw, (8, 3, 3, 3)),
        "b": _normal(draw, (8,)),
        "v": _normal(draw, (512, 24)) / np.float32(16.0),
        "low": np.array(0.0, np.float32),
        "high": np.array(6.0, np.float32),
    }
    samples = [{"x": ((_image(draw, 16) - _MEAN) / _DEVIATION).astype(np.float32)} for _ in range(_SAMPLES)]

    def case(deployed: str, *named: str, target: str, declared: str = "f32") -> Planted:
        return Planted(
            model=_CONV,
            constants=constants,
            samples=samples,
            deployed=deployed,
            target=target,
            declared=declared,
            named=frozenset(named),
        )

    lost = _OTHER_MEAN.replace(*_LOST)
    return {
        "another mean and TF32": case(_OTHER_MEAN, "PRE001", "ACC001", target="sim:tf32"),
        "BGR and a lost bound": case(_BGR.replace(*_LOST), "PRE001", "FUS002", target="ort"),
        "another mean, a lost bound and TF32": case(lost, "PRE001", "FUS002", "ACC001", target="sim:tf32"),
        "clean, TF32 as declared": case(_CONV, target="sim:tf32", declared="tf32"),
    }


def _of_halves(draw: np.random.Generator) -> dict[str, Planted]:
    weights = {"w": _normal(draw, (4, 3, 3, 3)), "b": _normal(draw, (4,))}
    samples = [{"x": _image(draw, 8).astype(np.float32)} for _ in range(_SAMPLES)]
    constants = {**weights, "scale": _scale(weights, samples), "eps": np.array(1e-3, np.float32)}
    return {
        "BGR and an activation beyond FP16": Planted(
            model=_NORM,
            constants=constants,
            samples=samples,
            deployed=_NORM.replace("a = Conv(x", "xb = Gather<axis = 1>(x, order)\n  a = Conv(xb"),
            target="sim:f16",
            declared="f16",
            named=frozenset({"PRE001", "RNG002"}),
        )
    }


def _scale(weights: Arrays, samples: Sequence[Arrays]) -> np.ndarray:
    """One for three columns; for the last what makes its squares go beyond FP16 in a quarter of the pixels that BGR gives."""
    run = open_session(
        _graph(_NORM, {**weights, "scale": np.ones((1, 4, 1, 1), np.float32), "eps": np.array(1e-3, np.float32)}),
        outputs=["a"],
    )
    sizes = [np.abs(run({"x": np.ascontiguousarray(sample["x"][:, ::-1])})["a"][:, 3]) for sample in samples]
    beyond = float(np.quantile(np.concatenate([size.ravel() for size in sizes]), 0.75))
    return np.array([1.0, 1.0, 1.0, np.sqrt(65504.0) / beyond], np.float32).reshape(1, 4, 1, 1)


def _stale_tail(found: Arrays, before: Arrays | None) -> Arrays:
    """An output of which the last seven elements are those of the run before; zero before the first."""
    value = found["y"].reshape(-1).copy()
    value[5:] = 0.0 if before is None else before["y"].reshape(-1)[5:]
    return {"y": value.reshape(found["y"].shape)}


def _noisy(found: Arrays, _: Arrays | None) -> Arrays:
    """Two per cent of noise, which nothing that is known makes; the same for the same output."""
    noise = np.random.default_rng(int(np.abs(found["y"]).sum() * 1e4)).normal(size=found["y"].shape)
    return {"y": (found["y"] * (1.0 + 0.02 * noise)).astype(np.float32)}


def _normal(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw.normal(size=shape).astype(np.float32)


def _image(draw: np.random.Generator, size: int) -> np.ndarray:
    return draw.integers(0, 256, size=(1, 3, size, size)) / 255.0


def _written(text: str, constants: Arrays, path: Path) -> Path:
    import onnx

    onnx.save(_message(text, constants), path)
    return path


def _graph(text: str, constants: Arrays) -> ir.Model:
    import onnx_ir as ir

    return ir.serde.deserialize_model(_message(text, constants))


def _message(text: str, constants: Arrays) -> onnx.ModelProto:
    """The model with those of the constants that it reads."""
    graph = parse_network(text).graph
    read = {name for node in graph.node for name in node.input} - {value.name for value in graph.input}
    return parse_network(text, {name: array for name, array in constants.items() if name in read})


def _recorded(case: Planted, deployed: Path, folder: Path) -> Path:
    run = open_session(load_model(deployed).graph(), folder=folder)
    before: Arrays | None = None
    for number, arrays in enumerate(case.samples):
        found = run(arrays)
        write_npz(
            folder / "recorded" / f"{number:06d}.npz", found if case.change is None else case.change(found, before)
        )
        before = found
    return folder / "recorded"
