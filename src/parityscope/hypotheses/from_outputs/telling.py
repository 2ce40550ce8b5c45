"""What a search from the outputs says, as records that travel between processes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.amounts import PROMISING
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.from_outputs.sites import redo_edits
from parityscope.hypotheses.measures import are_equal
from parityscope.hypotheses.power import MOST_NUMBERS, KindTally
from parityscope.hypotheses.written import write_edit
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.hypotheses.edits import Behind, NodeAgain, StretchEdit
    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.peeling import GuessPair
    from parityscope.hypotheses.from_outputs.searching import OutputsSearch
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import TriedGuess
    from parityscope.records import RuledOut

_COMPARED = 16  # members of a class whose tensors are looked at to tell them apart
_LISTED = 40  # members that are told
_NEXT = 3  # tensors that are named, at most
_APART = 1e-4  # relative: tensors that differ by more are told apart by recording them; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalentEdit:
    """An edit: in words, at the step that gives `output`, with the share of the error of all samples that it explains.

    `least` is that of the output and sample of which it explains least. What does the same in a graph
    is as in `worker.EditCandidate`. `also` are the same change of other steps, which goes with it. `inside` is the
    control flow in whose body it is, `equal` are the words of other edits that give the same result there on every sample.
    """

    words: str
    kind: str
    output: str
    op_type: str
    bits: float
    share: float
    least: float
    numbers: Mapping[str, float] = field(default_factory=dict)
    node: bytes = b""
    reads: tuple[int | None, ...] | None = None
    again: tuple[NodeAgain, ...] = ()
    behind: Behind = ()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    also: tuple[EquivalentEdit, ...] = ()
    inside: str = ""
    equal: tuple[str, ...] = ()

    @property
    def step(self) -> str:
        """The key of the step that is changed."""
        return self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsAnswer:
    """The answer: `members` cannot be told apart and explain nearly all, shortest first; none where nothing does.

    They are proved where they are `exact`: leave no more than rounding may.
    `pair` are two that hold together where none holds alone, each with its share. `nearest` is the best description, `sites` the
    nodes at which the error may come in (by what they give first), in order, of `live` that can matter. `predicted` edits were
    judged by derivative, `evaluated` exactly (by kind), `untried` left for want of budget; `refused` are operators without a
    derivative, `crashed` kinds of edits with their place and why generating them failed, `fatal` edits that ended the
    search. `record` are the tensors to record next, the one that decides most first, `ruled_out` what was tried of each kind in
    vain. `run_s` is what the reference takes for a sample, in estimated seconds.
    """

    members: tuple[EquivalentEdit, ...] = ()
    exact: bool = False
    pair: tuple[EquivalentEdit, ...] = ()
    nearest: EquivalentEdit | None = None
    sites: tuple[str, ...] = ()
    live: int = 0
    predicted: int = 0
    evaluated: Mapping[str, int] = field(default_factory=dict)
    evaluations: int = 0
    untried: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    record: tuple[str, ...] = ()
    fatal: Mapping[str, str] = field(default_factory=dict)
    crashed: Mapping[str, str] = field(default_factory=dict)
    ruled_out: tuple[RuledOut, ...] = ()
    problem: str = ""
    run_s: float = 0.0


@np.errstate(all="ignore")  # as in the search: what is told is computed once more
def told_of(found: OutputsSearch) -> OutputsAnswer:
    """A search in words."""
    best = found.trials.best
    members = _join_equal(found.alike[:_LISTED])
    return OutputsAnswer(
        members=() if found.pair is not None else members,
        exact=found.is_exact,
        pair=() if found.pair is None else _members_of_pair(found.pair),
        nearest=None if best is None or best.explained <= 0 else _member_of(best),
        sites=tuple(dict.fromkeys(site.step.key for site in found.sites if not site.output.endswith(READ))),
        live=sum(not step.key.endswith(READ) for step in found.reference.live),
        predicted=found.predictor.generated,
        evaluated=dict(Counter(one.guess.kind for one in found.trials.tried)),
        evaluations=found.trials.evaluations,
        untried=found.predictor.left_out,
        refused=dict(found.predictor.refused),
        crashed=found.crashed
        | {f"{kind} of {site.output}": why for site in found.sites for kind, why in site.crashed.items()},
        record=_tensors_that_divide(found) if members else _tensor_that_halves(found),
        ruled_out=_rule_out_kinds(found),
        run_s=sum(found.reference.seconds.values()),
    )


def _say_with_place(one: TriedGuess) -> str:
    """What was tried, with its place where the words name none."""
    output, words = one.guess.site.output, one.edit.words
    if one.guess.others or one.guess.rule:
        return words
    read = output.removesuffix(READ)
    return f"what is read of input {read!r}: {words}" if read != output else f"at {output!r}: {words}"


def _rule_out_kinds(found: OutputsSearch) -> tuple[RuledOut, ...]:
    """What was computed of each kind; what was only judged by derivatives was not."""
    trials, residual = found.trials, found.residual
    numbers = min(sum(part.wrong for parts in residual.samples for part in parts), MOST_NUMBERS)
    tally = KindTally(numbers=numbers, least=PROMISING)
    generated: Counter[str] = Counter()
    for site in found.sites:
        generated.update(site.count_edits())
    for one in trials.tried:
        bits = trials.bits_of(one)
        tally.note_tried(one.guess.kind, bits)
        tally.note_explained(one.guess.kind, bits, one.explained, _say_with_place(one))
    done = Counter(one.guess.kind for one in trials.tried)
    for kind, count in generated.items():
        tally.note_untried(kind, max(0, count - done[kind]))
    return tally.told()


def _member_of(one: TriedGuess) -> EquivalentEdit:
    least = one.explained if one.share is None else one.share.least
    return _describe_edit(one.guess, one.edit, one.explained, least)


def _join_equal(alike: Sequence[TriedGuess]) -> tuple[EquivalentEdit, ...]:
    """A member for each that does something of its own: edits that give the same result are one, in the words of the first."""
    told: list[tuple[EquivalentEdit, Sequence[np.ndarray] | None]] = []
    for one in alike:
        member, results = _member_of(one), _results_of(one)
        for place, (other, known) in enumerate(told):
            if results is None or known is None or member.output != other.output:
                continue
            if all(are_equal(mine, its) for mine, its in zip(results, known, strict=True)):
                told[place] = replace(other, equal=(*other.equal, member.words)), known
                break
        else:
            told.append((member, results))
    return tuple(member for member, _ in told)


def _results_of(one: TriedGuess) -> list[np.ndarray] | None:
    """What the step that is changed gives, on every sample, all its outputs in one row; None where not that alone is changed."""
    guess = one.guess
    if guess.others or guess.rule:
        return None
    found = [guess.site.results(sample, one.edit) for sample in range(len(guess.site.reference.values))]
    if any(given is None for given in found):
        return None
    return [
        np.concatenate([array.ravel() for array in given or () if array is not None] or [np.zeros(0)])
        for given in found
    ]


def _members_of_pair(pair: GuessPair) -> tuple[EquivalentEdit, ...]:
    """Both, with what the first explains alone and the second of what is left then, the larger one first."""
    shares = (pair.first, pair.share.pooled - pair.first)
    made = [
        _describe_edit(guess, edit, share, pair.share.least)
        for guess, edit, share in zip(pair.guesses, pair.edits, shares, strict=True)
    ]
    return tuple(sorted(made, key=lambda one: -one.share))


def _describe_edit(guess: Guess, edit: StretchEdit, share: float, least: float) -> EquivalentEdit:
    site = guess.site
    return EquivalentEdit(
        words=edit.words,
        kind=guess.kind,
        output=site.output,
        op_type=site.changed_step.op_type if not site.output.endswith(READ) else "input",
        bits=edit.bits,
        share=share,
        least=least,
        numbers=dict(edit.numbers),
        node=edit.written_node,
        reads=edit.reads,
        again=write_edit(site.stretch, edit),
        behind=edit.behind,
        constants=site.stretch.changed_constants(edit),
        inside="" if site.inner is None else site.step.key,
        also=tuple(
            _describe_edit(replace(guess, site=other, others=(), rule=()), one, share, least)
            for other, one in guess.everything(edit)[1:]
        ),
    )


def _tensors_that_divide(found: OutputsSearch) -> tuple[str, ...]:
    """Tensors that tell the members of a class apart, fewest first: each the one that parts most of what is still together."""
    members = found.alike[:_COMPARED]
    if len(members) < 2:
        return ()
    sample = found.trials.samples[0]
    given: list[Mapping[str, np.ndarray]] = []
    for one in members:
        guess = one.guess
        redone = redo_edits(guess.everything(one.edit))
        try:
            given.append(found.reference.changed_with(sample, redone))
        except ParityError:
            given.append({})
    names = dict.fromkeys(
        one.guess.site.output
        for one in members
        if one.guess.site.output in found.reference.program.steps_of and not one.guess.site.output.endswith(READ)
    )
    groups: list[list[int]] = [list(range(len(members)))]
    chosen: list[str] = []
    while len(chosen) < _NEXT:
        best = max(names, key=lambda name: len(_part_groups(found, sample, given, groups, name)), default="")
        parted = _part_groups(found, sample, given, groups, best) if best else groups
        if len(parted) == len(groups):
            break
        chosen.append(best)
        groups = parted
    return tuple(chosen)


def _part_groups(
    found: OutputsSearch,
    sample: int,
    given: Sequence[Mapping[str, np.ndarray]],
    groups: Sequence[Sequence[int]],
    name: str,
) -> list[list[int]]:
    """The groups as recording a tensor would part them."""
    known = found.reference.values[sample][name]
    parted: list[list[int]] = []
    for group in groups:
        kept: list[tuple[np.ndarray, list[int]]] = []
        for member in group:
            array = given[member].get(name, known)
            for other, those in kept:
                if _do_agree(array, other):
                    those.append(member)
                    break
            else:
                kept.append((array, [member]))
        parted += [those for _, those in kept]
    return parted


def _do_agree(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    mine, its = (np.nan_to_num(np.asarray(array, np.float64)) for array in (one, other))
    return float(np.linalg.norm(mine - its)) <= _APART * float(np.linalg.norm(its))


def _tensor_that_halves(found: OutputsSearch) -> tuple[str, ...]:
    """The tensor above or at which half of the sites lie: whether it is right says in which half the error comes in."""
    sites = {site.step.index for site in found.sites}
    if len(sites) < 2:
        return ()
    above = dict.fromkeys(sites, 1)
    for site in found.sites:
        for other in found.reference.after[site.step.index]:
            if other.index in above:
                above[other.index] += 1
    half = len(sites) / 2
    within = [site for site in found.sites if site.inner is None and not site.output.endswith(READ)]
    values, given = found.reference.values[0], found.reference.program.outputs

    def turn(site: EditSite) -> tuple[bool, float, int]:
        # An index that is right says little of what it was decided by.
        return values[site.output].dtype.kind != "f", abs(above[site.step.index] - half), site.step.index

    return tuple(site.output for site in sorted(within, key=turn) if site.output not in given)[:1]
