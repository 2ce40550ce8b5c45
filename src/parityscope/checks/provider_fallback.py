"""Nodes run on the CPU although a GPU was asked for.

What goes wrong: ONNX Runtime gives a node that the CUDA provider has no kernel for, in this type or at this opset, to the
CPU provider, and copies its inputs and results between the two. Nothing is reported. Such a node is slow, and computes in
another arithmetic than its neighbours: the CPU provider computes FP16 in FP32, and knows no TF32. If the CUDA provider
cannot be loaded at all, every node is such a node.

How it shows: a deployment that is slower than expected; layers whose error is of another size than their format explains.

How we test for it: ONNX Runtime records to which provider it gives each node (`session.record_ep_graph_assignment_info`, version
1.24 and newer); no run is needed. Nodes that compute integers, or only move data, are not counted: ONNX Runtime keeps the
arithmetic of shapes on the CPU on purpose.

What it is confused with: a precision that is not honoured (CST001), where the node does run on the device.

How to repair: convert the node to a type or an opset that the provider has a kernel for; write it with other operators; with
all nodes on the CPU, install onnxruntime-gpu with the CUDA and cuDNN versions that it was built for.

Sources: ONNX Runtime documentation, "Execution Providers" and "CUDA Execution Provider" (fallback to the CPU); measured: FP16 on
the CPU provider is computed in FP32 (docs/numerics.md).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._examples import DENSE, DENSE_CONSTANTS, DENSE_INPUTS
from parityscope.operators import MOVING
from parityscope.records import ExecutedGraph, ExecutedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination

_CPU = "CPUExecutionProvider"
_FLOATS = frozenset({"f32", "f16", "bf16", "f64"})
# Operators that move or convert data; where they run changes no number.
_PASSIVE = MOVING | {"Concat", "Shape"} | {"MemcpyFromHost", "MemcpyToHost"}
_NAMED = 10  # chosen: nodes in the details of a finding


def _propose_claims(known: Examination) -> Iterator[Claim]:
    device = known.candidate.option("device") or known.candidate.option("provider")
    fallen = _layers_on_cpu(known)
    if not device.startswith("cuda") or not fallen:
        return
    counts = Counter(layer.layer_type for layer in fallen)
    because = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    yield Claim(
        words=f"{device} was asked for and nodes that compute run on the CPU",
        predicts=Prediction(
            change="none: the runtime tells to which provider it gave each node",
            measure="the provider of every node that computes floats",
            if_true=_CPU,
            if_false="CUDAExecutionProvider",
        ),
        test=lambda: _show_finding(known, fallen, f"on the CPU: {because}"),
    )


def _layers_on_cpu(known: Examination) -> list[ExecutedLayer]:
    layers = known.executed_graph.layers if known.executed_graph else ()
    return [
        layer
        for layer in layers
        if layer.provider == _CPU and layer.precision in _FLOATS and layer.layer_type not in _PASSIVE
    ]


def _show_finding(known: Examination, fallen: list[ExecutedLayer], because: str) -> Shown:
    layers = known.executed_graph.layers if known.executed_graph else ()
    everything = all(layer.provider in {_CPU, ""} for layer in layers)
    text = "write these nodes in a type, an opset or operators that the CUDA provider has kernels for"
    if everything:
        text = "install onnxruntime-gpu with the CUDA and cuDNN that it was built for: the provider was not loaded"
    return Shown(
        because=because,
        # Where a node runs is a difference of arithmetic, no error of it.
        role="information",
        sentence=f"{len(fallen)} nodes that compute were given to the CPU although "
        f"{known.candidate.option('device')} was asked for; {because}.",
        confidence_from="the runtime's own record",
        repairs=(("keep_on_device", text),),
        details={"nodes": [layer.name for layer in fallen[:_NAMED]], "count": len(fallen)},
    )


_FALLEN = ExecutedLayer(name="h", layer_type="MatMul", nodes=("h",), precision="f32", provider=_CPU)

CHECK = Check(
    code="ENV003",
    title="Nodes run on the CPU although a GPU was asked for",
    propose=_propose_claims,
    # A GPU is asked for: this is what ONNX Runtime records of a node that CUDA has no kernel for.
    holds=(
        Example(
            model=DENSE,
            inputs=None,
            constants=DENSE_CONSTANTS,
            candidate="ort?device=cuda",
            executed=ExecutedGraph(layers=(_FALLEN,)),
        ),
    ),
    holds_not=(Example(model=DENSE, inputs=DENSE_INPUTS, candidate="ort", constants=DENSE_CONSTANTS),),
)
