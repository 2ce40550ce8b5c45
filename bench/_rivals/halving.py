"""Segment halving, the search of onnxconverter-common's auto mixed precision, on the faithful simulation.

As auto_mixed_precision.py (1.16.0) does: the largest segment of consecutive nodes that is undecided is tried low beside those
that are low already; where that fails it is cut in half, and a single node stays in FP32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from _rivals.replaying import Replay


def choose(replay: Replay) -> np.ndarray | None:
    """The assignment it ends with, None if not even all of FP32 passes."""
    low = np.zeros(replay.count, np.bool_)
    if not replay.passes(low):
        return None
    open_segments = [(0, replay.count)]
    while open_segments:
        begin, end = max(open_segments, key=lambda segment: segment[1] - segment[0])
        open_segments.remove((begin, end))
        tried = low.copy()
        tried[begin:end] = True
        if replay.passes(tried):
            low = tried
        elif end - begin > 1:
            middle = begin + (end - begin) // 2
            open_segments += [(begin, middle), (middle, end)]
    return low
