"""A folder of images and the user's own preprocessing, `file.py:function` or a recipe, `file.toml` (`case.imaging`).

The function gets one image at a time as a uint8 array of shape (height, width, 3), RGB, turned as its EXIF orientation
says (OpenCV's `imread` does the same), and returns a dict of arrays by input name, or the one array of a model with a
single input. Images are taken in the order of their file names.

Only 8-bit images are read: what a 16-bit or floating-point image means as RGB is the user's to say, in a loader.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.formats import UNREADABLE, Streamed, unreadable
from parityscope.case.formats.loader import as_arrays, call, find_function
from parityscope.case.imaging.recipe import prepared
from parityscope.case.imaging.recipe_file import read_recipe
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["IMAGE_SUFFIXES", "read_image", "read_images"]

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_EIGHT_BITS = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB"})  # Pillow's modes


def read_images(paths: Sequence[Path], preprocess: str, inputs: Sequence[str]) -> Iterator[Streamed]:
    """One sample an image; `inputs` are the model's input names.

    Raises:
        ParityError: Pillow is missing, an image cannot be read, or the preprocessing fails or gives no arrays.
    """
    if preprocess.endswith(".toml"):
        recipe = read_recipe(Path(preprocess), inputs)
        for path in paths:
            arrays = {recipe.input: prepared(recipe, read_image(path))}
            yield Streamed(label=path.name, arrays=arrays, original=path)
        return
    user = find_function(preprocess)
    for path in paths:
        image = read_image(path)
        made = call(user, user.function, image, doing=f"preprocessing {path.name}")
        if isinstance(made, np.ndarray):
            if len(inputs) != 1:
                raise ParityError(
                    f"{preprocess} gave one array, and the model has {len(inputs)} inputs: {', '.join(inputs)}",
                    where=str(path),
                    fix="return a dict of arrays by input name",
                )
            made = {inputs[0]: made}
        yield Streamed(label=path.name, arrays=as_arrays(made, user, path.name), original=path)


def read_image(path: Path) -> np.ndarray:
    """The image as uint8, (height, width, 3), RGB, C order.

    Raises:
        ParityError: Pillow is missing, the file is no whole image, or not an 8-bit one of a single frame.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ParityError(
            "reading images needs Pillow, which is not installed", fix="pip install 'parityscope[images]'"
        ) from error
    try:
        with Image.open(path) as image:
            frames = getattr(image, "n_frames", 1)
            if image.mode not in _EIGHT_BITS or frames != 1:
                found = f"{frames} frames" if frames != 1 else f"pixels of Pillow's mode {image.mode}, not 8 bits"
                raise ParityError(
                    f"{path.name} has {found}",
                    where=str(path),
                    fix="convert it to one 8-bit RGB image, or write a loader",
                )
            return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, *UNREADABLE) as error:
        raise unreadable(path, error) from error
