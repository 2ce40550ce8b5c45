"""Samples of each model of round 2: photographs and pages, names, sentences, synthesized voices, a simulated crossing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Array = NDArray[Any]
Sample = dict[str, Array]
RATE = 16000
MEAN = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)
_SENTENCES = (
    "ខ្ញុំចូលចិត្តអានសៀវភៅនៅក្នុងបណ្ណាល័យជាមួយមិត្តភក្តិ",
    "ភ្នំពេញគឺជារាជធានីនៃព្រះរាជាណាចក្រកម្ពុជា",
    "តម្លៃអង្ករនៅទីផ្សារបានកើនឡើងយ៉ាងខ្លាំងក្នុងឆ្នាំនេះ",
    "សិស្សានុសិស្សត្រូវទៅសាលារៀនរៀងរាល់ព្រឹក",
)
_NAMES = ("محمد احمد يوسف ليلى", "عبدالرحمن فاطمه خالد نور", "حسين زينب مصطفى رضا", "طارق شيماء ابراهيم هبه")


def _khmer(files: list[Path]) -> Iterable[Sample]:
    ids = json.loads(files[2].read_text(encoding="utf-8"))["char2id"]
    for sentence in _SENTENCES:
        x = np.array([[ids.get(letter, 1) for letter in sentence]], np.int64)
        yield {"x": x, "mask": np.ones_like(x, dtype=bool)}


def _f0(_files: list[Path]) -> Iterable[Sample]:
    limits = {"fmin": np.array(65.0, np.float32), "fmax": np.array(1000.0, np.float32)}
    for seed, pitch in enumerate((95.0, 140.0, 210.0, 300.0)):
        yield {"audio": voice(seed, 1.25, pitch)[np.newaxis], **limits}


def _orient(_files: list[Path]) -> Iterable[Sample]:
    for name, turns in (("page-image", 0), ("text-image", 1), ("astronaut", 2), ("coffee", 3)):
        canvas = letterboxed(name, 320, fill=255, middle=True)
        image = np.rot90(canvas, -turns).transpose(2, 0, 1).astype(np.float32) / 255
        yield {"x": ((image - MEAN) / DEVIATION)[np.newaxis].astype(np.float32)}


def _signal(_files: list[Path]) -> Iterable[Sample]:
    return ({"x": np.stack([_crossing(10 * seed + pair, 900) for pair in range(4)])} for seed in range(4))


def _jarvis(files: list[Path]) -> Iterable[Sample]:
    """Embeddings of voices; moved in small steps until two of the four nearly, and two surely, pass for the wake word."""
    import onnxruntime as ort

    network = onnx.load(files[0])
    network.graph.output.append(onnx.helper.make_tensor_value_info("input.19", onnx.TensorProto.FLOAT, [1, 1]))
    sources = (network.SerializeToString(), str(files[1]), str(files[2]))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    word, spectrum, embedding = (
        ort.InferenceSession(one, options, providers=["CPUExecutionProvider"]) for one in sources
    )
    for seed, pitch in enumerate((100.0, 130.0, 170.0, 220.0)):
        audio = 32767 * voice(seed, 2.0, pitch)[np.newaxis]
        mel = spectrum.run(None, {"input": audio})[0].reshape(-1, 32) / 10 + 2
        windows = np.stack([mel[8 * step : 8 * step + 76] for step in range(16)])[..., np.newaxis]
        x = embedding.run(None, {"input_1": windows.astype(np.float32)})[0].reshape(1, 16, 96)
        yield {"x.1": _raised(word, x, seed)}


def _raised(word: Any, x: Array, seed: int) -> Array:
    """Small random steps from `x` until the wake word is likely: a logit of -1, or over 0 and sure of the second network."""
    rng, best, goal = np.random.default_rng(seed), (-99.0, 0.0), (0.4, 0.6) if seed % 2 else (-1.0, 0.0)
    while best < goal:
        tried = (x + rng.normal(0, 0.4, x.shape) * (rng.random(x.shape) < 0.05)).astype(np.float32)
        logit, answer = (float(value.item()) for value in word.run(["input.19", "53"], {"x.1": tried}))
        score = (min(logit, goal[0]), answer * (logit > 0))
        if score > best and (seed % 2 or logit < -0.2):
            best, x = score, tried
    return x


def _translit(files: list[Path]) -> Iterable[Sample]:
    index = {token: place for place, token in enumerate(json.loads(files[1].read_text(encoding="utf-8"))["tokens"])}
    for line in _NAMES:
        rows = [
            [index["<EG>"], index["<ROLE_GIVEN>"], *(index.get(one, 3) for one in name), index["<EOS>"]]
            for name in line.split()
        ]
        length = max(map(len, rows)) + 1
        src = np.array([row + [index["<PAD>"]] * (length - len(row)) for row in rows], np.int64)
        yield {"src": src, "src_mask": src == index["<PAD>"]}


def _nude(_files: list[Path]) -> Iterable[Sample]:
    for name in ("astronaut", "camera", "chelsea", "coffee"):
        image = letterboxed(name, 320, fill=0, middle=False)
        yield {"images": np.ascontiguousarray((image.astype(np.float32) / 255).transpose(2, 0, 1)[np.newaxis])}


def _turn(_files: list[Path]) -> Iterable[Sample]:
    for seed, (seconds, pitch) in enumerate(((2.2, 110.0), (4.1, 190.0), (6.3, 150.0), (7.9, 235.0))):
        sound = voice(seed, seconds, pitch)
        yield {"input_features": _log_mel(np.pad(sound, (8 * RATE - len(sound), 0)))[np.newaxis]}


def voice(seed: int, seconds: float, pitch: float) -> NDArray[np.float32]:
    """Something like speech: a gliding pitch in Hz, harmonics under three moving formants, syllables, pauses, breath; (n,)."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(seconds * RATE)) / RATE
    glide = pitch * (1 + 0.15 * np.sin(2 * np.pi * (0.7 + 0.2 * seed) * time + seed) - 0.08 * time / seconds)
    phase = 2 * np.pi * np.cumsum(glide) / RATE
    sound = np.zeros_like(time)
    for harmonic in range(1, 40):
        frequency = harmonic * glide
        gain = sum(
            level / (1 + ((frequency - centre * (1 + 0.12 * np.sin(2 * np.pi * speed * time))) / width) ** 2)
            for centre, width, level, speed in ((620, 90, 1, 2.1), (1350, 130, 0.6, 1.3), (2600, 180, 0.3, 0.8))
        )
        sound += np.where(frequency < 7500, gain, 0) * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 3.1 * time + seed) + 0.4, 0, None) * (np.sin(2 * np.pi * 0.6 * time) > -0.8)
    sound = 0.35 * sound / np.abs(sound).max() * syllables + 0.004 * rng.normal(size=time.size)
    return np.asarray(sound, np.float32)


def _log_mel(audio: Array) -> NDArray[np.float32]:
    """Whisper's features: (80, 800) of eight seconds; 400 samples a frame, 160 apart, Slaney's mel scale."""
    audio = (audio - audio.mean()) / np.sqrt(audio.var() + 1e-7)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(audio, 200, mode="reflect"), 400)[::160]
    power = np.abs(np.fft.rfft(frames * np.hanning(401)[:-1])) ** 2
    top = 15 + 27 / np.log(6.4) * np.log(8.0)
    mel = np.linspace(0, top, 82)
    edges = np.where(mel < 15, 200 * mel / 3, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)))
    slopes = edges[np.newaxis] - np.linspace(0, 8000, 201)[:, np.newaxis]
    rise = np.diff(edges)
    bank = np.clip(np.minimum(-slopes[:, :-2] / rise[:-1], slopes[:, 2:] / rise[1:]), 0, None) * (
        2 / (edges[2:] - edges[:-2])
    )
    log = np.log10(np.clip(power @ bank, 1e-10, None)).T[:, :800]
    return np.asarray((np.maximum(log, log.max() - 8) + 4) / 4, np.float32)


def _crossing(seed: int, seconds: int) -> NDArray[np.float32]:
    """A detector and a phase of a traffic signal, a second a column: (15, seconds); the channels are those of the package."""
    rng = np.random.default_rng(seed)
    cycle, share = int(rng.integers(70, 120)), 0.25 + 0.3 * rng.random()
    second = (np.arange(seconds) + int(rng.integers(cycle))) % cycle
    green, yellow = second < share * cycle, (second >= share * cycle) & (second < share * cycle + 4)
    cars = rng.random(seconds) < np.where(green, 0.3, 0.12)
    occupied = cars | (~green & (np.cumsum(cars) % 3 > 0) & (rng.random(seconds) < 0.8))
    call = ~green & occupied
    edge_on, edge_off = (np.diff(occupied.astype(int), prepend=0) == sign for sign in (1, -1))
    call_on, call_off = (np.diff(call.astype(int), prepend=0) == sign for sign in (1, -1))
    others = 0.5 * (1 + (~green)) * rng.random(seconds).round(1)
    rows = (occupied * rng.uniform(0.4, 1, seconds), cars / 2, green, yellow, ~(green | yellow), call, others)
    rest = (
        0.4 * call[::-1],
        np.ones(seconds),
        edge_on,
        edge_off,
        call_on,
        call_off,
        np.roll(green, 3),
        np.roll(call, 5),
    )
    return np.stack([np.asarray(row, np.float32) for row in (*rows, *rest)])


def letterboxed(name: str, size: int, *, fill: int, middle: bool) -> NDArray[np.uint8]:
    """scikit-image's photograph, fitted into a square: uint8 (size, size, 3), in the middle or in the corner."""
    from PIL import Image

    from proving.models.fetching import fetch

    with Image.open(fetch(name)) as opened:
        image = opened.convert("RGB")
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    canvas = Image.new("RGB", (size, size), (fill, fill, fill))
    corner = ((size - width) // 2, (size - height) // 2) if middle else (0, 0)
    canvas.paste(image.resize((width, height), Image.Resampling.BILINEAR), corner)
    return np.asarray(canvas)


SAMPLES: dict[str, Callable[[list[Path]], Iterable[Sample]]] = {
    "khmer": _khmer,
    "f0": _f0,
    "orient": _orient,
    "signal": _signal,
    "jarvis": _jarvis,
    "translit": _translit,
    "nude": _nude,
    "turn": _turn,
}
