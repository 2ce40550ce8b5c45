"""Steps that only the image knows: another kernel, antialiasing, crop or letterbox.

How the reference prepared its input is recognised: every known way of putting the image on the network's size is done,
and the prepared input regressed on it, channel by channel. A way is recognised if it leaves at most `_KNOWN` of the
variance: rounding in another order moves some pixels in a hundred by one level of 255, which leaves 1e-6 of a photograph's
variance, and rounding that is done or not leaves 2e-5; two kernels differ by 1e-3 and more. The steps then refine that way, one
part of it each: where the image is put, what is filled and when, the kernel, the rounding; what they make is normalized as the
reference's input was.

The images that samples were made from, and the steps that only they allow; or why there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats.images import read_image
from parityscope.case.imaging.kernels import KERNELS, kernel_words
from parityscope.case.imaging.recipe import Placing, filled_pixels, place_image, placing_words
from parityscope.checks._common import format_percent
from parityscope.checks.input_fit import fit_channels
from parityscope.checks.preprocessing.steps import (
    FILLED,
    ORIGINAL,
    PLACING,
    PREPARED,
    READING,
    STORED,
    Base,
    PreprocessingStep,
)
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from parityscope.case.imaging.recipe import Side
    from parityscope.checks.input_fit import Fit
    from parityscope.checks.preprocessing.images import Image

    Refine = Callable[[Placing], Placing]

    from parityscope.examination import Examination

_UNKNOWN = "only the original image knows, not the prepared tensor"
_GIVE = "give the images with --images DIR, or record the inputs of the deployment's model (docs/preprocessing.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The images of the samples (uint8, RGB), as they are seen and as they are stored where that is not the same, and the steps.

    `recipe` is how the reference prepares them, {} where no recipe says it. `problem` and `fix` say why there are no steps.
    """

    arrays: tuple[np.ndarray, ...] = ()
    stored: tuple[np.ndarray, ...] = ()
    steps: tuple[PreprocessingStep, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    fix: str = ""

    def of(self, place: int) -> Mapping[str, np.ndarray]:
        """What sample `place` gets beside its inputs."""
        stored = {STORED: self.stored[place]} if self.stored else {}
        return {ORIGINAL: self.arrays[place], **stored} if self.steps else {}


def pictures_of(
    known: Examination, indices: Sequence[int], images: Sequence[Image], samples: Sequence[Mapping[str, np.ndarray]]
) -> Pictures:
    """The images that samples `indices` were made from, for a model that takes one image and no batch of them."""
    paths = [known.inputs.sample(index).original for index in indices] if images else []
    if not images or any(path is None for path in paths):
        return Pictures(problem=_UNKNOWN, fix=_GIVE)
    image = images[0]
    arrays = [sample[image.name] for sample in samples]
    if len(images) > 1 or any(len(array) != 1 for array in arrays):
        return Pictures(problem="a sample holds more than one image, and which is which is not known", fix=_GIVE)
    try:
        pictures = tuple(read_image(path) for path in paths if path is not None)
        stored = tuple(read_image(path, turned=False) for path in paths if path is not None)
    except ParityError as error:
        return Pictures(problem=error.problem, fix=error.fix)
    placed = recognise_placing(pictures, arrays, image.axis)
    if not placed.is_known:
        return Pictures(
            problem="the reference's own preprocessing is none of those known: the nearest leaves "
            f"{format_percent(placed.left)} of the prepared input's variance",
            fix="describe it as a recipe, --preprocess prepare.toml, if one fits (docs/inputs.md)",
        )
    turned = any(not np.array_equal(one, other) for one, other in zip(pictures, stored, strict=True))
    steps = tuple(placing_steps(image, placed, stored=turned))
    return Pictures(arrays=pictures, stored=stored if turned else (), steps=steps, recipe=recipe_of(image, placed))


_KNOWN = 1e-4  # 1 - R^2; see above

# Or it leaves less than this, root mean square in levels of a byte. Libraries round to bytes behind each of two passes (0.41
# of a level for two roundings), in fixed point (Pillow: 0.36 measured); of a picture of low contrast that is more than _KNOWN.
_LEVELS = 0.5

# Libraries round resized pixels in their own ways, and their fixed-point kernels are off by a level here and there, which
# the search cannot copy. Two kernels that are not the same differ by more than a third of what no resize differs by; chosen.
_LEAVES = 0.2

# Fillings of letterboxes: black, YOLO's grey, the middle, white, ImageNet's mean.
_FILLS = ((0.0,) * 3, (114.0,) * 3, (128.0,) * 3, (255.0,) * 3, (124.0, 116.0, 104.0))
_SIDES: tuple[Side, ...] = ("middle", "first", "last")
_KEPT = 24  # pictures that were placed and are kept for the next compositions


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """The nearest known way from the images to the prepared arrays.

    `left` is the part of the variance that it leaves, `levels` the root mean square of that in levels of a byte.
    """

    placing: Placing
    fit: Fit
    left: float
    levels: float

    @property
    def is_known(self) -> bool:
        """Whether it is that way."""
        return self.left <= _KNOWN or self.levels <= _LEVELS


def recognise_placing(pictures: Sequence[np.ndarray], arrays: Sequence[np.ndarray], axis: int) -> Recognised:
    """How `arrays` (rank 4, a batch of one, channels on `axis`) were made of `pictures` (uint8, RGB)."""
    size = _image_size(arrays[0], axis)
    place = next((at for at, each in enumerate(pictures) if each.shape[0] != each.shape[1]), 0)
    first = _find_best_placing(pictures[place], arrays[place], axis, _list_fittings(size))
    kernels = (replace(first.placing, kernel=kernel, whole=whole) for kernel in KERNELS for whole in (True, False))
    found = _find_best_placing(pictures[place], arrays[place], axis, [first.placing, *kernels])
    fits = [_fit_placing(found.placing, each, array, axis) for each, array in zip(pictures, arrays, strict=True)]
    levels = max(_residual_in_levels(fit, array) for fit, array in zip(fits, arrays, strict=True))
    return replace(found, left=max(_unexplained_share(fit) for fit in fits), levels=levels)


def placing_steps(image: Image, known: Recognised, *, stored: bool = False) -> list[PreprocessingStep]:
    """Every other part of the way in which the image is put on the network's size; `stored`: files say how images are turned."""
    base = _base_placing(image, known)
    found = [
        PreprocessingStep(
            key=f"{image.name}:placing-{slot}-{key}",
            words=key,
            stage=PLACING,
            slot=f"{image.name}:{slot}",
            base=base,
            refine=refine,
            leaves=_LEAVES,
            usual=slot == "fit",
        )
        for slot, key, refine in _list_refinements(known.placing)
    ]
    padding = PreprocessingStep(
        key=f"{image.name}:padding-behind",
        words="" if known.placing.fit != "letterbox" else "fills the letterbox with 0 behind the normalization",
        stage=PREPARED,
        slot=f"{image.name}:filling",
        apply=_padding_step(image, base),
        base=base,
        refine=_refine_parts(fill=None),
        leaves=_LEAVES,
    )
    found.append(padding)
    if stored:
        words = "takes the image as it is stored, whatever its EXIF orientation says"
        exif = PreprocessingStep(
            key=f"{image.name}:exif",
            words=words,
            stage=READING,
            slot=f"{image.name}:exif",
            apply=lambda inputs: {**inputs, ORIGINAL: inputs[STORED]} if STORED in inputs else None,
            base=base,
            leaves=_LEAVES,
            usual=True,
        )
        found.append(exif)
    return found


def recipe_of(image: Image, known: Recognised) -> dict[str, Any]:
    """The reference's own way and its normalization, by the keys of a recipe; {} where a recipe cannot say it."""
    placing, fit = known.placing, known.fit
    orders = {(0, 1, 2): "RGB", (2, 1, 0): "BGR"}
    if fit.order not in orders or 0.0 in fit.gain or placing.fill is None:
        return {}
    found: dict[str, Any] = {
        "input": image.name,
        "size": list(placing.size),
        "fit": placing.fit,
        "kernel": placing.kernel,
    }
    found["whole"] = placing.whole
    if placing.fit == "letterbox":
        found |= {"fill": list(placing.fill), "side": placing.side}
    if placing.shorter:
        found["shorter"] = placing.shorter
    # x * gain + offset of bytes is (x / 255 - mean) / deviation.
    deviation = [1.0 / (gain * 255.0) for gain in fit.gain]
    mean = [-offset * each for offset, each in zip(fit.offset, deviation, strict=True)]
    found |= {"channels": orders[fit.order], "scale": 255.0}
    found |= {
        "mean": [_round_to_digits(each) for each in mean],
        "deviation": [_round_to_digits(each) for each in deviation],
    }
    return {**found, "layout": "NCHW" if image.axis == 1 else "NHWC"}


def _round_to_digits(number: float) -> float:
    """Four digits behind the point, about what regressing on rounded pixels tells."""
    return float(f"{number:.4f}") + 0.0


def _list_refinements(placing: Placing) -> Iterator[tuple[str, str, Refine]]:
    """Slot, key and what is done to a placing."""
    for key, fitting in {_fit_key(fitting): fitting for fitting in _list_fittings(placing.size)}.items():
        if key != _fit_key(placing):
            yield "fit", key, _refine_parts(fit=fitting.fit, shorter=fitting.shorter, side=fitting.side)
    for fill in _FILLS:
        if fill != placing.fill or placing.fit != "letterbox":
            yield "filling", ",".join(f"{value:g}" for value in dict.fromkeys(fill)), _refine_parts(fill=fill)
    for kernel in KERNELS:
        if kernel != placing.kernel:
            yield "kernel", kernel, _refine_parts(kernel=kernel)
    yield "rounding", "none" if placing.whole else "bytes", _refine_parts(whole=not placing.whole)


def _refine_parts(**parts: Any) -> Refine:
    return lambda placing: replace(placing, **parts)


def _fit_key(placing: Placing) -> str:
    parts = [placing.fit, placing.side if placing.fit == "letterbox" else "", str(placing.shorter or "")]
    return "-".join(part for part in parts if part)


def other_words(other: Placing, placing: Placing) -> str:
    """What `other` does that `placing` does not, to complete "the deployment ..."."""
    if replace(other, kernel=placing.kernel, whole=placing.whole) == placing and other.kernel != placing.kernel:
        return f"resizes by {kernel_words(other.kernel)} instead of {kernel_words(placing.kernel)}"
    if replace(other, whole=placing.whole) == placing:
        return f"{'rounds' if other.whole else 'does not round'} resized pixels to bytes"
    return f"{placing_words(other)}, where the reference {placing_words(placing)}"


def _image_size(array: np.ndarray, axis: int) -> tuple[int, int]:
    shape = [side for place, side in enumerate(array.shape) if place not in {0, axis}]
    return shape[0], shape[1]


def _list_fittings(size: tuple[int, int]) -> list[Placing]:
    shorter = max(size)
    whole = Placing(size=size)
    found = [whole]
    found += [
        replace(whole, fit="letterbox", fill=(fill[0], fill[1], fill[2]), side=side)
        for fill in _FILLS
        for side in _SIDES
    ]
    # 256 to 224 (torchvision), + 32 (TensorFlow's EfficientNet), and no margin.
    sides = dict.fromkeys((shorter, round(shorter * 256 / 224), shorter + 32))
    found += [replace(whole, fit="shorter", shorter=side) for side in sides]
    return [*found, *(replace(whole, fit="central", shorter=side) for side in sides)]


def _find_best_placing(picture: np.ndarray, array: np.ndarray, axis: int, placings: Iterable[Placing]) -> Recognised:
    """The placing that leaves least; the first that leaves nothing but rounding."""
    found: Recognised | None = None
    for placing in dict.fromkeys(placings):
        fit = _fit_placing(placing, picture, array, axis)
        if found is None or _unexplained_share(fit) < found.left:
            found = Recognised(
                placing=placing, fit=fit, left=_unexplained_share(fit), levels=_residual_in_levels(fit, array)
            )
        if fit.is_exact:
            break
    if found is None:
        raise ValueError("there is nothing to try")
    return found


def _unexplained_share(fit: Fit) -> float:
    return 1.0 if np.isnan(fit.r2) else 1.0 - fit.r2


def _residual_in_levels(fit: Fit, array: np.ndarray) -> float:
    """What the fit leaves of the array, in levels; the worst channel is taken for the one that varies least."""
    gain = min((abs(each) for each in fit.gain), default=0.0)
    channels = np.moveaxis(np.asarray(array, np.float64), fit.axis, 0)
    spread = min(float(channel.std()) for channel in channels)
    return float(np.sqrt(max(0.0, _unexplained_share(fit))) * spread / gain) if gain else np.inf


def _fit_placing(placing: Placing, picture: np.ndarray, array: np.ndarray, axis: int) -> Fit:
    return fit_channels(_as_input(place_image(placing, picture), array, axis), array, axis=axis)


def _as_input(pixels: np.ndarray, array: np.ndarray, axis: int) -> np.ndarray:
    """(height, width, 3) in the order of the prepared array's axes; one grey channel where that has one."""
    channels = array.shape[axis]
    chosen = (
        pixels if channels == pixels.shape[-1] else np.repeat(pixels.mean(axis=-1, keepdims=True), channels, axis=-1)
    )
    return np.moveaxis(chosen, -1, axis - 1)[None]


def _base_placing(image: Image, known: Recognised) -> Base:
    """The reference's own way, and the step for any other; pictures that were placed lately are not placed again."""
    made: dict[tuple[int, Placing], np.ndarray] = {}

    def pixels_of(placing: Placing, picture: np.ndarray) -> np.ndarray:
        key = (id(picture), placing)
        if key not in made:
            while len(made) >= _KEPT:
                made.pop(next(iter(made)))
            made[key] = place_image(placing, picture)
        return made[key]

    def step(placing: Placing) -> PreprocessingStep:
        def apply(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
            if ORIGINAL not in inputs:
                return None
            picture, array = inputs[ORIGINAL], inputs[image.name]
            pixels = _as_input(pixels_of(placing, picture), array, image.axis)
            shape = [-1 if place == image.axis else 1 for place in range(pixels.ndim)]
            fit = known.fit
            gain, offset = np.reshape(fit.gain, shape), np.reshape(fit.offset, shape)
            prepared = np.take(pixels, fit.order, axis=image.axis) * gain + offset
            given = np.ascontiguousarray(prepared.astype(array.dtype))
            return {**inputs, image.name: given, FILLED: filled_pixels(placing, picture.shape)}

        words = "" if placing == known.placing else other_words(placing, known.placing)
        return PreprocessingStep(
            key=f"{image.name}:placing",
            words=words,
            stage=PLACING,
            slot=f"{image.name}:placing",
            apply=apply,
            leaves=_LEAVES,
        )

    return Base(placing=known.placing, step=step)


def _padding_step(image: Image, base: Base) -> Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray] | None]:
    def apply(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
        if ORIGINAL not in inputs:
            return None
        where = inputs[FILLED] if FILLED in inputs else filled_pixels(base.placing, inputs[ORIGINAL].shape)
        array = inputs[image.name]
        if not where.any() or where.shape != _image_size(array, image.axis):
            return None
        mask = where[None, None] if image.axis == 1 else where[None, :, :, None]
        return {**inputs, image.name: np.where(mask, array.dtype.type(0), array)}

    return apply
