"""What error is to be expected, of each tensor, in each arithmetic; and the grade of a measured one.

* `expecting`: formats and the FP32 noise floor, as worlds of one pass;
* `grades`   : measured and expected errors -> grades;
* `records`  : what is to be expected.

`expecting` is imported by who asks: it brings the evaluator, and an output that agrees to the last bit needs none.
"""

from __future__ import annotations

from parityscope.expectation.grades import (
    FLOAT32_ROUNDING,
    FORMATS,
    distance,
    grade_of,
    graded_error,
    margin_of,
)
from parityscope.expectation.records import FAR, Expectation, Reference

__all__ = [
    "FAR",
    "FLOAT32_ROUNDING",
    "FORMATS",
    "Expectation",
    "Reference",
    "distance",
    "grade_of",
    "graded_error",
    "margin_of",
]
