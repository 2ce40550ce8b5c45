"""The real preprocessing of the PP-OCRv4 models, and text lines to read with them.

In: uint8 images, (H, W) grey or (H, W, 3) RGB. Out: arrays by the models' input names, float32 NCHW.
The formulas are PaddleOCR's configurations of the released models (`ch_PP-OCRv4_det`, `ch_PP-OCRv4_rec`): the
detector takes ImageNet mean and standard deviation, the recogniser maps [0, 255] to [-1, 1] at height 48.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IMAGENET_MEAN = np.array((0.485, 0.456, 0.406), np.float32)
_IMAGENET_STD = np.array((0.229, 0.224, 0.225), np.float32)
_STRIDE = 32  # the detector halves its input five times
_LINE_HEIGHT = 48  # the recogniser's fixed input height
_MARGIN = 0.3  # chosen: white space round a rendered line, as a share of the letters' size


def ocr_det_input(image: NDArray[np.uint8], size: tuple[int, int]) -> dict[str, NDArray[np.float32]]:
    """The detector's input: `image` resized (bilinear) to `size` = (width, height), float32 (1, 3, height, width).

    Raises:
        ParityError: width or height is not a positive multiple of 32.
    """
    width, height = size
    if width <= 0 or height <= 0 or width % _STRIDE or height % _STRIDE:
        raise ParityError(
            f"{width}x{height} is not a size that the text detector takes",
            fix=f"round width and height to multiples of {_STRIDE}",
        )
    return {"x": _nchw((_resized(image, size) / np.float32(255) - _IMAGENET_MEAN) / _IMAGENET_STD)}


def ocr_rec_input(line: NDArray[np.uint8]) -> dict[str, NDArray[np.float32]]:
    """The recogniser's input: one text line at height 48, its proportions kept, float32 (1, 3, 48, width)."""
    height, width = line.shape[:2]
    size = (math.ceil(_LINE_HEIGHT * width / height), _LINE_HEIGHT)
    half = np.float32(0.5)
    return {"x": _nchw((_resized(line, size) / np.float32(255) - half) / half)}


def rendered_line(text: str, size: int = 32) -> NDArray[np.uint8]:
    """`text` (Latin) in black on white in Pillow's own font, letters of `size` pixels: uint8 (H, W)."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    margin = math.ceil(size * _MARGIN)
    canvas = Image.new("L", (math.ceil(right - left) + 2 * margin, math.ceil(bottom - top) + 2 * margin), 255)
    ImageDraw.Draw(canvas).text((margin - left, margin - top), text, fill=0, font=font)
    return np.asarray(canvas)


def _resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.float32]:
    """RGB values 0 to 255, float32 (height, width, 3); grey becomes three equal channels."""
    from PIL import Image

    resized = Image.fromarray(image).convert("RGB").resize(size, Image.Resampling.BILINEAR)
    return np.asarray(resized, np.float32)


def _nchw(image: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)
