"""The images that samples were made from, and the steps that only they allow; or why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats.images import read_image
from parityscope.checks._common import format_percent
from parityscope.checks.preprocessing.placings import placing_steps, recipe_of, recognise_placing
from parityscope.checks.preprocessing.steps import ORIGINAL, STORED
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.checks.preprocessing.images import Image
    from parityscope.checks.preprocessing.steps import PreprocessingStep
    from parityscope.examination import Examination

__all__ = ["Pictures", "pictures_of"]

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
