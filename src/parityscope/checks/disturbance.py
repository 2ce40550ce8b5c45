"""Looking at intermediate tensors changes the candidate's answer.

What goes wrong: nothing by itself. An engine cannot fuse over a tensor that it must give back, so a run whose tensors
are captured is another program than the deployment. Its outputs differ by rounding, or, when the fusion has a bug,
by much more: then the error vanishes when one looks. A long recording is made in parts with other tensors given back
in each, so that one part may be another program than the next; an engine that times its kernels before it chooses differs
from session to session without that.

How it shows: the outputs of the captured run differ from those of the undisturbed run; a tensor that two parts recorded
differs between them.

How we test for it: both are always compared. The difference is reported when it exceeds FP32 rounding; when it is as
large as the error itself the localization is of another error than the deployment's, and is marked so. What a part's
tensors are computed from is recorded again with them, so that what they introduce is of one run; how far the two recorded
values are apart is told where it is beyond the FP32 noise of the tensor.

What it is confused with: non-determinism (RUN001), which two undisturbed runs show.

How to repair: observe fewer tensors at a time, or only the borders of executed layers; if the error vanishes when
observed, suspect the fusion.

Sources: measured: OpenVINO in BF16 on the PP-OCRv4 recogniser, where marking every tensor doubles the output error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._examples import POOLED, POOLED_INPUTS
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination
    from parityscope.records import Spread


# One float32 rounding error, as in RUN001: below it the two runs are the same program.

_NAMED = 10  # chosen: tensors in the details of a finding


def _propose_claims(known: Examination) -> Iterator[Claim]:
    apart = _tensors_that_differ(known)
    if known.disturbance <= FLOAT32_ROUNDING and not apart:
        return
    because = f"the captured run's outputs differ by {format_number(known.disturbance)} from the undisturbed ones"
    if apart:
        worst = f"{len(apart)} tensors differ between the parts of the recording, {apart[0].tensor} the most"
        because = f"{because}; {worst}: {format_number(apart[0].value)}"
    yield Claim(
        words="capturing intermediate tensors changes the candidate's outputs",
        predicts=Prediction(
            change="mark intermediate tensors as outputs",
            measure="worst relative L2 distance from the undisturbed outputs",
            if_true=f"above one FP32 rounding error ({format_number(FLOAT32_ROUNDING)})",
            if_false="zero",
        ),
        test=lambda: _show_finding(known, because),
    )


def _tensors_that_differ(known: Examination) -> list[Spread]:
    """The tensors that differ between recorded parts by more than FP32 noise, worst first."""
    spreads = known.localization.spreads if known.localization else ()
    return [spread for spread in spreads if spread.value > _noise_of_tensor(known, spread.tensor)]


def _noise_of_tensor(known: Examination, tensor: str) -> float:
    pair = known.tensors.get(tensor)
    expected = pair.expected.get("f32", FLOAT32_ROUNDING) if pair else FLOAT32_ROUNDING
    return margin_of("f32") * expected


def _show_finding(known: Examination, because: str) -> Shown:
    errors = [pair.value("rel_l2") for pair in known.outputs]
    worst = max((error for error in errors if not np.isnan(error)), default=0.0)
    warning = ""
    if known.disturbance >= worst:
        warning = " That is as much as the error itself: the layers below were measured in another program."
    apart = _tensors_that_differ(known)
    if apart:
        between = f"{format_number(apart[0].value)} at {apart[0].tensor}"
        warning += f" Between the parts of the recording {len(apart)} tensors differ, by up to {between}."
    return Shown(
        because=because,
        role="information",
        sentence=f"The outputs of the run whose tensors were captured differ from the undisturbed run's by "
        f"{format_number(known.disturbance)} (relative L2); the error against the reference is {format_number(worst)}.{warning}",
        confidence_from="measured",
        repairs=(("observe_less", "observe fewer tensors at a time (--memory, or observe=layers)"),),
        details={
            "disturbance": known.disturbance,
            "error": worst,
            "between_parts": {spread.tensor: spread.value for spread in _tensors_that_differ(known)[:_NAMED]},
        },
    )


_CONV = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,32,32] x) => (float[1,16,32,32] y) {
  a = Conv<pads = [1, 1, 1, 1]>(x, w)
  b = Add(a, shift)
  c = Clip(b, low, high)
  d = Mul(b, c)
  e = Conv<pads = [1, 1, 1, 1]>(d, w)
  y = Softmax(e)
}"""
_RNG = np.random.default_rng(7)
_CONSTANTS = {
    "w": _RNG.normal(size=(16, 16, 3, 3)).astype(np.float32),
    "shift": np.full((1, 16, 1, 1), 3.0, np.float32),
    "low": np.array(0.0, np.float32),
    "high": np.array(6.0, np.float32),
}
_X = _RNG.normal(size=(1, 16, 32, 32)).astype(np.float32)

CHECK = Check(
    code="RUN002",
    title="Looking at intermediate tensors changes the candidate's answer",
    propose=_propose_claims,
    holds=(
        # What is fused wrongly is right as soon as the tensor between is given back.
        Example(model=POOLED, inputs=POOLED_INPUTS, candidate="ort", reference="ort?optimization=disabled"),
        Example(model=_CONV, inputs={"x": _X}, candidate="openvino:bf16?observe=all", constants=_CONSTANTS),
    ),
    holds_not=(Example(model=_CONV, inputs={"x": _X}, candidate="sim:bf16", constants=_CONSTANTS),),
)
