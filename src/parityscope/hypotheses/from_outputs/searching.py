"""The whole search: sites, guesses, trials, and the class of what explains as much.

Budgets are estimated seconds (as `explanation.budget`) and no clock's, so that a slow or busy machine finds what a quick one
does: all that is computed is charged to the reference's meter, and what is left over when `_MOST_S` are spent is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.evaluation.program import compile_program
from parityscope.hypotheses.from_outputs.families import (
    CHANGED_PLACES,
    PLACES,
    bounds_of,
    families_of,
    filters_of,
    operators_of,
)
from parityscope.hypotheses.from_outputs.guess import PLAIN_BITS, Guess
from parityscope.hypotheses.from_outputs.peeling import GuessPair, Peeling, search_second_fault
from parityscope.hypotheses.from_outputs.predicting import DIRECTIONS, Predictor
from parityscope.hypotheses.from_outputs.reference import READ, Reference, open_reference, read_first
from parityscope.hypotheses.from_outputs.residual import Residual, residual_of
from parityscope.hypotheses.from_outputs.rules import list_rules
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE, PLAIN, EditSite, sites_of
from parityscope.hypotheses.from_outputs.trying import Trials, TriedGuess
from parityscope.hypotheses.from_places import edit_at_place
from parityscope.hypotheses.power import find_least_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from parityscope.hypotheses.from_outputs.families import EditFamily

__all__ = ["KnownOutputs", "OutputsSearchResult", "search_outputs"]

_NBYTES = 3 << 30  # of the reference's tensors; chosen
# Estimated seconds of each stage: as many runs of the whole network, between two bounds. Chosen for 10 s on small networks and
# 30 s on a text detector of 330 nodes.
_RUNS = 400
_GUESS_S, _DEEP_S, _TRY_S = (2.0, 20.0), (2.0, 6.0), (2.0, 20.0)
_PAIR_S = (10.0, 28.0)  # and of the search for two faults; in small networks drawn pairs took 1 to 9
_MOST_S = 40.0  # estimated, for all stages together; chosen
_AGAIN = 0.5  # of it for each time that a search was begun before and an edit ended it; chosen
_TRIED = 0.5  # of that, at least, is for trying what was guessed; chosen
_NEAR, _NEAR_SITES = 0.6, 3  # of the error, and places where that much is explained; chosen
# Of all, at most, for edits in few words: unpredicted the cheapest first; and of the rest, as they are predicted. Chosen.
_PLAIN_FIRST, _PLAIN = 0.15, 0.5
_RULES = 0.15  # of what is left, at most, for the same at several places; chosen
# Of what is left, at most, for what enters the network, where all is tried: a wrong preparation is likely; chosen.
_ENTRY, _MOVED = 0.25, 0.5  # and of that for what moves values
_MOVING = "values"  # the kind of edits that such are among
_OF_RESULT = ("values", "before")  # kinds that may be of a part of a result
# Of what is left, at most: for trying one alone before two faults are thought of, for these, and for one alone once more. Chosen.
_ALONE, _PEELED, _EARLY = 0.3, 0.7, 0.6
# Of what is left, at most, for every edit where it costs least: before the prediction in a large network, and behind it. Chosen.
_CHEAPEST, _ALL = 0.25, 0.5
_LONGER = 0.3  # of what is left, at most, for the longer edits at the places where most is explained; chosen
_EDITS = 300  # of a place, about
_HOPS = 2  # steps from what explains most; chosen
_MANY = 1000  # edits: where fewer can be run, two faults are hardly found, and one alone has more of the time; chosen
_SWEPT, _SWEEP_S = (
    3.0,
    4.0,
)  # runs that a direction of a sweep costs; estimated seconds of the sweeps over all samples. Chosen
_NUMBERS = 2048  # samples are predicted together until they have so many; chosen
_DEEP_SITES = 24  # at which longer edits are generated; chosen
_CLASS = 40  # evaluations that look for what cannot be told from the best
_ABOVE = 6  # steps above the best, at which what is said in fewer bits is tried too; chosen
_ALIKE = 0.004  # of the share, and of the sketch
_EQUAL = 1e-9  # of the squared error: what leaves less is as good as what leaves nothing; chosen
_BESIDE = 1e-5  # of the squared error more than the best leaves: it cannot be told from it; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownOutputs:
    """What is known: a model, and what both sides gave on some samples, by the reference's names.

    `noise` is the relative L2 error that rounding may leave of each output; `scale` multiplies all budgets. `begun` is how
    often it was searched before and an edit ended that. `order` are the samples' numbers among all, where they are not the first.
    """

    model: Path
    feeds: Sequence[Mapping[str, np.ndarray]]
    candidate: Sequence[Mapping[str, np.ndarray]]
    noise: Mapping[str, float]
    scale: float = 1.0
    begun: int = 0
    order: Sequence[int] = ()


@dataclass(slots=True, kw_only=True, eq=False, repr=False)  # whoever writes it down would write all that was tried
class OutputsSearchResult:
    """What a search gave: what was tried, what cannot be told from the best (`alike`), or two that hold together (`pair`)."""

    reference: Reference
    residual: Residual
    sites: Sequence[EditSite]
    trials: Trials
    predictor: Predictor
    guesses: list[Guess] = field(default_factory=list)
    alike: list[TriedGuess] = field(default_factory=list)
    pair: GuessPair | None = None

    @property
    def holds(self) -> bool:
        """Whether the best is a cause: it explains everything everywhere, in fewer bits than it saves."""
        return bool(self.alike)

    @property
    def is_exact(self) -> bool:
        """Whether the first of these leaves no more than rounding may leave."""
        share = self.alike[0].share if self.alike else None
        return share is not None and share.is_exact(self.residual.noise)


@np.errstate(all="ignore")  # whatever an edit does to numbers; said once, for what is called a million times
def search_outputs(
    outputs: KnownOutputs, trying: Callable[[str], None] = lambda _: None, banned: frozenset[str] = frozenset()
) -> OutputsSearchResult:
    """Looks for the edit of the reference that gives the candidate's outputs.

    Raises:
        ParityError: the reference cannot be run step by step, or nothing is wrong with outputs of numbers.
    """
    model = prepare_copy(read_graph(outputs.model), OLDEST)
    read_first(model.graph)
    program = compile_program(model)
    reference = open_reference(program, outputs.feeds, _NBYTES)
    reference.order = outputs.order
    names = [name for name in program.outputs if name in reference.values[0] and _is_number(reference.values[0][name])]
    residual = residual_of(reference.values, outputs.candidate, outputs.noise, names)
    if residual.whole <= residual.noise and not residual.is_broken:
        raise ParityError("no output of numbers differs by more than rounding")
    sites = sites_of(reference, residual.still())
    samples = _first_samples(residual, sum(reference.seconds.values()))
    meter = reference.meter
    until = meter.spent + _MOST_S * outputs.scale * _AGAIN**outputs.begun
    predictor = Predictor(
        reference=reference,
        residual=residual,
        samples=samples,
        trying=trying,
        banned=banned,
    )
    trials = Trials(
        reference=reference,
        residual=residual,
        samples=samples,
        seconds=_stage_budget(reference, _TRY_S, outputs.scale),
        trying=trying,
        banned=banned,
        until=until,
        sites=sites,
    )
    found = OutputsSearchResult(reference=reference, residual=residual, sites=sites, trials=trials, predictor=predictor)
    plain = [one for one in _guesses_unpredicted(sites, PLAIN) if _is_plain(one)]
    trials.until = meter.share_of(until, _PLAIN_FIRST)
    trials.run_plain(plain)
    trials.until = meter.share_of(until, _RULES)
    trials.run_rules(list_rules(plain))
    if not trials.explains:
        trials.until = meter.share_of(until, _ENTRY)
        _try_entries(found)
    if not trials.explains and not _can_run_all(found, until):
        _try_cheapest(found, meter.share_of(until, _CHEAPEST))
    trials.seconds = _stage_budget(reference, _TRY_S, outputs.scale)
    predictor.until = meter.share_of(until, 1 - _TRIED)
    # What is explained by so few words can only stand in for what lies near.
    near = (
        reference.around(trials.best.guess.site.step, _ABOVE) if trials.best is not None and trials.explains else None
    )
    asked = sites if near is None else [one for one in sites if one.step.index in near]
    found.guesses += predictor.guess(asked, EARLY, _stage_budget(reference, _GUESS_S, outputs.scale), fitted=True)
    known = {id(edit) for one in found.guesses for edit in (one.edit, *one.names)}
    found.guesses += [one for one in plain if id(one.edit) not in known]
    # Guessing may have taken all of its part and more, where a sweep is long: then the best guesses are tried all the same.
    until = max(until, meter.spent + until - predictor.until)
    trials.until = meter.share_of(until, _PLAIN)
    trials.run_plain([one for one in found.guesses if _is_plain(one)])
    trials.until = meter.share_of(until, _ALONE if _can_try(found, until) >= _MANY else _EARLY)
    trials.run(found.guesses)
    trials.until = until
    if not trials.explains:
        _try_neighbours(found)
    if not trials.explains:
        _try_all_there(found, until)
    if not trials.explains:
        _try_cheapest(found, meter.share_of(until, _ALL))
        trials.until = until
    if not trials.explains:
        found.pair = search_second_fault(
            Peeling(
                trials=trials,
                predictor=predictor,
                candidate=outputs.candidate,
                noise=outputs.noise,
                plain=plain,
                sites=len(sites),
                until=min(
                    meter.share_of(until, _PEELED), meter.spent + _stage_budget(reference, _PAIR_S, outputs.scale)
                ),
            )
        )
    if not trials.explains and found.pair is None:
        trials.until = meter.share_of(until, _EARLY)
        trials.run(found.guesses)  # those that were left
        trials.until = until
    if not trials.explains and found.pair is None and not trials.is_spent:
        deep = _promising_sites(found)
        predictor.until = until
        late = predictor.guess(deep, (*EARLY, *LATE), _stage_budget(reference, _DEEP_S, outputs.scale), fitted=False)
        found.guesses += late
        trials.seconds = max(trials.seconds, 0.0) + _stage_budget(reference, _TRY_S, outputs.scale)
        trials.run(late)
    _class_of(found)
    return found


def _can_try(found: OutputsSearchResult, until: float) -> float:
    """How many edits can be run until the meter stands there, each as dear as one at the middle of the network."""
    costs = sorted(found.reference.cost(step) for step in found.reference.live)
    return (until - found.reference.meter.spent) / costs[len(costs) // 2] if costs else 0.0


def _is_plain(guess: Guess) -> bool:
    """Whether it is one edit of the graph in few words."""
    return guess.kind in PLAIN and guess.edit is not None and guess.edit.bits <= PLAIN_BITS


def _guesses_unpredicted(sites: Sequence[EditSite], kinds: Sequence[str]) -> list[Guess]:
    """All edits of some kinds: they are tried whatever a derivative says, which is not made for a large change."""
    found = []
    for site in sites:
        try:
            found += [Guess(site=site, kind=kind, edit=edit) for kind, edit in site.edits(kinds)]
        except ParityError:  # a step that cannot be run alone has no edits
            continue
    return found


def _try_all_there(found: OutputsSearchResult, until: float) -> None:
    """Every edit, and every other operator, where something explains most of the error: what comes near may stand in for one.

    What a derivative says of them left most of these out. Of few numbers much is explained by anything: it has to save bits.
    """
    trials = found.trials
    numbers = found.residual.numbers(trials.worst)
    worth: dict[str, float] = {}
    for one in trials.tried:
        if one.explained > max(_NEAR, find_least_share(one.edit.bits, numbers)):
            worth[one.guess.site.output] = max(worth.get(one.guess.site.output, 0.0), one.explained)
    best = sorted((one for one in found.sites if one.output in worth), key=lambda one: -worth[one.output])[:_NEAR_SITES]
    trials.seconds = max(trials.seconds, 0.0) + _TRY_S[0]
    for site in best:
        trials.run_plain(_guesses_unpredicted([site], (*PLAIN, "operators")))
    trials.until = found.reference.meter.share_of(until, _LONGER)
    trials.run_plain(_guesses_in_part(trials))
    trials.run_plain(_guesses_unpredicted(best, EARLY))
    trials.until = until


def _guesses_in_part(trials: Trials) -> list[Guess]:
    """Whatever may be done to a whole result, in the parts that explain most where they are scaled or shifted."""
    known = sorted(
        (one for one in trials.tried if trials.comes_near(one.explained, one.edit.bits)),
        key=lambda one: -one.explained,
    )
    parts = [
        (one.guess.site, one.guess.family.place)
        for one in known
        if one.guess.family is not None and one.guess.family.place is not None
    ]
    return [
        Guess(site=site, kind=CHANGED_PLACES, edit=edit_at_place(place, edit))
        for site, place in parts[:_NEAR_SITES]
        for _, edit in site.edits(_OF_RESULT)
    ]


def _can_run_all(found: OutputsSearchResult, until: float) -> bool:
    """Whether the time may allow every edit."""
    return len(found.sites) * _EDITS <= _can_try(found, until)


def _try_cheapest(found: OutputsSearchResult, until: float) -> None:
    """Every edit that was not run yet at the places that cost least to ask, as many as the time allows, the shortest first.

    Derivatives misjudge large changes. Most that is tried where it costs least is most that is tried.
    """
    reference = found.reference
    chosen: list[Guess] = []
    left = until - reference.meter.spent
    for site in sorted(found.sites, key=lambda one: reference.cost(one.step)):
        if left <= 0:
            break
        guesses = _guesses_unpredicted([site], EARLY)
        left -= len(guesses) * reference.cost(site.step)
        chosen += guesses if left > 0 else ()
    found.trials.until = until
    found.trials.run_plain(chosen, 1.0)


def _try_neighbours(found: OutputsSearchResult) -> None:
    """The same with other numbers there and at the places around, where numbers that were fitted explain most but not all."""
    trials = found.trials
    best = trials.best
    if best is None or best.guess.family is None or best.explained < _NEAR:
        return
    # The time for a fit may have ended it.
    trials.attempt(best.guess.with_family(best.guess.family, best.guess.amounts))
    kind, near = best.guess.family.kind, found.reference.around(best.guess.site.step, _HOPS)
    trials.seconds = max(trials.seconds, 0.0) + _TRY_S[0]
    for site in found.sites:
        if site.step.index not in near or site is best.guess.site:
            continue
        try:
            families = [one for one in (*families_of(site), *bounds_of(site), *operators_of(site)) if one.kind == kind]
        except ParityError:  # a step that cannot be run alone has no edits
            continue
        for family in families:
            _try_family(trials, site, family)


def _try_entries(found: OutputsSearchResult) -> None:
    """What may be done to the inputs: what only moves values, usual scales, shifts and filters with what is fitted, all else."""
    trials, until = found.trials, found.trials.until
    entries = [site for site in found.sites if site.output.endswith(READ)]
    guesses = _guesses_unpredicted(entries, (*EARLY, *LATE))
    trials.until = found.reference.meter.share_of(until, _MOVED)
    trials.run_moves([one for one in guesses if one.kind == _MOVING])
    trials.until = until
    for site in entries:
        for family in (*families_of(site), *filters_of(site)):
            _try_family(trials, site, family)
    trials.run_plain(guesses)


def _try_family(trials: Trials, site: EditSite, family: EditFamily) -> None:
    """The usual amounts of a family, and what is fitted from the best of them."""
    best, amounts = -math.inf, None
    for start in family.starts:
        if trials.explains or trials.is_spent:
            return
        tried = trials.attempt(Guess(site=site, kind=family.kind, edit=family.make(*start)))
        if tried is not None and tried.explained > best:
            best, amounts = tried.explained, start
    if amounts is not None and not trials.explains:
        trials.attempt(Guess(site=site, kind=family.kind, family=family, amounts=amounts))


def _stage_budget(reference: Reference, bounds: tuple[float, float], scale: float) -> float:
    """Estimated seconds of a stage."""
    once = sum(reference.seconds.values()) * len(reference.values)
    return scale * min(max(_RUNS * once, bounds[0]), bounds[1])


def _is_number(array: np.ndarray) -> bool:
    return array.dtype.kind in "fiu" and array.size > 0


def _first_samples(residual: Residual, once: float) -> tuple[int, ...]:
    """The samples that are predicted and tried first: the worst, and as many more as it takes to have enough numbers.

    `once` are estimated seconds of the whole network; a sweep costs some times that for each direction.
    """
    order = sorted(range(len(residual.samples)), key=lambda sample: -residual.size(sample))
    chosen: list[int] = []
    numbers = 0
    for sample in order:
        directions = 1 + min(DIRECTIONS, residual.numbers(sample))
        if not chosen or (numbers < _NUMBERS and (len(chosen) + 1) * directions * once * _SWEPT < _SWEEP_S):
            chosen.append(sample)
            numbers += residual.numbers(sample)
    return tuple(sorted(chosen))


def _promising_sites(found: OutputsSearchResult) -> list[EditSite]:
    """The sites at which something explains most, or was expected to; all, where they are few."""
    if len(found.sites) <= _DEEP_SITES:
        return list(found.sites)
    worth = dict(found.trials.by_site)
    for guess in found.guesses:
        key = guess.site.output
        if key not in worth and guess.score is not None:
            worth[key] = max(worth.get(key, -1.0), 0.5 * guess.score)
    order = sorted(found.sites, key=lambda site: -worth.get(site.output, -1.0))
    return order[:_DEEP_SITES]


def _class_of(found: OutputsSearchResult) -> None:
    """Fills in what cannot be told from the best: explains as much, of all samples, where that is a claim."""
    trials = found.trials
    best = trials.best
    if best is None or not trials.is_claim(best):
        return
    trials.seconds = max(trials.seconds, _TRY_S[0])
    _try_class(found, best.guess, _shorter_above(found, best)[:_CLASS])
    known = [one.guess for one in trials.tried if one.guess.sketch is not None and trials.is_claim(one)]
    if (
        best.guess.sketch is None and known
    ):  # what was run before it was predicted: another one at its place says where to look
        _try_class(found, known[0])
    held = [one for one in trials.tried if trials.is_claim(one)]
    top = max(one.explained for one in held)
    left = 1 - top
    alike = [one for one in held if 1 - one.explained <= max(3 * left, _BESIDE)]
    floor = max(found.residual.noise, _EQUAL * found.residual.whole)
    alike.sort(key=lambda one: one.edit.bits - (one.share.bits(floor) if one.share else 0.0))
    # Fitted from two starts, one edit is found twice.
    found.alike = list({(one.guess.site.output, one.edit.words): one for one in reversed(alike)}.values())[::-1]


def _try_class(found: OutputsSearchResult, best: Guess, more: Sequence[Guess] = ()) -> None:
    """Tries what is predicted to do what a guess does, and some more."""
    trials = found.trials
    near = [one for one in found.guesses if not trials.was_tried(one) and _is_near(one, best)]
    near.sort(key=lambda one: -(one.score or 0.0))
    for guess in (*near[:_CLASS], *more):
        if not trials.is_spent:
            trials.attempt(guess)


def _shorter_above(found: OutputsSearchResult, best: TriedGuess) -> list[Guess]:
    """Edits in fewer bits than the best takes, of its step and those that it is computed from, the nearest and shortest first."""
    program = found.reference.program
    hops, front = {best.guess.site.step.index: 0}, [best.guess.site.step]
    for hop in range(1, _ABOVE + 1):
        made = [program.steps_of[name] for step in front for name in step.reads if name in program.steps_of]
        front = [step for step in made if hops.setdefault(step.index, hop) == hop]
    shorter = [
        (one.edit.bits, hops[one.site.step.index], number, one)
        for number, one in enumerate(found.guesses)
        if one.edit is not None and not one.others and not found.trials.was_tried(one)
        if one.site.step.index in hops and one.edit.bits < best.edit.bits
    ]
    return [one for *_, one in sorted(shorter, key=lambda entry: entry[:3])]


def _is_near(guess: Guess, best: Guess) -> bool:
    if guess.sketch is None or best.sketch is None:
        return guess.site is best.site
    mine, other = _expected_sketch(best), _expected_sketch(guess)
    return bool(np.linalg.norm(other - mine) <= 0.02 * np.linalg.norm(mine) + 1e-30)


def _expected_sketch(guess: Guess) -> np.ndarray:
    """The sketch at the amount that was found."""
    family, sketch = guess.family, np.asarray(guess.sketch)
    is_multiple = family is not None and not family.grid and len(guess.amounts) == 1 and guess.kind != PLACES
    return sketch * (guess.amounts[0] / family.step) if family is not None and is_multiple else sketch
