"""Image files as arrays: uint8 of shape (height, width, 3), RGB, turned as EXIF orientation says (as OpenCV's `imread` does).

Only 8-bit images are read: what a 16-bit or floating-point image means as RGB is the user's to say, in a loader.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import numpy as np

from parityscope.case.formats import UNREADABLE, unreadable_error
from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from pathlib import Path

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_MOST_PIXELS = 1 << 26  # chosen
_PIXEL_NBYTES = 11  # that a pixel takes until it is an array (measured)
_LONGEST = (1 << 16) - 1  # of a side: JPEG's own limit
_EIGHT_BITS = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB"})  # Pillow's modes


def read_image(path: Path, memory: int = _MOST_PIXELS * _PIXEL_NBYTES, *, turned: bool = True) -> np.ndarray:
    """The image as uint8, (height, width, 3), RGB, C order; it may take `memory` bytes until it is that.

    Without `turned` it stays as it is stored, whatever its EXIF orientation says.

    Raises:
        ParityError: Pillow is missing, the file is no whole image, or not an 8-bit one of a single frame.
    """
    with open_regular_file(path, path.name) as file:
        return decode_image(file, path, memory, turned=turned)


def decode_image(
    file: IO[bytes], path: Path, memory: int = _MOST_PIXELS * _PIXEL_NBYTES, *, turned: bool = True
) -> np.ndarray:
    """As `read_image`, of an open file; `path` is what errors call it.

    Raises:
        ParityError: as `read_image`.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ParityError(
            "reading images needs Pillow, which is not installed", fix="pip install 'parityscope[images]'"
        ) from error
    try:
        with Image.open(file) as image:
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
