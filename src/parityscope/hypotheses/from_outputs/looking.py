"""The ways to look for an edit that gives the candidate's outputs, and in which order and for how long each is tried."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.alike import STEPS_ABOVE
from parityscope.hypotheses.from_outputs.cutting import list_cut_rules
from parityscope.hypotheses.from_outputs.entries import try_entries, try_family
from parityscope.hypotheses.from_outputs.families import (
    CHANGED_PLACES,
    bounds_of,
    families_of,
    operators_of,
)
from parityscope.hypotheses.from_outputs.guess import PLAIN_BITS, Guess, guesses_unpredicted
from parityscope.hypotheses.from_outputs.peeling import Peeling, search_second_fault
from parityscope.hypotheses.from_outputs.rules import (
    list_function_rules,
    list_number_rules,
    list_rules,
    reads_number,
    reads_threshold,
)
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE, PLAIN
from parityscope.hypotheses.from_outputs.together import try_together
from parityscope.hypotheses.from_places import edit_at_place
from parityscope.hypotheses.power import find_least_share
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.hypotheses.from_outputs.searching import OutputsSearch
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import Trials

# Estimated seconds of each stage: as many runs of the whole network, between two bounds. Chosen for 10 s on small networks and
# 30 s on a text detector of 330 nodes.
_GUESS_S, _DEEP_S, TRY_S = (2.0, 20.0), (2.0, 6.0), (2.0, 20.0)
_PAIR_S = (10.0, 28.0)  # and of the search for two faults; in small networks drawn pairs took 1 to 9
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
_BESIDE = 0.25  # of what was spent until something explained all, for what may stand beside it; chosen
_AT_ALL = ("layouts", "attributes", "operands", "inputs", "constants")  # some hundreds of a network
_DEEP_SITES = 24  # at which longer edits are generated; chosen


@dataclass(frozen=True, slots=True)
class SearchStage:
    """One way to look: `look` may spend `part` of what is left of the time, at most.

    It is passed over where all is explained already, but for one that looks for what cannot be told from that (`goes_on`).
    """

    look: Callable[[OutputsSearch], None]
    part: float = 1.0
    goes_on: bool = False


def _try_plain(found: OutputsSearch) -> None:
    """Edits in few words, unpredicted: the cheapest first."""
    found.trials.run_plain(found.plain)


def _try_rules(found: OutputsSearch) -> None:
    """The same edit at several places; before them what decides and has no derivative: lost masks and other thresholds."""
    trials, until = found.trials, found.trials.until
    trials.run_rules(list_cut_rules(found.reference, found.sites))
    whole = [site for site in found.sites if site.inner is None and site.whole_step]
    trials.until = found.reference.meter.share_of(until, _OF_THRESHOLDS)
    trials.run_plain([one for one in found.plain if one.kind == "masks"])
    thresholds = [site for site in whole if reads_threshold(site)]
    trials.run_plain(guesses_unpredicted(thresholds, ("changed constants",)))
    numbers = guesses_unpredicted(whole, ("attributes",))
    numbers += guesses_unpredicted([site for site in whole if reads_number(site)], ("changed constants",))
    trials.until = found.reference.meter.share_of(until, _OF_NUMBERS)
    trials.run_rules(list_number_rules(numbers))
    trials.until = until
    trials.run_rules(list_rules(found.plain))


def _try_longer_rules(found: OutputsSearch) -> None:
    """Other inputs, attributes and constants at all places of a kind: so much at once is far from what derivatives say."""
    if not found.longer_rules:
        whole = [site for site in found.sites if site.whole_step]
        found.longer_rules = list_rules(guesses_unpredicted(whole, _AT_ALL), math.inf)
    found.trials.run_rules(found.longer_rules)


def _try_functions(found: OutputsSearch) -> None:
    """Another function at all places that compute one: where many are other ones, no derivative sees what each does."""
    found.trials.run_rules(list_function_rules(found.sites))


def _predict_all(found: OutputsSearch) -> None:
    """What a derivative says of every edit; where one explains all, of what lies near, which it may stand in for."""
    trials, predictor, meter = found.trials, found.predictor, found.reference.meter
    trials.seconds = found.stage_budget(TRY_S)
    predictor.until = trials.until
    near = (
        found.reference.around(trials.best.guess.site.step, STEPS_ABOVE)
        if trials.best is not None and trials.explains
        else None
    )
    if near is not None:  # what may be told beside it is worth less than it was
        predictor.until = min(trials.until, meter.spent + max(_GUESS_S[0], _BESIDE * meter.spent))
    asked = [one for one in found.sites if near is None or one.step.index in near]
    found.guesses += predictor.guess(asked, EARLY, found.stage_budget(_GUESS_S), fitted=True)
    known = {id(edit) for one in found.guesses for edit in (one.edit, *one.names)}
    found.guesses += [one for one in found.plain if id(one.edit) not in known]
    # Guessing may have taken all of its part and more, where a sweep is long: then the best guesses are tried all the same.
    found.until = max(found.until, meter.spent + found.until - trials.until)


def _try_plain_guesses(found: OutputsSearch) -> None:
    """The edits in few words once more, as they are predicted."""
    found.trials.run_plain([one for one in found.guesses if is_plain(one)])


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
    trials.seconds = max(trials.seconds, 0.0) + found.stage_budget(TRY_S)
    trials.run(late)


def is_plain(guess: Guess) -> bool:
    """Whether it is one edit of the graph in few words."""
    return guess.kind in PLAIN and guess.edit is not None and guess.edit.bits <= PLAIN_BITS


def _try_all_where_a_part_is(found: OutputsSearch) -> None:
    """The same where something explains a good part, for a little longer: nothing else is left that is likelier."""
    found.trials.until = max(found.trials.until, found.reference.meter.spent + TRY_S[0] * found.outputs.scale)
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
    trials.seconds = max(trials.seconds, 0.0) + TRY_S[0]
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
    trials.seconds = max(trials.seconds, 0.0) + TRY_S[0]
    for site in found.sites:
        if site.step.index not in near or site is best.guess.site:
            continue
        try:
            families = [one for one in (*families_of(site), *bounds_of(site), *operators_of(site)) if one.kind == kind]
        except ParityError:  # a step that cannot be run alone has no edits
            continue
        for family in families:
            try_family(trials, site, family)


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


STAGES = (
    SearchStage(_try_plain, 0.15),
    SearchStage(_try_rules, 0.15),
    SearchStage(try_entries, 0.25),  # a wrong preparation is likely
    SearchStage(_try_functions, 0.15),
    SearchStage(_try_longer_rules, 0.15),
    SearchStage(_try_cheapest_of_many, 0.25),
    SearchStage(_predict_all, 0.65, goes_on=True),
    SearchStage(_try_plain_guesses, 0.5),
    SearchStage(_try_guesses, 0.6, goes_on=True),
    SearchStage(try_together, 0.3),
    SearchStage(_try_neighbours),
    SearchStage(_try_all_there),
    SearchStage(_try_longer_rules, 0.5),
    SearchStage(_try_cheapest, 0.5),
    SearchStage(_search_pair),
    SearchStage(_try_guesses_left, 0.6),
    SearchStage(_try_longer),
    SearchStage(_try_all_where_a_part_is),
)  # the parts are chosen: of what has to be run, half is tried before, and half behind what derivatives say
