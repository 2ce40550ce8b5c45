"""The candidate gives nothing but zeros.

What goes wrong: an output is zero in every element although the reference's is not: all of it vanished in the number
format, or the buffer was never written.

How it shows: a relative error of exactly 1.

How we test for it: nothing has to be run; the norms of both sides are known.

What it is confused with: a candidate that is wrong in another way.

How to repair: look for the first tensor that is all zero (`parityscope compare --all-tensors`).

Sources: IEEE 754-2019, section 7.5 (underflow).

Fill in: these six parts for your hypothesis, the code (a family and a number of your own), `_propose_claims` (its
parameters are what it wants to know, by the names that `parityscope.examination.Examination` has; each claim has its
prediction written down), and the examples at the end: the smallest models in which it must, and must not, be found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.checks import Check, Claim, Example, Prediction, Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.records import Pair


def _propose_claims(outputs: Sequence[Pair]) -> Iterator[Claim]:
    for pair in outputs:
        if pair.value("rel_l2") > 0:
            yield _make_claim(pair)


def _make_claim(pair: Pair) -> Claim:
    def test() -> Shown:
        ratio = pair.value("norm_ratio")
        return Shown(
            because=f"the candidate's norm is {ratio:.3g} of the reference's",
            outcome="supports" if ratio == 0 else "refutes",
            before=1.0,
            after=ratio,
            role="contributing",
            confidence_from="a fact about the outputs",
            repairs=[("first_zero", "find the first tensor that is all zero")],
        )

    return Claim(
        words=f"output {pair.site.tensor} is zero in every element",
        site=pair.site,
        predicts=Prediction(measure="the candidate's norm over the reference's", if_true="0", if_false="above 0"),
        test=test,
    )


_VANISHING = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y)
<float tiny = {1e-9}> { y = Mul(x, tiny) }"""

CHECK = Check(
    code="USR000",
    title="The candidate gives nothing but zeros",
    propose=_propose_claims,
    # Below half of FP16's smallest number, 6e-8, the constant becomes zero; BF16 has FP32's range.
    holds=(Example(model=_VANISHING, inputs=None, candidate="sim:f16", site="y"),),
    holds_not=(Example(model=_VANISHING, inputs=None, candidate="sim:bf16"),),
)
