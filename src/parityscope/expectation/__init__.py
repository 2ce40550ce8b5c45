"""What error is to be expected, of each tensor, in each arithmetic; and the grade of a measured one.

* `expecting`  : formats and the FP32 noise floor, as worlds of one pass (`metering`; `error_model`, `variances`, `ulps` and
  `disturbing` for the floor);
* `grades`     : measured and expected errors -> grades;
* `forecasting`: what each format will do to a model, of which there is no candidate (`lockstep`, `tallies`, `ranges`,
  `parameters`; `words` says it);
* `drawing`    : the error of outputs of few numbers, drawn several times;
* `records`, `forecasts`: what is to be expected, and what was found.

All but `grades` and the records are imported by who asks: they bring the evaluator, and an output that agrees to the last
bit needs none.
"""

from __future__ import annotations

from parityscope.expectation.grades import (
    BOTH_ROUND,
    FLOAT32_ROUNDING,
    FORMATS,
    distance_between,
    error_distance,
    grade_of,
    graded_error,
    largest_distance,
    margin_of,
)
from parityscope.expectation.records import FAR, Expectation, Reference

__all__ = [
    "BOTH_ROUND",
    "FAR",
    "FLOAT32_ROUNDING",
    "FORMATS",
    "Expectation",
    "Reference",
    "distance_between",
    "error_distance",
    "grade_of",
    "graded_error",
    "largest_distance",
    "margin_of",
]
