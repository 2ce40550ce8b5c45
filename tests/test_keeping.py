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
    used = "use s/repaired.onnx, where 3 of its 4 nodes stay in FP32 (its types say so: build it without --fp16)"
    assert f"Fix {used}: keep Add#1 and what it guards in FP32" in text
    assert "verify m.onnx --before fp16 --after 'sim?model=s/repaired.onnx' --inputs x.npz" in text
    assert "tried in simulation: NaN or infinite (fp16) -> " in text
    assert "within the limit of " in text
    kept = onnx.load("s/repaired.onnx")
    types = {
        one.name: one.type.tensor_type.elem_type for one in onnx.shape_inference.infer_shapes(kept).graph.value_info
    }
    assert types["p"] == types["g"] == onnx.TensorProto.FLOAT
    assert exit_status("report", "s", "--lang", "zh") == 0
    assert "4个节点中有3个保持FP32" in "".join(capsys.readouterr().out.split())
    after = ("--before", "fp16", "--after", "sim?model=s/repaired.onnx", "--inputs", "x.npz")
    assert exit_status("verify", "m.onnx", *after, "--quiet") == 0
