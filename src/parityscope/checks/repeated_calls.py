"""The error grows from call to call where outputs are fed back.

What goes wrong: a recurrent network, a denoising loop or a decoder with a cache is called on its own results. What one call
rounds, the next one amplifies. No layer is wrong, every single call is as good as its arithmetic, and after fifty calls
nothing is left of the answer.

How it shows: good in the layer-by-layer comparison, good on one call, wrong in use; the longer the sequence the worse.

How we test for it: with `--state OUTPUT=INPUT` both sides are called `--steps` times, each with its own state. Every call is
taken apart exactly: what it introduces, g(c) - f(c), and what it inherits, f(c) - f(r). The gain is what is inherited
over the error before the call. It grows where some call's error is more than twice the first one's, most of it inherited, and
the last call's is not less than half of that: an error that shrinks again is forgotten by the loop and has another cause.
The linear regime ends at the first call in which half of the error does not inherit half.
Each call is also made on what the reference had (teacher-forced): what it errs by there it does by itself.
An honest deployment of the declared arithmetic is called along: an error of more than four times its own is beyond.

What it is confused with: a state that is reset, bound wrongly or fed back a call late: then the first calls are wrong by far
more than any arithmetic explains. A chaotic network, whose honest deployment parts as fast: that is told, not blamed.

How to repair: keep the state, and the products that update it, in a wider format (sums in FP32 were what mended the public
case); feed back what the reference would where that is known (teacher forcing); shorten the loop.

Sources: jetson-ai-lab pull request 368 (cosine 0.395 to 0.9956 with FP32 accumulation, ten denoising steps); N. J. Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, chapter 17, on errors of iterations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.localization.calls import CURVED, HONEST, first_beyond
from parityscope.plain_numbers import format_number
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.localization.calls import CallStep, Growth

_GROWN = 2.0  # times the first call's error. Chosen: less is what the roundings of a call happen to add up to
# Of the error at a call that is introduced there, and not inherited: then it is that call's own. Half, as for layers.
_OWN = 0.5


def _propose_claims(growth: Growth) -> Iterator[Claim]:
    if not growth.steps:
        return
    yield Claim(
        words="the error grows over repeated calls",
        predicts=Prediction(
            change=f"call both sides {len(growth.steps)} times, each with its own state",
            measure="error of the state behind each call, introduced and inherited",
            if_true=f"more than {_GROWN:g} times that of the first call, most of it inherited, and it stays so",
            if_false="it stays as it is after one call, or shrinks again",
        ),
        test=lambda: _test_claim(growth),
    )


def _test_claim(growth: Growth) -> Shown:
    first, last = growth.steps[0], growth.steps[-1]
    worst = max(growth.steps, key=lambda step: step.error)
    grown = worst.error > _GROWN * first.error and worst.introduced < _OWN * worst.error
    grown = grown and worst.error <= _GROWN * last.error
    because = _describe_growth(growth, first, last)
    outcome = "supports" if grown else "refutes"
    seen = Shown(because=because, outcome="supports" if grown else "refutes", before=first.error, after=worst.error)
    if outcome == "refutes":
        return seen
    return _show_finding(growth, first, worst, seen)


def _describe_growth(growth: Growth, first: CallStep, last: CallStep) -> str:
    said = f"the state is off by {format_number(first.error)} after one call and {format_number(last.error)} after {last.call}"
    if growth.factor > 1.0:
        said += f", {growth.factor:.3g} times as much with each"
    if growth.leaves is not None:
        said += f"; from call {growth.leaves} on it is no longer linear (a share of {CURVED:g} is curved)"
    forced = [step.forced for step in growth.steps if not math.isnan(step.forced)]
    if forced:
        said += f"; on the reference's own states a call is off by at most {format_number(max(forced))}"
    if not math.isnan(last.expected):
        said += f"; an honest deployment of the declared arithmetic is off by {format_number(last.expected)} there"
    return said


def _show_finding(growth: Growth, first: CallStep, worst: CallStep, seen: Shown) -> Shown:
    bad = first_beyond(growth)
    share = max(0.0, 1.0 - (first.error / worst.error) ** 2) if math.isfinite(worst.error) else 1.0
    output = growth.fed[0]
    return replace(
        seen,
        role="information" if bad is None else "cause",
        sentence=f"{seen.because[0].upper()}{seen.because[1:]}."
        + ("" if bad is None else f" From call {bad.call} on that is more than {HONEST:g} times an honest one's."),
        confidence_from="the share of the last error, in squares, that the first call does not have",
        site=Site(tensor=output, node="", op_type="", index=-1),
        share=share,
        repairs=(
            ("widen_state", "keep the state and the products that update it in a wider format, or shorten the loop"),
        ),
        details={
            "factor": growth.factor if math.isfinite(growth.factor) else None,
            "leaves": growth.leaves,
            "beyond": None if bad is None else bad.call,
            "errors": [step.error for step in growth.steps],
        },
    )


# h' = 1.3 h + x w: every call amplifies what is there by 1.3.
_GROWS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] x, float[1,16] h) => (float[1,16] next) {
  p = MatMul(x, w)
  q = Mul(h, gain)
  next = Add(p, q)
}"""
# h' = tanh(0.5 h + x w): every call forgets half.
_FORGETS = _GROWS.replace("next = Add(p, q)", "s = Add(p, q)\n  next = Tanh(s)")
_RNG = np.random.default_rng(70)
_XH = {name: _RNG.normal(size=(1, 16)).astype(np.float32) for name in ("x", "h")}
_W = {"w": (_RNG.normal(size=(16, 16)) / 4).astype(np.float32)}
_STATES = {"h": "next"}

# The logistic map, chaotic: an error doubles with each call until nothing is left.
_CHAOS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] h) => (float[1,16] next) {
  a = Mul(h, four)
  b = Mul(a, h)
  next = Sub(a, b)
}"""
_FOUR = {"four": np.array([4.0], np.float32)}
_START = {"h": _RNG.uniform(0.2, 0.8, size=(1, 16)).astype(np.float32)}

CHECK = Check(
    code="SEQ001",
    title="The error grows from call to call",
    propose=_propose_claims,
    holds=(
        Example(
            model=_CHAOS,
            inputs=_START,
            constants=_FOUR,
            candidate="sim:bf16",
            states=_STATES,
            steps=12,
            site="next",
        ),
        Example(
            model=_CHAOS,
            inputs=_START,
            constants=_FOUR,
            candidate="sim:f16",
            declared="f32",
            states=_STATES,
            steps=12,
            site="next",
        ),
    ),
    holds_not=(
        Example(
            model=_FORGETS,
            inputs=_XH,
            constants={**_W, "gain": np.array([0.5], np.float32)},
            candidate="sim:bf16",
            states=_STATES,
            steps=12,
        ),
        Example(model=_CHAOS, inputs=_START, constants=_FOUR, candidate="sim:bf16"),
        # Equal to the last bit is equal after any number of calls.
        Example(
            model=_GROWS,
            inputs=_XH,
            constants={**_W, "gain": np.array([1.3], np.float32)},
            candidate="ort?optimization=disabled",
            states=_STATES,
            steps=12,
        ),
    ),
)
