"""The engine, or a layer of it, does not compute in the precision that was asked for.

What goes wrong: a precision is a wish. OpenVINO executes `f16` in BF16 on a CPU that has AVX512-BF16 but no AVX512-FP16, and in
FP32 on one that has neither. TensorRT up to 10 takes `layerPrecisions` as a wish unless constraints are obeyed, and inside of a
region that another compiler got (`ForeignNode`, Myelin) even then: where layers are fused, what was asked for single nodes is
lost; the model's report says FP32, the kernel computes in FP16.

How it shows: errors of another size than the declared format explains; overflow that a keep-in-FP32 plan was to prevent; the
engine's own description of its layers.

How we test for it: no run is needed. The executed graph (OpenVINO's runtime model, TensorRT's inspector) names the precision of
every layer, the nodes in it and the type that it writes. In a strongly typed network the file's own types are what was asked
for, in a weakly typed one the layers that were named. A layer is told when none of its nodes was asked for the type that it
writes, and one was asked for a wider one.

What it is confused with: a bug in a layer.

How to repair: ask for what the hardware has, or run on hardware that has what was asked for; for single layers write the types
into the model (a strongly typed build has no wishes), which `parityscope repair` does.

Sources: OpenVINO documentation, "precision control" (the hint is not a guarantee); NVIDIA/TensorRT issues 3889 (asked for FP32,
FP16 in a Myelin layer), 4505 and 3224; "Migrating from TensorRT 10.x to 11.x" (weak typing is gone).
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

_SHOWN = 8  # layers in a claim (chosen); the details hold them all
_WIDTHS = {"f8e5m2": 1, "f8e4m3": 2, "int8": 2, "bf16": 3, "f16": 4, "tf32": 4, "f32": 5}
_DESCRIBED = "none: the engine describes the layers that it executes"
_TOLD = "the engine's own description"


def _propose_claims(known: Examination, executed_graph: ExecutedGraph) -> Iterator[Claim]:
    requested, executed = executed_graph.requested, executed_graph.executed
    if requested and requested != executed:
        counts = Counter(layer.precision for layer in executed_graph.layers)
        because = ", ".join(f"{count} layers in {precision}" for precision, count in counts.most_common())
        yield Claim(
            words=f"the engine was asked for {requested} and executes {executed}",
            predicts=Prediction(
                change=_DESCRIBED,
                measure="the precision of the layers that compute",
                if_true=executed,
                if_false=requested,
            ),
            test=lambda: _show_engine(known, requested, executed, because),
        )
    if missed := [layer for layer in executed_graph.layers if layer.asked and _is_narrower(layer.stored, layer.asked)]:
        yield Claim(
            words=f"{len(missed)} layers of the engine write a narrower type than their nodes were asked for",
            predicts=Prediction(
                change=_DESCRIBED,
                measure="the type that each layer writes against those that its nodes were asked for",
                if_true="a layer writes a type that none of its nodes was asked for",
                if_false="every layer writes a type that one of its nodes was asked for",
            ),
            test=lambda: _show_layers(known, missed),
        )


def _is_narrower(written: str, asked: str) -> bool:
    """Whether one type is known to round more coarsely, or to hold less, than another."""
    return written in _WIDTHS and _WIDTHS[written] < _WIDTHS.get(asked, 0)


def _show_engine(known: Examination, requested: str, executed: str, because: str) -> Shown:
    return Shown(
        because=because,
        role="cause" if _is_narrower(executed, requested) else "information",
        sentence=f"{requested} was asked for and {executed} is executed: {because}.",
        confidence=1.0,
        confidence_from=_TOLD,
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


def _show_layers(known: Examination, missed: list[ExecutedLayer]) -> Shown:
    nodes = sorted({node for layer in missed for node in layer.nodes})
    because = ", ".join(f"{one.name} was asked for {one.asked} and writes {one.stored}" for one in missed[:_SHOWN])
    # A node in the middle of a fused layer may still have been computed as asked: the outputs' error must agree.
    agrees = any(pair.grade in {layer.stored for layer in missed} for pair in known.outputs)
    return Shown(
        because=because,
        role="cause" if agrees else "contributing",
        sentence=f"{len(missed)} layers of the engine do not have the precision that their nodes were asked for: "
        f"{because}.",
        confidence=1.0,
        confidence_from=_TOLD,
        site=next((site for site in known.places.values() if site.node in nodes), None),
        share=1.0 if agrees else None,
        repairs=(
            (
                "strongly_typed",
                "write the types into the model and build it strongly typed: nothing is then left to wish for",
                "parityscope repair MODEL --candidate TARGET --inputs DATA -o typed.onnx",
            ),
        ),
        details={"layers": [layer.name for layer in missed], "nodes": nodes},
    )


_BFLOAT16_INSTEAD = ExecutedGraph(
    layers=(ExecutedLayer(name="h", layer_type="MatMul", nodes=("h",), precision="bf16"),),
    requested="f16",
    executed="bf16",
)
# What an inspector tells of a fused layer whose node was asked for FP32: an engine is built on a GPU.
_FUSED = ExecutedLayer(
    name="{ForeignNode[y]}", layer_type="kgen", nodes=("y",), precision="f16", stored="f16", asked="f32"
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
        Example(
            model=DENSE,
            inputs=None,
            constants=DENSE_CONSTANTS,
            candidate="trt:f16",
            executed=ExecutedGraph(layers=(_FUSED,)),
        ),
    ),
    holds_not=(
        Example(model=DENSE, inputs=DENSE_INPUTS, candidate="openvino:f32", constants=DENSE_CONSTANTS),
        Example(model=DENSE, inputs=DENSE_INPUTS, candidate="ort", constants=DENSE_CONSTANTS),
    ),
)
