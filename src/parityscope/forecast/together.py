"""Runs the reference and one simulation of it as one graph that measures itself (`joining`), sample by sample.

Tensors that depend on no input are measured once. Tensors that operators cannot measure (integers, float64) are given back
and measured here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends._onnxruntime import open_session
from parityscope.backends.sim import prepare
from parityscope.errors import ParityError
from parityscope.forecast import observing
from parityscope.forecast._rows import Rows
from parityscope.forecast.joining import join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.backends._ort_running import Run
    from parityscope.case import Model
    from parityscope.forecast._rows import Crew
    from parityscope.forecast.joining import Joined
    from parityscope.forecast.tallies import Tally
    from parityscope.records import Skip, Target

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Pair", "opened"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Where:
    """Which rows are what `Joined` says, as arrays: bool, (n,), but for `thin`, which are places."""

    same: np.ndarray
    first: np.ndarray
    split: np.ndarray
    thin: np.ndarray
    copied: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, joined: Joined) -> _Where:
        """Finds them."""
        place = {name: at for at, name in enumerate(joined.watched)}

        def those(names: frozenset[str]) -> np.ndarray:
            return np.array([name in names for name in joined.watched], np.bool_)

        return cls(
            same=those(joined.same),
            first=those(joined.first),
            split=those(joined.same | joined.first | joined.replayed),
            thin=np.array([place[name] for name in joined.thin], np.intp),
            copied=tuple((place[name], place[source]) for name, source in joined.copied.items()),
        )

    def complete(self, rows: Rows, shapes: np.ndarray) -> tuple[Rows, np.ndarray]:
        """The rows of tensors, complete with what only other rows say of them, and their shapes."""
        for at, source in self.copied:  # in order, so that a shape of a shape finds its numbers
            for table in (rows.sums, rows.counts, rows.ends):
                table[at] = table[source]
        count = len(self.same)
        found = Rows(sums=rows.sums[:count], counts=rows.counts[:count], ends=rows.ends[:count])
        inherits = self.same.copy()
        inherits[self.thin] |= found.sums[self.thin, 4] == 0  # nothing was asked for, as e is what is stored
        # Where c is f(c_in) or e, it introduces nothing or nothing but what the weights do, and the rest is inherited.
        found.sums[inherits, 2], found.counts[inherits, 2:4] = 0, 0
        found.sums[inherits, 3:5] = found.sums[inherits, 0:2]
        found.counts[inherits, 4:6] = found.counts[inherits, 0:2]
        found.sums[self.first, 2], found.sums[self.first, 3] = found.sums[self.first, 0], 0
        found.sums[self.first, 4] = found.sums[self.first, 1]
        found.counts[self.first, 2:4], found.counts[self.first, 4:6] = found.counts[self.first, 0:2], 0
        if self.thin.size:
            self._weights(rows, found)
        return found, shapes[:count]

    def _weights(self, rows: Rows, found: Rows) -> None:
        """Adds what rounded weights introduce, which was measured at some positions, in rows behind the others.

        They change a layer's output by nearly the same share everywhere: the share of some positions is that of all.
        """
        at, count = self.thin, len(self.same)
        again, own = rows.sums[count::2], rows.sums[count + 1 :: 2]
        share = np.divide(again[:, 2:4] - own[:, 2:4], again[:, 4:], out=np.zeros((at.size, 2)), where=again[:, 4:] > 0)
        found.sums[at, 2:4] = np.maximum(found.sums[at, 2:4] + share * found.sums[at, 4:5], 0)
        more = rows.counts[count::2, 2:6] - rows.counts[count + 1 :: 2, 2:6]
        found.counts[at, 2:6] += np.maximum(more, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Graph:
    """A session, what it measures, and where it leaves that: as `observing.empty` gives it."""

    joined: Joined
    where: _Where
    run: Run
    raw: np.ndarray

    def measure(self, feeds: Arrays) -> _Measured:
        """One run."""
        given = self.run(feeds)
        rows, shapes = self.where.complete(*observing.collected(self.raw))
        return _Measured(rows=rows, shapes=shapes, given=given)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """What one run left."""

    rows: Rows
    shapes: np.ndarray
    given: Arrays


@dataclass(slots=True, kw_only=True)
class Pair:
    """The reference and one simulation. `static` is the graph of what depends on no input, which is run once.

    `unchained` opens the graph without chains, for samples of other shapes than those that chains were made for.
    """

    moving: _Graph
    unchained: Callable[[], _Graph] | None
    static: _Graph | None
    skipped: tuple[Skip, ...]
    once: _Measured | None = None

    def add(self, feeds: Arrays, tally: Tally, crew: Crew) -> None:
        """Runs one sample and adds what is measured to `tally`."""
        _add(self.moving, self._moved(feeds), tally, crew)
        if self.static is not None:
            self.once = self.static.measure(feeds) if self.once is None else self.once
            _add(self.static, self.once, tally, crew)
        for name in self.moving.joined.lacking:
            tally.problems.setdefault(name, "the simulation did not give it back")

    def _moved(self, feeds: Arrays) -> _Measured:
        try:
            return self.moving.measure(feeds)
        except ParityError:
            if self.unchained is None:
                raise
            self.moving, self.unchained = self.unchained(), None
            return self.moving.measure(feeds)


def opened(
    model: Model, target: Target, names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], *, introduced: bool
) -> Pair | None:
    """The sessions that measure `names`; None where this machine or this model does not allow it.

    `shapes` are those of tensors on the first sample, as far as they are known.

    Raises:
        ParityError: the model cannot be simulated so, or the runtime refuses the graph.
    """
    if not observing.available():
        return None
    moving, skipped = _graph(model, target, names, shapes, introduced=introduced)
    if moving is None:
        return None
    static = None
    if moving.joined.others:
        static, _ = _graph(model, target, moving.joined.others, {}, introduced=introduced, static=True)

    def unchained() -> _Graph:
        found, _ = _graph(model, target, names, shapes, introduced=introduced, chained=False)
        return moving if found is None else found

    return Pair(moving=moving, unchained=unchained if moving.joined.alive else None, static=static, skipped=skipped)


def _graph(
    model: Model,
    target: Target,
    names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    introduced: bool,
    static: bool = False,
    chained: bool = True,
) -> tuple[_Graph | None, tuple[Skip, ...]]:
    simulation, _, skipped = prepare(model, target, names)
    raw = observing.empty(3 * len(names))
    joined = join(
        model.graph(),
        simulation.model,
        names,
        raw.ctypes.data,
        shapes=shapes,
        introduced=introduced,
        static=static,
        chained=chained,
    )
    if joined is None:
        return None, ()
    run = open_session(joined.model, folder=model.path.parent)
    return _Graph(
        joined=joined, where=_Where.of(joined), run=run, raw=raw[: len(joined.watched) + 2 * len(joined.thin)]
    ), skipped


def _add(graph: _Graph, measured: _Measured, tally: Tally, crew: Crew) -> None:
    joined = graph.joined
    if joined.watched:
        tally.add_measured(joined.watched, measured.rows, measured.shapes, graph.where.split)
    if joined.given:
        r, c, f = (
            {
                name: measured.given[value]
                for name, values in joined.given.items()
                if (value := values[side]) is not None
            }
            for side in range(3)
        )
        tally.add(list(joined.given), r, c, f, crew)
