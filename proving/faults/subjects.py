"""Subjects by name, and by what they are good for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.networks import NETWORKS
from proving.faults.trained import TRAINED

if TYPE_CHECKING:
    from proving.faults.records import Subject

SUBJECTS: dict[str, Subject] = {**NETWORKS, **TRAINED}


def shaped(*shapes: str) -> tuple[str, ...]:
    """The names of the subjects of these shapes, small ones first."""
    return tuple(name for name, one in SUBJECTS.items() if one.shape in shapes)


IMAGES = shaped("image")
ENCODERS = shaped("tokens")
# Models whose outputs have many elements.
OUTPUTS = ("small-two", "small-encoder", "small-map", "ocr-rec", "ocr-det", "minilm-i8", "vad-18", "magika")
