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

from parityscope.case.formats import UNREADABLE, Streamed, unreadable_error
from parityscope.case.formats.loader import as_arrays, call_user_code, find_function
from parityscope.case.imaging.recipe import prepare_image
from parityscope.case.imaging.recipe_file import read_recipe
from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["IMAGE_SUFFIXES", "read_image", "read_images"]

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_MOST_PIXELS = 1 << 26  # chosen
_PIXEL_NBYTES = 11  # that a pixel takes until it is an array (measured)
_LONGEST = (1 << 16) - 1  # of a side: JPEG's own limit
_EIGHT_BITS = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB"})  # Pillow's modes


def read_images(paths: Sequence[Path], preprocess: str, inputs: Sequence[str], memory: int) -> Iterator[Streamed]:
    """One sample an image; `inputs` are the model's input names, `memory` the bytes that an image may take.

    Raises:
        ParityError: Pillow is missing, an image cannot be read, or the preprocessing fails or gives no arrays.
    """
    if preprocess.endswith(".toml"):
        recipe = read_recipe(Path(preprocess), inputs)
        for path in paths:
            arrays = {recipe.input: prepare_image(recipe, read_image(path, memory))}
            yield Streamed(label=path.name, arrays=arrays, original=path)
        return
    user = find_function(preprocess)
    for path in paths:
        image = read_image(path, memory)
        made = call_user_code(user, user.function, image, doing=f"preprocessing {path.name}")
        if isinstance(made, np.ndarray):
            if len(inputs) != 1:
                raise ParityError(
                    f"{preprocess} gave one array, and the model has {len(inputs)} inputs: {', '.join(inputs)}",
                    where=str(path),
                    fix="return a dict of arrays by input name",
                )
            made = {inputs[0]: made}
        yield Streamed(label=path.name, arrays=as_arrays(made, user, path.name), original=path)


def read_image(path: Path, memory: int = _MOST_PIXELS * _PIXEL_NBYTES, *, turned: bool = True) -> np.ndarray:
    """The image as uint8, (height, width, 3), RGB, C order; it may take `memory` bytes until it is that.

    Without `turned` it stays as it is stored, whatever its EXIF orientation says.

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
        with open_regular_file(path, path.name) as file, Image.open(file) as image:
            most = min(_MOST_PIXELS, memory // _PIXEL_NBYTES)
            if image.width * image.height > most or max(image.size) > _LONGEST:
                raise ParityError(
                    f"{path.name} has {image.width} x {image.height} pixels; at most {most} are read, {_LONGEST} a side",
                    where=str(path),
                    fix="cut it or make it smaller" + (", or give more --memory" if most < _MOST_PIXELS else ""),
                )
            frames = getattr(image, "n_frames", 1)
            if image.mode not in _EIGHT_BITS or frames != 1:
                found = f"{frames} frames" if frames != 1 else f"pixels of Pillow's mode {image.mode}, not 8 bits"
                raise ParityError(
                    f"{path.name} has {found}",
                    where=str(path),
                    fix="convert it to one 8-bit RGB image, or write a loader",
                )
            if turned:
                ImageOps.exif_transpose(image, in_place=True)
            return np.array(image.convert("RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, *UNREADABLE) as error:
        raise unreadable_error(path, error) from error
