"""An activation does not fit the number format.

What goes wrong: a tensor that the network computes grows beyond the largest finite value of the format (65,504 in
FP16) and becomes infinity, or is clamped to the largest value by an engine that saturates. Squares and sums are the
usual places: Pow, ReduceSum and ReduceMean in a normalization, a tanh-GELU's cube, attention scores with a mask.

How it shows: infinities (and NaN soon after) begin at one tensor, exactly at the elements that are too large in the
reference; BF16 and FP32 are fine; it depends on the data.

How we test for it: the values that the reference arithmetic gives on the candidate's own inputs predict which
elements must overflow. The prediction must meet the candidate's non-finite (or clamped) elements.

What it is confused with: a parameter beyond range (RNG001); a division by an epsilon that vanished (RNG003).

How to repair: scale the tensor (divide before squaring), use the fused LayerNormalization operator, keep these nodes
in FP32, or use BF16.

Sources: IEEE 754-2019, section 7.4 (overflow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import EXPLAINED, WIDER_RANGE, format_percent
from parityscope.checks._correcting import correct_range
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.bench import Lab
    from parityscope.checks import Offer
    from parityscope.examination import Examination
    from parityscope.records import Localization, Suspect


def _propose_claims(
    known: Examination, lab: Lab, localization: Localization, suspects: Sequence[Suspect]
) -> Iterator[Claim]:
    born = [one for one in localization.suspects if one.introduced_nonfinite]
    born.sort(key=lambda one: one.site.index)
    for suspect in {one.site.tensor: one for one in [*born[:4], *suspects]}.values():
        reached = _largest_magnitude(lab.reference(suspect.site.tensor))
        if reached > known.storage.largest:
            yield _make_claim(known, lab, suspect, reached)


def _largest_magnitude(array: np.ndarray) -> float:
    """The largest finite magnitude; 0 for anything but floats."""
    if array.dtype.kind not in "fV":
        return 0.0
    values = np.abs(array.astype(np.float64))
    return float(values[np.isfinite(values)].max(initial=0.0))


def _make_claim(known: Examination, lab: Lab, suspect: Suspect, reached: float) -> Claim:
    largest = known.storage.largest
    tensor = suspect.site.tensor
    node = suspect.site.node
    # A tensor that is called after its node is told once.
    at = "" if node and tensor.startswith(node) else f" at {tensor!r}"
    claim = (
        f"{suspect.site.op_type} {node} reaches {format_number(reached)}{at}, beyond "
        f"{known.storage.title}'s largest finite value {format_number(largest)}"
    )

    def test() -> Shown:
        candidate = np.asarray(lab.candidate(tensor), np.float64)
        again = np.asarray(lab.replay(tensor, {}), np.float64)
        predicted = np.isfinite(again) & (np.abs(again) > largest)
        lost = np.isfinite(again) & (~np.isfinite(candidate) | (np.abs(candidate) == largest))
        either = int((predicted | lost).sum())
        agreement = int((predicted & lost).sum()) / either if either else 0.0
        before, after = int(predicted.sum()), int(lost.sum())
        because = (
            f"{before:,} too large in the reference, {after:,} lost in the candidate, "
            f"{format_percent(agreement)} of either the same elements"
        )
        if agreement < EXPLAINED:
            return Shown(because=because, outcome="refutes", before=before, after=after)
        clamped = bool(np.isfinite(candidate[lost]).all())
        return Shown(
            because=because,
            before=before,
            after=after,
            sentence=f"{claim}; {'its only element' if candidate.size == 1 else f'{after:,} of {candidate.size:,} elements'} "
            f"{'overflows' if after == 1 else 'overflow'} there.",
            confidence=agreement,
            confidence_from="agreement of the predicted with the lost elements",
            share=suspect.share,
            repairs=_offer_repairs(suspect),
            details={"tensor": tensor, "reaches": reached, "lost": after, "format": known.storage.name},
            correction=correct_range(tensor, known.storage, clamped=clamped),
        )

    return Claim(
        words=claim,
        predicts=Prediction(
            change="none: predict from the reference's values which elements are too large",
            measure="agreement of the predicted elements with those that are not finite, or clamped, in the candidate",
            if_true=f"at least {format_percent(EXPLAINED)} of either",
            if_false="the candidate is finite and right where the reference is too large",
        ),
        site=suspect.site,
        test=test,
    )


# Where normalizations, GELU and Softmax overflow first when exporters take them apart.
_STEPS = frozenset({"Pow", "Mul", "ReduceMean", "ReduceSum", "Exp"})


def _offer_repairs(suspect: Suspect) -> tuple[Offer, ...]:
    node = suspect.site.node
    offered = [
        (
            "scale_into_range",
            f"scale {node} down by a power of two in the weights before it, and up again in those downstream",
        ),
        ("keep_in_fp32", f"keep {node} in FP32 and round only downstream of it"),
        WIDER_RANGE,
    ]
    if suspect.site.op_type in _STEPS:
        fused = (
            "fused_operator",
            (
                f"replace the normalization, GELU or Softmax that {node} is part of by the operator, whose kernels keep "
                "squares and sums in FP32"
            ),
        )
        scaled = ("rescale", "scale the tensor into range before it (divide before squaring or summing)")
        offered[:0] = [fused, scaled]
    return tuple(offered)


_POW = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  two = Constant<value_float = 2.0>()
  big = Mul(x, scale)
  square = Pow(big, two)
  mean = ReduceMean(square)
  root = Sqrt(mean)
  y = Div(big, root)
}"""
_X = np.linspace(0.5, 1, 8, dtype=np.float32).reshape(1, 8)

CHECK = Check(
    code="RNG002",
    title="An activation does not fit the number format",
    propose=_propose_claims,
    holds=(
        Example(
            model=_POW,
            inputs={"x": _X},
            candidate="sim:f16",
            site="square",
            constants={"scale": np.array(800.0, np.float32)},
        ),
    ),
    holds_not=(
        Example(model=_POW, inputs={"x": _X}, candidate="sim:f16", constants={"scale": np.array(80.0, np.float32)}),
    ),
)
