"""Two captured inputs -> what the deployment does, in words: no model is run.

Tried in this order: nothing; another sample's input; compositions of the steps of the other files, which have names; an
affine map per channel with its order, mirrored or shifted; with the image, how each side placed it; without, how one image
lies in the other; and if nothing fits, how much the nearest map explains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._common import format_percent
from parityscope.checks.input_fit import Fit, fit_inputs
from parityscope.checks.preprocessing.images import image_of, image_steps
from parityscope.checks.preprocessing.placings import other_words, recognise_placing
from parityscope.checks.preprocessing.registering import register_images
from parityscope.checks.preprocessing.searching import PreprocessingQuestion, search_preprocessing
from parityscope.checks.preprocessing.tokens import token_steps, tokens_of
from parityscope.checks.preprocessing.walking import norm_of
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.checks.preprocessing.images import Image
    from parityscope.checks.preprocessing.steps import PreprocessingStep

    Arrays = Mapping[str, np.ndarray]

# Relative L2 distance of two prepared inputs that are the same: float32 normalization in another order of its operations
# differs by some roundings, more where the mean is subtracted from what is near it. Chosen, a hundred roundings.
SAME = 1e-5
_COMPOSITIONS = 400  # that are tried at most; chosen
_TRUE = 2e-3  # of the largest element: half a level of 255, which is what rounded pixels tell a gain and an offset to; chosen
_LEVELS = 1e-4  # of the variance: what some pixels that are off by a level leave, and no other kernel (`placings`)
_EXPLAINS = 0.5  # of R^2: what explains less is another image; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDifference:
    """What completes "the deployment ..."; "" where both inputs are the same.

    `given` is the deployment's input as the model would take it (its names, layout and dtype), None where its shape does
    not allow that. `left` is the part of the variance of the deployment's input that the words do not explain.
    """

    words: str
    given: Arrays | None
    left: float
    steps: tuple[PreprocessingStep, ...] = ()


def name_difference(
    reference: Arrays, own: Arrays, *, others: Mapping[str, Arrays], picture: np.ndarray | None = None
) -> NamedDifference:
    """What the deployment did to give `own` where the reference has `reference`.

    `others` are the reference's other samples by name; `picture` is the image, uint8 RGB, where it is known.
    """
    given, said = _match_to_reference(reference, own)
    if given is None:
        return NamedDifference(words=" and ".join(said), given=None, left=1.0)
    if input_distance(reference, given) <= SAME:
        return NamedDifference(words=" and ".join(said), given=given, left=0.0)
    for name, other in others.items():
        if input_distance(other, given) <= SAME:
            return NamedDifference(words=" and ".join([*said, f"gives the input of {name}"]), given=given, left=0.0)
    found = _name_steps(reference, given) or _name_channel_map(reference, given, picture)
    words = " and ".join(each for each in (*said, found.words) if each)
    return replace(found, words=words, given=given)


def input_distance(reference: Arrays, given: Arrays) -> float:
    """The worst input's relative L2 distance, over the larger of the two norms; infinite where they cannot be compared."""
    worst = 0.0
    for name, array in reference.items():
        mine, its = (np.asarray(each, np.float64) for each in (array, given[name]))
        if mine.shape != its.shape or not np.array_equal(np.isfinite(mine), np.isfinite(its)):
            return float("inf")
        finite = np.isfinite(mine)
        size = max(norm_of(mine[finite]), norm_of(its[finite]))
        worst = max(worst, norm_of(mine[finite] - its[finite]) / size if size else 0.0)
    return worst


def _match_to_reference(reference: Arrays, own: Arrays) -> tuple[dict[str, np.ndarray] | None, list[str]]:
    """The deployment's input under the reference's names, in its layout and dtype, and what had to be done for that."""
    said: list[str] = []
    if len(own) == len(reference) == 1 and set(own) != set(reference):
        own = {next(iter(reference)): next(iter(own.values()))}
    lacking = [name for name in reference if name not in own]
    if lacking:
        return None, [f"gives no {', '.join(lacking)} (it gives {', '.join(own)})"]
    given = {}
    for name, array in reference.items():
        found, words = _match_shape(array, own[name])
        said += words
        if found is None:
            return None, said
        given[name] = found
    return given, said


def _match_shape(array: np.ndarray, own: np.ndarray) -> tuple[np.ndarray | None, list[str]]:
    said = []
    if own.dtype != array.dtype:
        said.append(f"gives {own.dtype} where the reference gives {array.dtype}")
        own = own.astype(array.dtype)
    if own.shape == array.shape:
        return own, said
    if own.shape == array.shape[1:] and array.shape[0] == 1:
        return own[None], [*said, "leaves out the batch axis"]
    for axes, words in (((0, 3, 1, 2), "in NHWC order"), ((0, 2, 3, 1), "in NCHW order")):
        if own.ndim == array.ndim == len(axes) and own.transpose(axes).shape == array.shape:
            return np.ascontiguousarray(own.transpose(axes)), [*said, f"gives an array {words}"]
    return None, [*said, f"gives shape {list(own.shape)} where the reference gives {list(array.shape)}"]


def _name_steps(reference: Arrays, given: Arrays) -> NamedDifference | None:
    """The steps that make the one of the other: the search, with the inputs in place of what a network makes of them."""
    images = [image for name, array in reference.items() if (image := image_of(name, array)) is not None]
    tokens = tokens_of(reference)
    steps = [step for image in images for step in image_steps(image, [reference])]
    steps += token_steps(tokens, [reference]) if tokens is not None else []
    bounds = dict.fromkeys(reference, SAME)
    question = PreprocessingQuestion(
        samples=[reference], candidate=[given], run=lambda inputs: inputs, bounds=bounds, runs=_COMPOSITIONS
    )
    found = search_preprocessing(question, steps)
    if found.best is None or not found.exact:
        return None
    words = " and ".join(step.words for step in found.best.steps)
    return NamedDifference(words=words, given=None, left=0.0, steps=found.best.steps)


def _name_channel_map(reference: Arrays, given: Arrays, picture: np.ndarray | None) -> NamedDifference:
    """The map of each input that differs; the worst one's rest."""
    found = [
        _name_image_difference(name, array, given[name], picture)
        for name, array in reference.items()
        if input_distance({name: array}, {name: given[name]}) > SAME
    ]
    return NamedDifference(
        words=" and ".join(one.words for one in found), given=None, left=max(one.left for one in found)
    )


def _name_image_difference(
    name: str, array: np.ndarray, own: np.ndarray, picture: np.ndarray | None
) -> NamedDifference:
    image = image_of(name, array)
    if image is None or not np.isfinite(own).all() or not np.isfinite(array).all():
        return NamedDifference(words=f"gives another {name}: {_count_differing(array, own)}", given=None, left=1.0)
    fit = fit_inputs(array, own, axis=image.axis)
    if fit.is_exact:
        return NamedDifference(words=fit.words, given=None, left=0.0)
    placed = _name_placing(image, array, own, picture) if picture is not None else None
    return placed or _name_registration(image, array, own, fit)


def _count_differing(array: np.ndarray, own: np.ndarray) -> str:
    differing = int((np.asarray(array) != np.asarray(own)).sum())
    return f"{differing:,} of {array.size:,} elements differ"


def _name_placing(
    image: Image, array: np.ndarray, own: np.ndarray, picture: np.ndarray | None
) -> NamedDifference | None:
    """How each side placed the picture, and the map between what came after."""
    if picture is None or len(array) != 1:
        return None
    reference, candidate = (recognise_placing([picture], [each], image.axis) for each in (array, own))
    if not (reference.is_known and candidate.is_known) or reference.placing == candidate.placing:
        return None
    between = _fit_between_sides(reference.fit, candidate.fit, float(np.abs(own).max()))
    rest = [] if between is None or between.words == "the same" else [between.words]
    return NamedDifference(
        words=" and ".join([other_words(candidate.placing, reference.placing), *rest]), given=None, left=candidate.left
    )


def _fit_between_sides(reference: Fit, candidate: Fit, size: float) -> Fit | None:
    """its[c] = gain * mine[order[c]] + offset, from what both make of the same pixels; None where mine lacks a channel."""
    places = {channel: place for place, channel in enumerate(reference.order)}
    if any(channel not in places or not reference.gain[places[channel]] for channel in candidate.order):
        return None
    order = tuple(places[channel] for channel in candidate.order)
    gain = tuple(candidate.gain[place] / reference.gain[source] for place, source in enumerate(order))
    offset = tuple(
        candidate.offset[place] - gain[place] * reference.offset[source] for place, source in enumerate(order)
    )
    return _round_fit(replace(candidate, order=order, gain=gain, offset=offset), size)


def _round_fit(fit: Fit, size: float) -> Fit:
    """A fit of pixels that were rounded, to what it is true to; `size` is the largest element of the deployment's input."""
    near = all(abs(gain - 1.0) <= _TRUE for gain in fit.gain)
    return replace(
        fit,
        gain=(1.0,) * len(fit.gain) if near else tuple(float(f"{gain:.4g}") for gain in fit.gain),
        offset=tuple(0.0 if abs(offset) <= _TRUE * size else float(f"{offset:.4g}") for offset in fit.offset),
    )


def _name_registration(image: Image, array: np.ndarray, own: np.ndarray, fit: Fit) -> NamedDifference:
    """How one image lies in the other, with the channels that the nearest map takes."""
    channels = np.take(array, fit.order, axis=image.axis)
    pair = [np.moveaxis(each, image.axis, -1)[0].astype(np.float64) for each in (channels, own)]
    found = register_images(*pair)
    order = replace(fit, gain=(1.0,) * len(fit.order), offset=(0.0,) * len(fit.order), mirrored=(), shift=(0, 0)).words
    before = [] if order == "the same" else [order]
    if found is not None and found.words and found.r2 > fit.r2:
        return NamedDifference(words=" and ".join([*before, found.words]), given=None, left=1.0 - found.r2)
    if np.isfinite(fit.r2) and fit.r2 >= _EXPLAINS:
        said = _round_fit(fit, float(np.abs(own).max())).words
        affine = [] if said == "the same" else [said]
        resized = "resamples the image in another way (kernel, antialiasing or half-pixel centres)"
        if 1.0 - fit.r2 <= _LEVELS:
            resized = "rounds pixels in another way"
        return NamedDifference(words=" and ".join([*affine, resized]), given=None, left=1.0 - fit.r2)
    share = format_percent(max(0.0, fit.r2 if np.isfinite(fit.r2) else 0.0))
    words = f"gives another image: the nearest map explains {share} of its variance"
    return NamedDifference(words=words, given=None, left=1.0 if np.isnan(fit.r2) else 1.0 - fit.r2)
