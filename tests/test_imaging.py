"""Images placed and resampled as the common libraries do it, recognised again, and compared without a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from command_line import exit_status
from parityscope.case.imaging.kernels import KERNELS, kernel_weights, resample_image
from parityscope.case.imaging.recipe import Placing, Recipe, place_image, prepare_image
from parityscope.case.imaging.recipe_file import read_recipe
from parityscope.checks.preprocessing.naming import name_difference
from parityscope.checks.preprocessing.placings import recognise_placing
from parityscope.checks.preprocessing.registering import register_images
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

SIZE = (56, 64)


def photograph(height: int = 90, width: int = 120, seed: int = 0) -> np.ndarray:
    """Smooth colours, edges and some noise: uint8, RGB."""
    rng = np.random.default_rng(seed)
    small = rng.random((9, 12, 3)) * 255
    picture = resample_image(small, "bicubic", (height, width), whole=False)
    picture[20:50, 30:70] = picture[20:50, 30:70, ::-1] * 0.7
    return np.clip(picture + rng.normal(size=picture.shape) * 6, 0, 255).astype(np.uint8)


PILLOW = {
    "bilinear-antialias": Image.Resampling.BILINEAR,
    "bicubic-antialias": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "hamming": Image.Resampling.HAMMING,
    "box": Image.Resampling.BOX,
}


@pytest.mark.parametrize("kernel", sorted(PILLOW))
@pytest.mark.parametrize("size", [SIZE, (151, 64), (131, 207)])
def test_pillow_is_copied_to_a_level(kernel: str, size: tuple[int, int]) -> None:
    image = photograph()
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], PILLOW[kernel]), float)
    found = resample_image(image, kernel, size, whole=True)
    # Pillow rounds its weights to 22 bits: a result near a half may go to the other side, twice (once a pass).
    assert np.abs(found - expected).max() <= 2
    assert (found != expected).mean() < 0.02


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_keep_a_constant_and_the_same_size(kernel: str) -> None:
    np.testing.assert_allclose(kernel_weights(kernel, 50, 31).sum(axis=1), 1.0)
    np.testing.assert_allclose(kernel_weights(kernel, 31, 50).sum(axis=1), 1.0)
    np.testing.assert_allclose(kernel_weights(kernel, 20, 20), np.eye(20), atol=1e-12)


def test_kernels_by_hand() -> None:
    # Four pixels to two: centres at 1 and 3, halfway between two pixels.
    np.testing.assert_allclose(kernel_weights("bilinear", 4, 2), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    # Antialiased, the triangle is twice as wide: distances 0.5, 0.5, 1.5 of 2 give 0.75, 0.75, 0.25, over 1.75.
    np.testing.assert_allclose(kernel_weights("bilinear-antialias", 4, 2)[0], np.array([3, 3, 1, 0]) / 7)
    # Aligned corners: the first and the last pixel themselves.
    np.testing.assert_allclose(kernel_weights("bilinear-corners", 4, 2), [[1, 0, 0, 0], [0, 0, 0, 1]])
    # Asymmetric: places 0 and 2.
    np.testing.assert_allclose(kernel_weights("bilinear-asymmetric", 4, 2), [[1, 0, 0, 0], [0, 0, 1, 0]])
    # Three pixels to two: areas of 1.5 pixels each.
    np.testing.assert_allclose(kernel_weights("area", 3, 2), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]])
    # Centres at 0.75 and 2.25: pixels 0 and 2; the floor of 0 and 1.5: pixels 0 and 1.
    np.testing.assert_allclose(kernel_weights("nearest", 3, 2), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(kernel_weights("nearest-floor", 3, 2), [[1, 0, 0], [0, 1, 0]])
    # Keys' kernel with a = -0.75 at distances 1.5, 0.5, 0.5, 1.5: -0.09375, 0.59375, twice; border repeated.
    np.testing.assert_allclose(kernel_weights("bicubic", 8, 4)[1], [0, -0.09375, 0.59375, 0.59375, -0.09375, 0, 0, 0])


def test_a_letterbox_by_hand() -> None:
    # 90 x 120 into 56 x 64: the factor is 64/120, so 48 x 64, and 4 rows of filling above and below.
    image = photograph()
    found = place_image(Placing(size=SIZE, fit="letterbox", fill=(7.0, 8.0, 9.0)), image)
    assert (found[:4] == (7, 8, 9)).all()
    assert (found[-4:] == (7, 8, 9)).all()
    np.testing.assert_array_equal(found[4:-4], resample_image(image, "bilinear-antialias", (48, 64), whole=True))
    corner = place_image(Placing(size=SIZE, fit="letterbox", side="first"), image)
    np.testing.assert_array_equal(corner[:48], found[4:-4])
    last = place_image(Placing(size=SIZE, fit="letterbox", side="last"), image)
    np.testing.assert_array_equal(last[8:], found[4:-4])


PLACINGS = (
    Placing(size=SIZE),
    Placing(size=SIZE, kernel="bilinear"),
    Placing(size=SIZE, kernel="area", whole=False),
    Placing(size=SIZE, kernel="nearest-floor"),
    Placing(size=SIZE, fit="letterbox"),
    Placing(size=SIZE, fit="letterbox", fill=(0.0, 0.0, 0.0), side="first", kernel="bicubic"),
    Placing(size=SIZE, fit="shorter", shorter=73),
    Placing(size=SIZE, fit="central", shorter=96),
)


@pytest.mark.parametrize("placing", PLACINGS, ids=lambda one: f"{one.fit}-{one.kernel}")
def test_a_placing_is_recognised_behind_any_normalization(placing: Placing) -> None:
    recipe = Recipe(
        input="x", placing=placing, channels=(2, 1, 0), mean=(0.4, 0.5, 0.6), deviation=(0.2, 0.3, 0.4), layout="NHWC"
    )
    pictures = [photograph(seed=seed) for seed in range(2)]
    found = recognise_placing(pictures, [prepare_image(recipe, picture) for picture in pictures], 3)
    assert found.is_known
    assert found.fit.order == (2, 1, 0)
    again = [place_image(each, pictures[0]) for each in (found.placing, placing)]
    np.testing.assert_array_equal(*again)


def test_another_picture_is_not_recognised() -> None:
    recipe = Recipe(input="x", placing=Placing(size=SIZE))
    assert not recognise_placing([photograph(seed=1)], [prepare_image(recipe, photograph(seed=2))], 1).is_known


def named(own: np.ndarray, picture: np.ndarray | None = None) -> str:
    reference = prepare_image(Recipe(input="x", placing=Placing(size=SIZE)), photograph())
    return name_difference({"x": reference}, {"anything": own}, others={}, picture=picture).words


def test_captured_inputs_are_named() -> None:
    image = photograph()
    right = prepare_image(Recipe(input="x", placing=Placing(size=SIZE)), image)
    assert named(right) == ""
    assert named(right * np.float32(1 + 1e-7)) == ""
    assert named(right * 255) == "does not divide by 255"
    assert named(right[:, ::-1] * 255) == "exchanges channels 0 and 2 (BGR for RGB) and does not divide by 255"
    assert named(right * 3 + 2) == "multiplies by 3 and adds 2"
    bytes_last = np.rint(right * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    assert named(bytes_last) == (
        "gives uint8 where the reference gives float32 and gives an array in NHWC order and does not divide by 255"
    )
    assert named(right[0]) == "leaves out the batch axis"
    assert named(right[:, :, :8]) == "gives shape [1, 3, 8, 64] where the reference gives [1, 3, 56, 64]"
    assert "shifts the image by 2 down and 3 right" in named(np.roll(right, (2, 3), axis=(2, 3)) + 1)
    nearest = prepare_image(Recipe(input="x", placing=Placing(size=SIZE, kernel="nearest"), channels=(2, 1, 0)), image)
    assert named(nearest, image) == (
        "resizes by nearest neighbour instead of bilinear with antialiasing and exchanges channels 0 and 2"
    )
    assert "resamples the image in another way" in named(nearest)
    letterbox = prepare_image(Recipe(input="x", placing=Placing(size=SIZE, fit="letterbox")), image)
    assert named(letterbox) == "letterboxes the image: pixels filled 4 above, 4 below"
    noise = np.random.default_rng(1).random(right.shape, np.float32)
    assert named(noise).startswith("gives another image: the nearest map explains")


def test_the_sample_of_another_place_is_named() -> None:
    first, second = (np.arange(6).reshape(1, 6) * scale for scale in (1, 5))
    found = name_difference({"ids": first}, {"ids": second}, others={"sample 1": {"ids": second}})
    assert found.words == "gives the input of sample 1"


def test_tokens_are_named() -> None:
    ids = np.array([[101, 7, 8, 102, 0, 0]])
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    reference = {"ids": ids, "mask": mask}
    left = {"ids": np.roll(ids, 2), "mask": np.roll(mask, 2)}
    assert name_difference(reference, left, others={}).words == "pads on the left"
    ones = {"ids": ids, "mask": np.ones_like(mask)}
    assert "attention mask of ones" in name_difference(reference, ones, others={}).words
    assert name_difference(reference, {"ids": ids}, others={}).words == "gives no mask (it gives ids)"
    assert (
        "2 of 6 elements differ"
        in name_difference(reference, {"ids": np.array([[101, 9, 9, 102, 0, 0]]), "mask": mask}, others={}).words
    )


def test_a_crop_is_found_by_laying_one_picture_over_the_other() -> None:
    image = photograph(200, 200)
    size = (96, 96)
    whole = place_image(Placing(size=size), image)
    # The middle 7/8 of each side: 200 / 8 / 2 = 12.5 pixels are left out on each; 12 here, so 176 of 200 = 0.88.
    cropped = resample_image(image[12:188, 12:188], "bilinear-antialias", size, whole=True)
    found = register_images(whole, 3.0 * cropped + 1.0)
    assert found is not None
    np.testing.assert_allclose(found.scale, 0.88, atol=0.01)
    np.testing.assert_allclose(found.shift, 0.06, atol=0.01)
    assert found.words.startswith("crops the image to 0.88")
    assert register_images(whole, np.random.default_rng(0).random(whole.shape)) is None


RECIPE = """
size = [56, 64]
fit = "letterbox"
kernel = "bilinear"
channels = "BGR"
mean = 0.5
deviation = [0.1, 0.2, 0.3]
layout = "NHWC"
"""


def test_a_recipe_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prepare.toml"
    path.write_text(RECIPE, encoding="utf-8")
    recipe = read_recipe(path, ["x"])
    assert recipe.input == "x"
    assert recipe.placing == Placing(size=SIZE, fit="letterbox", kernel="bilinear")
    found = prepare_image(recipe, photograph())
    assert (found.shape, found.dtype) == ((1, 56, 64, 3), np.float32)
    # The filling: (114 / 255 - 0.5) / deviation.
    np.testing.assert_allclose(found[0, 0, 0], (114 / 255 - 0.5) / np.array([0.1, 0.2, 0.3]), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "size is not"),
        ("size = [3]", "size is not"),
        ("size = [3, 3]\nkernel = 'soft'", "kernel = 'soft' is not known"),
        ("size = [3, 3]\nsoze = 3", "there is no key 'soze'"),
        ("size = [3, 3]\nmean = [1, 2]", "mean has 2 numbers"),
        ("size = [3, 3]\nscale = 0", "may not be 0"),
        ("size = [3, 3]\nwhole = 1", "neither true nor false"),
        ("size = [3, 3]\ninput = 'z'", "none of the model's"),
        ("size = 'a'", "not a number"),
        ("size = [", "no TOML"),
    ],
)
def test_a_wrong_recipe_is_one_clear_error(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "prepare.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParityError, match=problem):
        read_recipe(path, ["x"])


CODE = """
import numpy as np
from PIL import Image


def prepared(image, kernel=Image.Resampling.BILINEAR, mean=0.0):
    yield "decode", image
    small = np.asarray(Image.fromarray(image).resize((64, 56), kernel))
    yield "resize", small
    yield "normalize", small.astype(np.float32) / 255 - np.float32(mean)


def reference(image):
    yield from prepared(image)


def sharp(image):
    yield from prepared(image, Image.Resampling.NEAREST)


def centred(image):
    yield from prepared(image, mean=0.5)


def end(image):
    return {"x": list(prepared(image))[-1][1]}


def half(image):
    return image[::2, ::2]


def scaled(image):
    return image / np.float32(255)


def declared(image):
    raise AssertionError("its steps are called instead")


declared.steps = [half, scaled]


def raising(image):
    yield "decode", image
    raise ValueError("out of memory")


def words(image):
    return "nothing"
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "images").mkdir()
    for seed in range(2):
        Image.fromarray(photograph(seed=seed)).save(tmp_path / "images" / f"{seed}.png")
    return tmp_path


def compared(desk: Path, first: str, second: str, *words: str) -> int:
    command = ["preprocessing", f"{desk / first}", f"{desk / second}", "--images", str(desk / "images"), "--quiet"]
    return exit_status(*command, *words)


@pytest.mark.parametrize(
    ("candidate", "where", "words"),
    [
        ("sharp", "resize", "the candidate resizes by nearest neighbour instead of bilinear with antialiasing"),
        ("centred", "normalize", "the candidate normalises with mean 0.5, which the model does not expect"),
    ],
)
def test_two_preprocessings_part_at_a_step(
    desk: Path, capfd: pytest.CaptureFixture[str], candidate: str, where: str, words: str
) -> None:
    assert compared(desk, "code.py:reference", f"code.py:{candidate}", "--format", "json") == 1
    found = json.loads(capfd.readouterr().out)
    assert (found["parts_at"], found["words"], found["images"]) == (where, words, 2)
    assert [stage["same"] == 2 for stage in found["stages"]].index(False) == [
        stage["name"] for stage in found["stages"]
    ].index(where)


def test_preprocessings_that_agree(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (desk / "prepare.toml").write_text('size = [56, 64]\nlayout = "NHWC"\n', encoding="utf-8")
    assert compared(desk, "code.py:reference", "code.py:reference") == 0
    # Only the ends can be compared with a function that says nothing of its steps; that is said.
    assert compared(desk, "code.py:reference", "code.py:end") == 0
    assert "Only the ends were compared" in capfd.readouterr().out
    assert compared(desk, "code.py:declared", "code.py:declared", "--format", "json") == 0
    assert [stage["name"] for stage in json.loads(capfd.readouterr().out)["stages"]] == ["half", "scaled"]
    # A recipe has a batch axis, which a function need not have; Pillow rounds its weights, a recipe does not.
    assert compared(desk, "prepare.toml", "code.py:end") == 1
    assert "the candidate rounds pixels in another way." in capfd.readouterr().out


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ("raising", "step 1 on 0.png failed: ValueError: out of memory"),
        ("words", "not numbers"),
        ("none", "no function"),
    ],
)
def test_what_the_user_s_code_does_wrong_is_one_clear_error(
    desk: Path, capfd: pytest.CaptureFixture[str], candidate: str, said: str
) -> None:
    assert compared(desk, "code.py:reference", f"code.py:{candidate}") == 2
    printed = capfd.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


def test_an_image_that_cannot_be_read_is_one_clear_error(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (desk / "images" / "0.png").write_bytes((desk / "images" / "0.png").read_bytes()[:200])
    assert compared(desk, "code.py:reference", "code.py:end") == 2
    assert "0.png cannot be read" in capfd.readouterr().err
