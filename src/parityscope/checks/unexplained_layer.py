"""Nothing that is known explains what a layer introduces: a candidate bug.

What goes wrong: a kernel that is wrong on this hardware, a race, a buffer read or written where it should not be, a
function nobody thought of.

How it shows: the layer introduces error above its noise floor, and no arithmetic and no other function of it predicts
that error's vector.

How we test for it: every hypothesis about the layer is computed on the candidate's own inputs and regressed; none was
accepted. What is left is described by where in the tensor it lies. The hypothesis that comes nearest is told in the claim
where it explains nine tenths of the error; below that it says nothing about the cause and stands with the experiment alone.
Where what the layer gives is a curve of what it should give, or of an input, that curve is told and drawn: it describes the
error and is no cause.

What it is confused with: an arithmetic that is not in the list, such as a fast approximation of exp or Winograd's
convolution in reduced precision: their errors are small, near the floor, and spread evenly; data that was changed
between the recording of a tensor and its use.

How to repair: reduce it to a model of this one layer and report it; meanwhile another kernel or tactic, the layer in
FP32, or another version of the runtime.

Sources: residual regression, docs/explanations.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import EXPLAINED, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.examination import Examination
    from parityscope.explanation import Explanation
    from parityscope.hypotheses.worker import EditCandidate
    from parityscope.records import Suspect

_NOTHING = "no arithmetic and no other function of it that is known explains that"


def _propose_claims(known: Examination, suspects: Sequence[Suspect]) -> Iterator[Claim]:
    if known.verdict == "within":
        return
    for suspect in suspects:
        explanation = known.explanations.get(suspect.site.tensor)
        if explanation is not None and explanation.status == "unexplained":
            yield _make_claim(suspect, explanation, [suspect.halving] if suspect.halving else [])


def _make_claim(suspect: Suspect, explanation: Explanation, record: list[str]) -> Claim:
    nearest = max(explanation.rejected, key=lambda each: each.share or 0.0, default=None)
    best = max(0.0, nearest.share or 0.0) if nearest else 0.0
    left = f"; {explanation.left}" if explanation.left else ""
    told = f"the nearest, {nearest.words}, explains {format_percent(best)}" if nearest and best > 0.0 else _NOTHING
    claim = (told if best >= EXPLAINED else _NOTHING) + left
    return Claim(
        words=f"{suspect.site.node} computes something that no hypothesis predicts",
        predicts=Prediction(
            change="the layer is computed again on the candidate's own inputs under every hypothesis",
            measure=f"largest share of the introduced error explained at {suspect.site.tensor}",
            if_true="none reaches 0.99 (0.9 behind a rounding) with every channel at the floor",
            if_false="one does",
        ),
        test=lambda: _show_finding(
            suspect,
            claim,
            Shown(because=told + left, before=0.0, after=best, ruled_out=explanation.ruled_out),
            best,
            record,
            explanation.curve,
        ),
    )


def _show_finding(
    suspect: Suspect, told: str, seen: Shown, best: float, record: list[str], described: EditCandidate | None
) -> Shown:
    # Of a region nobody knows yet which of its nodes it is: that comes before a report.
    where = f"{suspect.site.node} ({suspect.site.op_type})"
    others = len(suspect.region) - (suspect.site.node in suspect.region)
    region = f"{where}, or one of the {others} nodes that lead to it," if record else where
    follow = (
        ("record", f"record this as well, and diagnose again: {', '.join(record)}")
        if record
        else ("reduce", "reduce the model to this layer with the recorded input and report it to the runtime's authors")
    )
    return replace(
        seen,
        # It says that something is wrong here and not what, so that a check that knows more stands before it.
        role="contributing",
        sentence=f"{region} computes something else than the model says: {told}.{_say_curve(described)}",
        confidence=max(0.0, min(1.0, 1.0 - best)),
        confidence_from="one minus the best share that any hypothesis explains",
        site=suspect.site,
        share=suspect.share,
        repairs=(follow,),
        details={"parameter": suspect.site.tensor, "best_share": best, "record": record, **_draw_on(described)},
    )


def _say_curve(described: EditCandidate | None) -> str:
    if described is None:
        return ""
    return f" A description, no cause: {described.words} ({format_percent(described.share)} of its error)."


def _draw_on(described: EditCandidate | None) -> dict[str, Any]:
    """The numbers that a curve is drawn from."""
    if described is None or described.curve is None:
        return {}
    curve = described.curve
    knots = np.stack([curve.knots, curve.model, curve.values], 1).tolist()
    return {"curve": {"of": curve.source, "share": described.share, "knots": knots, "points": curve.points.tolist()}}


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x) => (float[8,4] y) {
  a = MatMul(x, w)
  y = Identity(a)
}"""
_RNG = np.random.default_rng(12)
_CONSTANTS = {"w": _RNG.normal(size=(16, 4)).astype(np.float32)}
_X = {"x": _RNG.normal(size=(8, 16)).astype(np.float32)}
_SPOILT = _RNG.normal(size=(8, 4)).astype(np.float32)

# Weights in BF16, everything else in FP32: a smaller file and no bug.
_BIASED = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x) => (float[8,4] y) {
  a = Gemm(x, w, bias)
  y = Relu(a)
}"""
_STORED = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x) => (float[8,4] y) {
  small = Cast<to = 16>(w)
  wide = Cast<to = 1>(small)
  a = Gemm(x, wide, bias)
  y = Relu(a)
}"""
_BIAS = {"bias": _RNG.normal(size=4).astype(np.float32)}

CHECK = Check(
    code="FUS003",
    title="No known arithmetic or function explains this layer",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, fault=("a", lambda value: value + _SPOILT), constants=_CONSTANTS, site="a"),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", constants=_CONSTANTS),
        Example(model=_MODEL, inputs=_X, candidate="sim:tf32", declared="f32", constants=_CONSTANTS),
        Example(
            model=_BIASED,
            inputs=_X,
            candidate="ort?optimization=disabled",
            candidate_model=_STORED,
            constants={**_CONSTANTS, **_BIAS},
        ),
    ),
)
