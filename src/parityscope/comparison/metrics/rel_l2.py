"""Relative L2 error: how large the error is beside the signal, over the whole tensor.

rel_l2 = |c - r| / |r|, the square root of the error's energy over the reference's. r = 0 gives 0 if c = 0, else
infinity. `rel_l2_finite` is the same over the pairs in which both values are finite.

Source: the default of this project (design.md, "Norms"); its square is PPQ's NSR and its logarithm an SNR.

Known faults, and what is done: a NaN in the candidate is dropped by tools that mask it, so here any value that is
non-finite on one side only makes it infinite; PPQ and coremltools add an epsilon to the denominator, which hides errors
of small signals, so here there is none; and one dead channel of 256 hardly moves it, which `worst_channel` shows.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    floats = statistics.floats
    if floats is None:
        return None
    return (
        Measurement(
            metric="rel_l2",
            value=statistics.rel_l2,
            unit="relative",
            count=statistics.count,
            worst_index=floats.first_disagreeing if floats.disagreeing else None,
        ),
        Measurement(metric="rel_l2_finite", value=statistics.rel_l2_finite, unit="relative", count=floats.finite),
    )


METRIC = Metric(name="rel_l2", unit="relative", better="lower", perfect=0.0, finish=_finish)
