"""Too few samples for the claim that the deployment is within.

What goes wrong: one good sample is taken for a proof. A failure that one input in twenty reaches is not in five samples more
often than not.

How it shows: "within" on a handful of samples, complaints from the field.

How we test for it: no run. Of n samples within, none beyond, the 95 % upper bound of the share that is beyond is
1 - 0.05^(1/n), about 3/n (the rule of three). It is told when the user set the budget, and, where the declared arithmetic
judges, when the errors of the samples differ by more than four times what separates the worst of them from the limit.

What it is confused with: nothing; it is arithmetic about the number of samples, which are taken to be drawn as real ones are.

How to repair: give more samples: 59 within bound the share at 5 %, 299 at 1 %.

Sources: J. A. Hanley and A. Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249, 1983.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.policy import budgets_for
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.expectation.grades import margin_of
from parityscope.plain_numbers import format_number
from parityscope.records import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination
    from parityscope.records import Pair

_CONFIDENCE = 0.95
# How many times what is left to the limit the errors of samples must differ. Chosen: what a format costs on a sample is
# predicted, and what is left of that is at most its margin of two.
_FAR = 4.0
_SHARE = 0.05  # chosen: a share of failures that nobody would accept unseen


def upper_bound(samples: int) -> float:
    """The 95 % upper bound of the share of samples beyond, when none of `samples` is: 1 - 0.05^(1/n)."""
    return 1.0 - math.pow(1.0 - _CONFIDENCE, 1.0 / samples)


def _propose_claims(known: Examination) -> Iterator[Claim]:
    count = len(known.inputs)
    bound = upper_bound(count)
    if known.verdict != "within" or known.inputs.generated or bound <= _SHARE:
        return
    why = next((why for pair in known.outputs if (why := _why_number_matters(known, pair))), "")
    if not why:
        return
    because = f"{count} of {count} samples are within, so at most {format_percent(bound)} are beyond (95 %)"
    yield Claim(
        words=f"{count} samples do not carry the claim",
        predicts=Prediction(
            measure="the 95 % upper bound of the share of samples beyond",
            if_true=f"above {format_percent(_SHARE)}",
            if_false="below",
        ),
        test=lambda: _show_finding(count, bound, why, f"{because}; {why}"),
    )


def _why_number_matters(known: Examination, pair: Pair) -> str:
    """Why the number of samples matters for this output; "" where what is left to the limit is ample."""
    budgets = budgets_for(known.policy, pair.site.tensor) if known.policy is not None else ()
    if any(one.metric in pair.measurements for one in budgets):
        return f"output {pair.site.tensor} is judged by a budget, about which arithmetic knows nothing"
    errors = [error for error in pair.per_sample if error > 0 and math.isfinite(error)]
    expected = pair.expected.get(known.declared)
    if len(errors) < 2 or expected is None or max(errors) <= pair.expected.get("f32", 0.0) * margin_of("f32"):
        return ""
    spread, left = max(errors) / min(errors), expected * margin_of(known.declared) / max(errors)
    if spread <= _FAR * left:
        return ""
    return (
        f"the errors of output {pair.site.tensor} differ by a factor of {format_number(spread)} between samples, and "
        f"{format_number(left)} is left to the limit"
    )


def _show_finding(count: int, bound: float, why: str, because: str) -> Shown:
    needed = math.ceil(math.log(1.0 - _CONFIDENCE) / math.log(1.0 - _SHARE))
    return Shown(
        because=because,
        role="information",
        sentence=f"{because[0].upper()}{because[1:]}.",
        confidence=_CONFIDENCE,
        confidence_from="the binomial distribution",
        repairs=(
            ("more_samples", f"give more real samples: {needed} within bound the share at {format_percent(_SHARE)}"),
        ),
        details={"samples": count, "upper_bound": bound, "why": why},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => (float[N,64] y) { y = Tanh(x) }"""
_X = {"x": np.random.default_rng(62).normal(size=(3, 64)).astype(np.float32)}
_MANY = {"x": np.random.default_rng(62).normal(size=(59, 64)).astype(np.float32)}
_BUDGET = (Budget(output="", metric="rel_l2", limit=0.1, reason="an example"),)

CHECK = Check(
    code="DAT005",
    title="Too few samples for the claim",
    propose=_propose_claims,
    holds=(Example(model=_MODEL, inputs=_X, candidate="sim:bf16", budgets=_BUDGET),),
    holds_not=(
        # 59 samples are enough; FP32 against FP32 is judged by arithmetic, not by luck; beyond is beyond.
        Example(model=_MODEL, inputs=_MANY, candidate="sim:bf16", budgets=_BUDGET),
        Example(model=_MODEL, inputs=_X, candidate="ort?optimization=disabled"),
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", declared="f32"),
    ),
)
