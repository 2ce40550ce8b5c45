"""`--images` and `--candidate-inputs` on a small network: what they let the diagnosis name, and what bad ones get."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from PIL import Image

from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.case.imaging.recipe import Placing, Recipe, prepare_image

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """<ir_version: 8, opset_import: ["": 17]> net (float[1, 3, 24, 24] x) => (float[1, 8, 12, 12] y) {
  a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
  y = Relu(a)
}"""
RECIPES = {
    "right": Recipe(input="x", placing=Placing(size=(24, 24))),
    "nearest": Recipe(input="x", placing=Placing(size=(24, 24), kernel="nearest-floor")),
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(7)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {"w": (8, 3, 3, 3), "b": (8,)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    onnx.save(model, folder / "net.onnx")
    network = onnxruntime.InferenceSession(folder / "net.onnx")
    (folder / "photos").mkdir()
    for number in range(2):
        small = Image.fromarray(rng.integers(0, 256, (9, 14, 3), dtype=np.uint8))
        image = np.asarray(small.resize((70, 50), Image.Resampling.BICUBIC))
        Image.fromarray(image).save(folder / "photos" / f"a{number}.png")
        for called, recipe in RECIPES.items():
            x = prepare_image(recipe, image)
            (y,) = network.run(None, {"x": x})
            write_npz(folder / f"{called}-inputs" / f"a{number}.npz", {"x": x})
            write_npz(folder / called / f"a{number}.npz", {"y": y})
    return folder


def diagnosed(desk: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    command = ["diagnose", str(desk / "net.onnx"), "--inputs", str(desk / "right-inputs")]
    command += ["--candidate", f"saved?path={desk / 'nearest'}", "--format", "json", "--quiet"]
    code = exit_status(*command, *words, "--study", str(desk / f"study-{len(list(desk.iterdir()))}"))
    said = capfd.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_images_beside_prepared_samples_tell_the_kernel(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, found, _ = diagnosed(desk, capfd, "--images", str(desk / "photos"))
    assert (status, found["findings"][0]["code"]) == (1, "PRE001")
    expected = "resizes by nearest neighbour at the upper left instead of bilinear with antialiasing"
    assert found["findings"][0]["details"]["words"] == f"the deployment {expected}"


def test_recorded_inputs_are_compared_and_the_reference_runs_on_them(
    desk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--candidate-inputs", str(desk / "nearest-inputs"), "--images", str(desk / "photos"))
    status, found, _ = diagnosed(desk, capfd, *words)
    by_code = {one["code"]: one for one in found["findings"]}
    assert (status, by_code["PRE002"]["share"]) == (1, pytest.approx(1.0))
    assert "resizes by nearest neighbour at the upper left" in by_code["PRE002"]["details"]["words"]


def test_what_is_wrong_with_the_images_is_said(desk: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no folder" in diagnosed(desk, capfd, "--images", str(tmp_path / "none"))[2]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a0.png").write_bytes((desk / "photos" / "a0.png").read_bytes())
    status, _, said = diagnosed(desk, capfd, "--images", str(tmp_path / "one"))
    assert (status, "no image belongs to sample 1 (a1)" in said) == (2, True)
    # Half a file: the fault is not examined in that way, which is said; nothing is blamed for it.
    (tmp_path / "one" / "a1.png").write_bytes((desk / "photos" / "a1.png").read_bytes()[:300])
    status, found, _ = diagnosed(desk, capfd, "--images", str(tmp_path / "one"))
    assert status == 1
    assert any("a1.png cannot be read" in skip["reason"] for skip in found["skipped"])
    assert not any(one["code"].startswith("PRE") for one in found["findings"])


def test_recorded_inputs_that_lie_nowhere_are_one_clear_error(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, said = diagnosed(desk, capfd, "--candidate-inputs", str(desk / "nothing"))
    assert status == 2
    assert "give the folder of .npz" in said
