"""The whole search: sites, guesses, trials, and the class of what explains as much.

Budgets are estimated seconds (as `explanation.weighed`) and no clock's, so that a slow or busy machine finds what a quick one
does: all that is computed is charged to the reference's meter, and what is left over when `MOST_S` are spent is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.evaluation.program import compile_program
from parityscope.hypotheses.from_outputs.alike import STEPS_ABOVE, list_alike, try_alike
from parityscope.hypotheses.from_outputs.entries import try_entries, try_family
from parityscope.hypotheses.from_outputs.families import (
    CHANGED_PLACES,
    bounds_of,
    families_of,
    operators_of,
)
from parityscope.hypotheses.from_outputs.guess import PLAIN_BITS, Guess, guesses_unpredicted
from parityscope.hypotheses.from_outputs.peeling import GuessPair, Peeling, search_second_fault
from parityscope.hypotheses.from_outputs.predicting import DIRECTIONS, Predictor
from parityscope.hypotheses.from_outputs.reference import Reference, open_reference, read_first
from parityscope.hypotheses.from_outputs.residual import Residual, residual_of
from parityscope.hypotheses.from_outputs.rules import (
    list_function_rules,
    list_number_rules,
    list_rules,
    reads_number,
    reads_threshold,
)
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE, PLAIN, EditSite, sites_of
from parityscope.hypotheses.from_outputs.together import try_together
from parityscope.hypotheses.from_outputs.trying import Trials, TriedGuess
from parityscope.hypotheses.from_places import edit_at_place
from parityscope.hypotheses.power import find_least_share
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


_NBYTES = 3 << 30  # of the reference's tensors; chosen
# Estimated seconds of each stage: as many runs of the whole network, between two bounds. Chosen for 10 s on small networks and
# 30 s on a text detector of 330 nodes.
_RUNS = 400
_GUESS_S, _DEEP_S, _TRY_S = (2.0, 20.0), (2.0, 6.0), (2.0, 20.0)
_PAIR_S = (10.0, 28.0)  # and of the search for two faults; in small networks drawn pairs took 1 to 9
MOST_S = 40.0  # estimated, for all stages together; chosen
_AGAIN = 0.5  # of it for each time that a search was begun before and an edit ended it; chosen
_NEAR, _NEAR_SITES = 0.6, 3  # of the error, and places where that much is explained; chosen
_PART = 0.35  # of the error, where nothing explains more; chosen
_OF_RESULT = ("values", "before")  # kinds that may be of a part of a result
_ALONE = 0.3  # of what is left, at most: for one alone before two faults are thought of; chosen
_PEELED = 0.7  # and for these; chosen
_LONGER = 0.3  # of what is left, at most, for the longer edits at the places where most is explained; chosen
_EDITS = 300  # of a place, about
_HOPS = 2  # steps from what explains most; chosen
_OF_THRESHOLDS = 0.5  # of the time for what several steps do alike: other thresholds, which are listed too; chosen
_OF_NUMBERS = 0.5  # of what is left of it: another number at all of them; chosen
_MANY = 1000  # edits: where fewer can be run, two faults are hardly found, and one alone has more of the time; chosen
_SWEPT = 3.0  # runs that a direction of a sweep costs; chosen
_SWEEP_S = 4.0  # estimated seconds of the sweeps over all samples; chosen
_NUMBERS = 2048  # samples are predicted together until they have so many; chosen
_DEEP_SITES = 24  # at which longer edits are generated; chosen


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
class OutputsSearch:
    """What a search found so far: what was tried, what cannot be told from the best (`alike`), or two that hold (`pair`).

    `plain` are edits in few words at all sites. All ends when the reference's meter stands at `until`. `crashed` says of ways
    of looking why they could not go on.
    """

    outputs: KnownOutputs
    reference: Reference
    residual: Residual
    sites: Sequence[EditSite]
    trials: Trials
    predictor: Predictor
    plain: Sequence[Guess]
    until: float
    guesses: list[Guess] = field(default_factory=list)
    alike: list[TriedGuess] = field(default_factory=list)
    pair: GuessPair | None = None
    crashed: dict[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the best is a cause: it explains everything everywhere, in fewer bits than it saves."""
        return bool(self.alike)

    @property
    def is_answered(self) -> bool:
        """Whether one edit, or two, explain all."""
        return self.trials.explains or self.pair is not None

    def stage_budget(self, bounds: tuple[float, float]) -> float:
        """Estimated seconds of a stage, between two bounds."""
        return _stage_budget(self.reference, bounds, self.outputs.scale)

    def edits_until(self, until: float) -> float:
        """How many edits can be run until the meter stands there, each as dear as one at the middle of the network."""
        costs = sorted(self.reference.cost(step) for step in self.reference.live)
        return (until - self.reference.meter.spent) / costs[len(costs) // 2] if costs else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether the first of these leaves no more than rounding may leave."""
        share = self.alike[0].share if self.alike else None
        return share is not None and share.is_exact(self.residual.noise)


@dataclass(frozen=True, slots=True)
class SearchStage:
    """One way to look: `look` may spend `part` of what is left of the time, at most.

    It is passed over where all is explained already, but for one that looks for what cannot be told from that (`goes_on`).
    """

    look: Callable[[OutputsSearch], None]
    part: float = 1.0
    goes_on: bool = False


@np.errstate(all="ignore")  # whatever an edit does to numbers; said once, for what is called a million times
def search_outputs(
    outputs: KnownOutputs, trying: Callable[[str], None] = lambda _: None, banned: frozenset[str] = frozenset()
) -> OutputsSearch:
    """Looks for the edit of the reference that gives the candidate's outputs, stage by stage.

    Raises:
        ParityError: the reference cannot be run step by step, or nothing is wrong with outputs of numbers.
    """
    found = _open_search(outputs, trying, banned)
    meter = found.reference.meter
    for stage in _STAGES:
        if stage.goes_on or not found.is_answered:
            found.trials.until = meter.share_of(found.until, stage.part)
            _look(found, stage.look)
    found.trials.until = found.until
    _look(found, try_alike)
    found.alike = list_alike(found)
    return found


def _look(found: OutputsSearch, look: Callable[[OutputsSearch], None]) -> None:
    """Looks in one way; where that cannot go on, what was found before counts, and it is told."""
    try:
        look(found)
    except (MemoryError, ParityError):
        raise
    except Exception as error:  # noqa: BLE001 - a strange network trips one way of looking, and the others go on
        found.crashed[look.__name__.strip("_").replace("_", " ")] = f"{type(error).__name__}: {error}"


def _open_search(outputs: KnownOutputs, trying: Callable[[str], None], banned: frozenset[str]) -> OutputsSearch:
    """The reference's tensors, what is to be explained, and every place where an edit can stand."""
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
    until = reference.meter.spent + MOST_S * outputs.scale * _AGAIN**outputs.begun
    predictor = Predictor(reference=reference, residual=residual, samples=samples, trying=trying, banned=banned)
    trials = Trials(
        reference=reference,
        residual=residual,
        samples=samples,
        seconds=_stage_budget(reference, _TRY_S, outputs.scale),
        trying=trying,
        banned=banned,
        sites=sites,
    )
    return OutputsSearch(
        outputs=outputs,
        reference=reference,
        residual=residual,
        sites=sites,
        trials=trials,
        predictor=predictor,
        plain=[one for one in guesses_unpredicted(sites, PLAIN) if _is_plain(one)],
        until=until,
    )


def _try_plain(found: OutputsSearch) -> None:
    """Edits in few words, unpredicted: the cheapest first."""
    found.trials.run_plain(found.plain)


def _try_rules(found: OutputsSearch) -> None:
    """The same edit at several places; before them, as both are numbers to be listed, other thresholds."""
    trials, until = found.trials, found.trials.until
    whole = [site for site in found.sites if site.inner is None and site.whole_step]
    trials.until = found.reference.meter.share_of(until, _OF_THRESHOLDS)
    thresholds = [site for site in whole if reads_threshold(site)]
    trials.run_plain(guesses_unpredicted(thresholds, ("changed constants",)))
    numbers = guesses_unpredicted(whole, ("attributes",))
    numbers += guesses_unpredicted([site for site in whole if reads_number(site)], ("changed constants",))
    trials.until = found.reference.meter.share_of(until, _OF_NUMBERS)
    trials.run_rules(list_number_rules(numbers))
    trials.until = until
    trials.run_rules(list_rules(found.plain))


def _try_functions(found: OutputsSearch) -> None:
    """Another function at all places that compute one: where many are other ones, no derivative sees what each does."""
    found.trials.run_rules(list_function_rules(found.sites))


def _predict_all(found: OutputsSearch) -> None:
    """What a derivative says of every edit; where one explains all, of what lies near, which it may stand in for."""
    trials, predictor, meter = found.trials, found.predictor, found.reference.meter
    trials.seconds = found.stage_budget(_TRY_S)
    predictor.until = trials.until
    near = (
        found.reference.around(trials.best.guess.site.step, STEPS_ABOVE)
        if trials.best is not None and trials.explains
        else None
    )
    asked = [one for one in found.sites if near is None or one.step.index in near]
    found.guesses += predictor.guess(asked, EARLY, found.stage_budget(_GUESS_S), fitted=True)
    known = {id(edit) for one in found.guesses for edit in (one.edit, *one.names)}
    found.guesses += [one for one in found.plain if id(one.edit) not in known]
    # Guessing may have taken all of its part and more, where a sweep is long: then the best guesses are tried all the same.
    found.until = max(found.until, meter.spent + found.until - predictor.until)


def _try_plain_guesses(found: OutputsSearch) -> None:
    """The edits in few words once more, as they are predicted."""
    found.trials.run_plain([one for one in found.guesses if _is_plain(one)])


def _try_guesses(found: OutputsSearch) -> None:
    """All that was predicted, the best first; with less of the time where a search for two faults has time to find them."""
    if found.edits_until(found.until) >= _MANY:
        found.trials.until = found.reference.meter.share_of(found.until, _ALONE)
    found.trials.run(found.guesses)


def _try_guesses_left(found: OutputsSearch) -> None:
    """Those of them that were left."""
    found.trials.run(found.guesses)


def _search_pair(found: OutputsSearch) -> None:
    """Two faults."""
    meter = found.reference.meter
    found.pair = search_second_fault(
        Peeling(
            trials=found.trials,
            predictor=found.predictor,
            candidate=found.outputs.candidate,
            noise=found.outputs.noise,
            plain=found.plain,
            sites=len(found.sites),
            until=min(meter.share_of(found.until, _PEELED), meter.spent + found.stage_budget(_PAIR_S)),
        )
    )


def _try_longer(found: OutputsSearch) -> None:
    """Longer edits, at the places that promise most."""
    trials = found.trials
    if trials.is_spent:
        return
    found.predictor.until = found.until
    late = found.predictor.guess(_promising_sites(found), (*EARLY, *LATE), found.stage_budget(_DEEP_S), fitted=False)
    found.guesses += late
    trials.seconds = max(trials.seconds, 0.0) + found.stage_budget(_TRY_S)
    trials.run(late)


def _is_plain(guess: Guess) -> bool:
    """Whether it is one edit of the graph in few words."""
    return guess.kind in PLAIN and guess.edit is not None and guess.edit.bits <= PLAIN_BITS


def _try_all_where_a_part_is(found: OutputsSearch) -> None:
    """The same where something explains a good part, for a little longer: nothing else is left that is likelier."""
    found.trials.until = max(found.trials.until, found.reference.meter.spent + _TRY_S[0] * found.outputs.scale)
    _try_all_there(found, _PART)


def _try_all_there(found: OutputsSearch, least: float = _NEAR) -> None:
    """Every edit, and every other operator, where something explains most of the error: what comes near may stand in for one.

    What a derivative says of them left most of these out. Of few numbers much is explained by anything: it has to save bits.
    """
    trials = found.trials
    numbers = found.residual.numbers(trials.worst)
    worth: dict[str, float] = {}
    for one in trials.tried:
        if one.explained > max(least, find_least_share(one.edit.bits, numbers)):
            worth[one.guess.site.output] = max(worth.get(one.guess.site.output, 0.0), one.explained)
    best = sorted((one for one in found.sites if one.output in worth), key=lambda one: -worth[one.output])[:_NEAR_SITES]
    trials.seconds = max(trials.seconds, 0.0) + _TRY_S[0]
    for site in best:
        trials.run_plain(guesses_unpredicted([site], (*PLAIN, "operators")))
    trials.until = found.reference.meter.share_of(trials.until, _LONGER)
    trials.run_plain(_guesses_in_part(trials))
    trials.run_plain(guesses_unpredicted(best, EARLY))


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


def _try_cheapest_of_many(found: OutputsSearch) -> None:
    """What costs least, where the time does not allow every edit."""
    if len(found.sites) * _EDITS > found.edits_until(found.until):
        _try_cheapest(found)


def _try_cheapest(found: OutputsSearch) -> None:
    """Every edit that was not run yet at the places that cost least to ask, as many as the time allows, the shortest first.

    Derivatives misjudge large changes. Most that is tried where it costs least is most that is tried.
    """
    reference = found.reference
    chosen: list[Guess] = []
    left = found.trials.until - reference.meter.spent
    for site in sorted(found.sites, key=lambda one: reference.cost(one.step)):
        if left <= 0:
            break
        guesses = guesses_unpredicted([site], EARLY)
        left -= len(guesses) * reference.cost(site.step)
        chosen += guesses if left > 0 else ()
    found.trials.run_plain(chosen, 1.0)


def _try_neighbours(found: OutputsSearch) -> None:
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
            try_family(trials, site, family)


_STAGES = (
    SearchStage(_try_plain, 0.15),
    SearchStage(_try_rules, 0.15),
    SearchStage(try_entries, 0.25),  # a wrong preparation is likely
    SearchStage(_try_functions, 0.15),
    SearchStage(_try_cheapest_of_many, 0.25),
    SearchStage(_predict_all, 0.5, goes_on=True),
    SearchStage(_try_plain_guesses, 0.5),
    SearchStage(_try_guesses, 0.6, goes_on=True),
    SearchStage(try_together, 0.3),
    SearchStage(_try_neighbours),
    SearchStage(_try_all_there),
    SearchStage(_try_cheapest, 0.5),
    SearchStage(_search_pair),
    SearchStage(_try_guesses_left, 0.6),
    SearchStage(_try_longer),
    SearchStage(_try_all_where_a_part_is),
)  # the parts are chosen: of what has to be run, half is tried before, and half behind what derivatives say


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


def _promising_sites(found: OutputsSearch) -> list[EditSite]:
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
