"""The result plus several of the tensors near by at once, each times a fitted number: a sparse regression, term by term.

Each term is the one that is most along what the terms before it left (orthogonal matching pursuit: Y. Pati, R. Rezaiifar,
P. Krishnaprasad, Asilomar 1993); begun with each of the likeliest, since the first choice may be wrong where tensors are alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import round_to_nice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.hypotheses.stretch import ComputedStretch

    Get = Callable[[ComputedStretch, int], np.ndarray]

_MOST_TERMS = 3  # chosen: each costs a number and a name
_STARTS = 4  # first terms that are tried; chosen
_ELEMENTS = 4096  # that terms are fitted to; chosen
_MOST_SOURCES = 256  # chosen
_WORTH = 0.9  # of the squared error that a fit must explain to be said
_TOLD = 1e-6  # of the squared error: what fewer terms leave so little of needs no more; chosen
_ALIKE = 1e-9  # of its size: what of a tensor is left beside others says nothing of its own


def say_term(words: str, times: float) -> str:
    """What adding a tensor so many times is called."""
    return {-1.0: f"{words} left out", 1.0: f"{words} added once more"}.get(times, f"{times:.6g} times {words} added")


def edits_with_several(
    stretch: ComputedStretch, places: np.ndarray, sources: Sequence[tuple[str, Get]]
) -> Iterator[StretchEdit]:
    """Two or three terms out of `sources` (words and how to get them), and the result itself, scaled; fitted at `places`."""
    places = places[:: max(1, places.size // _ELEMENTS)]
    x, y = (side[0].ravel()[places] for side in (stretch.replayed, stretch.found))
    error = float(np.square(y - x).sum())
    if not error or places.size <= 2 * _MOST_TERMS:
        return
    named: list[tuple[str, Get]] = [("the result", lambda one, sample: one.replayed[sample]), *sources][:_MOST_SOURCES]
    columns = [x, *(_column_of(stretch, get, places) for _, get in named[1:])]
    kept = [place for place, one in enumerate(columns) if np.isfinite(one).all() and one.any()]
    table = np.stack([columns[place] for place in kept], 1) if kept else np.zeros((places.size, 0))
    said: set[tuple[int, ...]] = set()
    for first in _likeliest_terms(table, y - x)[:_STARTS]:
        terms = [first]
        for _ in range(_MOST_TERMS - 1):
            values = np.linalg.lstsq(table[:, terms], y - x, rcond=None)[0]
            rest = y - x - table[:, terms] @ values
            more = _likeliest_terms(_without(table, terms), rest)
            if not more or more[0] in terms or float(np.square(rest).sum()) < _TOLD * error:
                break
            terms.append(more[0])
            values = np.linalg.lstsq(table[:, terms], y - x, rcond=None)[0]
            left = float(np.square(y - x - table[:, terms] @ values).sum())
            nothing = any(round_to_nice(float(value))[0] == 0 for value in values)
            if left < (1 - _WORTH) * error and not nothing and tuple(sorted(terms)) not in said:
                said.add(tuple(sorted(terms)))
                yield _edit_of_terms([named[kept[place]] for place in terms], values, len(kept))


def _column_of(stretch: ComputedStretch, get: Get, places: np.ndarray) -> np.ndarray:
    shape = stretch.replayed[0].shape
    return np.asarray(np.broadcast_to(get(stretch, 0), shape).flat[places], np.float64)


def _without(table: np.ndarray, terms: Sequence[int]) -> np.ndarray:
    """What of each column lies beside some of them."""
    some = table[:, list(terms)]
    rest = table - some @ np.linalg.lstsq(some, table, rcond=None)[0]
    alike = np.square(rest).sum(0) <= _ALIKE * np.square(table).sum(0)
    return np.where(alike, 0.0, rest)


def _likeliest_terms(table: np.ndarray, rest: np.ndarray) -> list[int]:
    """Columns by how much of the rest each explains alone, most first; those that explain nothing left out."""
    squares = np.square(table).sum(0)
    explained = np.square(rest @ table) / np.where(squares > 0, squares, np.inf)
    return [int(place) for place in np.argsort(-explained) if explained[place] > 0]


def _edit_of_terms(named: Sequence[tuple[str, Get]], values: np.ndarray, count: int) -> StretchEdit:
    nice = [round_to_nice(float(value)) for value in values]
    terms = [(get, times) for (_, get), (times, _) in zip(named, nice, strict=True)]
    said = [
        f"the result scaled by {1 + times:.6g}" if words == "the result" else say_term(words, times)
        for (words, _), (times, _) in zip(named, nice, strict=True)
    ]

    def whole(one: ComputedStretch, sample: int) -> np.ndarray:
        found = one.replayed[sample]
        for get, times in terms:
            found = found + times * get(one, sample)
        return found

    return StretchEdit(
        words="; and ".join(said),
        bits=5 + len(named) * math.log2(max(count, 2)) + sum(bits for _, bits in nice),
        whole=whole,
        numbers={f"times {words}": times for (words, _), (times, _) in zip(named, nice, strict=True)},
    )
