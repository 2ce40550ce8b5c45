"""A stretch that the candidate's graph writes otherwise, and that gives other values -> which part of it is why.

The other writing is harmless where one change that the reference's own steps can make (an attribute, a constant, an input of
steps that both have) gives what the candidate's stretch gives, or where the candidate's own steps without it give what the
reference's give; so it is where weights, with all scales and offsets behind them folded in on both sides, differ. Then that is
what is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph.constants import VAGUE, ConstantChange, change_of
from parityscope.hypotheses.from_other_graph.differing import REWRITTEN, TRAINING
from parityscope.hypotheses.from_other_graph.folding import fold_linear_step
from parityscope.hypotheses.from_other_graph.likeness import may_be_same, relative_distance
from parityscope.hypotheses.from_other_graph.mixing import compute_stretch, steps_of

if TYPE_CHECKING:
    from parityscope.evaluation.sessions import Sessions
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch

__all__ = ["name_difference"]

_LEFT = 0.03  # of the stretch's error may be left by what is told as all of it, chosen: 99.9 % of it in squares
_FOLDED = 1e-5  # relative L2 of products that were rounded once or twice


def name_difference(alignment: Alignment, stretch: DifferingStretch, sessions: Sessions) -> DifferingStretch:
    """The stretch with its one difference in the words of the part that makes it, where one does."""
    if stretch.unknown:
        return _measure_known(alignment, stretch, sessions)
    if not stretch.parts and stretch.error <= REWRITTEN:
        return stretch
    whole = [one for one in stretch.differences if one.kind == "structure" and not one.declared]
    if len(stretch.differences) != 1 or not whole or stretch.error <= REWRITTEN or whole[0].group == TRAINING:
        return stretch
    part = next((one for one in stretch.parts if _part_explains(alignment, stretch, one, sessions)), None)
    if part is not None:
        at = part.at or alignment.reference.program.steps[part.maker].outputs[0]
        told = replace(whole[0], words=part.words, group=part.group, node=part.node, declared=part.declared, at=at)
        return replace(stretch, differences=(told,))
    words = _folded_words(alignment, stretch)
    if words:
        return replace(stretch, differences=(replace(whole[0], words=words, group=f"folded {stretch.site}"),))
    # No other writing of the same function makes a step read another value: that is told beside what was added or left out.
    beside = [one.words for one in stretch.parts if one.kind == "inputs"]
    told = replace(whole[0], words="; ".join((whole[0].words, *beside)))
    return replace(stretch, differences=(told,)) if beside else stretch


def _measure_known(alignment: Alignment, stretch: DifferingStretch, sessions: Sessions) -> DifferingStretch:
    """A stretch that only the reference's steps can compute, with what of its differences these can have: all, or each alone."""
    kept: dict[GraphDifference, float] = {}
    for some in (stretch.differences, *((one,) for one in stretch.differences)):
        if kept.keys() >= {*some}:
            continue
        made, place = steps_of(alignment, stretch, some)
        try:
            found = compute_stretch(alignment, made, place, {}, alignment.values, sessions)
        except ParityError:  # that is what cannot be run
            continue
        if may_be_same(alignment.values[stretch.site], found):
            kept.update(dict.fromkeys(some, relative_distance(alignment.values[stretch.site], found)))
    return replace(stretch, differences=tuple(kept), error=max(kept.values(), default=0.0))


def _part_explains(alignment: Alignment, stretch: DifferingStretch, part: GraphDifference, sessions: Sessions) -> bool:
    """Whether with this part, and what belongs to it, one side's steps give what the other's give: put in, or taken back."""
    belonging = [one for one in stretch.parts if one.group == part.group]
    others = [one for one in stretch.parts if one.group != part.group]
    wanted = (alignment.seen.get(stretch.candidate), alignment.values.get(stretch.site))
    ways = ((stretch, belonging, True), (replace(stretch, differences=stretch.parts), others, False))
    for result, (changed, active, mine) in zip(wanted, ways, strict=True):
        made, place = steps_of(alignment, changed, active, mine=mine)
        try:
            found = compute_stretch(alignment, made, place, {}, alignment.values, sessions)
        except ParityError:
            continue
        same = result is not None and found.shape == result.shape
        if same and relative_distance(result, found) <= max(REWRITTEN, _LEFT * stretch.error):
            return True
    return False


def _length_of(change: ConstantChange) -> tuple[bool, int]:
    """How long a change is in words; one that only says how far things are apart is longer than any."""
    return change.words.startswith(VAGUE), len(change.words)


def _folded_words(alignment: Alignment, stretch: DifferingStretch) -> str:
    reference = fold_linear_step(alignment.reference, stretch.steps)
    candidate = fold_linear_step(alignment.candidate, stretch.its_steps)
    if reference is None or candidate is None or reference.weight.shape != candidate.weight.shape:
        return ""
    if reference.left != candidate.left:  # another step is behind it: no other weight says that
        return ""
    # As the reference has them, if the candidate's scales are the same; else with all that is folded in.
    plain = zip((reference.weight, reference.bias), reference.unfolded(*candidate.whole), strict=True)
    whole = zip(reference.whole, candidate.whole, strict=True)
    found: list[tuple[str, ConstantChange]] = []
    for what, alone, together in zip(("constant", "the bias of"), plain, whole, strict=True):
        if relative_distance(*together) > _FOLDED:
            # What folding rounded otherwise is no change.
            same = np.isclose(*together, rtol=_FOLDED, atol=0.0)
            pairs = [(np.where(same, other, one), other) for one, other in (alone, together)]
            found.append((what, min((change_of(*pair) for pair in pairs), key=_length_of)))
    return "; ".join(f"{what} {reference.name}, with what is folded into it: {change.words}" for what, change in found)
