"""What may be done to what enters the network: moved, scaled, shifted, filtered; of many inputs the wrong one first."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from parityscope.hypotheses.from_elsewhere import edit_of_move
from parityscope.hypotheses.from_outputs.amounts import PROMISING
from parityscope.hypotheses.from_outputs.families import families_of, filters_of
from parityscope.hypotheses.from_outputs.guess import Guess, guesses_unpredicted
from parityscope.hypotheses.from_outputs.read_numbers import edits_of_numbers
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE
from parityscope.hypotheses.moves import FILLED

if TYPE_CHECKING:
    from parityscope.hypotheses.from_outputs.families import EditFamily
    from parityscope.hypotheses.from_outputs.searching import OutputsSearch
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import Trials

_MOVED = 0.5  # of what is left for what enters the network: for what moves values; chosen
_MOVING = "values"  # the kind of edits that such are among
_KEPT = ("before",)  # the kind of edits that take another sample's values
_ROLLED = re.compile(r"rolled by (-?\d+) along axis (\d+)$")
_MOST_OF_IT = 0.6  # of the error: from there a number is fitted at once; chosen


def try_entries(found: OutputsSearch) -> None:
    """What may be done to the inputs: kept, moved, usual scales, shifts and filters with what is fitted, all else."""
    trials, until = found.trials, found.trials.until
    entries = [site for site in found.sites if site.output.endswith(READ)]
    trials.run_plain(guesses_unpredicted(entries, _KEPT))
    trials.run_plain([Guess(site=site, kind=_MOVING, edit=edit) for site in entries for edit in edits_of_numbers(site)])
    guesses = guesses_unpredicted(entries, (*EARLY, *LATE))
    trials.until = found.reference.meter.share_of(until, _MOVED)
    trials.run_moves([one for one in guesses if one.kind == _MOVING])
    trials.until = until
    for site in entries:
        _try_edges(trials, site)
    # Of many inputs that which is wrong is fitted first: one usual amount tells which that is, then one of each of its families.
    own = [(site, [*families_of(site), *filters_of(site)]) for site in entries]
    begun = {id(one): _worth_of_start(trials, site, one) for site, every in own for one in every[:2]}
    for site, every in sorted(own, key=lambda one: -max((begun[id(family)] for family in one[1][:2]), default=0.0)):
        begun |= {id(one): _worth_of_start(trials, site, one) for one in every[2:]}
        for family in sorted(every, key=lambda one: -begun[id(one)]):
            try_family(trials, site, family, begun[id(family)])
    trials.run_plain(guesses)


def _try_edges(trials: Trials, site: EditSite) -> None:
    """What comes in at the edge, and how far it was moved, where what was rolled round explains a part."""
    known = [one for one in trials.tried if one.guess.site is site and one.explained > PROMISING]
    found = [(one.explained, told) for one in known if (told := _ROLLED.search(one.edit.words))]
    if not found or trials.explains:
        return
    by, axis = map(int, max(found, key=lambda one: one[0])[1].groups())

    def attempt(by: int) -> float:
        edits = [edit_of_move(site.result.shape, (), [(axis, by)], mode) for mode in FILLED if mode != "wrap"]
        guesses = [Guess(site=site, kind=_MOVING, edit=edit) for edit in edits]
        tried = [trials.attempt(one) for one in guesses if not (trials.is_spent or trials.explains)]
        return max((one.explained for one in tried if one is not None), default=-math.inf)

    best, ahead = attempt(by), 1 if by > 0 else -1
    while abs(by + ahead) < site.result.shape[axis] and (more := attempt(by + ahead)) > best:
        best, by = more, by + ahead


def _worth_of_start(trials: Trials, site: EditSite, family: EditFamily) -> float:
    """What a family explains at the first of its usual amounts; where it has none, a derivative is asked later."""
    if not family.grid or trials.explains or trials.is_spent:
        return -math.inf
    tried = trials.attempt(Guess(site=site, kind=family.kind, edit=family.make(*family.starts[0])))
    return -math.inf if tried is None else tried.explained


def try_family(trials: Trials, site: EditSite, family: EditFamily, begun: float = -math.inf) -> None:
    """The usual amounts of a family, and what is fitted from the best of them; `begun` is what the first is known to explain.

    From what explains most of the error it is fitted at once.
    """
    best, amounts, fitted = begun, family.starts[0], -math.inf
    for start in family.starts[begun > -math.inf :]:
        if trials.explains or trials.is_spent:
            return
        tried = trials.attempt(Guess(site=site, kind=family.kind, edit=family.make(*start)))
        if tried is not None and tried.explained > best:
            best, amounts = tried.explained, start
            if best > _MOST_OF_IT:
                fitted = best
                trials.attempt(Guess(site=site, kind=family.kind, family=family, amounts=amounts))
    if best > fitted and not trials.explains:
        trials.attempt(Guess(site=site, kind=family.kind, family=family, amounts=amounts))
