"""Ranking by one sample: nodes in the order of their own squared error there, the first k of them in FP32.

One run for each node (it alone low), then bisection on k with the same sample. Many tools for mixed precision rank so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from _rivals.replaying import Replay


def choose(replay: Replay) -> np.ndarray | None:
    """The assignment with the fewest of the first in FP32 that passes, None if not even all of FP32 does."""
    alone = np.eye(replay.count, dtype=np.bool_)
    errors = np.array([replay.squared(alone[place]) for place in range(replay.count)])
    order = np.argsort(-np.nan_to_num(errors, nan=np.inf), kind="stable")  # an error without a number comes first

    def kept(number: int) -> np.ndarray:
        low = np.ones(replay.count, np.bool_)
        low[order[:number]] = False
        return low

    if not replay.passes(kept(replay.count)):
        return None
    least, most = 0, replay.count
    while least < most:
        middle = (least + most) // 2
        if replay.passes(kept(middle)):
            most = middle
        else:
            least = middle + 1
    return kept(most)
