"""What explains a part of the error at one constant of a node, made at others of its constants too.

Who exports weights in another order, layout or format does so with all that belong together, or with some of them: an edit of one
constant that comes near is tried with the same done to others, and one of several also without some of these.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.changes import BlockOrder
from parityscope.hypotheses.from_inputs import edit_of_inputs, gates_of, label_of_input
from parityscope.hypotheses.from_layouts import edit_of_gates
from parityscope.hypotheses.from_outputs.guess import Guess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.searching import OutputsSearch
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import Trials, TriedGuess

    Change = Callable[[np.ndarray], np.ndarray]

_LEADS, _LEADS_EACH = 12, 4  # edits that come near, of all nodes and of each; chosen
_MOST = 4  # constants that are changed beside these; chosen
_JOINT = "joint"  # the kind of what is done to several constants


def try_together(found: OutputsSearch) -> None:
    """Tries what comes near at one or several constants of a node at others of these."""
    trials = found.trials
    for lead in _leads(trials):
        for edit in _same_of_others(lead.guess.site, lead.edit):
            if trials.explains or trials.is_spent:
                return
            trials.attempt(Guess(site=lead.guess.site, kind=_JOINT, edit=edit))


def _leads(trials: Trials) -> list[TriedGuess]:
    """Edits of constants that explain a part of the error, the best first."""
    near = [one for one in trials.tried if _is_of_constants(one) and trials.comes_near(one.explained, one.edit.bits)]
    chosen: list[TriedGuess] = []
    counts: Counter[str] = Counter()
    for one in sorted(near, key=lambda one: -one.explained):
        counts[one.guess.site.output] += 1
        if counts[one.guess.site.output] <= _LEADS_EACH and len(chosen) < _LEADS:
            chosen.append(one)
    return chosen


def _is_of_constants(one: TriedGuess) -> bool:
    site = one.guess.site
    alone = site.whole_step and site.inner is None and not (one.guess.others or one.guess.rule)
    return alone and bool(one.edit.each) and one.edit.each.keys() <= _constants_of(site).keys()


def _constants_of(site: EditSite) -> dict[int, np.ndarray]:
    """The constants that a step reads, by place."""
    constants = site.reference.program.constants
    return {index: constants[name] for index, name in enumerate(site.step.inputs) if name in constants}


def _same_of_others(site: EditSite, edit: StretchEdit) -> Iterator[StretchEdit]:
    """The same done to further constants of the node, or to all but some of those of which it is said, the fewest first."""
    known, change = [*edit.each], next(iter(edit.each.values()))
    others = [i for i, array in _constants_of(site).items() if i not in edit.each and _changes(change, array)][:_MOST]
    more = [[*known, *some] for count in range(1, len(others) + 1) for some in itertools.combinations(others, count)]
    fewer = [list(some) for count in range(1, len(known)) for some in itertools.combinations(known, count)]
    for indices in [*fewer, *more]:
        bits = edit.bits + len(known) + len(others)
        yield _edit_of_several(site, edit, sorted(indices), {**dict.fromkeys(others, change), **edit.each}, bits)


def _changes(change: Change, array: np.ndarray) -> bool:
    """Whether a change can be made of an array, and does something."""
    try:
        made = change(array)
    except Exception:  # noqa: BLE001 - it is made for another shape
        return False
    return made.shape == array.shape and made.dtype == array.dtype and not np.array_equal(made, array)


def _edit_of_several(
    site: EditSite, edit: StretchEdit, indices: Sequence[int], changes: dict[int, Change], bits: float
) -> StretchEdit:
    node, known, change = site.node, [*edit.each], changes[indices[0]]
    gates = gates_of(node)
    if gates and isinstance(change, BlockOrder) and change.axis == 1 and len(change.order) == len(gates):
        return edit_of_gates(site.stretch, 0, node, indices, change, bits)
    said = str(known) if len(known) > 1 else label_of_input(site.stretch, node, known[0])
    new = str(indices) if len(known) > 1 else f"constants {indices}{' all' * edit.words.startswith(said)}"
    return edit_of_inputs(0, edit.words.replace(said, new), bits, {index: changes[index] for index in indices})
