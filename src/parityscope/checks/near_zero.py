"""A relative tolerance fails where the reference is nearly zero.

What goes wrong: |c - r| is held against rtol |r| in every element. Where a sum cancels, r is nearly zero and the rounding
of its terms is not: any arithmetic fails there, by factors of a million, and the failure means nothing.

How it shows: a largest relative difference of 1e6 beside a largest absolute one of 0.1; few elements fail, all of them small.

How we test for it: no run. Of the elements outside the tolerance at least 99 % must be smaller than a hundredth of the
output's root mean square, while the error of the output as a whole (relative L2) is what the declared arithmetic
explains.

What it is confused with: a budget below FP32's own noise (DAT006), which fails at large elements too; an output whose small
elements are what it is for (probabilities of rare classes): then raise nothing, and judge by the task's metric.

How to repair: give the tolerance an `atol` of the size of the output's rounding error, or judge by `rel_l2`.

Sources: NVIDIA/TensorRT issue 4361 (a largest relative difference of 3.9922e+06 from references near 1e-7); numerics
notes on element-wise tolerances in docs/numerics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.policy import budgets_for
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.expectation.grades import margin_of
from parityscope.plain_numbers import format_number
from parityscope.records import Budget, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.bench import Bench
    from parityscope.examination import Examination
    from parityscope.records import Pair

_SMALL = 0.01  # of the root mean square: there a relative error of 1e-3 is 1e-5 of the output's size. Chosen
_MOSTLY = 0.99
_RELATIVE = ("ulp_max", "ulp_mean")  # metrics that count in units of the element


def outside_of(reference: np.ndarray, candidate: np.ndarray, tolerance: Tolerance) -> tuple[int, int]:
    """Elements outside of `tolerance`, and how many of those are small (float arrays of one shape)."""
    r, c = (np.asarray(each, np.float64) for each in (reference, candidate))
    with np.errstate(invalid="ignore", over="ignore"):
        outside = ~(np.abs(c - r) <= tolerance.atol + tolerance.rtol * np.abs(r))
    root = float(np.sqrt(np.square(r[np.isfinite(r)]).mean())) if np.isfinite(r).any() else 0.0
    return int(outside.sum()), int((outside & (np.abs(r) < _SMALL * root)).sum())


def _propose_claims(known: Examination) -> Iterator[Claim]:
    if known.bench is None or known.policy is None:
        return
    for pair in known.outputs:
        if pair.verdict != "beyond" or pair.nonfinite_candidate or pair.nonfinite_reference:
            continue
        budgets = [one for one in budgets_for(known.policy, pair.site.tensor) if _is_relative(one)]
        if budgets and pair.dtype.startswith(("float", "bfloat")):
            yield _make_claim(known, known.bench, pair, budgets[0])


def _is_relative(budget: Budget) -> bool:
    return budget.metric in _RELATIVE or (budget.tolerance is not None and budget.tolerance.rtol > 0)


def _make_claim(known: Examination, bench: Bench, pair: Pair, budget: Budget) -> Claim:
    return Claim(
        words=f"output {pair.site.tensor} fails only where the reference is nearly zero",
        predicts=Prediction(
            measure=f"elements outside that are below {format_percent(_SMALL)} of the output's root mean square",
            if_true=f"at least {format_percent(_MOSTLY)} of them, and the whole is as its arithmetic explains",
            if_false="large elements fail too",
        ),
        test=lambda: _test_claim(known, bench, pair, budget),
    )


def _test_claim(known: Examination, bench: Bench, pair: Pair, budget: Budget) -> Shown:
    output = pair.site.tensor
    allowed = max(
        (pair.expected[name] * margin_of(name) for name in ("f32", known.declared) if name in pair.expected),
        default=0.0,
    )
    measured = pair.value("rel_l2")
    if not measured <= allowed:
        because = f"the whole is off by {format_number(measured)}, and the arithmetic explains {format_number(allowed)}"
        return _show_refuted(measured, because)
    # A step of the format at an element is a relative error: 2^-23 of it in float32.
    tolerance = budget.tolerance or Tolerance(atol=0.0, rtol=budget.limit * 2.0**-23)
    outside = small = 0
    for index in bench.samples:
        reference, candidate = bench.reference(index).get(output), bench.candidate(index).get(output)
        if reference is not None and candidate is not None and reference.shape == candidate.shape:
            found = outside_of(reference, candidate, tolerance)
            outside, small = outside + found[0], small + found[1]
    if not outside or small < _MOSTLY * outside:
        return _show_refuted(measured, f"of {outside:,} elements outside, {small:,} are nearly zero")
    because = (
        f"{small:,} of the {outside:,} elements outside are below {format_percent(_SMALL)} of the output's root mean square; the "
        f"whole is off by {format_number(measured)} (relative L2), and the arithmetic explains {format_number(allowed)}"
    )
    return Shown(
        because=because,
        before=measured,
        after=allowed,
        sentence=f"Output {output} fails only where the reference is nearly zero: {because}.",
        confidence=small / outside,
        confidence_from="the share of the elements outside that are nearly zero",
        site=pair.site,
        share=1.0,
        repairs=(
            (
                "judge_the_whole",
                "give the tolerance an atol of the size of the rounding error, or judge by relative L2",
                f"--budget {output}:rel_l2={allowed:.2g}",
            ),
        ),
        details={"outside": outside, "small": small},
    )


def _show_refuted(measured: float, because: str) -> Shown:
    return Shown(because=because, outcome="refutes", before=measured, after=measured)


# Differences of large numbers: some are nearly zero, and their error is that of the large ones.
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4096] x) => (float[1,4096] y) {
  a = Mul(x, x)
  y = Sub(a, one)
}"""
_ONE = {"one": np.ones(1, np.float32)}
_X = {"x": np.linspace(0.0, 3.0, 4096, dtype=np.float32)[None]}
_RTOL = (Budget(output="", metric="outside", limit=0, reason="an example", tolerance=Tolerance(atol=0, rtol=0.5)),)
_TIGHT = (Budget(output="", metric="outside", limit=0, reason="an example", tolerance=Tolerance(atol=0, rtol=1e-4)),)

CHECK = Check(
    code="DAT008",
    title="A relative tolerance fails where the reference is nearly zero",
    propose=_propose_claims,
    holds=(Example(model=_MODEL, inputs=_X, constants=_ONE, candidate="sim:bf16", budgets=_RTOL, site="y"),),
    holds_not=(
        # Large elements fail too; the whole is wrong; no budget.
        Example(model=_MODEL, inputs=_X, constants=_ONE, candidate="sim:bf16", budgets=_TIGHT),
        Example(model=_MODEL, inputs=_X, constants=_ONE, candidate="sim:bf16", declared="f32", budgets=_RTOL),
        Example(model=_MODEL, inputs=_X, constants=_ONE, candidate="sim:bf16"),
    ),
)
