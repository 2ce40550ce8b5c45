"""Pages of text for detectors: crops and scales of scans, and pages rendered on photographs, all from fixed seeds.

Where they come from, which `Page.origin` states one by one:

* scans: scikit-image's `page.png` (BSD-3-Clause), whole or cut, at several scales;
* rendered: paragraphs of this file's words in Pillow's own font, on a sheet of paper or, outlined as subtitles are, on
  the picture itself: crops of scikit-image's photographs `camera`, `coffee`, `chelsea` and `astronaut`.

Its `text.png` is no page: a slanted photograph of handwriting in which the detector finds no text, so that its map is
empty and an error relative to it says nothing.

`pages()` gives images, `page_samples()` what the PP-OCRv4 detector takes of them: sides are multiples of 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from proving.models.fetching import fetch
from proving.models.ocr import ocr_det_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray
    from PIL.ImageDraw import ImageDraw

COUNT = 64  # more than the 59 that show 95 % with 95 % confidence when none of them misses
_SEED = 20240
_SCAN = "page-image"
_PHOTOGRAPHS = ("camera", "coffee", "chelsea", "astronaut")
_SIZES = ((768, 384), (640, 320), (512, 256), (480, 320), (384, 192), (448, 448))  # (width, height)
_LEAST_CROP = 0.45  # of a scan's side: smaller cuts hold less than two lines. Chosen
_WORDS = (
    "the engine rounds every tensor to sixteen bits and a page of printed text tells whether boxes move when a layer "
    "overflows so measure twice on real images before you trust a repaired network with letters numbers 3.14159 and 2048"
).split()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """An image, uint8 (height, width) grey or (height, width, 3) RGB, to be resized to `size` = (width, height)."""

    name: str
    origin: str
    image: NDArray[np.uint8]
    size: tuple[int, int]


def pages(count: int = COUNT) -> Iterator[Page]:
    """The first `count` pages, scans and rendered ones in turns; the same on every machine.

    Raises:
        ParityError: there are not so many.
        Unavailable: the images cannot be had here.
    """
    if not 1 <= count <= COUNT:
        raise ParityError(f"there are {COUNT} pages, not {count}", fix=f"ask for 1 to {COUNT}")
    for number in range(count):
        generator = np.random.default_rng((_SEED, number))
        yield _rendered(number, generator) if number % 2 else _scanned(number, generator)


def page_samples(count: int = COUNT) -> Iterator[tuple[Page, Mapping[str, NDArray[np.float32]]]]:
    """The pages with the detector's input: float32 (1, 3, height, width) by its name."""
    for page in pages(count):
        yield page, ocr_det_input(page.image, page.size)


def _scanned(number: int, generator: np.random.Generator) -> Page:
    """A scan: the first ones whole, at one size each; then cuts of them."""
    turn = number // 2
    image = _image(_SCAN)
    size = _SIZES[turn % len(_SIZES)]
    what = "whole"
    if turn >= len(_SIZES):
        height, width = image.shape[:2]
        high = int(generator.integers(int(height * _LEAST_CROP), height + 1))
        wide = int(generator.integers(int(width * _LEAST_CROP), width + 1))
        top, left = int(generator.integers(height - high + 1)), int(generator.integers(width - wide + 1))
        image = image[top : top + high, left : left + wide]
        what = f"rows {top} to {top + high}, columns {left} to {left + wide}"
    origin = f"scikit-image's {_SCAN}, {what}, at {size[0]} x {size[1]}"
    return Page(name=f"{number:03d}-{_SCAN}", origin=origin, image=np.ascontiguousarray(image), size=size)


def _rendered(number: int, generator: np.random.Generator) -> Page:
    """Paragraphs on a crop of a photograph."""
    from PIL import Image, ImageDraw

    turn = number // 2
    identity = _PHOTOGRAPHS[turn % len(_PHOTOGRAPHS)]
    size = _SIZES[turn % len(_SIZES)]
    photograph = Image.fromarray(_image(identity)).convert("RGB")
    share = float(generator.uniform(0.5, 1.0))
    wide = int(min(photograph.width, photograph.height * size[0] / size[1]) * share)
    high = wide * size[1] // size[0]
    left = int(generator.integers(photograph.width - wide + 1))
    top = int(generator.integers(photograph.height - high + 1))
    canvas = photograph.crop((left, top, left + wide, top + high)).resize(size, Image.Resampling.BILINEAR)
    letters = int(generator.integers(14, 31))
    paper = bool(generator.integers(2))
    # On the picture itself, letters have the colour that stands out; on paper both kinds of print occur.
    dark = bool(generator.integers(2)) if paper else float(np.asarray(canvas).mean()) > 127
    _write(ImageDraw.Draw(canvas), size, letters, generator, dark=dark, paper=paper)
    origin = (
        f"rendered, letters of {letters} pixels, {'dark' if dark else 'light'}{' on paper' if paper else ''}, on "
        f"scikit-image's {identity} from column {left}, row {top}, {wide} x {high}, at {size[0]} x {size[1]}"
    )
    return Page(name=f"{number:03d}-{identity}", origin=origin, image=np.asarray(canvas), size=size)


def _write(
    draw: ImageDraw, size: tuple[int, int], letters: int, generator: np.random.Generator, *, dark: bool, paper: bool
) -> None:
    """Lines of words, ragged on the right, down to the lower margin."""
    from PIL import ImageFont

    font = ImageFont.load_default(letters)
    margin = int(generator.integers(12, 40))
    ink, sheet = ((16, 16, 24), (236, 232, 222)) if dark else ((248, 248, 240), (24, 32, 48))
    if paper:
        draw.rectangle((margin - 8, margin - 8, size[0] - margin + 8, size[1] - margin + 8), fill=sheet)
    y = margin
    while y + letters <= size[1] - margin:
        line = ""
        for _ in range(int(generator.integers(3, 12))):
            longer = f"{line} {_WORDS[int(generator.integers(len(_WORDS)))]}".strip()
            if font.getlength(longer) > size[0] - 2 * margin:
                break
            line = longer
        draw.text((margin, y), line, fill=ink, font=font, stroke_width=0 if paper else 2, stroke_fill=sheet)
        # A paragraph ends now and then.
        y += int(letters * (2.6 if generator.integers(5) == 0 else 1.5))


def _image(identity: str) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(fetch(identity)) as image:
        return np.asarray(image)
