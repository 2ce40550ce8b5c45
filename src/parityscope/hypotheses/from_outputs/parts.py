"""In which part of a result a change would give the error, and where its values would have to be moved: from sums of adjoints.

To first order a result times 1 + t, or plus t, in a part of it adds to the outputs what the sum of its adjoints over that part
says. Sums over the indices of an axis answer for every run of them and every rest by a period, sums over cells of the last two
axes for every tile, coarse where an axis is long: an exact evaluation moves the ends then (`IndexPlace.beside`). The products of
each index of an axis with the adjoints of each other one answer, summed along diagonals, for every move along the axis.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.from_elsewhere import edit_of_move
from parityscope.hypotheses.from_outputs.families import MOVED, place_family
from parityscope.hypotheses.from_outputs.guess import SIZE_COUNTS, Guess
from parityscope.hypotheses.from_outputs.spending import PRODUCT_S
from parityscope.hypotheses.moves import LINEAR
from parityscope.hypotheses.places import IndexPlace, run_along
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.hypotheses.from_outputs.predicting import Predictor
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.places import Run

_SUMMED = 12.0  # products that one number takes in all sums: measured
_LONGEST = 1024  # indices of an axis that are looked at one by one; chosen
_CELLS, _CELLS_OF_TILES = 64, 16  # into which a longer axis falls, for runs and for tiles; chosen
_LONGEST_PERIOD = 8  # chosen
_KEPT_INDICES, _KEPT_RUNS, _KEPT_TILES = 6, 3, 2  # of an axis; of the last two. Chosen
_KEPT_MOVES, _ASKED_MOVES = 64, 4  # of an axis: on further samples, and told. Chosen
_OVERLAP = 0.5  # of two runs' indices: then the better one stands for both; chosen


@dataclass(slots=True, kw_only=True, eq=False)
class PartTables:
    """Sums of a site's adjoints on each of so many samples: float64, (indices or cells ..., samples, directions + 1).

    `sums` are by axis and whether they are times the result, `tiles` of the last two axes, `moves` by axis with what each is.
    """

    site: EditSite
    samples: int
    shape: tuple[int, ...] = ()
    sums: dict[tuple[int, bool], np.ndarray] = field(default_factory=dict)
    tiles: dict[bool, np.ndarray] = field(default_factory=dict)
    moves: dict[int, tuple[list[tuple[bool, int, str]], np.ndarray]] = field(default_factory=dict)

    def look(self, predictor: Predictor, place: int, array: np.ndarray, adjoint: np.ndarray, until: float) -> None:
        """Adds the sums of one sample: float32 of any shape, and (elements, directions + 1)."""
        is_first = not self.shape
        self.shape = self.shape or array.shape
        if array.shape != self.shape:  # indices are those of the first sample's axes
            return
        meter, shaped = self.site.reference.meter, adjoint.reshape((*array.shape, -1))
        meter.charge(_SUMMED * PRODUCT_S * shaped.size)
        for scales, source in ((True, array[..., None] * shaped), (False, shaped)):
            rest = source
            for axis in reversed(range(array.ndim)):
                length = array.shape[axis]
                if 1 < length <= _LONGEST:
                    own = rest.reshape(-1, length, rest.shape[-1]).sum(0, dtype=np.float64)
                    known = self.sums.get((axis, scales))
                    self.sums[axis, scales] = _with_sample(known, place, own, self.samples)
                rest = rest.sum(axis, dtype=np.float64)
            if self._tiled:
                own = self._sum_cells(source)
                self.tiles[scales] = _with_sample(self.tiles.get(scales), place, own, self.samples)
        for axis, length in enumerate(array.shape):
            price = PRODUCT_S / 10 * shaped.size * length
            if 1 < length <= _LONGEST and (meter.spent + price < until if is_first else axis in self.moves):
                meter.charge(price)
                self._look_at_moves(predictor, place, axis, array, shaped)

    @property
    def _tiled(self) -> tuple[int, ...]:
        """The last two axes that have more than one index; none where there are no two."""
        axes = [axis for axis, length in enumerate(self.shape) if length > 1]
        return tuple(axes[-2:]) if len(axes) > 1 else ()

    def _sum_cells(self, source: np.ndarray) -> np.ndarray:
        one, other = self._tiled
        over = tuple(axis for axis in range(source.ndim - 1) if axis not in self._tiled)
        table = source.sum(over, dtype=np.float64)
        for place, axis in enumerate((one, other)):
            table = np.add.reduceat(table, _edges_of(self.shape[axis], _CELLS_OF_TILES)[:-1], place)
        return np.asarray(table)

    def _look_at_moves(
        self, predictor: Predictor, place: int, axis: int, array: np.ndarray, shaped: np.ndarray
    ) -> None:
        length = array.shape[axis]
        rows = np.ascontiguousarray(np.moveaxis(array, axis, 0)).reshape(length, -1)
        slopes = np.moveaxis(shaped, axis, 0).reshape(length, rows.shape[1], -1)
        table = np.stack([rows @ slopes[..., one].T for one in range(slopes.shape[-1])], -1).astype(np.float64)
        kinds, found = _effects_of_moves(table)
        if axis not in self.moves:
            alone = np.full((len(kinds), self.samples, found.shape[-1]), np.nan)
            alone[:, place] = found
            scores = _score_as_they_are(predictor, alone)[0]
            kept = np.argsort(-scores)[:_KEPT_MOVES]
            self.moves[axis] = [kinds[one] for one in kept], alone[kept]
            return
        known, sketches = self.moves[axis]
        places = {kind: number for number, kind in enumerate(kinds)}
        sketches[:, place] = found[[places[kind] for kind in known]]

    def guesses(self, predictor: Predictor) -> Iterator[Guess]:
        """The best of each axis, of the last two, and of the moves."""
        if not self.shape:
            return
        array = self.site.result
        size = math.sqrt(float(np.square(array, dtype=np.float64).mean())) or 1.0
        for (axis, scales), table in self.sums.items():
            for run, sketch in self._best_runs(predictor, axis, table):
                yield from self._guess_part(predictor, (("", run),), sketch, size, scales=scales)
        for scales, table in self.tiles.items():
            for runs, sketch in self._best_tiles(predictor, table):
                narrowed = (("", runs[0]), ("and", runs[1]))
                yield from self._guess_part(predictor, narrowed, sketch, size, scales=scales)
        for axis, (kinds, sketches) in self.moves.items():
            scores, alone = _score_as_they_are(predictor, sketches)
            for number in np.argsort(-scores)[:_ASKED_MOVES]:
                mirrored, by, mode = kinds[number]
                edit = edit_of_move(self.shape, (axis,) if mirrored else (), [(axis, by)], mode)
                yield Guess(site=self.site, kind=MOVED, edit=edit, score=float(scores[number]), sketch=alone[number])

    def _guess_part(
        self, predictor: Predictor, runs: tuple[tuple[str, Run], ...], sketch: np.ndarray, size: float, *, scales: bool
    ) -> Iterator[Guess]:
        scores, amounts = predictor.judged(sketch[None])
        if amounts[0]:
            place = IndexPlace(runs=runs, shape=self.shape)
            family = place_family(self.site.stretch, place, size, scales=scales)
            yield Guess(
                site=self.site,
                kind=family.kind,
                family=family,
                amounts=(float(amounts[0]),),
                score=float(abs(scores[0])),
                sketch=sketch * amounts[0],
            )

    def _best_runs(self, predictor: Predictor, axis: int, table: np.ndarray) -> Iterator[tuple[Run, np.ndarray]]:
        """Single indices, runs of neighbours, and rests by a period."""
        length = self.shape[axis]
        for index in _best_of(predictor, table)[:_KEPT_INDICES]:
            yield run_along(axis, int(index), 1, 0, self.shape), table[index]
        sums = np.concatenate([np.zeros((1, *table.shape[1:])), np.cumsum(table, 0)])
        edges = _edges_of(length, _CELLS)
        firsts, lasts = np.triu_indices(edges.size, 1)
        starts, stops = edges[firsts], edges[lasts]
        several = (stops - starts > 1) & (stops - starts < length)
        starts, stops = starts[several], stops[several]
        kept: list[tuple[int, int]] = []
        for number in _best_of(predictor, sums[stops] - sums[starts]) if starts.size else ():
            start, stop = int(starts[number]), int(stops[number])
            if all(_overlap(start, stop, *other) < _OVERLAP for other in kept):
                kept.append((start, stop))
                yield run_along(axis, start, stop - start, 0, self.shape), sums[stop] - sums[start]
            if len(kept) == _KEPT_RUNS:
                break
        rests = [
            (period, start, count)
            for period in range(2, min(length // 2, _LONGEST_PERIOD) + 1)
            for start in range(period)
            for count in range(1, period)
        ]
        sketches = [
            sum(table[(start + more) % period :: period].sum(0) for more in range(count))
            for period, start, count in rests
        ]
        for number in _best_of(predictor, np.stack(sketches))[:_KEPT_RUNS] if rests else ():
            period, start, count = rests[number]
            yield run_along(axis, start, count, period, self.shape), np.asarray(sketches[number])

    def _best_tiles(self, predictor: Predictor, table: np.ndarray) -> Iterator[tuple[tuple[Run, Run], np.ndarray]]:
        """Rectangles of cells that are no whole rows."""
        edges = [_edges_of(self.shape[axis], _CELLS_OF_TILES) for axis in self._tiled]
        sums = np.zeros((edges[0].size, edges[1].size, *table.shape[2:]))
        sums[1:, 1:] = table.cumsum(0).cumsum(1)
        spans = [np.triu_indices(one.size, 1) for one in edges]
        spans = [
            tuple(side[np.r_[True, (low - high != 1 - one.size)[1:]]] for side in (low, high))
            for one, (low, high) in zip(edges, spans, strict=True)
        ]
        (top, bottom), (left, right) = spans
        sketches = sums[bottom][:, right] - sums[top][:, right] - sums[bottom][:, left] + sums[top][:, left]
        flat = sketches.reshape(-1, *table.shape[2:])
        for number in _best_of(predictor, flat)[:_KEPT_TILES] if flat.size else ():
            row, column = divmod(int(number), left.size)
            ends = ((edges[0][top[row]], edges[0][bottom[row]]), (edges[1][left[column]], edges[1][right[column]]))
            one, other = (
                run_along(axis, int(low), int(high - low), 0, self.shape)
                for axis, (low, high) in zip(self._tiled, ends, strict=True)
            )
            yield (one, other), flat[number]


def _with_sample(table: np.ndarray | None, place: int, own: np.ndarray, samples: int) -> np.ndarray:
    """The sums of all samples with those of one."""
    if table is None:
        table = np.full((*own.shape[:-1], samples, own.shape[-1]), np.nan)
    table[..., place, :] = own
    return table


def _edges_of(length: int, most: int) -> np.ndarray:
    """The ends of the cells into which an axis falls, one for each index where they are few."""
    return np.unique(np.linspace(0, length, min(length, most) + 1).astype(np.int64))


def _best_of(predictor: Predictor, sketches: np.ndarray) -> np.ndarray:
    """The places of sketches whose amount is free by how much each explains, most first."""
    return np.argsort(-np.abs(predictor.judged(sketches)[0]))


def _score_as_they_are(predictor: Predictor, sketches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of changes that have no free amount, with what they do."""
    scores, amounts = predictor.judged(sketches)
    return scores - SIZE_COUNTS * np.abs(np.log10(np.maximum(np.abs(amounts), 1e-12))), sketches


def _overlap(start: int, stop: int, first: int, last: int) -> float:
    """The part that two runs share of both together."""
    shared = max(0, min(stop, last) - max(start, first))
    return shared / (stop - start + last - first - shared)


def _effects_of_moves(table: np.ndarray) -> tuple[list[tuple[bool, int, str]], np.ndarray]:
    """What each move along an axis does: whether mirrored, by how many, and how it is filled; (moves, directions).

    `table` holds the products of index i with the adjoints of index j: (length, length, directions).
    """
    length = table.shape[0]
    sums, mirrored = _sum_diagonals(table), _sum_diagonals(table[::-1])
    heads, tails = table[0].cumsum(0), table[-1][::-1].cumsum(0)
    own = np.delete(sums, length - 1, 0)
    beside = np.concatenate([tails[: length - 1][::-1], heads[: length - 1]])
    rolled, rolled_back = (one[length:] + one[: length - 1] for one in (sums, mirrored))
    shifted = np.stack([own, own + beside], 1).reshape(-1, table.shape[-1])
    return _kinds_of_moves(length), np.concatenate([rolled, shifted, rolled_back]) - np.einsum("iid->d", table)


def _kinds_of_moves(length: int) -> list[tuple[bool, int, str]]:
    """What the moves are, in the order of their effects."""
    around = [by if 2 * by <= length else by - length for by in range(1, length)]
    shifted = [(False, by, fill) for by in range(1 - length, length) if by for fill in LINEAR[1:]]
    return [*((False, by, LINEAR[0]) for by in around), *shifted, *((True, by, LINEAR[0]) for by in around)]


def _sum_diagonals(table: np.ndarray) -> np.ndarray:
    """The sum over i of [i, i + k] for each k from 1 - length on: (2 length - 1, directions)."""
    length = table.shape[0]
    sums = np.zeros((2 * length - 1, table.shape[-1]))
    for index in reversed(range(length)):
        sums[length - 1 - index : 2 * length - 1 - index] += table[index]
    return sums
