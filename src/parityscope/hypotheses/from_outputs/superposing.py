"""Which two of the edits that were tried could make the whole error together, where what both do is the sum of what each does.

Every edit that was tried has shown its response, even one that explains nothing alone. Where two changes meet only behind both,
their responses nearly add up, so that all pairs are judged by the products of these responses at once, and the best are run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.hypotheses.from_outputs.trying import TriedGuess

_LENGTH = 1024  # numbers of a response that are kept; of more, sums with random signs. Chosen
_SAME = 1e-6  # of the squared response: two that differ by less are one; chosen
_MOST = 600  # responses of which all pairs are looked at; chosen
_BIT, _MOST_BITS = 0.015, 16.0  # of the share, for each bit that an edit takes to say, up to so many; chosen
_FREE = (0.2, 5.0)  # times which a fitted change may be larger beside another one; chosen


class ResponseSketch:
    """Makes responses short: floats of any length to `_LENGTH` numbers at most, products nearly as they were."""

    def __init__(self, numbers: int) -> None:
        rows = -(-numbers // _LENGTH)
        self._signs = (
            np.random.default_rng(0).choice(np.array([-1, 1], np.float32), (rows, _LENGTH)) if rows > 1 else None
        )

    def of(self, response: np.ndarray) -> np.ndarray:
        """Float32, (`_LENGTH` or fewer,)."""
        short = response.astype(np.float32, copy=False)
        if self._signs is None:
            return short
        table = np.zeros(self._signs.shape, np.float32)
        table.ravel()[: short.size] = short
        return np.asarray(np.einsum("ij,ij->j", table, self._signs))


def rank_pairs(
    tried: Sequence[TriedGuess], wanted: np.ndarray, most: int
) -> list[tuple[TriedGuess, TriedGuess, float]]:
    """Pairs at different steps with the part of the squared error that their sum explains, the best first, for their length.

    `wanted` is the error's own sketch. A change with a fitted number may be larger or smaller beside another one.
    """
    held = _different_ones([one for one in tried if one.sketch is not None and np.isfinite(one.sketch).all()])
    size = float(wanted @ wanted)
    if len(held) < 2 or size <= 0:
        return []
    table = np.stack([one.sketch for one in held if one.sketch is not None]).astype(np.float64)
    products, along = table @ table.T, table @ wanted
    fitted = np.array([one.guess.family is not None for one in held])
    explained = _explained_by_sums(products, along, fitted) / size
    steps = np.array([one.guess.site.step.index for one in held])
    explained[steps[:, None] == steps[None]] = -np.inf
    explained[np.tril_indices(len(held))] = -np.inf
    words = price_of_words(np.array([one.edit.bits for one in held]))
    order = np.argsort(words[:, None] + words[None] - explained, axis=None)[:most]
    ones, others = np.unravel_index(order, explained.shape)
    return [
        (held[one], held[other], float(explained[one, other]))
        for one, other in zip(ones, others, strict=True)
        if explained[one, other] > 0
    ]


def price_of_words(bits: np.ndarray) -> np.ndarray:
    """The share of the error that an edit must explain more for the bits that it takes to say."""
    return np.asarray(_BIT * np.minimum(bits, _MOST_BITS))


def _different_ones(tried: Sequence[TriedGuess]) -> list[TriedGuess]:
    """One of those whose responses are the same, the shortest; those that explain most first."""
    order = sorted(tried, key=lambda one: (-round(one.explained, 6), one.edit.bits))
    kept: list[TriedGuess] = []
    table = np.zeros((min(len(order), _MOST), order[0].sketch.size if order and order[0].sketch is not None else 0))
    sizes = np.zeros(len(table))
    for one in order:
        if len(kept) == _MOST or one.sketch is None:
            break
        row = one.sketch.astype(np.float64)
        size = float(row @ row)
        if not size:
            continue
        count = len(kept)
        apart = sizes[:count] + size - 2 * (table[:count] @ row)
        if count and float(apart.min()) <= _SAME * size:
            continue
        table[count], sizes[count] = row, size
        kept.append(one)
    return kept


def _explained_by_sums(products: np.ndarray, along: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """The squared error that each two take away, float64 (changes, changes): 2 <r, d> - <d, d> of their sum d."""
    own = np.diag(products)
    first, second = np.ones_like(products), np.ones_like(products)
    for _ in range(4):  # of two fitted ones each in turn: two numbers need no solver
        best = np.clip((along[:, None] - second * products) / own[:, None], *_FREE)
        first = np.where(fitted[:, None], best, 1.0)
        best = np.clip((along[None] - first * products) / own[None], *_FREE)
        second = np.where(fitted[None], best, 1.0)
    gained = 2 * (first * along[:, None] + second * along[None])
    taken = first**2 * own[:, None] + second**2 * own[None] + 2 * first * second * products
    return np.where(np.isfinite(gained - taken), gained - taken, -np.inf)
