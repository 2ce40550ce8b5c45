"""The result elsewhere: moved along axes or in memory by any number of indices, mirrored or not, by correlation.

The correlation of what the model says with what the candidate gave is largest where one lies upon the other (by the fast Fourier
transform, all moves of all axes at once; divided by their sizes at each frequency where neighbours are alike: C. Kuglin,
D. Hines, Proc. IEEE Int. Conf. Cybernetics and Society, 1975). What comes in at the edge is what went out at the other one,
zeros, or the edge itself.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.moves import FILLED, LINEAR, move_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.hypotheses.stretch import ComputedStretch

_MOST = 1 << 20  # elements of a result whose moves are looked for; chosen
_MOST_MIRRORED = 1 << 16  # of one that is looked at mirrored too; chosen
_LEAST_ALIKE = 0.3  # correlation: what is moved by half of an axis and filled with zeros keeps more; chosen


def moved_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """The result moved by what correlates best, along its axes together, or in memory."""
    known, found = stretch.replayed[0], stretch.found[0]
    if not stretch.same_shape or not 2 < known.size <= _MOST or not known.ndim:
        return
    chosen = stretch.fitted_on & np.isfinite(known) & np.isfinite(found)
    known, found = (np.where(chosen, one, 0.0) for one in (known, found))
    axes = [axis for axis, length in enumerate(known.shape) if length > 1]
    mirrors = itertools.chain.from_iterable(itertools.combinations(axes, count) for count in range(len(axes) + 1))
    for mirrored in mirrors if known.size <= _MOST_MIRRORED else [()]:
        for moves in _likely_moves(np.flip(known, mirrored), found):
            if any(moves):
                moved = [(axis, by) for axis, by in enumerate(moves) if by]
                yield from (edit_of_move(known.shape, mirrored, moved, mode) for mode in LINEAR)
    for (by,) in _likely_moves(known.ravel(), found.ravel()) if len(axes) > 1 else ():
        if by:
            yield from _edits_in_memory(known.size, by)


def _likely_moves(known: np.ndarray, found: np.ndarray) -> list[tuple[int, ...]]:
    """The moves by which `known` is most like `found`: by correlation, and by that of phases alone; none where neither is."""
    sizes = math.sqrt(float(np.square(known).sum()) * float(np.square(found).sum()))
    if not sizes:
        return []
    axes = tuple(range(known.ndim))
    spectrum = np.conj(np.fft.rfftn(known, axes=axes)) * np.fft.rfftn(found, axes=axes)
    plain = np.fft.irfftn(spectrum, known.shape, axes)
    phases = np.fft.irfftn(spectrum / np.maximum(np.abs(spectrum), 1e-12 * np.abs(spectrum).max()), known.shape, axes)
    moves = []
    for table in (plain, phases):
        place = np.unravel_index(int(table.argmax()), table.shape)
        if float(plain[place]) > _LEAST_ALIKE * sizes:
            moves.append(
                tuple(
                    int(by) if 2 * by <= length else int(by) - length
                    for by, length in zip(place, table.shape, strict=True)
                )
            )
    return list(dict.fromkeys(moves))


def edit_of_move(
    shape: Sequence[int], mirrored: tuple[int, ...], moved: Sequence[tuple[int, int]], mode: str
) -> StretchEdit:
    """The result mirrored along axes and moved along others, each by so many indices; one of `FILLED` comes in."""
    said = " and ".join(f"by {by} along axis {axis}" for axis, by in moved)
    first = f"the result mirrored along the axes {list(mirrored)} and" if mirrored else "the result"
    return StretchEdit(
        words=f"{first} moved {said}, {FILLED[mode]}",
        bits=6 + len(mirrored) + math.log2(len(FILLED)) + sum(1 + math.log2(shape[axis]) for axis, _ in moved),
        whole=lambda one, sample: move_array(np.flip(one.base[sample], mirrored), moved, mode),
    )


def _edits_in_memory(size: int, by: int) -> Iterator[StretchEdit]:
    for mode in ("wrap", "constant"):
        yield StretchEdit(
            words=f"the result moved by {by} elements in memory, {FILLED[mode]}",
            bits=8 + math.log2(size),
            whole=lambda one, sample, m=mode: move_array(one.base[sample].reshape(-1), [(0, by)], m).reshape(
                one.base[sample].shape
            ),
        )
