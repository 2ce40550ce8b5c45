"""Trained models of the test catalogue as subjects, with inputs drawn for each case: rendered lines, photographs, files, speech.

EfficientNet-Lite0 gets pictures of half its width, which a network of convolutions and a mean takes as well.

Pictures are coloured, because exchanged channels show in nothing else. All are small enough that a diagnosis takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.records import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray]
    Draw = Callable[[np.random.Generator], Sequence[Arrays]]

_SAMPLES = 3
_LITE_SIDE = 112
_PHOTOGRAPHS = ("coffee", "chelsea", "astronaut")
_WORDS = (
    "parity measures errors of networks half precision on real pages invoice total date Berlin Paris table 2718".split()
)

# ImageNet's mean and deviation of each channel, of [0, 1] pixels (torchvision's documentation).
IMAGENET = (np.array((0.485, 0.456, 0.406)).reshape(1, 3, 1, 1), np.array((0.229, 0.224, 0.225)).reshape(1, 3, 1, 1))


def photograph(draw: np.random.Generator) -> np.ndarray:
    """A cut of one of scikit-image's photographs: uint8 (H, W, 3)."""
    from PIL import Image

    from proving.models.fetching import fetch

    with Image.open(fetch(str(draw.choice(_PHOTOGRAPHS)))) as image:
        whole = np.asarray(image.convert("RGB"))
    height, width = int(draw.integers(120, 280)), int(draw.integers(160, 400))
    top, left = int(draw.integers(whole.shape[0] - height)), int(draw.integers(whole.shape[1] - width))
    return np.ascontiguousarray(whole[top : top + height, left : left + width])


def _line(draw: np.random.Generator, width: int) -> np.ndarray:
    """A rendered line in one colour on another, cut or filled to 48 x width: float64 (1, 3, 48, width) in [0, 1]."""
    from PIL import Image

    from proving.models.fetching import rendered_line

    words = " ".join(draw.permutation(_WORDS)[: int(draw.integers(2, 5))])
    ink = Image.fromarray(rendered_line(words))
    ink = ink.resize((max(1, round(48 * ink.width / ink.height)), 48), Image.Resampling.BILINEAR)
    level = np.ones((48, width))
    part = np.asarray(ink)[:, :width] / 255.0
    level[:, : part.shape[1]] = part
    paper, colour = draw.uniform(0.7, 1.0, 3), draw.uniform(0.0, 0.4, 3)
    picture = colour[:, None, None] + (paper - colour)[:, None, None] * level
    return np.rint(picture * 255)[None] / 255


def _ocr_cls(draw: np.random.Generator) -> Sequence[Arrays]:
    # Two numbers a line: as many lines as a user would try.
    return [{"x": ((_line(draw, 192) - 0.5) / 0.5).astype(np.float32)} for _ in range(8)]


def _ocr_rec(draw: np.random.Generator) -> Sequence[Arrays]:
    width = int(draw.integers(10, 20)) * 8
    return [{"x": ((_line(draw, width) - 0.5) / 0.5).astype(np.float32)} for _ in range(2)]


def coloured_page(draw: np.random.Generator) -> np.ndarray:
    """A cut of a scanned page, in one colour on another: uint8 (H, W, 3)."""
    from proving.models.fetching import page_image

    page = page_image() / 255.0
    height, width = int(draw.integers(60, 120)), int(draw.integers(100, 200))
    top, left = int(draw.integers(page.shape[0] - height)), int(draw.integers(page.shape[1] - width))
    level = page[top : top + height, left : left + width, None]
    paper, ink = draw.uniform(0.75, 1.0, 3), draw.uniform(0.0, 0.3, 3)
    return np.asarray(np.rint((ink + (paper - ink) * level) * 255), np.uint8)


def _ocr_det(draw: np.random.Generator) -> Sequence[Arrays]:
    from PIL import Image

    found = []
    for _ in range(2):
        picture = Image.fromarray(coloured_page(draw)).resize((160, 96), Image.Resampling.BILINEAR)
        pixels = np.asarray(picture, np.float64).transpose(2, 0, 1)[None] / 255
        found.append({"x": ((pixels - IMAGENET[0]) / IMAGENET[1]).astype(np.float32)})
    return found


def _lite0(draw: np.random.Generator) -> Sequence[Arrays]:
    from PIL import Image

    found = []
    for _ in range(_SAMPLES):
        picture = Image.fromarray(photograph(draw)).resize((_LITE_SIDE, _LITE_SIDE), Image.Resampling.BILINEAR)
        pixels = np.asarray(picture, np.float64).transpose(2, 0, 1)[None]
        found.append({"image": ((pixels - 127) / 128).astype(np.float32)})
    return found


def _make_lite0(folder: Path, draw: np.random.Generator) -> tuple[Path, Sequence[Arrays]]:
    import onnx

    from proving.models.efficientnet import efficientnet_lite0

    path = efficientnet_lite0(folder / "lite0.onnx")
    model = onnx.load(path)
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = _LITE_SIDE
    onnx.save(model, path)
    return path, _lite0(draw)


def _minilm(draw: np.random.Generator) -> Sequence[Arrays]:
    """Two texts of each sample: the second's tokens have type 1, and padding fills the end."""
    found = []
    for _ in range(2):
        length, pad = int(draw.integers(9, 18)), int(draw.integers(1, 5))
        second = int(draw.integers(4, length - 2))
        ids = np.zeros((1, length + pad), np.int64)
        ids[0, :length] = [101, *draw.integers(1996, 12000, length - 2), 102]
        places = np.arange(length + pad)[None]
        found.append(
            {
                "input_ids": ids,
                "attention_mask": (places < length).astype(np.int64),
                "token_type_ids": ((places >= second) & (places < length)).astype(np.int64),
            }
        )
    return found


def _magika(draw: np.random.Generator) -> Sequence[Arrays]:
    from proving.models.samples import library_files

    files = library_files(draw)
    return [next(files) for _ in range(_SAMPLES)]


def _speech(draw: np.random.Generator, count: int) -> np.ndarray:
    """A voiced sound of a drawn pitch with syllables and faint noise, at 16 kHz: float32 (count,)."""
    time = np.arange(count) / 16000.0
    pitch = draw.uniform(90, 240) * (1 + 0.2 * np.sin(2 * np.pi * draw.uniform(0.5, 2) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / 16000.0
    sound = sum(draw.uniform(0.2, 1) / harmonic * np.sin(harmonic * phase) for harmonic in range(1, 18))
    envelope = np.clip(np.sin(2 * np.pi * 3 * time + draw.uniform(0, 6)), 0.05, None)
    return np.asarray(0.2 * sound * envelope + 1e-3 * draw.normal(size=count), np.float32)


def _dnsmos(draw: np.random.Generator) -> Sequence[Arrays]:
    return [{"input_1": _speech(draw, 144160)[None]} for _ in range(2)]


def _vad(draw: np.random.Generator) -> Sequence[Arrays]:
    rate, state = np.array(16000, np.int64), (2, 1, 128)
    return [
        {"input": _speech(draw, 576)[None], "sr": rate, "state": draw.normal(0, 0.2, state).astype(np.float32)}
        for _ in range(_SAMPLES)
    ]


def _vad_sequence(draw: np.random.Generator) -> Sequence[Arrays]:
    found = []
    for _ in range(2):
        sound = _speech(draw, 576 + 512 * 11)
        frames = np.stack([sound[start : start + 576] for start in range(0, len(sound) - 575, 512)])
        states = {name: draw.normal(0, 0.2, (1, 1, 128)).astype(np.float32) for name in ("h", "c")}
        found.append({"input": frames, **states})
    return found


def _pitch(draw: np.random.Generator) -> Sequence[Arrays]:
    time = np.arange(43844) / 22050.0
    sound = 1e-3 * draw.normal(size=len(time))
    for _ in range(3):
        note, start = 110 * 2 ** (draw.integers(0, 36) / 12), draw.uniform(0, 1.4)
        held = (time >= start) & (time < start + 0.5)
        for overtone in range(1, 6):
            sound = sound + 0.2 * held * np.sin(2 * np.pi * note * overtone * time) / overtone
    return [{"serving_default_input_2:0": sound.astype(np.float32)[None, :, None]}]


def _subject(
    name: str, shape: str, samples: Draw, normal: str = "", *, halves: bool = True, openvino: bool = True
) -> Subject:
    def make(folder: Path, draw: np.random.Generator) -> tuple[Path, Sequence[Arrays]]:
        from proving.models.fetching import model_path

        del folder
        return model_path(name), samples(draw)

    return Subject(name=name, trained=True, shape=shape, make=make, normal=normal, halves=halves, openvino=openvino)


# FP16 does not hold a variance of the detector (9.8e7), magika's cubes, the 1e-10 before basic-pitch's logarithm, and the
# powers of DNSMOS' spectrum.
TRAINED: dict[str, Subject] = {
    one.name: one
    for one in (
        _subject("ocr-cls", "image", _ocr_cls, "half"),
        _subject("ocr-rec", "image", _ocr_rec, "half"),
        _subject("ocr-det", "image", _ocr_det, "imagenet", halves=False),
        Subject(name="lite0", trained=True, shape="image", make=_make_lite0, normal="lite"),
        _subject("ocr-npm-cls", "image", _ocr_cls, "half"),
        # OpenVINO quantizes activations on the fly where weights are int8: not an honest FP32 deployment.
        _subject("minilm-i8", "tokens", _minilm, openvino=False),
        _subject("magika", "bytes", _magika, halves=False),
        _subject("vad-18", "state", _vad),
        _subject("vad-seq", "frames", _vad_sequence),
        _subject("pitch", "sound", _pitch, halves=False),
        _subject("dnsmos", "sound", _dnsmos, halves=False),
    )
}
