"""A range fault that is proved: keeping in FP32 what it names is tried, and the first screen shows before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from command_line import exit_status

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# Squares of 1e-3 are far below FP16's normal numbers: what leads to the guard is broken with it.
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> guarded (float[4, 64] x) => (float[4, 64] y) <float eps = {1e-10}> {
    p = Mul(x, x)  g = Add(p, eps)  l = Log(g)  y = Mul(l, l)
}"""


def test_what_a_proved_range_fault_names_is_kept_in_fp32_and_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(NETWORK), "m.onnx")
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    values[:, ::7], values[:, 1::7] = 0.0, values[:, 1::7] * 1e-3
    np.savez("x.npz", x=values)
    words = ("diagnose", "m.onnx", "--inputs", "x.npz", "--candidate", "fp16", "--study", "s", "--quiet")
    assert exit_status(*words) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "[RNG003, cause proved]" in text
    # What stands in brackets gives way where the screen would be too long.
    assert "Fix use s/repaired.onnx, where 3 of its 4 nodes stay in FP32" in text
    assert "; the change in it: keep Add#1 and what it guards in FP32" in text
    assert "parityscope verify" not in text  # a prediction: nothing runs there that could be verified
    assert "tried in simulation: NaN or infinite (fp16) -> " in text
    assert "within the limit " in text
    kept = onnx.load("s/repaired.onnx")
    types = {
        one.name: one.type.tensor_type.elem_type for one in onnx.shape_inference.infer_shapes(kept).graph.value_info
    }
    assert types["p"] == types["g"] == onnx.TensorProto.FLOAT
    assert exit_status("report", "s", "--lang", "zh") == 0
    assert "4个节点中有3个保持FP32" in "".join(capsys.readouterr().out.split())
    after = ("--before", "fp16", "--after", "sim?model=s/repaired.onnx", "--inputs", "x.npz")
    assert exit_status("verify", "m.onnx", *after, "--quiet") == 0


def test_what_overflows_in_the_same_way_elsewhere_is_kept_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = (
        "h{0} = MatMul({1}, w)  s{0} = Mul(h{0}, h{0})  m{0} = ReduceMean<axes = [1]>(s{0})  r{0} = Sqrt(m{0})"
        "  n{0} = Div(h{0}, r{0})  o{0} = Add(n{0}, x)"
    )
    layers = "  ".join(layer.format(at, f"o{at - 1}" if at else "x") for at in range(3))
    head = '<ir_version: 8, opset_import: ["" : 17]> deep (float[4, 64] x) => (float[4, 64] o2) <float[64, 64] w>'
    model = onnx.parser.parse_model(f"{head} {{ {layers} }}")
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((64, 64)).astype(np.float32) * 18  # squares overflow, and no mean of them
    del model.graph.initializer[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "m.onnx")
    np.savez("x.npz", x=rng.standard_normal((4, 64)).astype(np.float32))
    words = ("diagnose", "m.onnx", "--inputs", "x.npz", "--candidate", "fp16", "--study", "s", "--quiet")
    assert exit_status(*words) == 1
    said = " ".join(capsys.readouterr().out.split())
    # The squares overflow behind every product; none of the products has to stay.
    assert "use s/repaired.onnx, where 6 of its 18 nodes, 0 % of the FLOPs, stay in FP32" in said, said
