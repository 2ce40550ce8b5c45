"""The inputs were generated, not real.

What goes wrong: random inputs drive a network outside the range it was trained for. Errors on them say little about
the deployment: they may be much larger than on real data, or hide a failure that only real data reaches.

How it shows: no data was given.

How we test for it: nothing has to be run; it is a fact about the comparison.

What it is confused with: a real error. Repeat with real samples before believing either answer.

How to repair: give real, preprocessed samples: `--inputs samples/` (a folder of .npz), or images with
`--preprocess file.py:function`.

Sources: "Data and fairness" among the causes of public accuracy issues: 9 of about 110 ended so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Example
from parityscope.checks._facts import fact
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.case import Inputs
    from parityscope.checks import Proposal, Scene

__all__ = ["CHECK", "findings_about"]

_CODE = "DAT001"


def _propose(scene: Scene) -> Iterator[Proposal]:
    if scene.inputs.generated:
        origin = scene.inputs.origin
        yield fact(_EXPERIMENT, origin, lambda evidence: _finding(scene.inputs, evidence))


def findings_about(inputs: Inputs) -> tuple[Finding, ...]:
    """What a reader of any result must know of the samples that it rests on: that they are not real, if they are not."""
    if not inputs.generated:
        return ()
    evidence = Evidence(experiment=_EXPERIMENT, outcome="supports", before=0.0, after=1.0, because=inputs.origin)
    return (_finding(inputs, evidence),)


_EXPERIMENT = Experiment(
    check=_CODE,
    claim="the samples are generated, not real",
    change="none",
    measure="where the samples came from",
    if_true="generated",
    if_false="given by the user",
)


def _finding(inputs: Inputs, evidence: Evidence) -> Finding:
    return Finding(
        code=_CODE,
        title="The inputs were generated, not real",
        role="information",
        claim=f"No data was given: {inputs.origin}. Verdicts on such inputs need not hold on real ones.",
        confidence=1.0,
        confidence_from="a fact about the command",
        evidence=(evidence,),
        repairs=(OfferedRepair(repair="real_inputs", text="give real samples", command="--inputs samples/"),),
        details={"seed": inputs.seed},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }"""

CHECK = Check(
    code=_CODE,
    title="The inputs were generated, not real",
    propose=_propose,
    holds=(Example(model=_MODEL, inputs=None, candidate="ort?optimization=disabled"),),
    holds_not=(
        Example(model=_MODEL, inputs={"x": np.ones((1, 8), np.float32)}, candidate="ort?optimization=disabled"),
    ),
)
