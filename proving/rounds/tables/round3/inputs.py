"""Samples of each model of round 3: drawn captchas, a simulated electroencephalogram, programs' bytes, pages, noisy voices, words, a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proving.rounds.inputs import DEVIATION, MEAN, RATE, Sample, letterboxed, voice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Array = NDArray[Any]
_CODES = ("7K4Q", "M2XB", "A9TD", "3HPW", "ZC85")
_THAI = (
    "ฉันชอบอ่านหนังสือในห้องสมุดกับเพื่อน",
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "ราคาข้าวในตลาดเพิ่มขึ้นมากในปี 2567",
    "นักเรียนไปโรงเรียนทุกเช้า",
    "วันนี้อากาศร้อนมาก เราจึงไปว่ายน้ำที่ทะเล",
)
_RUSSIAN = (
    ("переподготовка", "водопад", "учительница", "безграничный"),
    ("подсолнечник", "самолёт", "расписание", "читаться"),
    ("северо-западный", "предупреждение", "домик", "разговорчивость"),
    ("кислородный", "выздороветь", "по-новому", "землетрясение"),
    ("хлеб", "прибрежный", "сотрудничество", "зимовка"),
)


def _captcha(_files: list[Path]) -> Iterable[Sample]:
    """Four letters in four colours over a pale ground with lines and dots; blue, green, red, 0 to 255."""
    from PIL import Image, ImageDraw, ImageFont

    for seed, code in enumerate(_CODES):
        rng = np.random.default_rng(seed)
        image = Image.new("RGB", (160, 60), tuple(int(value) for value in rng.integers(205, 255, 3)))
        pen = ImageDraw.Draw(image)
        for place, letter in enumerate(code):
            colour = tuple(int(value) for value in rng.integers(10, 170, 3))
            corner = (14 + 35 * place + int(rng.integers(-4, 5)), 4 + int(rng.integers(0, 10)))
            pen.text(corner, letter, fill=colour, font=ImageFont.load_default(40))
        for _ in range(4):
            ends = [int(value) for value in rng.integers(0, (160, 60, 160, 60))]
            pen.line(ends, fill=tuple(int(value) for value in rng.integers(60, 200, 3)), width=1)
        pixels = np.asarray(image, np.float32) + rng.normal(0, 6, (60, 160, 3))
        yield {"image": np.clip(pixels, 0, 255)[:, :, ::-1].transpose(2, 0, 1)[np.newaxis].astype(np.float32)}


def _seizure(_files: list[Path]) -> Iterable[Sample]:
    """One minute at 250 Hz: slow noise, alpha waves, in some a discharge of 3 to 5 Hz; spectra of a second, normalized by bin."""
    rate, seconds = 250, 60
    for seed in range(5):
        rng = np.random.default_rng(seed)
        time = np.arange(rate * seconds) / rate
        spectrum = np.fft.rfft(rng.normal(size=time.size)) / np.maximum(np.fft.rfftfreq(time.size, 1 / rate), 0.5)
        signal = np.fft.irfft(spectrum, time.size)
        signal = signal / signal.std() + 0.4 * np.sin(2 * np.pi * (9.5 + 0.3 * seed) * time) * np.sin(0.4 * time)
        if seed % 2:
            burst = (time > 20 + 2 * seed) & (time < 42 + 2 * seed)
            phase = 2 * np.pi * np.cumsum(5 - 2 * np.clip((time - 20) / 25, 0, 1)) / rate
            signal += burst * (3 * np.sign(np.sin(phase)) * np.abs(np.sin(phase)) ** 0.4 + 0.5 * rng.normal(size=time.size))
        yield {"x": _spectrogram((signal - signal.mean()) / signal.std(), rate)[np.newaxis]}


def _spectrogram(signal: Array, rate: int) -> NDArray[np.float32]:
    """SciPy's spectrogram: one second, half of it shared, a Tukey window of 0.25, the mean taken off; (100, frames)."""
    frames = np.lib.stride_tricks.sliding_window_view(signal, rate)[:: rate // 2]
    ramp = rate // 8
    window = np.ones(rate)
    window[:ramp] = 0.5 * (1 - np.cos(np.pi * np.arange(ramp) / (0.125 * rate)))
    window[-ramp:] = window[:ramp][::-1]
    power = np.abs(np.fft.rfft((frames - frames.mean(1, keepdims=True)) * window)) ** 2
    power = power[:, :100].T * 2 / (rate * (window**2).sum())
    return np.asarray((power - power.mean(1, keepdims=True)) / power.std(1, keepdims=True), np.float32)


def _malware(_files: list[Path]) -> Iterable[Sample]:
    """Files of this interpreter's packages as grey pictures, as wide as the package makes them."""
    import onnxruntime
    from PIL import Image

    numpy, runtime = Path(np.__file__).parent, Path(onnxruntime.__file__).parent
    paths = (
        next(numpy.glob("_core/_multiarray_umath*.so")),
        next(numpy.glob("fft/_pocketfft_umath*.so")),
        numpy / "lib" / "_npyio_impl.py",
        next(runtime.glob("capi/onnxruntime_pybind11_state*.so")),
        Path(sys.modules["json.decoder"].__file__ or ""),
    )
    for path in paths:
        content = np.frombuffer(path.read_bytes()[:2_000_000], np.uint8)
        width = 1 << int(np.log2(int(content.size**0.5))) + 1
        picture = Image.fromarray(content[: content.size // width * width].reshape(-1, width)).convert("RGB")
        pixels = np.asarray(picture.resize((224, 224)), np.float32).transpose(2, 0, 1) / 255
        yield {"input": ((pixels - MEAN) / DEVIATION)[np.newaxis].astype(np.float32)}


def _page(_files: list[Path]) -> Iterable[Sample]:
    for name in ("page-image", "text-image", "astronaut", "coffee"):
        image = letterboxed(name, 256, fill=255, middle=False)[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / 255
        yield {"x": ((image - MEAN) / DEVIATION)[np.newaxis].astype(np.float32)}


def _denoise(_files: list[Path]) -> Iterable[Sample]:
    """Voices in noise: log10 of the power, 320 samples a frame, 160 apart, the square root of Hann's window."""
    window = np.sqrt(np.hanning(321)[:-1])
    for seed, (pitch, noise) in enumerate(((100.0, 0.02), (140.0, 0.05), (190.0, 0.01), (230.0, 0.1), (120.0, 0.03))):
        rng = np.random.default_rng(seed)
        sound = voice(seed, 1.5, pitch) + noise * np.convolve(rng.normal(size=int(1.5 * RATE)), [1, 0.7, 0.3], "same")
        frames = np.lib.stride_tricks.sliding_window_view(sound, 320)[::160] * window
        power = np.abs(np.fft.rfft(frames)) ** 2
        yield {"input": np.log10(np.maximum(power, 1e-12))[np.newaxis].astype(np.float32)}


def _thai(files: list[Path]) -> Iterable[Sample]:
    ids = json.loads(files[1].read_text(encoding="utf-8"))
    for sentence in _THAI:
        yield {"input": np.array([[ids.get(letter, ids["<UNK>"]) for letter in sentence]], np.int64)}


def _morph(files: list[Path]) -> Iterable[Sample]:
    ids = json.loads(files[1].read_text(encoding="utf-8"))["mapping"]["tokenizer_vocab"]
    for words in _RUSSIAN:
        length = max(map(len, words))
        rows = [[ids[letter] for letter in word] + [0] * (length - len(word)) for word in words]
        yield {"input_layer": np.array(rows, np.int32)}


def _surrogate(_files: list[Path]) -> Iterable[Sample]:
    """Neighbours, algorithm, data set, folds: what the package's own search draws from."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        columns = (rng.integers(3, 148, 8), rng.integers(0, 4, 8), rng.integers(0, 2, 8), rng.choice([2, 3, 5, 10], 8))
        yield {"input": np.stack(columns, 1).astype(np.float32)}


SAMPLES: dict[str, Callable[[list[Path]], Iterable[Sample]]] = {
    "captcha": _captcha,
    "seizure": _seizure,
    "malware": _malware,
    "page": _page,
    "denoise": _denoise,
    "thai": _thai,
    "morph": _morph,
    "surrogate": _surrogate,
}
