"""A planted layer: what the model says, what the candidate gave, and what made it so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from _planted.arithmetics import arithmetic, entering

if TYPE_CHECKING:
    import numpy as np

    from _planted.layer import Arrays, Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A layer as the model says it, and what the candidate gave; `truth` is the hypothesis that made it so.

    `base` is the arithmetic below a fault; empty where there is none.
    """

    truth: str
    layer: Layer
    candidate: np.ndarray
    feeds: Arrays
    base: str = ""


def honest(layer: Layer, truth: str, generator: np.random.Generator) -> Plant:
    """The layer in the arithmetic called `truth`, without a fault."""
    feeds = entering(layer, truth, generator)
    return Plant(
        truth=truth, layer=layer, feeds=feeds, candidate=arithmetic(layer, feeds, truth, generator), base=truth
    )
