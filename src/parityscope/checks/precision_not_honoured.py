"""The engine does not compute in the precision that was asked for.

What goes wrong: a precision is a wish. OpenVINO executes `f16` in BF16 on a CPU that has AVX512-BF16 but no AVX512-FP16,
and in FP32 on one that has neither; TensorRT may keep or change the precision of fused layers.

How it shows: errors of another size than the declared format explains; the engine's own description of its layers.

How we test for it: the executed graph (OpenVINO's runtime model) names the precision of every layer; no run is needed.

What it is confused with: a bug in a layer.

How to repair: ask for what the hardware has, or run on hardware that has what was asked for.

Sources: OpenVINO documentation, "precision control" (the hint is not a guarantee).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._examples import DENSE, DENSE_CONSTANTS, DENSE_INPUTS
from parityscope.records import ExecutedGraph, ExecutedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination

__all__ = ["CHECK"]


def _propose_claims(known: Examination, executed_graph: ExecutedGraph) -> Iterator[Claim]:
    requested, executed = executed_graph.requested, executed_graph.executed
    if not requested or requested == executed:
        return
    counts = Counter(layer.precision for layer in executed_graph.layers)
    because = ", ".join(f"{count} layers in {precision}" for precision, count in counts.most_common())
    yield Claim(
        words=f"the engine was asked for {requested} and executes {executed}",
        predicts=Prediction(
            change="none: the engine describes the layers that it executes",
            measure="the precision of the layers that compute",
            if_true=executed,
            if_false=requested,
        ),
        test=lambda: _show_finding(known, requested, executed, because),
    )


def _show_finding(known: Examination, requested: str, executed: str, because: str) -> Shown:
    return Shown(
        because=because,
        role="cause" if _is_coarser(executed, requested) else "information",
        sentence=f"{requested} was asked for and {executed} is executed: {because}.",
        confidence=1.0,
        confidence_from="the engine's own description",
        # An error of the executed precision's size is all explained by its having been executed.
        share=1.0 if any(pair.grade == executed for pair in known.outputs) else None,
        repairs=(
            (
                "other_precision",
                f"ask for {executed} (or f32) on this machine, or run {requested} on hardware that has it",
                f"--candidate {known.candidate.backend}:{executed}",
            ),
        ),
        details={"requested": requested, "executed": executed},
    )


def _is_coarser(executed: str, requested: str) -> bool:
    """Whether `executed` rounds more coarsely than `requested`."""
    significand_bits = {"f32": 24, "tf32": 11, "f16": 11, "bf16": 8}
    return significand_bits.get(executed, 24) < significand_bits.get(requested, 24)


_BFLOAT16_INSTEAD = ExecutedGraph(
    layers=(ExecutedLayer(name="h", layer_type="MatMul", nodes=("h",), precision="bf16"),),
    requested="f16",
    executed="bf16",
)

CHECK = Check(
    code="CST001",
    title="The engine does not compute in the precision that was asked for",
    propose=_propose_claims,
    holds=(
        # Which wish a CPU refuses depends on the CPU: this is what OpenVINO tells on one with BF16 and without FP16.
        Example(
            model=DENSE, inputs=None, constants=DENSE_CONSTANTS, candidate="openvino:f16", executed=_BFLOAT16_INSTEAD
        ),
    ),
    holds_not=(Example(model=DENSE, inputs=DENSE_INPUTS, candidate="openvino:f32", constants=DENSE_CONSTANTS),),
)
