"""What may be done to what enters the network: moved, scaled, shifted, filtered; of many inputs the wrong one first.

Integers that are fed and say how much there is, such as a length or a width: others that a caller may have given.

What is padded is counted with its padding, or the padding is taken off once more: the extents of other inputs' axes, and these
and the numbers themselves with a power of two added, as paddings and strides are.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.changes import FEW, exchanges_along_axis
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_elsewhere import edit_of_move
from parityscope.hypotheses.from_outputs.amounts import PROMISING
from parityscope.hypotheses.from_outputs.families import families_of, filters_of
from parityscope.hypotheses.from_outputs.guess import RULE_BITS, Guess, guesses_unpredicted
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.from_outputs.rules import EVERYWHERE
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE
from parityscope.hypotheses.from_resampling import shrunk_edits
from parityscope.hypotheses.moves import FILLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.hypotheses.from_outputs.families import EditFamily
    from parityscope.hypotheses.from_outputs.searching import OutputsSearch
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import Trials
    from parityscope.hypotheses.stretch import ComputedStretch

_MOVED = 0.5  # of what is left for what enters the network: for what moves values; chosen
_MOVING = "values"  # the kind of edits that such are among
_KEPT = ("before",)  # the kind of edits that take another sample's values
_TABLE, _COLUMNS, _OF_COLUMNS = 2, 64, 5.0  # its rank; columns at most, and bits beside which two; chosen
_ROLLED = re.compile(r"rolled by (-?\d+) along axis (\d+)$")
_MOST_OF_IT = 0.6  # of the error: from there a number is fitted at once; chosen
_ALONE = 0.8  # of what is left: for edits of one input, before what explains most is done to all that are alike; chosen
_NUMBER, _HALVES = re.compile(r"\d+"), re.compile(r"(?<![a-z])(?:keys?|values?|k|v)(?![a-z])", re.IGNORECASE)
_AT_ALL = 16  # edits that are made at all inputs that are alike, of each of two orders; chosen
_FEW = 64  # integers of an input that says how much there is: a number for each row of a batch; chosen
_BITS = 5.0  # chosen, as for the other changes of an input


def _edits_of_numbers(site: EditSite) -> Iterator[StretchEdit]:
    """Of what is read of one input; none where it holds other things than an integer for each row."""
    array, reference = site.result, site.reference
    if array.dtype.kind not in "iu" or not 0 < array.size <= _FEW or array.size != (*array.shape, 1)[0]:
        return
    sources: dict[str, tuple[str, int] | None] = {"the result": None}
    for name in reference.program.inputs:
        shapes = [values[name].shape for values in reference.values if name in values]
        for axis in range(len(shapes[0]) if len(shapes) == len(reference.values) else 0):
            held = [site.result_on(sample).max() <= shape[axis] for sample, shape in enumerate(shapes)]
            if all(held) and max(shape[axis] for shape in shapes) > 1:
                sources[f"the extent of axis {axis} of '{name}'"] = name, axis
    powers = range(int(array.max()).bit_length())
    offsets = [0, *(sign * 2**power for power in powers for sign in (-1, 1))]
    for offset in offsets:
        for words, at in sources.items():
            if at is not None or offset:
                yield StretchEdit(
                    words=f"{words} plus {offset}" if offset else f"{words} in place of the result",
                    bits=_BITS + math.log2(len(sources) * (len(offsets) if offset else 1)),
                    whole=lambda stretch, sample, at=at, by=offset: _numbers(stretch, sample, at) + by,
                )


def _numbers(stretch: ComputedStretch, sample: int, at: tuple[str, int] | None) -> np.ndarray:
    base = stretch.base[sample]
    held = None if at is None else stretch.value(sample, at[0])
    return base if at is None or held is None else np.full_like(base, held.shape[at[1]])


def try_entries(found: OutputsSearch) -> None:
    """What may be done to the inputs: kept, moved, usual scales, shifts and filters with what is fitted, all else."""
    trials, until = found.trials, found.trials.until
    entries = [site for site in found.sites if site.output.endswith(READ)]
    for guess in guesses_unpredicted(entries, _KEPT):
        # Each of them: on one sample two may give the same, and on the others not.
        if not trials.explains and not trials.is_spent:
            trials.attempt(guess)
    trials.run_plain(
        [Guess(site=site, kind=_MOVING, edit=edit) for site in entries for edit in _edits_of_numbers(site)]
    )
    guesses = guesses_unpredicted(entries, (*EARLY, *LATE))
    trials.until = found.reference.meter.share_of(until, _MOVED)
    trials.run_moves([one for one in guesses if one.kind == _MOVING])
    trials.until = until
    trials.run_plain(
        [Guess(site=site, kind=_MOVING, edit=edit) for site in entries for edit in shrunk_edits(site.result)]
    )
    groups = _groups_alike(entries)
    _try_all_alike(trials, groups, guesses)
    for site in entries:
        _try_edges(trials, site)
    # Of many inputs that which is wrong is fitted first: one usual amount tells which that is, then one of each of its families.
    own = [(site, [*families_of(site), *filters_of(site)]) for site in entries]
    begun = {id(one): _worth_of_start(trials, site, one) for site, every in own for one in every[:2]}
    for site, every in sorted(own, key=lambda one: -max((begun[id(family)] for family in one[1][:2]), default=0.0)):
        begun |= {id(one): _worth_of_start(trials, site, one) for one in every[2:]}
        for family in sorted(every, key=lambda one: -begun[id(one)]):
            try_family(trials, site, family, begun[id(family)])
    for site in entries:
        _try_columns(trials, site)
    trials.until = found.reference.meter.share_of(until, _ALONE if groups else 1.0)
    trials.run_plain(guesses)
    trials.until = until
    _try_all_alike(trials, groups, guesses)


def _try_all_alike(trials: Trials, groups: Sequence[Sequence[EditSite]], guesses: Sequence[Guess]) -> None:
    """The same done to all inputs that are alike, as the caches of all layers are.

    By turns what explains most at single ones, summed, and what is said in the shortest words: of a large change a part misleads.
    """
    known = {(one.guess.site.output, one.edit.words) for one in trials.tried if one.guess.others}
    orders: list[list[Guess]] = []
    for members in groups:
        names = {one.output for one in members}
        edits: dict[str, dict[str, tuple[str, StretchEdit]]] = {}
        for one in guesses:
            if one.site.output in names:
                edits.setdefault(one.made().words, {})[one.site.output] = one.kind, one.made()
        worth: dict[str, float] = {}
        for tried in trials.tried:
            words = tried.edit.words
            if tried.guess.site.output in names and not tried.guess.others and len(edits.get(words, ())) == len(names):
                worth[words] = worth.get(words, 0.0) + tried.explained
        every = {words: _join_inputs(members, words, edits[words]) for words in worth}
        orders += [
            [every[words] for words in order[:_AT_ALL] if (members[0].output, every[words].made().words) not in known]
            for order in (sorted(worth, key=lambda words: -worth[words]), sorted(worth, key=len))
        ]
    for guess in itertools.chain.from_iterable(itertools.zip_longest(*orders)):
        if trials.explains or trials.is_spent:
            return
        if guess is not None:
            trials.attempt(guess)


def _groups_alike(entries: Sequence[EditSite]) -> list[list[EditSite]]:
    """Inputs whose names differ in numbers, in these and in which half of a pair they are, or not in their shapes."""
    keys: tuple[Callable[[EditSite], object], ...] = (
        lambda site: _NUMBER.sub("#", site.output),
        lambda site: _HALVES.sub("#", _NUMBER.sub("#", site.output)),
        lambda site: site.result.shape,
    )
    groups: dict[tuple[str, ...], list[EditSite]] = {}
    for key in keys:
        by_key: dict[object, list[EditSite]] = {}
        for site in sorted(entries, key=lambda one: one.reference.program.inputs.index(one.output.removesuffix(READ))):
            by_key.setdefault((key(site), site.result.ndim, site.result.dtype), []).append(site)
        for members in by_key.values():
            if len(members) > 1:
                groups.setdefault(tuple(one.output for one in members), members)
    return sorted(groups.values(), key=len, reverse=True)


def _join_inputs(members: Sequence[EditSite], words: str, edits: dict[str, tuple[str, StretchEdit]]) -> Guess:
    kind, edit = edits[members[0].output]
    return Guess(
        site=members[0],
        kind=f"{kind}{EVERYWHERE}",
        edit=replace(edit, words=f"at each of {len(members)} inputs: {words}", bits=edit.bits + RULE_BITS),
        others=tuple((site, edits[site.output][1]) for site in members[1:]),
    )


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


def _try_columns(trials: Trials, site: EditSite) -> None:
    """Each two columns of a table exchanged, where these are more than are exchanged anywhere: their order is a caller's."""
    shape = site.result.shape
    if len(shape) != _TABLE or not FEW < shape[1] <= _COLUMNS or trials.explains:
        return
    every = list(exchanges_along_axis(1, shape[1]))
    bits = _OF_COLUMNS + math.log2(len(every))
    edits = [StretchEdit(words=f"the result {words}", bits=bits, at=0, after=change) for words, change in every]
    trials.run_plain([Guess(site=site, kind=_MOVING, edit=edit) for edit in edits])


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
