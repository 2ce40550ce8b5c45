"""Delta debugging (Zeller and Hildebrandt, TSE 2002, ddmin): a set of FP32 nodes none of which can be left out.

The set starts as all nodes. It is cut into n parts; a part that passes alone, or the rest without one part, takes its place;
where neither passes n doubles, until the parts are single nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _rivals.replaying import Replay


def choose(replay: Replay) -> np.ndarray | None:
    """The assignment that leaves a 1-minimal set in FP32, None if not even all of FP32 passes."""
    kept = np.arange(replay.count)
    if not replay.passes(_low(replay.count, kept)):
        return None
    if replay.passes(_low(replay.count, kept[:0])):
        return _low(replay.count, kept[:0])
    parts = 2
    while kept.size >= 2:
        for smaller, following in _smaller(kept, parts):
            if replay.passes(_low(replay.count, smaller)):
                kept, parts = smaller, following
                break
        else:
            if parts >= kept.size:
                break
            parts = min(2 * parts, kept.size)
    return _low(replay.count, kept)


def _smaller(kept: np.ndarray, parts: int) -> Iterator[tuple[np.ndarray, int]]:
    """The parts, then what is left without each of them, with the granularity that follows."""
    pieces = np.array_split(kept, parts)
    for piece in pieces:
        yield piece, 2
    if parts > 2:
        for number in range(parts):
            yield np.concatenate([*pieces[:number], *pieces[number + 1 :]]), max(parts - 1, 2)


def _low(count: int, kept: np.ndarray) -> np.ndarray:
    low = np.ones(count, np.bool_)
    low[kept] = False
    return low
