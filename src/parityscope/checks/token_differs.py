"""The candidate takes another token.

What goes wrong: a decoder's own token is its next input. Two implementations whose logits differ by a rounding write
the same text until two tokens are as likely as each other; from there on they write different texts, and every later
comparison is of two texts. A wrong cache, position or mask does the same where nothing is near.

How it shows: good on the given sample, or on every single call; the texts part after some tokens.

How we test for it: with `--state "argmax(logits)=ids"` or `--loop` both sides write on their own tokens. At the first
call whose tokens differ the margin is read: what the reference's token has over the candidate's in the reference's
logits. The candidate is also given the reference's own tokens and states (teacher-forced): if it takes the reference's
token there, the call is right, and what was carried in the states parted the texts. An honest deployment of the
declared arithmetic is given the same: a margin of at most four times what that changes of it is a tie, which arithmetic
decides; a larger one is no rounding.

What it is confused with: sampling with a temperature, which this does not do; another tokenizer or another stop token.

How to repair: of a tie, nothing (compare teacher-forced, or judge texts by a task metric). Else see the states that are fed: the
positions, the mask, the order of the cache's heads, and the format that the cache is kept in.

Sources: R. J. Williams, D. Zipser, "A Learning Algorithm for Continually Running Fully Recurrent Neural Networks",
Neural Computation 1(2), 1989 (teacher forcing).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.localization.calls import HONEST, has_other_arithmetic
from parityscope.plain_numbers import format_number
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.localization.calls import Growth, TokenParting


def _propose_claims(growth: Growth) -> Iterator[Claim]:
    if not growth.steps or growth.steps[0].token is None:
        return
    yield Claim(
        words="the candidate takes another token",
        predicts=Prediction(
            change=f"let both sides write {len(growth.steps)} tokens, each on its own",
            measure="the first call whose tokens differ, and the margin of the logits there",
            if_true="there is one",
            if_false="all tokens are the same",
        ),
        test=lambda: _test_claim(growth),
    )


def _test_claim(growth: Growth) -> Shown:
    parting, calls = growth.parting, len(growth.steps)
    forced = sum(step.forced_token not in {None, step.token} for step in growth.steps)
    taught = f"on the reference's own tokens and states the candidate takes another token in {forced} of {calls} calls"
    if parting is None:
        return Shown(because=f"all {calls} tokens are the same; {taught}", outcome="refutes", before=0.0, after=0.0)
    seen = Shown(
        because=f"{_describe_parting(parting)}; {taught}", outcome="supports", before=0.0, after=float(parting.call)
    )
    wrong = not parting.is_tie
    return replace(
        seen,
        role="cause" if wrong else "information",
        sentence=f"{seen.because[0].upper()}{seen.because[1:]}.",
        confidence_from="whether an honest deployment's error can cross the margin of the logits",
        site=Site(tensor=parting.tensor, node="", op_type="", index=-1),
        share=1.0 if wrong else 0.0,
        repairs=(_repair_of(growth, parting),),
        details={
            "call": parting.call,
            "token": parting.token,
            "other": parting.other,
            "margin": parting.margin,
            "moved": parting.moved,
            "honest": parting.honest if math.isfinite(parting.honest) else None,
            "forced": parting.forced,
            "tie": parting.is_tie,
        },
    )


def _describe_parting(parting: TokenParting) -> str:
    said = (
        f"the texts part at call {parting.call}: token {parting.other} instead of {parting.token}, which leads by"
        f" {format_number(parting.margin)} in the reference's logits; the candidate moves that by {format_number(parting.moved)}"
    )
    if math.isfinite(parting.honest):
        said += f", an honest deployment by {format_number(parting.honest)}"
    said += "; that is a tie" if parting.is_tie else f"; that is more than {HONEST:g} times what is honest"
    own = "this call takes the other token on the reference's states too"
    carried = (
        "on the reference's states this call takes the reference's token: what was carried in the states parted them"
    )
    return f"{said}; {own if parting.forced else carried}"


def _repair_of(growth: Growth, parting: TokenParting) -> tuple[str, str]:
    if parting.is_tie:
        return ("judge_forced", "compare teacher-forced, or judge the texts by a task metric: a tie is no fault")
    bad = next((step for step in growth.steps if has_other_arithmetic(step)), None)
    if bad is None:
        return ("widen_state", "keep the states that are fed in a wider format")
    told = f"output '{bad.tensor}' of call {bad.call} is the first that is wrong on the reference's own states"
    return ("examine_call", f"{told}: see what that call is given, the position and the mask first")


# A decoder of 12 tokens with a state as its cache: h' = tanh(0.8 h + E[token]), logits = h' W.
_DECODER = """<ir_version: 8, opset_import: ["" : 17]> g (int64[1] ids, float[1,16] h) => (float[1,12] logits, float[1,16] next) {
  e = Gather(table, ids)
  k = Mul(h, keep)
  s = Add(k, e)
  next = Tanh(s)
  logits = MatMul(next, head)
}"""
_RNG = np.random.default_rng(71)
_CONSTANTS = {
    "table": _RNG.normal(size=(12, 16)).astype(np.float32),
    "head": _RNG.normal(size=(16, 12)).astype(np.float32),
    "keep": np.array([0.8], np.float32),
    "keep_other": np.array([0.5], np.float32),
}
_FIRST = {"ids": np.array([3]), "h": np.zeros((1, 16), np.float32)}
_LOOP = {"ids": "argmax(logits)", "h": "next"}

CHECK = Check(
    code="SEQ002",
    title="The candidate takes another token",
    propose=_propose_claims,
    holds=(
        # The cache is kept by another factor: nothing shows in the first call, where it is empty.
        Example(
            model=_DECODER,
            inputs=_FIRST,
            constants=_CONSTANTS,
            candidate="ort",
            candidate_model=_DECODER.replace("Mul(h, keep)", "Mul(h, keep_other)"),
            states=_LOOP,
            steps=24,
            site="logits",
        ),
    ),
    holds_not=(
        Example(
            model=_DECODER,
            inputs=_FIRST,
            constants=_CONSTANTS,
            candidate="ort?optimization=disabled",
            states=_LOOP,
            steps=24,
        ),
        Example(
            model=_DECODER, inputs=_FIRST, constants=_CONSTANTS, candidate="sim:f16", states={"h": "next"}, steps=8
        ),
    ),
)
