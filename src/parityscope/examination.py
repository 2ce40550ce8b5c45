"""What is known of one examination so far: frozen, and grown by `dataclasses.replace`; each stage adds fields of its own.

The first fields are what is examined, the others follow the order of the questions: is it different, where does that begin,
why, what repairs it. A field that no stage has filled yet is empty. The document is this record written out (`study`).
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.backends import is_recording
from parityscope.backends.machine import machine_facts
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.bench import Bench, Lab
    from parityscope.case import Case, Inputs, Model
    from parityscope.case.own import OwnInputs
    from parityscope.comparison import Statistics
    from parityscope.comparison.decisions import Decided
    from parityscope.comparison.parts import LargestParts, Parts
    from parityscope.comparison.sequential import Decision
    from parityscope.comparison.tolerance import OutsideTolerance
    from parityscope.errors import ParityError
    from parityscope.expectation.records import Expectation
    from parityscope.explanation import Explanation
    from parityscope.hypotheses.from_other_graph import Compared
    from parityscope.localization.calls import Growth
    from parityscope.records import ExecutedGraph, Localization, Pair, Policy, Site, Skip, Target, Verdict
    from parityscope.request import Request
    from parityscope.trace import Trace


def _empty_mapping() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRun:
    """Statistics of every output over all samples, with each sample's own error; the candidate's spread; times.

    `spread` is the worst relative L2 distance between two runs of the candidate on the first sample, and where it is above
    rounding `changing` the part of the squared error that differs from run to run (0 to 1; 0 where nothing varies).
    `outside` holds the outputs that the policy has a tolerance for: no statistics could tell that count afterwards.
    `kept` is what the reference gave for the first samples, by their index, as far as that is not large. `parts` are the errors
    by part (`Parts`) of each output on the first samples and its worst ones, `largest` the largest of each part on any sample, of
    outputs without a budget. `decisions` are what outputs decide, of those whose values show that, and `changed` how many are
    others on each sample, by output, where any is. `unanswered` are the samples on which the candidate gave nothing; all else is
    of the others.
    """

    statistics: Mapping[str, Statistics] = field(default_factory=_empty_mapping)
    per_sample: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=_empty_mapping)
    spread: float = 0.0
    changing: float = 0.0
    skipped: tuple[Skip, ...] = ()
    reference_seconds: float = 0.0
    candidate_seconds: float = 0.0
    reference_environment: Mapping[str, str] = field(default_factory=_empty_mapping)
    candidate_environment: Mapping[str, str] = field(default_factory=_empty_mapping)
    executed: ExecutedGraph | None = None
    outside: Mapping[str, OutsideTolerance] = field(default_factory=_empty_mapping)
    kept: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=_empty_mapping)
    parts: Mapping[str, Mapping[int, Parts]] = field(default_factory=_empty_mapping)
    largest: Mapping[str, LargestParts] = field(default_factory=_empty_mapping)
    decisions: Mapping[str, Decided | None] = field(default_factory=_empty_mapping)
    changed: Mapping[str, Mapping[int, int]] = field(default_factory=_empty_mapping)
    unanswered: frozenset[int] = frozenset()
    sampling: Sampling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Samples that were drawn until it was sure: `taken` are their places of `count` there were; `bad` by output missed a budget.

    `decided` says whether the rate of samples that miss one is below 1 - `coverage`, above, or open, at `confidence`.
    """

    confidence: float
    coverage: float
    taken: tuple[int, ...]
    count: int
    bad: Mapping[str, int]
    missed: int
    decided: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Both traces, statistics of every tensor that both have, and where the error begins."""

    reference: Trace
    candidate: Trace
    pairing: Mapping[str, str]
    statistics: Mapping[str, Statistics]
    localization: Localization
    skipped: tuple[Skip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """All of the error was proved to be made at these places (the reference's tensors -> the candidate's), and what proved it.

    `pairing` holds them with what is computed into them, and the outputs. Where one of the places reads the model's inputs or
    gives its outputs, it has `rivals` in how inputs are prepared and outputs are read.
    """

    pairing: Mapping[str, str]
    reason: str
    rivals: bool = False


@dataclass(slots=True)
class Answers:
    """What was answered before, which another bench of the same case need not ask again; `graphs` may be how that failed."""

    reference: dict[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    candidate: dict[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    graphs: Compared | ParityError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Triangle:
    """One output's three distances, relative to |r| in L2 over all samples that were run."""

    peer: str
    candidate_reference: float
    peer_reference: float
    candidate_peer: float

    @property
    def own(self) -> float:
        """The part of the candidate's error that its format does not cost anyway (`study/triangle.py`)."""
        if not math.isfinite(self.candidate_reference):
            return 0.0 if not math.isfinite(self.peer_reference) else self.candidate_reference
        if not math.isfinite(self.peer_reference):
            return 0.0
        return math.sqrt(max(0.0, self.candidate_reference**2 - self.peer_reference**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseStep:
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
class CauseSequence:
    """The causes found one after the other; `verdict` is that of the copy in which all of them are put right.

    `samples` are the places in the data set of what was looked at, `rounds` how often was looked, `unexplained` the part of the
    error, in squares, that no step took away. `ended` says why it went no further.
    """

    steps: tuple[CauseStep, ...]
    verdict: Verdict
    unexplained: float
    samples: tuple[int, ...]
    rounds: int
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was asked, what is examined, and what is known of it.

    `folder` holds spilled tensors and repaired copies, `progress` is told. `keep` is given the document of what is known
    before anything is run that a runtime may end the process with. `question` is what was asked as the plain data that a
    study keeps, `command` how it was typed. With `only`, just the experiments that a study calls so are run.

    `names` maps the reference's names of tensors to the candidate's, `how` says by what they were paired where not by name.
    `executed` is the format that the candidate says it computes in ("": it says nothing), `computes` the one that it keeps
    tensors in, as far as is known. `answers` is what a bench was asked, `proof` where all of the error is made, if that is
    proved before layers are looked at. `end` is when the time for experiments is spent, on `time.monotonic`'s clock.

    `explanations` say of the leading suspects which arithmetic or which other function their introduced error is, by tensor.
    While checks are asked, `lab` is there where tensors were captured, and `bench` where the verdict is beyond; `twice` gives the
    outputs of the reference and of the model without any optimizer on the first sample, where the sides agree and may share one.
    `number` counts the rounds of a search for several causes, of which each later one looks at a copy.

    `unjudged` was not done and the verdict cannot do without, `skipped` is all else that was not run, paired or judged.
    `timings` are in seconds by stage, from `started` on, on `time.perf_counter`'s clock.
    """

    request: Request
    case: Case
    reference: Target
    candidate: Target
    folder: Path = Path()
    progress: Progress = ignore_progress
    keep: Callable[[dict[str, Any]], None] | None = None
    peer: Target | None = None
    real: Inputs | None = None
    only: frozenset[str] | None = None
    question: Mapping[str, Any] = field(default_factory=_empty_mapping)
    command: str = ""
    # Is it different?
    names: Mapping[str, str] = field(default_factory=_empty_mapping)
    how: Mapping[str, str] = field(default_factory=_empty_mapping)
    run: OutputRun | None = None
    expectation: Expectation | None = None
    outputs: tuple[Pair, ...] = ()
    executed: str = ""
    computes: str = ""
    growth: Growth | None = None
    verdict: Verdict = "incomplete"
    # Where does the difference begin?
    answers: Answers | None = None
    proof: Proof | None = None
    tensors: Mapping[str, Pair] = field(default_factory=_empty_mapping)
    layers: Layers | None = None
    # Why, what repairs it, and is it repaired?
    end: float = math.inf
    explanations: Mapping[str, Explanation] = field(default_factory=_empty_mapping)
    lab: Lab | None = None
    bench: Bench | None = None
    twice: Callable[[], tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]] | None = None
    number: int = 1
    triangles: Mapping[str, Triangle] = field(default_factory=_empty_mapping)
    diagnosis: Diagnosis = field(default_factory=lambda: Diagnosis(findings=()))
    sequence: CauseSequence | None = None
    # What was not done, and what the rest cost.
    unjudged: tuple[Skip, ...] = ()
    skipped: tuple[Skip, ...] = ()
    timings: Mapping[str, float] = field(default_factory=_empty_mapping)
    started: float = field(default_factory=time.perf_counter)

    @property
    def compared(self) -> OutputRun:
        """What comparing the outputs gave.

        Raises:
            ValueError: they were not compared yet, which is a bug of the caller.
        """
        if self.run is None:
            raise ValueError("the outputs were not compared yet")
        return self.run

    @property
    def beyond(self) -> tuple[Pair, ...]:
        """The outputs that have something to answer for: what their budget or grade lets pass is not among them."""
        return tuple(pair for pair in self.outputs if pair.verdict == "beyond")

    @property
    def model(self) -> Model:
        """The reference's model."""
        return self.case.model

    @property
    def graph(self) -> ir.Model:
        """The reference's graph, to be read only."""
        return self.case.model.shared_graph()

    @property
    def places(self) -> Mapping[str, Site]:
        """Where each tensor of the reference's graph is computed."""
        return self.case.model.sites

    @property
    def inputs(self) -> Inputs:
        """The samples."""
        return self.case.inputs

    @property
    def policy(self) -> Policy:
        """What the verdict is made by."""
        return self.case.policy

    @property
    def own(self) -> OwnInputs | None:
        """What the deployment gave its model for the same samples, where that was recorded."""
        return self.case.own

    @property
    def declared(self) -> str:
        """The arithmetic that the candidate says it computes in."""
        return self.case.policy.declared

    @property
    def storage(self) -> Format:
        """The format whose range the candidate's tensors have, as far as is known."""
        from parityscope.arithmetic import FORMATS

        return FORMATS.get(self.computes, FORMATS["f32"])

    @property
    def localization(self) -> Localization | None:
        """Where the error begins, if layers were looked at."""
        return self.layers.localization if self.layers else None

    @property
    def disturbance(self) -> float:
        """How far observing the layers moved the outputs."""
        return self.layers.localization.disturbance if self.layers else 0.0

    @property
    def executed_graph(self) -> ExecutedGraph | None:
        """The graph that the candidate was seen to execute."""
        return self.run.executed if self.run else None

    @property
    def environments(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What the reference's and the candidate's runtimes said of themselves, with the facts of this machine."""
        run, here = self.compared, machine_facts()
        return _facts_of_side(self.reference, run.reference_environment, here), _facts_of_side(
            self.candidate, run.candidate_environment, here
        )

    def declaring(self, arithmetic: str) -> Examination:
        """The same, had the candidate said that it computes in this arithmetic, and nothing been seen of it."""
        policy = replace(self.case.policy, declared=arithmetic)
        return replace(self, case=replace(self.case, policy=policy), executed="")

    def skipping(self, *skips: Skip) -> Examination:
        """The same, with what was not done."""
        return replace(self, skipped=(*self.skipped, *skips))

    def timed(self, stage: str) -> Examination:
        """The same, with the time since the stage before as that of `stage`, in seconds."""
        seconds = time.perf_counter() - self.started - sum(self.timings.values())
        return replace(self, timings={**self.timings, stage: seconds})


def _facts_of_side(target: Target, told: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """What a side tells of itself, with the facts of this machine unless it is a recording."""
    if is_recording(target):
        return dict(told)
    # A runtime may call the same processor by another name.
    return {**here, **told, "cpu": here["cpu"]}
