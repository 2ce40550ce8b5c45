"""What a network cuts into blocks of neighbours, cut into every n-th index instead, or the other way round, at all such places.

Who turns the pairs of a rotary embedding, or keeps gates beside values, or queries, keys and values of a head together, may lay
them out in either way, and a network does it alike in every layer. No derivative leads from one to the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_inputs import edit_of_input
from parityscope.hypotheses.from_outputs.guess import RULE_BITS, Guess
from parityscope.hypotheses.from_outputs.rules import EVERYWHERE
from parityscope.light_dataclasses import dataclass, replace
from parityscope.operators import operators_that_move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.sites import EditSite

_PICKS = operators_that_move("picked")
_BITS = 5.0  # of cutting otherwise, and where it is put back; chosen
_MOST = 8  # pieces; chosen: more are no gates, pairs or projections
_ORDINALS = {2: "second", 3: "third"}
_NEAR = 64  # steps behind a cut within which it is put back; chosen
_MOST_RUNS = 3  # lengths of what may lie together; chosen


@dataclass(frozen=True, slots=True)
class PieceLayout:
    """`count` pieces along an axis (counted from the last): blocks of neighbours, or every n-th `run` of indices."""

    axis: int
    count: int
    blocks: bool
    run: int = 1

    def exchange(self, array: np.ndarray) -> np.ndarray:
        """The array so that what cuts it in this way gives what the other way would."""
        return self._arranged(array, to_blocks=self.blocks)

    def exchange_back(self, array: np.ndarray) -> np.ndarray:
        """What `exchange` gave, as it was."""
        return self._arranged(array, to_blocks=not self.blocks)

    def _arranged(self, array: np.ndarray, *, to_blocks: bool) -> np.ndarray:
        axis = array.ndim + self.axis
        runs = array.shape[axis] // (self.count * self.run)
        sizes = (runs, self.count) if to_blocks else (self.count, runs)
        split = array.reshape(*array.shape[:axis], *sizes, self.run, *array.shape[axis + 1 :])
        return np.ascontiguousarray(split.swapaxes(axis, axis + 1)).reshape(array.shape)

    def say(self) -> str:
        """The other way, in the place of this one."""
        which = _ORDINALS.get(self.count, f"{self.count}th")
        ways = f"every {which} {f'run of {self.run} indices' if self.run > 1 else 'index'}", f"{self.count} blocks"
        now, other = ways[self.blocks], ways[not self.blocks]
        return f"axis {self.axis} cut into {other} in place of {now}"


@dataclass(frozen=True, slots=True, eq=False)
class TensorCut:
    """A tensor and the sites of the steps that cut it."""

    tensor: str
    sites: tuple[EditSite, ...]


def list_cut_rules(reference: Reference, sites: Sequence[EditSite]) -> list[Guess]:
    """All that is cut in one way cut in the other one; also put back where it is joined, or where all made of it meets."""
    by_output = {site.output: site for site in sites if site.inner is None}
    last: dict[str, float] = {name: step.index for step in reference.live for name in step.reads}
    last |= dict.fromkeys(reference.program.outputs, math.inf)
    rules = []
    for layout, cuts in _find_cuts(reference, by_output).items():
        said, count = layout.say(), len(cuts)
        cutting = {
            site.output: (site, edit_of_input(0, said, _BITS, 0, layout.exchange)) for cut in cuts for site in cut.sites
        }
        rules.append(_join_edits([*cutting.values()], said, count))
        at_result = partial(_edit_of_result, said)
        joins = [_find_join(reference, layout, cut, by_output) for cut in cuts]
        if all(joins):
            back = [(site, at_result(layout.exchange_back)) for site in joins if site]
            rules.append(_join_edits([*back, *cutting.values()], f"{said}, and joined so again", count))
        whole = [by_output.get(cut.tensor) for cut in cuts]
        meetings = [_find_meeting(reference, cut, by_output, last) for cut in cuts]
        if all(whole) and all(meetings):
            back = [(site, at_result(layout.exchange_back)) for site in meetings if site]
            forth = [(site, at_result(layout.exchange)) for site in whole if site]
            rules.append(_join_edits([*back, *forth], f"{said}, with all that is done to it", count))
    return rules


def _find_cuts(reference: Reference, by_output: dict[str, EditSite]) -> dict[PieceLayout, list[TensorCut]]:
    """The tensors that are cut into equal pieces, by how, each with every run of indices that may lie together."""
    pieces: dict[tuple[str, PieceLayout], dict[int, EditSite]] = defaultdict(dict)
    shapes: dict[tuple[str, PieceLayout], set[int]] = defaultdict(set)
    known = reference.values[0]
    readers = _readers(reference)
    for step in reference.live:
        site = next(
            (by_output[name] for name in step.outputs if name in by_output and by_output[name].whole_step), None
        )
        if step.op_type not in _PICKS or site is None or step.inputs[0] not in known:
            continue
        for name in step.outputs:
            for layout, place in _layouts_of(known[step.inputs[0]], known[name]) if name in known else ():
                pieces[step.inputs[0], layout].setdefault(place, site)
                read = (known[other].shape for reader in readers[name] for other in reader.outputs if other in known)
                shapes[step.inputs[0], layout].update(size for shape in read for size in shape)
    cuts: dict[PieceLayout, list[TensorCut]] = defaultdict(list)
    for (tensor, layout), found in pieces.items():
        if len(found) < layout.count:
            continue
        length = known[tensor].shape[layout.axis] // layout.count
        runs = [size for size in sorted(shapes[tensor, layout]) if 1 < size < length and length % size == 0]
        sites = tuple({site.output: site for site in found.values()}.values())
        for run in (1, *(runs[-_MOST_RUNS:] if layout.blocks else ())):
            cuts[PieceLayout(layout.axis, layout.count, layout.blocks, run)].append(TensorCut(tensor, sites))
    return cuts


def _layouts_of(array: np.ndarray, piece: np.ndarray) -> Iterator[tuple[PieceLayout, int]]:
    """How a piece may be one of several equal ones of an array, and which."""
    axes = [axis for axis, size in enumerate(array.shape) if piece.ndim == array.ndim and piece.shape[axis] != size]
    if len(axes) != 1:
        return
    (axis,) = axes
    length, size = array.shape[axis], piece.shape[axis]
    if size < 2 or length % size or length // size > _MOST:
        return
    count = length // size
    for blocks in (True, False):
        layout = PieceLayout(axis - array.ndim, count, blocks)
        for place in range(count):
            part = slice(place * size, (place + 1) * size) if blocks else slice(place, None, count)
            if np.array_equal(array[(slice(None),) * axis + (part,)], piece):
                yield layout, place
                break


def _readers(reference: Reference) -> dict[str, list[ProgramStep]]:
    found: dict[str, list[ProgramStep]] = defaultdict(list)
    for step in reference.live:
        for name in step.reads:
            found[name].append(step)
    return found


def _shape_of(known: Mapping[str, np.ndarray], step: ProgramStep) -> tuple[int, ...] | None:
    return known[step.outputs[0]].shape if step.outputs[0] in known else None


def _find_join(
    reference: Reference, layout: PieceLayout, cut: TensorCut, by_output: dict[str, EditSite]
) -> EditSite | None:
    """The first Concat behind a cut that makes what is as large again of as many pieces."""
    known = reference.values[0]
    shape = known[cut.tensor].shape
    first = max(cut.sites, key=lambda site: site.step.index)
    for step in reference.after[first.step.index][:_NEAR]:
        if step.op_type == "Concat" and len(step.inputs) == layout.count and _shape_of(known, step) == shape:
            return by_output.get(step.outputs[0])
    return None


def _find_meeting(
    reference: Reference, cut: TensorCut, by_output: dict[str, EditSite], last: Mapping[str, float]
) -> EditSite | None:
    """Where all that is made of a tensor first comes together in one of its shape; None where that has another shape.

    `last` are the indices of the steps that read each tensor last.
    """
    maker, known = reference.program.steps_of.get(cut.tensor), reference.values[0]
    if maker is None:
        return None
    made = {cut.tensor}
    for step in reference.after[maker.index][:_NEAR]:
        if made.isdisjoint(step.reads):
            continue
        made.update(step.outputs)
        waiting = [name for name in made if last.get(name, -1) > step.index]
        if waiting == [step.outputs[0]]:
            same = _shape_of(known, step) == known[cut.tensor].shape
            return by_output.get(step.outputs[0]) if same else None
    return None


def _edit_of_result(words: str, change: Callable[[np.ndarray], np.ndarray]) -> StretchEdit:
    return StretchEdit(words=words, bits=_BITS, whole=lambda stretch, sample: change(stretch.base[sample]))


def _join_edits(edits: Sequence[tuple[EditSite, StretchEdit]], words: str, count: int) -> Guess:
    """One guess that makes all of these edits."""
    (site, edit), *others = edits
    said = f"at each of {count} places: {words}" if count > 1 else words
    first = replace(edit, words=said, bits=_BITS + RULE_BITS)
    return Guess(site=site, kind=f"layouts{EVERYWHERE}", edit=first, others=tuple(others))
