"""Fitting inputs for the models of the catalogue that measurements are made on, one or as many as wanted: arrays by name.

Text is rendered, sound is synthesised and bytes are this file's, all from fixed seeds: whoever repeats a measurement has
the same numbers. They are what each network was made for (a text line, a page, a voiced sound), because errors on noise
say little about errors in use.

`sample_of` gives one for each model; `page_crops`, `text_lines`, `library_files` and `token_sentences` go on for as long as
somebody asks, and are the same for the same generator.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from proving.models.fetching import page_image
from proving.models.labelled_files import file_tokens
from proving.models.ocr import ocr_det_input, ocr_rec_input, rendered_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

_LINE = "Parityscope measures 3.14159 errors"
_RATE = 16000  # Hz; what the speech models take
_WORDS = (
    "the quick brown fox jumps over lazy dog parity measures errors of networks in half precision on real pages with "
    "numbers 3.14 2718 1999 invoice total date street Berlin Paris London report section table figure matrix kernel"
).split()
_LEAST_BYTES = 300  # chosen: shorter files leave most of the input empty


def sample_of(identity: str) -> dict[str, NDArray[np.generic]]:
    """The input of the catalogue's model `identity`.

    Raises:
        ParityError: there is none for this model.
    """
    if identity not in SAMPLES:
        raise ParityError(f"there is no sample for {identity!r}", fix=f"use one of: {', '.join(SAMPLES)}")
    return SAMPLES[identity]()


def page_crops(draw: np.random.Generator) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Inputs of the text detector: cuts of the scanned page, resized to 384 x 192."""
    page = page_image()
    while True:
        height, width = int(draw.integers(80, 190)), int(draw.integers(160, 380))
        top, left = int(draw.integers(page.shape[0] - height)), int(draw.integers(page.shape[1] - width))
        yield ocr_det_input(page[top : top + height, left : left + width], (384, 192))


def text_lines(draw: np.random.Generator) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Inputs of the text recogniser: rendered lines of three to seven words."""
    while True:
        yield ocr_rec_input(rendered_line(" ".join(draw.permutation(_WORDS)[: draw.integers(3, 8)])))


def library_files(draw: np.random.Generator) -> Iterator[dict[str, NDArray[np.int32]]]:
    """Inputs of magika: files of this Python's standard library, each once."""
    found = sorted(path for path in Path(sysconfig.get_path("stdlib")).rglob("*.*") if path.is_file())
    for place in draw.permutation(len(found)):
        data = found[place].read_bytes()
        if len(data) >= _LEAST_BYTES:
            yield {"bytes": file_tokens(data)}


def token_sentences(draw: np.random.Generator) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Inputs of the sentence encoder: six to thirty of BERT's token numbers between its two markers."""
    while True:
        length = int(draw.integers(6, 31))
        tokens = np.array([[101, *draw.integers(1996, 12000, length), 102]], np.int64)
        yield {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }


def _detector() -> dict[str, NDArray[np.generic]]:
    return {"x": ocr_det_input(page_image(), (768, 384))["x"]}


def _recogniser() -> dict[str, NDArray[np.generic]]:
    return {"x": ocr_rec_input(rendered_line(_LINE))["x"]}


def _classifier() -> dict[str, NDArray[np.generic]]:
    """The line at 48 x 192, cut or filled with the padding value nought on the right."""
    line = ocr_rec_input(rendered_line(_LINE[:12]))["x"][..., :192]
    padded = np.zeros((1, 3, 48, 192), np.float32)
    padded[..., : line.shape[-1]] = line
    return {"x": padded}


def _speech(count: int, rate: int = _RATE) -> NDArray[np.float32]:
    """A voiced sound whose pitch glides from 110 to 165 Hz, with three formants, syllables and faint noise."""
    time = np.arange(count) / rate
    phase = 2 * np.pi * np.cumsum(110 + 55 * time / max(time[-1], 1e-9)) / rate
    formants = {700: 90.0, 1220: 110.0, 2600: 160.0}
    sound = np.zeros(count)
    for harmonic in range(1, 30):
        pitch = harmonic * 137.5
        gain = sum(1 / (1 + ((pitch - centre) / width) ** 2) for centre, width in formants.items())
        sound += gain * np.sin(harmonic * phase)
    envelope = np.clip(np.sin(2 * np.pi * 2.5 * time), 0, None) ** 0.5
    noise = np.random.default_rng(0).normal(size=count)
    sound = sound / np.abs(sound).max()
    return np.asarray(0.3 * sound * envelope + 1e-3 * noise, np.float32)


def _voice_activity() -> dict[str, NDArray[np.generic]]:
    frame = _speech(_RATE)[4000 : 4000 + 576]
    return {"input": frame[None], "sr": np.array(_RATE, np.int64), "state": np.zeros((2, 1, 128), np.float32)}


def _voice_activity_sequence() -> dict[str, NDArray[np.generic]]:
    sound = _speech(_RATE)
    frames = np.stack([sound[start : start + 576] for start in range(0, len(sound) - 576, 512)])
    return {"input": frames, "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}


def _bytes() -> dict[str, NDArray[np.generic]]:
    return {"bytes": file_tokens(Path(__file__).read_bytes())}


def _sentences() -> dict[str, NDArray[np.generic]]:
    """Two sentences in BERT's uncased vocabulary, the second shorter: token numbers, and a mask over the padding."""
    # "[CLS] the cat sat on the mat . [SEP]" and "[CLS] how are you ? [SEP]"
    first = [101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102]
    second = [101, 2129, 2024, 2017, 1029, 102]
    tokens = np.zeros((2, len(first)), np.int64)
    tokens[0], tokens[1, : len(second)] = first, second
    return {
        "input_ids": tokens,
        "attention_mask": (tokens != 0).astype(np.int64),
        "token_type_ids": np.zeros_like(tokens),
    }


def _page() -> dict[str, NDArray[np.generic]]:
    """The scanned page, resized to 608 x 800 and normalised as the detector's is."""
    from PIL import Image

    page = Image.fromarray(page_image()).convert("RGB").resize((608, 800), Image.Resampling.BILINEAR)
    scaled = np.asarray(page, np.float32) / np.float32(255)
    mean, deviation = np.array((0.485, 0.456, 0.406), np.float32), np.array((0.229, 0.224, 0.225), np.float32)
    return {"image": np.ascontiguousarray(((scaled - mean) / deviation).transpose(2, 0, 1)[None])}


def _notes() -> dict[str, NDArray[np.generic]]:
    """Three notes with overtones at 22.05 kHz."""
    rate, count = 22050, 43844
    time = np.arange(count) / rate
    sound = np.zeros(count)
    for note, start in ((220.0, 0.1), (277.2, 0.7), (329.6, 1.3)):
        held = (time >= start) & (time < start + 0.5)
        for overtone in range(1, 6):
            sound += held * np.sin(2 * np.pi * note * overtone * time) / overtone
    return {"serving_default_input_2:0": (0.2 * sound).astype(np.float32)[None, :, None]}


def _recording() -> dict[str, NDArray[np.generic]]:
    return {"input_1": _speech(144160)[None]}


SAMPLES: Mapping[str, Callable[[], dict[str, NDArray[np.generic]]]] = {
    "ocr-rec": _recogniser,
    "ocr-det": _detector,
    "ocr-cls": _classifier,
    "vad-18": _voice_activity,
    "vad-seq": _voice_activity_sequence,
    "magika": _bytes,
    "minilm-i8": _sentences,
    "layout": _page,
    "pitch": _notes,
    "dnsmos": _recording,
}
