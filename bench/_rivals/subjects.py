"""What is compared on: models, samples from fixed seeds, a format and a budget (relative L2 error).

Development models that lose accuracy in FP16 or BF16 (some only at a tight budget), and encoders made to fail. A subject's
samples come in one stream: the first `SHOWN` (and a few to search on) are what the methods are given, of which Parityscope
holds some out by itself; the next `FRESH` nobody sees before the judgement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx

from _rivals import encoders, exported
from parityscope.case.formats.npz import write_npz
from proving.models.fetching import fetch, model_path
from proving.models.samples import library_files, page_crops, sample_of, text_lines, token_sentences

if TYPE_CHECKING:
    from pathlib import Path

# Samples to search on where single ones are far more sensitive than most: one line in a hundred is twenty times as sensitive
# as the median one, one file or one crop of a page in thirty to sixty several times. 64 is the search's own choice of many.
SEARCHED = {"ocr-rec": 200, "magika": 64, "ocr-det": 64}
SENSING = {"ocr-rec": 96}  # evaluations for sensitivities at most; a node each for the others
SHOWN = FRESH = 59  # clean samples that say 95 %/95 %
FEWER = 36  # 90 %/90 % up to the third attempt (33), where one run takes long for what there is to learn
_SLOW = frozenset({"dnsmos", "encoder-squares", "encoder-epsilon", "encoder-mask", "encoder-scaled"})
_SEED = 5

Arrays = dict[str, np.ndarray]
Samples = Callable[[np.random.Generator], Iterator[Arrays]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model in a low format with a budget. `model` gives its file's content; `searched` samples are searched on."""

    name: str
    low: str
    limit: float
    model: Callable[[], onnx.ModelProto]
    samples: Samples
    searched: int = 4
    sensing: int = 0
    shown: int = SHOWN
    fresh: int = FRESH


def write(subject: Subject, folder: Path) -> None:
    """Writes `model.onnx`, `shown/` and `fresh/` into `folder`.

    Raises:
        Unavailable: the model or the images that samples are cut from cannot be had.
    """
    onnx.save(subject.model(), folder / "model.onnx")
    stream = subject.samples(np.random.default_rng(_SEED))
    for part, count in (("shown", subject.searched + subject.shown), ("fresh", subject.fresh)):
        for number in range(count):
            write_npz(folder / part / f"{number:06d}.npz", next(stream))


def _packaged(identity: str) -> onnx.ModelProto:
    return onnx.load(model_path(identity))


def _sounds(draw: np.random.Generator) -> Iterator[Arrays]:
    """Three notes with overtones, each at its own time and pitch: 43844 numbers at 22.05 kHz."""
    time = np.arange(43844) / 22050
    while True:
        sound = 1e-4 * draw.normal(size=time.size)
        for start in draw.uniform(0, 1.4, 3):
            pitch = 220 * 2 ** (draw.integers(-12, 25) / 12)
            held = (time >= start) & (time < start + draw.uniform(0.2, 0.6))
            sound += sum(held * np.sin(2 * np.pi * pitch * tone * time) / tone for tone in range(1, 6))
        yield {"serving_default_input_2:0": (0.2 * sound).astype(np.float32)[None, :, None]}


def _speech(draw: np.random.Generator) -> Iterator[Arrays]:
    """The synthesised voice, rolled in time, at several levels and with several amounts of noise."""
    voice = sample_of("dnsmos")["input_1"]
    while True:
        rolled = np.roll(voice, int(draw.integers(voice.size)), axis=1) * draw.uniform(0.3, 1.5)
        noise = 10 ** draw.uniform(-4, -1.5) * draw.normal(size=voice.shape)
        yield {"input_1": (rolled + noise).astype(np.float32)}


def _photographs(draw: np.random.Generator) -> Iterator[Arrays]:
    """Cuts of scikit-image's photographs at 224 x 224, as EfficientNet-Lite takes them: (x - 127) / 128."""
    from PIL import Image

    names = ("camera", "coffee", "chelsea", "astronaut")
    pictures = [Image.open(fetch(name)).convert("RGB") for name in names]
    while True:
        picture = pictures[int(draw.integers(len(pictures)))]
        side = int(min(picture.size) * draw.uniform(0.4, 1))
        left, top = (int(draw.integers(length - side + 1)) for length in picture.size)
        cut = picture.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BICUBIC)
        yield {"x": np.ascontiguousarray(((np.asarray(cut, np.float32) - 127) / 128).transpose(2, 0, 1)[None])}


_PACKAGED: tuple[tuple[str, str, float, Samples], ...] = (
    ("ocr-det", "f16", 1e-2, page_crops),
    ("magika", "f16", 1e-2, library_files),
    ("pitch", "f16", 1e-2, _sounds),
    ("dnsmos", "f16", 1e-2, _speech),
    ("minilm-i8", "f16", 1e-3, token_sentences),
    ("ocr-rec", "f16", 3e-3, text_lines),
)
_MADE: dict[str, Callable[[], onnx.ModelProto]] = {"minilm": exported.minilm, "lite0": exported.lite0}
_MADE |= {f"encoder-{kind}": partial(encoders.encoder, kind) for kind in encoders.KINDS}
_BUILT: tuple[tuple[str, str, float, Samples], ...] = (
    ("minilm", "f16", 1e-3, token_sentences),
    ("lite0", "f16", 1e-3, _photographs),
    *((f"encoder-{kind}", "f16", 5e-3, partial(encoders.samples, kind)) for kind in encoders.KINDS),
    ("minilm", "bf16", 5e-3, token_sentences),
    ("encoder-mask", "bf16", 1e-2, partial(encoders.samples, "mask")),
)
SUBJECTS = {
    name if low == "f16" else f"{name}-{low}": Subject(
        name=name,
        low=low,
        limit=limit,
        model=_MADE.get(name, partial(_packaged, name)),
        samples=samples,
        searched=SEARCHED.get(name, 4),
        sensing=SENSING.get(name, 0),
        shown=FEWER if name in _SLOW else SHOWN,
        fresh=FEWER if name in _SLOW else FRESH,
    )
    for name, low, limit, samples in (*_PACKAGED, ("ocr-det", "bf16", 3e-2, page_crops), *_BUILT)
}
