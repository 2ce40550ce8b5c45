"""What the stages of an examination hand to each other: plain records that import nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Case, Inputs
    from parityscope.explanation import Explanation
    from parityscope.localization.calls import Growth
    from parityscope.records import Diagnosis, Pair, Skip, Target, Verdict
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun
    from parityscope.study._triangle import Triangle

__all__ = ["Causes", "Known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known before causes are looked for; `names` maps the reference's names to the candidate's.

    `real` are real samples that the user gave beside the inputs, `growth` the error over repeated calls.
    """

    case: Case
    reference: Target
    candidate: Target
    run: OutputRun
    outputs: tuple[Pair, ...]
    tensors: Mapping[str, Pair]
    layers: Layers | None
    names: Mapping[str, str]
    verdict: Verdict
    real: Inputs | None = None
    growth: Growth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """The diagnosis, what explains the leading suspects, the outputs against a peer, and what could not be done."""

    diagnosis: Diagnosis
    explanations: Mapping[str, Explanation] = field(default_factory=lambda: MappingProxyType({}))
    triangles: Mapping[str, Triangle] = field(default_factory=lambda: MappingProxyType({}))
    absent: tuple[Skip, ...] = ()
