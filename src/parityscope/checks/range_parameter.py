"""A parameter does not fit the number format.

What goes wrong: a weight, a bias, a running variance or another constant is larger than the largest finite value of
the format that the engine stores parameters in (65,504 in FP16). Converted, it becomes infinity, or the largest
finite value where the converter saturates (TensorRT, OpenVINO). The layer that reads it computes something else, and
everything behind it inherits that.

How it shows: one layer introduces a large error on inputs that are still right; the error does not depend on the
data; FP32 and BF16 (which has FP32's range) are fine.

How we test for it: the layer is computed again in reference arithmetic on the candidate's own inputs, with only this
parameter changed to what the format makes of it (infinity, or saturated). If that reproduces the candidate's output
(it explains at least 90 % of the introduced error), the parameter is the cause.

What it is confused with: an activation beyond range (RNG002), which depends on the data; a fusion bug.

How to repair: fold a BatchNormalization into the layer before it, in FP32: its scale and shift usually fit although
its variance does not. Otherwise scale the parameter into range, keep this one node in FP32, or use BF16.

Sources: IEEE 754-2019 (formats); NVIDIA TensorRT, "weights conversion" warnings (saturation to the largest finite value).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import round_to
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import EXPLAINED, WIDER_RANGE, constants_of, format_percent
from parityscope.checks._correcting import correct_constants
from parityscope.checks.statistics import explained_share
from parityscope.operators import CONTRACTIONS, with_trait
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.arithmetic.rounding import Overflow
    from parityscope.bench import Lab
    from parityscope.checks import Offer
    from parityscope.checks._common import RegionConstant
    from parityscope.examination import Examination
    from parityscope.records import Suspect

_FATES: dict[Overflow, str] = {"infinity": "overflowed to infinity", "saturate": "saturated to the largest value"}


def _propose_claims(known: Examination, lab: Lab, suspects: Sequence[Suspect]) -> Iterator[Claim]:
    for suspect in suspects:
        for constant in constants_of(known, frozenset(suspect.region)):
            if float(np.abs(constant.values).max(initial=0.0)) > known.storage.largest:
                yield _make_claim(known, lab, suspect, constant)


def _make_claim(known: Examination, lab: Lab, suspect: Suspect, constant: RegionConstant) -> Claim:
    largest = known.storage.largest
    beyond = int((np.abs(constant.values) > largest).sum())
    worst = float(constant.values.ravel()[np.abs(constant.values).argmax()])
    claim = (
        f"{constant.op_type} {constant.node} reads {constant.role} {constant.name!r}, which holds {format_number(worst)}: "
        f"beyond {known.storage.title}'s largest finite value {format_number(largest)} "
        f"({beyond} of {constant.values.size} elements)"
    )

    def test() -> Shown:
        share, how, held = _best_share(known, lab, suspect, constant)
        because = f"with {constant.name} {how}, {format_percent(share)} of the introduced error is reproduced"
        if share < EXPLAINED:
            return Shown(because=because, outcome="refutes", before=suspect.introduced, after=share)
        return Shown(
            because=because,
            before=suspect.introduced,
            after=share,
            sentence=f"{claim}. In the deployment it is {how}.",
            confidence=min(1.0, share),
            confidence_from="the share of the introduced error that the experiment reproduced",
            share=None if suspect.share is None else suspect.share * min(1.0, share),
            repairs=_offer_repairs(constant),
            details={
                "parameter": constant.name,
                "role": constant.role,
                "value": worst,
                "node": constant.node,
                "format": known.storage.name,
            },
            correction=correct_constants({constant.name: held}, f"reads {constant.name} {how}"),
        )

    return Claim(
        words=claim,
        predicts=Prediction(
            change=f"replace {constant.name} by what {known.storage.title} makes of it; nothing else",
            measure=f"share of the error introduced at {suspect.site.tensor} that this reproduces",
            if_true=f"at least {format_percent(EXPLAINED)}",
            if_false="none of it: the layer stays as the reference computes it",
        ),
        site=suspect.site,
        test=test,
    )


def _best_share(
    known: Examination, lab: Lab, suspect: Suspect, constant: RegionConstant
) -> tuple[float, str, np.ndarray]:
    tensor = suspect.site.tensor
    candidate, plain = lab.candidate(tensor), lab.replay(tensor, {})
    shares = []
    for overflow, words in _FATES.items():
        with np.errstate(over="ignore"):
            rounded = round_to(constant.values.astype(np.float32), known.storage, overflow=overflow)
        held = rounded.astype(constant.dtype)
        hypothesis = lab.replay(tensor, {constant.name: held})
        shares.append((explained_share(candidate, plain, hypothesis), words, held))
    return max(shares, key=lambda one: one[:2])


# Operators whose constants can take up a power of two, and those that put "minus infinity" into attention scores.
_SCALED = CONTRACTIONS | {"Mul", "Div"} | {"LayerNormalization"}
_MASKED = (with_trait("affine") - {"Div"}) | {"Where"}


def _offer_repairs(constant: RegionConstant) -> tuple[Offer, ...]:
    offered = [("keep_in_fp32", f"keep {constant.node} in FP32 (its parameters with it)"), WIDER_RANGE]
    if constant.op_type in _SCALED:
        scale = (
            "scale_into_range",
            f"scale {constant.name} down by a power of two, and up again in the weights downstream of {constant.node}",
        )
        offered.insert(0, scale)
    if constant.op_type in _MASKED and constant.values.min() < 0:
        mask = ("finite_mask", f"if {constant.name} is a mask, use -10,000 in it, which every format holds")
        offered.insert(0, mask)
    if constant.op_type == "BatchNormalization":
        fold = (
            "fold_batch_normalization",
            f"fold {constant.node} in FP32 before converting, as many engines do: its scale and shift fit, its variance does not",
        )
        offered.insert(0, fold)
    return tuple(offered)


_BN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,2,4,4] y) {
  a = Relu(x)
  b = BatchNormalization(a, scale, bias, mean, variance)
  y = Sigmoid(b)
}"""
_X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(1, 2, 4, 4)
_BN_CONSTANTS = {
    "scale": np.full(2, 1e4, np.float32),
    "bias": np.zeros(2, np.float32),
    "mean": np.zeros(2, np.float32),
}

CHECK = Check(
    code="RNG001",
    title="A parameter does not fit the number format",
    propose=_propose_claims,
    holds=(
        Example(
            model=_BN,
            inputs={"x": _X},
            candidate="sim:f16",
            site="b",
            constants={**_BN_CONSTANTS, "variance": np.full(2, 9.79e7, np.float32)},
        ),
    ),
    holds_not=(
        Example(
            model=_BN,
            inputs={"x": _X},
            candidate="sim:f16",
            constants={**_BN_CONSTANTS, "variance": np.full(2, 6.0e4, np.float32)},
        ),
    ),
)
