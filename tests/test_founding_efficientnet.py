"""The founding case of wrong preprocessing on a classifier: EfficientNet-Lite0, three photographs, outputs alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from command_line import exit_status
from parityscope.case.formats.images import read_image
from parityscope.case.formats.npz import write_npz
from parityscope.case.imaging.recipe import Placing, Recipe, prepare_image
from proving.models.efficientnet import efficientnet_lite0, read_weights
from proving.models.fetching import require

if TYPE_CHECKING:
    from pathlib import Path

PHOTOGRAPHS = ("coffee", "chelsea", "astronaut")
# TensorFlow's preparation for this network: the middle square of 224/256 of the shorter side, bicubic, (x - 127) / 128.
RIGHT = Recipe(
    input="image",
    placing=Placing(size=(224, 224), fit="central", kernel="bicubic-antialias", shorter=256),
    scale=1.0,
    mean=(127.0,),
    deviation=(128.0,),
)
TOML = """
size = [224, 224]
fit = "central"
kernel = "bicubic-antialias"
shorter = 256
scale = 1
mean = 127
deviation = 128
"""
STRETCHED = Recipe(
    input="image",
    placing=Placing(size=(224, 224), kernel="bicubic-antialias"),
    scale=1.0,
    mean=(127.0,),
    deviation=(128.0,),
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, the photographs, and what deployments with each preprocessing would answer."""
    folder = tmp_path_factory.mktemp("efficientnet")
    require("eff-weights")
    network = onnxruntime.InferenceSession(efficientnet_lite0(folder / "eff.onnx"))
    (folder / "prepare.toml").write_text(TOML, encoding="utf-8")
    (folder / "photos").mkdir()
    for name in PHOTOGRAPHS:
        Image.fromarray(read_image(require(name))).save(folder / "photos" / f"{name}.png")
        image = read_image(folder / "photos" / f"{name}.png")
        for called, recipe in {"right": RIGHT, "stretched": STRETCHED}.items():
            (logits,) = network.run(None, {"image": prepare_image(recipe, image)})
            write_npz(folder / called / f"{name}.npz", {"logits": logits})
    return folder


def diagnosed(desk: Path, capfd: pytest.CaptureFixture[str], candidate: str) -> dict[str, Any]:
    command = ["diagnose", str(desk / "eff.onnx"), "--inputs", str(desk / "photos")]
    command += ["--preprocess", str(desk / "prepare.toml"), "--candidate", f"saved?path={desk / candidate}"]
    code = exit_status(*command, "--format", "json", "--quiet", "--study", str(desk / f"study-{candidate}"))
    said = capfd.readouterr()
    assert code in {0, 1}, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.model
def test_the_model_made_of_the_weights_sees_what_is_there(desk: Path) -> None:
    # ImageNet's classes: 967 espresso, 281 to 285 cats.
    assert np.load(desk / "right" / "coffee.npz")["logits"].argmax() == 967
    assert 281 <= np.load(desk / "right" / "chelsea.npz")["logits"].argmax() <= 285


@pytest.mark.model
def test_the_transformation_is_named(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = diagnosed(desk, capfd, "stretched")
    first = found["findings"][0]
    assert (first["code"], first["role"], found["verdict"]) == ("PRE001", "cause", "beyond")
    words = "the deployment stretches the image to 224 x 224 (bicubic with antialiasing), where the reference cuts"
    assert first["details"]["words"].startswith(words)
    assert "No precision is to blame" in first["claim"]


@pytest.mark.model
def test_the_right_preparation_is_not_blamed(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = diagnosed(desk, capfd, "right")
    assert found["verdict"] == "within"
    assert not any(one["code"].startswith("PRE") for one in found["findings"])


def test_a_file_of_weights_runs_no_code(tmp_path: Path) -> None:
    # Protocol 2: a call of os.system("true"), as a malicious file would have it.
    (tmp_path / "weights.pth").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
    with pytest.raises(ValueError, match=r"os\.system is no part"):
        read_weights(tmp_path / "weights.pth")
