"""The candidate does not give the same answer twice.

What goes wrong: a race, an output that is not fully written, uninitialized memory, atomics in a reduction, or a random
operator. Before anything is blamed on arithmetic, the candidate's own spread must be known.

How it shows: two runs on the same input differ.

How we test for it: the candidate is run twice on the first sample before anything else; the spread is the worst
relative L2 distance between the two over all outputs. It is reported when it exceeds FP32 rounding. Eight more pairs of runs,
over the first eight samples, then tell which part of the squared error changes from run to run: it is a cause when the runs
are at least half as far from each other as from the reference.

What it is confused with: reduced precision, which is the same each time.

How to repair: ask the runtime for deterministic kernels; check that every output buffer is written and waited for; fix
the seed of random operators.

Sources: NVIDIA TensorRT documentation on determinism; PyTorch's notes on reproducibility.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import is_mostly_variation
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination


def _propose_claims(known: Examination) -> Iterator[Claim]:
    # Two runs of the same instructions differ by nothing at all.
    if known.compared.spread <= FLOAT32_ROUNDING:
        return
    yield Claim(
        words="the candidate gives different answers for the same input",
        predicts=Prediction(
            change="none: run it twice on the first sample, and where the two differ twice more on up to eight",
            measure="worst relative L2 distance between two runs over the outputs; part of the squared error that changes",
            if_true=f"above one FP32 rounding error ({format_number(FLOAT32_ROUNDING)})",
            if_false="zero",
        ),
        test=lambda: _show_finding(known, f"the two runs differ by {format_number(known.compared.spread)}"),
    )


def _show_finding(known: Examination, because: str) -> Shown:
    errors = [pair.value("rel_l2") for pair in known.outputs]
    worst = max((error for error in errors if not np.isnan(error)), default=0.0)
    return Shown(
        because=because,
        role="cause" if is_mostly_variation(known) else "contributing",
        sentence=f"Two runs of the candidate on the same sample differ by {format_number(known.compared.spread)} (relative L2); "
        f"its error against the reference is {format_number(worst)}, of whose square {known.compared.changing:.0%} changes "
        "from run to run.",
        confidence=1.0,
        confidence_from="measured by repetition",
        share=known.compared.changing,
        repairs=(
            (
                "determinism",
                "check that every output is written and waited for; ask the runtime for deterministic kernels",
            ),
        ),
        details={"spread": known.compared.spread, "changing": known.compared.changing},
    )


_RANDOM = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  noise = RandomNormalLike(x)
  y = Add(x, noise)
}"""
_PLAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }"""
_X = np.ones((1, 8), np.float32)

CHECK = Check(
    code="RUN001",
    title="The candidate does not give the same answer twice",
    propose=_propose_claims,
    holds=(Example(model=_RANDOM, inputs={"x": _X}, candidate="ort?optimization=disabled"),),
    holds_not=(Example(model=_PLAIN, inputs={"x": _X}, candidate="ort?optimization=disabled"),),
)
