"""NaN and maxima: a candidate that hands NaN on, as GPUs do, is not charged with what the replaying CPU loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from one_sample import one_sample
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import parse_target
from parityscope.case import load_model
from parityscope.localization import inject_errors, localize

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.records import Localization
    from parityscope.trace import Trace

# x - 6 is 0 in FP16 where x rounds to 6: log(0) is minus infinity there, and minus infinity minus itself is NaN.
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,16] x) => (float[1,1] y, float[1,1,2] p) {
  six = Constant<value_float = 6.0>()
  d = Sub(x, six)
  l = Log(d)
  n = Sub(l, l)
  s = Add(n, x)
  r = Relu(s)
  m = MaxPool<kernel_shape = [8], strides = [8]>(r)
  p = Mul(m, m)
  axes = Constant<value_ints = [2]>()
  top = ReduceMax<axes = [2], keepdims = 0>(s)
  y = Tanh(top)
}"""
X = np.linspace(7.0, 9.0, 16, dtype=np.float32).reshape(1, 1, 16)
X[0, 0, 3] = 6.001
MAXIMA = ("m", "top")


def found_in(folder: Path, target: str) -> tuple[Localization, Mapping[str, np.ndarray]]:
    """The localization and the candidate's tensors."""
    path = folder / "model.onnx"
    proto = onnx.parser.parse_model(TEXT)
    onnx.save(proto, path)
    model = load_model(path)
    inputs = one_sample({"x": X})

    def traced(text: str) -> Trace:
        request = RecordingRequest(
            samples=(0,), tensors=tuple(observable_tensors(model)), folder=folder / text[:3], label=text[:3]
        )
        return record_trace(model, inputs, parse_target(text), request)

    reference, candidate = traced("ort"), traced(target)
    pairing = {name: name for name in reference.names if candidate.has(0, name)}
    localized = localize(model, inputs, reference, candidate, pairing)
    localized = inject_errors(model, inputs, reference, candidate, pairing, localized, 0)
    return localized, {name: candidate.get(0, name) for name in pairing}


def test_what_a_maximum_hands_on_is_no_error_of_its_own(tmp_path: Path) -> None:
    found, tensors = found_in(tmp_path, "sim:f16")
    suspects = {suspect.site.tensor: suspect for suspect in found.suspects}
    assert all(np.isnan(tensors[name]).any() for name in (*MAXIMA, "y", "p"))
    # The replay's own runtime loses what is handed on: without more, the maxima would be charged with it.
    alone = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,16] r) => (float[1,1,2] m)'
        "{ m = MaxPool<kernel_shape = [8], strides = [8]>(r) }"
    )
    lost = open_session(onnx_graph(alone, tmp_path), outputs=["m"])({"r": tensors["r"]})["m"]
    assert not np.isnan(lost).any()
    for name in MAXIMA:
        assert suspects[name].introduced_nonfinite == 0
        assert suspects[name].introduced == 0.0
    # NaN is an error of the values, which the first of them inherited from a rounding of x.
    assert suspects["l"].introduced_nonfinite == 0
    assert found.suspects[0].site.tensor not in MAXIMA


def test_a_candidate_that_loses_it_is_replayed_as_it_stands(tmp_path: Path) -> None:
    other = onnx.parser.parse_model(TEXT.replace("value_float = 6.0", "value_float = 6.001"))
    onnx.save(other, tmp_path / "other.onnx")
    found, tensors = found_in(tmp_path, f"ort?model={tmp_path / 'other.onnx'}")
    assert np.isnan(tensors["s"]).any()
    assert not np.isnan(tensors["m"]).any()
    suspects = {suspect.site.tensor: suspect for suspect in found.suspects}
    assert suspects["m"].introduced == 0.0


def onnx_graph(proto: onnx.ModelProto, folder: Path) -> ir.Model:
    onnx.save(proto, folder / "alone.onnx")
    return load_model(folder / "alone.onnx").graph()
