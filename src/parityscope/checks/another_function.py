"""A layer computes another function than the model says.

What goes wrong: a fused kernel drops a Clip bound or a bias, applies the activation first, uses another epsilon, padding,
Resize rule or form of GELU, takes axes in another order. No rounding does that, and no precision setting mends it.

How it shows: one layer introduces far more than its arithmetic can, and its error has a structure.

How we test for it: the layer is computed again on the candidate's own inputs under each such change, in the arithmetic
that fits best. The change is accepted if it predicts the *vector* of the introduced error: slope one, over 99 %
explained (90 % behind a rounding of the output), and no channel left above the FP32 noise floor. What takes so many words that
chance is not excluded is a cause if the outputs of a copy in which it is put right are as declared.

What it is confused with: lost range (an overflow has its own hypothesis and is tested first); an unlucky fit, which the
noise floor on every channel excludes; a change in the user's own conversion, which looks the same from here and is
then in the file that was deployed.

How to repair: keep the layer out of the fusion (a barrier, another opset, another version of the runtime), or correct the
converted file; a smallest model of the layer is the report for the runtime's authors.

Sources: residual regression, docs/explanations.md; lost upper bound of a fused Clip, TensorRT 10.12.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.checks import Check, Claim, Example, NearMiss, Prediction, Shown
from parityscope.checks._common import GUARD_NAN, format_percent, say_equal
from parityscope.checks._correcting import correct_layer
from parityscope.explanation import Explained
from parityscope.hypotheses.from_nan import SWALLOWED
from parityscope.plain_numbers import format_number
from parityscope.records import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from parityscope.examination import Examination
    from parityscope.explanation import Explanation
    from parityscope.hypotheses.worker import EditCandidate
    from parityscope.records import Site, Suspect


def _propose_claims(known: Examination, suspects: Sequence[Suspect]) -> Iterator[Claim]:
    for suspect in suspects:
        explanation = known.explanations.get(suspect.site.tensor)
        if explanation is not None and explanation.status == "explained" and explanation.by[0].family == "semantic":
            yield _make_claim(known, suspect, explanation)
        elif explanation is not None and explanation.described is not None and known.verdict == "beyond":
            yield _claim_description(suspect, explanation.described)


def _make_claim(known: Examination, suspect: Suspect, explanation: Explanation) -> Claim:
    best = explanation.by[0]
    node = best.node or suspect.site.node
    changed = next((site for site in known.places.values() if site.node == node), suspect.site)
    share = best.share if best.share is not None else 0.0
    because = (
        f"it explains {format_percent(share)} of the layer's own error, of {format_number(best.slope)} times its size; "
        f"channels with more than rounding left: {best.channels_above}"
        if math.isfinite(best.slope)  # as it is where any number is compared
        else f"it explains {format_percent(share)} of the layer's own error"
    )
    return Claim(
        words=f"{node}: {best.words}",
        predicts=Prediction(
            change="the layer is computed again on the candidate's own inputs with that change",
            measure=f"share of the introduced error explained at {suspect.site.tensor}",
            if_true="size 1, share beyond 0.99 (0.9 behind a rounding), no channel with more than rounding left",
            if_false="less, or channels with more than rounding left",
        ),
        test=lambda: replace(
            _show_finding(suspect, explanation.by[1:], best, Shown(because=because, before=0.0, after=share), changed),
            correction=correct_layer(node, best.generated),
        ),
    )


def _claim_description(suspect: Suspect, candidate: EditCandidate) -> Claim:
    """What describes all of the error in so many words that they might describe any: the outputs decide, in a copy."""
    because = f"it explains {format_percent(candidate.share)}, in so many words that they might describe any error"
    seen = Shown(because=because, outcome="inconclusive", before=0.0, after=candidate.share)
    return Claim(
        words=f"{suspect.site.node}: {candidate.words}",
        predicts=Prediction(
            change="the layer is computed again on the candidate's own inputs with that change",
            measure=f"share of the introduced error explained at {suspect.site.tensor}, and a corrected copy's outputs",
            if_true="nearly all of it, and the copy's outputs are as declared",
            if_false="the copy's outputs are still beyond",
        ),
        test=lambda: replace(seen, nearest=_near_miss(suspect, candidate, seen)),
    )


def _near_miss(suspect: Suspect, candidate: EditCandidate, seen: Shown) -> NearMiss | None:
    """What a description would be if a corrected copy's outputs are as declared; None where no copy can be corrected."""
    correction = correct_layer(suspect.site.node, candidate)
    if correction is None:
        return None
    best = Explained(
        hypothesis=f"generated: {candidate.kind}",
        title=candidate.words,
        family="semantic",
        words=candidate.words,
        share=candidate.share,
    )
    because = (
        f"{format_percent(candidate.share)} explained, and with that put right in a copy the outputs are as declared"
    )
    shown = _show_finding(suspect, (), best, replace(seen, because=because))
    return NearMiss(shown=replace(shown, correction=correction))


def _show_finding(
    suspect: Suspect, others: tuple[Explained, ...], best: Explained, seen: Shown, changed: Site | None = None
) -> Shown:
    """The finding at a suspect; the node that is changed may lie before what was seen of it, where few tensors were recorded."""
    changed = changed or suspect.site
    moved = {"node": changed.node, "op_type": changed.op_type, "index": changed.index}
    node = best.node or suspect.site.node
    within = f" (in {best.on_top_of} arithmetic)" if best.on_top_of else ""
    equal = [each.words for each in others if best.generated and each.words in best.generated.equal]
    apart = [each.words for each in others if each.words not in equal]
    also = f" It cannot be told from: {'; '.join(apart)}." if apart else ""
    return replace(
        seen,
        sentence=f"{node} ({changed.op_type}): {best.words}{say_equal(equal, best.words)}{within}: {seen.because}.{also}",
        confidence=min(1.0, max(0.0, best.share or 0.0)),
        confidence_from="computed on what the layer was given, this change gives what the layer gave",
        site=suspect.site,
        share=suspect.share,
        repairs=(
            *((GUARD_NAN,) if best.generated is not None and best.generated.kind == SWALLOWED else ()),
            (
                "barrier",
                (
                    "compare the deployed file's node with the original's, and convert the original again where they differ; "
                    "else keep this layer out of the fusion (make its input or output a graph output, or upgrade the runtime)"
                ),
            ),
        ),
        details={
            "hypothesis": best.hypothesis,
            "parameter": f"{node}:{best.hypothesis}",
            "fitted": best.parameter,
            "on_top_of": best.on_top_of,
            **({} if changed == suspect.site else {"changed": moved}),
            "explained": best.share,
        },
    )


_BIAS = np.array([0.5, -0.25, 1.0, 0.75], np.float32)
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x) => (float[8,4] y) {
  a = Gemm(x, w, b)
  y = Identity(a)
}"""
_RNG = np.random.default_rng(11)
_CONSTANTS = {"w": _RNG.normal(size=(16, 4)).astype(np.float32), "b": _BIAS}
_X = {"x": _RNG.normal(size=(8, 16)).astype(np.float32)}
_BEHIND = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x) => (float[8,4] y) {
  a = MatMul(x, w)
  y = Tanh(a)
}"""
_FACTORS = np.array([1.5, 1, 0.6, 1.1], np.float32)
_NOISE = 0.02 * np.random.default_rng(13).normal(size=(8, 4)).astype(np.float32)
_RESIZE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,5,6] x) => (float[1,2,20,24] y) {
  a = Relu(x)
  r = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(a, , sizes)
  y = Identity(r)
}"""
_SIZES = {"sizes": np.array([1, 1, 4, 4], np.float32)}
_ROOTS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,32] x) => (float[1,32] y) {
  s = Sqrt(x)
  c = Clip(s, low, high)
  y = Mul(c, high)
}"""
_BOUNDS = {"low": np.array(0.5, np.float32), "high": np.array(1.5, np.float32)}
_SIGNED = {"x": np.linspace(-1, 3, 32, dtype=np.float32)[None]}


def _resize_half_pixel(value: NDArray[Any]) -> NDArray[Any]:
    """`half_pixel` in place of `asymmetric`, four times as large: result i is read at floor((i + 0.5) / 4 - 0.5)."""
    rows, columns = (4 * np.maximum((np.arange(size) - 2) // 4, 0) for size in value.shape[2:])
    return value[:, :, rows[:, None], columns]


# Beyond what eight-bit formats hold: none of them is an arithmetic under which the rule could be found.
_LARGE = {"x": _RNG.uniform(200, 2000, size=(1, 2, 5, 6)).astype(np.float32)}

CHECK = Check(
    code="FUS002",
    title="A layer computes another function",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, fault=("a", lambda value: value - _BIAS), constants=_CONSTANTS, site="a"),
        Example(
            model=_RESIZE,
            inputs=_LARGE,
            fault=("r", _resize_half_pixel),
            constants=_SIZES,
            site="r",
        ),
        # C's fmax and fmin: the lower bound in the place of NaN.
        Example(
            model=_ROOTS,
            inputs=_SIGNED,
            fault=("c", lambda value: np.nan_to_num(value, nan=0.5)),
            constants=_BOUNDS,
            site="c",
        ),
        # Factors of their own and some noise: too many words for the layer alone, and the outputs come back with it.
        Example(
            model=_BEHIND,
            inputs=_X,
            fault=("a", lambda value: value * _FACTORS + _NOISE),
            constants=_CONSTANTS,
            budgets=(Budget(output="y", metric="rel_l2", limit=0.03, reason="an example"),),
            site="a",
        ),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", constants=_CONSTANTS),
        # Wrong in a way that no change of the layer explains: that is another check's claim.
        Example(
            model=_MODEL,
            inputs=_X,
            fault=("a", lambda value: value + _RNG.normal(size=value.shape).astype(np.float32)),
            constants=_CONSTANTS,
        ),
    ),
)
