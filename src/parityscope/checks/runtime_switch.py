"""A switch of the runtime makes the error: with it thrown, the candidate is right.

What goes wrong: a default that nobody chose. TF32 is on for products, a variable overrides it, a precision hint lets the runtime
compute in halves, threads split a sum whose parts do not fit the format.

How it shows: an error that is there on one machine and not on another, with the same model.

How we test for it: the candidate is run again with one switch changed and nothing else: `tf32=off`, one thread, the precision
hint of FP32, and, for a program, NVIDIA_TF32_OVERRIDE=0 in its environment. If what is left of the error is what the
declared arithmetic explains, on every sample looked at, the switch is the cause. This is the run that ENV001 asks for.

What it is confused with: a bug in a kernel that the switch happens to avoid; the optimizer, which is told apart by the
checks of the family FUS.

How to repair: set the switch in the deployment, or declare the arithmetic that it stands for.

Sources: NVIDIA/TensorRT issues 3180 and 4492, ONNX Runtime issues 19288 and 21457 (TF32); ONNX Runtime's documentation of
`use_tf32`; OpenVINO's of `INFERENCE_PRECISION_HINT`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_percent
from parityscope.checks._examples import POOLED, POOLED_INPUTS, PRODUCTS, product_arrays
from parityscope.checks._reproducing import RUN_S, Misfit, measure_misfit, show_refuted, show_supported
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

_OPTIMIZER = "optimization="


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    for target, run in bench.switched.items():
        # Only the switch is looked at here: what an optimizer does is a matter of its own.
        if _OPTIMIZER not in target or _OPTIMIZER in _options_of(known):
            yield _make_claim(known, bench, target, run)


def _options_of(known: Examination) -> str:
    return "&".join(f"{key}={value}" for key, value in known.candidate.options)


def _make_claim(known: Examination, bench: Bench, target: str, run: Run) -> Claim:
    return Claim(
        words=f"the candidate is right as {target}",
        predicts=Prediction(
            change=f"run the candidate as {target}",
            measure="worst relative L2 error of the outputs",
            if_true="it falls to what the declared arithmetic explains",
            if_false="it stays far above",
        ),
        cost_s=RUN_S * 10,
        runs="rebuild",
        test=lambda: _test_claim(known, bench, target, run),
    )


def _test_claim(known: Examination, bench: Bench, target: str, run: Run) -> Shown:
    before = after = Misfit(error=0.0, over=0.0)
    for index in bench.samples:
        try:
            found = run(bench.inputs(index))
        except ParityError as error:
            return show_refuted(None, f"it cannot be run: {error.problem}")
        reference = bench.reference(index)
        before = max(before, measure_misfit(known, reference, bench.candidate(index)), key=lambda one: one.over)
        after = max(after, measure_misfit(known, reference, found), key=lambda one: one.over)
    because = f"the error goes from {format_percent(before.error)} to {format_percent(after.error)}"
    if not after.explains(before):
        return show_refuted(before, because, after=after.error)
    return _show_finding(target, after.share(before), show_supported(before, after, because))


def _show_finding(target: str, share: float, seen: Shown) -> Shown:
    return replace(
        seen,
        sentence=f"Run as {target}, the candidate is right: {seen.because}.",
        confidence_from="the share of the error, in squares, that is gone with one switch thrown",
        share=share,
        repairs=(
            (
                "throw_switch",
                "set the switch in the deployment, or declare what it stands for",
                target if "?" not in target and ":" not in target else f"--candidate '{target}'",
            ),
        ),
        details={"switch": target},
    )


_W, _X = product_arrays(69)

CHECK = Check(
    code="ENV002",
    title="A switch of the runtime makes the error",
    propose=_propose_claims,
    holds=(
        # An optimizer that somebody asked for by name is a switch too.
        Example(
            model=POOLED,
            inputs=POOLED_INPUTS,
            candidate="ort?optimization=all",
            reference="ort?optimization=disabled",
        ),
        # The hint of bfloat16, where FP32 is declared.
        Example(model=PRODUCTS, inputs=_X, constants=_W, candidate="openvino:bf16", declared="f32"),
    ),
    holds_not=(
        Example(model=PRODUCTS, inputs=_X, constants=_W, candidate="sim:bf16", declared="f32"),
        Example(
            model=PRODUCTS,
            candidate_model=PRODUCTS.replace("Relu", "Tanh"),
            inputs=_X,
            constants=_W,
            candidate="ort?optimization=disabled",
        ),
        Example(model=PRODUCTS, inputs=_X, constants=_W, candidate="openvino:f32"),
    ),
)
