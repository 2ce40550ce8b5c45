"""The version of a runtime has a known fault that fits this network.

What goes wrong: a release computes an operator or a fusion wrong, its makers or others have said so in public, and the next
release is right.

How it shows: the same file is right in another version; nothing fails and nothing warns.

How we test for it: the versions that both sides tell of themselves are looked up in a table of known faults
(`known_faults.json`), each with its source. What a fault needs is asked of the network and the machine: operators, their order
and attributes, the opset, the format that is computed in, the GPU or CPU. Nothing is run, so this is asked before everything
else, and it names the check that proves the fault or refutes it, where there is one.

What it is confused with: the cause. A known fault that fits may well not be what happens here; and the table holds what was
found in public, so that none in it says nothing.

How to repair: the workaround of the source, or another version; `verify` then shows whether it was that.

Sources: issues and changes of NVIDIA/TensorRT, onnx/onnx-tensorrt, microsoft/onnxruntime and openvinotoolkit/openvino, named at
each entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import computing_nodes, consumers_of, node_name
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.known_faults import RUNTIMES, faults_of
from parityscope.plain_numbers import list_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.examination import Examination
    from parityscope.known_faults import Fault

_SHOWN = 3  # places of a fault in a sentence (chosen); the details hold them all


def _propose_claims(known: Examination) -> Iterator[Claim]:
    computed = {known.declared, known.executed, known.candidate.precision}
    for side, facts in zip(("reference", "candidate"), known.environments, strict=True):
        for runtime in RUNTIMES:
            for fault in faults_of(runtime, facts.get(runtime, ""), facts):
                if fault.formats and (side == "reference" or not computed & set(fault.formats)):
                    continue
                if (places := _nodes_of_fault(fault, known.graph)) is not None:
                    yield _make_claim(fault, side, facts[runtime], places)


def _make_claim(fault: Fault, side: str, version: str, places: list[str]) -> Claim:
    title = RUNTIMES[fault.runtime]
    shown = f", here at {list_first(places, _SHOWN)}" if places else ""
    proves = f" {fault.asked_by} tells whether it is what happens here." if fault.asked_by else ""
    return Claim(
        words=f"{title} of the {side} has a known fault",
        predicts=Prediction(
            measure="what is known of the version",
            if_true="the network has what the fault needs",
            if_false="it has not",
        ),
        test=lambda: Shown(
            because=f"{fault.source} ({fault.standing})",
            role="information",
            sentence=f"Known of {fault.versions}: it {fault.symptom}{shown}. The {side} ran with {version}. "
            f"That is no cause until a run shows it.{proves}",
            confidence_from="read, not estimated",
            repairs=(("known_workaround", fault.workaround),),
            details={
                "fault": fault.name,
                "side": side,
                "version": version,
                "standing": fault.standing,
                "sources": [fault.source, *fault.sources],
                "nodes": places,
            },
        ),
    )


def _nodes_of_fault(fault: Fault, graph: ir.Model) -> list[str] | None:
    """The nodes of the network that the fault is about, by name; None where the network has not what it needs."""
    low, high = fault.opsets
    if not low <= int(graph.opset_imports.get("", 0)) <= high:
        return None
    nodes = {id(node): node_name(node, index) for index, node in enumerate(computing_nodes(graph))}
    every = [node for node in graph.graph if id(node) in nodes]
    found = [[node for node in every if _fits_fault(node, kinds, fault)] for kinds in fault.operators]
    if any(len(one) < (fault.count if place == 0 else 1) for place, one in enumerate(found)):
        return None
    ends = [end for node in every for end in _chain_ends(node, fault.chain)]
    if fault.chain and not ends:
        return None
    return [nodes[id(node)] for node in (ends or (found[0] if found else []))]


def _fits_fault(node: ir.Node, kinds: str, fault: Fault) -> bool:
    told = {name: value.value for name, value in node.attributes.items()}
    return node.op_type in kinds.split("|") and all(told.get(name, 0) == value for name, value in fault.attributes)


def _chain_ends(node: ir.Node, chain: tuple[str, ...]) -> list[ir.Node]:
    """The nodes in which a chain of operators ends that begins at `node`."""
    if not chain or node.op_type != chain[0]:
        return []
    if len(chain) == 1:
        return [node]
    return [end for output in node.outputs for reader in consumers_of(output) for end in _chain_ends(reader, chain[1:])]


_CLIPPED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y)
  <float[4,4] W = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4] b = {1,1,1,1}, float low = {0}, float high = {6}> {
  m = MatMul(x, W) a = Add(m, b) y = Clip(a, low, high) }"""
_X = {"x": np.ones((1, 4), np.float32)}


def _example_of_version(version: str) -> Example:
    return Example(
        model=_CLIPPED,
        inputs=_X,
        outputs_fault=lambda samples: [{"y": one["y"] + 10} for one in samples],
        environment={"tensorrt": version},
    )


CHECK = Check(
    code="ENV004",
    title="A known fault of this version fits the network",
    propose=_propose_claims,
    holds=(_example_of_version("10.13.3.9"),),
    holds_not=(_example_of_version("10.11.0.33"),),
)
