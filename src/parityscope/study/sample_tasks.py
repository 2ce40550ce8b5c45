"""The outputs of both sides on some of the samples: what one task finds, and what is found of all, task after task.

A task keeps what can be merged exactly: counts, sums, extremes with their sample, of each part its largest errors with their
sample, and of the first and the worst samples the errors of all parts. Tasks are merged in the order of their samples, whoever
did them: one process that does all of them one after the other and many that share them come to the same numbers, bit for bit.
"""

from __future__ import annotations

import heapq
import importlib
import math
import time
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parityscope.case.policy import budgets_for
from parityscope.comparison import merge_statistics
from parityscope.comparison.decisions import count_rows, measure_decisions, merge_decisions
from parityscope.comparison.distance import largest_distance
from parityscope.comparison.parts import measure_largest, measure_parts
from parityscope.comparison.rows import axis_of_rows, make_aligner
from parityscope.comparison.stacks import MOST_STACKED, measure_stack
from parityscope.comparison.tolerance import count_outside, merge_outside
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_numbers import list_first
from parityscope.study._budgets import misses_budget
from parityscope.study.answering import IN_A_ROW, Answering, answer_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from parityscope.backends import Session
    from parityscope.case import Sample
    from parityscope.comparison import Statistics
    from parityscope.comparison.decisions import Decided
    from parityscope.comparison.parts import LargestParts, Parts
    from parityscope.comparison.tolerance import OutsideTolerance
    from parityscope.records import DecisionRule, ExecutedGraph, Policy, Skip
    from parityscope.study.answering import Failure

    T = TypeVar("T")

# Of each output, the samples whose parts are all kept, and predicted in any case; what any part is on the others is looked at by
# its largest errors. Chosen: expectations vary less between samples than the margins.
FIRST_SAMPLES, WORST_SAMPLES = 2, 2
OTHER_SHAPE = " shape is "  # in what is said of an output whose shapes differ
_TOLD_S = 0.05  # between two positions that are told; chosen: nobody reads faster
_FEW = 16  # samples; chosen: a command about few is short, and half a second more would be much
_NAMED = 3  # outputs, in a sentence about several; chosen
_KEPT = (
    64 << 20
)  # bytes of the first samples' outputs that are kept; chosen: what has more is run again if it is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How outputs are compared: `outputs` by the reference's names, `names` from these to the candidate's.

    With `partly` the candidate may fail on some samples. Of the samples `kept` the reference's outputs are kept. `judged`: each
    sample by itself is held against the budgets. `rules` say what each output decides.
    """

    outputs: tuple[str, ...]
    names: Mapping[str, str]
    policy: Policy
    partly: bool
    kept: frozenset[int]
    rules: Mapping[str, DecisionRule]
    judged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesTold:
    """What the sessions of both sides tell, once they have run."""

    absent: tuple[Skip, ...]
    executed: ExecutedGraph | None
    reference_environment: Mapping[str, str]
    candidate_environment: Mapping[str, str]


@dataclass(slots=True, kw_only=True, eq=False)
class Found:
    """What was found on samples, in their order; grows by a sample, or by what another task found on the samples behind.

    Mappings are by output, as in `OutputRun`; `problems` say why an output could not be compared first, `misses` are
    the samples that miss a budget, where each is judged. `changed` are decisions that changed, by sample. `compared` are the
    samples that both sides answered, `failed` those that the candidate did not; `leading` of these came before it answered
    any, and `in_a_row` are the last ones. `over`: it is not asked any more. `worst` are the largest of `errors`.
    `spread` is how far two runs of it are apart, None
    where no sample was run twice. `seconds` are the reference's and the candidate's; `told` is what the sessions say.
    """

    statistics: dict[str, Statistics] = field(default_factory=dict)
    errors: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    worst: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    parts: dict[str, dict[int, Parts]] = field(default_factory=dict)
    largest: dict[str, LargestParts] = field(default_factory=dict)
    outside: dict[str, OutsideTolerance] = field(default_factory=dict)
    decisions: dict[str, Decided | None] = field(default_factory=dict)
    changed: dict[str, dict[int, int]] = field(default_factory=dict)
    misses: dict[str, list[int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    kept: dict[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    compared: list[int] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    leading: int = 0
    in_a_row: int = 0
    over: bool = False
    spread: float | None = None
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    told: SidesTold | None = None

    def add(self, other: Found) -> None:
        """Adds what was found on the samples behind; of these nothing counts from where the candidate is not asked any more."""
        ends = IN_A_ROW - self.in_a_row
        if other.leading >= ends:
            # Nobody has answered up to here, and whoever did these samples could not know of those before.
            self.failed += other.failed[:ends]
            self.over = True
            return
        self.failed += other.failed
        answered = other.compared or len(other.failed) > other.leading
        self.in_a_row = other.in_a_row if answered else self.in_a_row + other.in_a_row
        self.over = other.over
        self.compared += other.compared
        self.spread = other.spread if self.spread is None else self.spread
        self.told = self.told or other.told
        self.seconds = [mine + its for mine, its in zip(self.seconds, other.seconds, strict=True)]
        self.kept |= other.kept
        for name, problem in other.problems.items():
            self.problems.setdefault(name, problem)
        for name, part in other.statistics.items():
            self.statistics[name] = merge_statistics(self.statistics[name], part) if name in self.statistics else part
        for name, counted in other.outside.items():
            self.outside[name] = merge_outside(self.outside[name], counted) if name in self.outside else counted
        for name, decided in other.decisions.items():
            self.add_decisions(name, decided)
        for name, changed in other.changed.items():
            self.changed.setdefault(name, {}).update(changed)
        for name, missed in other.misses.items():
            self.misses.setdefault(name, []).extend(missed)
        for name, errors in other.errors.items():
            looked_at = self.add_errors(name, errors)
            if name in other.parts:
                self.keep_parts(name, other.parts[name], looked_at)
        for name, parts in other.largest.items():
            self.add_largest(name, parts)

    def add_largest(self, name: str, parts: LargestParts | None) -> None:
        """Adds the largest errors by part; of samples as bad the first is kept."""
        if parts is not None:
            self.largest[name] = self.largest[name].merge(parts) if name in self.largest else parts

    def add_decisions(self, name: str, decided: Decided | None) -> None:
        """Of a kind that was not sure once nothing is kept."""
        if name not in self.decisions:
            self.decisions[name] = decided
        elif (held := self.decisions[name]) is not None:
            self.decisions[name] = merge_decisions(held, decided)

    def add_errors(self, name: str, errors: Sequence[tuple[int, float]]) -> set[int]:
        """Adds errors by sample; gives the samples that the output is looked at by part: the first, and the worst so far."""
        held = self.errors.setdefault(name, [])
        held += errors
        worst = heapq.nlargest(WORST_SAMPLES, (*self.worst.get(name, ()), *errors), key=itemgetter(1))
        self.worst[name] = worst
        return {index for index, _ in (*held[:FIRST_SAMPLES], *worst)}

    def keep_parts(self, name: str, parts: Mapping[int, Parts], looked_at: set[int]) -> None:
        """Keeps the parts of the samples `looked_at` alone."""
        held = self.parts.setdefault(name, {})
        held |= parts
        for other in held.keys() - looked_at:
            del held[other]


def compare_samples(
    ours: Session,
    theirs: Session,
    samples: Iterable[Sample],
    asking: Asking,
    *,
    twice: bool,
    in_a_row: int = 0,
    tell: Callable[[int], None] = lambda _: None,
) -> Found:
    """What both sides give on `samples`; with `twice` the candidate runs the first that it answers a second time.

    `in_a_row` is how many samples it failed on just before; `tell` is told positions of samples, some a second.

    Raises:
        ParityError: a side cannot run, or with `partly` the reference.
    """
    found = Found()
    align = make_aligner(asking.policy, asking.names)
    answers = Answering(session=theirs, partly=asking.partly, in_a_row=in_a_row)
    answered = False
    waiting: list[_Answered] = []
    elements, told = 0, -math.inf
    for position, sample in enumerate(samples):
        start = time.perf_counter()
        if start - told >= _TOLD_S:
            tell(position)
            told = start = time.perf_counter()
        expected = answer_sample(ours, sample)
        middle = time.perf_counter()
        given = answers.of(sample)
        found.seconds[0] += middle - start
        found.seconds[1] += time.perf_counter() - middle
        answered |= given is not None
        found.leading += not answered
        again = answers.of(sample) if twice and given is not None and not found.compared else given
        if answers.over:
            break
        if given is None or again is None:
            continue
        if twice and not found.compared:
            found.spread = largest_distance(align(expected, given)[1], align(expected, again)[1])
        found.compared.append(sample.index)
        if sample.index in asking.kept and sum(one.nbytes for one in expected.values()) <= _KEPT // FIRST_SAMPLES:
            found.kept[sample.index] = expected
        size = sum([array.size for array in expected.values()])
        elements += size
        if waiting and elements > MOST_STACKED:
            _add_samples(found, waiting, asking)
            waiting, elements = [], size
        waiting.append(_Answered(sample.index, sample.name, *align(expected, given), _rows_of(expected, given, asking)))
    _add_samples(found, waiting, asking)
    found.failed, found.over = answers.failed, answers.over
    found.in_a_row = answers.in_a_row if answered else answers.in_a_row - in_a_row
    return found


def load_loops(samples: int) -> None:
    """Takes the loops compiled from the first sample on where there are many: sums are then added up alike everywhere.

    Of few it rests on how large they are (`loading`), and workers, which take them compiled, may differ in the last bits.
    """
    if samples > _FEW:
        importlib.import_module("parityscope.compiling")


def tell_sides(ours: Session, theirs: Session) -> SidesTold:
    """What both sessions tell."""
    told = (
        theirs.environment.get("note", ""),
        _tell_alone(ours.reshaped, theirs.reshaped, _say_axes),
        _tell_alone(ours.rounded, theirs.rounded, _say_rounding),
    )
    notes = list(filter(None, told))
    return SidesTold(
        absent=(*ours.absent, *theirs.absent),
        executed=theirs.executed,
        reference_environment=dict(ours.environment),
        candidate_environment={**theirs.environment, **({"note": "; ".join(notes)} if notes else {})},
    )


def _tell_alone(ours: Mapping[str, T], theirs: Mapping[str, T], say: Callable[[str, T, str], str]) -> str:
    """What the candidate alone does to some outputs: said of the first, with the others named; "" where there is none."""
    other = [name for name in theirs if name not in ours]
    more = f" (likewise {list_first(other[1:], _NAMED)})" if len(other) > 1 else ""
    return say(other[0], theirs[other[0]], more) if other else ""


def _say_axes(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], more: str) -> str:
    given, declared = shapes
    return f"{name} is {list(given)} there and {list(declared)} in the model{more}: compared in the model's shape"


def _say_rounding(name: str, types: tuple[str, str], more: str) -> str:
    given, declared = types
    return f"{name} is kept as {given} there and is {declared} in the model{more}: its rounding is no error of the run"


class _Answered(NamedTuple):
    """A sample that both sides answered, by the names of each; a tuple, because there are hundreds of thousands."""

    sample: int
    label: str
    expected: Mapping[str, np.ndarray]
    given: Mapping[str, np.ndarray]
    rows: Mapping[str, tuple[int, int]]


def _rows_of(
    expected: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray], asking: Asking
) -> Mapping[str, tuple[int, int]]:
    """How many rows each side gives of the outputs that values count."""
    found = {}
    for one in asking.policy.counted:
        other = asking.names.get(one.name, one.name)
        if one.name in expected and other in given:
            mine, its = expected[one.name].shape, given[other].shape
            axis = axis_of_rows(one.axes, mine, its)
            if axis is not None:
                found[one.name] = mine[axis], its[axis]
    return found


def _add_samples(found: Found, answered: Sequence[_Answered], asking: Asking) -> None:
    """Adds samples, of each output as many at once as are of one shape and type."""
    for name in asking.outputs:
        other = asking.names.get(name, name)
        for forms, run in groupby(answered, partial(_forms_of, name, other)):
            several = list(run)
            problem = _refuse_pair(other, several[0], forms)
            # Budgets ask for every metric of a sample by itself.
            for some in [several] if not asking.judged or problem else [[one] for one in several]:
                problem = problem or _add_output(found, name, other, some, asking)
            if problem:
                found.problems.setdefault(name, f"{problem} (sample {several[0].label})")
                if asking.judged and budgets_for(asking.policy, name):  # what nobody can judge keeps nothing
                    found.misses.setdefault(name, []).extend(one.sample for one in several)


_Form = tuple[tuple[int, ...], np.dtype[Any]] | None


def _forms_of(name: str, other: str, sample: _Answered) -> tuple[_Form, _Form]:
    reference, candidate = sample.expected.get(name), sample.given.get(other)
    return _form_of(reference), _form_of(candidate)


def _form_of(array: np.ndarray | None) -> _Form:
    return None if array is None else (array.shape, array.dtype)


def _refuse_pair(other: str, sample: _Answered, forms: tuple[_Form, _Form]) -> str:
    """Why an output of these forms (the reference's, the candidate's) cannot be compared; "" where it can."""
    reference, candidate = forms
    if reference is None:
        return "the reference did not give it back"
    if candidate is None:
        return f"the candidate did not give {other!r} back (it gave: {', '.join(sample.given) or 'nothing'})"
    ours, theirs = reference[0], candidate[0]
    return (
        "" if ours == theirs else f"its{OTHER_SHAPE}{list(ours)} in the reference and {list(theirs)} in the candidate"
    )


def _add_output(found: Found, name: str, other: str, samples: Sequence[_Answered], asking: Asking) -> str:
    """Adds one output of samples of one shape and type; gives why that cannot be, "" where it is done."""
    pairs = [(one.expected[name], one.given[other]) for one in samples]
    try:
        statistics, distances = measure_stack(*zip(*pairs, strict=True))
    except ValueError as error:
        return str(error)
    held = found.statistics.get(name)
    found.statistics[name] = merge_statistics(held, statistics) if held is not None else statistics
    looked_at = found.add_errors(name, list(zip((one.sample for one in samples), distances.tolist(), strict=True)))
    budgets = budgets_for(asking.policy, name)
    if not budgets:  # these are asked for an output as a whole
        found.add_largest(name, measure_largest([one.sample for one in samples], *zip(*pairs, strict=True)))
    tolerances = [one.tolerance for one in budgets if one.tolerance is not None]
    for sample, pair in zip(samples, pairs, strict=True):
        for tolerance in tolerances:
            counted = count_outside(*pair, tolerance)
            found.outside[name] = merge_outside(found.outside[name], counted) if name in found.outside else counted
        if asking.judged and misses_budget(name, statistics, pair, asking.policy):
            found.misses.setdefault(name, []).append(sample.sample)
        if found.decisions.get(name, True) is not None:
            decided = (
                count_rows(*sample.rows[name])
                if name in sample.rows
                else measure_decisions(*pair, name, asking.rules[name], sample.sample)
            )
            found.add_decisions(name, decided)
            if decided is not None and decided.others:
                found.changed.setdefault(name, {})[sample.sample] = decided.others
        if sample.sample in looked_at and (parts := measure_parts(*pair)) is not None:
            found.keep_parts(name, {sample.sample: parts}, looked_at)
    return ""
