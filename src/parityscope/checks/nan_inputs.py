"""Some samples hold NaN and were not judged.

What goes wrong: a NaN in the inputs makes every comparison behind it meaningless: NaN may or may not pass through
Max, Min, Clip and comparisons, and runtimes differ there by right.

How it shows: samples that are listed as skipped.

How we test for it: inputs are searched for NaN when they are read. Infinities are allowed (masks use them).

What it is confused with: NaN that the network makes itself (RNG004).

How to repair: mend the preprocessing that made the NaN (a division by a zero standard deviation, an empty crop).

Sources: IEEE 754-2019, section 6.2 (NaN propagation is not required of every operation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Example
from parityscope.checks._facts import fact
from parityscope.records import Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.checks import Proposal, Scene
    from parityscope.records import Evidence

__all__ = ["CHECK"]

_CODE = "DAT002"


def _propose(scene: Scene) -> Iterator[Proposal]:
    if not scene.inputs.skipped:
        return
    experiment = Experiment(
        check=_CODE,
        claim="some samples hold NaN",
        change="none",
        measure="samples with a NaN in a float input",
        if_true="at least one",
        if_false="none",
    )
    names = ", ".join(skip.what for skip in scene.inputs.skipped)
    yield fact(experiment, names, lambda evidence: _finding(scene, evidence))


def _finding(scene: Scene, evidence: Evidence) -> Finding:
    count = len(scene.inputs.skipped)
    return Finding(
        code=_CODE,
        title="Some samples hold NaN and were not judged",
        role="information",
        claim=f"{count} of {count + len(scene.inputs)} samples hold NaN and were not judged: {evidence.because}.",
        confidence=1.0,
        confidence_from="counted, not estimated",
        evidence=(evidence,),
        repairs=(OfferedRepair(repair="mend_preprocessing", text="find out where the preprocessing makes NaN"),),
        details={"samples": count},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"""
_ONE_BAD = np.array([[1, 2, 3, 4], [1, np.nan, 3, 4]], np.float32)

CHECK = Check(
    code=_CODE,
    title="Some samples hold NaN and were not judged",
    propose=_propose,
    holds=(Example(model=_MODEL, inputs={"x": _ONE_BAD}, candidate="ort?optimization=disabled"),),
    holds_not=(Example(model=_MODEL, inputs={"x": np.nan_to_num(_ONE_BAD)}, candidate="ort?optimization=disabled"),),
)
