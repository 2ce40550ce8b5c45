"""The records of a reduction: what has to be shown, what shows it, what was tried, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.case import Model
    from parityscope.records import Policy, Skip, Target

    Arrays = Mapping[str, np.ndarray]

#: what a smaller model showed; "not run": a side refused it
Shows = Literal["the same", "another finding", "no finding", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingPattern:
    """What makes a finding the same one: its code and the operator and tensor at which it is seen first.

    `nonfinite` says whether numbers are lost (NaN, Inf) and not only moved. `tensor` is "" where the finding has no place.
    """

    code: str
    title: str
    claim: str
    tensor: str
    node: str
    op_type: str
    nonfinite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A model with its samples and both targets. `nodes` counts the reference's nodes, Constant nodes left out.

    `answers` is what a recorded candidate gave for each sample; None where the candidate runs.
    """

    model: Model
    reference: Target
    candidate: Target
    samples: tuple[Arrays, ...]
    policy: Policy
    nodes: int
    answers: tuple[Arrays, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One smaller model that was examined: at which stage, what was tried, what it showed, in how many runs."""

    stage: str
    what: str
    nodes: int
    elements: int
    shows: Shows
    told: str
    runs: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The smallest piece that still shows `pattern`, and the way to it. `document` is the study of the piece.

    `whole` counts the nodes of the whole model, `elements` are those of one sample and all weights, before and after.
    """

    pattern: FindingPattern
    piece: Piece
    document: Mapping[str, Any]
    whole: int
    elements: tuple[int, int]
    attempts: tuple[Attempt, ...]
    skipped: tuple[Skip, ...] = ()
    notes: tuple[str, ...] = ()
    expected: tuple[Arrays, ...] = field(default=())
    actual: tuple[Arrays, ...] = field(default=())

    @property
    def runs(self) -> int:
        """How often both sides were examined."""
        return sum(one.runs for one in self.attempts)
