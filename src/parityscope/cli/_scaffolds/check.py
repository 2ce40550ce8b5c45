"""The candidate gives nothing but zeros.

What goes wrong: an output is zero in every element although the reference's is not: all of it vanished in the number
format, or the buffer was never written.

How it shows: a relative error of exactly 1.

How we test for it: nothing has to be run; the norms of both sides are known.

What it is confused with: a candidate that is wrong in another way.

How to repair: look for the first tensor that is all zero (`parityscope compare --all-tensors`).

Sources: IEEE 754-2019, section 7.5 (underflow).

Fill in: these six parts for your hypothesis, the code (a family and a number of your own), `_propose` (what is known is
in the scene; each proposal is an experiment with its prediction written down), and the examples at the end: the
smallest models in which it must, and must not, be found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.checks import Check, Example, Proposal, Result
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.checks import Scene
    from parityscope.records import Pair

__all__ = ["CHECK"]

_CODE = "USR000"
_TITLE = "The candidate gives nothing but zeros"


def _propose(scene: Scene) -> Iterator[Proposal]:
    for pair in scene.outputs:
        if pair.value("rel_l2") > 0:
            yield _proposal(pair)


def _proposal(pair: Pair) -> Proposal:
    experiment = Experiment(
        check=_CODE,
        claim=f"output {pair.site.tensor} is zero in every element",
        change="none",
        measure="the candidate's norm over the reference's",
        if_true="0",
        if_false="above 0",
    )

    def test() -> Result:
        ratio = pair.value("norm_ratio")
        evidence = Evidence(
            experiment=experiment,
            outcome="supports" if ratio == 0 else "refutes",
            before=1.0,
            after=ratio,
            because=f"the candidate's norm is {ratio:.3g} of the reference's",
        )
        return Result(evidence=evidence, finding=_finding(pair, evidence) if ratio == 0 else None)

    return Proposal(experiment=experiment, test=test)


def _finding(pair: Pair, evidence: Evidence) -> Finding:
    return Finding(
        code=_CODE,
        title=_TITLE,
        role="contributing",
        claim=f"Every element of output {pair.site.tensor} is zero in the candidate, and not in the reference.",
        confidence=1.0,
        confidence_from="a fact about the outputs",
        site=pair.site,
        evidence=(evidence,),
        repairs=(OfferedRepair(repair="first_zero", text="find the first tensor that is all zero"),),
    )


_VANISHING = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y)
<float tiny = {1e-9}> { y = Mul(x, tiny) }"""

CHECK = Check(
    code=_CODE,
    title=_TITLE,
    propose=_propose,
    # Below half of FP16's smallest number, 6e-8, the constant becomes zero; BF16 has FP32's range.
    holds=(Example(model=_VANISHING, inputs=None, candidate="sim:f16", site="y"),),
    holds_not=(Example(model=_VANISHING, inputs=None, candidate="sim:bf16"),),
)
