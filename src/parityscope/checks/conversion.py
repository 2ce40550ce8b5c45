"""The conversion to ONNX changed what the network computes.

What goes wrong: the exported file is another function than the network: an operator is translated with another convention,
a branch or a number was fixed while it was traced, the wrong weights or the wrong mode were exported. Everything built from
that file inherits it, and whoever compares only the engine with the file finds nothing.

How it shows: an engine that agrees with its ONNX file, and a product that is worse than in training.

How we test for it: with the network on one side (`torch?module=…` or `program=…`), the conversion is a stage of its own. The
network in FP32 and the ONNX file in ONNX Runtime, optimizer off, get the same inputs. If they are further apart than FP32
rounding the conversion is at fault, for as much of the error as is gone when the deployment is held against the file
instead. What it changed is what the network's own graph, exported here, has otherwise: a mode, a weight, an operator (proved as
EXP005 is). If they agree, the fault comes in after the conversion.

What it is confused with: another weight, attribute or operator that the network's own graph shows, which is told instead where
the network is the candidate (EXP005); traced constants (EXP003), which an exporter traces in that graph as well;
a network and a file of different versions, which look the same; TF32 or reduced precision on the network's side, which is
switched off here.

How to repair: hold the network against the file (`--reference ort --candidate 'torch?module=…'`): localization then names
the module at which they part. Export again with that module rewritten, or with the exporter's other way (`dynamo=True`).

Sources: pytorch/pytorch issue 101398, onnx/onnx issues 2662 and 2831, microsoft/onnxruntime issue 4589 (network and file differ).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import backend_named
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._conversion import worst_misfit
from parityscope.checks._reproducing import RUN_S, show_refuted
from parityscope.checks.other_graph import describe_unit, offer_eval_mode, site_of_unit
from parityscope.errors import ParityError
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.bench import Bench, Run
    from parityscope.checks._reproducing import Misfit
    from parityscope.examination import Examination
    from parityscope.hypotheses.from_other_graph import Unit

# Chosen: a claim that says where, and not what was done, stands behind one that says both.
_GENERAL = 0.9
_TOLD = 3  # differences that are named; chosen


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    file = bench.converted
    if file is None or (backend_named(known.candidate.backend).origins is not None and _is_told_by_graphs(bench)):
        return
    yield Claim(
        words="the ONNX file computes something else than the network",
        predicts=Prediction(
            change="run the network in FP32 and the file in ONNX Runtime, optimizer off, on the same inputs",
            measure="worst relative L2 error of the outputs",
            if_true="more than FP32 rounding",
            if_false="FP32 rounding: the fault comes in after the conversion",
        ),
        cost_s=2 * RUN_S,
        runs="candidate",
        test=lambda: _test_claim(known, bench, file),
    )


def _is_told_by_graphs(bench: Bench) -> bool:
    """Whether the network's own graph was proved to say what the conversion changed, which says more than that it did."""
    try:
        decision = None if bench.graphs is None else bench.graphs().decision
    except ParityError:
        return False
    return decision is not None and decision.alone and bool(decision.causes)


def _test_claim(known: Examination, bench: Bench, file: Run) -> Shown:
    network = next(iter(bench.origin))
    original = bench.origin[network]
    strict = known.declaring("f32")
    stage = worst_misfit(strict, bench, original, file)
    said = f"the network and the file are {format_number(stage.error)} apart"
    if stage.fits:
        return show_refuted(stage, f"{said}, as FP32 rounding allows: the fault comes in after the conversion")
    whole = worst_misfit(known, bench, bench.reference, bench.candidate)
    # The network itself may be the candidate; then the conversion is all that there is between the sides.
    ours = backend_named(known.candidate.backend).origins is not None
    left = stage if ours else worst_misfit(known, bench, file, bench.candidate)
    share = 1.0 if ours else left.share(whole)
    because = said if ours else f"{said}; the deployment is {format_number(left.error)} from the file"
    changed = _changes_of_conversion(bench)
    return _show_finding(
        known,
        network,
        stage,
        share,
        changed,
        Shown(because=because, before=whole.error, after=0.0 if ours else left.error),
    )


def _changes_of_conversion(bench: Bench) -> list[Unit]:
    """What the network's own graph was proved to say otherwise than the file; nothing where it cannot be had."""
    try:
        decision = bench.converted_from().decision if bench.converted_from is not None else None
    except ParityError:
        return []
    return [unit for unit, _ in decision.causes] if decision is not None and decision.alone else []


def _show_finding(
    known: Examination, network: str, stage: Misfit, share: float, changed: list[Unit], seen: Shown
) -> Shown:
    suspects = known.localization.suspects if known.localization else ()
    part = suspects[0].site if suspects and backend_named(known.candidate.backend).origins is not None else None
    where = f" They part at {part.scope or part.node or part.tensor}." if part else ""
    if changed:
        where = f" From the file to the network: {'; '.join(map(describe_unit, changed[:_TOLD]))}."
        part = part or site_of_unit(known, changed[0])
    return replace(
        seen,
        sentence=f"The conversion is at fault: {seen.because}.{where}",
        confidence=1.0 if changed else min(_GENERAL, 1.0 - 1.0 / stage.over),
        confidence_from="the graphs, whose difference makes the error"
        if changed
        else "one minus FP32 rounding's part of what lies between the network and the file, at most 0.9",
        site=part,
        share=share,
        repairs=(
            *(one for unit in changed[:1] for one in offer_eval_mode(unit)),
            (
                "export_again",
                "export again with that module rewritten, or with the exporter's other way (dynamo=True or False)"
                if part
                else "find the module at which network and file part, then export it again",
                "" if part else f"parityscope diagnose {known.model.path.name} --candidate '{network}'",
            ),
        ),
        details={"network": network, "apart": stage.error},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] y) {
  a = MatMul(x, w)
  y = LeakyRelu<alpha = 0.01>(a)
}"""
_NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x @ self.weight, SLOPE)

def make():
    return Net()
"""
_CONSTANTS = {"w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}
_X = {"x": np.random.default_rng(71).normal(size=(2, 8)).astype(np.float32)}
# A mode that the file has and the network not.
_TRAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,4] x) => (float[8,4] y) {
  y, m, v = BatchNormalization<epsilon = 0.00001, training_mode = 1>(x, scale, shift, mean, variance)
}"""
_NORMALIZED = """
import torch

def make():
    norm = torch.nn.BatchNorm1d(4)
    norm.running_mean += torch.tensor([1.0, -2.0, 0.5, 0.25])
    norm.running_var *= torch.tensor([4.0, 0.5, 9.0, 1.0])
    return norm
"""
_STATISTICS = {
    "scale": np.ones(4, np.float32),
    "shift": np.zeros(4, np.float32),
    "mean": np.array([1.0, -2.0, 0.5, 0.25], np.float32),
    "variance": np.array([4.0, 0.5, 9.0, 1.0], np.float32),
}
_BATCH = {"x": np.random.default_rng(72).normal(size=(8, 4)).astype(np.float32)}
_OTHER, _SAME = _NETWORK.replace("SLOPE", "0.1"), _NETWORK.replace("SLOPE", "0.01")
_OURS = "{network}"

CHECK = Check(
    code="EXP001",
    title="The conversion changed what the network computes",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL, inputs=_X, constants=_CONSTANTS, network=_OTHER, reference=_OURS, candidate="ort", site="y"
        ),
        Example(
            model=_TRAIN,
            inputs=_BATCH,
            constants=_STATISTICS,
            network=_NORMALIZED,
            reference=_OURS,
            candidate="ort",
            site="y",
        ),
    ),
    holds_not=(
        # The export is right, and the deployment is not: in a lower precision, and with another slope.
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            network=_SAME,
            reference=_OURS,
            candidate="sim:bf16",
            declared="f32",
        ),
        Example(
            model=_MODEL,
            candidate_model=_MODEL.replace("0.01", "0.1"),
            inputs=_X,
            constants=_CONSTANTS,
            network=_SAME,
            reference=_OURS,
            candidate="ort",
        ),
        Example(model=_MODEL, inputs=_X, constants=_CONSTANTS, candidate="sim:bf16", declared="f32"),
    ),
)
