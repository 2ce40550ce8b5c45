"""An edit with numbers: where they explain most, whether more numbers or a place near by explain more, and in how few digits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.from_outputs.amounts import PROMISING, fit_amounts
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.hypotheses.from_outputs.amounts import Responses
    from parityscope.hypotheses.from_outputs.families import EditFamily
    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import Trials

EXACT = 0.9995  # of the squared error: what explains so much is not looked for any further; chosen
WIDER = 0.3  # of what one number leaves is what a further one must explain to be worth saying; chosen
_DECIMALS = 3  # of an amount that people choose; chosen
_FARTHEST = 16  # indices by which the end of a place is moved at first, then by half of that; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedFamily:
    """A family at the amounts that explain most: the share of the first samples' squared error, and what the outputs are then."""

    family: EditFamily
    amounts: tuple[float, ...]
    share: float
    responses: Responses
    rule: tuple[EditSite, ...]


def fit_family(trials: Trials, guess: Guess, family: EditFamily) -> FittedFamily | None:
    """Where a family explains most, from the amounts that were guessed; a wider one where that explains more."""
    found = _fit_from(trials, guess, family, guess.amounts)
    if found is None:
        return None
    if PROMISING <= found.share < EXACT and trials.comes_near(found.share, guess.made().bits):
        found = _move_ends(trials, guess, found)
    if PROMISING <= found.share < EXACT:
        for wide, start, rule in _wider_families(trials, guess, found):
            more = _fit_from(trials, replace(guess, rule=rule), wide, start)
            if more is not None and more.share > found.share + WIDER * (1 - found.share):
                found = more
    return _round_amounts(trials, guess, found)


def _round_amounts(trials: Trials, guess: Guess, found: FittedFamily) -> FittedFamily:
    """Amounts of fewer digits, where these save more bits than they lose: a fit ends beside the number that was meant."""
    guess = replace(guess, rule=found.rule)
    edit, floor = guess.of_family(found.family, found.amounts), max(trials.residual.noise, 1e-300)
    old = trials.residual.share(found.responses)
    fine, *coarse = (tuple(round(one, decimals) for one in found.amounts) for decimals in range(_DECIMALS, -1, -1))
    # What is nearly nought is no other thing than nought, which another edit says.
    every = [*(one for one in coarse[::-1] if all(one) or not all(fine)), fine]
    for rounded in dict.fromkeys(every if found.share >= PROMISING else ()):
        shorter = guess.of_family(found.family, rounded)
        given = trials.responses(guess, shorter, trials.samples) if shorter.bits < edit.bits else None
        if given is None:
            continue
        new = trials.residual.share(given)
        if new.bits(floor) - shorter.bits >= old.bits(floor) - edit.bits:
            return replace(found, share=new.pooled, amounts=rounded, responses=given)
    return found


def _move_ends(trials: Trials, guess: Guess, found: FittedFamily) -> FittedFamily:
    """The place near by that explains most: one end after the other further out or in, by as much as still helps."""
    by, family = _FARTHEST, found.family
    while by and family.place and family.elsewhere and found.share < EXACT and not trials.is_spent:
        best = found.share, family
        for other in map(family.elsewhere, family.place.beside(by)):
            given = trials.responses(guess, guess.of_family(other, found.amounts), trials.samples)
            share = -1.0 if given is None else trials.residual.share(given).pooled
            best = (share, other) if share > best[0] else best
        more = None if best[1] is family else _fit_from(trials, guess, best[1], found.amounts)
        if more is None or more.share <= found.share:
            by //= 2
        else:
            family, found = best[1], more
    return found


def _wider_families(
    trials: Trials, guess: Guess, found: FittedFamily
) -> Iterator[tuple[EditFamily, tuple[float, ...], tuple[EditSite, ...]]]:
    """Families that contain it: with a further number, or as one rule for all sites of the operator."""
    family = found.family
    if family.wider is not None and len(found.amounts) == 1:
        yield *family.wider(found.amounts[0]), ()
    alike = tuple(site for site in trials.sites if _are_alike(site, guess.site)) if family.anywhere else ()
    if alike:
        yield family, found.amounts, alike


def _fit_from(trials: Trials, guess: Guess, family: EditFamily, start: tuple[float, ...]) -> FittedFamily | None:
    """The member of a family that explains most of the first samples."""
    begun = False

    def respond(amounts: np.ndarray) -> Responses | None:
        nonlocal begun
        if begun and trials.is_spent:  # what was found until then counts
            return None
        begun = True
        return trials.responses(guess, guess.of_family(family, [float(one) for one in amounts]), trials.samples)

    least = -math.inf if family.kind == "filter" else PROMISING  # it begins where nothing is changed
    found = fit_amounts(
        respond, trials.residual, np.array(start), np.full(len(start), family.step), least, usual=bool(family.grid)
    )
    if found is None:
        return None
    share, amounts, responses = found
    return FittedFamily(
        family=family, amounts=tuple(map(float, amounts)), share=share, responses=responses, rule=guess.rule
    )


def _are_alike(site: EditSite, other: EditSite) -> bool:
    """Whether these are two of one operator in the network itself, and not what is read of two inputs."""
    apart = site.step is not other.step and not site.output.endswith(READ)
    return apart and site.step.op_type == other.step.op_type and not (site.inner or other.inner)
