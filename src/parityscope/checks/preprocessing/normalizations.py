"""Normalizations of images as affine maps per channel, and the ways in which they go wrong.

An image's elements in [0, 1], `raw`, are prepared as gain * raw + offset. Which normalization the reference's inputs had
is read from their range: undone, they lie in [0, 1], and on multiples of 1/255 where the image was not resized after it
was read. Numbers: ImageNet's mean and deviation from torchvision's models, CLIP's from openai/CLIP `clip.py`, MNIST's from
pytorch/examples `mnist/main.py`, ImageNet's in bytes from Caffe's and Keras' `preprocess_input`; 127.5 and 128 from
FaceNet and InsightFace, 127 and 128 from tensorflow/tpu `efficientnet/lite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks.preprocessing.steps import NORMALIZING, PreprocessingStep, change_on_input
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# An image that was resized with a kernel that overshoots leaves [0, 1] a little; chosen.
_OVERSHOOT = 0.02

# Share of a level of 1/255 by which elements of an image that was not resized miss it: FP32 rounding of values up to
# 255 / 0.2 is far below; the mean miss of anything else is a quarter.
_OFF_LEVEL = 0.05

# Normalizations that are held possible for one input, those that fill [0, 1] best first; each costs some 15 runs.
_POSSIBLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """prepared = gain * raw + offset, with one number for all channels or one for each; `words` name it."""

    key: str
    words: str
    gain: tuple[float, ...]
    offset: tuple[float, ...]

    def prepared(self, raw: np.ndarray, axis: int) -> np.ndarray:
        """float64, of the shape of `raw`, whose channels lie on `axis`."""
        return np.asarray(raw * _shape_to_axis(self.gain, raw.ndim, axis) + _shape_to_axis(self.offset, raw.ndim, axis))

    def undone(self, prepared: np.ndarray, axis: int) -> np.ndarray:
        """The raw array, float64."""
        array = prepared.astype(np.float64)
        return np.asarray(
            (array - _shape_to_axis(self.offset, array.ndim, axis)) / _shape_to_axis(self.gain, array.ndim, axis)
        )


def _shape_to_axis(numbers: tuple[float, ...], rank: int, axis: int) -> np.ndarray:
    array = np.array(numbers, np.float64)
    return array.reshape(()) if array.size == 1 else array.reshape(-1, *[1] * (rank - 1 - axis))


def _from_mean_deviation(
    key: str, words: str, mean: Sequence[float], deviation: Sequence[float], scale: float = 1.0
) -> Normalization:
    """(scale * raw - mean) / deviation."""
    both = [np.broadcast_to(each, max(len(mean), len(deviation))) for each in (mean, deviation)]
    gain = tuple(float(scale / each) for each in both[1])
    offset = tuple(float(-a / b) for a, b in zip(*both, strict=True))
    return Normalization(key=key, words=words, gain=gain, offset=offset)


unit = _from_mean_deviation("unit", "division by 255", (0.0,), (1.0,))
_BYTES = _from_mean_deviation("bytes", "no division by 255", (0.0,), (1.0,), 255.0)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_FAMILIES: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ("ImageNet's mean and deviation", _IMAGENET_MEAN, _IMAGENET_STD),
    "half": ("mean 0.5 and deviation 0.5", (0.5,), (0.5,)),
    "clip": ("CLIP's mean and deviation", _CLIP_MEAN, _CLIP_STD),
    "mnist": ("MNIST's mean and deviation", (0.1307,), (0.3081,)),
    "centred": ("mean 0.5", (0.5,), (1.0,)),
}
_IN_BYTES = (
    _from_mean_deviation("caffe", "ImageNet's mean in bytes (no division)", (123.675, 116.28, 103.53), (1.0,), 255.0),
    _from_mean_deviation(
        "caffe-reversed", "ImageNet's mean in bytes, in BGR order", (103.939, 116.779, 123.68), (1.0,), 255.0
    ),
    _from_mean_deviation("lite", "mean 127 and deviation 128 in bytes", (127.0,), (128.0,), 255.0),
    _from_mean_deviation("facenet", "mean 127.5 and deviation 128 in bytes", (127.5,), (128.0,), 255.0),
)


def _known_normalizations(channels: int) -> list[Normalization]:
    found = [unit, _BYTES, *(_from_mean_deviation(key, *rest) for key, rest in _FAMILIES.items()), *_IN_BYTES]
    return [each for each in found if len(each.gain) in {1, channels} and (each.key != "mnist" or channels == 1)]


def likely_normalizations(arrays: Sequence[np.ndarray], axis: int) -> list[Normalization]:
    """Which normalizations these prepared arrays may have had, the likeliest first; none where none fits.

    arrays: float, with channels on `axis`.
    """
    fitting = []
    for each in _known_normalizations(arrays[0].shape[axis]):
        raws = [each.undone(array, axis) for array in arrays]
        low, high = min(float(raw.min()) for raw in raws), max(float(raw.max()) for raw in raws)
        if low >= -_OVERSHOOT and high <= 1.0 + _OVERSHOOT:
            levels = np.concatenate([raw.ravel() for raw in raws]) * 255.0
            off = float(np.abs(levels - np.round(levels)).mean())
            fitting.append((off > _OFF_LEVEL, low - high, each))
    # Where one puts the elements on levels, the others are out of the question.
    exact = [item for item in fitting if not item[0] and item[1] < -_OVERSHOOT]
    return [each for _, _, each in sorted(exact or fitting, key=lambda item: item[:2])][:_POSSIBLE]


def normalization_steps(name: str, base: Normalization, axis: int, channels: int) -> list[PreprocessingStep]:
    """Steps that normalize input `name` in another way than `base`."""
    wrong = [*_own_mistakes(base), *(each for each in _known_normalizations(channels) if each.key != base.key)]
    return [
        PreprocessingStep(
            key=f"{name}:{base.key}>{target.key}",
            words=_describe_change(base, target),
            stage=NORMALIZING,
            slot=f"{name}:normalization",
            apply=change_on_input(name, _renormalize(base, target, axis)),
            right=_write_formula(base),
        )
        for target in wrong
        if len(target.gain) in {1, channels} and len(base.gain) in {1, channels}
    ]


def _renormalize(base: Normalization, target: Normalization, axis: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: target.prepared(base.undone(array, axis), axis)


def _own_mistakes(base: Normalization) -> list[Normalization]:
    """`base` done wrong."""
    twice = Normalization(
        key="twice",
        words=f"normalises twice ({base.words})",
        gain=tuple(gain * gain for gain in base.gain),
        offset=tuple(a * b + b for a, b in zip(base.gain, base.offset, strict=True)),
    )
    if base.key == "unit":
        return [_make_wrong_normalization("over", "divides by 255 twice", (1 / 255,), (0.0,))] + [
            wrong
            for key in ("imagenet", "half")
            for wrong in _wrong_scale_order(_from_mean_deviation(key, *_FAMILIES[key]))
        ]
    if base.key == "bytes":
        return []
    gain, offset = base.gain, base.offset
    over = tuple(each / 255.0 for each in gain)
    wrongs = [
        *_wrong_scale_order(base),
        _make_wrong_normalization("over", f"divides by 255 twice before it normalises ({base.words})", over, offset),
        twice,
    ]
    if len(gain) > 1:
        wrongs.append(
            _make_wrong_normalization(
                "reversed", f"takes {base.words} in the reversed order of channels", gain[::-1], offset[::-1]
            )
        )
    minus_mean = tuple(a / b for a, b in zip(offset, gain, strict=True))
    return [
        *wrongs,
        _make_wrong_normalization("mean-only", f"does not divide by the deviation ({base.words})", (1.0,), minus_mean),
        _make_wrong_normalization("deviation-only", f"does not subtract the mean ({base.words})", gain, (0.0,)),
    ]


def _wrong_scale_order(base: Normalization) -> list[Normalization]:
    """`base`, which expects [0, 1], on bytes: and divided by 255 afterwards, or never."""
    bytes_gain = tuple(255.0 * each for each in base.gain)
    late = tuple(each / 255.0 for each in base.offset)
    return [
        _make_wrong_normalization(
            "not-divided", f"does not divide by 255 before it normalises ({base.words})", bytes_gain, base.offset
        ),
        _make_wrong_normalization("late", f"normalises ({base.words}) before it divides by 255", base.gain, late),
    ]


def _make_wrong_normalization(
    key: str, words: str, gain: tuple[float, ...], offset: tuple[float, ...]
) -> Normalization:
    size = max(len(gain), len(offset))
    gain, offset = (each * size if len(each) == 1 else each for each in (gain, offset))
    return Normalization(key=f"wrong-{key}", words=words, gain=gain, offset=offset)


def _write_formula(base: Normalization) -> str:
    """The normalization of a pixel of 0 to 255 with its mean and deviation, in bytes where these are told in bytes."""
    unit = 1.0 if "in bytes" in base.words else 255.0
    deviation = [255.0 / each / unit for each in base.gain]
    mean = [-a / b * 255.0 / unit for a, b in zip(base.offset, base.gain, strict=True)]
    pixel = "pixel" if unit == 1.0 or base.key == "bytes" else "pixel / 255"
    if set(mean) <= {0.0} and len(set(deviation)) == 1:
        return f"x = {pixel}"
    return f"x = ({pixel} - {write_numbers(mean)}) / {write_numbers(deviation)}"


def write_numbers(numbers: Sequence[float]) -> str:
    """One number where all are the same, else the list of one for each channel."""
    told = [f"{number:.4g}" for number in numbers]
    return told[0] if len(set(told)) == 1 else f"[{', '.join(told)}]"


def _describe_change(base: Normalization, target: Normalization) -> str:
    if target.key.startswith(("wrong-", "twice")):
        return target.words
    match base.key, target.key:
        case "unit", "bytes":
            return "does not divide by 255"
        case "bytes", "unit":
            return "divides by 255, which the model does not expect"
        case _, "bytes":
            return f"neither divides by 255 nor normalises ({base.words} is expected)"
        case _, "unit":
            return f"does not normalise ({base.words} is expected)"
        case "unit" | "bytes", _:
            return f"normalises with {target.words}, which the model does not expect"
    return f"normalises with {target.words} instead of {base.words}"
