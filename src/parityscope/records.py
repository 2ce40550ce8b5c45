"""The core types: frozen records that every other module passes on.

Nothing here computes, reads or runs anything. `reference` and `candidate` stand in this order everywhere.
Arrays are never held here; a `Trace` (trace.py) holds those.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict = Literal["within", "beyond", "incomplete"]
Grade = Literal["f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2", "int8", "beyond"]
Role = Literal["cause", "contributing", "information"]
Outcome = Literal["supports", "refutes", "inconclusive"]
Runs = Literal["", "nothing", "reference", "candidate", "rebuild"]

SCHEMA = "parityscope/1"  # of a study and of every document that says its `kind`
ROLES: tuple[Role, ...] = ("cause", "contributing", "information")  # the graver first
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueInfo:
    """A declared input or output of a model.

    `dtype` is a numpy or ml_dtypes name ("float32", "bfloat16", "int64", "bool", "str"); a dimension is an int, the
    name of a symbolic dimension, or None when the model says nothing; `shape` is None when even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The only way to point into a graph: a value of the reference model and the node that makes it.

    `index` is the node's topological index (-1: a graph input or an initializer); `scope` is the module path that
    exporters put into node names, empty when there is none.
    """

    tensor: str
    node: str
    op_type: str
    index: int
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Whatever was not run, paired or judged, why, and what would change that.

    `asked` says that the user asked for it: then the study is incomplete (exit code 3).
    """

    what: str
    reason: str
    fix: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where and how a model runs: `backend[:precision][?key=value&...]`. Equal targets are the same run."""

    backend: str
    precision: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        """The value of option `name`, or `default`."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """|candidate - reference| <= atol + rtol |reference|, in every element."""

    atol: float
    rtol: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How far an output may be from the reference, in one metric, and the reason for that number.

    With a `tolerance` the metric is the number of elements outside of it.
    """

    output: str  # "" stands for every output
    metric: str
    limit: float
    reason: str
    tolerance: Tolerance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRule:
    """What an output decides, as its graph or its user says; the values show it where `kind` is "".

    "best": the largest along `axis`, and the order of the `top` largest; with `blank` the best of each step spell a text, that
    class and repeats left out (CTC). "threshold": which numbers are above `at`. "order": the places of the largest along
    `axis`, as TopK gives them. `scores` is the tensor that is decided on, where the output holds the choice and no scores.
    """

    kind: Literal["", "none", "best", "threshold", "order"] = ""
    axis: int = -1
    at: float = 0.5
    top: int = 5
    blank: int | None = None
    scores: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A decision that is another in the candidate: on which sample, at which index, at which `rank` (0: the best).

    `was` and `became` are classes, or 1 and 0 on which side of the threshold `at`. The reference was for what it `was` by `gap`,
    and the declared arithmetic explains `allowed` of that.
    """

    kind: str
    sample: int
    index: tuple[int, ...]
    rank: int
    was: int
    became: int
    gap: float
    allowed: float
    at: float = 0.5

    @property
    def explained(self) -> bool:
        """Whether the arithmetic's own error may have made it."""
        return self.gap <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedOutput:
    """An output with as many rows as values decide, along one of `axes`, as a rule the first: those whose lengths nobody says.

    `sorted`: in the order of scores, which rounding exchanges.
    """

    name: str
    axes: tuple[int, ...]
    sorted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What counts as within: the declared arithmetic (graded by prediction), or explicit budgets.

    `declared` is the format that the candidate says it computes in ("f32", "tf32", "f16", "bf16"); with `budgets`,
    the outputs they name are judged by them instead of by grade. `matched` are outputs whose rows have no order of
    their own (of TopK, say): they are paired, all together, before they are compared (`comparison.rows`). `counted` are those
    with as many rows as values decide, as the graph says (`case.deciding`). `decides` says of outputs what is decided by them, in
    the words of `--decide`.
    """

    declared: str = "f32"
    declared_reason: str = "nothing was declared: FP32 without TF32"
    budgets: tuple[Budget, ...] = ()
    matched: tuple[str, ...] = ()
    counted: tuple[CountedOutput, ...] = ()
    decides: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number about a pair of tensors.

    `count` is the number of elements it was taken over; the non-finite counts are of the whole pair. `worst_index`
    is the index of the element that decided, in the tensor's own shape, where a single element did.
    """

    metric: str
    value: float
    unit: str
    count: int
    worst_index: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A tensor of both sides, compared on one sample or (sample is None) over all of them.

    `statistics` is the plain-data form of `comparison.Statistics` that reports draw histograms from. `apart` says which part of
    it (sample, channel, row) is beyond what is expected there, or which decisions are, where the whole is not.
    `usual_changes` are, of how many decisions, how many the declared arithmetic changes by itself, and `flip` is the one that
    it explains least; None where nobody asked.
    """

    site: Site
    candidate_name: str
    how: str  # "name", "map" or "value"
    dtype: str
    shape: tuple[int, ...]
    samples: int
    measurements: Mapping[str, Measurement]
    nonfinite_reference: int
    nonfinite_candidate: int
    nonfinite_agreeing: int
    per_sample: tuple[float, ...] = ()
    worst_sample: int = 0
    is_output: bool = False
    verdict: Verdict | None = None
    grade: Grade | None = None
    expected: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    statistics: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    apart: str = ""
    usual_changes: tuple[float, int] | None = None
    flip: Flip | None = None

    def value(self, metric: str) -> float:
        """The value of one metric; NaN when it does not apply to this tensor."""
        found = self.measurements.get(metric)
        return float("nan") if found is None else found.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedLayer:
    """One layer that an engine really runs: the ONNX nodes fused into it, its precision, kernel and time.

    `precision` is the format in which it computes, `stored` the one in which it writes its result, `provider` the part of
    the runtime that runs it ("" if not told), `asked` the format that its nodes were asked to be stored in ("": not known).
    """

    name: str
    layer_type: str
    nodes: tuple[str, ...]
    precision: str
    stored: str = ""
    kernel: str = ""
    provider: str = ""
    seconds: float | None = None
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedGraph:
    """What an engine really runs, as data; `requested` and `executed` are precisions ("f16", "bf16", "f32")."""

    layers: tuple[ExecutedLayer, ...]
    requested: str = ""
    executed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A tensor (or the region of nodes that ends in it) by the error it introduces.

    introduced = |c - f(c_in)| / |r|, inherited = |f(c_in) - r| / |r|, in L2 over all samples; `angle` is the cosine
    between the two. `gain` is how much the region amplifies what it inherits (NaN where it inherits nothing).
    `share` is the part of the output error that injecting only this suspect's introduced error reproduces (None
    when it was not injected). `floor` is the FP32 noise that `introduced` is held against. `region` are the nodes that one fault
    may lie in, `halving` the tensor among what they give that halves them: "" where they are one.
    """

    site: Site
    introduced: float
    inherited: float
    gain: float
    angle: float = 0.0
    share: float | None = None
    injected: float | None = None
    floor: float = 0.0
    region: tuple[str, ...] = ()
    halving: str = ""
    introduced_nonfinite: int = 0
    introduced_max: float = 0.0
    worst_index: tuple[int, ...] | None = None
    per_sample: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of the network between two cuts, and its exact share of the output error.

    `first` and `last` are topological indices of nodes (`last` is -1 for the last node of the graph); `enters` and
    `leaves` are the tensors at its two cuts, empty at the model's inputs and outputs. Shares of all stretches sum to
    one; one may be negative, where a stretch undoes error. `moved` is |Y(leaves) - Y(enters)| over the output error.
    """

    first: int
    last: int
    enters: tuple[str, ...]
    leaves: tuple[str, ...]
    share: float
    moved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far apart the candidate's values of one tensor are between `runs` runs on the same input (relative L2)."""

    tensor: str
    value: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Localization:
    """Introduced and inherited error of every observed tensor, worst first.

    `unexplained` is the part of the output error that stays when every injected suspect's error is put into the
    reference together; None when nothing was injected. `stretches` share the output error exactly, in graph order.
    `spreads` are the tensors that differ between the runs of the candidate in which they were recorded, worst first.
    """

    suspects: tuple[Suspect, ...]
    method: str
    observed: int
    windows: int
    samples: tuple[int, ...] = ()
    unexplained: float | None = None
    stretches: tuple[Stretch, ...] = ()
    spreads: tuple[Spread, ...] = ()
    disturbance: float = 0.0
    skipped: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One change, what it is expected to show if the claim is true and if it is false, and what it costs.

    `runs` says what has to be run: nothing but what is known already, the reference, the candidate as it is, or the candidate
    built or started in another way; "" leaves that to the cost. `identity` is how a study calls it ("BND001-2", in the
    third round of a search for several causes "BND001-2@3"); the engine gives it.
    """

    check: str
    claim: str
    change: str
    measure: str
    if_true: str
    if_false: str
    cost_s: float = 0.0
    runs: Runs = ""
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an experiment showed."""

    experiment: Experiment
    outcome: Outcome
    before: float
    after: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRepair:
    """A repair in words, and as a command where one exists. `trial` is filled in when it was tried.

    `tools` says the same to other tools.
    """

    repair: str
    text: str
    command: str = ""
    trial: Trial | None = None
    tools: tuple[ToolLines, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLines:
    """A repair as another tool takes it: an option of its command line, or lines that go into somebody's own build."""

    tool: str
    title: str
    lines: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A repair tried on the same candidate: the worst output's relative L2 before and after.

    `output` is the one that is worst after it, "" where that was not noted. `decisions` are, as plain data, what each output
    decides after it, None where its values do not show that. `file` is the copy of the model that was run, by its name in the
    study; "" where it was not kept, or nothing in the model was changed.
    """

    before: float
    after: float
    verdict: Verdict
    output: str = ""
    note: str = ""
    file: str = ""
    decisions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """Faults of one kind that were tried in vain: how many, of how many that were generated.

    Each that was tried would have been found if it made the share `least` of the error or more (None: none was tried). `most`
    is what the one that comes nearest explains of it, in words `nearest`: a description, and no cause; empty where none explains
    anything. With `in_part` it explains more than chance, so that a fault of this kind may be one of several.
    """

    kind: str
    tried: int
    generated: int
    least: float | None
    most: float = 0.0
    nearest: str = ""
    in_part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A claim about the deployment with what supports it.

    `confidence` is in [0, 1]; `confidence_from` says how it was computed. `share` is the part of the output error
    that the finding explains, None where that has no meaning. `details` are plain facts for reports (strict JSON). `ruled_out` is
    what was tried in vain, of a finding that says that no cause is known, `contradicted` other evidence that speaks against it.
    """

    code: str
    title: str
    role: Role
    claim: str
    confidence: float
    confidence_from: str
    site: Site | None = None
    share: float | None = None
    evidence: tuple[Evidence, ...] = ()
    repairs: tuple[OfferedRepair, ...] = ()
    details: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    ruled_out: tuple[RuledOut, ...] = ()
    contradicted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Findings (causes first), what was refuted and kept, what was not examined, and what stays unexplained."""

    findings: tuple[Finding, ...]
    refuted: tuple[Evidence, ...] = ()
    skipped: tuple[Skip, ...] = ()
    unexplained: float | None = None
