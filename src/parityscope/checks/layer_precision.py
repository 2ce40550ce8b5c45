"""A layer of the engine writes a narrower type than its nodes were asked for.

What goes wrong: a precision that was asked for single nodes is lost where the engine fuses them. TensorRT up to 10 takes
`layerPrecisions` as a wish unless constraints are obeyed, and inside of a region that another compiler got (`ForeignNode`,
Myelin) even then; the model's report says FP32, the kernel computes in FP16.

How it shows: the error of FP16 although the nodes that are known to need FP32 were asked for it; overflow that a keep-in-FP32
plan was to prevent.

How we test for it: the engine's inspector tells, for each layer, the nodes in it and the type that it writes. In a strongly
typed network the file's own types are what was asked for, in a weakly typed one the layers that were named. A layer is told
when none of its nodes was asked for the type that it writes, and one was asked for a wider one. No run is needed.

What it is confused with: a precision of the whole engine that hardware does not have (CST001).

How to repair: write the types into the model (a strongly typed build has no wishes), which `parityscope repair` does.

Sources: NVIDIA/TensorRT issues 3889 (asked for FP32, FP16 in a Myelin layer), 4505 and 3224; "Migrating from TensorRT 10.x
to 11.x" (weak typing is gone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.records import ExecutedGraph, ExecutedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination

__all__ = ["CHECK"]

_SHOWN = 8  # layers in a claim (chosen); the details hold them all
_WIDTHS = {"f8e5m2": 1, "f8e4m3": 2, "int8": 2, "bf16": 3, "f16": 4, "f32": 5}


def _propose_claims(known: Examination) -> Iterator[Claim]:
    missed = _layers_too_narrow(known)
    if not missed:
        return
    shown = ", ".join(
        f"{layer.name} was asked for {layer.asked} and writes {layer.stored}" for layer in missed[:_SHOWN]
    )
    yield Claim(
        words=f"{len(missed)} layers of the engine write a narrower type than their nodes were asked for",
        predicts=Prediction(
            change="none: the engine describes the layers that it executes",
            measure="the type that each layer writes against those that its nodes were asked for",
            if_true="a layer writes a type that none of its nodes was asked for",
            if_false="every layer writes a type that one of its nodes was asked for",
        ),
        test=lambda: _show_finding(known, missed, shown),
    )


def _layers_too_narrow(known: Examination) -> list[ExecutedLayer]:
    layers = known.executed_graph.layers if known.executed_graph else ()
    return [
        layer
        for layer in layers
        if layer.asked and layer.stored in _WIDTHS and _WIDTHS[layer.stored] < _WIDTHS.get(layer.asked, 0)
    ]


def _show_finding(known: Examination, missed: list[ExecutedLayer], because: str) -> Shown:
    nodes = sorted({node for layer in missed for node in layer.nodes})
    written = {layer.stored for layer in missed}
    agrees = any(pair.grade in written for pair in known.outputs)
    return Shown(
        because=because,
        # A node in the middle of a fused layer may still have been computed as asked: the outputs' error must agree.
        role="cause" if agrees else "contributing",
        sentence=f"{len(missed)} layers of the engine do not have the precision that their nodes were asked for: "
        f"{because}.",
        confidence=1.0,
        confidence_from="the engine's own description",
        site=next((site for site in known.places.values() if site.node in nodes), None),
        # An error of the size of the type that was written is explained by its having been written.
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


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"""

_X = np.array([[-1, 0, 1, 2]], dtype=np.float32)

# What an inspector tells of a fused layer whose node was asked for FP32: an engine is built on a GPU.
_FUSED = ExecutedLayer(
    name="{ForeignNode[y]}", layer_type="kgen", nodes=("y",), precision="f16", stored="f16", asked="f32"
)

CHECK = Check(
    code="CST002",
    title="A layer of the engine has a narrower type than its nodes were asked for",
    propose=_propose_claims,
    holds=(Example(model=_MODEL, inputs=None, candidate="trt:f16", executed=ExecutedGraph(layers=(_FUSED,))),),
    holds_not=(Example(model=_MODEL, inputs={"x": _X}, candidate="ort"),),
)
