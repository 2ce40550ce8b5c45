"""How large tensors are is known without weights, once for all who ask, and without a run where all fits anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from parityscope.backends import sizing
from parityscope.backends.sizing import plan_chunks, tensor_shapes, tensor_sizes
from parityscope.case import Model, Sample, load_model
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

NETWORK = """<ir_version: 9, opset_import: ["": 17]> g (float[N, 64] x) => (float[A, B] y) {
  a = MatMul(x, w)  b = Relu(a)  c = Exp(b)  d = Neg(c)  e = Abs(d)  f = Sqrt(e)  g1 = Reshape(f, s)
  h = Transpose(g1)  n = NonZero(h)  i = Cast<to = 1>(n)  y = Neg(i)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Model:
    generator = np.random.default_rng(5)
    weights = {"w": generator.standard_normal((64, 128)).astype(np.float32), "s": np.array([2, -1], np.int64)}
    write_network(tmp_path / "model.onnx", NETWORK, weights)
    return load_model(tmp_path / "model.onnx")


def sample() -> Sample:
    return Sample(index=0, name="0", arrays={"x": np.ones((4, 64), np.float32)})


def test_shapes_are_inferred_once_and_without_weights(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    infer = onnx.shape_inference.infer_shapes

    def counted(message: onnx.ModelProto, **options: bool) -> onnx.ModelProto:
        asked.append(message.ByteSize())
        return infer(message, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", counted)
    names = ["a", "g1", "n"]
    found = [tensor_shapes(model, sample(), names) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["a"] == (4, 128)
    assert found[0]["g1"] == (2, 256)
    assert found[0]["n"][0] == 2
    assert len(asked) == 1
    assert asked[0] < model.path.stat().st_size / 8


def test_nothing_runs_for_a_size_where_all_fits_anyway(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(model.sites)[:-2]  # the last but those is open
    opened: list[object] = []
    open_bytes = sizing.open_bytes

    def counted(*words: object, **options: object) -> object:
        opened.append(options)
        return open_bytes(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sizing, "open_bytes", counted)
    largest = 4 * 128 * 4
    assert tensor_sizes(model, sample(), names, 1 << 20)["n"] == largest
    assert plan_chunks(model, sample(), names, 1 << 20) == [tensor_sizes(model, sample(), names, 1 << 20)]
    assert not opened
    # It is in truth twice as large, which a limit that is close has to know.
    assert [*plan_chunks(model, sample(), names, len(names) * largest)[-1]] == ["n"]
    assert len(opened) == 1
    assert tensor_sizes(model, sample(), names)["n"] == 2 * largest
