"""Every generated edit of a stretch, tried within a budget, ranked by description length, and confirmed.

Generators come in the order of what they find most often in the fewest words. Where something short explains everything
exactly, those that can only say it in more words are left out. Budgets are counted in estimated seconds
(`explanation.weighed`), so that a busy machine finds what a quiet one does.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.cropping import crop_stretch
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_attributes import attribute_edits
from parityscope.hypotheses.from_before import before_edits, mixed_before_edits
from parityscope.hypotheses.from_curves import curve_edits
from parityscope.hypotheses.from_elsewhere import moved_edits
from parityscope.hypotheses.from_fitted_inputs import fitted_attribute_edits, fitted_input_edits, row_edits
from parityscope.hypotheses.from_grids import fitted_grid_edits, grid_edits
from parityscope.hypotheses.from_inputs import (
    changed_constant_edits,
    changed_input_edits,
    constant_edits,
    input_edits,
    joint_edits,
    near_constant_edits,
    operand_edits,
)
from parityscope.hypotheses.from_layouts import layout_edits
from parityscope.hypotheses.from_masks import mask_edits
from parityscope.hypotheses.from_nan import SWALLOWED, swallowing_edits
from parityscope.hypotheses.from_neighbours import neighbour_edits
from parityscope.hypotheses.from_operators import expansion_edits, operator_edits, relative_edits
from parityscope.hypotheses.from_places import changed_place_edits, place_edits
from parityscope.hypotheses.from_pointwise import fitted_operator_edits
from parityscope.hypotheses.from_resampling import resampled_edits, resampled_input_edits
from parityscope.hypotheses.from_values import elementwise_edits, fitted_edits
from parityscope.hypotheses.power import KindTally
from parityscope.hypotheses.states import kept_state_edits
from parityscope.hypotheses.stretch import ComputedStretch
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import onnx

    from parityscope.records import RuledOut

_WORTH_KEEPING = 0.05  # of the squared error
_EXACT = 0.9999
_PROMISING = 0.99
_CONFIRMED = 24  # edits that are held against what they were not fitted to
_PAIRED = 8  # edits that are tried two at a time
_SHORTEST = 5.0  # an input left out: nothing is said in fewer
_ONE_NUMBER_BITS = 45.0  # one fitted number and what it is about
_SURE_BITS = 12.0  # an edit so short that explains everything ends the search among longer kinds
_MANY = 1000  # edits, about as many as there are of a step; chosen
_PART = 1 << 17  # elements on which that many take a second; chosen
_NEAR, _TOLD = (
    0.5,
    8,
)  # of the squared error of a part, which has borders; and patterns that are tried on the whole; chosen
_CALL_S = (
    1.5e-4  # seconds that an evaluation costs beside its arithmetic: a session's call, and measuring. As in `budget`.
)
_ELEMENT_S = (
    5e-9  # one element that is read or given (measured on one core: a convolution of 110,592 in half a millisecond)
)

EditPattern = tuple[str, str]  # as `pattern_of` says


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranked:
    """An edit with the share of the squared error that it explains and its description length, both on unseen elements.

    `kind` is the generator's name.
    """

    edit: StretchEdit
    kind: str
    share: float
    length: float


@dataclass(slots=True, kw_only=True)
class _EditSearch:
    stretch: ComputedStretch
    left: float
    cost: float
    trying: Callable[[str], None]
    banned: frozenset[str]
    kept: list[tuple[float, float, str, StretchEdit]]
    tally: KindTally
    best: dict[str, tuple[float, StretchEdit]] = field(default_factory=dict)  # by kind, what explains most
    untried: int = 0

    def attempt(self, kind: str, edit: StretchEdit) -> None:
        """Tries one edit, if it is to be paid for."""
        if self.left < self.cost:
            self.note_untried(kind)
            return
        if self.banned and edit.form in self.banned:
            self.tally.note_untried(kind)
            return
        self.left -= self.cost
        self.trying(edit.words)
        share = self.stretch.share(edit)
        if share is not None:
            self.tally.note_tried(kind, edit.bits)
            if share > self.best.get(kind, (0.0, edit))[0]:
                self.best[kind] = share, edit
        if share is not None and share > _WORTH_KEEPING:
            length = edit.bits + self.stretch.weight * math.log2(max(1 - share, 1e-9))
            self.kept.append((length, share, kind, edit))

    def note_untried(self, kind: str) -> None:
        """One was left for want of budget."""
        self.untried += 1
        self.tally.note_untried(kind)

    def surely(self) -> float:
        """The bits of the shortest edit that explains everything."""
        return min((edit.bits for _, share, _, edit in self.kept if share > _EXACT), default=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundEdits:
    """The edits that explain most, shortest description first, how many there was no budget for, and each kind's power.

    `spent` are the estimated seconds that trying took.
    """

    ranked: tuple[Ranked, ...]
    untried: int
    spent: float
    ruled_out: tuple[RuledOut, ...]


def search_large(
    stretch: ComputedStretch,
    seconds: float,
    *,
    trying: Callable[[str], None] = lambda _: None,
    banned: frozenset[str] = frozenset(),
    first: tuple[EditPattern, ...] = (),
    among: frozenset[EditPattern] | None = None,
) -> FoundEdits:
    """As `search_edits`; where there is no time for many edits, first those that come near on a part."""
    few = among is None and seconds < _MANY * cost_of_trial(stretch)
    cropped = crop_stretch(stretch, _PART) if few else None
    if cropped is None:
        return search_edits(stretch, seconds, trying=trying, banned=banned, first=first, among=among)
    part = ComputedStretch(context=cropped, arithmetic=stretch.arithmetic)
    near = search_edits(part, seconds / 2, trying=trying, banned=banned, first=first)
    told = [pattern_of(one.kind, one.edit.words) for one in near.ranked if one.share > _NEAR]
    stretch.crashed.update(part.crashed)
    left = seconds - near.spent
    whole = search_edits(stretch, left, trying=trying, banned=banned, first=(*first, *told[:_TOLD]))
    fuller = near if near.untried < whole.untried else whole
    return replace(whole, untried=fuller.untried, spent=near.spent + whole.spent, ruled_out=fuller.ruled_out)


def search_edits(
    stretch: ComputedStretch,
    seconds: float,
    *,
    trying: Callable[[str], None] = lambda _: None,
    banned: frozenset[str] = frozenset(),
    first: tuple[EditPattern, ...] = (),
    among: frozenset[EditPattern] | None = None,
) -> FoundEdits:
    """The edits that explain most, and what is known of all others.

    Args:
        stretch: What is explained.
        seconds: The budget, in estimated seconds.
        trying: Told the words of every edit before it is run.
        banned: Edits that are not run, in words without numbers (`form_of`).
        first: Patterns (`pattern_of`) that held elsewhere: if one explains everything here too, nothing else is tried.
        among: Where given, only edits of one of these patterns are tried.
    """
    cost = cost_of_trial(stretch)
    state = _EditSearch(
        stretch=stretch, left=seconds, cost=cost, trying=trying, banned=banned, kept=[], tally=_tally_of(stretch)
    )
    nodes = [(place, _node_message(stretch, place)) for place in reversed(range(len(stretch.steps)))]
    if first:
        _try_patterns(state, nodes, first)
        if state.surely() < math.inf:
            return _conclude_search(state, seconds)
        state.tally = _tally_of(stretch)  # all of it is tried once more
    if among is not None:
        _try_patterns(state, nodes, among)
        return _conclude_search(state, seconds)
    for kind, edits in generated_kinds(stretch, nodes):
        if state.surely() <= _LEAST_BITS[kind]:
            continue
        _draw_edits(state, kind, edits)
    if not any(share > _PROMISING for _, share, kind, _ in state.kept if kind != "curves"):
        _try_pairs(state)
    return _conclude_search(state, seconds)


def cost_of_trial(stretch: ComputedStretch) -> float:
    """Estimated seconds of one edit."""
    read = sum(
        array.size
        for step in stretch.steps
        for name in step.inputs
        if name and (array := _value_held(stretch, name)) is not None
    )
    return len(stretch.steps) * _CALL_S + _ELEMENT_S * (stretch.found[0].size + read)


def _tally_of(stretch: ComputedStretch) -> KindTally:
    return KindTally(numbers=2 * stretch.weight, least=_WORTH_KEEPING)


def _conclude_search(state: _EditSearch, seconds: float) -> FoundEdits:
    ranked, tally = _confirm_best(state), state.tally
    for one in ranked:
        tally.note_explained(one.kind, one.edit.bits, one.share, one.edit.words)
    if state.surely() == math.inf:  # else nobody asks what was ruled out
        for kind, (_, edit) in state.best.items():
            state.trying(edit.words)
            if (held := state.stretch.confirm(edit)) is not None:
                tally.note_explained(kind, edit.bits, held[0], edit.words)
    return FoundEdits(ranked=tuple(ranked), untried=state.untried, spent=seconds - state.left, ruled_out=tally.told())


def _try_patterns(
    state: _EditSearch, nodes: list[tuple[int, onnx.NodeProto]], patterns: Collection[EditPattern]
) -> None:
    """Tries the edits of these patterns; what makes other kinds is not asked, since that costs more than the trials."""
    kinds = {kind for kind, _ in patterns}
    for kind, edits in generated_kinds(state.stretch, nodes):
        if kind in kinds:
            _draw_edits(state, kind, (edit for edit in edits if pattern_of(kind, edit.words) in patterns))


# Kinds that compute much before they say anything: not begun where nothing is left to try what they say with.
_FITTING = frozenset(
    {"mixtures", "moved", "resampled", "neighbours", "fitted inputs", "grids", "fitted grids", "changed places", "rows"}
)

# The shortest that a generator can say; what is said in fewer bits already is not asked of it.
_LEAST_BITS = {
    "values": 0.0,
    "fits": 0.0,
    "curves": _ONE_NUMBER_BITS,
    "places": _SURE_BITS,
    "before": _SHORTEST,
    "mixtures": _SURE_BITS,
    "moved": _SURE_BITS,
    "resampled": _SURE_BITS,
    "resampled inputs": _SURE_BITS,
    "neighbours": 0.0,
    "states": _SHORTEST,
    SWALLOWED: 0.0,
    "masks": _SHORTEST,
    "inputs": 0.0,
    "layouts": _SHORTEST,
    "attributes": _SHORTEST,
    "fitted attributes": _SURE_BITS,
    "fitted operators": _SURE_BITS,
    "fitted inputs": _SURE_BITS,
    "constants": _SURE_BITS,
    "grids": _SURE_BITS,
    "fitted grids": _ONE_NUMBER_BITS,
    # One fitted number that explains everything on what it was not fitted to leaves nothing for a list of thousands.
    "changed places": _ONE_NUMBER_BITS,
    "near constants": _ONE_NUMBER_BITS,
    "operands": _ONE_NUMBER_BITS,
    "relatives": _ONE_NUMBER_BITS,
    "changed constants": _ONE_NUMBER_BITS,
    "changed inputs": _ONE_NUMBER_BITS,
    "joint": _ONE_NUMBER_BITS,
    "operators": _ONE_NUMBER_BITS,
    "rows": _ONE_NUMBER_BITS,
    "inside": _ONE_NUMBER_BITS,
}


def generated_kinds(
    stretch: ComputedStretch, nodes: list[tuple[int, onnx.NodeProto]]
) -> Iterator[tuple[str, Iterator[StretchEdit]]]:
    """Every kind of edit by its name, for the steps of a stretch (place, message)."""
    yield "values", elementwise_edits(stretch)
    yield "fits", fitted_edits(stretch)
    yield "curves", curve_edits(stretch)
    yield "before", before_edits(stretch)
    yield "mixtures", mixed_before_edits(stretch)
    yield "moved", moved_edits(stretch)
    yield "resampled", resampled_edits(stretch)
    yield "places", place_edits(stretch)
    of_steps: dict[str, Callable[[ComputedStretch, int, onnx.NodeProto], Iterator[StretchEdit]]] = {
        "neighbours": neighbour_edits,
        "states": kept_state_edits,
        SWALLOWED: swallowing_edits,
        "masks": mask_edits,
        "resampled inputs": resampled_input_edits,
        "inputs": input_edits,
        "layouts": layout_edits,
        "attributes": attribute_edits,
        "fitted attributes": fitted_attribute_edits,
        "fitted operators": fitted_operator_edits,
        "fitted inputs": fitted_input_edits,
        "constants": constant_edits,
        "grids": grid_edits,
        "fitted grids": fitted_grid_edits,
        "near constants": near_constant_edits,
        "operands": operand_edits,
        "relatives": relative_edits,
        "changed constants": changed_constant_edits,
        "changed inputs": changed_input_edits,
        "joint": joint_edits,
        "operators": operator_edits,
        "rows": row_edits,
        "inside": expansion_edits,
    }
    for kind, make in of_steps.items():
        if kind == "near constants":
            yield "changed places", changed_place_edits(stretch)
        yield kind, itertools.chain.from_iterable(make(stretch, place, node) for place, node in nodes)


def _draw_edits(state: _EditSearch, kind: str, edits: Iterator[StretchEdit]) -> None:
    """Tries what a generator yields; one that cannot go on for this stretch ends there."""
    if kind in _FITTING and state.left < state.cost:
        state.note_untried(kind)
        return
    while True:
        try:
            edit = next(edits, None)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a generator that a strange node trips ends alone, and is told
            state.stretch.crashed[kind] = f"{type(error).__name__}: {error}"
            return
        if edit is None:
            return
        state.attempt(kind, edit)


def _try_pairs(state: _EditSearch) -> None:
    """Two changes at once: of inputs of one step, and a fitted function behind the best."""
    best = [(kind, edit) for _, _, kind, edit in sorted(state.kept, key=lambda one: one[0]) if kind != "curves"]
    inputs = [edit for _, edit in best if edit.before is not None and edit.node is None][:_PAIRED]
    for one, other in itertools.permutations(inputs, 2):
        if one.at == other.at:
            state.attempt("pairs", _join_edits(one, other))
    for kind, edit in best[:3]:
        if kind not in {"fits", "pairs"} and state.left > 0:
            _try_fits_behind(state, edit)


def _join_edits(one: StretchEdit, other: StretchEdit) -> StretchEdit:
    def before(arrays: object) -> object:
        return other.before(one.before(arrays)) if one.before and other.before else arrays  # type: ignore[arg-type]

    return StretchEdit(words=f"{one.words}; and {other.words}", bits=one.bits + other.bits, at=one.at, before=before)  # type: ignore[arg-type]


def _try_fits_behind(state: _EditSearch, edit: StretchEdit) -> None:
    """Fitted functions of what an edit gives."""
    stretch = state.stretch
    try:
        bases = [np.asarray(stretch.run(sample, edit)) for sample in range(len(stretch.base))]
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - an edit that runs on one sample alone
        return
    other = stretch.rebased(bases)
    for fitted in itertools.chain(fitted_edits(other), elementwise_edits(other)):
        whole = fitted.whole
        if whole is not None:
            state.attempt(
                "pairs",
                replace(
                    fitted,
                    words=f"{edit.words}; and then {fitted.words}",
                    bits=edit.bits + fitted.bits,
                    whole=lambda _, sample, w=whole: w(other, sample),
                    at=edit.at,
                    node=edit.node,
                    reads=edit.reads,
                    behind=(*edit.behind, *fitted.behind) if edit.reads is not None or _is_node_alone(edit) else (),
                ),
            )


def _is_node_alone(edit: StretchEdit) -> bool:
    return edit.node is not None and edit.before is None and edit.opset is None


def _confirm_best(state: _EditSearch) -> list[Ranked]:
    found: list[Ranked] = []
    words: set[str] = set()
    for _, _, kind, edit in sorted(state.kept, key=lambda one: one[0])[:_CONFIRMED]:
        if edit.words in words:
            continue
        words.add(edit.words)
        state.trying(edit.words)
        held = state.stretch.confirm(edit)
        if held is None:
            continue
        found.append(Ranked(edit=edit, kind=kind, share=held[0], length=held[1]))
    return sorted(found, key=lambda one: one.length)


def _value_held(stretch: ComputedStretch, name: str) -> np.ndarray | None:
    return stretch.value(0, name)


def _node_message(stretch: ComputedStretch, place: int) -> onnx.NodeProto:
    outputs = stretch.steps[place].outputs
    return next(node for node in stretch.context.nodes if tuple(node.output) == outputs)


def pattern_of(kind: str, words: str) -> EditPattern:
    """The kind, and what is said without names and numbers: the same fault at another node is said alike."""
    return kind, " ".join(re.sub(r"'[^']*'|[-+]?[\d.]+(e[-+]?\d+)?|\W+", " ", words).split())
