"""The founding case of Conv and Clip: a lost bound is named, and TF32 is acquitted because it is far too small."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.images import read_image
from parityscope.case.formats.npz import write_npz
from parityscope.case.imaging.recipe import Placing, Recipe, prepare_image
from parityscope.testing.networks import write_network
from proving.models.efficientnet import efficientnet_lite0
from proving.models.fetching import require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The public report's: a picture in (-0.5, 0.5), a convolution and a Clip, shown as a picture again. There it had 512 x 512.
PICTURE = """<ir_version: 8, opset_import: ["" : 17]>
picture (float[1,3,64,64] x) => (float[1,3,64,64] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  y = Clip(c, low, high)
}"""
# A classifier with ReLU6 behind its products and behind a convolution; TensorRT 10.12 loses the bound of the first kind.
PRODUCTS = """<ir_version: 8, opset_import: ["" : 17]>
products (float[2,3,8,8] x) => (float[2,10] y) {
  k = Conv<pads = [1, 1, 1, 1]>(x, w0)
  r = Clip(k, low, high)
  p = GlobalAveragePool(r)
  f = Flatten(p)
  a1 = MatMul(f, w1)
  b1 = Add(a1, c1)
  r1 = Clip(b1, low, high)
  a2 = MatMul(r1, w2)
  b2 = Add(a2, c2)
  r2 = Clip(b2, low, high)
  y = MatMul(r2, w3)
}"""
LITE0 = Recipe(
    input="image",
    placing=Placing(size=(224, 224), fit="central", kernel="bicubic-antialias", shorter=256),
    scale=1.0,
    mean=(127.0,),
    deviation=(128.0,),
)


def photograph() -> np.ndarray:
    """float32 (1, 3, 64, 64) in (-0.5, 0.5) on levels of 1/255."""
    rows, columns = np.mgrid[0:1:64j, 0:1:64j]
    channels = [0.5 + 0.5 * np.sin(9 * rows + 3 * columns), 0.5 + 0.5 * np.cos(7 * columns * rows), rows * columns]
    noise = np.random.default_rng(4).normal(0, 0.02, (3, 64, 64))
    return np.asarray(np.rint(np.clip(np.stack(channels) + noise, 0, 1) * 255)[None] / 255 - 0.5, np.float32)


def sharpening() -> np.ndarray:
    weights = (np.random.default_rng(4).normal(size=(3, 3, 3, 3)) * 0.15).astype(np.float32)
    weights[[0, 1, 2], [0, 1, 2], 1, 1] += 1
    return weights


def diagnosed(model: Path, inputs: Path, candidate: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    study = inputs.parent / f"study-{len(list(inputs.parent.iterdir()))}"
    line = ["diagnose", str(model), "--inputs", str(inputs), "--candidate", candidate, "--study", str(study)]
    code = exit_status(*line, "--format", "json", "--quiet", "--declared", "f32")
    said = capfd.readouterr()
    assert code in {0, 1}, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def acquitted(found: Mapping[str, Any]) -> dict[str, str]:
    """Why each arithmetic is refuted, by its name."""
    told = [one for one in found["refuted"] if one["experiment"]["check"] == "ACC001"]
    return {one["experiment"]["claim"].split(" in ")[1].split(",")[0]: one["because"] for one in told}


@pytest.mark.parametrize("way", ["recorded", "observed"])
def test_a_picture_whose_upper_bound_is_lost(way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    half = np.array(0.5, np.float32)
    constants = {"w": sharpening(), "low": np.negative(half), "high": half}
    model = write_network(tmp_path / "picture.onnx", PICTURE, constants)
    engine = write_network(tmp_path / "engine.onnx", PICTURE.replace("(c, low, high)", "(c, low)"), constants)
    write_npz(tmp_path / "x.npz", {"x": photograph()})
    candidate = f"ort?model={engine}"
    if way == "recorded":
        run = open_session(load_model(engine).graph(), outputs=["y"])
        write_npz(tmp_path / "y.npz", run({"x": photograph()}))
        candidate = f"saved?path={tmp_path / 'y.npz'}"
    found = diagnosed(model, tmp_path / "x.npz", candidate, capfd)
    first = found["findings"][0]
    assert (found["verdict"], first["role"], first["site"]["node"]) == ("beyond", "cause", "Clip#1")
    # A file of its own says it in its own words.
    assert first["code"] == ("FUS014" if way == "recorded" else "EXP005")
    assert ("= 0.5 left out" if way == "recorded" else "is given no max, which is 0.5") in first["claim"]
    # A picture that is 14 % off, and an arithmetic that makes 3.3e-4: 0.09 of a step of 8 bits at most.
    assert acquitted(found)["tf32"].endswith("times less")
    measured, explains = found["outputs"][0]["rel_l2"], found["outputs"][0]["expected"]["tf32"]
    assert explains < 5e-4 < 400 * explains < measured


def test_tf32_alone_is_told_as_tf32(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The other half of the acquittal: where the error is TF32's, its size says so, and it cannot be seen."""
    half = np.array(0.5, np.float32)
    model = write_network(
        tmp_path / "picture.onnx", PICTURE, {"w": sharpening(), "low": np.negative(half), "high": half}
    )
    write_npz(tmp_path / "x.npz", {"x": photograph()})
    found = diagnosed(model, tmp_path / "x.npz", "sim:tf32", capfd)
    assert found["outputs"][0]["grade"] == "tf32"
    assert found["outputs"][0]["max_abs"] < 1 / 255  # less than a step of a picture of 8 bits
    assert not acquitted(found)
    assert found["findings"][0]["code"] == "ACC001"
    assert not {"FUS002", "FUS014"} & {one["code"] for one in found["findings"]}


def products() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(8)
    constants = {
        "w0": draw.normal(size=(16, 3, 3, 3)) / 3,
        "w1": draw.normal(size=(16, 32)),
        "c1": draw.normal(2, 2, 32),
        "w2": draw.normal(size=(32, 24)) / 4,
        "c2": draw.normal(2, 2, 24),
        "w3": draw.normal(size=(24, 10)),
        "low": np.array(0),
        "high": np.array(2),
    }
    return {name: np.asarray(array, np.float32) for name, array in constants.items()}


def test_a_rule_of_a_fusion_is_named_as_a_rule(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """MatMul, Add and Clip lose the upper bound wherever they stand, and the Clip behind the convolution keeps its own."""
    model = write_network(tmp_path / "products.onnx", PRODUCTS, products())
    text = PRODUCTS.replace("(b1, low, high)", "(b1, low)").replace("(b2, low, high)", "(b2, low)")
    engine = open_session(load_model(write_network(tmp_path / "engine.onnx", text, products())).graph(), outputs=["y"])
    draw = np.random.default_rng(9)
    for number in range(2):
        x = {"x": draw.normal(1, 1, (2, 3, 8, 8)).astype(np.float32)}
        write_npz(tmp_path / "x" / f"{number}.npz", x)
        write_npz(tmp_path / "y" / f"{number}.npz", engine(x))
    found = diagnosed(model, tmp_path / "x", f"saved?path={tmp_path / 'y'}", capfd)
    first = found["findings"][0]
    assert (found["verdict"], first["code"], first["role"]) == ("beyond", "FUS014", "cause")
    assert "at each of 2 Clip behind Add: constant max left out" in first["claim"]
    assert first["details"]["places"] == ["r1", "r2"]
    # What the two read is given back, so that nothing is fused over it.
    assert first["repairs"][0]["repair"] == "barrier"
    assert '["b1", "b2"]' in first["repairs"][0]["command"]


@pytest.fixture(scope="module")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EfficientNet-Lite0 and a photograph, prepared."""
    folder = tmp_path_factory.mktemp("lite0")
    require("eff-weights")
    efficientnet_lite0(folder / "eff.onnx")
    write_npz(folder / "x" / "coffee.npz", {"image": prepare_image(LITE0, read_image(require("coffee")))})
    return folder


@pytest.mark.model
@pytest.mark.search_of(0.4)
def test_relu6_of_a_real_network_without_its_bound(
    lite0: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From outputs alone: which of 33 ReLU6 it is, and that TF32 is far too small to have done it."""
    deployed = onnx.load(lite0 / "eff.onnx")
    clips = [node for node in deployed.graph.node if node.op_type == "Clip"]
    assert len(clips) == 33
    del clips[31].input[2]
    run = open_session(ir.serde.deserialize_model(deployed), outputs=["logits"])
    for path in sorted((lite0 / "x").iterdir()):
        x = dict(np.load(path))
        write_npz(tmp_path / "y" / path.name, run(x))
        write_npz(tmp_path / "x" / path.name, x)
    found = diagnosed(lite0 / "eff.onnx", tmp_path / "x", f"saved?path={tmp_path / 'y'}", capfd)
    first = found["findings"][0]
    assert (found["verdict"], first["code"], first["role"]) == ("beyond", "FUS014", "cause")
    assert "constant max" in first["claim"]
    assert "left out" in first["claim"]
    assert first["site"]["tensor"] == clips[31].output[0]
    assert "tf32" in acquitted(found)


NAN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,64] x) => (float[1,64] y) {
  s = Sqrt(x)
  c = Clip(s, low, high)
  r = Relu(x)
  m = Max(c, r)
  y = Mul(m, gain)
}"""


def deploy_swallowing(x: np.ndarray, first: str) -> np.ndarray:
    """NAN's output where its Clip is made of C's fmax and fmin, and its Relu and Max hand NaN on."""
    low, high = np.float32(0.5), np.float32(1.2)
    with np.errstate(invalid="ignore"):
        root = np.sqrt(x)
    clip = np.fmin(np.fmax(root, low), high) if first == "low" else np.fmax(np.fmin(root, high), low)
    return np.asarray(np.maximum(clip, np.maximum(x, 0)) * np.float32(3))


@pytest.mark.parametrize("first", ["low", "high"])
def test_a_bound_is_made_of_nan(first: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    constants = {name: np.array(number, np.float32) for name, number in (("low", 0.5), ("high", 1.2), ("gain", 3))}
    path = write_network(tmp_path / "nan.onnx", NAN, constants)
    x = np.abs(np.random.default_rng(4).normal(size=(1, 64))).astype(np.float32)
    x[0, [5, 17]] = -1  # whose roots are NaN
    write_npz(tmp_path / "x.npz", {"x": x})
    answer = deploy_swallowing(x, first)
    # Both runtimes have the same NaN, and one of them makes three times a bound of it.
    np.testing.assert_allclose(answer[0, [5, 17]], 1.5 if first == "low" else 3.6, rtol=1e-6)
    write_npz(tmp_path / "y.npz", {"y": answer})
    found = diagnosed(path, tmp_path / "x.npz", f"saved?path={tmp_path / 'y.npz'}", capfd)
    cause = found["findings"][0]
    assert (found["verdict"], cause["code"], cause["role"], cause["site"]["node"]) == (
        "beyond",
        "FUS014",
        "cause",
        "Clip#1",
    )
    assert f"NaN becomes the {'lower' if first == 'low' else 'upper'} bound (swallowed)" in cause["claim"]
    assert "guard_nan" in [one["repair"] for one in cause["repairs"]]


@pytest.mark.search_of(0.1)
def test_other_numbers_than_a_bound_in_the_place_of_nan_are_not_said_to_be_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    constants = {name: np.array(number, np.float32) for name, number in (("low", 0.5), ("high", 1.2), ("gain", 3))}
    path = write_network(tmp_path / "nan.onnx", NAN, constants)
    x = np.linspace(-0.5, 2, 64, dtype=np.float32)[None]
    write_npz(tmp_path / "x.npz", {"x": x})
    answer = deploy_swallowing(x, "low")
    answer[x < 0] = 7
    write_npz(tmp_path / "y.npz", {"y": answer})
    found = diagnosed(path, tmp_path / "x.npz", f"saved?path={tmp_path / 'y.npz'}", capfd)
    assert found["verdict"] == "beyond"
    assert not [one for one in found["findings"] if one["role"] == "cause" and "swallowed" in one["claim"]]


# Four bounded products, of which a fusion's rule would take all or one.
FOUR = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,16] x) => (float[2,8] y) {
  m0 = MatMul(x, w0) a = Clip(m0, low, high)
  m1 = MatMul(a, w1) b = Relu(m1)
  m2 = MatMul(b, w2) c = Clip(m2, low, high)
  m3 = MatMul(c, w3) d = Clip(m3, low, high)
  y = MatMul(d, w4)
}"""


def four(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"w0": (16, 24), "w1": (24, 24), "w2": (24, 24), "w3": (24, 24), "w4": (24, 8)}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**weights, "low": np.array(0, np.float32), "high": np.array(6, np.float32)}


BOTH_ABOVE = (("a = Clip(m0, low, high)", "a = Clip(m0, low)"), ("d = Clip(m3, low, high)", "d = Clip(m3, low)"))


@pytest.mark.search_of(0.1)
def test_two_bounds_that_have_nothing_to_do_with_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = FOUR
    for edit in BOTH_ABOVE:
        text = text.replace(*edit)
    model = write_network(tmp_path / "four.onnx", FOUR, four(1))
    run = open_session(load_model(write_network(tmp_path / "lost.onnx", text, four(1))).graph(), outputs=["y"])
    draw = np.random.default_rng(101)
    for number in range(2):
        x = draw.normal(size=(2, 16)).astype(np.float32)
        write_npz(tmp_path / "x" / f"{number}.npz", {"x": x})
        write_npz(tmp_path / "y" / f"{number}.npz", run({"x": x}))
    found = diagnosed(model, tmp_path / "x", f"saved?path={tmp_path / 'y'}", capfd)
    causes = [one for one in found["findings"] if one["role"] == "cause"]
    assert {one["code"] for one in causes} == {"FUS014"}
    told = {place for one in causes for place in one["details"].get("places", [one["site"]["tensor"]])}
    assert told == {edit[0].split(" = ")[0] for edit in BOTH_ABOVE}


def test_a_bound_that_others_read_too_is_put_right_at_one_clip_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write_network(tmp_path / "four.onnx", FOUR, four(5))
    constants = four(5) | {"nearer": np.array(4, np.float32)}
    other = write_network(tmp_path / "other.onnx", FOUR.replace("(m3, low, high)", "(m3, low, nearer)"), constants)
    run = open_session(load_model(other).graph(), outputs=["y"])
    for number in range(2):
        x = np.random.default_rng(200 + number).normal(size=(2, 16)).astype(np.float32)
        write_npz(tmp_path / "x" / f"{number}.npz", {"x": x})
        write_npz(tmp_path / "y" / f"{number}.npz", run({"x": x}))
    found = diagnosed(model, tmp_path / "x", f"saved?path={tmp_path / 'y'}", capfd)
    causes = [one for one in found["findings"] if one["role"] == "cause"]
    assert [(one["code"], one["site"]["tensor"]) for one in causes] == [("FUS014", "d")]
    assert found["sequence"]["verdict"] == "within"
