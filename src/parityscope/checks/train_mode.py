"""The network was exported, or is run, in training mode.

What goes wrong: without `model.eval()` a normalization over the batch uses the statistics of the batch at hand instead of the
trained ones, and Dropout puts random zeros in. The exporter keeps the mode that it is told to keep; a program that loads the
network for comparison may forget it as well.

How it shows: the answer to one sample depends on the others in its batch; accuracy below that of training; with Dropout, answers
that change from run to run.

How we test for it: the network is run again with its normalizations over the batch in training mode, Dropout out, and with all
in eval mode. If one of these gives the ONNX file's outputs, and the mode as given does not, the mode is the cause. Dropout
that was left in the file is random, so no run reproduces it: `parityscope lint` finds it (EXP101), and so does RUN001.

What it is confused with: a batch that is not handled right by the runtime (SHP001): there network and file agree.

How to repair: call `model.eval()` before `torch.onnx.export`, with `training=TrainingMode.EVAL`; for the network's side,
leave `mode=` out.

Sources: microsoft/onnxruntime issue 4589 and pytorch/pytorch issue 105661 (`eval()` was missing on the network's side); ONNX
operators BatchNormalization-15 and Dropout-13 (`training_mode`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_number
from parityscope.checks._conversion import worst_misfit
from parityscope.checks._reproducing import RUN_S, show_refuted, show_supported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.bench import Bench, Run
    from parityscope.checks import Shown
    from parityscope.examination import Examination


__all__ = ["CHECK"]

_TRAINED = "mode=batch-statistics"


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    file = bench.converted
    if file is None:
        return
    for target in list(bench.origin)[1:]:
        yield _mode_proposal(known, bench, file, target)


def _mode_proposal(known: Examination, bench: Bench, file: Run, target: str) -> Claim:
    trained = _TRAINED in target
    return Claim(
        words="the file was exported in training mode" if trained else "the network is run in training mode here",
        predicts=Prediction(
            change=f"run the network as {target}",
            measure="worst relative L2 error of the file's outputs",
            if_true="it falls to FP32 rounding",
            if_false="it stays far above",
        ),
        cost_s=4 * RUN_S,
        runs="candidate",
        test=lambda: _test_claim(known, bench, file, target),
    )


def _test_claim(known: Examination, bench: Bench, file: Run, target: str) -> Shown:
    strict = known.declaring("f32")
    before = worst_misfit(strict, bench, next(iter(bench.origin.values())), file)
    if before.fits:
        return show_refuted(before, "the network in the mode as given and the file agree")
    after = worst_misfit(strict, bench, bench.origin[target], file)
    because = f"network and file go from {format_number(before.error)} apart to {format_number(after.error)}"
    if not after.explains(before):
        return show_refuted(before, because, after=after.error)
    if _TRAINED in target:
        claim = f"The ONNX file was exported in training mode: {because} with the normalizations over the batch in that mode."
        text = "call model.eval() before torch.onnx.export, with training=TrainingMode.EVAL"
    else:
        claim = f"The network is run in training mode here, and its file is right: {because} in eval mode."
        text = "call model.eval() on the network, or leave mode= out of the target"
    return _show_finding(claim, text, after.share(before), show_supported(before, after, because))


def _show_finding(claim: str, text: str, share: float, seen: Shown) -> Shown:
    return replace(
        seen,
        sentence=claim,
        confidence_from="the share of what lies between network and file, in squares, that is gone in the other mode",
        share=share,
        repairs=(("eval_mode", text),),
    )


_EVAL = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,4] x) => (float[8,4] y) {
  y = BatchNormalization<epsilon = 0.00001>(x, scale, shift, mean, variance)
}"""
_TRAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,4] x) => (float[8,4] y) {
  y, m, v = BatchNormalization<epsilon = 0.00001, training_mode = 1>(x, scale, shift, mean, variance)
}"""
_NETWORK = """
import torch

def make():
    norm = torch.nn.BatchNorm1d(4)
    norm.running_mean += torch.tensor([1.0, -2.0, 0.5, 0.25])
    norm.running_var *= torch.tensor([4.0, 0.5, 9.0, 1.0])
    return norm
"""
_CONSTANTS = {
    "scale": np.ones(4, np.float32),
    "shift": np.zeros(4, np.float32),
    "mean": np.array([1.0, -2.0, 0.5, 0.25], np.float32),
    "variance": np.array([4.0, 0.5, 9.0, 1.0], np.float32),
}
_X = {"x": np.random.default_rng(72).normal(size=(8, 4)).astype(np.float32)}
_OURS = "{network}"

CHECK = Check(
    code="EXP002",
    title="The network was exported or run in training mode",
    propose=_propose_claims,
    holds=(
        Example(model=_TRAIN, inputs=_X, constants=_CONSTANTS, network=_NETWORK, reference=_OURS, candidate="ort"),
        Example(model=_TRAIN, inputs=_X, constants=_CONSTANTS, network=_NETWORK, candidate=_OURS),
        Example(model=_EVAL, inputs=_X, constants=_CONSTANTS, network=_NETWORK, candidate="{network}&mode=train"),
    ),
    holds_not=(
        Example(
            model=_EVAL,
            inputs=_X,
            constants=_CONSTANTS,
            network=_NETWORK,
            reference=_OURS,
            candidate="sim:bf16",
            declared="f32",
        ),
        Example(
            model=_EVAL,
            inputs=_X,
            constants={**_CONSTANTS, "mean": np.zeros(4, np.float32)},
            network=_NETWORK,
            reference=_OURS,
            candidate="ort",
        ),
    ),
)
