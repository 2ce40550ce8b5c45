"""Several wrong steps of preparing an image are named at once; the search depends on counts and goes on where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from PIL import Image

from parityscope.case.formats.images import read_image
from parityscope.case.imaging.kernels import resample_image
from parityscope.checks.preprocessing.images import image_of, image_steps
from parityscope.checks.preprocessing.placings import placing_steps, recognise_placing
from parityscope.checks.preprocessing.searching import PreprocessingQuestion, search_preprocessing
from parityscope.checks.preprocessing.steps import ORIGINAL, STORED, describe_steps
from parityscope.study.search_log import TRIED, TriedRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from parityscope.checks.preprocessing.searching import SearchResult

    Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
    # Pixels (uint8, RGB) to what the network reads, (height, width, 3).
    Prepare = Callable[[np.ndarray], np.ndarray]

SIZE = 32
MODEL = """<ir_version: 8, opset_import: ["": 17]> net (float[1, 3, 32, 32] x) => (float[1, 24] y) {
  a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
  r = Relu(a)
  f = Flatten(r)
  y = MatMul(f, v)
}"""
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    rng = np.random.default_rng(11)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {"w": (8, 3, 3, 3), "b": (8,), "v": (8 * 16 * 16, 24)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(path)
    return lambda inputs: {"y": session.run(None, dict(inputs))[0]}


def photographs() -> list[np.ndarray]:
    rng = np.random.default_rng(12)
    smalls = [resample_image(rng.random((7, 11, 3)) * 255, "bicubic", (52, 90), whole=True) for _ in range(2)]
    return [np.clip(small + rng.normal(size=small.shape) * 9, 0, 255).astype(np.uint8) for small in smalls]


def pillow(image: np.ndarray, height: int, width: int, kernel: str = "BILINEAR") -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[kernel]))


def stretched(image: np.ndarray) -> np.ndarray:
    return pillow(image, SIZE, SIZE) / 255


def asked(network: Run, wrong: Prepare, images: list[np.ndarray] | None = None, **parts: object) -> SearchResult:
    """The search for what made the deployment's inputs of the images."""
    images = images or photographs()
    inputs = [as_input(stretched(image)) for image in images]
    image = image_of("x", inputs[0])
    assert image is not None
    known = recognise_placing(images, inputs, image.axis)
    assert known.is_known
    samples = [{"x": one, ORIGINAL: picture} for one, picture in zip(inputs, images, strict=True)]
    candidate = [network({"x": as_input(wrong(picture))}) for picture in images]
    question = PreprocessingQuestion(samples=samples, candidate=candidate, run=network, bounds={"y": 1e-5}, runs=1000)
    steps = [*image_steps(image, [{"x": one} for one in inputs]), *placing_steps(image, known)]
    return search_preprocessing(replace(question, **parts), steps)  # type: ignore[arg-type]


def as_input(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[np.newaxis], np.float32)


def four_at_once(image: np.ndarray, *, behind: bool = False) -> np.ndarray:
    """Letterboxed from the upper left, black, with ImageNet's normalization, cubic."""
    small = pillow(image, round(52 * SIZE / 90), SIZE, "BICUBIC")
    canvas = np.zeros((SIZE, SIZE, 3))
    canvas[: len(small)] = small
    found = (canvas / 255 - MEAN) / DEVIATION
    found[len(small) :] *= not behind
    return found


def test_four_wrong_steps_are_named_at_once(run: Run) -> None:
    found = asked(run, four_at_once)
    assert found.best is not None
    words = describe_steps(found.best.steps)
    assert (
        "letterboxes the image into 32 x 32, filled with 0 on the right and below (bicubic with antialiasing)" in words
    )
    assert "normalises with ImageNet's mean and deviation" in words
    assert (len(found.best.steps), found.certain) == (4, True)
    assert found.runs <= 400


def test_what_is_filled_behind_the_normalization_is_told_from_black(run: Run) -> None:
    found = asked(run, lambda image: four_at_once(image, behind=True))
    assert found.best is not None
    assert "filled with 0 behind the normalization on the right and below" in describe_steps(found.best.steps)


def test_crop_kernel_channels_and_colours_are_named_at_once(run: Run) -> None:
    def wrong(image: np.ndarray) -> np.ndarray:
        larger = pillow(image, 37, int(90 * 37 / 52), "LANCZOS")
        left = (larger.shape[1] - SIZE) // 2
        cut = larger[2 : 2 + SIZE, left : left + SIZE, ::-1]
        return np.rint(16 + cut * 219.0 / 255) / 255

    found = asked(run, wrong)
    assert found.best is not None
    words = describe_steps(found.best.steps)
    assert "resizes the shorter side to 37 and cuts out the middle 32 x 32 (Lanczos)" in words
    assert "BGR for RGB" in words
    assert "limited range (16 to 235)" in words


def test_what_is_no_composition_is_not_blamed(run: Run) -> None:
    noise = np.random.default_rng(13).random((SIZE, SIZE, 3))
    for wrong in (
        lambda image: 0.5 * stretched(image) + 0.5 * noise,
        lambda image: np.roll(stretched(image), 9, axis=1),
    ):
        assert asked(run, wrong).best is None
    assert asked(run, stretched).best is None


def test_an_orientation_that_is_not_obeyed_is_named(run: Run, tmp_path: Path) -> None:
    stored, seen = [], []
    for number, image in enumerate(photographs()):
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by 90 degrees
        path = tmp_path / f"{number}.png"
        Image.fromarray(image).save(path, exif=exif)
        seen.append(read_image(path))
        stored.append(read_image(path, turned=False))
        np.testing.assert_array_equal(stored[-1], image)
    inputs = [as_input(stretched(image)) for image in seen]
    image = image_of("x", inputs[0])
    assert image is not None
    steps = placing_steps(image, recognise_placing(seen, inputs, 1), stored=True)
    question = PreprocessingQuestion(
        samples=[{"x": x, ORIGINAL: a, STORED: b} for x, a, b in zip(inputs, seen, stored, strict=True)],
        candidate=[run({"x": as_input(stretched(one)[..., ::-1])}) for one in stored],
        run=run,
        bounds={"y": 1e-5},
        runs=1000,
    )
    found = search_preprocessing(question, [*image_steps(image, [{"x": one} for one in inputs]), *steps])
    assert found.best is not None
    assert "takes the image as it is stored, whatever its EXIF orientation says" in describe_steps(found.best.steps)
    assert "BGR for RGB" in describe_steps(found.best.steps)


def test_a_search_that_was_cut_off_goes_on_and_finds_the_same(run: Run, tmp_path: Path) -> None:
    ran: list[int] = []

    def counted(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        ran.append(1)
        if len(ran) == 100:
            raise KeyboardInterrupt
        return run(inputs)

    whole = asked(run, four_at_once)
    with pytest.raises(KeyboardInterrupt):
        asked(run, four_at_once, run=counted, kept=TriedRuns(tmp_path))
    # The last line is cut off, as when the machine stops.
    (tmp_path / TRIED).write_bytes((tmp_path / TRIED).read_bytes()[:-5])
    again = asked(run, four_at_once, run=counted, kept=TriedRuns(tmp_path))
    assert again.best is not None
    assert whole.best is not None
    assert [step.key for step in again.best.steps] == [step.key for step in whole.best.steps]
    assert (again.runs, again.after) == (whole.runs, whole.after)
    # What was measured before is counted and not run again; the first run of each sample and those held are.
    assert len(ran) < whole.runs + 40


def test_the_budget_is_of_runs_and_kept(run: Run) -> None:
    ran: list[int] = []

    def counted(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        ran.append(1)
        return run(inputs)

    found = asked(run, four_at_once, run=counted, runs=50)
    assert (found.runs, found.left_out > 0) == (50, True)
    # Beside the search: the samples as they are, and what came near on the others.
    assert len(ran) <= 50 + 2 + 8
