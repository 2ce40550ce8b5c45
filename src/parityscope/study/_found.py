"""What the stages of an examination hand to each other: plain records that import nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Case, Inputs
    from parityscope.expectation import Expectation
    from parityscope.explanation import Explanation
    from parityscope.localization.calls import Growth
    from parityscope.records import Diagnosis, Pair, Skip, Target, Verdict
    from parityscope.study._bench import Answers
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun
    from parityscope.study._triangle import Triangle

__all__ = ["GONE", "Causes", "Known", "Proof", "Sequence", "Step"]

# What is said of a claim that was supported until other causes were put right begins so.
GONE = "gone once "


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known before causes are looked for; `names` maps the reference's names to the candidate's.

    `real` are real samples that the user gave beside the inputs, `growth` the error over repeated calls, `expectation` the
    errors that arithmetics make at the outputs. `thorough`: as in `Settings`. `answers` is what a bench was asked before, `proof`
    where all of the error is made, if that is proved.
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
    expectation: Expectation | None = None
    thorough: bool = False
    answers: Answers | None = None
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """All of the error was proved to be made at these places (the reference's tensors -> the candidate's), and what proved it.

    `pairing` holds them with what is computed into them, and the outputs.
    """

    pairing: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A cause that was put right in a copy, and what that left.

    `before` and `after` are the root of the squared error of the outputs, each output over its own norm; `share` is the part of
    the error, in squares, that the step took away, of what there was before any step. `proof` says what speaks for it.
    """

    round: int
    experiment: str
    code: str
    title: str
    correction: str
    before: float
    after: float
    share: float
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """The causes found one after the other; `verdict` is that of the copy in which all of them are put right.

    `samples` are the places in the data set of what was looked at, `rounds` how often was looked, `unexplained` the part of the
    error, in squares, that no step took away. `ended` says why it went no further.
    """

    steps: tuple[Step, ...]
    verdict: Verdict
    unexplained: float
    samples: tuple[int, ...]
    rounds: int
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """The diagnosis, what explains the leading suspects, the outputs against a peer, and what could not be done.

    `sequence` is None where nothing that was found could be put right in a copy.
    """

    diagnosis: Diagnosis
    explanations: Mapping[str, Explanation] = field(default_factory=lambda: MappingProxyType({}))
    triangles: Mapping[str, Triangle] = field(default_factory=lambda: MappingProxyType({}))
    absent: tuple[Skip, ...] = ()
    sequence: Sequence | None = None
