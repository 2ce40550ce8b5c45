"""The nodes that one fault may lie in, as all recorded tensors together tell, and the tensor that halves them when recorded.

A fault shows at every recorded tensor whose region holds it. So one fault lies in the regions of all that are wrong by their own
region, and in none of those that are right. Where that leaves no node there are several faults: what contradicts is left aside.
Only numbers acquit: a class or an index may be right although what decided it is not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.evaluation.program import program_of, regions_of, steps_fed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.evaluation.program import ObservedRegion, Program, ProgramStep
    from parityscope.localization.sides import Sides
    from parityscope.records import Localization, Suspect

# Of the largest error that a region introduces, chosen: a tensor that errs by more is wrong by its own region, by less right.
_WRONG, _RIGHT = 1e-2, 1e-4
_NARROWED = 8  # suspects, worst first; as many as are explained


def narrow_regions(sides: Sides, localization: Localization) -> Localization:
    """`localization` with the regions of its first suspects as narrow as all recorded tensors make them."""
    suspects = localization.suspects
    if all(len(one.region) < 2 for one in suspects[:_NARROWED]):
        return localization
    program = program_of(sides.model)
    regions = regions_of(program, [one.site.tensor for one in suspects])
    largest = max((one.introduced for one in suspects if math.isfinite(one.introduced)), default=0.0)
    # NaN is neither: how far such a tensor is off is not known.
    right = [one for one in suspects if one.introduced <= _RIGHT * largest and not one.introduced_nonfinite]
    wrong = [one for one in suspects if one.introduced > _WRONG * largest or one.introduced_nonfinite]
    acquitted = frozenset().union(*(_acquit_steps(program, regions[one.site.tensor], one) for one in right))
    blamed = [_places_of(regions[one.site.tensor]) for one in wrong]
    fed = frozenset(step.index for step in steps_fed(program))

    def narrowed(one: Suspect) -> Suspect:
        held = _places_of(regions[one.site.tensor])
        for others in (held - acquitted, held & fed, *blamed):
            held = held & others or held
        steps = [program.steps[place] for place in sorted(held)]
        nodes = dict(zip((step.index for step in regions[one.site.tensor].steps), one.region, strict=True))
        return replace(
            one, region=tuple(nodes[step.index] for step in steps), halving=_halving_tensor(sides, program, steps)
        )

    first = [narrowed(one) if len(one.region) > 1 and one in wrong else one for one in suspects[:_NARROWED]]
    return replace(localization, suspects=(*first, *suspects[_NARROWED:]))


def _places_of(region: ObservedRegion) -> frozenset[int]:
    return frozenset(step.index for step in region.steps)


def _acquit_steps(program: Program, region: ObservedRegion, suspect: Suspect) -> set[int]:
    """The steps of a region that are right because what ends it is: those that lead there by numbers, and give nothing else."""
    inside = _places_of(region)
    found: set[int] = set()
    left = [suspect.site.tensor]
    while left:
        name = left.pop()
        step, kind = program.steps_of.get(name), program.types.get(name)
        if step is None or step.index not in inside or kind is None or not kind.is_floating_point():
            continue
        if step.index not in found:
            found.add(step.index)
            left += step.reads
    return {place for place in found if sum(map(bool, program.steps[place].outputs)) == 1}


def _halving_tensor(sides: Sides, program: Program, steps: Sequence[ProgramStep]) -> str:
    """The tensor at or above which half of the steps lie, numbers before indices; none that was recorded already."""
    bits = {step.index: 1 << place for place, step in enumerate(steps)}
    found: list[tuple[bool, float, int, str]] = []
    for step in steps:
        above = (program.steps_of.get(name) for name in step.reads)
        for maker in above:
            bits[step.index] |= bits.get(maker.index, 0) if maker is not None else 0
        apart = abs(bits[step.index].bit_count() - len(steps) / 2)
        for name in step.outputs:
            kind = program.types.get(name)
            divides = apart < len(steps) / 2 or len(steps) == 1  # one fault, or several that only seem to be one
            if name in sides.model.sites and divides and not _is_recorded(sides, name):
                found.append((kind is None or not kind.is_floating_point(), apart, step.index, name))
    return min(found)[-1] if found else ""


def _is_recorded(sides: Sides, name: str) -> bool:
    return all(sides.candidate.has(sample, sides.pairing.get(name, name)) for sample in sides.candidate.samples)
