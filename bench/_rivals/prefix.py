"""Polygraphy's `debug precision`, mode bisect: the first k nodes in FP32, k by bisection.

As polygraphy/tools/debug/subtool/precision.py (0.53.6) does with TensorRT layers: it takes for granted that more FP32 nodes
never make it worse. Its answer is the least k that passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from _rivals.replaying import Replay


def choose(replay: Replay) -> np.ndarray | None:
    """The assignment with the least prefix in FP32, None if not even all of FP32 passes."""
    places = np.arange(replay.count)
    good, bad, k = replay.count, 0, replay.count
    while True:
        passed = replay.passes(places >= k)
        if passed:
            good = k
        elif k == replay.count:
            return None
        else:
            bad = k
        following = (good + bad) // 2 if passed else -(-(good + bad) // 2)
        if following == k or abs(good - bad) <= 1:
            return places >= good
        k = following
