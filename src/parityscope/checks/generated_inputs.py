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

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks.asking import write_experiment, write_finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.case import Inputs
    from parityscope.records import Finding

_CODE = "DAT001"
_TITLE = "The inputs were generated, not real"


def _propose_claims(inputs: Inputs) -> Iterator[Claim]:
    if inputs.generated:
        yield _make_claim(inputs)


def _make_claim(inputs: Inputs) -> Claim:
    return Claim(
        words="the samples are generated, not real",
        predicts=Prediction(measure="where the samples came from", if_true="generated", if_false="given by the user"),
        test=lambda: Shown(
            because=inputs.origin,
            role="information",
            sentence=f"No data was given: {inputs.origin}. Verdicts on such inputs need not hold on real ones.",
            confidence_from="a fact about the command",
            repairs=[("real_inputs", "give real samples", "--inputs samples/")],
            details={"seed": inputs.seed},
        ),
    )


def findings_about(inputs: Inputs) -> tuple[Finding, ...]:
    """What a reader of any result must know of the samples that it rests on: that they are not real, if they are not."""
    if not inputs.generated:
        return ()
    claim = _make_claim(inputs)
    return (write_finding(_CODE, _TITLE, claim, write_experiment(_CODE, claim), claim.test()),)


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }"""

CHECK = Check(
    code=_CODE,
    title=_TITLE,
    propose=_propose_claims,
    holds=(Example(model=_MODEL, inputs=None, candidate="ort?optimization=disabled"),),
    holds_not=(
        Example(model=_MODEL, inputs={"x": np.ones((1, 8), np.float32)}, candidate="ort?optimization=disabled"),
    ),
)
