"""A second look at an output that is beyond its expectation by little: what the declared format costs, over several draws.

The error of an output is one draw, and so is what the simulation predicts of it (`expectation.drawing`). Where few numbers decide
about an output, say as many as a chi-square of 3 degrees of freedom has, two draws differ by more than the margin of
the grades (a factor of 2) once in 7 times. From the root mean square of nine draws one differs so much once in 57 times (of 2
degrees of freedom once in 27, of 8 once in 1,700). So an output that would be called beyond by less than `_FAR` margins is
held against the root mean square of `_DRAWS` draws more. So is, however far it is off, an output with as many rows as values
decide: a box that is kept or not by a hair is an error of its own size, in FP32 too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.expectation.grades import FORMATS, margin_of
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.comparison.rows import Align
    from parityscope.expectation.records import Expectation
    from parityscope.records import Policy

# With 3 degrees of freedom a first draw is a third of the root mean square or less once in 20 times; what is farther off is no
# bad luck. Chosen.
_FAR = 3.0
# The root mean square of 8 draws of 3 degrees of freedom each is known to 14 % (sqrt(1 / (2 * 24))).
_DRAWS = 8


def redraw_doubtful(
    model: Model,
    inputs: Inputs,
    samples: Sequence[int],
    expectation: Expectation,
    measured: Mapping[str, float],
    policy: Policy,
    align: Align,
    progress: Progress,
) -> Expectation:
    """`expectation` with the errors of doubtful outputs in the declared format pooled over more draws.

    Nothing is drawn where no output is in doubt, or one is beyond any doubt.
    """
    declared, counted = policy.declared, {one.name for one in policy.counted}
    first = expectation.errors.get(declared, {})
    if declared not in FORMATS and not (declared == "f32" and counted):
        return expectation
    margin = margin_of(declared)
    known = {name: error for name, error in measured.items() if first.get(name, 0.0) > 0.0}
    doubtful = [name for name, error in known.items() if error > margin * first[name]]
    doubtful = [name for name in doubtful if name in counted or declared in FORMATS]
    sure = (known[name] > _FAR * margin * first[name] for name in doubtful if name not in counted)
    if not doubtful or any(sure):
        return expectation
    from parityscope.expectation.drawing import drawn_errors, drawn_outputs

    try:
        drawn = drawn_outputs(
            model, inputs, samples, declared, doubtful, _DRAWS, bounded=False, align=align, progress=progress
        )
        found = drawn_errors(drawn, doubtful, _DRAWS)
    except ParityError as error:
        skip = Skip(what=f"more draws of the error that {declared} makes", reason=error.problem, fix=error.fix)
        return replace(expectation, skipped=(*expectation.skipped, skip))
    pooled = {
        name: math.sqrt((first[name] ** 2 + sum(e**2 for e in each)) / (1 + _DRAWS)) for name, each in found.items()
    }
    sound = {name: error for name, error in pooled.items() if math.isfinite(error)}
    return replace(expectation, errors={**expectation.errors, declared: {**first, **sound}})
