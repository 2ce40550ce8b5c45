"""A small world that commands work on: a network that FP16 overflows in, a faulty deployment, samples, a chain, a program."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

_HIDDEN = 3e4  # reaches what FP16 cannot hold: there is something to find, to repair and to verify
NETWORK = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 8] x) => (float[1, 6] y) {
    a = MatMul(x, w)  b = Mul(a, big)  c = Tanh(a)  d = Add(b, c)  e = Mul(d, small)  f = MatMul(e, v)  y = Tanh(f) }"""
PIPELINE = """
inputs = "samples"
[[stage]]
name = "one"
model = "model.onnx"
candidate = "ort?model=deployed.onnx"
[[stage]]
name = "two"
model = "model.onnx"
candidate = "ort?optimization=disabled"
feeds = { x = "data.x" }
"""
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime as ort
source, sink = (Path(word) for word in sys.argv[1:])
session = ort.InferenceSession("deployed.onnx", providers=["CPUExecutionProvider"])
for path in sorted(source.glob("*.npz")):
    np.savez(sink / path.name, y=session.run(["y"], dict(np.load(path)))[0])
"""


def write_files(home: Path) -> None:
    draw = np.random.default_rng(7)
    constants = {
        "w": draw.normal(size=(8, 12)),
        "big": np.full(12, _HIDDEN),
        "small": np.full(12, 1 / _HIDDEN),
        "v": draw.normal(size=(12, 6)),
    }
    for name, text in {"model.onnx": NETWORK, "deployed.onnx": NETWORK.replace("Tanh(a)", "Sigmoid(a)")}.items():
        model = onnx.parser.parse_model(text)
        for constant, array in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), constant))
        onnx.save(model, home / name)
    (home / "samples").mkdir()
    for number in range(6):
        np.savez(home / "samples" / f"{number:03d}.npz", x=draw.normal(size=(1, 8)).astype(np.float32))
    (home / "chain.toml").write_text(PIPELINE, encoding="utf-8")
    (home / "infer.py").write_text(PROGRAM, encoding="utf-8")


def marked_processes(variable: str, mark: str) -> list[int]:
    """The living processes whose environment says `variable`=`mark`: a command that was started so, and all that it started."""
    needle = f"{variable}={mark}".encode()
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and needle in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found
