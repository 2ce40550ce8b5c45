"""What people wait for is told as soon as it is known: the verdict before layers are looked at, the place before causes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from examinations import examination_of
from parityscope.case import Case, load_inputs, load_model
from parityscope.records import Policy
from parityscope.study import examine_request

if TYPE_CHECKING:
    from pathlib import Path

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 8] x) => (float[4, 8] y) {
    a = MatMul(x, w) b = Relu(a) c = MatMul(b, v) y = Tanh(c)
}"""


def test_the_verdict_is_told_first_then_the_place(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    weights = {name: draw.normal(size=(8, 8)).astype(np.float32) / 3 for name in ("w", "v")}
    right = saved(tmp_path / "right.onnx", weights)
    wrong = saved(tmp_path / "wrong.onnx", {**weights, "v": weights["v"] * np.float32(1.1)})
    np.savez(tmp_path / "x.npz", x=draw.normal(size=(4, 8)).astype(np.float32))
    model = load_model(right)
    inputs = load_inputs(model, str(tmp_path / "x.npz"), spool=tmp_path / "spool")
    case = Case(name="told", model=model, inputs=inputs, policy=Policy(declared="f32"))
    lines: list[tuple[str, int]] = []
    asked = examination_of(case, f"ort?model={wrong}", folder=tmp_path / "tensors", depth="layers")
    document = examine_request(replace(asked, progress=lambda what, _step, steps: lines.append((what, steps))))
    told = [place for place, (_, steps) in enumerate(lines) if not steps]
    assert [lines[place][0].partition(":")[0] for place in told] == ["outputs", "where"]
    assert "output y: measured" in lines[told[0]][0]
    assert lines[told[1]][0].startswith("where: c introduces")
    stages = [what for what, steps in lines[: told[0]] if steps]
    assert set(stages) == {"comparing outputs", "predicting"}  # nothing of a layer was looked at before the verdict
    assert document["verdict"] == "beyond"


def saved(path: Path, weights: dict[str, np.ndarray]) -> Path:
    model = onnx.parser.parse_model(NETWORK)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, path)
    return path
