"""A small constant vanishes in the number format.

What goes wrong: an epsilon (1e-12 under a square root, 1e-10 before a logarithm) is smaller than the smallest number of
the format (6e-8 in FP16) and becomes zero; the division or the logarithm that it guards then gives infinity or NaN,
or a normalization divides by something else. A constant that becomes subnormal loses digits.

How it shows: NaN or Inf, or a large error, begins at a Div, Log, Sqrt, Pow or an addition of the constant.

How we test for it: the region is computed again in reference arithmetic on the candidate's own inputs with only this
constant rounded to the format. That must reproduce what the candidate gives, or (where the constant is added in one
region and bites in the next) the constant's effect must be what the region introduces.

What it is confused with: activations beyond range (RNG002).

How to repair: raise the epsilon to a value that the format holds (with care: the function changes), keep the nodes
from the constant to the division in FP32, or use BF16, whose smallest number is FP32's.

Sources: IEEE 754-2019, section 7.5 (underflow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import round_to
from parityscope.checks import Check, Example, Proposal, Result
from parityscope.checks._common import EXPLAINED, constants_of, explained_share, leading, number, percent
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.checks import Lab, Scene
    from parityscope.checks._common import Constant
    from parityscope.records import Suspect

__all__ = ["CHECK"]

_CODE = "RNG003"

# Weights have many tiny elements whose loss says nothing; a guard against division by zero is a scalar or a small row.
_SMALL_CONSTANT = 64


def _propose(scene: Scene) -> Iterator[Proposal]:
    if scene.lab is None:
        return
    for suspect in leading(scene):
        for constant in constants_of(scene, suspect):
            size = np.abs(constant.values[constant.values != 0])
            if 0 < constant.values.size <= _SMALL_CONSTANT and size.size and size.min() < scene.storage.smallest_normal:
                yield _proposal(scene, scene.lab, suspect, constant)


def _proposal(scene: Scene, lab: Lab, suspect: Suspect, constant: Constant) -> Proposal:
    tensor = suspect.site.tensor
    smallest = float(np.abs(constant.values[constant.values != 0]).min())
    rounded = round_to(constant.values.astype(np.float32), scene.storage).astype(constant.dtype)
    fate = "zero" if (rounded[constant.values != 0] == 0).any() else "a subnormal number with fewer digits"
    claim = (
        f"{constant.op_type} {constant.node} reads constant {constant.name!r} = {number(smallest)}, which becomes {fate} "
        f"in {scene.storage.title} (smallest normal number {number(scene.storage.smallest_normal)})"
    )
    experiment = Experiment(
        check=_CODE,
        claim=claim,
        change=f"round {constant.name} to {scene.storage.title}; nothing else",
        measure=f"share of the error introduced at {tensor} that this reproduces",
        if_true=f"at least {percent(EXPLAINED)}",
        if_false="none of it",
    )

    def test() -> Result:
        share = explained_share(
            lab.candidate(tensor), lab.replay(tensor, {}), lab.replay(tensor, {constant.name: rounded})
        )
        supported = share >= EXPLAINED
        evidence = Evidence(
            experiment=experiment,
            outcome="supports" if supported else "refutes",
            before=suspect.introduced,
            after=share,
            because=f"with {constant.name} rounded, {percent(share)} of the introduced error is reproduced",
        )
        finding = None
        if supported:
            finding = Finding(
                code=_CODE,
                title="A small constant vanishes in the number format",
                role="cause",
                claim=f"{claim}.",
                confidence=min(1.0, share),
                confidence_from="the share of the introduced error that the experiment reproduced",
                site=suspect.site,
                share=suspect.share,
                evidence=(evidence,),
                repairs=(
                    OfferedRepair(
                        repair="keep_in_fp32",
                        text=f"keep {constant.node} and what it guards in FP32, or run the engine in BF16",
                    ),
                    OfferedRepair(
                        repair="raise_epsilon",
                        text=f"raise {constant.name} to at least {number(scene.storage.smallest_normal)}; this changes "
                        "the function, so measure the task metric",
                    ),
                ),
                details={"parameter": constant.name, "value": smallest, "node": constant.node},
            )
        return Result(evidence=evidence, finding=finding)

    return Proposal(experiment=experiment, test=test)


_LOG = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  floor = Relu(x)
  safe = Add(floor, epsilon)
  y = Log(safe)
}"""
_X = np.array([[-1, -0.5, 0.25, 0.5, 1, 2, 3, 4]], np.float32)

CHECK = Check(
    code=_CODE,
    title="A small constant vanishes in the number format",
    propose=_propose,
    holds=(
        Example(
            model=_LOG,
            inputs={"x": _X},
            candidate="sim:f16",
            site="safe",
            constants={"epsilon": np.array(1e-10, np.float32)},
        ),
    ),
    holds_not=(
        Example(model=_LOG, inputs={"x": _X}, candidate="sim:f16", constants={"epsilon": np.array(1e-3, np.float32)}),
    ),
)
