"""From a wish to an engine: what is built, with which marks, what is kept, and how far it comes without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import parser

from parityscope.backends import Capture
from parityscope.backends.gpu import find_driver
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.plan_cache import cache_folder
from parityscope.backends.tensorrt.sessions import Wish, engine_key, engine_of, open_built, open_existing
from parityscope.case import Model, Sample, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.backends.tensorrt.packages import Package

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
  <float[4,4] W = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
  [product] a = MatMul(x, W) [cut] b = Relu(a) [soft] c = Softmax(b) [last] y = Exp(c) }"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    onnx.save(parser.parse_model(TEXT), tmp_path / "model.onnx")
    return load_model(tmp_path / "model.onnx")


@pytest.fixture
def wish(model: Model, package: Package) -> Wish:
    return Wish(model=model, package=package, options=TensorrtOptions(), capture=Capture())


def kept() -> list[str]:
    return sorted(path.name for path in cache_folder().glob("*.plan"))


def test_an_engine_is_built_once_for_all_shapes(wish: Wish) -> None:
    shapes = [{"x": (2, 4)}, {"x": (5, 4)}]
    first = engine_of(wish, shapes)
    assert len(kept()) == 1
    # Its profile covers every shape between, so that no later session builds another.
    for size in (2, 3, 5):
        assert engine_of(wish, [{"x": (size, 4)}]).plan == first.plan
    assert len(kept()) == 1
    assert engine_of(wish, [{"x": (6, 4)}]).plan != first.plan
    assert len(kept()) == 2
    before = kept()
    engine_of(replace(wish, cached=False), [{"x": (9, 4)}])
    assert kept() == before


def test_what_makes_an_engine_another(wish: Wish, tmp_path: Path) -> None:
    keys = {
        engine_key(wish),
        engine_key(replace(wish, options=TensorrtOptions(tf32=True))),
        engine_key(replace(wish, options=TensorrtOptions(values={"x": np.zeros((1, 4), np.float32)}))),
        engine_key(replace(wish, capture=Capture(tensors=("b",)))),
        engine_key(replace(wish, capture=Capture(tensors=("b",)), observe="debug")),
        engine_key(replace(wish, capture=Capture(tensors=("a",)), observe="debug")),
    }
    assert len(keys) == 6
    # Every unfused tensor is shown by one engine, whichever of them a part of the recording asks for.
    assert engine_key(replace(wish, capture=Capture(tensors=("a",)))) in keys
    assert engine_key(replace(wish, options=TensorrtOptions(timing_cache=tmp_path / "t"))) in keys


def test_a_marked_engine_remembers_what_it_shows(wish: Wish) -> None:
    looking = replace(wish, capture=Capture(tensors=("b", "W")), observe="debug")
    for _ in range(2):  # built, then found again
        found = engine_of(looking, [{"x": (2, 4)}])
        assert found.facts["names"] == {"b": "b"}
        assert [skip["what"] for skip in found.facts["absent"]] == ["tensor W"]
    assert len(kept()) == 1


def test_a_refused_model_is_an_error(wish: Wish, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { [odd] y = Bernoulli(x) }'
    onnx.save(parser.parse_model(text), tmp_path / "odd.onnx")
    with pytest.raises(ParityError, match="Bernoulli") as caught:
        engine_of(replace(wish, model=load_model(tmp_path / "odd.onnx")), [{"x": (2,)}])
    assert "parityscope network" in caught.value.fix


def test_without_a_gpu_it_ends_where_the_engine_is_read(wish: Wish) -> None:
    if find_driver().gpus:
        pytest.skip("this machine has a GPU")
    known = replace(wish, capture=Capture(shapes=({"x": (2, 4)},)))
    with pytest.raises(ParityError, match="TensorRT cannot use the GPU") as caught, open_built(known):
        pass
    assert "doctor" in caught.value.fix
    plan = engine_of(known, [{"x": (2, 4)}]).plan
    with pytest.raises(ParityError, match="TensorRT cannot use the GPU"), open_existing(plan, "model.plan", known):
        pass
    # Shapes that nobody told beforehand are the first sample's.
    with open_built(wish) as session:
        assert session.inspect is not None
        with pytest.raises(ParityError, match="built when the first sample comes"):
            session.inspect()
        sample = Sample(index=0, name="first", arrays={"x": np.zeros((7, 4), np.float32)})
        with pytest.raises(ParityError, match="TensorRT cannot use the GPU"):
            session.run(sample)
    assert engine_of(wish, [{"x": (7, 4)}]).ranges["x"].usual == (7, 4)


@pytest.mark.parametrize(("target", "limits"), [("trt:f16", (14400.0, 14400.0)), ("trt:f16?timeout=30", (600.0, 30.0))])
def test_a_build_has_hours_unless_the_target_says_otherwise(
    target: str, limits: tuple[float, float], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float, str]] = []

    class Child:
        def __init__(self, *_: object) -> None: ...

        def ask(self, request: Mapping[str, object], limit: float, doing: str) -> Mapping[str, object]:
            asked.append((str(request["do"]), limit, doing))
            if request["do"] == "run":
                raise ParityError("enough")
            return {"disturbs": "none", "executed": None, "inspects": False, "absent": [], "environment": {}}

        def close(self) -> None: ...

    monkeypatch.setattr("parityscope.backends.child.Child", Child)
    sample = Sample(index=0, name="first", arrays={"x": np.zeros((1, 4), np.float32)})
    with open_target(model, parse_target(target), Capture()) as session, pytest.raises(ParityError, match="enough"):
        session.run(sample)
    (_, opening, doing), (_, running, _) = asked
    assert (opening, running) == limits
    assert ("or building its engine" in doing) == (limits[0] > 3600)
