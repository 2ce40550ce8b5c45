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

from parityscope.checks import Check, Claim, Example, Prediction, Shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.case import Inputs


def _propose_claims(inputs: Inputs) -> Iterator[Claim]:
    if inputs.skipped:
        yield Claim(
            words="some samples hold NaN",
            predicts=Prediction(measure="samples with a NaN in a float input", if_true="at least one", if_false="none"),
            test=lambda: _show_skipped(inputs),
        )


def _show_skipped(inputs: Inputs) -> Shown:
    count, names = len(inputs.skipped), ", ".join(skip.what for skip in inputs.skipped)
    return Shown(
        because=names,
        role="information",
        sentence=f"{count} of {count + len(inputs)} samples hold NaN and were not judged: {names}.",
        confidence_from="counted, not estimated",
        repairs=[("mend_preprocessing", "find out where the preprocessing makes NaN")],
        details={"samples": count},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"""
_ONE_BAD = np.array([[1, 2, 3, 4], [1, np.nan, 3, 4]], np.float32)

CHECK = Check(
    code="DAT002",
    title="Some samples hold NaN and were not judged",
    propose=_propose_claims,
    holds=(Example(model=_MODEL, inputs={"x": _ONE_BAD}, candidate="ort?optimization=disabled"),),
    holds_not=(Example(model=_MODEL, inputs={"x": np.nan_to_num(_ONE_BAD)}, candidate="ort?optimization=disabled"),),
)
